//! Replies to a queued operation.

use std::sync::Arc;

use tokio::time::Instant;

use crate::metrics::{CALL_KINDS, call_kind_index};
use crate::shared::Shared;
use crate::spans::OperationSpan;
use crate::submission::queue::{QueuedOperation, Reply};

/// Replies to one operation, and records its latency, span and errors.
pub(crate) fn send_reply<S>(shared: &Shared<S>, request: QueuedOperation, reply: Reply, now: Instant) {
    let elapsed = now.saturating_duration_since(request.received_at);
    shared.metrics.record_latency(&request.operation.call, elapsed);
    if let (Some(spans), Some(parent)) = (&shared.config.span_sink, request.operation.trace)
        && parent.is_sampled()
        && request.has_span
    {
        let code = reply.as_ref().err().map(|error| error.code().into());
        spans.record_operation(OperationSpan {
            parent,
            kind: CALL_KINDS[call_kind_index(&request.operation.call)],
            duration: elapsed,
            code,
        });
    }
    if let Err(error) = &reply
        && error.refusal().is_none()
    {
        shared.metrics.record_failures(error, 1);
    }
    let record = reply.as_ref().ok().and_then(|receipt| receipt.record.clone());
    let count_replayed = |times: u64| {
        let unknown_lifecycle = Arc::default();
        shared
            .metrics
            .record_replays(record.as_ref().map_or(&unknown_lifecycle, |record| &record.lifecycle.name), times);
    };
    if reply.as_ref().is_ok_and(|receipt| receipt.replayed) {
        count_replayed(1);
    }
    let followers = request.reply(reply);
    if followers > 0 {
        count_replayed(followers);
    }
}
