//! A log entry as it is shown: what happened to a record, by whom, and what came of it.

use std::sync::Arc;

use onceward_core::decide::{Account, Call, LedgerMove, Operation};
use onceward_core::execution_id::ExecutionId;
use onceward_core::hex;
use onceward_core::record::{Actor, Execution};
use onceward_core::value::{RecordId, Value};
use onceward_store::log::{Body, RefusalMark};
use onceward_store::{Entry, KeyChange};
use serde::Serialize;
use serde_json::{Map, Value as Json, json};
use utoipa::ToSchema;

use super::{ExecutionShape, Text, When};
use crate::problem::Problem;

/// One entry of the log.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Entry)]
pub(crate) struct EntryShape {
    /// Its place in the log.
    #[schema(minimum = 1)]
    seq: u64,
    /// The place of its operation's first entry: those with the same one happened together.
    #[schema(minimum = 1)]
    operation: u64,
    #[schema(value_type = Option<String>, format = Uuid)]
    record: Option<Text<RecordId>>,
    /// The record's version after it; 0 where there is no record.
    #[schema(minimum = 0)]
    version: u64,
    #[schema(value_type = String, format = DateTime)]
    at: When,
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
    #[schema(value_type = ExecutionShape)]
    execution: Option<Json>,
    /// The execution whose effect landed.
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<Landed>,
    /// For operators: what was moved between accounts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    moves: Vec<MoveShape>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, required = false)]
    audit: Vec<Arc<str>>,
    /// A call that was refused and left a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<RefusalShape>,
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
#[schema(as = Landed)]
struct Landed {
    #[schema(value_type = String)]
    execution: ExecutionId,
    result_sha256: String,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Move)]
struct MoveShape {
    from: String,
    to: String,
    asset: String,
    amount: i64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Refused)]
struct RefusalShape {
    status: u16,
    #[schema(value_type = String)]
    code: Arc<str>,
    #[schema(value_type = Option<String>, format = Uuid)]
    record: Option<Text<RecordId>>,
    #[schema(value_type = Option<String>)]
    lifecycle: Option<Arc<str>>,
    #[schema(value_type = Option<String>)]
    state: Option<Arc<str>>,
}

impl EntryShape {
    /// `whole`: for one who may see everything.
    pub(crate) fn of(entry: &Entry, whole: bool) -> Result<Self, Problem> {
        let body = entry.body()?;
        let change = body.change.clone().unwrap_or_default();
        let fields = change.fields().map(|(name, value)| (name.to_string(), Value::to_json(value))).collect();
        let (lifecycle, owner) = change.created.map(|created| (created.lifecycle, created.owner)).unzip();
        let operation = body.operation.as_deref();
        let execution = entry.record.zip(change.execution.as_ref()).map(|(record, execution)| shown(record, execution));
        let effect = entry.record.zip(body.effect.as_ref()).map(|(record, effect)| Landed {
            execution: ExecutionId { record, token: effect.token },
            result_sha256: hex::encode(&effect.result),
        });
        Ok(Self {
            seq: entry.seq,
            operation: entry.seq.saturating_sub(u64::from(body.back)),
            record: entry.record.map(Text),
            version: entry.version,
            at: When(entry.at),
            event: event(&body),
            actor: operation
                .map(|operation| &operation.actor)
                .or(body.key.as_ref().map(|change| &change.actor))
                .map(id),
            input: operation.and_then(input),
            lifecycle,
            owner,
            state: change.state,
            fields,
            execution,
            effect,
            moves: body.moves.iter().filter(|_| whole).map(|moved| MoveShape::of(moved)).collect(),
            refusal: body.refusal.as_ref().map(RefusalShape::of),
            pruned: body.pruned.as_ref().map(|checkpoint| checkpoint.records()),
            key: body.key.as_deref().map(key),
            audit: body.audit,
            hash: hex::encode(&entry.hash),
        })
    }
}

fn id(actor: &Actor) -> Arc<str> {
    Arc::clone(&actor.id)
}

/// Without the mark by which `verify` knows its secret.
fn key(change: &KeyChange) -> Json {
    let made = change.made.as_ref().map(|key| {
        json!({
            "id": key.id, "owner": key.owner, "roles": key.roles, "lifecycles": key.lifecycles, "name": key.name,
            "expires_at": key.expires_at.map(|time| time.to_string()),
        })
    });
    json!({ "made": made, "revoked": change.revoked, "forgotten": change.forgotten })
}

fn shown(record: RecordId, execution: &Execution) -> Json {
    // Text, numbers and names.
    serde_json::to_value(ExecutionShape::of(record, execution)).unwrap_or_default()
}

fn event(body: &Body) -> Arc<str> {
    let called = |operation: &Operation| -> Arc<str> {
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
            Call::Move(_) => "move".into(),
            // What was due is told by the row that was taken.
            Call::Due { .. } | Call::Lost { .. } => match body.rows.first() {
                Some((event, _)) => Arc::clone(event),
                None => "time".into(),
            },
        }
    };
    match (&body.operation, body.rows.first(), &body.refusal) {
        (Some(operation), ..) => called(operation),
        (None, Some((event, _)), _) => Arc::clone(event),
        (None, None, Some(refusal)) => Arc::clone(&refusal.event),
        (None, None, None) if body.pruned.is_some() => "prune".into(),
        (None, None, None) if body.key.is_some() => "key".into(),
        (None, None, None) if body.used.is_some() => "use".into(),
        (None, None, None) => "link".into(),
    }
}

fn input(operation: &Operation) -> Option<Map<String, Json>> {
    match &operation.call {
        Call::Create(create) => Some(create.fields.clone()),
        Call::Fire { input, .. } => Some(input.clone()),
        _ => None,
    }
    .filter(|input| !input.is_empty())
}

impl MoveShape {
    fn of(moved: &LedgerMove) -> Self {
        let (asset, from) = named(&moved.from);
        Self { from, to: named(&moved.to).1, asset, amount: moved.amount }
    }
}

fn named(account: &Account) -> (String, String) {
    match account {
        Account::Named { asset, name } => (asset.to_string(), name.to_string()),
        Account::Hold { asset, record } => (asset.to_string(), format!("hold:{record}")),
    }
}

impl RefusalShape {
    fn of(refusal: &RefusalMark) -> Self {
        Self {
            status: refusal.status,
            code: Arc::clone(&refusal.code),
            record: refusal.record.map(Text),
            lifecycle: refusal.lifecycle.clone(),
            state: refusal.state.clone(),
        }
    }
}
