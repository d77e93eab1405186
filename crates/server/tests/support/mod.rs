//! A test server with API keys.
#![allow(dead_code, reason = "each test binary uses only some items")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::record::Actor;
use onceward_engine::{Engine, EngineConfig, NewApiKey};
use onceward_server::{ServerConfig, SystemRoutes, serve};
use onceward_store::{AnyStore, Clock, SqliteStore};
use onceward_testkit::TempDir;
use onceward_testkit::http::{self, RawHttpResponse, TEST_TIMEOUT};
use serde_json::Value as Json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A job with an owner, an event for its owner, a unique key across owners, and a reference to another job.
const JOB_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "house.job"
about     = "A job of an owner"

[states]
waiting = { about = "for a worker", ready = true }
running = { about = "a worker has it" }
done    = { about = "and over", final = true }
dropped = { about = "by its owner", final = true }

[fields]
name = { type = "string", optional = true }
near = { type = "ref", to = "house.job", optional = true }
note = { type = "string", max = 1_000_000, optional = true }

[links]
neighbours = { from = "house.job.near", max = 10 }

[unique]
name = { on = ["name"], clash = "409 name_taken" }

[work]
lease = "1h"

[[on.create]]
go   = "-> waiting"
take = ["name", "near", "note"]

[[on.write]]
go    = "waiting"
by    = "owner"
input = { note = { type = "string", max = 1_000_000 } }
set   = { note = "input.note" }

[[on.drop]]
go = "waiting -> dropped"
by = "owner"

[[on.mark]]
go  = "running"
set = { note = "'marked'" }

[[on.lease]]
go = "waiting -> running"

[[on.commit]]
go = "running -> done"

[[on.fail]]
go = "running -> waiting"
"#;

/// Returns two lifecycles, so that an API key can be limited to one.
pub(crate) fn lifecycle_files() -> InputFiles {
    let other = JOB_LIFECYCLE.replace("house.job", "house.other");
    let file = |name: &str, text: &str| InputFile { name: name.to_owned(), text: text.into() };
    InputFiles { files: vec![file("job.toml", JOB_LIFECYCLE), file("other.toml", &other)] }
}

/// Runs a test on its own threads, so that it may block.
pub(crate) fn run_blocking(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("tokio runtime").block_on(test);
}

/// Runs a test on a temporary database.
pub(crate) fn with_sqlite_server(config: ServerConfig, systems: Vec<SystemRoutes>, test: impl AsyncFn(TestServer)) {
    run_blocking(async {
        let folder = TempDir::new();
        let store = SqliteStore::open(folder.database_path(), Clock::machine()).expect("new database file");
        test(TestServer::start_with_systems(AnyStore::Sqlite(store), config, systems).await).await;
    });
}

/// Polls until the condition holds; panics after a timeout.
pub(crate) fn wait_until(description: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < TEST_TIMEOUT, "timed out waiting for: {description}");
        std::thread::yield_now();
    }
}

pub(crate) struct TestServer {
    pub(crate) engine: Engine<AnyStore>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    server_task: JoinHandle<std::io::Result<()>>,
}

impl TestServer {
    pub(crate) async fn start(store: AnyStore, config: ServerConfig) -> Self {
        Self::start_with_systems(store, config, Vec::new()).await
    }

    pub(crate) async fn start_with_systems(store: AnyStore, config: ServerConfig, systems: Vec<SystemRoutes>) -> Self {
        let engine = Engine::open(store, EngineConfig::default());
        engine.put_lifecycles(&lifecycle_files()).await.expect("valid lifecycle files");
        Self::serve_engine(engine, config, systems).await
    }

    /// Serves on the current runtime. The engine may have another one.
    pub(crate) async fn serve_engine(
        engine: Engine<AnyStore>,
        config: ServerConfig,
        systems: Vec<SystemRoutes>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
        let address = listener.local_addr().expect("address");
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async {
            let _ = stopped.await;
        };
        let serving = tokio::spawn(serve(listener, engine.clone(), config, systems, shutdown));
        Self { engine, address, stop: Some(stop), server_task: serving }
    }

    /// Creates an API key and returns its text. Before the first one, creates an operator's.
    pub(crate) async fn create_api_key(&self, owner: &str, roles: &[&str], lifecycles: &[&str]) -> String {
        let ops = Actor::new("ops", &["operator"]);
        let keys = self.engine.api_keys();
        if !roles.contains(&"operator") && !keys.is_auth_required().await.expect("API keys") {
            let first = NewApiKey { owner: "ops".into(), roles: vec!["operator".into()], ..NewApiKey::default() };
            keys.create(&ops, first).await.expect("the operator's API key");
        }
        let names = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect();
        let new = NewApiKey {
            owner: owner.into(),
            roles: names(roles),
            lifecycles: names(lifecycles),
            ..NewApiKey::default()
        };
        keys.create(&ops, new).await.expect("API key").1.reveal()
    }

    /// Blocks; the server runs on its own threads.
    pub(crate) fn send(&self, api_key: Option<&str>, method: &str, path: &str, body: Option<&Json>) -> RawHttpResponse {
        self.send_with(api_key, method, path, &[], body)
    }

    /// Like [`send`](Self::send), with more headers.
    pub(crate) fn send_with(
        &self,
        api_key: Option<&str>,
        method: &str,
        path: &str,
        extra_headers: &[(&str, &str)],
        body: Option<&Json>,
    ) -> RawHttpResponse {
        let address = self.address.to_string();
        let bearer = api_key.map(|key| format!("Bearer {key}"));
        let mut headers = [&[("host", &*address), ("connection", "close")], extra_headers].concat();
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        let body = body.map(ToString::to_string);
        http::send_request(self.address, method, path, &headers, body.as_deref().map(str::as_bytes))
            .without_volatile_headers()
    }

    /// Reads a metric. Works only while there are no API keys.
    pub(crate) fn metric_value(&self, name: &str) -> u64 {
        self.send(None, "GET", "/metrics", None).metric(name)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts the shutdown without waiting for it.
    pub(crate) fn request_shutdown(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
    }

    pub(crate) async fn close(self) {
        self.stop().await.expect("server stopped without error");
    }

    /// Stops the server, if it still runs, and returns its result.
    pub(crate) async fn stop(mut self) -> std::io::Result<()> {
        self.request_shutdown();
        self.server_task.await.expect("the server does not panic")
    }
}
