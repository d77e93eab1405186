//! What can be set.

use std::time::Duration;

use crate::checks::Checks;

/// How an engine works. The defaults suit a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Operations that may be on their way at once; one more is answered with `Overloaded`.
    pub queue: usize,
    /// Operations in one transaction, and in one call of a batch form.
    pub batch: usize,
    /// Records or log entries in one answer; whoever wants more asks for the next page.
    pub page: usize,
    /// How long to trust signals: after so long without one, timers and waiting leases look for themselves. What another
    /// process wrote, or what was written before this one started, is found by this.
    pub poll: Duration,
    /// How long jobs of workers inside the process may run on when it closes.
    pub grace: Duration,
    /// Who answers the lifecycles' checks.
    pub checks: Checks,
    /// Questions put to the outside at once; others wait their turn.
    pub asking: usize,
    /// How long a question may wait for its turn and its answer together.
    pub check_time: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            queue: 10_000,
            batch: 1_000,
            page: 1_000,
            poll: Duration::from_secs(1),
            grace: Duration::from_secs(10),
            checks: Checks::default(),
            asking: 64,
            check_time: Duration::from_secs(10),
        }
    }
}
