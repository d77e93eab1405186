//! Connections: a pool of them, made when they are needed.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime, Timeouts};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::tls::{Asked, Tls};
use crate::error::StoreError;

/// Connections at once: one writes, the others load for the next batch, look for work and feed the stream.
const CONNECTIONS: usize = 8;

/// How long to wait for a connection, new or given back, before saying that the database cannot be reached.
const PATIENCE: Duration = Duration::from_secs(5);

/// How our own connections are served. Nothing that is written depends on it.
///
/// Every statement finds its rows by a key. Tables that are empty when a statement is planned would be read from end to end
/// for as long as the plan is kept, so that is never worth planning. And a process that stops in the middle of a save, but
/// does not die, lets go of its locks after a while; so does one that waits for them.
const OPTIONS: &str = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off \
     -c lock_timeout=5s -c idle_in_transaction_session_timeout=30s";

/// After so long without a word from the machine at the other end, the connection is taken for lost.
const SILENCE: Duration = Duration::from_secs(30);

/// What a URL says, and what it leaves to us.
pub(super) fn config(url: &str) -> Result<(Config, Tls), StoreError> {
    let asked = Asked::of(url)?;
    let bad = |error: &dyn std::fmt::Display| StoreError::Unavailable(format!("this is no URL of a database: {error}"));
    let mut config: Config = asked.url.parse().map_err(|error: tokio_postgres::Error| bad(&error))?;
    if config.get_options().is_none() {
        config.options(OPTIONS);
    }
    if config.get_application_name().is_none() {
        config.application_name("onceward");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(PATIENCE);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(SILENCE).keepalives_idle(SILENCE);
    }
    // PostgreSQL does not encrypt sockets; asking each time would cost a round trip.
    let is_socket = |host: &Host| !matches!(host, Host::Tcp(_));
    if config.get_ssl_mode() == SslMode::Prefer && config.get_hosts().iter().all(is_socket) {
        config.ssl_mode(SslMode::Disable);
    }
    Ok((config, asked.tls()?))
}

/// A pool of connections. None is made yet.
pub(super) fn pool(url: &str) -> Result<Pool, StoreError> {
    let (config, tls) = config(url)?;
    let manager = Manager::from_config(config, tls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
    let timeouts = Timeouts { wait: Some(PATIENCE), create: Some(PATIENCE), recycle: Some(PATIENCE) };
    let built = Pool::builder(manager).max_size(CONNECTIONS).runtime(Runtime::Tokio1).timeouts(timeouts).build();
    built.map_err(|error| StoreError::Unavailable(error.to_string()))
}

/// A connection that is open in the middle of a transaction is not given back: it is closed, and with it what it had begun.
#[derive(Debug)]
pub(super) struct InTransaction(Option<Object>);

impl InTransaction {
    pub(super) fn new(client: Object) -> Self {
        Self(Some(client))
    }

    pub(super) fn client(&self) -> Result<&Object, StoreError> {
        self.0.as_ref().ok_or_else(|| StoreError::Unavailable("the connection was given back".to_owned()))
    }

    /// The transaction has ended: somebody else may have the connection.
    pub(super) fn ended(mut self) {
        drop(self.0.take());
    }

    /// Nothing of it is to stay.
    pub(super) async fn roll_back(self) {
        if let Ok(client) = self.client()
            && client.batch_execute("ROLLBACK").await.is_ok()
        {
            self.ended();
        }
    }
}

impl Drop for InTransaction {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            drop(Object::take(client));
        }
    }
}
