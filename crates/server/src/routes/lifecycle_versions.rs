//! Versions of lifecycles: listing, activation and version migration of records.

use axum::extract::State;
use axum::response::Response;
use onceward_api_types as wire;
use onceward_core::record::Actor;
use onceward_engine::{Engine, EngineError, MAX_RECORDS_PER_STEP, VersionMigration};
use onceward_store::{AnyStore, LifecycleVersion, VersionCount};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::{JsonBody, PathParams};
use crate::known_names;
use crate::problem::Problem;
use crate::response::{json_ok, timestamp};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(list)).routes(routes!(activate_version)).routes(routes!(migrate_records))
}

/// Converts a version to its JSON form. Only operators see who activated it and the counts.
pub fn version_json(version: &LifecycleVersion, counts: Option<&[VersionCount]>) -> wire::LifecycleVersion {
    let count_records = |ended: bool| {
        let own = counts?.iter().filter(|count| count.definition == version.lifecycle.hash);
        Some(own.filter(|count| count.is_final == ended).map(|count| count.count).sum())
    };
    wire::LifecycleVersion {
        lifecycle: version.lifecycle.name.to_string(),
        hash: version.lifecycle.hash.to_string(),
        current: version.is_current,
        added_at: timestamp(version.added_at),
        current_since: timestamp(version.current_since),
        by: version.activated_by.as_deref().filter(|_| counts.is_some()).map(str::to_owned),
        live_records: count_records(false),
        ended_records: count_records(true),
    }
}

/// List versions of a lifecycle
#[utoipa::path(
    get, path = "/v1/lifecycles/{name}/versions", operation_id = "list_lifecycle_versions", tag = "lifecycles",
    params(("name" = String, Path, description = "Name of the lifecycle")),
    responses((status = 200, description = "All versions of the lifecycle", body = wire::VersionList))
)]
async fn list(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(name): PathParams<String>,
) -> Result<Response, Problem> {
    let catalog = app.engine().lifecycles().await?;
    let found = catalog.versions(&name);
    if found.is_empty() {
        return Err(known_names::lifecycle_not_found(&app, &catalog, &name));
    }
    let counts = match caller.require_operator() {
        Ok(()) => Some(app.engine().counts_by_version(&caller.actor).await?),
        Err(_) => None,
    };
    let versions = found.iter().map(|version| version_json(version, counts.as_deref())).collect();
    json_ok(&wire::VersionList { versions })
}

/// Activate a version
///
/// For operators. New records use this version from now on, in every process. Existing records keep theirs. The
/// version may be older than the current one.
#[utoipa::path(
    post, path = "/v1/lifecycles/{name}/use", operation_id = "activate_lifecycle_version", tag = "operators",
    params(("name" = String, Path, description = "Name of the lifecycle")),
    request_body = wire::ActivateVersionBody,
    responses((status = 200, description = "The version is current", body = wire::CurrentVersion))
)]
async fn activate_version(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    JsonBody(new): JsonBody<wire::ActivateVersionBody>,
) -> Result<Response, Problem> {
    caller.require_operator()?;
    let version = app.engine().activate_version(&caller.actor, &name, &new.hash).await?;
    json_ok(&wire::CurrentVersion { lifecycle: version.name.to_string(), hash: version.hash.to_string() })
}

/// Migrates one step of records and converts the result to its JSON form.
pub async fn migrate_step(
    engine: &Engine<AnyStore>,
    actor: &Actor,
    lifecycle: &str,
    request: &wire::MigrateRecordsBody,
) -> Result<wire::MigrationStep, EngineError> {
    let migration = VersionMigration {
        lifecycle: lifecycle.into(),
        from: request.from.as_deref().map(Into::into),
        to: request.to.as_deref().map(Into::into),
        state_map: request.map.iter().map(|(from, to)| (from.as_str().into(), to.as_str().into())).collect(),
        include_ended: request.ended,
        dry_run: request.dry_run,
    };
    let plan = engine.plan_migration(actor, &migration).await?;
    let limit = request.limit.unwrap_or(MAX_RECORDS_PER_STEP);
    let step = engine.migrate_records(actor, &migration, request.after, limit).await?;
    let skipped = step.skipped.into_iter().map(|left| wire::SkippedRecord {
        record: left.record.0,
        state: left.state.to_string(),
        code: left.code.to_string(),
        reason: left.reason,
    });
    Ok(wire::MigrationStep {
        to: plan.target.hash.to_string(),
        records: plan.records(),
        moved: step.migrated,
        skipped: skipped.collect(),
        next: step.next,
    })
}

/// Migrate records to another version
///
/// For operators. Each call migrates a limited number of records: send the response's `next` as `after` until it is
/// null. If the versions are incompatible, responds with `incompatible_lifecycle_version` and changes nothing. `skipped` lists single
/// records that cannot be migrated.
#[utoipa::path(
    post, path = "/v1/lifecycles/{name}/move", tag = "operators",
    params(("name" = String, Path, description = "Name of the lifecycle")),
    request_body = wire::MigrateRecordsBody,
    responses((status = 200, description = "Result of the step", body = wire::MigrationStep))
)]
async fn migrate_records(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    JsonBody(new): JsonBody<wire::MigrateRecordsBody>,
) -> Result<Response, Problem> {
    caller.require_operator()?;
    if !new.limit.is_none_or(|limit| (1..=MAX_RECORDS_PER_STEP).contains(&limit)) {
        return Err(Problem::invalid_input(format!("`limit` must be from 1 to {MAX_RECORDS_PER_STEP}")));
    }
    if new.after.is_some_and(|after| i64::try_from(after).is_err()) {
        return Err(Problem::invalid_input("`after` must be the `next` of the previous step"));
    }
    json_ok(&migrate_step(app.engine(), &caller.actor, &name, &new).await?)
}
