//! Batches reports: a single report is sent at once, and reports that arrive while requests are in flight share the
//! next one.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onceward_api_types::ReportResult;
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::client::Client;
use crate::error::ClientError;
use crate::reports::Report;
use crate::types::BatchItemResult;
use crate::work::heartbeat::HeartbeatThread;

/// Concurrent requests. Heartbeats have as many of their own, so that slow commits do not delay them.
const MAX_IN_FLIGHT_REQUESTS: usize = 2;

/// Well below the server's limit of 1,000.
const MAX_REPORTS_PER_REQUEST: usize = 100;

/// Size limit of a request with several reports.
const MAX_BATCH_BYTES: usize = 1 << 20;

type ReportReply = Result<ReportResult, ClientError>;

#[derive(Debug)]
struct QueuedReport {
    report: Report,
    /// For heartbeats, whose answer is useless later.
    response_timeout: Option<Duration>,
    reply_sender: oneshot::Sender<ReportReply>,
}

/// Queues for reports. Each held job waits for its own report, so the number of jobs bounds the queues.
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    reports: mpsc::UnboundedSender<QueuedReport>,
    heartbeats: mpsc::UnboundedSender<QueuedReport>,
    pub(crate) heartbeat_thread: HeartbeatThread,
}

#[derive(Debug)]
struct ReportQueue {
    incoming: mpsc::UnboundedReceiver<QueuedReport>,
    /// Did not fit into the previous batch.
    carried_over: Option<QueuedReport>,
}

impl Reporter {
    pub(crate) fn start(client: &Client) -> Self {
        let heartbeat_thread = HeartbeatThread::start();
        let heartbeats = spawn_senders(&client.with_own_connections(), |task| drop(heartbeat_thread.spawn(task)));
        Self { reports: spawn_senders(client, |task| drop(tokio::spawn(task))), heartbeats, heartbeat_thread }
    }

    /// Queues a report. The reply arrives on the returned channel.
    pub(crate) fn enqueue(&self, report: Report) -> oneshot::Receiver<ReportReply> {
        let (reply_sender, reply) = oneshot::channel();
        // If the senders have ended, the reply channel closes.
        let _ = self.reports.send(QueuedReport { report, response_timeout: None, reply_sender });
        reply
    }

    /// Queues a heartbeat. It is given up after `response_timeout`, which leaves time for another.
    pub(crate) fn enqueue_heartbeat(
        &self,
        report: Report,
        response_timeout: Duration,
    ) -> oneshot::Receiver<ReportReply> {
        let (reply_sender, reply) = oneshot::channel();
        let _ = self.heartbeats.send(QueuedReport { report, response_timeout: Some(response_timeout), reply_sender });
        reply
    }

    pub(crate) async fn submit(&self, report: Report) -> ReportReply {
        unwrap_reply(self.enqueue(report).await)
    }
}

fn spawn_senders(client: &Client, spawn: impl Fn(SenderTask)) -> mpsc::UnboundedSender<QueuedReport> {
    let (sender, incoming) = mpsc::unbounded_channel();
    let queue = Arc::new(Mutex::new(ReportQueue { incoming, carried_over: None }));
    for _ in 0..MAX_IN_FLIGHT_REQUESTS {
        spawn(Box::pin(send_batches(client.clone(), Arc::clone(&queue))));
    }
    sender
}

type SenderTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Converts a closed channel into an error: the sender tasks end only with their runtime.
pub(crate) fn unwrap_reply(reply: Result<ReportReply, oneshot::error::RecvError>) -> ReportReply {
    reply.unwrap_or_else(|_| Err(ClientError::InvalidRequest("the worker is shutting down".to_owned())))
}

async fn send_batches(client: Client, queue: Arc<Mutex<ReportQueue>>) {
    loop {
        let mut batch = Vec::new();
        {
            let mut queue = queue.lock().await;
            let first = match queue.carried_over.take() {
                Some(left) => left,
                None => match queue.incoming.recv().await {
                    Some(first) => first,
                    None => return,
                },
            };
            let mut batch_bytes = first.report.estimated_bytes();
            batch.push(first);
            while batch.len() < MAX_REPORTS_PER_REQUEST
                && let Ok(next) = queue.incoming.try_recv()
            {
                batch_bytes += next.report.estimated_bytes();
                if batch_bytes > MAX_BATCH_BYTES {
                    queue.carried_over = Some(next);
                    break;
                }
                batch.push(next);
            }
        }
        let mut retry_policy = client.retry_policy;
        if let Some(within) = batch.iter().filter_map(|queued| queued.response_timeout).min() {
            retry_policy.response_timeout = retry_policy.response_timeout.min(within);
        }
        send_batch(&client.with_retry_policy(retry_policy), batch).await;
    }
}

async fn send_batch(client: &Client, batch: Vec<QueuedReport>) {
    let reports: Vec<&Report> = batch.iter().map(|queued| &queued.report).collect();
    match client.report_once(&reports).await {
        Ok(results) if results.len() == batch.len() => {
            for (filed, outcome) in batch.into_iter().zip(results) {
                let answer = match outcome {
                    BatchItemResult::Succeeded(reported) => Ok(reported),
                    BatchItemResult::Refused(problem) => Err(ClientError::Problem(problem)),
                };
                // The caller may have been canceled.
                let _ = filed.reply_sender.send(answer);
            }
        }
        Ok(results) => {
            let error = client.invalid_response(&format!("{} results for {} reports", results.len(), batch.len()));
            fail_batch(batch, &error);
        }
        // A single report may have caused the error, so send each on its own.
        Err(error @ ClientError::Problem(_)) if batch.len() > 1 && !error.is_retryable() => {
            for filed in batch {
                let answer = match client.report_once(&[&filed.report]).await.map(|mut one| one.pop()) {
                    Ok(Some(BatchItemResult::Succeeded(reported))) => Ok(reported),
                    Ok(Some(BatchItemResult::Refused(problem))) => Err(ClientError::Problem(problem)),
                    Ok(None) => Err(error.clone()),
                    Err(error) => Err(error),
                };
                let _ = filed.reply_sender.send(answer);
            }
        }
        Err(error) => fail_batch(batch, &error),
    }
}

fn fail_batch(batch: Vec<QueuedReport>, error: &ClientError) {
    for filed in batch {
        let _ = filed.reply_sender.send(Err(error.clone()));
    }
}
