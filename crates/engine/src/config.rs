//! Configuration of an engine.

use std::sync::Arc;
use std::time::Duration;

use crate::checks::CheckRegistry;
use crate::objects::ObjectStorage;
use crate::retention::RetentionPolicy;
use crate::spans::SpanSink;

/// Limits, timeouts and plug-ins of an engine. The defaults suit a server.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Operations that may be queued or in flight; the next call gets `Overloaded`.
    pub max_queued_operations: usize,
    /// Bytes of input and payloads that may be queued or in flight.
    pub max_queued_bytes: usize,
    /// Operations in one transaction and in one batch call. Due timers that the batch fires first come on top.
    pub max_batch_operations: usize,
    /// Records or log entries in one page.
    pub max_page_items: usize,
    /// Bytes of one page of records, log entries or executions. A page has at least one item.
    pub max_page_bytes: usize,
    /// Bytes of one call's fields or input, names included. The lifecycle bounds its payload.
    pub max_input_bytes: usize,
    /// Bytes of a worker's result.
    pub max_result_bytes: usize,
    /// Denials per owner and minute that are logged (about 1 KB each), and as many audited refusals. The rest is only
    /// counted ([`EngineCounters::unlogged_refusals`](crate::EngineCounters)).
    pub logged_denials_per_minute: u32,
    /// Longest wait without a notification before the scheduler and pollers query the store. Finds writes whose
    /// notification was lost, and writes from before this process started.
    pub poll_interval: Duration,
    /// How long jobs of in-process workers may continue after `close`.
    pub shutdown_grace: Duration,
    /// Handlers of the lifecycles' external checks.
    pub checks: CheckRegistry,
    /// External checks that run at once, at most a quarter of them for one owner; more wait.
    pub max_concurrent_checks: usize,
    /// Longest wait of a check for its permit, and again for its answer.
    pub check_timeout: Duration,
    /// How long ended records are kept before the engine prunes them.
    pub retention: RetentionPolicy,
    /// Receives the spans of operations and executions that belong to a trace.
    pub span_sink: Option<Arc<dyn SpanSink>>,
    /// Stores payloads larger than [`MAX_INLINE_PAYLOAD_BYTES`](crate::MAX_INLINE_PAYLOAD_BYTES). Without it they go
    /// into the database.
    pub object_storage: Option<ObjectStorage>,
    /// Age at which garbage collection deletes an object that no record references.
    pub orphan_ttl: Duration,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            max_queued_operations: 10_000,
            max_queued_bytes: 256 << 20,
            max_batch_operations: 1_000,
            max_page_items: 1_000,
            max_page_bytes: 8 << 20,
            max_input_bytes: 1 << 20,
            max_result_bytes: 1 << 20,
            logged_denials_per_minute: 60,
            poll_interval: Duration::from_secs(1),
            shutdown_grace: Duration::from_secs(10),
            checks: CheckRegistry::default(),
            max_concurrent_checks: 64,
            check_timeout: Duration::from_secs(10),
            retention: RetentionPolicy::default(),
            span_sink: None,
            object_storage: None,
            orphan_ttl: Duration::from_hours(24),
        }
    }
}
