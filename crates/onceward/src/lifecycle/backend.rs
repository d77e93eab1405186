//! Runs the `lifecycle` subcommands through a server, or on a database that no server has open.

use anyhow::{Result, bail};
use onceward_api_types::{LifecycleVersion, MigrateRecordsBody, MigrationStep};
use onceward_core::record::Actor;
use onceward_engine::{Engine, EngineConfig, EngineError, RetentionPolicy};
use onceward_server::{migrate_step, version_json};
use onceward_store::{AnyStore, StoreError};
use onceward_worker::{Client, ClientError};
use serde_json::json;

use crate::output::{CommandStatus, print_stderr, print_stdout};
use crate::remote;
use crate::target::{Target, TargetArgs};

/// The server or the engine that runs a subcommand.
pub(super) enum LifecycleBackend {
    Server(Client),
    Database { engine: Engine<AnyStore>, actor: Actor },
}

/// Connects to the target and runs `work` on it. Reports a refusal as failure, not as misuse.
pub(super) fn run_on_target(
    target: &TargetArgs,
    as_json: bool,
    work: impl AsyncFnOnce(&LifecycleBackend) -> Result<CommandStatus>,
) -> Result<CommandStatus> {
    let done = remote::build_runtime()?.block_on(async {
        let backend = LifecycleBackend::open(target).await?;
        let result = work(&backend).await;
        if let LifecycleBackend::Database { engine, .. } = &backend {
            engine.close().await;
        }
        result
    });
    done.or_else(|error| match error.downcast::<ClientError>() {
        Ok(error) => target.report_error(error, as_json),
        Err(error) => report_refusal(error, as_json),
    })
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
    async fn open(target: &TargetArgs) -> Result<Self> {
        let Target::Database(database) = target.resolve() else { return Ok(Self::Server(target.client()?)) };
        let store = database.open_existing().await?;
        // Only the server knows the retention policy, so this engine must prune nothing.
        let engine =
            Engine::open(store, EngineConfig { retention: RetentionPolicy::keep_forever(), ..EngineConfig::default() });
        let actor = Actor::new("local", &["operator"]);
        Ok(Self::Database { engine, actor })
    }

    pub(super) async fn versions(&self, name: Option<&str>) -> Result<Vec<LifecycleVersion>> {
        match self {
            Self::Database { engine, actor } => versions_in_database(engine, actor, name).await,
            Self::Server(client) => {
                let names = match name {
                    Some(name) => vec![name.to_owned()],
                    None => client.lifecycles().await?.lifecycles.into_iter().map(|lifecycle| lifecycle.name).collect(),
                };
                let mut lines = Vec::new();
                for name in names {
                    lines.extend(client.versions(&name).await?.versions);
                }
                Ok(lines)
            }
        }
    }

    /// Activates a version and returns its full hash.
    pub(super) async fn activate_version(&self, name: &str, hash: &str) -> Result<String> {
        match self {
            Self::Database { engine, actor } => Ok(engine.activate_version(actor, name, hash).await?.hash.to_string()),
            Self::Server(client) => Ok(client.activate_version(name, hash).await?.hash),
        }
    }

    /// Migrates one step of records.
    pub(super) async fn migrate_records(&self, name: &str, request: &MigrateRecordsBody) -> Result<MigrationStep> {
        match self {
            Self::Database { engine, actor } => Ok(migrate_step(engine, actor, name, request).await?),
            Self::Server(client) => Ok(client.migrate_records(name, request).await?),
        }
    }
}

async fn versions_in_database(
    engine: &Engine<AnyStore>,
    actor: &Actor,
    name: Option<&str>,
) -> Result<Vec<LifecycleVersion>> {
    let catalog = engine.lifecycles().await?;
    let counts = engine.counts_by_version(actor).await?;
    if let Some(name) = name.filter(|name| catalog.definitions.get(name).is_none()) {
        bail!("the database has no lifecycle `{name}`");
    }
    let names = catalog.definitions.lifecycles.keys().filter(|own| name.is_none_or(|name| ***own == *name));
    let versions = names.flat_map(|own| catalog.versions(own));
    Ok(versions.map(|version| version_json(&version, Some(&counts))).collect())
}
