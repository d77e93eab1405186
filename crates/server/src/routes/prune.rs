//! Pruning on request.

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use onceward_api_types as wire;
use onceward_core::time::Duration as Length;
use onceward_engine::{PruneOptions, PruneReport, RetentionPolicy};
use onceward_store::Store as _;
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

fn parse_duration(text: Option<&str>, name: &str) -> Result<Option<Duration>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let length: Length =
        text.parse().map_err(|error| Problem::invalid_input(format!("`{name}` is invalid: {error}")))?;
    Ok(Some(Duration::from_micros(u64::try_from(length.micros()).unwrap_or(0))))
}

/// `defaults` is the server's retention policy.
fn prune_options(body: &wire::PruneBody, defaults: &RetentionPolicy) -> Result<PruneOptions, Problem> {
    let records = parse_duration(body.older_than.as_deref(), "older_than")?;
    let requests = parse_duration(body.keys_older_than.as_deref(), "keys_older_than")?;
    let mut retention = defaults.for_call(records, &body.only);
    retention.idempotency_keys_ttl = requests.or(retention.idempotency_keys_ttl);
    Ok(PruneOptions { retention, dry_run: body.dry_run, ..PruneOptions::default() })
}

/// Converts a report to its JSON form.
pub fn prune_report_json(report: &PruneReport, retention: &RetentionPolicy) -> wire::PruneReport {
    let shares = report.shares.iter().map(|share| wire::LifecyclePruneReport {
        lifecycle: share.lifecycle.to_string(),
        owner: share.owner.to_string(),
        state: share.state.to_string(),
        records: share.records,
    });
    let damaged = report
        .damaged
        .iter()
        .map(|damaged| wire::PruneBlocked { record: damaged.record.to_string(), why: damaged.why.clone() });
    wire::PruneReport {
        records: report.records,
        entries: report.entries,
        idempotency_keys: report.idempotency_keys,
        held: report.held_back,
        busy: report.changed,
        checkpoint: report.checkpoint_seq,
        shares: shares.collect(),
        damaged: damaged.collect(),
        retention: retention.to_string(),
    }
}

/// Prune ended records
///
/// For operators. Deletes records past their retention with all of their log entries, and old idempotency keys.
#[utoipa::path(
    post, path = "/v1/prune", tag = "operators",
    request_body = wire::PruneBody,
    responses((status = 200, description = "Counts of what was pruned", body = wire::PruneReport))
)]
async fn prune(
    State(app): State<AppState>,
    caller: Caller,
    JsonBody(new): JsonBody<wire::PruneBody>,
) -> Result<Response, Problem> {
    caller.require_operator()?;
    let options = prune_options(&new, app.engine().retention())?;
    let catalog = app.engine().store().catalog().await?;
    if let Some(name) = new.only.iter().find(|name| catalog.definitions.get(name).is_none()) {
        return Err(known_names::lifecycle_not_found(&app, &catalog, name));
    }
    let report = app.engine().prune(&options).await?;
    json_ok(&prune_report_json(&report, &options.retention))
}
