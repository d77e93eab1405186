//! A server with keys, and its answers without what differs by itself.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use onceward_core::diagnostic::{File, Files};
use onceward_core::record::Actor;
use onceward_engine::{Config, Engine, NewKey};
use onceward_server::{Part, Settings, serve};
use onceward_store::{AnyStore, Clock, SqliteStore};
use onceward_testkit::Folder;
use onceward_testkit::http::{self, PATIENCE, Reply};
use serde_json::Value as Json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A job with an owner, an event of its owner's, a unique key across owners, and one that points to it.
const JOB: &str = r#"
language  = 1
lifecycle = "house.job"
about     = "A job of somebody's"

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

/// Another kind of work, for a narrow key.
pub(crate) fn files() -> Files {
    let other = JOB.replace("house.job", "house.other");
    let file = |name: &str, text: &str| File { name: name.to_owned(), text: text.into() };
    Files { files: vec![file("job.toml", JOB), file("other.toml", &other)] }
}

/// A test on threads of its own, so that it may block.
pub(crate) fn blocking(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(test);
}

/// A test on a database that is gone with it.
pub(crate) fn on_sqlite(settings: Settings, parts: Vec<Part>, test: impl AsyncFn(House)) {
    blocking(async {
        let folder = Folder::new();
        let store = SqliteStore::open(folder.file(), Clock::machine()).expect("a new file");
        test(House::with(AnyStore::Sqlite(store), settings, parts).await).await;
    });
}

/// Whatever the server has still to notice, it notices in time.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what} in vain");
        std::thread::yield_now();
    }
}

pub(crate) struct House {
    pub(crate) engine: Engine<AnyStore>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl House {
    pub(crate) async fn open(store: AnyStore, settings: Settings) -> Self {
        Self::with(store, settings, Vec::new()).await
    }

    pub(crate) async fn with(store: AnyStore, settings: Settings, parts: Vec<Part>) -> Self {
        let engine = Engine::open(store, Config::default());
        engine.define(&files()).await.expect("sound files");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel::<()>();
        let until = async {
            let _ = stopped.await;
        };
        let serving = tokio::spawn(serve(listener, engine.clone(), settings, parts, until));
        Self { engine, address, stop: Some(stop), serving }
    }

    /// The text of a new key.
    pub(crate) async fn key(&self, owner: &str, roles: &[&str], lifecycles: &[&str]) -> String {
        let names = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect();
        let new =
            NewKey { owner: owner.into(), roles: names(roles), lifecycles: names(lifecycles), ..NewKey::default() };
        let made = self.engine.keys().create(&Actor::new("ops", &["operator"]), new).await;
        made.expect("a key").1.reveal()
    }

    /// Blocks: the server runs on threads of its own.
    pub(crate) fn send(&self, key: Option<&str>, method: &str, path: &str, body: Option<&Json>) -> Reply {
        self.send_with(key, method, path, &[], body)
    }

    /// The same with more headers.
    pub(crate) fn send_with(
        &self,
        key: Option<&str>,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        body: Option<&Json>,
    ) -> Reply {
        let address = self.address.to_string();
        let bearer = key.map(|key| format!("Bearer {key}"));
        let mut headers = [&[("host", &*address), ("connection", "close")], more].concat();
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        let body = body.map(ToString::to_string);
        http::call(self.address, method, path, &headers, body.as_deref().map(str::as_bytes)).lasting()
    }

    /// What its metrics say of it now. As long as there are no keys.
    pub(crate) fn gauge(&self, name: &str) -> u64 {
        self.send(None, "GET", "/metrics", None).gauge(name)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tell it to end; what is under way keeps it.
    pub(crate) fn leave(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
    }

    pub(crate) async fn close(mut self) {
        self.leave();
        self.serving.await.expect("it ends").expect("without an error");
    }
}
