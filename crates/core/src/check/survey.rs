//! What every proof starts from: which states can be reached, in which a worker may hold a lease, and which rows can
//! ever fire there. Guards count as if they may hold, so nothing that can happen is left out.

use std::cell::Cell;

use crate::expr::{Expr, Kind};
use crate::model::{Definitions, Event, EventKind, Lifecycle, Ready, Row, StateIx, StateSet};
use crate::value::Value;

pub(crate) struct Survey<'a> {
    pub(crate) definitions: &'a Definitions,
    pub(crate) lifecycle: &'a Lifecycle,
    pub(crate) reached: StateSet,
    pub(crate) ready: StateSet,
    /// Where a lease row leaves the record: an execution may be live there.
    pub(crate) leased: StateSet,
    /// Where a commit row stays: the execution is committed there, and not yet done.
    pub(crate) committed: StateSet,
    /// Expressions looked at so far. A hostile file could ask for far more than a real one ever does; past a point
    /// the proofs look less closely, and so accept less.
    pub(crate) spent: Cell<u64>,
}

/// Past this, what earlier rows rule out is no longer taken into account.
const TIRED: u64 = 600_000;
/// Past this, states are no longer told apart.
const SPENT: u64 = 1_200_000;

impl<'a> Survey<'a> {
    pub(crate) fn new(definitions: &'a Definitions, lifecycle: &'a Lifecycle) -> Self {
        let ready = numbered(lifecycle).filter(|(_, state)| state.ready != Ready::No).map(|(at, _)| at).collect();
        let none = StateSet::default();
        let mut survey =
            Self { definitions, lifecycle, reached: none, ready, leased: none, committed: none, spent: Cell::new(0) };
        // Each round adds a state or ends, and there are at most 64.
        loop {
            let before = (survey.reached, survey.leased, survey.committed);
            survey.grow();
            if before == (survey.reached, survey.leased, survey.committed) {
                return survey;
            }
        }
    }

    fn grow(&mut self) {
        for (event, row) in rows(self.lifecycle) {
            if event.kind == EventKind::Create {
                self.reached = row.to.map_or(self.reached, |to| self.reached.with(to));
                continue;
            }
            for from in row.from.iter().filter(|from| self.fires(event.kind, row, *from)).collect::<Vec<_>>() {
                let to = row.to.unwrap_or(from);
                self.reached = self.reached.with(to);
                match event.kind {
                    EventKind::Lease => self.leased = self.leased.with(to),
                    EventKind::Commit if row.to.is_none() && !only_refuses(row) => {
                        self.committed = self.committed.with(from);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Whether the row can be taken in this state at all, guards apart.
    pub(crate) fn fires(&self, kind: EventKind, row: &Row, from: StateIx) -> bool {
        row.from.contains(from)
            && self.reached.contains(from)
            && match kind {
                EventKind::Create => false,
                EventKind::Lease => self.ready.contains(from),
                EventKind::Commit | EventKind::Fail => self.leased.contains(from),
                EventKind::Finish => self.committed.contains(from),
                EventKind::Time | EventKind::Enter | EventKind::Called => true,
            }
    }

    /// The states in which the row can be taken.
    pub(crate) fn fires_in(&self, event: &Event, row: &Row) -> Vec<StateIx> {
        row.from.iter().filter(|from| self.fires(event.kind, row, *from)).collect()
    }

    pub(crate) fn spend(&self, steps: u64) {
        self.spent.set(self.spent.get().saturating_add(steps + 1));
    }

    pub(crate) fn is_tired(&self) -> bool {
        self.spent.get() > TIRED
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.spent.get() > SPENT
    }

    pub(crate) fn name(&self, state: StateIx) -> &str {
        self.lifecycle.states.get(usize::from(state)).map_or("?", |state| &state.name)
    }

    /// `A`, `B` and `C`.
    pub(crate) fn names(&self, states: impl IntoIterator<Item = StateIx>) -> String {
        list(states.into_iter().map(|state| format!("`{}`", self.name(state))))
    }

    /// Where a row leads, over all rows that can fire in a state.
    pub(crate) fn ways_from(&self, from: StateIx) -> impl Iterator<Item = (&'a Event, &'a Row, StateIx)> {
        rows(self.lifecycle)
            .filter(move |(event, row)| self.fires(event.kind, row, from))
            .map(move |(event, row)| (event, row, row.to.unwrap_or(from)))
    }

    /// The ways from these states on, breadth first: for each state reached, the state and event it was reached by.
    pub(crate) fn spread(&self, starts: StateSet) -> Vec<Option<(StateIx, &'a str)>> {
        let mut came = vec![None; self.lifecycle.states.len()];
        let mut seen = starts;
        let mut queue: std::collections::VecDeque<StateIx> = starts.iter().collect();
        while let Some(from) = queue.pop_front() {
            for (event, _, to) in self.ways_from(from) {
                if !seen.contains(to) {
                    seen = seen.with(to);
                    came[usize::from(to)] = Some((from, &*event.name));
                    queue.push_back(to);
                }
            }
        }
        came
    }
}

pub(crate) fn rows(lifecycle: &Lifecycle) -> impl Iterator<Item = (&Event, &Row)> {
    lifecycle.events.iter().flat_map(|event| event.rows.iter().map(move |row| (event, row)))
}

pub(crate) fn numbered(lifecycle: &Lifecycle) -> impl Iterator<Item = (StateIx, &crate::model::State)> {
    // A set of states is one machine word, so there are never more than 64.
    (0..64).zip(&lifecycle.states)
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn list(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<String> = items.into_iter().collect();
    match items.split_last() {
        None => String::new(),
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
    }
}

/// A row that changes nothing and says plainly that it refuses: `refuse = [{ if = "true", … }]`. It is never taken.
pub(super) fn only_refuses(row: &Row) -> bool {
    let changes = row.to.is_some()
        || !row.set.is_empty()
        || !row.moves.is_empty()
        || !row.spawn.is_empty()
        || !row.require.is_empty()
        || !row.cascade.is_empty()
        || !row.deliver.is_empty();
    !changes && row.refuse.iter().any(|refuse| is_true(&refuse.condition.expr))
}

pub(super) const fn is_true(condition: &Expr) -> bool {
    matches!(condition.kind, Kind::Const(Value::Bool(true)))
}
