//! The connection pool. Connections are opened on demand.

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, PoolError, RecyclingMethod, Runtime, TimeoutType, Timeouts};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::client::{self, PooledClient};
use super::password;
use super::tls::{PostgresTls, UrlOptions};
use crate::error::StoreError;

/// One connection saves; others load the next batch, query candidates and serve log streams.
const MAX_CONNECTIONS: usize = 8;

/// How long to wait for a connection before the database counts as unreachable.
pub(super) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// Session settings. They affect only speed and lock waits, not results. Settings in the URL come later and win.
///
/// Every statement finds its rows by key. If a table is empty when a statement is planned, PostgreSQL would choose a
/// sequential scan and keep that plan, so such plans are disabled. The timeouts release the locks of a process that
/// hangs during a save, and end the wait of others for them.
const SESSION_OPTIONS: &str = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off \
     -c lock_timeout=5s -c idle_in_transaction_session_timeout=30s";

/// Comes last and overrides settings of the role, the database and the URL, so that a reply implies data on disk. Saves
/// set it again ([`BEGIN_WRITE_SQL`]), in case a proxy drops it.
const DURABLE_COMMIT_OPTION: &str = "-c synchronous_commit=on";

/// Begins a transaction that writes.
pub(super) const BEGIN_WRITE_SQL: &str =
    "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL synchronous_commit = on";

/// After this time without an acknowledgment from the peer's machine, the connection counts as lost.
const DEAD_PEER_TIMEOUT: Duration = Duration::from_secs(30);

/// Parses a URL, applies defaults, and returns the time limit for answers.
pub(super) fn parse_url(url: &str) -> Result<(Config, PostgresTls, Option<Duration>), StoreError> {
    let url_options = UrlOptions::parse(url)?;
    let bad = |error: &dyn std::fmt::Display| StoreError::Unavailable(format!("invalid database URL: {error}"));
    let mut config: Config = url_options.url.parse().map_err(|error: tokio_postgres::Error| bad(&error))?;
    if config.get_password().is_none()
        && let Some(password) = password::find(&config, url_options.passfile.as_deref())?
    {
        config.password(password);
    }
    let options = format!("{SESSION_OPTIONS} {} {DURABLE_COMMIT_OPTION}", config.get_options().unwrap_or_default());
    config.options(options);
    if config.get_application_name().is_none() {
        config.application_name("onceward");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(ACQUIRE_TIMEOUT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(DEAD_PEER_TIMEOUT).keepalives_idle(DEAD_PEER_TIMEOUT);
    }
    // PostgreSQL never encrypts Unix sockets, and asking would cost a round trip.
    let is_socket = |host: &Host| !matches!(host, Host::Tcp(_));
    if config.get_ssl_mode() == SslMode::Prefer && config.get_hosts().iter().all(is_socket) {
        config.ssl_mode(SslMode::Disable);
    }
    let answer_timeout = url_options.answer_timeout.unwrap_or(client::DEFAULT_ANSWER_TIMEOUT);
    Ok((config, url_options.tls()?, Some(answer_timeout).filter(|limit| !limit.is_zero())))
}

/// Connections to one database, with its location for error messages.
#[derive(Clone, Debug)]
pub(super) struct ConnectionPool {
    connections: deadpool_postgres::Pool,
    location: Arc<str>,
    answer_timeout: Option<Duration>,
}

impl ConnectionPool {
    pub(super) async fn get(&self) -> Result<PooledClient, StoreError> {
        let location = &self.location;
        let connection = self.connections.get().await.map_err(|error| match error {
            PoolError::Timeout(TimeoutType::Wait) => {
                StoreError::Unavailable(format!("all {MAX_CONNECTIONS} connections to {location} are in use"))
            }
            PoolError::Timeout(_) => {
                StoreError::Unavailable(format!("{location} did not answer within {} s", ACQUIRE_TIMEOUT.as_secs()))
            }
            PoolError::Backend(error) => match StoreError::from(error) {
                known @ (StoreError::DiskFull | StoreError::ReadOnly(_) | StoreError::Corrupt(_)) => known,
                StoreError::Unavailable(why) => StoreError::Unavailable(format!("{location}: {why}")),
                other => StoreError::Unavailable(format!("{location}: {other}")),
            },
            other => StoreError::Unavailable(format!("{location}: {other}")),
        })?;
        Ok(PooledClient::new(connection, Arc::clone(location), self.answer_timeout))
    }
}

/// Returns host, port and name of a database, without the user.
fn database_location(config: &Config) -> String {
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

/// Creates a pool without opening a connection.
pub(super) fn build_pool(url: &str) -> Result<ConnectionPool, StoreError> {
    let (config, tls, answer_timeout) = parse_url(url)?;
    let location = database_location(&config).into();
    let manager = Manager::from_config(config, tls, ManagerConfig { recycling_method: RecyclingMethod::Fast });
    let timeouts =
        Timeouts { wait: Some(ACQUIRE_TIMEOUT), create: Some(ACQUIRE_TIMEOUT), recycle: Some(ACQUIRE_TIMEOUT) };
    let built = deadpool_postgres::Pool::builder(manager).max_size(MAX_CONNECTIONS).runtime(Runtime::Tokio1);
    let built = built.timeouts(timeouts).build().map_err(|error| StoreError::Unavailable(error.to_string()));
    Ok(ConnectionPool { connections: built?, location, answer_timeout })
}

/// A connection with an open transaction. When dropped, it is closed instead of returned to the pool, which rolls back
/// the transaction.
#[derive(Debug)]
pub(super) struct OpenTransaction(Option<PooledClient>);

impl OpenTransaction {
    pub(super) fn new(client: PooledClient) -> Self {
        Self(Some(client))
    }

    pub(super) fn client(&self) -> Result<&PooledClient, StoreError> {
        self.0
            .as_ref()
            .ok_or_else(|| StoreError::Unavailable("the connection was already returned to the pool".to_owned()))
    }

    /// Returns the connection to the pool, because the transaction has ended.
    pub(super) fn release(mut self) {
        drop(self.0.take());
    }

    /// Rolls back the transaction.
    pub(super) async fn rollback(self) {
        if let Ok(client) = self.client()
            && client.batch_execute("ROLLBACK").await.is_ok()
        {
            self.release();
        }
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            client.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use onceward_testkit::postgres::{PostgresServer, psql};

    use super::*;

    /// Also checks that `lock_timeout` stays set.
    #[test]
    fn connections_use_synchronous_commit_despite_role_and_url_settings() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let url = PostgresServer::shared().create_database();
        let name = url.rsplit('/').next().and_then(|name| name.split('?').next()).expect("a name").to_owned();
        // All tests share the role, so change it only for this database.
        for setting in ["synchronous_commit = off", "lock_timeout = 0"] {
            psql(&url, &format!("ALTER ROLE CURRENT_USER IN DATABASE \"{name}\" SET {setting}"));
        }
        assert_eq!(psql(&url, "SHOW synchronous_commit"), "off");
        let show_setting = |url: &str, setting: &str| {
            let sql = format!("SHOW {setting}");
            runtime.block_on(async {
                let client = build_pool(url).expect("a pool").get().await.expect("a connection");
                client.query_one(&sql, &[]).await.expect("a setting").get::<_, String>(0)
            })
        };
        let join = if url.contains('?') { '&' } else { '?' };
        let url_with_options =
            format!("{url}{join}options=-c%20work_mem%3D7MB%20-c%20synchronous_commit%3Doff%20-c%20jit%3Don");
        for url in [&url, &url_with_options] {
            assert_eq!(show_setting(url, "synchronous_commit"), "on");
            assert_eq!(show_setting(url, "lock_timeout"), "5s");
            assert_eq!(show_setting(url, "idle_in_transaction_session_timeout"), "30s");
            assert_eq!(show_setting(url, "enable_seqscan"), "off");
        }
        assert_eq!(
            (show_setting(&url_with_options, "work_mem"), show_setting(&url_with_options, "jit")),
            ("7MB".to_owned(), "on".to_owned())
        );
    }
}
