//! Change notifications between processes. They are only hints: sent outside the writing transaction, rate-limited, and
//! lost if no process listens. Receivers must also poll.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, Config, Connection};

use super::client::timeout_if_set;
use super::pool::{self, ConnectionPool};
use super::tls::PostgresTls;

/// Combines the notifications of many saves into one.
const MIN_NOTIFY_INTERVAL: Duration = Duration::from_millis(20);

/// Avoids a busy loop while the server is unreachable.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Sends and receives notifications until dropped.
#[derive(Debug)]
pub(super) struct NotifyChannel {
    changes: watch::Receiver<u64>,
    /// Notifications of other processes only. `changes` also increases when some may have been missed.
    foreign_changes: Arc<AtomicU64>,
    pending: Arc<Notify>,
    tasks: [JoinHandle<()>; 2],
}

impl NotifyChannel {
    /// Starts the tasks. `sender_id` identifies this process's own notifications.
    pub(super) fn start(
        config: (Config, PostgresTls, Option<Duration>),
        pool: ConnectionPool,
        sender_id: String,
    ) -> Self {
        let (change_sender, changes) = watch::channel(0);
        let pending = Arc::new(Notify::new());
        let send_task = tokio::spawn(run_sender(pool, Arc::clone(&pending), sender_id.clone()));
        let foreign_changes = Arc::new(AtomicU64::new(0));
        let listen_task = tokio::spawn(run_listener(config, sender_id, change_sender, Arc::clone(&foreign_changes)));
        Self { changes, foreign_changes, pending, tasks: [send_task, listen_task] }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }

    /// Returns how often something may have changed.
    pub(super) fn change_count(&self) -> u64 {
        *self.changes.borrow()
    }

    /// Returns the number of notifications from other processes.
    pub(super) fn foreign_change_count(&self) -> u64 {
        self.foreign_changes.load(Ordering::Relaxed)
    }

    /// Notifies other processes of a commit.
    pub(super) fn notify(&self) {
        self.pending.notify_one();
    }
}

impl Drop for NotifyChannel {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn run_sender(pool: ConnectionPool, pending: Arc<Notify>, sender_id: String) {
    loop {
        pending.notified().await;
        // If the database is unreachable, listeners lose their connections too and then poll.
        if let Ok(client) = pool.get().await
            && let Ok(statement) = client.prepare_cached("SELECT pg_notify('onceward', $1)").await
        {
            let _ = client.query(&statement, &[&sender_id]).await;
        }
        tokio::time::sleep(MIN_NOTIFY_INTERVAL).await;
    }
}

async fn run_listener(
    (config, tls, limit): (Config, PostgresTls, Option<Duration>),
    sender_id: String,
    change_sender: watch::Sender<u64>,
    foreign_changes: Arc<AtomicU64>,
) {
    loop {
        if let Some(Ok((client, connection))) =
            timeout_if_set(Some(pool::ACQUIRE_TIMEOUT), config.connect(tls.clone())).await
        {
            let (forward, notifications) = mpsc::unbounded_channel();
            let driver = tokio::spawn(drive_connection(connection, forward));
            listen((&client, limit), notifications, &sender_id, &change_sender, &foreign_changes).await;
            driver.abort();
        }
        tokio::time::sleep(RECONNECT_DELAY).await;
    }
}

/// Drives a connection and forwards its notifications until it ends.
async fn drive_connection<S, T>(mut connection: Connection<S, T>, forward: mpsc::UnboundedSender<String>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(word) = message
            && forward.send(word.payload().to_owned()).is_err()
        {
            return;
        }
    }
}

/// Listens until the connection ends or no longer answers.
async fn listen(
    (client, limit): (&Client, Option<Duration>),
    mut notifications: mpsc::UnboundedReceiver<String>,
    sender_id: &str,
    change_sender: &watch::Sender<u64>,
    foreign_changes: &AtomicU64,
) {
    let execute_succeeds =
        async |sql: &str| timeout_if_set(limit, client.batch_execute(sql)).await.is_some_and(|result| result.is_ok());
    // If LISTEN fails, the connection would stay open without notifications.
    if !execute_succeeds("LISTEN onceward").await {
        return;
    }
    // Notifications sent before LISTEN are lost, so assume a change.
    change_sender.send_modify(|count| *count += 1);
    loop {
        match timeout_if_set(limit, notifications.recv()).await {
            Some(Some(word)) if word == sender_id => {}
            Some(Some(_)) => {
                foreign_changes.fetch_add(1, Ordering::Relaxed);
                change_sender.send_modify(|count| *count += 1);
            }
            Some(None) => return,
            // Silence can mean no notifications or a dead connection, so test it.
            None => {
                if !execute_succeeds("").await {
                    return;
                }
            }
        }
    }
}
