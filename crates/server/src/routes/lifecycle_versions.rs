//! Versions of lifecycles: listing, activation and version migration of records.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use onceward_engine::{MAX_RECORDS_PER_STEP, SkippedRecord, VersionMigration};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::{JsonBody, PathParams};
use crate::known_names;
use crate::problem::Problem;
use crate::response::{DisplayText, Rfc3339, json_ok};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(list)).routes(routes!(activate_version)).routes(routes!(migrate_records))
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VersionList {
    /// Oldest first.
    versions: Vec<LifecycleVersionJson>,
}

/// A version of a lifecycle.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LifecycleVersion)]
struct LifecycleVersionJson {
    #[schema(value_type = String)]
    lifecycle: Arc<str>,
    #[schema(value_type = String)]
    hash: Arc<str>,
    /// Whether new records use this version.
    current: bool,
    #[schema(value_type = String, format = DateTime)]
    added_at: Rfc3339,
    /// When it last became current.
    #[schema(value_type = String, format = DateTime)]
    current_since: Rfc3339,
    /// The operator that activated it; omitted if no operator did. Only for operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    by: Option<Arc<str>>,
    /// Number of records of this version that have not ended, and that have ended. Only for operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    living: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    ended: Option<u64>,
}

/// List versions of a lifecycle
#[utoipa::path(
    get, path = "/v1/lifecycles/{name}/versions", tag = "lifecycles",
    params(("name" = String, Path, description = "The lifecycle's name")),
    responses((status = 200, description = "All of them", body = VersionList))
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
    let count_records = |hash: &Arc<str>, ended: bool| {
        let own = counts.as_ref()?.iter().filter(|count| count.definition == *hash && count.is_final == ended);
        Some(own.map(|count| count.count).sum())
    };
    let versions = found.into_iter().map(|version| LifecycleVersionJson {
        living: count_records(&version.lifecycle.hash, false),
        ended: count_records(&version.lifecycle.hash, true),
        lifecycle: Arc::clone(&version.lifecycle.name),
        hash: Arc::clone(&version.lifecycle.hash),
        current: version.is_current,
        added_at: Rfc3339(version.added_at),
        current_since: Rfc3339(version.current_since),
        by: version.activated_by.filter(|_| counts.is_some()),
    });
    json_ok(&VersionList { versions: versions.collect() })
}

/// The version to activate.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActivateVersionBody {
    /// The version's hash, or a prefix of at least 8 characters.
    #[schema(min_length = 8, max_length = 64)]
    hash: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CurrentVersion {
    #[schema(value_type = String)]
    lifecycle: Arc<str>,
    #[schema(value_type = String)]
    hash: Arc<str>,
}

/// Activate a version
///
/// For operators. New records use this version from now on, in every process. Existing records keep theirs. The
/// version may be older than the current one.
#[utoipa::path(
    post, path = "/v1/lifecycles/{name}/use", tag = "operators",
    params(("name" = String, Path, description = "The lifecycle's name")),
    request_body = ActivateVersionBody,
    responses((status = 200, description = "It is current", body = CurrentVersion))
)]
async fn activate_version(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    JsonBody(new): JsonBody<ActivateVersionBody>,
) -> Result<Response, Problem> {
    caller.require_operator()?;
    let version = app.engine().activate_version(&caller.actor, &name, &new.hash).await?;
    json_ok(&CurrentVersion { lifecycle: Arc::clone(&version.name), hash: Arc::clone(&version.hash) })
}

/// The records to migrate.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MigrateRecordsBody {
    /// Old state to new state, for states that the target version names differently.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, String>)]
    map: BTreeMap<Arc<str>, Arc<str>>,
    /// Only records of this version.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    from: Option<Arc<str>>,
    /// The target version; defaults to the current one.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    to: Option<Arc<str>>,
    /// Also migrate records that have ended.
    #[serde(default)]
    ended: bool,
    /// Only report which records can be migrated.
    #[serde(default)]
    dry_run: bool,
    /// The `next` of the previous step.
    #[serde(default)]
    #[schema(minimum = 0)]
    after: Option<u64>,
    /// Maximum number of records in this step.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// The result of one step.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MigrationStep)]
pub(crate) struct MigrationStepJson {
    /// The target version.
    #[schema(value_type = String)]
    to: Arc<str>,
    /// Number of records to migrate before this step.
    #[schema(minimum = 0)]
    records: u64,
    #[schema(minimum = 0)]
    moved: u64,
    skipped: Vec<SkippedRecordJson>,
    /// Send it as `after` for the next step; null after the last step.
    #[schema(minimum = 0)]
    next: Option<u64>,
}

/// A record that was not migrated.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SkippedRecord)]
struct SkippedRecordJson {
    #[schema(value_type = String, format = Uuid)]
    record: DisplayText<onceward_core::value::RecordId>,
    #[schema(value_type = String)]
    state: Arc<str>,
    #[schema(value_type = String)]
    code: Arc<str>,
    reason: String,
}

impl From<SkippedRecord> for SkippedRecordJson {
    fn from(left: SkippedRecord) -> Self {
        Self { record: DisplayText(left.record), state: left.state, code: left.code, reason: left.reason }
    }
}

/// Migrate records to another version
///
/// For operators. Each call migrates a limited number of records: send the response's `next` as `after` until it is
/// null. If the versions are incompatible, responds with `incompatible_lifecycle_version` and changes nothing. `skipped` lists single
/// records that cannot be migrated.
#[utoipa::path(
    post, path = "/v1/lifecycles/{name}/move", tag = "operators",
    params(("name" = String, Path, description = "The lifecycle's name")),
    request_body = MigrateRecordsBody,
    responses((status = 200, description = "What became of it", body = MigrationStepJson))
)]
async fn migrate_records(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    JsonBody(new): JsonBody<MigrateRecordsBody>,
) -> Result<Response, Problem> {
    caller.require_operator()?;
    if !new.limit.is_none_or(|limit| (1..=MAX_RECORDS_PER_STEP).contains(&limit)) {
        return Err(Problem::invalid_input(format!("`limit` must be from 1 to {MAX_RECORDS_PER_STEP}")));
    }
    if new.after.is_some_and(|after| i64::try_from(after).is_err()) {
        return Err(Problem::invalid_input("`after` is the `next` of the step before"));
    }
    let MigrateRecordsBody { map, from, to, ended, dry_run, after, limit } = new;
    let migration =
        VersionMigration { lifecycle: name.into(), from, to, state_map: map, include_ended: ended, dry_run };
    let plan = app.engine().plan_migration(&caller.actor, &migration).await?;
    let step =
        app.engine().migrate_records(&caller.actor, &migration, after, limit.unwrap_or(MAX_RECORDS_PER_STEP)).await?;
    json_ok(&MigrationStepJson {
        to: Arc::clone(&plan.target.hash),
        records: plan.records(),
        moved: step.migrated,
        skipped: step.skipped.into_iter().map(Into::into).collect(),
        next: step.next,
    })
}
