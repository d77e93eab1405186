//! Lifecycles and states as callers name them. One that is mistyped is told at once: it would be looked for, or waited for, in vain.

use std::sync::Arc;

use onceward_engine::EngineError;
use onceward_store::{Catalog, Store as _};

use crate::app::AppState;
use crate::problem::Problem;

/// Whether there is a lifecycle of this name, and a state of that name in it or, where no lifecycle is named, in any. Old versions count:
/// records may still live by them.
pub(crate) async fn require_known(app: &AppState, lifecycle: Option<&str>, state: Option<&str>) -> Result<(), Problem> {
    if lifecycle.is_none() && state.is_none() {
        return Ok(());
    }
    let cached = app.engine().store().catalog().await?;
    if validate_names(app, &cached, lifecycle, state).is_ok() {
        return Ok(());
    }
    // Another process may have brought it a moment ago.
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
        return Err(Problem::new(404, "no_such_state", format!("no lifecycle has a state `{state}`")));
    };
    let states: Vec<&str> = states.into_iter().map(|state| &**state).collect();
    let detail = format!("{name} has no state `{state}`; it has {}", states.join(", "));
    Err(Problem::new(404, "no_such_state", detail))
}

/// There is none of this name.
pub(crate) fn lifecycle_not_found(app: &AppState, catalog: &Catalog, name: &str) -> Problem {
    let detail = skip_reason(app, name).unwrap_or_else(|| catalog.definitions.unknown_lifecycle_message(name));
    Problem::new(404, "no_such_lifecycle", detail)
}

/// What core says of a lifecycle that is not there, with what only this server knows of it.
pub(crate) fn explain_missing_lifecycle(app: &AppState, error: EngineError, name: &str) -> Problem {
    match (error, skip_reason(app, name)) {
        (EngineError::Refused(mut refusal), Some(reason)) if *refusal.code == *"no_such_lifecycle" => {
            refusal.reason = reason;
            EngineError::Refused(refusal).into()
        }
        (error, _) => error.into(),
    }
}

fn skip_reason(app: &AppState, name: &str) -> Option<String> {
    let reason = app.config().skipped_lifecycles.get(name)?;
    Some(format!("there is no lifecycle `{name}` here: it ships with Onceward, but was not loaded, since {reason}"))
}
