//! Executions and effects as JSON.

use onceward_core::decide::Effect;
use onceward_core::execution_id::ExecutionId;
use onceward_core::record::{Execution, ExecutionStatus};
use onceward_core::value::RecordId;
use serde::Serialize;
use serde_json::Value as Json;
use utoipa::ToSchema;

use super::Rfc3339;

/// Member that marks a stored result as bytes.
const BASE64_MEMBER: &str = "$base64";

/// One leased attempt at a job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Execution)]
pub(crate) struct ExecutionJson<'a> {
    #[schema(value_type = String, example = "0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b.1")]
    id: ExecutionId,
    #[schema(value_type = String, format = Uuid)]
    record: super::DisplayText<RecordId>,
    #[schema(minimum = 1)]
    attempt: u64,
    /// Fencing token. Send it with every report.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    token: u64,
    worker: &'a str,
    #[schema(value_type = ExecutionStatusSchema)]
    status: ExecutionStatus,
    #[schema(value_type = String, format = DateTime)]
    leased_at: Rfc3339,
    /// When the lease expires, unless a heartbeat extends it.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Rfc3339,
    #[schema(value_type = Option<String>, format = DateTime)]
    started_at: Option<Rfc3339>,
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<Rfc3339>,
    aborted: Option<AbortJson<'a>>,
}

/// Status of an execution.
#[derive(ToSchema)]
#[schema(as = ExecutionStatus, rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(dead_code, reason = "names core's own in the contract")]
enum ExecutionStatusSchema {
    Leased,
    InProgress,
    Committed,
    Done,
    Aborted,
}

/// Why an execution was aborted.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AbortReason)]
struct AbortJson<'a> {
    code: &'a str,
    retryable: bool,
}

impl<'a> ExecutionJson<'a> {
    pub(crate) fn new(record: RecordId, execution: &'a Execution) -> Self {
        let aborted = execution.aborted.as_ref();
        Self {
            id: execution.id(record),
            record: super::DisplayText(record),
            attempt: execution.token.0,
            token: execution.token.0,
            worker: &execution.worker,
            status: execution.status,
            leased_at: Rfc3339(execution.leased_at),
            expires_at: Rfc3339(execution.expires_at),
            started_at: execution.started_at.map(Rfc3339),
            finished_at: execution.finished_at.map(Rfc3339),
            aborted: aborted.map(|abort| AbortJson { code: &abort.code, retryable: abort.retryable }),
        }
    }
}

/// The committed result of a job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Effect)]
pub(crate) struct EffectJson<'a> {
    /// The execution that committed it.
    #[schema(value_type = String)]
    execution: ExecutionId,
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    token: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value, nullable)]
    result: Option<&'a Json>,
    /// Replaces `result` if the result is bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    result_base64: Option<&'a str>,
}

impl<'a> EffectJson<'a> {
    pub(crate) fn new(effect: &'a Effect) -> Self {
        let bytes = unwrap_base64(&effect.result);
        Self {
            execution: ExecutionId { record: effect.record, token: effect.token },
            token: effect.token.0,
            result: bytes.is_none().then_some(&effect.result),
            result_base64: bytes,
        }
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
