//! Versions of lifecycles: which there are, which one is current, and records moved from one to another.

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
    /// In the order in which they came.
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
    /// New records are made by it.
    current: bool,
    #[schema(value_type = String, format = DateTime)]
    added_at: Rfc3339,
    /// When it last became the current one.
    #[schema(value_type = String, format = DateTime)]
    current_since: Rfc3339,
    /// On whose word, where it was somebody's. For operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    by: Option<Arc<str>>,
    /// How many records live by it, and how many have ended. For operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    living: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    ended: Option<u64>,
}

/// List the versions of a lifecycle
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

/// Which version is to be current.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActivateVersionBody {
    /// Its hash, or the beginning of it: 8 characters at least.
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

/// Make a version the current one
///
/// For operators. Back to an older version, or forward again: new records are made by it from now on, in every process. Those that are
/// there keep theirs.
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

/// Which records go where.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MigrateRecordsBody {
    /// Old state to new one, where the other version calls it differently.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, String>)]
    map: BTreeMap<Arc<str>, Arc<str>>,
    /// Only records of this version.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    from: Option<Arc<str>>,
    /// To this version; the current one where it is left out.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    to: Option<Arc<str>>,
    /// Records that have ended, too.
    #[serde(default)]
    ended: bool,
    /// Only find out who can be moved.
    #[serde(default)]
    dry_run: bool,
    /// The `next` of the step before.
    #[serde(default)]
    #[schema(minimum = 0)]
    after: Option<u64>,
    /// How many records to move in this step.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// What became of one step.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MigrationStep)]
pub(crate) struct MigrationStepJson {
    /// The version that they live by.
    #[schema(value_type = String)]
    to: Arc<str>,
    /// How many there were to be moved before this step.
    #[schema(minimum = 0)]
    records: u64,
    #[schema(minimum = 0)]
    moved: u64,
    skipped: Vec<SkippedRecordJson>,
    /// Where to go on; null where all were looked at.
    #[schema(minimum = 0)]
    next: Option<u64>,
}

/// A record that was not moved.
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

/// Move records to another version
///
/// For operators. A bounded number at a time: send the answer's `next` as `after` until it is null. What keeps all of them is
/// answered with `cannot_move` before any is moved; a record that cannot be moved is listed in `skipped`.
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
        return Err(Problem::bad_input(format!("`limit` must be from 1 to {MAX_RECORDS_PER_STEP}")));
    }
    if new.after.is_some_and(|after| i64::try_from(after).is_err()) {
        return Err(Problem::bad_input("`after` is the `next` of the step before"));
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
