//! Sends heartbeats that extend a lease.

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

/// One heartbeat per third of a lease leaves time for two retries.
const HEARTBEATS_PER_LEASE: u32 = 3;

/// Bounds the request rate of very short leases.
const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(20);

/// A heartbeat without answer is repeated on another connection when the next one is due, but every server gets at
/// least this time.
const MIN_RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The result of a heartbeat.
#[derive(Debug)]
pub(crate) enum HeartbeatResult {
    /// The lease is extended; `stop_requested` asks the job to stop.
    Extended { stop_requested: bool },
    /// The server rejected the lease or the API key.
    Rejected(ClientError),
}

/// A thread with its own runtime and connections for heartbeats, so that handlers that block their runtime keep
/// their leases.
#[derive(Clone, Debug)]
pub(crate) struct HeartbeatThread {
    runtime: Handle,
    /// The thread ends when the last clone is dropped.
    _keep_alive: mpsc::Sender<()>,
}

impl HeartbeatThread {
    pub(crate) fn start() -> Self {
        let (keep_alive, mut all_dropped) = mpsc::channel(1);
        let started = Builder::new_current_thread().enable_all().build().and_then(|runtime| {
            let handle = runtime.handle().clone();
            let thread = std::thread::Builder::new().name("onceward-heartbeats".to_owned());
            thread.spawn(move || runtime.block_on(all_dropped.recv()))?;
            Ok(handle)
        });
        let runtime = started.unwrap_or_else(|error| {
            tracing::warn!(%error, "starting the heartbeat thread failed; a blocking handler delays heartbeats");
            Handle::current()
        });
        Self { runtime, _keep_alive: keep_alive }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.runtime.spawn(task).abort_handle()
    }
}

/// Sends the heartbeats of one job until it is dropped or the lease is lost.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    /// Whether a heartbeat was already due at the start.
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
    /// Repeats the requested length of the lease; without it, the server uses that of the lifecycle.
    pub(crate) fn new(held: &Arc<HeldLease>, lease: Option<Duration>) -> Self {
        let interval = (held.lease_duration / HEARTBEATS_PER_LEASE).max(MIN_HEARTBEAT_INTERVAL);
        // Schedule as if the lease had begun with a heartbeat.
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

    /// Waits for the next answered heartbeat. Cancel safe.
    pub(crate) async fn next_result(&mut self) -> HeartbeatResult {
        match self.results.recv().await {
            Some(result) => result,
            // The task has ended: the lease was lost and reported, or the program ends.
            None => std::future::pending().await,
        }
    }
}

/// Sends heartbeats on time and retries them.
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
                // Retry within the interval: after two missed intervals the lease expires.
                let delay = error.retry_after().unwrap_or_else(|| backoff.next_delay());
                next_at = Instant::now() + delay.min(interval);
            }
        }
    }
}

fn is_lease_lost(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| problem.status < 500 && !error.is_retryable())
}
