//! Executions and effects as JSON.

use onceward_api_types as wire;
use onceward_core::decide::Effect;
use onceward_core::execution_id::ExecutionId;
use onceward_core::record::{Execution, ExecutionStatus};
use onceward_core::value::RecordId;
use serde_json::Value as Json;

use super::timestamp;

/// Member that marks a stored result as bytes.
const BASE64_MEMBER: &str = "$base64";

pub(crate) fn execution_json(record: RecordId, execution: &Execution) -> wire::Execution {
    let aborted = execution.aborted.as_ref();
    wire::Execution {
        id: execution.id(record).to_string(),
        record: record.0,
        attempt: execution.token.0,
        token: execution.token.0,
        worker: execution.worker.to_string(),
        status: wire::ExecutionStatus::into(match execution.status {
            ExecutionStatus::Leased => wire::ExecutionStatus::Leased,
            ExecutionStatus::InProgress => wire::ExecutionStatus::InProgress,
            ExecutionStatus::Committed => wire::ExecutionStatus::Committed,
            ExecutionStatus::Done => wire::ExecutionStatus::Done,
            ExecutionStatus::Aborted => wire::ExecutionStatus::Aborted,
        }),
        leased_at: timestamp(execution.leased_at),
        expires_at: timestamp(execution.expires_at),
        started_at: execution.started_at.map(timestamp),
        finished_at: execution.finished_at.map(timestamp),
        aborted: aborted.map(|abort| wire::AbortReason {
            code: abort.code.to_string(),
            message: abort.message.to_string(),
            retryable: abort.retryable,
            retry_at: abort.retry_at.map(timestamp),
        }),
    }
}

pub(crate) fn effect_json(effect: &Effect) -> wire::Effect<&Json> {
    let bytes = unwrap_base64(&effect.result);
    wire::Effect {
        execution: ExecutionId { record: effect.record, token: effect.token }.to_string(),
        token: effect.token.0,
        result: bytes.is_none().then_some(&effect.result),
        result_base64: bytes.map(str::to_owned),
    }
}

/// Wraps base64 text as a stored result.
pub(crate) fn wrap_base64(base64: &str) -> Json {
    serde_json::json!({ BASE64_MEMBER: base64 })
}

/// Returns whether a result has the form that marks bytes.
pub(crate) fn is_wrapped_base64(result: &Json) -> bool {
    unwrap_base64(result).is_some()
}

/// Returns the base64 text of a wrapped result.
pub(crate) fn unwrap_base64(result: &Json) -> Option<&str> {
    let object = result.as_object().filter(|object| object.len() == 1)?;
    object.get(BASE64_MEMBER)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn execution_id_is_record_id_and_attempt_number() {
        let text = "0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b.12";
        assert_eq!(text.parse::<ExecutionId>().unwrap().to_string(), text);
        let id = text.split_once('.').unwrap().0;
        for wrong in [
            "",
            ".",
            "x.1",
            id,
            &format!("{id}."),
            &format!("{id}.0"),
            &format!("{id}.01"),
            &format!("{id}.+1"),
            &format!("{id}.1.1"),
            &format!("{id}.9007199254740992"),
        ] {
            assert!(wrong.parse::<ExecutionId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_wrapped_base64_results_unwrap_to_bytes() {
        assert_eq!(unwrap_base64(&wrap_base64("AAE=")), Some("AAE="));
        for other in
            [serde_json::json!({}), serde_json::json!({ "$base64": 1 }), serde_json::json!({ "$base64": "", "a": 1 })]
        {
            assert_eq!(unwrap_base64(&other), None);
        }
    }
}
