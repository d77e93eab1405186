//! Log entries as JSON.

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
    /// Position in the log.
    #[schema(minimum = 1)]
    seq: u64,
    /// `seq` of the operation's first entry. Entries with the same value were committed together.
    #[schema(minimum = 1)]
    operation: u64,
    #[schema(value_type = Option<String>, format = Uuid)]
    record: Option<DisplayText<RecordId>>,
    /// The record's version after this entry; 0 if the entry has no record.
    #[schema(minimum = 0)]
    version: u64,
    #[schema(value_type = String, format = DateTime)]
    at: Rfc3339,
    /// The event that changed the record: that of the call, or of the transition that another record's operation
    /// triggered.
    #[schema(value_type = String)]
    event: Arc<str>,
    /// The caller. Only in an operation's first entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    actor: Option<Arc<str>>,
    /// The caller's input.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    input: Option<Map<String, Json>>,
    /// Only in a record's first entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    lifecycle: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    owner: Option<Arc<str>>,
    /// The state that the record entered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    state: Option<Arc<str>>,
    /// The fields that changed.
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object, required = false)]
    fields: Map<String, Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ExecutionJson)]
    execution: Option<Json>,
    /// The execution whose effect was committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<EffectRefJson>,
    /// Transfers between accounts. Only for operators.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    transfers: Vec<TransferJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, required = false)]
    audit: Vec<Arc<str>>,
    /// A refused call that was logged.
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<RefusalJson>,
    /// Number of records that pruning deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pruned: Option<u64>,
    /// An API key that was created, revoked or deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    key: Option<Json>,
    /// Hash of this entry and the record's previous one.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    hash: String,
}

/// A committed effect, identified by its hash.
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
    /// Only callers that may read everything get the transfers.
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

/// Omits the digest by which `verify` recognizes the secret.
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
    // Cannot fail: text and numbers only.
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
            // A due event is named by the transition that was taken.
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
