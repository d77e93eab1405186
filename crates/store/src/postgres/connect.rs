//! Connections: a pool of them, made when they are needed.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, PoolError, RecyclingMethod, Runtime, TimeoutType, Timeouts};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::client::{self, Client};
use super::tls::{Asked, Tls};
use crate::error::StoreError;

/// Connections at once: one writes, the others load for the next batch, look for work and feed the stream.
const CONNECTIONS: usize = 8;

/// How long to wait for a connection, new or given back, before saying that the database cannot be reached.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How our own connections are served. Nothing that is written depends on it. What a URL says itself comes after it and wins.
///
/// Every statement finds its rows by a key. Tables that are empty when a statement is planned would be read from end to end
/// for as long as the plan is kept, so that is never worth planning. And a process that stops in the middle of a save, but
/// does not die, lets go of its locks after a while; so does one that waits for them.
const OPTIONS: &str = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off \
     -c lock_timeout=5s -c idle_in_transaction_session_timeout=30s";

/// Comes last of all, and wins over what a role, a database or a URL has: what was answered is on the disk. Saves say it once more
/// themselves ([`BEGIN`]), should somebody in between not pass it on.
const DURABLE: &str = "-c synchronous_commit=on";

/// Begins a transaction that writes.
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL synchronous_commit = on";

/// After so long without a word from the machine at the other end, the connection is taken for lost.
const SILENCE: Duration = Duration::from_secs(30);

/// What a URL says, and what it leaves to us; how long an answer is waited for.
pub(super) fn config(url: &str) -> Result<(Config, Tls, Option<Duration>), StoreError> {
    let asked = Asked::of(url)?;
    let bad = |error: &dyn std::fmt::Display| StoreError::Unavailable(format!("this is no URL of a database: {error}"));
    let mut config: Config = asked.url.parse().map_err(|error: tokio_postgres::Error| bad(&error))?;
    let options = format!("{OPTIONS} {} {DURABLE}", config.get_options().unwrap_or_default());
    config.options(options);
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
    let limit = asked.answer_timeout.unwrap_or(client::PATIENCE);
    Ok((config, asked.tls()?, Some(limit).filter(|limit| !limit.is_zero())))
}

/// Connections to one database, and what to call it where it cannot be reached.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    connections: deadpool_postgres::Pool,
    place: Arc<str>,
    limit: Option<Duration>,
}

impl Pool {
    pub(super) async fn get(&self) -> Result<Client, StoreError> {
        let place = &self.place;
        let lent = self.connections.get().await.map_err(|error| match error {
            PoolError::Timeout(TimeoutType::Wait) => {
                StoreError::Unavailable(format!("all {CONNECTIONS} connections to {place} are in use"))
            }
            PoolError::Timeout(_) => {
                StoreError::Unavailable(format!("{place} did not answer within {} s", PATIENCE.as_secs()))
            }
            PoolError::Backend(error) => match StoreError::from(error) {
                known @ (StoreError::Full | StoreError::ReadOnly(_) | StoreError::Corrupt(_)) => known,
                StoreError::Unavailable(why) => StoreError::Unavailable(format!("{place}: {why}")),
                other => StoreError::Unavailable(format!("{place}: {other}")),
            },
            other => StoreError::Unavailable(format!("{place}: {other}")),
        })?;
        Ok(Client::new(lent, Arc::clone(place), self.limit))
    }
}

/// Where a database is: its host, port and name, without who asks.
fn place(config: &Config) -> String {
    let host = |host: &Host| match host {
        Host::Tcp(name) => name.clone(),
        #[cfg(unix)]
        Host::Unix(path) => path.display().to_string(),
    };
    let ports = config.get_ports();
    let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5432);
    let hosts = config.get_hosts().iter().enumerate().map(|(at, one)| format!("{}:{}", host(one), port(at)));
    let hosts: Vec<String> = hosts.collect();
    let name = config.get_dbname().or(config.get_user()).unwrap_or("postgres");
    format!("database `{name}` at {}", if hosts.is_empty() { "localhost".to_owned() } else { hosts.join(", ") })
}

/// A pool of connections. None is made yet.
pub(super) fn pool(url: &str) -> Result<Pool, StoreError> {
    let (config, tls, limit) = config(url)?;
    let place = place(&config).into();
    let manager = Manager::from_config(config, tls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
    let timeouts = Timeouts { wait: Some(PATIENCE), create: Some(PATIENCE), recycle: Some(PATIENCE) };
    let built = deadpool_postgres::Pool::builder(manager).max_size(CONNECTIONS).runtime(Runtime::Tokio1);
    let built = built.timeouts(timeouts).build().map_err(|error| StoreError::Unavailable(error.to_string()));
    Ok(Pool { connections: built?, place, limit })
}

/// A connection that is open in the middle of a transaction is not given back: it is closed, and with it what it had begun.
#[derive(Debug)]
pub(super) struct InTransaction(Option<Client>);

impl InTransaction {
    pub(super) fn new(client: Client) -> Self {
        Self(Some(client))
    }

    pub(super) fn client(&self) -> Result<&Client, StoreError> {
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
            client.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use onceward_testkit::postgres::{Server, psql};

    use super::*;

    /// What a role or a URL says of it or of other things: our connections write to the disk before they answer, and let go.
    #[test]
    fn commits_are_durable_whatever_the_role_says() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let url = Server::shared().database();
        let name = url.rsplit('/').next().and_then(|name| name.split('?').next()).expect("a name").to_owned();
        // The role is shared by all tests: in this database only.
        for setting in ["synchronous_commit = off", "lock_timeout = 0"] {
            psql(&url, &format!("ALTER ROLE CURRENT_USER IN DATABASE \"{name}\" SET {setting}"));
        }
        assert_eq!(psql(&url, "SHOW synchronous_commit"), "off");
        let shown = |url: &str, setting: &str| {
            let sql = format!("SHOW {setting}");
            runtime.block_on(async {
                let client = pool(url).expect("a pool").get().await.expect("a connection");
                client.query_one(&sql, &[]).await.expect("a setting").get::<_, String>(0)
            })
        };
        let join = if url.contains('?') { '&' } else { '?' };
        let own = format!("{url}{join}options=-c%20work_mem%3D7MB%20-c%20synchronous_commit%3Doff%20-c%20jit%3Don");
        for url in [&url, &own] {
            assert_eq!(shown(url, "synchronous_commit"), "on");
            assert_eq!(shown(url, "lock_timeout"), "5s");
            assert_eq!(shown(url, "idle_in_transaction_session_timeout"), "30s");
            assert_eq!(shown(url, "enable_seqscan"), "off");
        }
        assert_eq!((shown(&own, "work_mem"), shown(&own, "jit")), ("7MB".to_owned(), "on".to_owned()));
    }
}
