//! What can be set.

use std::sync::Arc;
use std::time::Duration;

use crate::checks::CheckRegistry;
use crate::objects::ObjectStorage;
use crate::retention::RetentionPolicy;
use crate::spans::SpanSink;

/// How an engine works. The defaults suit a server.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Operations that may be on their way at once; one more is answered with `Overloaded`.
    pub max_queued_operations: usize,
    /// Bytes of input and payloads that may be on their way at once.
    pub max_queued_bytes: usize,
    /// Operations in one transaction, and in one call of a batch form. What must be done first because it is due comes on top.
    pub max_batch_operations: usize,
    /// Records or log entries in one answer; whoever wants more asks for the next page.
    pub max_page_items: usize,
    /// Bytes of one answer with many records, log entries or attempts. It ends early where it is full; one comes in any case.
    pub max_page_bytes: usize,
    /// Bytes that one call may bring in its fields or its input, its names included. A payload's are bounded by its lifecycle.
    pub max_input_bytes: usize,
    /// Bytes of a worker's result.
    pub max_result_bytes: usize,
    /// Denials of one owner that are logged in a minute, entries of a kilobyte each, and as many audited refusals; the others are only
    /// counted ([`EngineCounters::untold`](crate::Tally)).
    pub logged_denials_per_minute: u32,
    /// How long to trust signals: after so long without one, timers and waiting leases look for themselves. What another
    /// process wrote, or what was written before this one started, is found by this.
    pub poll_interval: Duration,
    /// How long jobs of workers inside the process may run on when it closes.
    pub shutdown_grace: Duration,
    /// Who answers the lifecycles' checks.
    pub checks: CheckRegistry,
    /// Questions put to the outside at once, a quarter of them for one owner; others wait their turn.
    pub max_concurrent_checks: usize,
    /// How long a question may wait for its turn, and then for its answer.
    pub check_timeout: Duration,
    /// How long what has ended is kept. What is over is pruned, unless it is kept for ever.
    pub retention: RetentionPolicy,
    /// Who is told of operations and executions that stand in a trace.
    pub span_sink: Option<Arc<dyn SpanSink>>,
    /// Where payloads of more than [`MAX_INLINE_PAYLOAD_BYTES`](crate::LARGE) bytes go; into the database where there is no such place.
    pub object_storage: Option<ObjectStorage>,
    /// How long bytes may wait for the record that has them; after that they are nobody's, and go.
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
