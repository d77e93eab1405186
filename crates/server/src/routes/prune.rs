//! Pruning on request.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use onceward_core::time::Duration as Length;
use onceward_engine::{PruneOptions, PruneReport, RetentionPolicy};
use onceward_store::Store as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::JsonBody;
use crate::known_names;
use crate::problem::Problem;
use crate::response::json_ok;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(prune))
}

/// What to prune. Durations are written as in lifecycle files: `30d`, `12h`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PruneBody {
    /// Prune records that ended longer ago than this; defaults to the server's retention policy. Lifecycles with
    /// their own retention keep it unless `only` names them.
    #[serde(default)]
    #[schema(example = "30d", pattern = "^([0-9]{1,4}(us|ms|s|m|h|d)){1,3}$")]
    older_than: Option<String>,
    /// Prune idempotency keys older than this; defaults to the server's retention policy.
    #[serde(default)]
    #[schema(pattern = "^([0-9]{1,4}(us|ms|s|m|h|d)){1,3}$")]
    keys_older_than: Option<String>,
    /// Only records of these lifecycles.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    only: Vec<Arc<str>>,
    /// Only report what would be pruned.
    #[serde(default)]
    dry_run: bool,
}

fn parse_duration(text: Option<&str>, name: &str) -> Result<Option<Duration>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let length: Length = text.parse().map_err(|error| Problem::invalid_input(format!("`{name}`: {error}")))?;
    Ok(Some(Duration::from_micros(u64::try_from(length.micros()).unwrap_or(0))))
}

impl PruneBody {
    /// `defaults` is the server's retention policy.
    fn options(&self, defaults: &RetentionPolicy) -> Result<PruneOptions, Problem> {
        let records = parse_duration(self.older_than.as_deref(), "older_than")?;
        let requests = parse_duration(self.keys_older_than.as_deref(), "keys_older_than")?;
        let mut retention = defaults.clone();
        retention.records_ttl = records.or(retention.records_ttl);
        retention.idempotency_keys_ttl = requests.or(retention.idempotency_keys_ttl);
        if !self.only.is_empty() {
            let own = |name: &Arc<str>| defaults.ttl_by_lifecycle.get(name).copied().unwrap_or(retention.records_ttl);
            let named = self.only.iter().map(|name| (Arc::clone(name), records.or_else(|| own(name))));
            retention.ttl_by_lifecycle = named.collect();
            retention.records_ttl = None;
        }
        Ok(PruneOptions { retention, dry_run: self.dry_run, ..PruneOptions::default() })
    }
}

/// What was pruned, or would be.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PruneReport)]
pub(crate) struct PruneReportJson<'a> {
    records: u64,
    entries: u64,
    /// Idempotency keys with their stored replies.
    requests: u64,
    /// Records that are old enough but kept, because their reference group is not.
    held: u64,
    /// Records that were kept this time because they changed during the call.
    busy: u64,
    /// `seq` of the last checkpoint.
    checkpoint: Option<u64>,
    shares: Vec<PrunedShareJson<'a>>,
    damaged: Vec<DamagedRecordJson<'a>>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LifecyclePruneReport)]
struct PrunedShareJson<'a> {
    lifecycle: &'a str,
    owner: &'a str,
    state: &'a str,
    records: u64,
}

/// A record that differs from its log. It is not pruned.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PruneBlocked)]
struct DamagedRecordJson<'a> {
    record: String,
    why: &'a str,
}

impl<'a> PruneReportJson<'a> {
    fn new(report: &'a PruneReport) -> Self {
        let share = |share: &'a onceward_store::log::PrunedCount| PrunedShareJson {
            lifecycle: &share.lifecycle,
            owner: &share.owner,
            state: &share.state,
            records: share.records,
        };
        let damaged = |damaged: &'a onceward_store::PruneBlocked| DamagedRecordJson {
            record: damaged.record.to_string(),
            why: &damaged.why,
        };
        Self {
            records: report.records,
            entries: report.entries,
            requests: report.idempotency_keys,
            held: report.held_back,
            busy: report.changed,
            checkpoint: report.checkpoint_seq,
            shares: report.shares.iter().map(share).collect(),
            damaged: report.damaged.iter().map(damaged).collect(),
        }
    }
}

/// Prune ended records
///
/// For operators. Deletes records that ended long ago with all of their log entries, and old idempotency keys.
#[utoipa::path(
    post, path = "/v1/prune", tag = "operators",
    request_body = PruneBody,
    responses((status = 200, description = "What went", body = PruneReportJson))
)]
async fn prune(
    State(app): State<AppState>,
    caller: Caller,
    JsonBody(new): JsonBody<PruneBody>,
) -> Result<Response, Problem> {
    caller.require_operator()?;
    let options = new.options(app.engine().retention())?;
    let catalog = app.engine().store().catalog().await?;
    if let Some(name) = new.only.iter().find(|name| catalog.definitions.get(name).is_none()) {
        return Err(known_names::lifecycle_not_found(&app, &catalog, name));
    }
    let report = app.engine().prune(&options).await?;
    json_ok(&PruneReportJson::new(&report))
}
