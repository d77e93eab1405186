//! Tracing: spans of operations and executions that belong to a trace.
//!
//! The span id of an execution derives from its record and token. So every process can compute it, also after a
//! restart.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::RecordChange;
use onceward_core::record::{ExecutionStatus, FencingToken, Record};
use onceward_core::time::Time;
use onceward_core::trace::TraceContext;
use onceward_core::value::RecordId;
use onceward_store::{DecidedOperation, OperationOutcome};
use sha2::{Digest, Sha256};

/// Receives spans. Must not block.
pub trait SpanSink: std::fmt::Debug + Send + Sync + 'static {
    fn record_operation(&self, operation: OperationSpan);
    fn record_execution(&self, execution: ExecutionSpan);
}

/// One call, from its arrival to its reply.
#[derive(Clone, Debug)]
pub struct OperationSpan {
    /// Trace of the caller's request.
    pub parent: TraceContext,
    pub kind: &'static str,
    pub duration: Duration,
    /// Code of the refusal or error.
    pub code: Option<Arc<str>>,
}

/// One execution, from its lease to its end.
#[derive(Clone, Debug)]
pub struct ExecutionSpan {
    /// Trace of the request that created the record.
    pub parent: TraceContext,
    /// The execution's own span in that trace.
    pub context: TraceContext,
    pub record: RecordId,
    pub lifecycle: Arc<str>,
    pub attempt: u64,
    pub leased_at: Time,
    pub ended_at: Time,
    /// `done`, `failed`, `lost`, `yielded` or `left`. Never text from a worker.
    pub outcome: &'static str,
}

/// Returns the trace context of an execution, for the worker to continue.
pub fn execution_trace(record: &Record, token: FencingToken) -> Option<TraceContext> {
    let parent = record.trace?;
    let mut sha = Sha256::new();
    sha.update(b"onceward execution");
    sha.update(record.id.0.as_bytes());
    sha.update(token.0.to_be_bytes());
    let hash: [u8; 32] = sha.finalize().into();
    let mut span = [0; 8];
    span.copy_from_slice(&hash[..8]);
    // A span id must not be zero.
    span[7] |= 1;
    Some(TraceContext { span_id: span, ..parent })
}

/// Emits spans of the executions that a saved batch ended.
pub(crate) fn emit_execution_spans(sink: &dyn SpanSink, writes: &[DecidedOperation]) {
    for write in writes {
        let OperationOutcome::Changes(changes) = &write.outcome else { continue };
        changes.records.iter().filter_map(ended_execution_span).for_each(|span| sink.record_execution(span));
    }
}

fn ended_execution_span(change: &RecordChange) -> Option<ExecutionSpan> {
    let record = &*change.after;
    let parent = record.trace.filter(|trace| trace.is_sampled())?;
    let execution = record.execution.as_ref().filter(|execution| !execution.status.is_live())?;
    let before = change.before.as_ref().and_then(|before| before.execution.as_ref());
    if before.is_some_and(|before| before.token == execution.token && !before.status.is_live()) {
        return None;
    }
    let outcome = match (execution.status, execution.aborted.as_ref().map(|abort| &*abort.code)) {
        (ExecutionStatus::Done, _) => "done",
        (_, Some("lost")) => "lost",
        (_, Some("yielded")) => "yielded",
        (_, Some("left")) => "left",
        _ => "failed",
    };
    Some(ExecutionSpan {
        parent,
        context: execution_trace(record, execution.token)?,
        record: record.id,
        lifecycle: Arc::clone(&record.lifecycle.name),
        attempt: execution.token.0,
        leased_at: execution.leased_at,
        ended_at: execution.finished_at.unwrap_or(record.updated_at),
        outcome,
    })
}
