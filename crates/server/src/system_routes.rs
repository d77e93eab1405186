//! What a system adds to a server: routes of its own, which shape calls of the engine as its users know them.
//!
//! A part is written as the server's own routes are: handlers that take [`Caller`](crate::Caller) and [`AppState`], answer with
//! [`Problem`](crate::Problem), and say their share of the contract. It decides nothing either.

use std::fmt;
use std::sync::Arc;

use axum::http::HeaderMap;
use onceward_core::decide::Call;
use onceward_core::record::Record;
use onceward_core::value::RecordId;
use onceward_engine::{Receipt, Submission};
use serde::Deserialize;
use serde_json::Map;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::with_idempotency_key;
use crate::problem::Problem;
use crate::telemetry::current_trace;

/// A system's routes.
#[derive(Default)]
pub struct SystemRoutes {
    /// With their share of the contract.
    pub router: OpenApiRouter<AppState>,
    /// Paths of these whose calls may take longer than others, and bound themselves: an upload.
    pub self_timed_paths: Vec<&'static str>,
    /// Paths of these that take bytes in place of JSON.
    pub binary_paths: Vec<&'static str>,
}

impl fmt::Debug for SystemRoutes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A router does not show itself.
        out.debug_struct("Part").field("unhurried", &self.self_timed_paths).finish_non_exhaustive()
    }
}

/// The body of a call that says all there is to say by its path.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EmptyBody {}

/// A record of this lifecycle that the caller may see. One that is not there, one that is not the caller's, and one of another kind look
/// the same.
pub async fn require_visible(
    app: &AppState,
    caller: &Caller,
    lifecycle: &str,
    id: RecordId,
) -> Result<Arc<Record>, Problem> {
    let record = app.engine().get(&caller.actor, id).await?;
    record.filter(|record| *record.lifecycle.name == *lifecycle).ok_or_else(Problem::not_found)
}

/// An event of a record of this lifecycle: of nothing else that the caller may see, though it may have one of the same name. Carried out once
/// under an `Idempotency-Key`.
pub async fn fire_event(
    app: &AppState,
    caller: &Caller,
    (lifecycle, id): (&str, RecordId),
    event: &str,
    headers: &HeaderMap,
) -> Result<Receipt, Problem> {
    require_visible(app, caller, lifecycle, id).await?;
    let call = Call::Fire { record: id, event: event.into(), input: Map::new(), token: None, if_version: None };
    let submission = Submission::new(&caller.actor, call).with_trace(current_trace());
    Ok(app.engine().submit(with_idempotency_key(headers, submission)?).await?)
}
