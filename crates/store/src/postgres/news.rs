//! Word from process to process that something was written. A hint and no more: sent outside of the transaction that wrote,
//! at most so often, and lost when nobody listens. Whoever relies on it looks for itself now and then.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Config};

use super::connect::Pool;
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
    pub(super) fn start(config: (Config, Tls), pool: Pool, name: String) -> Self {
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

async fn hear((config, tls): (Config, Tls), name: String, raise: watch::Sender<u64>, others: Arc<AtomicU64>) {
    loop {
        let _ = listen((&config, tls.clone()), &name, &raise, &others).await;
        tokio::time::sleep(AGAIN).await;
    }
}

/// Listen until the connection ends.
async fn listen(
    (config, tls): (&Config, Tls),
    name: &str,
    raise: &watch::Sender<u64>,
    others: &AtomicU64,
) -> Result<(), tokio_postgres::Error> {
    let (client, mut connection) = config.connect(tls).await?;
    let (forward, mut words) = mpsc::unbounded_channel();
    let driving = tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(word) = message
                && forward.send(word.payload().to_owned()).is_err()
            {
                return;
            }
        }
    });
    // One that does not listen hears nothing, however long it stays open.
    if let Err(error) = client.batch_execute("LISTEN onceward").await {
        driving.abort();
        return Err(error);
    }
    // What was said before is not heard any more.
    raise.send_modify(|count| *count += 1);
    while let Some(word) = words.recv().await {
        if word != name {
            others.fetch_add(1, Ordering::Relaxed);
            raise.send_modify(|count| *count += 1);
        }
    }
    driving.abort();
    Ok(())
}
