//! What a system adds to a server: routes of its own, which shape calls of the engine as its users know them.
//!
//! A part is written as the server's own routes are: handlers that take [`Caller`](crate::Caller) and [`App`], answer with
//! [`Problem`](crate::Problem), and say their share of the contract. It decides nothing either.

use std::fmt;
use std::sync::Arc;

use axum::http::HeaderMap;
use onceward_core::decide::Call;
use onceward_core::record::Record;
use onceward_core::value::RecordId;
use onceward_engine::{Answer, Submission};
use serde::Deserialize;
use serde_json::Map;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use crate::app::App;
use crate::caller::Caller;
use crate::input::keyed;
use crate::observe::trace;
use crate::problem::Problem;

/// A system's routes.
#[derive(Default)]
pub struct Part {
    /// With their share of the contract.
    pub routes: OpenApiRouter<App>,
    /// Paths of these whose calls may take longer than others, and bound themselves: an upload.
    pub unhurried: Vec<&'static str>,
    /// Paths of these that take bytes in place of JSON.
    pub bytes: Vec<&'static str>,
}

impl fmt::Debug for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A router does not show itself.
        out.debug_struct("Part").field("unhurried", &self.unhurried).finish_non_exhaustive()
    }
}

/// The body of a call that says all there is to say by its path.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// A record of this lifecycle that the caller may see. One that is not there, one that is not the caller's, and one of another kind look
/// the same.
pub async fn seen(app: &App, caller: &Caller, lifecycle: &str, id: RecordId) -> Result<Arc<Record>, Problem> {
    let record = app.engine().get(&caller.actor, id).await?;
    record.filter(|record| *record.lifecycle.name == *lifecycle).ok_or_else(Problem::not_found)
}

/// An event of a record of this lifecycle: of nothing else that the caller may see, though it may have one of the same name. Carried out once
/// under an `Idempotency-Key`.
pub async fn fire(
    app: &App,
    caller: &Caller,
    (lifecycle, id): (&str, RecordId),
    event: &str,
    headers: &HeaderMap,
) -> Result<Answer, Problem> {
    seen(app, caller, lifecycle, id).await?;
    let call = Call::Fire { record: id, event: event.into(), input: Map::new(), token: None, if_version: None };
    let submission = Submission::new(&caller.actor, call).traced(trace());
    Ok(app.engine().submit(keyed(headers, submission)?).await?)
}
