//! `onceward serve`: the engine and its database behind an HTTP server.

use std::collections::BTreeSet;
use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use onceward_engine::{Checks, Config, Engine, Http, Objects, Retention};
use onceward_server::{Observe, Settings};
use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore, StoreError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use crate::answer::{Outcome, complain, say};
use crate::database::Database;
use crate::hang_up::hang_up;
use crate::logging::{self, LogFormat};
use crate::objects::Kept;
use crate::parts::parts;
use crate::prune::length;

mod image;
mod keep;
mod loading;
mod traces;

/// Deliveries that are posted at the same time.
const POSTED_AT_ONCE: usize = 16;

/// Bytes of a result: a megabyte, and what base64 makes of it.
const RESULT_BYTES: usize = (1 << 20) / 3 * 4 + 1_024;

/// Serve the engine over HTTP
///
/// One process with its own database file, or many on one PostgreSQL. Says where it listens and what to type next. SIGTERM, Ctrl-C or
/// the end of its terminal (but under nohup) drains: what is under way is finished, no more work is handed out, streams end; a second one ends it at once.
///
/// Without keys it serves this machine only: whoever reaches it may do everything. With the first key (`onceward key create`) everybody
/// needs one; docs/auth.md tells more.
///
/// Exits with 0 when it was told to end and has drained; with 1 if a lifecycle file is not sound, if another process has the database
/// open or a program of another version made it, if others could reach it and there are no keys, if it could not drain in time, or on
/// the second signal; with 2 if it cannot start: the address is taken, or the database or the place for large payloads cannot be opened.
#[derive(Args)]
#[command(
    after_help = "Example:\n  onceward serve\n  onceward serve --keep 90d --keep shop.order=forever\n  onceward serve --db postgres://onceward@db/app --listen 127.0.0.1:8080 --objects s3://payloads/app"
)]
pub(crate) struct Serve {
    /// The database: sqlite:PATH, `sqlite::memory:` for one that goes with the process, or postgres://…
    #[arg(long, default_value = "sqlite:onceward.db", value_name = "URL")]
    db: Place,
    /// What this server is called among those on one PostgreSQL: started again under its name, it gives back at once what its own workers
    /// and deliveries had in hand. No two may have one name
    #[arg(long, env = "ONCEWARD_NAME", value_name = "NAME", value_parser = server_name)]
    name: Option<String>,
    /// Where to listen; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:7171", value_name = "ADDRESS", value_parser = address)]
    listen: SocketAddr,
    #[command(flatten)]
    objects: Kept,
    /// Lifecycle files of one's own: every *.toml in the folder and below it, or one file; may be given more than once
    #[arg(long, value_name = "DIR")]
    lifecycles: Vec<PathBuf>,
    #[command(flatten)]
    keeping: keep::Keeping,
    /// Requests that one key may send in a second; 0 for no limit
    #[arg(long, default_value_t = 5_000, value_name = "N")]
    rate_limit: u32,
    /// How much of the places for streams, and for leases that wait, one key may take: so many in a hundred
    #[arg(long, default_value_t = 50, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    key_share: u8,
    /// How long it may take to finish what is under way when it is told to end, as 30s; what is not done by then is given up
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = length)]
    drain: Duration,
    /// For developing: refuses to listen off this machine, keys or not
    #[arg(long)]
    dev: bool,
    /// How the log is written; for people on a terminal, JSON otherwise. `ONCEWARD_LOG` says how much
    #[arg(long, value_enum, value_name = "FORMAT")]
    log_format: Option<LogFormat>,
    /// Where traces go: a collector that takes OTLP over HTTP, such as `http://127.0.0.1:4318`
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    otlp: Option<String>,
    #[command(flatten, next_help_heading = "Image")]
    image: image::Image,
}

/// An address and a port, by their numbers: a name may stand for several addresses, or for another one tomorrow.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let port = text.rsplit_once(':').map_or(text, |(_, port)| port);
        let port = port.parse::<u16>().unwrap_or(7171);
        format!("`{text}` is no address with a port: write 127.0.0.1:{port}, or 0.0.0.0:{port} for all who can reach this machine")
    })
}

/// A variable that is set to nothing is none.
fn server_name(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if text.len() <= 64 && text.bytes().all(fits) {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` is no name of a server: letters, digits, `.`, `_` and `-`, at most 64"))
    }
}

/// Where the records live.
#[derive(Clone, Debug)]
enum Place {
    Kept(Database),
    /// Gone when the process ends.
    Passing,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        if url == "sqlite::memory:" { Ok(Self::Passing) } else { url.parse().map(Self::Kept) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(database) => database.fmt(out),
            Self::Passing => out.write_str("a database that goes with this process"),
        }
    }
}

impl Serve {
    pub(crate) fn run(&self) -> Result<Outcome> {
        if self.dev && !self.listen.ip().is_loopback() {
            bail!("--dev serves this machine only, and {} can be reached from others", self.listen);
        }
        logging::start(self.log_format)?;
        // Before anything is opened: what is wrong with the flags and the files is told without a database.
        let retention = self.keeping.retention()?;
        let (checks, image) = self.image.ready(Config::default().checks)?;
        let Some(loading) = loading::read(&self.lifecycles, &checks, &self.without())? else {
            return Ok(Outcome::Wanting);
        };
        let done = self.runtime()?.block_on(self.serve(&loading, checks, image, retention));
        match done {
            Err(error) => match error.downcast_ref() {
                Some(StoreError::Locked { .. } | StoreError::TooNew { .. } | StoreError::TooOld { .. }) => {
                    complain(&format!("error: {error:#}\n"));
                    Ok(Outcome::Wanting)
                }
                _ => Err(error),
            },
            done => done,
        }
    }

    fn runtime(&self) -> std::io::Result<Runtime> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let is_sqlite = !matches!(self.db, Place::Kept(Database::Postgres(_)));
        // Whoever says how many there are to be is heard: tokio reads that variable itself.
        if is_sqlite && std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
            builder.worker_threads(SqliteStore::runtime_threads());
        }
        builder.enable_all().build()
    }

    /// Why it cannot listen there.
    fn not_there(&self, error: std::io::Error) -> anyhow::Error {
        let address = self.listen;
        if error.kind() == ErrorKind::AddrInUse {
            let free = SocketAddr::new(address.ip(), 0);
            return anyhow!("{address}: {error}; another server may run there; --listen {free} takes a free port");
        }
        anyhow::Error::from(error).context(address.to_string())
    }

    fn is_new(&self) -> bool {
        match &self.db {
            Place::Kept(Database::Sqlite(path)) => !path.exists(),
            Place::Kept(Database::Postgres(_)) => false,
            Place::Passing => true,
        }
    }

    /// Why it does not start where others can reach it, and what to type.
    fn no_keys(&self) -> String {
        let address = self.listen;
        let way = match &self.db {
            Place::Kept(database) => {
                let database = match database {
                    Database::Sqlite(_) => database.to_string(),
                    // Its URL may hold a password.
                    Database::Postgres(_) => "postgres://…".to_owned(),
                };
                format!(
                    "make an operator's key first:\n  onceward key create --db {database} --owner ops --role operator"
                )
            }
            Place::Passing => "give it a database that is kept, and make an operator's key there first".to_owned(),
        };
        format!(
            "error: {address} can be reached from other machines, and there are no keys: anybody could do everything; {way}\n"
        )
    }

    /// Wanting, too, where the database does not take the lifecycles; that was shown.
    async fn serve(
        &self,
        loading: &loading::Loading,
        checks: Checks,
        image: image::Ready,
        retention: Retention,
    ) -> Result<Outcome> {
        // First of all: one that comes while the database is opened is not lost.
        let hang_up = hang_up()?;
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let listener = TcpListener::bind(self.listen).await.map_err(|error| self.not_there(error))?;
        // Before the database: that a bucket does not let us in is told at once.
        let named = self.objects.named().await?;
        if let Some(objects) = &named {
            objects.try_writing().await?;
        }
        let is_open_to_others = !self.listen.ip().is_loopback();
        // No keys can be where nothing is yet, and nothing need be made to find that out.
        if is_open_to_others && self.is_new() {
            complain(&self.no_keys());
            return Ok(Outcome::Wanting);
        }
        let (store, passing) = self.open().await?;
        let objects = named.or_else(|| self.beside(passing.as_ref()).map(Objects::folder));
        let observe = self.observe()?;
        let spans = observe.spans();
        let config = Config { result_bytes: RESULT_BYTES, spans, objects, checks, retention, ..Config::default() };
        let engine = Engine::open(store, config);
        // A server that does not start makes no version of a lifecycle the current one: all that may be in its way comes first.
        let lifecycles = loading.all(&engine).await?;
        self.keeping.must_be_known(&lifecycles)?;
        let keyed = engine.keys().are_asked_for().await?;
        if !keyed && is_open_to_others {
            complain(&self.no_keys());
            engine.close().await;
            return Ok(Outcome::Wanting);
        }
        if !loading.define(&engine).await? {
            engine.close().await;
            return Ok(Outcome::Wanting);
        }
        engine.deliver(Http::default(), POSTED_AT_ONCE);
        if loading.names.iter().any(|name| name == "image.job") {
            image.open(&engine);
        }
        say(&self.greeting(listener.local_addr()?, loading, &lifecycles, keyed))?;
        let stop = async move {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
                () = hang_up => {}
            }
            // To a program that reads the log, the log says it.
            if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
                complain("stopping: finishing what is under way; once more ends it at once\n");
            }
            tokio::spawn(async move {
                tokio::select! {
                    _ = term.recv() => {}
                    _ = int.recv() => {}
                }
                std::process::exit(1);
            });
        };
        let usual = Settings::default();
        let connections = usual.connections.min(file_handles());
        let settings = Settings {
            connections,
            observe: Arc::clone(&observe),
            requests_per_second: self.rate_limit,
            key_share: self.key_share,
            left_out: loading.absent.clone(),
            drain_time: self.drain,
            ..usual
        };
        if let Err(error) = onceward_server::serve(listener, engine, settings, parts(), stop).await {
            if error.kind() == ErrorKind::TimedOut {
                complain(&format!("error: {error}; the rest is given up\n"));
                // As on the second signal: whoever is still at it may wait for a database that does not answer.
                std::process::exit(1);
            }
            return Err(error.into());
        }
        // The last spans are on their way still.
        tokio::task::spawn_blocking(move || observe.close()).await?;
        Ok(Outcome::Done)
    }

    fn observe(&self) -> Result<Arc<Observe>> {
        // A variable that is set to nothing is none.
        match self.otlp.as_deref().filter(|endpoint| !endpoint.is_empty()) {
            None => Ok(Observe::new()),
            Some(endpoint) => traces::observe(endpoint),
        }
    }

    async fn open(&self) -> Result<(AnyStore, Option<Passing>)> {
        let name = || self.db.to_string();
        match &self.db {
            Place::Kept(Database::Sqlite(path)) => {
                let store = SqliteStore::open(path, Clock::machine()).with_context(name)?;
                Ok((AnyStore::Sqlite(store), None))
            }
            Place::Kept(Database::Postgres(url)) => {
                let mut store = PostgresStore::open(url).await.with_context(name)?;
                if let Some(own) = self.name.as_deref().filter(|own| !own.is_empty()) {
                    store = store.named(own).await.with_context(name)?;
                }
                Ok((AnyStore::Postgres(store), None))
            }
            Place::Passing => {
                let passing = Passing::new()?;
                let store = SqliteStore::open(passing.0.join("onceward.db"), Clock::machine()).with_context(name)?;
                Ok((AnyStore::Sqlite(store), Some(passing)))
            }
        }
    }

    /// Systems that lack something here, each with what it lacks.
    fn without(&self) -> Vec<(&'static str, &'static str)> {
        match (&self.db, self.objects.is_named()) {
            (Place::Kept(Database::Postgres(_)), false) => {
                vec![("image", "there is no place for pictures: name one with --objects")]
            }
            _ => Vec::new(),
        }
    }

    /// Where large payloads go unless a place is named.
    fn beside(&self, passing: Option<&Passing>) -> Option<PathBuf> {
        match (&self.db, passing) {
            (Place::Kept(database), _) => database.objects(),
            (Place::Passing, passing) => passing.map(|passing| passing.0.join("onceward.db.objects")),
        }
    }

    /// Where it is, and what to type next.
    fn greeting(
        &self,
        address: SocketAddr,
        loading: &loading::Loading,
        lifecycles: &BTreeSet<Arc<str>>,
        keyed: bool,
    ) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let server =
            if address.to_string() == "127.0.0.1:7171" { String::new() } else { format!("--server http://{address} ") };
        // Those of the engine's own are its own affair.
        let lifecycles = lifecycles.iter().map(|name| &**name).filter(|name| !name.starts_with("onceward."));
        let lifecycles = lifecycles.collect::<Vec<_>>().join(", ");
        let door = if keyed { "for those with a key" } else { "open to this machine: there are no keys" };
        let mut text = format!(
            "onceward {version} on {}, {door}\nlistening on http://{address}\n\nlifecycles: {lifecycles}\n",
            self.db
        );
        if !loading.replaced.is_empty() {
            text.extend(["yours, in place of the shipped one: ", &loading.replaced.join(", "), "\n"]);
        }
        for left_out in &loading.left_out {
            text.extend(["not loaded: ", left_out, "\n"]);
        }
        let key = if keyed {
            "  export ONCEWARD_KEY=ow_…  # a key of yours; `onceward key create` makes one\n"
        } else {
            ""
        };
        let next = format!(
            "\nTry, in another terminal:\n{key}  onceward new {server}execution.job --payload '{{\"hello\": \"world\"}}'\n  \
             onceward work {server}execution.job -- cat\n\nCtrl-C stops it.\n"
        );
        text.push_str(&next);
        text
    }
}

/// File handles for the database, for posting deliveries and for what else a process needs.
const OWN_HANDLES: usize = 200;

/// As many as the system lets us have, for connections: what a process is given at first is often a thousand.
fn file_handles() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let has = if setrlimit(Resource::Nofile, most).is_ok() { limit.maximum } else { limit.current };
    let has = has.map_or(usize::MAX, |has| usize::try_from(has).unwrap_or(usize::MAX));
    has.saturating_sub(OWN_HANDLES).max(OWN_HANDLES)
}

/// A folder that goes with the process, for nobody else to look into.
struct Passing(PathBuf);

/// Before the number of the process and a word by chance.
const PASSING: &str = "onceward-serve-";

impl Passing {
    fn new() -> Result<Self> {
        let all = std::env::temp_dir();
        forget_the_dead(&all);
        let path = all.join(format!("{PASSING}{}-{:016x}", std::process::id(), getrandom::u64()?));
        std::fs::DirBuilder::new().mode(0o700).create(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }
}

/// Of processes that were killed: nobody else will.
fn forget_the_dead(all: &Path) {
    for entry in std::fs::read_dir(all).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PASSING)?.split_once('-')?.0.parse::<u32>().ok());
        // In a container the one before may have had our number.
        let is_dead = |process: u32| process == std::process::id() || !Path::new(&format!("/proc/{process}")).exists();
        if process.is_some_and(is_dead) {
            // Somebody else's stays, as it should.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
