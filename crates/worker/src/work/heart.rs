//! What keeps a lease alive: a heartbeat after each third of it.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::ClientError;
use crate::reports::Verdict;
use crate::shape::Reported;
use crate::wire::Backoff;
use crate::work::job::Held;
use crate::work::reporter::answered;

/// A lease is kept by so many heartbeats.
const BEATS: u32 = 3;

/// No heart beats faster than this.
const FASTEST: Duration = Duration::from_millis(20);

/// A heartbeat that is not answered by the time of the next is sent again, over another connection; but any server may take so long.
const SLOWEST_ANSWER: Duration = Duration::from_secs(1);

/// What became of a heartbeat.
pub(crate) enum Beaten {
    /// The lease lasts; whether the job is to stop.
    Kept { stop: bool },
    /// The server knows this lease no more, or us.
    Not(ClientError),
}

#[derive(Debug)]
pub(crate) struct Heart {
    /// As it was asked for: a heartbeat that does not say so gets the lifecycle's own.
    lease: Option<Duration>,
    every: Duration,
    next: Instant,
    /// The heartbeat that is on its way, and since when.
    beating: Option<(Instant, oneshot::Receiver<Result<Reported, ClientError>>)>,
    backoff: Backoff,
}

impl Heart {
    pub(crate) fn new(held: &Held, lease: Option<Duration>) -> Self {
        let every = (held.length / BEATS).max(FASTEST);
        // As if the last one had been taken when the lease began.
        let next = (held.gone() + every).checked_sub(held.length).unwrap_or_else(Instant::now);
        Self { lease, every, next, beating: None, backoff: Backoff::default() }
    }

    /// Whether it should have beaten already.
    pub(crate) fn is_late(&self, held: &Held) -> bool {
        self.next <= Instant::now() && held.length > Duration::ZERO
    }

    /// Beats in time, and again where that may help, until one is answered. Whoever stops waiting for this and comes back misses
    /// nothing.
    pub(crate) async fn next(&mut self, held: &Held) -> Beaten {
        loop {
            let (sent, answer) = match &mut self.beating {
                Some(beating) => beating,
                none => {
                    tokio::time::sleep_until(self.next).await;
                    let report = held.about(Verdict::Heartbeat { lease: self.lease });
                    none.insert((Instant::now(), held.reporter.beat(report, self.every.max(SLOWEST_ANSWER))))
                }
            };
            let (answer, sent) = (answered(answer.await), *sent);
            self.beating = None;
            match answer {
                Ok(reported) => {
                    self.backoff.reset();
                    self.next = sent + self.every;
                    held.prolong(sent);
                    return Beaten::Kept { stop: reported.stop };
                }
                Err(error) if is_lost(&error) => return Beaten::Not(error),
                Err(error) => {
                    // Not a whole beat later: two of those, and the lease has run out.
                    let pause = error.retry_after().unwrap_or_else(|| self.backoff.pause());
                    self.next = Instant::now() + pause.min(self.every);
                }
            }
        }
    }

    /// Beats on beside a report, which will be told by itself that the lease is lost. Never comes back.
    pub(crate) async fn go_on(&mut self, held: &Held) {
        while let Beaten::Kept { .. } = self.next(held).await {}
        std::future::pending::<()>().await;
    }
}

fn is_lost(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| problem.status < 500 && !error.may_pass())
}
