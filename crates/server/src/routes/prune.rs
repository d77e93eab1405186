//! Taking out what has ended long ago, by hand.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use onceward_core::time::Duration as Length;
use onceward_engine::{PruneOptions, Pruned, Retention};
use onceward_store::Store as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::caller::Caller;
use crate::input::Given;
use crate::named;
use crate::problem::Problem;
use crate::shape::ok;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(prune))
}

/// What is to go. Lengths are written as in lifecycle files: `30d`, `12h`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewPrune {
    /// How long after its end a record is kept; left out, as the server keeps it. A lifecycle with a length of its own has that, unless `only` names it.
    #[serde(default)]
    #[schema(example = "30d", pattern = "^([0-9]{1,4}(us|ms|s|m|h|d)){1,3}$")]
    older_than: Option<String>,
    /// How long the answer to a caller's key is kept; left out, as the server keeps it.
    #[serde(default)]
    #[schema(pattern = "^([0-9]{1,4}(us|ms|s|m|h|d)){1,3}$")]
    keys_older_than: Option<String>,
    /// Only records of these lifecycles.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    only: Vec<Arc<str>>,
    /// Only find out what would go.
    #[serde(default)]
    dry_run: bool,
}

fn length(text: Option<&str>, name: &str) -> Result<Option<Duration>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let length: Length = text.parse().map_err(|error| Problem::bad_input(format!("`{name}`: {error}")))?;
    Ok(Some(Duration::from_micros(u64::try_from(length.micros()).unwrap_or(0))))
}

impl NewPrune {
    /// `usual`: as the server keeps things by itself.
    fn options(&self, usual: &Retention) -> Result<PruneOptions, Problem> {
        let records = length(self.older_than.as_deref(), "older_than")?;
        let requests = length(self.keys_older_than.as_deref(), "keys_older_than")?;
        let mut retention = usual.clone();
        retention.records = records.or(retention.records);
        retention.requests = requests.or(retention.requests);
        if !self.only.is_empty() {
            let own = |name: &Arc<str>| usual.lifecycles.get(name).copied().unwrap_or(retention.records);
            let named = self.only.iter().map(|name| (Arc::clone(name), records.or_else(|| own(name))));
            retention.lifecycles = named.collect();
            retention.records = None;
        }
        Ok(PruneOptions { retention, dry_run: self.dry_run, ..PruneOptions::default() })
    }
}

/// What went, or would go.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Pruned)]
pub(crate) struct PrunedShape<'a> {
    records: u64,
    entries: u64,
    /// Answers to callers' keys.
    requests: u64,
    /// Old enough, and kept: others that belong to them do not go.
    held: u64,
    /// Kept for now, because somebody used them.
    busy: u64,
    /// The place of the last checkpoint.
    checkpoint: Option<u64>,
    shares: Vec<ShareShape<'a>>,
    damaged: Vec<DamagedShape<'a>>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = PrunedShare)]
struct ShareShape<'a> {
    lifecycle: &'a str,
    owner: &'a str,
    state: &'a str,
    records: u64,
}

/// A record whose log does not come to what is kept of it. It stays.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Damaged)]
struct DamagedShape<'a> {
    record: String,
    why: &'a str,
}

impl<'a> PrunedShape<'a> {
    fn of(pruned: &'a Pruned) -> Self {
        let share = |share: &'a onceward_store::log::Share| ShareShape {
            lifecycle: &share.lifecycle,
            owner: &share.owner,
            state: &share.state,
            records: share.records,
        };
        let damaged = |damaged: &'a onceward_store::Unsound| DamagedShape {
            record: damaged.record.to_string(),
            why: &damaged.why,
        };
        Self {
            records: pruned.records,
            entries: pruned.entries,
            requests: pruned.requests,
            held: pruned.held,
            busy: pruned.busy,
            checkpoint: pruned.checkpoint,
            shares: pruned.shares.iter().map(share).collect(),
            damaged: pruned.damaged.iter().map(damaged).collect(),
        }
    }
}

/// Take out what has ended long ago
///
/// For operators. Records that ended, with all of their log entries, and old answers to callers' keys.
#[utoipa::path(
    post, path = "/v1/prune", tag = "operators",
    request_body = NewPrune,
    responses((status = 200, description = "What went", body = PrunedShape))
)]
async fn prune(State(app): State<App>, caller: Caller, Given(new): Given<NewPrune>) -> Result<Response, Problem> {
    caller.must_be_operator()?;
    let options = new.options(app.engine().retention())?;
    let catalog = app.engine().store().definitions().await?;
    if let Some(name) = new.only.iter().find(|name| catalog.definitions.get(name).is_none()) {
        return Err(named::no_lifecycle(&app, &catalog, name));
    }
    let pruned = app.engine().prune(&options).await?;
    ok(&PrunedShape::of(&pruned))
}
