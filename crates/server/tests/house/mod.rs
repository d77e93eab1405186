//! A server with keys, and its answers without what differs by itself.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::net::SocketAddr;
use std::sync::Arc;

use onceward_core::diagnostic::{File, Files};
use onceward_core::record::Actor;
use onceward_engine::{Config, Engine, NewKey};
use onceward_server::{Part, Settings, serve};
use onceward_store::AnyStore;
use onceward_testkit::http::{self, Reply};
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

pub(crate) struct House {
    pub(crate) engine: Engine<AnyStore>,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
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
        Self { engine, address, stop, serving }
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
    pub(crate) fn send(&self, key: Option<&str>, method: &str, path: &str, body: Option<&Json>) -> Said {
        let address = self.address.to_string();
        let bearer = key.map(|key| format!("Bearer {key}"));
        let mut headers = vec![("host", &*address), ("connection", "close")];
        headers.extend(bearer.as_deref().map(|bearer| ("authorization", bearer)));
        let body = body.map(ToString::to_string);
        Said::of(&http::call(self.address, method, path, &headers, body.as_deref()))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) async fn close(self) {
        let _ = self.stop.send(());
        self.serving.await.expect("it ends").expect("without an error");
    }
}

/// A header that is another one in every answer.
pub(crate) fn is_of_the_moment(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ["date:", "x-request-id:"].iter().any(|name| line.starts_with(name))
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) headers: Vec<String>,
    pub(crate) body: String,
}

impl Said {
    fn of(reply: &Reply) -> Self {
        let mut headers: Vec<String> = reply.head.lines().skip(1).map(str::to_owned).collect();
        headers.retain(|line| !is_of_the_moment(line));
        headers.sort();
        Self { status: reply.status, headers, body: reply.text() }
    }

    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// With another text in place of an id: of the same length, so that lengths stay.
    pub(crate) fn without(&self, id: &str) -> Self {
        let hidden = "#".repeat(id.len());
        let headers = self.headers.iter().map(|line| line.replace(id, &hidden)).collect();
        Self { status: self.status, headers, body: self.body.replace(id, &hidden) }
    }
}
