//! The state of the engine's clock, and the acceptance of a jump.

use axum::extract::State;
use axum::response::Response;
use onceward_api_types as wire;
use onceward_store::Store as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::problem::{self, Problem};
use crate::response::json_ok;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(show)).routes(routes!(accept))
}

/// Show whether the engine follows its clock
///
/// For operators.
#[utoipa::path(
    get, path = "/v1/clock", tag = "operators", operation_id = "show_clock",
    responses((status = 200, description = "The engine's time, and the clock's if it jumped", body = wire::ClockState))
)]
async fn show(State(app): State<AppState>, caller: Caller) -> Result<Response, Problem> {
    caller.require_operator()?;
    json_ok(&clock_state(&app).await?)
}

/// Accept the clock's time after a jump
///
/// For operators. The engine follows the clock at once, also in other servers on the same database. Leases, timers and retention use the
/// new time, so accept it only if it is right.
#[utoipa::path(
    post, path = "/v1/clock/accept", tag = "operators", operation_id = "accept_clock",
    responses(
        (status = 200, description = "The engine follows its clock", body = wire::ClockState),
        (status = 409, description = "`clock_not_held`: the clock did not jump", body = problem::ProblemBody, content_type = "application/problem+json"),
    )
)]
async fn accept(State(app): State<AppState>, caller: Caller) -> Result<Response, Problem> {
    caller.require_operator()?;
    if !app.engine().accept_clock().await? {
        return Err(Problem::new(409, "clock_not_held", "the engine already follows its clock"));
    }
    json_ok(&clock_state(&app).await?)
}

async fn clock_state(app: &AppState) -> Result<wire::ClockState, Problem> {
    let now = app.engine().store().now().await?;
    let hold = app.engine().store().clock_status().hold.map(|hold| wire::ClockHoldState {
        clock_time: hold.clock_time.to_string(),
        ahead_ms: hold.deviation_micros() / 1_000,
        held_ms: u64::try_from(hold.duration.as_millis()).unwrap_or(u64::MAX),
        needs_operator: hold.needs_operator,
    });
    Ok(wire::ClockState { now: now.to_string(), hold })
}
