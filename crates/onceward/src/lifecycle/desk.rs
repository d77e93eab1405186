//! Where the verbs about lifecycles are carried out: by the server, or on a database that no server has open.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use clap::Args;
use onceward_core::record::Actor;
use onceward_engine::{Config, Engine, EngineError, Retention};
use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore, StoreError};
use onceward_worker::{Client, ClientError};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::answer::{Outcome, complain, say};
use crate::database::Database;
use crate::remote::Remote;

/// Which server, or which database.
#[derive(Args)]
pub(super) struct At {
    #[command(flatten)]
    remote: Remote,
    /// Work on this database itself, without a server; one in a file only while no server has it open
    #[arg(long, value_name = "URL")]
    db: Option<Database>,
}

/// Records that are moved in one step.
const STEP: usize = 500;

/// A version of a lifecycle.
#[derive(Debug, Deserialize)]
pub(super) struct VersionLine {
    pub(super) lifecycle: String,
    pub(super) hash: String,
    pub(super) current: bool,
    pub(super) came_at: String,
    pub(super) current_since: String,
    #[serde(default)]
    pub(super) by: Option<String>,
    /// Records that live by it, and such as have ended.
    #[serde(default)]
    pub(super) living: u64,
    #[serde(default)]
    pub(super) ended: u64,
}

/// Which records go where.
#[derive(Debug, Default, Serialize)]
pub(super) struct Moving {
    pub(super) map: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<String>,
    pub(super) ended: bool,
    pub(super) dry_run: bool,
}

/// What became of a step.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Moved {
    pub(super) to: String,
    /// How many were still to be moved before it.
    #[serde(default)]
    pub(super) records: u64,
    #[serde(rename = "moved")]
    pub(super) count: u64,
    pub(super) left: Vec<LeftLine>,
    #[serde(default)]
    pub(super) next: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct LeftLine {
    pub(super) record: String,
    pub(super) state: String,
    pub(super) code: String,
    pub(super) reason: String,
}

/// Who carries it out.
pub(super) enum Desk {
    Server(Client),
    Database { engine: Engine<AnyStore>, actor: Actor },
}

impl At {
    /// Do something at the desk. What is refused is told, and is no misuse.
    pub(super) fn with(&self, as_json: bool, work: impl AsyncFnOnce(&Desk) -> Result<Outcome>) -> Result<Outcome> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let done = runtime.block_on(async {
            let desk = self.open().await?;
            let done = work(&desk).await;
            if let Desk::Database { engine, .. } = &desk {
                engine.close().await;
            }
            done
        });
        done.or_else(|error| match error.downcast::<ClientError>() {
            Ok(error) => self.remote.refused(error, as_json),
            Err(error) => refused(error, as_json),
        })
    }

    async fn open(&self) -> Result<Desk> {
        let Some(db) = &self.db else { return Ok(Desk::Server(self.remote.client()?)) };
        let store = match db {
            Database::Sqlite(path) => {
                let name = || format!("sqlite:{}", path.display());
                // Opening would make it.
                if !path.is_file() {
                    bail!("{}: there is no such file", name());
                }
                if SqliteStore::schema(path).with_context(name)?.found == 0 {
                    bail!("{}: this is not a database of Onceward's; is the path right?", name());
                }
                AnyStore::Sqlite(SqliteStore::open(path, Clock::machine()).with_context(name)?)
            }
            Database::Postgres(url) => AnyStore::Postgres(PostgresStore::open(url).await.context("PostgreSQL")?),
        };
        // Nothing is pruned on the way: how long records are kept is for the server to know.
        let engine = Engine::open(store, Config { retention: Retention::for_ever(), ..Config::default() });
        let actor = Actor::new("local", &["operator"]);
        Ok(Desk::Database { engine, actor })
    }
}

/// What is refused, and what may go another time, is not misuse.
fn refused(error: anyhow::Error, as_json: bool) -> Result<Outcome> {
    let is_refusal = match (error.downcast_ref::<EngineError>(), error.downcast_ref::<StoreError>()) {
        (Some(EngineError::Refused(refusal)), _) => {
            if as_json {
                let (status, code, reason) = (refusal.status, &refusal.code, &refusal.reason);
                say(&format!("{:#}\n", json!({ "error": { "status": status, "code": code, "reason": reason } })))?;
            }
            complain(&format!("error: {}\n", refusal.reason));
            return Ok(Outcome::Wanting);
        }
        (Some(EngineError::Store(store)), _) => is_of_the_database(store),
        (_, Some(store)) => is_of_the_database(store),
        (Some(_), _) => true,
        (None, None) => false,
    };
    if !is_refusal {
        return Err(error);
    }
    if as_json {
        say(&format!("{:#}\n", json!({ "error": { "reason": format!("{error:#}") } })))?;
    }
    complain(&format!("error: {error:#}\n"));
    Ok(Outcome::Wanting)
}

fn is_of_the_database(error: &StoreError) -> bool {
    matches!(error, StoreError::Locked { .. } | StoreError::TooNew { .. } | StoreError::Busy | StoreError::Unsound(_))
}

impl Desk {
    pub(super) async fn versions(&self, name: Option<&str>) -> Result<Vec<VersionLine>> {
        match self {
            Self::Database { engine, actor } => kept_versions(engine, actor, name).await,
            Self::Server(client) => {
                let names = match name {
                    Some(name) => vec![name.to_owned()],
                    None => serde_json::from_value::<Named>(client.lifecycles().await?)?.names(),
                };
                let mut lines = Vec::new();
                for name in names {
                    lines.extend(serde_json::from_value::<Versions>(client.versions(&name).await?)?.versions);
                }
                Ok(lines)
            }
        }
    }

    /// The whole hash of what is current now.
    pub(super) async fn make_current(&self, name: &str, hash: &str) -> Result<String> {
        match self {
            Self::Database { engine, actor } => Ok(engine.use_version(actor, name, hash).await?.hash.to_string()),
            Self::Server(client) => Ok(serde_json::from_value::<Current>(client.use_version(name, hash).await?)?.hash),
        }
    }

    pub(super) async fn move_some(&self, name: &str, moving: &Moving, after: Option<u64>) -> Result<Moved> {
        match self {
            Self::Database { engine, actor } => move_kept(engine, actor, name, moving, after).await,
            Self::Server(client) => {
                let step = serde_json::to_value(Step { moving, after, limit: STEP })?;
                Ok(serde_json::from_value(client.move_some(name, &step).await?)?)
            }
        }
    }
}

/// A step as it is asked for.
#[derive(Serialize)]
struct Step<'a> {
    #[serde(flatten)]
    moving: &'a Moving,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<u64>,
    limit: usize,
}

#[derive(Deserialize)]
struct Versions {
    versions: Vec<VersionLine>,
}

#[derive(Deserialize)]
struct Current {
    hash: String,
}

#[derive(Deserialize)]
struct Named {
    lifecycles: Vec<Name>,
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

impl Named {
    fn names(self) -> Vec<String> {
        self.lifecycles.into_iter().map(|lifecycle| lifecycle.name).collect()
    }
}

async fn kept_versions(engine: &Engine<AnyStore>, actor: &Actor, name: Option<&str>) -> Result<Vec<VersionLine>> {
    let catalog = engine.lifecycles().await?;
    let counts = engine.counts_by_version(actor).await?;
    if let Some(name) = name.filter(|name| catalog.definitions.get(name).is_none()) {
        bail!("no lifecycle of this database is called `{name}`");
    }
    let mut lines = Vec::new();
    for own in catalog.definitions.lifecycles.keys().filter(|own| name.is_none_or(|name| ***own == *name)) {
        for version in catalog.versions(own) {
            let counted = |ended: bool| {
                let own = counts.iter().filter(|count| count.definition == version.lifecycle.hash);
                own.filter(|count| count.is_final == ended).map(|count| count.count).sum()
            };
            lines.push(VersionLine {
                lifecycle: own.to_string(),
                hash: version.lifecycle.hash.to_string(),
                current: version.is_current,
                came_at: version.came_at.to_string(),
                current_since: version.current_since.to_string(),
                by: version.by.as_ref().map(ToString::to_string),
                living: counted(false),
                ended: counted(true),
            });
        }
    }
    Ok(lines)
}

async fn move_kept(
    engine: &Engine<AnyStore>,
    actor: &Actor,
    name: &str,
    moving: &Moving,
    after: Option<u64>,
) -> Result<Moved> {
    let asked = onceward_engine::Moving {
        lifecycle: name.into(),
        from: moving.from.as_deref().map(Into::into),
        to: moving.to.as_deref().map(Into::into),
        states: moving.map.iter().map(|(from, to)| (from.as_str().into(), to.as_str().into())).collect(),
        ended: moving.ended,
        dry_run: moving.dry_run,
    };
    let plan = engine.plan_move(actor, &asked).await?;
    let step = engine.move_some(actor, &asked, after, STEP).await?;
    let left = step.left.into_iter().map(|left| LeftLine {
        record: left.record.to_string(),
        state: left.state.to_string(),
        code: left.code.to_string(),
        reason: left.reason,
    });
    Ok(Moved {
        to: plan.to.hash.to_string(),
        records: plan.records(),
        count: step.moved,
        left: left.collect(),
        next: step.next,
    })
}
