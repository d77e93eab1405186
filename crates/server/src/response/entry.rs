//! Log entries as JSON.

use std::sync::Arc;

use onceward_api_types as wire;
use onceward_core::decide::{Account, Call, Operation, Transfer};
use onceward_core::execution_id::ExecutionId;
use onceward_core::hex;
use onceward_core::value::Value;
use onceward_store::log::{LogEntryBody, LoggedRefusal};
use onceward_store::{ApiKeyChange, LogEntry};
use serde_json::{Map, Value as Json, json};

use super::{execution_json, texts, timestamp};
use crate::problem::Problem;

/// Only callers that may read everything get the transfers.
pub(crate) fn log_entry_json(entry: &LogEntry, include_transfers: bool) -> Result<wire::LogEntry, Problem> {
    let body = entry.body()?;
    let change = body.change.clone().unwrap_or_default();
    let fields = change.fields().map(|(name, value)| (name.to_string(), Value::to_json(value))).collect();
    let (lifecycle, owner) =
        change.created.map(|created| (created.lifecycle.to_string(), created.owner.to_string())).unzip();
    let operation = body.operation.as_deref();
    let actor = operation
        .map(|operation| &operation.actor)
        .or(body.api_key_change.as_ref().map(|api_key_change| &api_key_change.actor));
    let effect = entry.record.zip(body.effect.as_ref()).map(|(record, effect)| wire::EffectRef {
        execution: ExecutionId { record, token: effect.token }.to_string(),
        result_sha256: hex::encode(&effect.result),
    });
    Ok(wire::LogEntry {
        seq: entry.seq,
        operation: entry.seq.saturating_sub(u64::from(body.back)),
        record: entry.record.map(|record| record.0),
        version: entry.version,
        at: timestamp(entry.at),
        event: event_name(&body).to_string(),
        actor: actor.map(|actor| actor.id.to_string()),
        input: operation.and_then(call_input),
        lifecycle,
        owner,
        state: change.state.map(|state| state.to_string()),
        fields,
        execution: entry
            .record
            .zip(change.execution.as_ref())
            .map(|(record, execution)| execution_json(record, execution)),
        effect,
        transfers: body.transfers.iter().filter(|_| include_transfers).map(|moved| transfer_json(moved)).collect(),
        audit: texts(&body.audit),
        refusal: body.refusal.as_ref().map(refusal_json),
        pruned: body.checkpoint.as_ref().map(|checkpoint| checkpoint.pruned_records()),
        key: body.api_key_change.as_deref().map(api_key_change_json),
        hash: hex::encode(&entry.hash),
    })
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

fn transfer_json(moved: &Transfer) -> wire::Transfer {
    let (asset, from) = account_parts(&moved.from);
    wire::Transfer { from, to: account_parts(&moved.to).1, asset, amount: moved.amount }
}

fn account_parts(account: &Account) -> (String, String) {
    match account {
        Account::Named { asset, name } => (asset.to_string(), name.to_string()),
        Account::Hold { asset, record } => (asset.to_string(), format!("hold:{record}")),
    }
}

fn refusal_json(refusal: &LoggedRefusal) -> wire::LoggedRefusal {
    wire::LoggedRefusal {
        status: refusal.status,
        code: refusal.code.to_string(),
        record: refusal.record.map(|record| record.0),
        lifecycle: refusal.lifecycle.as_deref().map(str::to_owned),
        state: refusal.state.as_deref().map(str::to_owned),
    }
}
