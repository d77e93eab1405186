//! Which states a version migration may map to which. The lifecycle file decides: what no transition does, a map of
//! states does not do either.

use crate::model::{EventKind, Lifecycle, StateIndex, StateSet};

/// Returns the states that a record enters only after its job has committed: without the `commit` transitions, no
/// sequence of transitions leads there.
pub fn effect_states(lifecycle: &Lifecycle) -> StateSet {
    let all = reachable_states(lifecycle, StateSet::default(), |_| true);
    let without_commit =
        reachable_states(lifecycle, StateSet::default(), |kind| !matches!(kind, EventKind::Commit | EventKind::Finish));
    all.iter().filter(|state| !without_commit.contains(*state)).collect()
}

/// Returns why records in the state `from` of one version must not enter `to` of the other, or `None` if they may. A
/// state that both versions have under one name is always allowed.
pub(super) fn forbidden_map_reason(
    (old, from): (&Lifecycle, StateIndex),
    (new, to): (&Lifecycle, StateIndex),
) -> Option<String> {
    let (old_state, new_state) = (&old.states[usize::from(from)], &new.states[usize::from(to)]);
    let (from_name, to_name) = (&*old_state.name, &*new_state.name);
    if from_name == to_name {
        return None;
    }
    if old_state.is_final {
        let keeps_state = new.state_index(from_name).is_some();
        return keeps_state
            .then(|| format!("records in `{from_name}` have ended, and the target version has that state"));
    }
    if new_state.is_final {
        return Some(format!("`{to_name}` is final, and a version migration does not end records in `{from_name}`"));
    }
    // A version judges the order of two states only if it has both. A state that only one version has is a new name.
    let orders = [old, new].map(|version| {
        let (from, to) = (version.state_index(from_name)?, version.state_index(to_name)?);
        Some((leads_to(version, from, to), leads_to(version, to, from)))
    });
    let is_allowed = orders.iter().flatten().any(|(forward, _)| *forward);
    let is_backward = orders.iter().flatten().any(|(_, backward)| *backward);
    (is_backward && !is_allowed)
        .then(|| format!("`{to_name}` comes before `{from_name}`, and no transition leads back"))
}

fn leads_to(lifecycle: &Lifecycle, from: StateIndex, to: StateIndex) -> bool {
    reachable_states(lifecycle, StateSet::default().with(from), |kind| kind != EventKind::Create).contains(to)
}

/// Returns the start states and all that transitions of the given kinds lead to; `create` leads to the first ones.
fn reachable_states(lifecycle: &Lifecycle, start: StateSet, uses: impl Fn(EventKind) -> bool) -> StateSet {
    let mut reached = start;
    loop {
        let mut next = reached;
        for event in lifecycle.events.iter().filter(|event| uses(event.kind)) {
            for transition in &event.transitions {
                let starts = event.kind == EventKind::Create || transition.from.0 & reached.0 != 0;
                if let (true, Some(to)) = (starts, transition.to) {
                    next = next.with(to);
                }
            }
        }
        if next == reached {
            return reached;
        }
        reached = next;
    }
}
