//! What keeps a lease alive: a heartbeat after each third of it.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::error::ClientError;
use crate::reports::ReportKind;
use crate::transport::Backoff;
use crate::work::job::HeldLease;
use crate::work::reporter::unwrap_reply;

/// A lease is kept by so many heartbeats.
const HEARTBEATS_PER_LEASE: u32 = 3;

/// No heart beats faster than this.
const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(20);

/// A heartbeat that is not answered by the time of the next is sent again, over another connection; but any server may take so long.
const MIN_RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// What became of a heartbeat.
#[derive(Debug)]
pub(crate) enum HeartbeatResult {
    /// The lease lasts; whether the job is to stop.
    Extended { stop_requested: bool },
    /// The server knows this lease no more, or us.
    Rejected(ClientError),
}

/// Where hearts beat: on a thread of their own, over connections of their own. Whatever handlers do to the runtime that they run in, their
/// leases are kept.
#[derive(Clone, Debug)]
pub(crate) struct HeartbeatThread {
    runtime: Handle,
    /// With the last of these the thread ends.
    _keep_alive: mpsc::Sender<()>,
}

impl HeartbeatThread {
    pub(crate) fn start() -> Self {
        let (keep_alive, mut all_dropped) = mpsc::channel(1);
        let started = Builder::new_current_thread().enable_all().build().and_then(|runtime| {
            let handle = runtime.handle().clone();
            let thread = std::thread::Builder::new().name("onceward-hearts".to_owned());
            thread.spawn(move || runtime.block_on(all_dropped.recv()))?;
            Ok(handle)
        });
        let runtime = started.unwrap_or_else(|error| {
            tracing::warn!(%error, "no thread for heartbeats: a handler that blocks will hold them up");
            Handle::current()
        });
        Self { runtime, _keep_alive: keep_alive }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.runtime.spawn(task).abort_handle()
    }
}

/// The heart of one job. It beats until this is dropped, or the lease is lost.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    /// It should have beaten already when it began.
    pub(crate) is_overdue: bool,
    results: mpsc::UnboundedReceiver<HeartbeatResult>,
    task: AbortHandle,
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Heartbeat {
    /// With the lease as it was asked for: a heartbeat that does not say so gets the lifecycle's own.
    pub(crate) fn new(held: &Arc<HeldLease>, lease: Option<Duration>) -> Self {
        let interval = (held.lease_duration / HEARTBEATS_PER_LEASE).max(MIN_HEARTBEAT_INTERVAL);
        // As if the last one had been taken when the lease began.
        let next_at = (held.expires_at() + interval).checked_sub(held.lease_duration).unwrap_or_else(Instant::now);
        let is_overdue = next_at <= Instant::now() && held.lease_duration > Duration::ZERO;
        let (result_sender, results) = mpsc::unbounded_channel();
        let task = held.reporter.heartbeat_thread.spawn(run_heartbeats(
            Arc::clone(held),
            lease,
            interval,
            next_at,
            result_sender,
        ));
        Self { is_overdue, results, task }
    }

    /// What became of the next heartbeat that was answered. Whoever stops waiting for this and comes back misses nothing.
    pub(crate) async fn next_result(&mut self) -> HeartbeatResult {
        match self.results.recv().await {
            Some(beaten) => beaten,
            // Lost, and told so; or the program ends.
            None => std::future::pending().await,
        }
    }
}

/// Beats in time, and again where that may help.
async fn run_heartbeats(
    held: Arc<HeldLease>,
    lease: Option<Duration>,
    interval: Duration,
    mut next_at: Instant,
    result_sender: mpsc::UnboundedSender<HeartbeatResult>,
) {
    let mut backoff = Backoff::default();
    loop {
        tokio::time::sleep_until(next_at).await;
        let (report, sent_at) = (held.build_report(ReportKind::Heartbeat { lease }), Instant::now());
        match unwrap_reply(held.reporter.enqueue_heartbeat(report, interval.max(MIN_RESPONSE_TIMEOUT)).await) {
            Ok(reported) => {
                backoff.reset();
                next_at = sent_at + interval;
                held.extend(sent_at);
                let _ = result_sender.send(HeartbeatResult::Extended { stop_requested: reported.stop });
            }
            Err(error) if is_lease_lost(&error) => {
                let _ = result_sender.send(HeartbeatResult::Rejected(error));
                return;
            }
            Err(error) => {
                // Not a whole beat later: two of those, and the lease has run out.
                let delay = error.retry_after().unwrap_or_else(|| backoff.next_delay());
                next_at = Instant::now() + delay.min(interval);
            }
        }
    }
}

fn is_lease_lost(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| problem.status < 500 && !error.is_retryable())
}
