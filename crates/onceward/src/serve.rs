//! `onceward serve`: runs the engine and its HTTP server.

use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use onceward_engine::{
    AllowedTarget, CheckRegistry, Engine, EngineConfig, HttpTransport, HttpTransportConfig, ObjectStorage,
    RetentionPolicy,
};
use onceward_server::{ServerConfig, Telemetry};
use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore, StoreError};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use crate::database::DatabaseUrl;
use crate::database_args::{DatabaseArg, DatabaseKind};
use crate::logging::{self, LogFormat};
use crate::object_storage::ObjectStorageArgs;
use crate::output::{CommandStatus, print_stderr, print_stdout};
use crate::prune::parse_duration_or_days;
use crate::retention::RetentionArgs;
use banner::Banner;

mod banner;
mod image;
mod lifecycles;
mod listener;
mod shutdown;
mod started_server;
mod temp_storage;
mod traces;

use shutdown::ShutdownSignals;
use started_server::StartedServer;
use temp_storage::TempStorage;

/// Deliveries that may wait for a slow receiver at the same time.
const MAX_CONCURRENT_DELIVERIES: usize = 16;

/// One megabyte as base64, and some bytes for the JSON around it.
const MAX_RESULT_BYTES: usize = (1 << 20) / 3 * 4 + 1_024;

/// Run the engine and serve it over HTTP
///
/// One process uses a SQLite file, or several processes share a PostgreSQL database. On start, the server prints its address and the next
/// commands to try. SIGTERM, Ctrl-C or a closed terminal (except under nohup) drains it: requests in progress finish, no more jobs are
/// leased, and streams end. A second signal ends it at once.
///
/// Without API keys, the server accepts local requests only, and every local user may do everything. Once the first API key exists
/// (`onceward key create`), every request needs one. See docs/auth.md.
///
/// Exit codes: 0 drained after a signal; 1 a lifecycle file has errors, another process has the database open, the database has another
/// schema version, the address is public but there are no API keys, the drain timed out, a second signal came, or a task of the engine ended
/// because of a bug; 2 the server cannot start: the address is in use, or the database or the object storage cannot be opened.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  onceward serve\n  onceward serve --keep 90d --keep shop.order=forever\n  onceward serve --db postgres://onceward@db/app --listen 127.0.0.1:8080 --objects s3://payloads/app"
)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    db: DatabaseArg<ServeDatabase>,
    /// Name of this server, unique among the servers on one PostgreSQL database. After a restart under the same name, the server ends the leases
    /// of its earlier deliveries and in-process workers at once, so that their jobs can be leased again
    #[arg(long, env = "ONCEWARD_NAME", value_name = "NAME", value_parser = parse_server_name)]
    name: Option<String>,
    /// Address and port to listen on; port 0 picks a free port
    #[arg(long, default_value = "127.0.0.1:7171", value_name = "ADDRESS", value_parser = parse_listen_address)]
    listen: SocketAddr,
    #[command(flatten)]
    objects: ObjectStorageArgs,
    /// Folder with lifecycle files (*.toml, also in subfolders), or one file. Repeatable
    #[arg(long, value_name = "DIR")]
    lifecycles: Vec<PathBuf>,
    /// Do not load the shipped lifecycles of execution, document, image, relay and mesh. Those that the database already has stay
    #[arg(long, env = "ONCEWARD_NO_SYSTEMS", value_parser = clap::builder::FalseyValueParser::new())]
    no_systems: bool,
    #[command(flatten)]
    retention_args: RetentionArgs,
    /// Maximum requests per second for each API key; 0 means no limit
    #[arg(long, default_value_t = 5_000, value_name = "N")]
    rate_limit: u32,
    /// Maximum share of the streams, of the long polls and of the memory for responses that one API key may use, in percent
    #[arg(long, default_value_t = 50, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    key_share: u8,
    /// Maximum share of the connections that one address may use, in percent; 100 for a server behind a load balancer
    #[arg(long, default_value_t = 50, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    address_share: u8,
    /// Host name, address or network (such as 10.0.0.0/8) to which deliveries may be sent although it is not public, also over http.
    /// All other deliveries need https and a public address. Repeatable
    #[arg(long, value_name = "HOST_OR_CIDR")]
    allow_delivery_to: Vec<AllowedTarget>,
    /// Maximum size of one response with records, in MB: a page ends there, a lease call leases no more jobs, and a batch returns ids, states
    /// and versions from there on
    #[arg(long, default_value_t = 8, value_name = "MB", value_parser = clap::value_parser!(u16).range(1..))]
    max_response: u16,
    /// Memory for responses that clients have not read yet, in MB. One API key may use its `--key-share` of it
    #[arg(long, default_value_t = 256, value_name = "MB", value_parser = clap::value_parser!(u16).range(1..))]
    response_memory: u16,
    /// Drain timeout: after SIGTERM or Ctrl-C, requests that are still running after this time are dropped
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = parse_duration_or_days)]
    drain: Duration,
    /// Development mode: listen on loopback addresses only, even with API keys
    #[arg(long)]
    dev: bool,
    /// Format of the log. Default: human on a terminal, otherwise json. `ONCEWARD_LOG` sets the level
    #[arg(long, value_enum, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// Export traces to this collector (OTLP over HTTP), such as `http://127.0.0.1:4318`
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    otlp: Option<String>,
    #[command(flatten, next_help_heading = "Image")]
    image: image::ImageArgs,
}

/// Parses an address and a port. Rejects host names, because a name may resolve to several or changing addresses.
fn parse_listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let port = text.rsplit_once(':').map_or(text, |(_, port)| port);
        let port = port.parse::<u16>().unwrap_or(7171);
        format!(
            "`{text}` is not an address with a port: use 127.0.0.1:{port}, or 0.0.0.0:{port} to accept other machines"
        )
    })
}

/// Accepts an empty name, which counts as unset: an environment variable may be empty.
fn parse_server_name(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if text.len() <= 64 && text.bytes().all(fits) {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` is not a valid server name: use at most 64 letters, digits, `.`, `_` and `-`"))
    }
}

/// The database of a server.
#[derive(Clone, Debug)]
enum ServeDatabase {
    Persistent(DatabaseUrl),
    /// Deleted when the process ends.
    Temporary,
}

impl FromStr for ServeDatabase {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        if url == "sqlite::memory:" { Ok(Self::Temporary) } else { url.parse().map(Self::Persistent) }
    }
}

impl DatabaseKind for ServeDatabase {
    const HELP: &'static str =
        "Database: sqlite:PATH, postgres://…, or `sqlite::memory:` for a temporary one [default: sqlite:onceward.db]";
}

impl fmt::Display for ServeDatabase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Persistent(database) => database.fmt(out),
            Self::Temporary => out.write_str("a temporary database"),
        }
    }
}

impl ServeArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        if self.dev && !self.listen.ip().is_loopback() {
            bail!("--dev allows loopback addresses only; other machines can reach {}", self.listen);
        }
        logging::start(self.log_format)?;
        // Report errors in flags and files before a database is opened.
        let retention = self.retention_args.retention()?;
        let (checks, image) = self.image.build(EngineConfig::default().checks)?;
        let Some(startup_lifecycles) =
            lifecycles::load(&self.lifecycles, !self.no_systems, &checks, &self.unavailable_systems())?
        else {
            return Ok(CommandStatus::Failure);
        };
        let engine_runtime = self.engine_runtime()?;
        let started = engine_runtime.block_on(self.start(&startup_lifecycles, checks, image, retention));
        let result = started.and_then(|server| match server {
            // The listener, health checks, signals and the drain have a runtime of their own on this thread, so that a
            // save that blocks the engine's runtime delays none of them (decision 0020).
            Some(server) => Builder::new_current_thread().enable_all().build()?.block_on(server.run()),
            None => Ok(CommandStatus::Failure),
        });
        match result {
            Err(error) => match error.downcast_ref() {
                Some(StoreError::Locked { .. } | StoreError::SchemaTooNew { .. } | StoreError::SchemaTooOld { .. }) => {
                    print_stderr(&format!("error: {error:#}\n"));
                    Ok(CommandStatus::Failure)
                }
                _ => Err(error),
            },
            done => done,
        }
    }

    fn engine_runtime(&self) -> std::io::Result<Runtime> {
        let mut builder = Builder::new_multi_thread();
        let is_sqlite = !matches!(*self.db, ServeDatabase::Persistent(DatabaseUrl::Postgres(_)));
        // Tokio itself reads this variable, which takes precedence.
        if is_sqlite && std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
            builder.worker_threads(SqliteStore::runtime_threads());
        }
        builder.enable_all().build()
    }

    /// Adds a hint to a bind error.
    fn listen_error(&self, error: std::io::Error) -> anyhow::Error {
        let address = self.listen;
        if error.kind() == ErrorKind::AddrInUse {
            let free = SocketAddr::new(address.ip(), 0);
            return anyhow!("{address}: {error}; another server may use the port; --listen {free} picks a free one");
        }
        anyhow::Error::from(error).context(address.to_string())
    }

    fn is_new_database(&self) -> bool {
        match &*self.db {
            ServeDatabase::Persistent(DatabaseUrl::Sqlite(path)) => !path.exists(),
            ServeDatabase::Persistent(DatabaseUrl::Postgres(_)) => false,
            ServeDatabase::Temporary => true,
        }
    }

    /// Explains why a server without API keys refuses a public address, and how to create a key.
    fn missing_keys_message(&self) -> String {
        let address = self.listen;
        let advice = match &*self.db {
            ServeDatabase::Persistent(database) => {
                format!(
                    "create an operator's API key first:\n  onceward key create --db {} --owner ops --role operator",
                    database.without_password()
                )
            }
            ServeDatabase::Temporary => {
                "use a database that is not temporary, and create an operator's API key in it first:\n  onceward key create --db sqlite:onceward.db --owner ops --role operator".to_owned()
            }
        };
        format!(
            "error: other machines can reach {address}, and the database has no API keys, so every caller could do everything; {advice}\n"
        )
    }

    /// Opens the database and starts the engine. Returns `None` if the server must not start, after printing why.
    async fn start(
        &self,
        startup_lifecycles: &lifecycles::StartupLifecycles,
        checks: CheckRegistry,
        image_setup: image::ImageSetup,
        retention: RetentionPolicy,
    ) -> Result<Option<StartedServer<impl Future<Output = ()> + use<>>>> {
        // Register before the database is opened, so that a signal during the opening is not lost.
        let signals = ShutdownSignals::register()?;
        let listener = TcpListener::bind(self.listen).await.map_err(|error| self.listen_error(error))?;
        listener::set_keepalive(&listener)?;
        // Check access to the object storage before the database is opened, so that an error appears at once.
        let named_storage = self.objects.open().await?;
        if let Some(objects) = &named_storage {
            objects.probe_write().await?;
        }
        let is_public = !self.listen.ip().is_loopback();
        // A new database has no API keys. Checking this first avoids creating the file.
        if is_public && self.is_new_database() {
            print_stderr(&self.missing_keys_message());
            return Ok(None);
        }
        let transport = HttpTransport::new(HttpTransportConfig {
            allowed_targets: self.allow_delivery_to.iter().cloned().collect(),
            ..HttpTransportConfig::default()
        });
        let (store, temp_storage) = self.open_store().await?;
        let objects =
            named_storage.or_else(|| self.default_object_folder(temp_storage.as_ref()).map(ObjectStorage::folder));
        let telemetry = self.build_telemetry()?;
        let spans = telemetry.span_sink();
        let config = EngineConfig {
            max_result_bytes: MAX_RESULT_BYTES,
            max_page_bytes: usize::from(self.max_response) << 20,
            span_sink: spans,
            object_storage: objects,
            checks,
            retention,
            ..EngineConfig::default()
        };
        let engine = Engine::open(store, config);
        // Run every check that may stop the server before any lifecycle version becomes current.
        let lifecycles = startup_lifecycles.served_names(&engine).await?;
        self.retention_args.require_known_lifecycles(&lifecycles)?;
        let requires_key = engine.api_keys().is_auth_required().await?;
        if !requires_key && is_public {
            print_stderr(&self.missing_keys_message());
            engine.close().await;
            return Ok(None);
        }
        if !startup_lifecycles.put_lifecycles(&engine).await? {
            engine.close().await;
            return Ok(None);
        }
        engine.start_deliveries(transport, MAX_CONCURRENT_DELIVERIES);
        if startup_lifecycles.names.iter().any(|name| name == "image.job") {
            image_setup.start(&engine);
        }
        let banner = Banner {
            address: listener.local_addr()?,
            lifecycles: &lifecycles,
            startup_lifecycles,
            inactive_files: &startup_lifecycles.inactive_files(&engine).await?,
            retention: engine.retention(),
            database_bytes: self.database_bytes().await,
            requires_key,
        };
        print_stdout(&self.startup_message(&banner))?;
        let defaults = ServerConfig::default();
        let config = ServerConfig {
            max_connections: listener::max_connections(),
            address_share_percent: self.address_share,
            telemetry,
            requests_per_second: self.rate_limit,
            api_key_share_percent: self.key_share,
            max_response_bytes: usize::from(self.max_response) << 20,
            max_total_response_bytes: usize::from(self.response_memory) << 20,
            skipped_lifecycles: startup_lifecycles.unavailable.clone(),
            file_versions: startup_lifecycles.file_versions.clone(),
            drain_timeout: self.drain,
            ..defaults
        };
        Ok(Some(StartedServer { listener: listener.into_std()?, engine, config, signals, temp_storage }))
    }

    fn build_telemetry(&self) -> Result<Arc<Telemetry>> {
        // An empty environment variable counts as unset.
        match self.otlp.as_deref().filter(|endpoint| !endpoint.is_empty()) {
            None => Ok(Telemetry::new()),
            Some(endpoint) => traces::telemetry_for(endpoint),
        }
    }

    async fn open_store(&self) -> Result<(AnyStore, Option<TempStorage>)> {
        let name = || self.db.to_string();
        match &*self.db {
            ServeDatabase::Persistent(DatabaseUrl::Sqlite(path)) => {
                let store = SqliteStore::open(path, Clock::machine()).with_context(name)?;
                Ok((AnyStore::Sqlite(store), None))
            }
            ServeDatabase::Persistent(DatabaseUrl::Postgres(url)) => {
                let mut store = PostgresStore::open(url).await.with_context(name)?;
                if let Some(instance_name) = self.name.as_deref().filter(|name| !name.is_empty()) {
                    store = store.with_server_name(instance_name).await.with_context(name)?;
                }
                Ok((AnyStore::Postgres(store), None))
            }
            ServeDatabase::Temporary => {
                let temp_storage = TempStorage::new()?;
                let store = SqliteStore::open(temp_storage.join("onceward.db"), Clock::machine()).with_context(name)?;
                Ok((AnyStore::Sqlite(store), Some(temp_storage)))
            }
        }
    }

    /// Returns each system that cannot run with this configuration, and what it lacks.
    fn unavailable_systems(&self) -> Vec<(&'static str, &'static str)> {
        match (&*self.db, self.objects.has_url()) {
            (ServeDatabase::Persistent(DatabaseUrl::Postgres(_)), false) => {
                vec![("image", "there is no object storage for images; set --objects")]
            }
            _ => Vec::new(),
        }
    }

    /// Returns the folder for large payloads that is used without `--objects`.
    fn default_object_folder(&self, temp_storage: Option<&TempStorage>) -> Option<PathBuf> {
        match (&*self.db, temp_storage) {
            (ServeDatabase::Persistent(database), _) => database.default_object_folder(),
            (ServeDatabase::Temporary, temp_storage) => temp_storage.map(|temp| temp.join("onceward.db.objects")),
        }
    }
}
