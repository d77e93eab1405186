//! Reachability: which states records can reach, in which a worker may hold a lease, and which transitions can fire
//! there. Guards count as possibly true, so that no possible run is missed.

use std::cell::Cell;

use crate::expr::{Expr, ExprKind};
use crate::model::{Definitions, EventDef, EventKind, Lifecycle, StateIndex, StateReadiness, StateSet, Transition};
use crate::value::Value;

pub(crate) struct Reachability<'a> {
    pub(crate) definitions: &'a Definitions,
    pub(crate) lifecycle: &'a Lifecycle,
    pub(crate) reachable: StateSet,
    pub(crate) ready_states: StateSet,
    /// Targets of `lease` transitions: an execution may be live there.
    pub(crate) leased_states: StateSet,
    /// States with an internal `commit` transition: the execution is COMMITTED there and not yet DONE.
    pub(crate) committed_states: StateSet,
    /// Expressions evaluated so far. A hostile file could cost far more than any real one. Beyond a limit the analysis
    /// becomes less precise, and so accepts less.
    pub(crate) steps_spent: Cell<u64>,
}

/// Beyond this, the analysis ignores what earlier transitions rule out.
const IGNORE_SHADOWING_AFTER_STEPS: u64 = 600_000;
/// Beyond this, the analysis no longer distinguishes states.
const MERGE_STATES_AFTER_STEPS: u64 = 1_200_000;

impl<'a> Reachability<'a> {
    pub(crate) fn new(definitions: &'a Definitions, lifecycle: &'a Lifecycle) -> Self {
        let ready = indexed_states(lifecycle)
            .filter(|(_, state)| state.readiness != StateReadiness::NotReady)
            .map(|(index, _)| index)
            .collect();
        let none = StateSet::default();
        let mut reachability = Self {
            definitions,
            lifecycle,
            reachable: none,
            ready_states: ready,
            leased_states: none,
            committed_states: none,
            steps_spent: Cell::new(0),
        };
        // Each round adds a state or ends, and there are at most 64.
        loop {
            let previous = (reachability.reachable, reachability.leased_states, reachability.committed_states);
            reachability.extend();
            if previous == (reachability.reachable, reachability.leased_states, reachability.committed_states) {
                return reachability;
            }
        }
    }

    fn extend(&mut self) {
        for (event, transition) in transitions_of(self.lifecycle) {
            if event.kind == EventKind::Create {
                self.reachable = transition.to.map_or(self.reachable, |to| self.reachable.with(to));
                continue;
            }
            for from in
                transition.from.iter().filter(|from| self.can_fire(event.kind, transition, *from)).collect::<Vec<_>>()
            {
                let to = transition.to.unwrap_or(from);
                self.reachable = self.reachable.with(to);
                match event.kind {
                    EventKind::Lease => self.leased_states = self.leased_states.with(to),
                    EventKind::Commit if transition.to.is_none() && !always_refuses_unchanged(transition) => {
                        self.committed_states = self.committed_states.with(from);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Whether the transition can be taken in this state, without regard to guards.
    pub(crate) fn can_fire(&self, kind: EventKind, transition: &Transition, from: StateIndex) -> bool {
        transition.from.contains(from)
            && self.reachable.contains(from)
            && match kind {
                EventKind::Create => false,
                EventKind::Lease => self.ready_states.contains(from),
                EventKind::Commit | EventKind::Fail => self.leased_states.contains(from),
                EventKind::Finish => self.committed_states.contains(from),
                EventKind::Time | EventKind::Enter | EventKind::Called => true,
            }
    }

    /// Returns the states in which the transition can be taken.
    pub(crate) fn firing_states(&self, event: &EventDef, transition: &Transition) -> Vec<StateIndex> {
        transition.from.iter().filter(|from| self.can_fire(event.kind, transition, *from)).collect()
    }

    pub(crate) fn spend_steps(&self, steps: u64) {
        self.steps_spent.set(self.steps_spent.get().saturating_add(steps + 1));
    }

    pub(crate) fn ignores_shadowing(&self) -> bool {
        self.steps_spent.get() > IGNORE_SHADOWING_AFTER_STEPS
    }

    pub(crate) fn merges_states(&self) -> bool {
        self.steps_spent.get() > MERGE_STATES_AFTER_STEPS
    }

    pub(crate) fn state_name(&self, state: StateIndex) -> &str {
        self.lifecycle.states.get(usize::from(state)).map_or("?", |state| &state.name)
    }

    /// Formats as `A`, `B` and `C`.
    pub(crate) fn state_names(&self, states: impl IntoIterator<Item = StateIndex>) -> String {
        join_with_and(states.into_iter().map(|state| format!("`{}`", self.state_name(state))))
    }

    /// Returns the transitions that can fire in a state, each with its target state.
    pub(crate) fn transitions_from(
        &self,
        from: StateIndex,
    ) -> impl Iterator<Item = (&'a EventDef, &'a Transition, StateIndex)> {
        transitions_of(self.lifecycle)
            .filter(move |(event, transition)| self.can_fire(event.kind, transition, from))
            .map(move |(event, transition)| (event, transition, transition.to.unwrap_or(from)))
    }

    /// Breadth-first search from these states. For each state reached, returns the state and event before it.
    pub(crate) fn shortest_paths(&self, starts: StateSet) -> Vec<Option<(StateIndex, &'a str)>> {
        let mut predecessors = vec![None; self.lifecycle.states.len()];
        let mut seen = starts;
        let mut queue: std::collections::VecDeque<StateIndex> = starts.iter().collect();
        while let Some(from) = queue.pop_front() {
            for (event, _, to) in self.transitions_from(from) {
                if !seen.contains(to) {
                    seen = seen.with(to);
                    predecessors[usize::from(to)] = Some((from, &*event.name));
                    queue.push_back(to);
                }
            }
        }
        predecessors
    }
}

pub(crate) fn transitions_of(lifecycle: &Lifecycle) -> impl Iterator<Item = (&EventDef, &Transition)> {
    lifecycle.events.iter().flat_map(|event| event.transitions.iter().map(move |transition| (event, transition)))
}

pub(crate) fn indexed_states(lifecycle: &Lifecycle) -> impl Iterator<Item = (StateIndex, &crate::model::StateDef)> {
    // A set of states is one 64-bit word, so there are at most 64.
    (0..64).zip(&lifecycle.states)
}

/// Formats as `a`, `a and b`, `a, b and c`.
pub(crate) fn join_with_and(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().collect();
    match items.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// Whether the transition changes nothing and openly refuses: `refuse = [{ if = "true", … }]`. It is never taken.
pub(super) fn always_refuses_unchanged(transition: &Transition) -> bool {
    let has_changes = transition.to.is_some()
        || !transition.set.is_empty()
        || !transition.transfers.is_empty()
        || !transition.spawn.is_empty()
        || !transition.require.is_empty()
        || !transition.cascade.is_empty()
        || !transition.deliver.is_empty();
    !has_changes && transition.refuse.iter().any(|refuse| is_literally_true(&refuse.condition.expr))
}

pub(super) const fn is_literally_true(condition: &Expr) -> bool {
    matches!(condition.kind, ExprKind::Const(Value::Bool(true)))
}
