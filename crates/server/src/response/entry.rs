//! A log entry as it is shown: what happened to a record, by whom, and what came of it.

use std::sync::Arc;

use onceward_core::decide::{Account, Call, Operation, Transfer};
use onceward_core::execution_id::ExecutionId;
use onceward_core::hex;
use onceward_core::record::{Actor, Execution};
use onceward_core::value::{RecordId, Value};
use onceward_store::log::{LogEntryBody, LoggedRefusal};
use onceward_store::{ApiKeyChange, LogEntry};
use serde::Serialize;
use serde_json::{Map, Value as Json, json};
use utoipa::ToSchema;

use super::{DisplayText, ExecutionJson, Rfc3339};
use crate::problem::Problem;

/// One entry of the log.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LogEntry)]
pub(crate) struct LogEntryJson {
    /// Its place in the log.
    #[schema(minimum = 1)]
    seq: u64,
    /// The place of its operation's first entry: those with the same one happened together.
    #[schema(minimum = 1)]
    operation: u64,
    #[schema(value_type = Option<String>, format = Uuid)]
    record: Option<DisplayText<RecordId>>,
    /// The record's version after it; 0 where there is no record.
    #[schema(minimum = 0)]
    version: u64,
    #[schema(value_type = String, format = DateTime)]
    at: Rfc3339,
    /// What moved it: the event of the call, or that of the row by which another record's operation reached it.
    #[schema(value_type = String)]
    event: Arc<str>,
    /// Who called; in an operation's first entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    actor: Option<Arc<str>>,
    /// What the call brought.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    input: Option<Map<String, Json>>,
    /// In a record's first entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    lifecycle: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    owner: Option<Arc<str>>,
    /// The state that it entered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    state: Option<Arc<str>>,
    /// Those that changed.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object, required = false)]
    fields: Map<String, Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ExecutionJson)]
    execution: Option<Json>,
    /// The execution whose effect landed.
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<EffectRefJson>,
    /// For operators: what was moved between accounts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    transfers: Vec<TransferJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, required = false)]
    audit: Vec<Arc<str>>,
    /// A call that was refused and left a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<RefusalJson>,
    /// How many records pruning took here.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pruned: Option<u64>,
    /// An API key that was made or revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    key: Option<Json>,
    /// Of this entry and the record's one before.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    hash: String,
}

/// An effect by its hash.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = EffectRef)]
struct EffectRefJson {
    #[schema(value_type = String)]
    execution: ExecutionId,
    result_sha256: String,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Transfer)]
struct TransferJson {
    from: String,
    to: String,
    asset: String,
    amount: i64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LoggedRefusal)]
struct RefusalJson {
    status: u16,
    #[schema(value_type = String)]
    code: Arc<str>,
    #[schema(value_type = Option<String>, format = Uuid)]
    record: Option<DisplayText<RecordId>>,
    #[schema(value_type = Option<String>)]
    lifecycle: Option<Arc<str>>,
    #[schema(value_type = Option<String>)]
    state: Option<Arc<str>>,
}

impl LogEntryJson {
    /// `whole`: for one who may see everything.
    pub(crate) fn new(entry: &LogEntry, include_transfers: bool) -> Result<Self, Problem> {
        let body = entry.body()?;
        let change = body.change.clone().unwrap_or_default();
        let fields = change.fields().map(|(name, value)| (name.to_string(), Value::to_json(value))).collect();
        let (lifecycle, owner) = change.created.map(|created| (created.lifecycle, created.owner)).unzip();
        let operation = body.operation.as_deref();
        let execution =
            entry.record.zip(change.execution.as_ref()).map(|(record, execution)| execution_json(record, execution));
        let effect = entry.record.zip(body.effect.as_ref()).map(|(record, effect)| EffectRefJson {
            execution: ExecutionId { record, token: effect.token },
            result_sha256: hex::encode(&effect.result),
        });
        Ok(Self {
            seq: entry.seq,
            operation: entry.seq.saturating_sub(u64::from(body.back)),
            record: entry.record.map(DisplayText),
            version: entry.version,
            at: Rfc3339(entry.at),
            event: event_name(&body),
            actor: operation
                .map(|operation| &operation.actor)
                .or(body.api_key_change.as_ref().map(|change| &change.actor))
                .map(actor_id),
            input: operation.and_then(call_input),
            lifecycle,
            owner,
            state: change.state,
            fields,
            execution,
            effect,
            transfers: body
                .transfers
                .iter()
                .filter(|_| include_transfers)
                .map(|moved| TransferJson::new(moved))
                .collect(),
            refusal: body.refusal.as_ref().map(RefusalJson::new),
            pruned: body.checkpoint.as_ref().map(|checkpoint| checkpoint.pruned_records()),
            key: body.api_key_change.as_deref().map(api_key_change_json),
            audit: body.audit,
            hash: hex::encode(&entry.hash),
        })
    }
}

fn actor_id(actor: &Actor) -> Arc<str> {
    Arc::clone(&actor.id)
}

/// Without the mark by which `verify` knows its secret.
fn api_key_change_json(change: &ApiKeyChange) -> Json {
    let created = change.created.as_ref().map(|key| {
        json!({
            "id": key.id, "owner": key.owner, "roles": key.roles, "lifecycles": key.lifecycles, "name": key.name,
            "expires_at": key.expires_at.map(|time| time.to_string()),
        })
    });
    json!({ "created": created, "revoked": change.revoked, "deleted": change.deleted })
}

fn execution_json(record: RecordId, execution: &Execution) -> Json {
    // Text, numbers and names.
    serde_json::to_value(ExecutionJson::new(record, execution)).unwrap_or_default()
}

fn event_name(body: &LogEntryBody) -> Arc<str> {
    let call_event = |operation: &Operation| -> Arc<str> {
        match &operation.call {
            Call::Create(_) => "create".into(),
            Call::Fire { event, .. } => Arc::clone(event),
            Call::Lease { .. } => "lease".into(),
            Call::Start { .. } => "start".into(),
            Call::Heartbeat { .. } => "heartbeat".into(),
            Call::Commit { .. } => "commit".into(),
            Call::Finish { .. } => "finish".into(),
            Call::Fail { .. } => "fail".into(),
            Call::Yield { .. } => "yield".into(),
            Call::MigrateVersion(_) => "move".into(),
            // What was due is told by the row that was taken.
            Call::FireDue { .. } | Call::LoseLease { .. } => match body.transitions.first() {
                Some((event, _)) => Arc::clone(event),
                None => "time".into(),
            },
        }
    };
    match (&body.operation, body.transitions.first(), &body.refusal) {
        (Some(operation), ..) => call_event(operation),
        (None, Some((event, _)), _) => Arc::clone(event),
        (None, None, Some(refusal)) => Arc::clone(&refusal.event),
        (None, None, None) if body.checkpoint.is_some() => "prune".into(),
        (None, None, None) if body.api_key_change.is_some() => "key".into(),
        (None, None, None) if body.activated.is_some() => "use".into(),
        (None, None, None) => "link".into(),
    }
}

fn call_input(operation: &Operation) -> Option<Map<String, Json>> {
    match &operation.call {
        Call::Create(create) => Some(create.fields.clone()),
        Call::Fire { input, .. } => Some(input.clone()),
        _ => None,
    }
    .filter(|input| !input.is_empty())
}

impl TransferJson {
    fn new(moved: &Transfer) -> Self {
        let (asset, from) = account_parts(&moved.from);
        Self { from, to: account_parts(&moved.to).1, asset, amount: moved.amount }
    }
}

fn account_parts(account: &Account) -> (String, String) {
    match account {
        Account::Named { asset, name } => (asset.to_string(), name.to_string()),
        Account::Hold { asset, record } => (asset.to_string(), format!("hold:{record}")),
    }
}

impl RefusalJson {
    fn new(refusal: &LoggedRefusal) -> Self {
        Self {
            status: refusal.status,
            code: Arc::clone(&refusal.code),
            record: refusal.record.map(DisplayText),
            lifecycle: refusal.lifecycle.clone(),
            state: refusal.state.clone(),
        }
    }
}
