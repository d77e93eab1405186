//! Orders, pictures and credits as their users know them. Each call is one of the engine's; what it does is for the lifecycles to say.

mod assets;
mod credits;
mod jobs;

use std::sync::Arc;

use onceward_core::record::Record;
use onceward_core::value::{RecordId, Value};
use onceward_server::{App, Caller, Part, Problem};
use utoipa_axum::router::OpenApiRouter;

/// The image system's routes.
pub fn part() -> Part {
    let routes = OpenApiRouter::default().merge(jobs::routes()).merge(assets::routes()).merge(credits::routes());
    Part { routes, ..Part::default() }
}

/// A record of this lifecycle that the caller may see. One that is not there, one that is not the caller's, and one of another kind look
/// the same.
async fn seen(app: &App, caller: &Caller, lifecycle: &str, id: RecordId) -> Result<Arc<Record>, Problem> {
    let record = app.engine().get(&caller.actor, id).await?;
    record.filter(|record| *record.lifecycle.name == *lifecycle).ok_or_else(Problem::not_found)
}

/// What a field says, where it says a text.
fn text<'a>(record: &'a Record, field: &str) -> Option<&'a str> {
    match record.field(field) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    }
}

/// What a field says, where it says a number.
fn number(record: &Record, field: &str) -> i64 {
    match record.field(field) {
        Some(Value::Int(number)) => *number,
        _ => 0,
    }
}

/// The record that a field names.
fn named(record: &Record, field: &str) -> Option<RecordId> {
    match record.field(field) {
        Some(Value::Ref(id)) => Some(*id),
        _ => None,
    }
}
