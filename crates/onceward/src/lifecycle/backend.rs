//! Runs the `lifecycle` subcommands through a server, or on a database that no server has open.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use clap::Args;
use onceward_core::record::Actor;
use onceward_engine::{Engine, EngineConfig, EngineError, RetentionPolicy};
use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore, StoreError};
use onceward_worker::{Client, ClientError};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::database::DatabaseUrl;
use crate::output::{CommandStatus, print_stderr, print_stdout};
use crate::remote::ServerArgs;

/// Which server, or which database.
#[derive(Args)]
pub(super) struct BackendArgs {
    #[command(flatten)]
    remote: ServerArgs,
    /// Work on this database itself, without a server; one in a file only while no server has it open
    #[arg(long, value_name = "URL")]
    db: Option<DatabaseUrl>,
}

/// Below the engine's limit for one step, so that progress is visible.
const MAX_RECORDS_PER_STEP: usize = 500;

#[derive(Debug, Deserialize)]
pub(super) struct LifecycleVersionInfo {
    pub(super) lifecycle: String,
    pub(super) hash: String,
    pub(super) current: bool,
    pub(super) added_at: String,
    pub(super) current_since: String,
    #[serde(default)]
    pub(super) by: Option<String>,
    /// Records of this version that have not ended.
    #[serde(default)]
    pub(super) living: u64,
    #[serde(default)]
    pub(super) ended: u64,
}

/// Selects the records to migrate, their target version and the mapping of their states.
#[derive(Debug, Default, Serialize)]
pub(super) struct VersionMigrationRequest {
    pub(super) map: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<String>,
    pub(super) ended: bool,
    pub(super) dry_run: bool,
}

/// The result of one step.
#[derive(Debug, Default, Deserialize)]
pub(super) struct VersionMigrationProgress {
    pub(super) to: String,
    /// Records that were left to migrate before this step.
    #[serde(default)]
    pub(super) records: u64,
    #[serde(rename = "moved")]
    pub(super) moved_records: u64,
    pub(super) skipped: Vec<SkippedRecordInfo>,
    #[serde(default)]
    pub(super) next: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct SkippedRecordInfo {
    pub(super) record: String,
    pub(super) state: String,
    pub(super) code: String,
    pub(super) reason: String,
}

/// The server or the engine that runs a subcommand.
pub(super) enum LifecycleBackend {
    Server(Client),
    Database { engine: Engine<AnyStore>, actor: Actor },
}

impl BackendArgs {
    /// Connects to the backend and runs `work` on it. Reports a refusal as failure, not as misuse.
    pub(super) fn run(
        &self,
        as_json: bool,
        work: impl AsyncFnOnce(&LifecycleBackend) -> Result<CommandStatus>,
    ) -> Result<CommandStatus> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let done = runtime.block_on(async {
            let backend = self.open_backend().await?;
            let result = work(&backend).await;
            if let LifecycleBackend::Database { engine, .. } = &backend {
                engine.close().await;
            }
            result
        });
        done.or_else(|error| match error.downcast::<ClientError>() {
            Ok(error) => self.remote.report_error(error, as_json),
            Err(error) => report_refusal(error, as_json),
        })
    }

    async fn open_backend(&self) -> Result<LifecycleBackend> {
        let Some(db) = &self.db else { return Ok(LifecycleBackend::Server(self.remote.client()?)) };
        let store = match db {
            DatabaseUrl::Sqlite(path) => {
                let name = || format!("sqlite:{}", path.display());
                // Opening would create the file.
                if !path.is_file() {
                    bail!("{}: the file does not exist", name());
                }
                if SqliteStore::schema(path).with_context(name)?.current == 0 {
                    bail!("{}: this is not a database of Onceward's; is the path right?", name());
                }
                AnyStore::Sqlite(SqliteStore::open(path, Clock::machine()).with_context(name)?)
            }
            DatabaseUrl::Postgres(url) => AnyStore::Postgres(PostgresStore::open(url).await.context("PostgreSQL")?),
        };
        // Only the server knows the retention policy, so this engine must prune nothing.
        let engine =
            Engine::open(store, EngineConfig { retention: RetentionPolicy::keep_forever(), ..EngineConfig::default() });
        let actor = Actor::new("local", &["operator"]);
        Ok(LifecycleBackend::Database { engine, actor })
    }
}

/// Reports refusals and transient errors as failure; returns other errors as misuse.
fn report_refusal(error: anyhow::Error, as_json: bool) -> Result<CommandStatus> {
    let is_refusal = match (error.downcast_ref::<EngineError>(), error.downcast_ref::<StoreError>()) {
        (Some(EngineError::Refused(refusal)), _) => {
            if as_json {
                let (status, code, reason) = (refusal.status, &refusal.code, &refusal.reason);
                print_stdout(&format!(
                    "{:#}\n",
                    json!({ "error": { "status": status, "code": code, "reason": reason } })
                ))?;
            }
            print_stderr(&format!("error: {}\n", refusal.reason));
            return Ok(CommandStatus::Failure);
        }
        (Some(EngineError::Store(store)), _) => is_database_refusal(store),
        (_, Some(store)) => is_database_refusal(store),
        (Some(_), _) => true,
        (None, None) => false,
    };
    if !is_refusal {
        return Err(error);
    }
    if as_json {
        print_stdout(&format!("{:#}\n", json!({ "error": { "reason": format!("{error:#}") } })))?;
    }
    print_stderr(&format!("error: {error:#}\n"));
    Ok(CommandStatus::Failure)
}

fn is_database_refusal(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Locked { .. }
            | StoreError::SchemaTooNew { .. }
            | StoreError::Busy
            | StoreError::InvalidLifecycles(_)
    )
}

impl LifecycleBackend {
    pub(super) async fn versions(&self, name: Option<&str>) -> Result<Vec<LifecycleVersionInfo>> {
        match self {
            Self::Database { engine, actor } => versions_in_database(engine, actor, name).await,
            Self::Server(client) => {
                let names = match name {
                    Some(name) => vec![name.to_owned()],
                    None => serde_json::from_value::<LifecyclesResponse>(client.lifecycles().await?)?.names(),
                };
                let mut lines = Vec::new();
                for name in names {
                    lines.extend(serde_json::from_value::<VersionsResponse>(client.versions(&name).await?)?.versions);
                }
                Ok(lines)
            }
        }
    }

    /// Activates a version and returns its full hash.
    pub(super) async fn activate_version(&self, name: &str, hash: &str) -> Result<String> {
        match self {
            Self::Database { engine, actor } => Ok(engine.activate_version(actor, name, hash).await?.hash.to_string()),
            Self::Server(client) => {
                Ok(serde_json::from_value::<ActivateVersionResponse>(client.activate_version(name, hash).await?)?.hash)
            }
        }
    }

    pub(super) async fn migrate_records(
        &self,
        name: &str,
        request: &VersionMigrationRequest,
        after: Option<u64>,
    ) -> Result<VersionMigrationProgress> {
        match self {
            Self::Database { engine, actor } => migrate_in_database(engine, actor, name, request, after).await,
            Self::Server(client) => {
                let step =
                    serde_json::to_value(VersionMigrationStepBody { request, after, limit: MAX_RECORDS_PER_STEP })?;
                Ok(serde_json::from_value(client.migrate_records(name, &step).await?)?)
            }
        }
    }
}

/// The request body of one step.
#[derive(Serialize)]
struct VersionMigrationStepBody<'a> {
    #[serde(flatten)]
    request: &'a VersionMigrationRequest,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<u64>,
    limit: usize,
}

#[derive(Deserialize)]
struct VersionsResponse {
    versions: Vec<LifecycleVersionInfo>,
}

#[derive(Deserialize)]
struct ActivateVersionResponse {
    hash: String,
}

#[derive(Deserialize)]
struct LifecyclesResponse {
    lifecycles: Vec<LifecycleNameItem>,
}

#[derive(Deserialize)]
struct LifecycleNameItem {
    name: String,
}

impl LifecyclesResponse {
    fn names(self) -> Vec<String> {
        self.lifecycles.into_iter().map(|lifecycle| lifecycle.name).collect()
    }
}

async fn versions_in_database(
    engine: &Engine<AnyStore>,
    actor: &Actor,
    name: Option<&str>,
) -> Result<Vec<LifecycleVersionInfo>> {
    let catalog = engine.lifecycles().await?;
    let counts = engine.counts_by_version(actor).await?;
    if let Some(name) = name.filter(|name| catalog.definitions.get(name).is_none()) {
        bail!("no lifecycle of this database is called `{name}`");
    }
    let mut lines = Vec::new();
    for own in catalog.definitions.lifecycles.keys().filter(|own| name.is_none_or(|name| ***own == *name)) {
        for version in catalog.versions(own) {
            let count_records = |ended: bool| {
                let own = counts.iter().filter(|count| count.definition == version.lifecycle.hash);
                own.filter(|count| count.is_final == ended).map(|count| count.count).sum()
            };
            lines.push(LifecycleVersionInfo {
                lifecycle: own.to_string(),
                hash: version.lifecycle.hash.to_string(),
                current: version.is_current,
                added_at: version.added_at.to_string(),
                current_since: version.current_since.to_string(),
                by: version.activated_by.as_ref().map(ToString::to_string),
                living: count_records(false),
                ended: count_records(true),
            });
        }
    }
    Ok(lines)
}

async fn migrate_in_database(
    engine: &Engine<AnyStore>,
    actor: &Actor,
    name: &str,
    request: &VersionMigrationRequest,
    after: Option<u64>,
) -> Result<VersionMigrationProgress> {
    let migration = onceward_engine::VersionMigration {
        lifecycle: name.into(),
        from: request.from.as_deref().map(Into::into),
        to: request.to.as_deref().map(Into::into),
        state_map: request.map.iter().map(|(from, to)| (from.as_str().into(), to.as_str().into())).collect(),
        include_ended: request.ended,
        dry_run: request.dry_run,
    };
    let plan = engine.plan_migration(actor, &migration).await?;
    let step = engine.migrate_records(actor, &migration, after, MAX_RECORDS_PER_STEP).await?;
    let skipped = step.skipped.into_iter().map(|left| SkippedRecordInfo {
        record: left.record.to_string(),
        state: left.state.to_string(),
        code: left.code.to_string(),
        reason: left.reason,
    });
    Ok(VersionMigrationProgress {
        to: plan.target.hash.to_string(),
        records: plan.records(),
        moved_records: step.migrated,
        skipped: skipped.collect(),
        next: step.next,
    })
}
