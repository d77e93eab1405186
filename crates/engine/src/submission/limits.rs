//! Validates submissions before they are queued: size, JSON depth, idempotency key and payload hash.

use onceward_core::decide::Call;
use onceward_store::PayloadBytes;
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

use crate::config::EngineConfig;
use crate::error::EngineError;
use crate::submission::queue::Submission;

/// JSON parsers stop at 128 levels, and the log and replies add a few.
const MAX_JSON_DEPTH: usize = 100;

#[derive(Clone, Copy, Debug)]
pub(crate) struct SubmissionLimits {
    max_input_bytes: usize,
    max_result_bytes: usize,
}

impl SubmissionLimits {
    pub(crate) fn from_config(config: &EngineConfig) -> Self {
        Self { max_input_bytes: config.max_input_bytes, max_result_bytes: config.max_result_bytes }
    }

    pub(crate) fn validate(&self, submission: &Submission) -> Result<(), EngineError> {
        let max_bytes =
            if matches!(submission.call, Call::Commit { .. }) { self.max_result_bytes } else { self.max_input_bytes };
        if estimated_call_bytes(&submission.call) > max_bytes {
            return Err(EngineError::RequestTooLarge { max_bytes });
        }
        if call_json_depth(&submission.call) > MAX_JSON_DEPTH {
            return Err(EngineError::NestingTooDeep { max_depth: MAX_JSON_DEPTH });
        }
        if let Some(idempotency_key) = &submission.idempotency_key {
            idempotency_key.validate()?;
        }
        submission.payloads.iter().try_for_each(|content| validate_payload(&submission.call, content))
    }
}

/// Estimates the memory of a queued submission, without its fixed part.
pub(crate) fn estimated_bytes(submission: &Submission) -> usize {
    let payload_lengths = submission.payloads.iter().map(|content| content.bytes.len());
    payload_lengths.fold(estimated_call_bytes(&submission.call), usize::saturating_add)
}

/// Estimates the parts of a call that have no fixed size.
fn estimated_call_bytes(call: &Call) -> usize {
    match call {
        Call::Create(create) => {
            let owner = create.owner.as_ref().map_or(0, |owner| owner.len());
            estimated_map_bytes(&create.fields) + create.lifecycle.len() + owner
        }
        Call::Fire { event, input, .. } => estimated_map_bytes(input) + event.len(),
        Call::Lease { worker, .. } => worker.len(),
        Call::Commit { result, .. } => estimated_value_bytes(result),
        Call::MigrateVersion(migration) => {
            migration.target_hash.len()
                + migration.state_map.iter().map(|(from, to)| from.len() + to.len() + 8).sum::<usize>()
        }
        Call::Fail { error, .. } => error.code.len() + error.message.len(),
        Call::Start { .. }
        | Call::Heartbeat { .. }
        | Call::Finish { .. }
        | Call::Yield { .. }
        | Call::FireDue { .. }
        | Call::LoseLease { .. } => 0,
    }
}

fn estimated_map_bytes(map: &Map<String, Json>) -> usize {
    map.iter()
        .fold(0, |sum, (name, value)| sum.saturating_add(name.len() + 4).saturating_add(estimated_value_bytes(value)))
}

fn call_json_depth(call: &Call) -> usize {
    match call {
        Call::Create(create) => create.fields.values().map(json_depth).max().unwrap_or(0),
        Call::Fire { input, .. } => input.values().map(json_depth).max().unwrap_or(0),
        Call::Commit { result, .. } => json_depth(result),
        _ => 0,
    }
}

fn json_depth(value: &Json) -> usize {
    match value {
        Json::Array(items) => 1 + items.iter().map(json_depth).max().unwrap_or(0),
        Json::Object(map) => 1 + map.values().map(json_depth).max().unwrap_or(0),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => 0,
    }
}

/// Estimates the length of the value as JSON text.
fn estimated_value_bytes(value: &Json) -> usize {
    match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => 8,
        Json::String(text) => text.len() + 2,
        Json::Array(items) => items.iter().fold(2, |sum, item| sum.saturating_add(estimated_value_bytes(item) + 1)),
        Json::Object(map) => estimated_map_bytes(map).saturating_add(2),
    }
}

/// Checks that the call names this payload, and that length and hash match its bytes.
fn validate_payload(call: &Call, payload: &PayloadBytes) -> Result<(), EngineError> {
    let Call::Create(create) = call else { return Err(EngineError::PayloadMismatch) };
    let length = u64::try_from(payload.bytes.len()).unwrap_or(u64::MAX);
    let is_match = create.payload == Some(payload.payload)
        && payload.payload.bytes == length
        && Sha256::digest(&payload.bytes)[..] == payload.payload.sha256;
    if is_match { Ok(()) } else { Err(EngineError::PayloadMismatch) }
}
