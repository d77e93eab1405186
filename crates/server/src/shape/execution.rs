//! An attempt at a job as it is shown, and how it is named.

use onceward_core::decide::Effect;
use onceward_core::execution_id::ExecutionId;
use onceward_core::record::{Execution, ExecutionStatus};
use onceward_core::value::RecordId;
use serde::Serialize;
use serde_json::Value as Json;
use utoipa::ToSchema;

use super::When;

/// Under which an effect of bytes is kept.
const BYTES: &str = "$base64";

/// One leased attempt at a job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Execution)]
pub(crate) struct ExecutionShape<'a> {
    #[schema(value_type = String, example = "0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b.1")]
    id: ExecutionId,
    #[schema(value_type = String, format = Uuid)]
    record: super::Text<RecordId>,
    #[schema(minimum = 1)]
    attempt: u64,
    /// To be shown with every report.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    token: u64,
    worker: &'a str,
    #[schema(value_type = Status)]
    status: ExecutionStatus,
    #[schema(value_type = String, format = DateTime)]
    leased_at: When,
    /// The lease ends here unless a heartbeat keeps it.
    #[schema(value_type = String, format = DateTime)]
    expires_at: When,
    #[schema(value_type = Option<String>, format = DateTime)]
    started_at: Option<When>,
    #[schema(value_type = Option<String>, format = DateTime)]
    finished_at: Option<When>,
    aborted: Option<AbortShape<'a>>,
}

/// How far an execution is.
#[derive(ToSchema)]
#[schema(as = ExecutionStatus, rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(dead_code, reason = "names core's own in the contract")]
enum Status {
    Leased,
    InProgress,
    Committed,
    Done,
    Aborted,
}

/// Why an execution was aborted.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Abort)]
struct AbortShape<'a> {
    code: &'a str,
    retryable: bool,
}

impl<'a> ExecutionShape<'a> {
    pub(crate) fn of(record: RecordId, execution: &'a Execution) -> Self {
        let aborted = execution.aborted.as_ref();
        Self {
            id: execution.id(record),
            record: super::Text(record),
            attempt: execution.token.0,
            token: execution.token.0,
            worker: &execution.worker,
            status: execution.status,
            leased_at: When(execution.leased_at),
            expires_at: When(execution.expires_at),
            started_at: execution.started_at.map(When),
            finished_at: execution.finished_at.map(When),
            aborted: aborted.map(|abort| AbortShape { code: &abort.code, retryable: abort.retryable }),
        }
    }
}

/// What a job's commit left.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Effect)]
pub(crate) struct EffectShape<'a> {
    /// The execution whose commit it was.
    #[schema(value_type = String)]
    execution: ExecutionId,
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    token: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value, nullable)]
    result: Option<&'a Json>,
    /// In its place where the result is bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    result_base64: Option<&'a str>,
}

impl<'a> EffectShape<'a> {
    pub(crate) fn of(effect: &'a Effect) -> Self {
        let bytes = bytes_of(&effect.result);
        Self {
            execution: ExecutionId { record: effect.record, token: effect.token },
            token: effect.token.0,
            result: bytes.is_none().then_some(&effect.result),
            result_base64: bytes,
        }
    }
}

/// A result that is bytes, as it is kept.
pub(crate) fn of_bytes(base64: &str) -> Json {
    serde_json::json!({ BYTES: base64 })
}

/// Whether a result would be shown as bytes.
pub(crate) fn is_bytes(result: &Json) -> bool {
    bytes_of(result).is_some()
}

/// The bytes of such a result, as base64.
pub(crate) fn bytes_of(result: &Json) -> Option<&str> {
    let object = result.as_object().filter(|object| object.len() == 1)?;
    object.get(BYTES)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execution_is_named_by_its_job_and_its_number() {
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
    fn a_result_of_bytes_comes_out_as_bytes() {
        assert_eq!(bytes_of(&of_bytes("AAE=")), Some("AAE="));
        for other in
            [serde_json::json!({}), serde_json::json!({ "$base64": 1 }), serde_json::json!({ "$base64": "", "a": 1 })]
        {
            assert_eq!(bytes_of(&other), None);
        }
    }
}
