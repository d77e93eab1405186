//! What can be set.

use std::sync::Arc;
use std::time::Duration;

use crate::checks::Checks;
use crate::objects::Objects;
use crate::retention::Retention;
use crate::spans::Spans;

/// How an engine works. The defaults suit a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Operations that may be on their way at once; one more is answered with `Overloaded`.
    pub queue: usize,
    /// Bytes of input and payloads that may be on their way at once.
    pub queue_bytes: usize,
    /// Operations in one transaction, and in one call of a batch form. What must be done first because it is due comes on top.
    pub batch: usize,
    /// Records or log entries in one answer; whoever wants more asks for the next page.
    pub page: usize,
    /// Bytes of one answer with many records, log entries or attempts. It ends early where it is full; one comes in any case.
    pub page_bytes: usize,
    /// Bytes that one call may bring in its fields or its input, its names included. A payload's are bounded by its lifecycle.
    pub input_bytes: usize,
    /// Bytes of a worker's result.
    pub result_bytes: usize,
    /// Denials of one owner that are logged in a minute, entries of a kilobyte each, and as many audited refusals; the others are only
    /// counted ([`Tally::untold`](crate::Tally)).
    pub denials: u32,
    /// How long to trust signals: after so long without one, timers and waiting leases look for themselves. What another
    /// process wrote, or what was written before this one started, is found by this.
    pub poll: Duration,
    /// How long jobs of workers inside the process may run on when it closes.
    pub grace: Duration,
    /// Who answers the lifecycles' checks.
    pub checks: Checks,
    /// Questions put to the outside at once, a quarter of them for one owner; others wait their turn.
    pub asking: usize,
    /// How long a question may wait for its turn, and then for its answer.
    pub check_time: Duration,
    /// How long what has ended is kept. What is over is pruned, unless it is kept for ever.
    pub retention: Retention,
    /// Who is told of operations and executions that stand in a trace.
    pub spans: Option<Arc<dyn Spans>>,
    /// Where payloads of more than [`LARGE`](crate::LARGE) bytes go; into the database where there is no such place.
    pub objects: Option<Objects>,
    /// How long bytes may wait for the record that has them; after that they are nobody's, and go.
    pub orphans: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            queue: 10_000,
            queue_bytes: 256 << 20,
            batch: 1_000,
            page: 1_000,
            page_bytes: 8 << 20,
            input_bytes: 1 << 20,
            result_bytes: 1 << 20,
            denials: 60,
            poll: Duration::from_secs(1),
            grace: Duration::from_secs(10),
            checks: Checks::default(),
            asking: 64,
            check_time: Duration::from_secs(10),
            retention: Retention::default(),
            spans: None,
            objects: None,
            orphans: Duration::from_hours(24),
        }
    }
}
