//! Routes that a system adds to the server.
//!
//! A system's handlers are written like the server's own: they take [`Caller`](crate::Caller) and [`AppState`],
//! return [`Problem`](crate::Problem) on failure, and carry their OpenAPI annotations. They only translate between
//! HTTP and engine calls.

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

/// The routes of a system.
#[derive(Default)]
pub struct SystemRoutes {
    /// Handlers with their OpenAPI annotations.
    pub router: OpenApiRouter<AppState>,
    /// Paths whose handlers limit their own time, such as uploads.
    pub self_timed_paths: Vec<&'static str>,
    /// Paths that accept bytes instead of JSON.
    pub binary_paths: Vec<&'static str>,
}

impl fmt::Debug for SystemRoutes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `OpenApiRouter` does not implement `Debug`.
        out.debug_struct("SystemRoutes").field("self_timed_paths", &self.self_timed_paths).finish_non_exhaustive()
    }
}

/// An empty JSON object, for calls whose path says everything.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EmptyBody {}

/// Returns a record of this lifecycle if the caller may see it. A missing record, one the caller may not see, and
/// one of another lifecycle all result in the same 404.
pub async fn require_visible(
    app: &AppState,
    caller: &Caller,
    lifecycle: &str,
    id: RecordId,
) -> Result<Arc<Record>, Problem> {
    let record = app.engine().get(&caller.actor, id).await?;
    record.filter(|record| *record.lifecycle.name == *lifecycle).ok_or_else(Problem::not_found)
}

/// Fires an event on a record of this lifecycle; 404 if the record belongs to another lifecycle. Honors
/// `Idempotency-Key`.
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
