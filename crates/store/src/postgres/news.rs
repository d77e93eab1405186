//! Word from process to process that something was written. A hint and no more: sent outside of the transaction that wrote,
//! at most so often, and lost when nobody listens. Whoever relies on it looks for itself now and then.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, Config, Connection};

use super::client::within;
use super::connect::{self, Pool};
use super::tls::Tls;

/// At most one word in this time: many saves make one.
const QUIET: Duration = Duration::from_millis(20);

/// How long to wait before listening again, where the connection was lost.
const AGAIN: Duration = Duration::from_secs(1);

/// Tells and listens as long as it lives.
#[derive(Debug)]
pub(super) struct News {
    heard: watch::Receiver<u64>,
    /// Words of other processes alone: `heard` is raised, too, where some may have been missed.
    others: Arc<AtomicU64>,
    to_tell: Arc<Notify>,
    tasks: [JoinHandle<()>; 2],
}

impl News {
    /// `name` tells our own words from those of others.
    pub(super) fn start(config: (Config, Tls, Option<Duration>), pool: Pool, name: String) -> Self {
        let (raise, heard) = watch::channel(0);
        let to_tell = Arc::new(Notify::new());
        let telling = tokio::spawn(tell(pool, Arc::clone(&to_tell), name.clone()));
        let others = Arc::new(AtomicU64::new(0));
        let hearing = tokio::spawn(hear(config, name, raise, Arc::clone(&others)));
        Self { heard, others, to_tell, tasks: [telling, hearing] }
    }

    pub(super) fn heard(&self) -> watch::Receiver<u64> {
        self.heard.clone()
    }

    /// How often there may have been news so far.
    pub(super) fn count(&self) -> u64 {
        *self.heard.borrow()
    }

    /// How many words of others were heard so far.
    pub(super) fn others(&self) -> u64 {
        self.others.load(Ordering::Relaxed)
    }

    /// Something was written.
    pub(super) fn tell(&self) {
        self.to_tell.notify_one();
    }
}

impl Drop for News {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn tell(pool: Pool, to_tell: Arc<Notify>, name: String) {
    loop {
        to_tell.notified().await;
        // Where the database is away, those who listen are cut off too, and look for themselves.
        if let Ok(client) = pool.get().await
            && let Ok(statement) = client.prepare_cached("SELECT pg_notify('onceward', $1)").await
        {
            let _ = client.query(&statement, &[&name]).await;
        }
        tokio::time::sleep(QUIET).await;
    }
}

async fn hear(
    (config, tls, limit): (Config, Tls, Option<Duration>),
    name: String,
    raise: watch::Sender<u64>,
    others: Arc<AtomicU64>,
) {
    loop {
        if let Some(Ok((client, connection))) = within(Some(connect::PATIENCE), config.connect(tls.clone())).await {
            let (forward, words) = mpsc::unbounded_channel();
            let driving = tokio::spawn(drive(connection, forward));
            listen((&client, limit), words, &name, &raise, &others).await;
            driving.abort();
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Carry what is said on a connection, and pass its words on, until it ends.
async fn drive<S, T>(mut connection: Connection<S, T>, forward: mpsc::UnboundedSender<String>)
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

/// Listen until the connection ends, or leads nowhere.
async fn listen(
    (client, limit): (&Client, Option<Duration>),
    mut words: mpsc::UnboundedReceiver<String>,
    name: &str,
    raise: &watch::Sender<u64>,
    others: &AtomicU64,
) {
    let is_there = async |sql: &str| within(limit, client.batch_execute(sql)).await.is_some_and(|said| said.is_ok());
    // One that does not listen hears nothing, however long it stays open.
    if !is_there("LISTEN onceward").await {
        return;
    }
    // What was said before is not heard any more.
    raise.send_modify(|count| *count += 1);
    loop {
        match within(limit, words.recv()).await {
            Some(Some(word)) if word == name => {}
            Some(Some(_)) => {
                others.fetch_add(1, Ordering::Relaxed);
                raise.send_modify(|count| *count += 1);
            }
            Some(None) => return,
            // It may be that nobody has said anything; it may be that nobody is there.
            None => {
                if !is_there("").await {
                    return;
                }
            }
        }
    }
}
