//! Lifecycles and states as callers name them. One that is mistyped is told at once: it would be looked for, or waited for, in vain.

use std::sync::Arc;

use onceward_engine::EngineError;
use onceward_store::{Catalog, Store as _};

use crate::app::App;
use crate::problem::Problem;

/// Whether there is a lifecycle of this name, and a state of that name in it or, where no lifecycle is named, in any. Old versions count:
/// records may still live by them.
pub(crate) async fn must_be_there(app: &App, lifecycle: Option<&str>, state: Option<&str>) -> Result<(), Problem> {
    if lifecycle.is_none() && state.is_none() {
        return Ok(());
    }
    let at_hand = app.engine().store().definitions().await?;
    if judged(app, &at_hand, lifecycle, state).is_ok() {
        return Ok(());
    }
    // Another process may have brought it a moment ago.
    let newest = app.engine().lifecycles().await?;
    judged(app, &newest, lifecycle, state)
}

fn judged(app: &App, catalog: &Catalog, lifecycle: Option<&str>, state: Option<&str>) -> Result<(), Problem> {
    if let Some(name) = lifecycle.filter(|name| catalog.definitions.get(name).is_none()) {
        return Err(no_lifecycle(app, catalog, name));
    }
    let Some(state) = state else { return Ok(()) };
    let own = catalog.all().filter(|version| lifecycle.is_none_or(|name| *version.name == *name));
    let mut states: Vec<&Arc<str>> = Vec::new();
    for known in own.flat_map(|version| &version.states) {
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
pub(crate) fn no_lifecycle(app: &App, catalog: &Catalog, name: &str) -> Problem {
    let detail = left_out(app, name).unwrap_or_else(|| catalog.definitions.no_lifecycle(name));
    Problem::new(404, "no_such_lifecycle", detail)
}

/// What core says of a lifecycle that is not there, with what only this server knows of it.
pub(crate) fn explained(app: &App, error: EngineError, name: &str) -> Problem {
    match (error, left_out(app, name)) {
        (EngineError::Refused(mut refusal), Some(reason)) if *refusal.code == *"no_such_lifecycle" => {
            refusal.reason = reason;
            EngineError::Refused(refusal).into()
        }
        (error, _) => error.into(),
    }
}

fn left_out(app: &App, name: &str) -> Option<String> {
    let reason = app.settings().left_out.get(name)?;
    Some(format!("there is no lifecycle `{name}` here: it ships with Onceward, but was not loaded, since {reason}"))
}
