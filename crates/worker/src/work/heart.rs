//! What keeps a lease alive: a heartbeat after each third of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::error::ClientError;
use crate::reports::Verdict;
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
#[derive(Debug)]
pub(crate) enum Beaten {
    /// The lease lasts; whether the job is to stop.
    Kept { stop: bool },
    /// The server knows this lease no more, or us.
    Not(ClientError),
}

/// Where hearts beat: on a thread of their own, over connections of their own. Whatever handlers do to the runtime that they run in, their
/// leases are kept.
#[derive(Clone, Debug)]
pub(crate) struct Hearts {
    runtime: Handle,
    /// With the last of these the thread ends.
    _alive: mpsc::Sender<()>,
}

impl Hearts {
    pub(crate) fn start() -> Self {
        let (alive, mut over) = mpsc::channel(1);
        let started = Builder::new_current_thread().enable_all().build().and_then(|runtime| {
            let handle = runtime.handle().clone();
            let thread = std::thread::Builder::new().name("onceward-hearts".to_owned());
            thread.spawn(move || runtime.block_on(over.recv()))?;
            Ok(handle)
        });
        let runtime = started.unwrap_or_else(|error| {
            tracing::warn!(%error, "no thread for heartbeats: a handler that blocks will hold them up");
            Handle::current()
        });
        Self { runtime, _alive: alive }
    }

    pub(crate) fn spawn(&self, duty: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.runtime.spawn(duty).abort_handle()
    }
}

/// The heart of one job. It beats until this is dropped, or the lease is lost.
#[derive(Debug)]
pub(crate) struct Heart {
    /// It should have beaten already when it began.
    pub(crate) is_late: bool,
    beaten: mpsc::UnboundedReceiver<Beaten>,
    beating: AbortHandle,
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.beating.abort();
    }
}

impl Heart {
    /// With the lease as it was asked for: a heartbeat that does not say so gets the lifecycle's own.
    pub(crate) fn new(held: &Arc<Held>, lease: Option<Duration>) -> Self {
        let every = (held.length / BEATS).max(FASTEST);
        // As if the last one had been taken when the lease began.
        let next = (held.gone() + every).checked_sub(held.length).unwrap_or_else(Instant::now);
        let is_late = next <= Instant::now() && held.length > Duration::ZERO;
        let (tell, beaten) = mpsc::unbounded_channel();
        let beating = held.reporter.hearts.spawn(beat(Arc::clone(held), lease, every, next, tell));
        Self { is_late, beaten, beating }
    }

    /// What became of the next heartbeat that was answered. Whoever stops waiting for this and comes back misses nothing.
    pub(crate) async fn next(&mut self) -> Beaten {
        match self.beaten.recv().await {
            Some(beaten) => beaten,
            // Lost, and told so; or the program ends.
            None => std::future::pending().await,
        }
    }
}

/// Beats in time, and again where that may help.
async fn beat(
    held: Arc<Held>,
    lease: Option<Duration>,
    every: Duration,
    mut next: Instant,
    tell: mpsc::UnboundedSender<Beaten>,
) {
    let mut backoff = Backoff::default();
    loop {
        tokio::time::sleep_until(next).await;
        let (report, sent) = (held.about(Verdict::Heartbeat { lease }), Instant::now());
        match answered(held.reporter.beat(report, every.max(SLOWEST_ANSWER)).await) {
            Ok(reported) => {
                backoff.reset();
                next = sent + every;
                held.prolong(sent);
                let _ = tell.send(Beaten::Kept { stop: reported.stop });
            }
            Err(error) if is_lost(&error) => {
                let _ = tell.send(Beaten::Not(error));
                return;
            }
            Err(error) => {
                // Not a whole beat later: two of those, and the lease has run out.
                let pause = error.retry_after().unwrap_or_else(|| backoff.pause());
                next = Instant::now() + pause.min(every);
            }
        }
    }
}

fn is_lost(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| problem.status < 500 && !error.may_pass())
}
