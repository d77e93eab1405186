//! What may still come of a job in a state, with nobody who calls for it. Guards count as if they may hold.

use super::bounded;
use super::faults::Flow;
use super::survey::{Survey, rows};
use crate::model::{Event, EventKind, Row, StateIx, StateSet};

/// Two that are the same lose nothing by which of them it is.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Prospect {
    /// Where commits may lead: a job that is only cleaned up after is given up, though workers see it once more.
    ends: StateSet,
    /// Should a worker fail at it, another may try.
    again: bool,
}

impl Prospect {
    const fn or(self, other: Self) -> Self {
        Self { ends: StateSet(self.ends.0 | other.ends.0), again: self.again || other.again }
    }
}

/// Found once for all states, since every row of every state asks.
pub(super) struct Prospects<'a> {
    /// The rows that are taken with nobody who calls for it.
    unasked: Vec<(&'a Event, &'a Row)>,
    /// From where the way leads to a lease, whichever it is.
    back: StateSet,
    of: Vec<Prospect>,
}

impl<'a> Prospects<'a> {
    pub(super) fn new(survey: &Survey<'a>, flow: &Flow) -> Self {
        let all = rows(survey.lifecycle);
        let unasked: Vec<_> = all.filter(|(event, row)| bounded::goes_by_itself(survey, flow, event, row)).collect();
        let ways = Ways::new(survey, &unasked);
        survey.spend(ways.seen);
        let back = ways.back();
        let of = (0..64).zip(&survey.lifecycle.states).map(|(state, _)| ways.prospect(state, back)).collect();
        Self { unasked, back, of }
    }

    pub(super) const fn comes_back(&self, state: StateIx) -> bool {
        self.back.contains(state)
    }

    pub(super) fn of(&self, state: StateIx) -> Prospect {
        self.of[usize::from(state)]
    }

    /// What may come of it where none of these rows is taken, and the job stays in the state.
    pub(super) fn without(&self, survey: &Survey, state: StateIx, passed: &[&Row]) -> Prospect {
        let others = self.unasked.iter().filter(|(event, row)| {
            survey.fires(event.kind, row, state) && !passed.iter().any(|passed| std::ptr::eq(*passed, *row))
        });
        survey.spend(self.unasked.len() as u64);
        others.fold(Prospect::default(), |prospect, (event, row)| {
            let to = row.to.unwrap_or(state);
            prospect.or(match event.kind {
                EventKind::Commit => Prospect { ends: StateSet::default().with(to), again: false },
                EventKind::Finish => Prospect::default(),
                // Where it stays, the row changes nothing about that.
                _ if to == state && event.kind != EventKind::Lease => Prospect::default(),
                _ => self.of(to),
            })
        })
    }
}

/// Where each state leads, by kind.
struct Ways {
    leases: Vec<StateSet>,
    commits: Vec<StateSet>,
    /// By a failure, and by what else ends a lease or moves a job that nobody holds.
    fails: Vec<StateSet>,
    moves: Vec<StateSet>,
    seen: u64,
}

impl Ways {
    fn new(survey: &Survey, unasked: &[(&Event, &Row)]) -> Self {
        let none = || vec![StateSet::default(); survey.lifecycle.states.len()];
        let mut ways = Self { leases: none(), commits: none(), fails: none(), moves: none(), seen: 0 };
        for (event, row) in unasked {
            let table = match event.kind {
                EventKind::Create | EventKind::Finish => continue,
                EventKind::Lease => &mut ways.leases,
                EventKind::Commit => &mut ways.commits,
                EventKind::Fail => &mut ways.fails,
                EventKind::Time | EventKind::Enter | EventKind::Called => &mut ways.moves,
            };
            for from in survey.fires_in(event, row) {
                let to = &mut table[usize::from(from)];
                *to = to.with(row.to.unwrap_or(from));
                ways.seen += 1;
            }
        }
        ways
    }

    /// No failure is passed on the way: there is none before the next lease.
    fn back(&self) -> StateSet {
        let mut back = StateSet::default();
        loop {
            let leads =
                |(_, (leases, moves)): &(StateIx, (&StateSet, &StateSet))| !leases.is_empty() || meets(**moves, back);
            let more = (0..64).zip(self.leases.iter().zip(&self.moves)).filter(leads).map(|(state, _)| state).collect();
            // Each round adds a state or ends, and there are at most 64.
            if more == back {
                return back;
            }
            back = more;
        }
    }

    fn prospect(&self, state: StateIx, back: StateSet) -> Prospect {
        let (mut seen, mut queue) = (StateSet::default().with(state), vec![state]);
        let mut prospect = Prospect::default();
        while let Some(state) = queue.pop() {
            let at = usize::from(state);
            let (leases, fails, moves) = (self.leases[at], self.fails[at], self.moves[at]);
            prospect = prospect.or(Prospect { ends: self.commits[at], again: meets(fails, back) });
            for next in
                StateSet(leases.0 | fails.0 | moves.0).iter().filter(|next| !seen.contains(*next)).collect::<Vec<_>>()
            {
                seen = seen.with(next);
                queue.push(next);
            }
        }
        prospect
    }
}

const fn meets(some: StateSet, others: StateSet) -> bool {
    some.0 & others.0 != 0
}
