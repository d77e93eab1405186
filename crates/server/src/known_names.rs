//! Rejects unknown lifecycles and states with 404, so that a typo does not look like an empty result.

use std::sync::Arc;

use onceward_engine::EngineError;
use onceward_store::{Catalog, Store as _};

use crate::app::AppState;
use crate::problem::Problem;

/// Returns 404 unless the lifecycle exists and has the state. Without a lifecycle, any lifecycle may have the
/// state. Old versions count, because records may be pinned to them.
pub(crate) async fn require_known(app: &AppState, lifecycle: Option<&str>, state: Option<&str>) -> Result<(), Problem> {
    if lifecycle.is_none() && state.is_none() {
        return Ok(());
    }
    let cached = app.engine().store().catalog().await?;
    if validate_names(app, &cached, lifecycle, state).is_ok() {
        return Ok(());
    }
    // Another process may have added it since the catalog was cached.
    let newest = app.engine().lifecycles().await?;
    validate_names(app, &newest, lifecycle, state)
}

fn validate_names(
    app: &AppState,
    catalog: &Catalog,
    lifecycle: Option<&str>,
    state: Option<&str>,
) -> Result<(), Problem> {
    if let Some(name) = lifecycle.filter(|name| catalog.definitions.get(name).is_none()) {
        return Err(lifecycle_not_found(app, catalog, name));
    }
    let Some(state) = state else { return Ok(()) };
    let versions = catalog.all_versions().filter(|version| lifecycle.is_none_or(|name| *version.name == *name));
    let mut states: Vec<&Arc<str>> = Vec::new();
    for known in versions.flat_map(|version| &version.states) {
        if *known.name == *state {
            return Ok(());
        }
        if lifecycle.is_some() && !states.contains(&&known.name) {
            states.push(&known.name);
        }
    }
    let Some(name) = lifecycle else {
        return Err(Problem::new(404, "unknown_state", format!("no lifecycle has a state `{state}`")));
    };
    let states: Vec<&str> = states.into_iter().map(|state| &**state).collect();
    let detail = format!("`{name}` has no state `{state}`; its states are {}", states.join(", "));
    Err(Problem::new(404, "unknown_state", detail))
}

/// Builds the 404 response for an unknown lifecycle.
pub(crate) fn lifecycle_not_found(app: &AppState, catalog: &Catalog, name: &str) -> Problem {
    let detail = skip_reason(app, name).unwrap_or_else(|| catalog.definitions.unknown_lifecycle_message(name));
    Problem::new(404, "unknown_lifecycle", detail)
}

/// Adds the server's reason to the engine's error if the lifecycle was skipped at startup.
pub(crate) fn explain_missing_lifecycle(app: &AppState, error: EngineError, name: &str) -> Problem {
    match (error, skip_reason(app, name)) {
        (EngineError::Refused(mut refusal), Some(reason)) if *refusal.code == *"unknown_lifecycle" => {
            refusal.reason = reason;
            EngineError::Refused(refusal).into()
        }
        (error, _) => error.into(),
    }
}

fn skip_reason(app: &AppState, name: &str) -> Option<String> {
    let reason = app.config().skipped_lifecycles.get(name)?;
    Some(format!("the lifecycle `{name}` ships with Onceward but was not loaded, because {reason}"))
}
