//! Computes the possible outcomes of a job in a state if no caller acts. Guards count as possibly true.

use super::abstract_eval::StateFacts;
use super::reachability::{Reachability, transitions_of};
use super::termination;
use crate::model::{EventDef, EventKind, StateIndex, StateSet, Transition};

/// Possible outcomes. If two transitions have equal ones, it does not matter which is taken.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct JobOutcome {
    /// States that commits may lead to. They tell a normal commit from a cleanup job that runs after giving up.
    commit_targets: StateSet,
    /// If a worker fails, another may retry.
    can_retry: bool,
}

impl JobOutcome {
    const fn union(self, other: Self) -> Self {
        Self {
            commit_targets: StateSet(self.commit_targets.0 | other.commit_targets.0),
            can_retry: self.can_retry || other.can_retry,
        }
    }
}

/// Outcomes of all states, computed once because every transition of every state needs them.
pub(super) struct JobOutcomes<'a> {
    /// Transitions that are taken without a caller.
    unattended: Vec<(&'a EventDef, &'a Transition)>,
    /// States from which some path leads to a lease.
    leads_to_lease: StateSet,
    by_state: Vec<JobOutcome>,
}

impl<'a> JobOutcomes<'a> {
    pub(super) fn new(reachability: &Reachability<'a>, state_facts: &StateFacts) -> Self {
        let transitions = transitions_of(reachability.lifecycle);
        let unattended: Vec<_> = transitions
            .filter(|(event, transition)| termination::is_unattended(reachability, state_facts, event, transition))
            .collect();
        let edges = StateEdges::new(reachability, &unattended);
        reachability.spend_steps(edges.visited);
        let leads_to_lease = edges.states_leading_to_lease();
        let by_state = (0..64)
            .zip(&reachability.lifecycle.states)
            .map(|(state, _)| edges.outcome_from(state, leads_to_lease))
            .collect();
        Self { unattended, leads_to_lease, by_state }
    }

    pub(super) const fn can_be_leased_again(&self, state: StateIndex) -> bool {
        self.leads_to_lease.contains(state)
    }

    pub(super) fn outcome_in(&self, state: StateIndex) -> JobOutcome {
        self.by_state[usize::from(state)]
    }

    /// Returns the outcome if none of these transitions is taken and the job stays in the state.
    pub(super) fn outcome_without(
        &self,
        reachability: &Reachability,
        state: StateIndex,
        excluded: &[&Transition],
    ) -> JobOutcome {
        let others = self.unattended.iter().filter(|(event, transition)| {
            reachability.can_fire(event.kind, transition, state)
                && !excluded.iter().any(|passed| std::ptr::eq(*passed, *transition))
        });
        reachability.spend_steps(self.unattended.len() as u64);
        others.fold(JobOutcome::default(), |outcome, (event, transition)| {
            let to = transition.to.unwrap_or(state);
            outcome.union(match event.kind {
                EventKind::Commit => JobOutcome { commit_targets: StateSet::default().with(to), can_retry: false },
                EventKind::Finish => JobOutcome::default(),
                // Staying in the state changes nothing.
                _ if to == state && event.kind != EventKind::Lease => JobOutcome::default(),
                _ => self.outcome_in(to),
            })
        })
    }
}

/// Edges between states, by kind of event.
struct StateEdges {
    leases: Vec<StateSet>,
    commits: Vec<StateSet>,
    fails: Vec<StateSet>,
    other: Vec<StateSet>,
    visited: u64,
}

impl StateEdges {
    fn new(reachability: &Reachability, unattended: &[(&EventDef, &Transition)]) -> Self {
        let none = || vec![StateSet::default(); reachability.lifecycle.states.len()];
        let mut edges = Self { leases: none(), commits: none(), fails: none(), other: none(), visited: 0 };
        for (event, transition) in unattended {
            let table = match event.kind {
                EventKind::Create | EventKind::Finish => continue,
                EventKind::Lease => &mut edges.leases,
                EventKind::Commit => &mut edges.commits,
                EventKind::Fail => &mut edges.fails,
                EventKind::Time | EventKind::Enter | EventKind::Called => &mut edges.other,
            };
            for from in reachability.firing_states(event, transition) {
                let to = &mut table[usize::from(from)];
                *to = to.with(transition.to.unwrap_or(from));
                edges.visited += 1;
            }
        }
        edges
    }

    /// Paths contain no `fail`, since no failure happens before the next lease.
    fn states_leading_to_lease(&self) -> StateSet {
        let mut leading = StateSet::default();
        loop {
            let is_leading = |(_, (leases, moves)): &(StateIndex, (&StateSet, &StateSet))| {
                !leases.is_empty() || intersects(**moves, leading)
            };
            let extended =
                (0..64).zip(self.leases.iter().zip(&self.other)).filter(is_leading).map(|(state, _)| state).collect();
            // Each round adds a state or ends, and there are at most 64.
            if extended == leading {
                return leading;
            }
            leading = extended;
        }
    }

    fn outcome_from(&self, state: StateIndex, leads_to_lease: StateSet) -> JobOutcome {
        let (mut seen, mut queue) = (StateSet::default().with(state), vec![state]);
        let mut outcome = JobOutcome::default();
        while let Some(state) = queue.pop() {
            let at = usize::from(state);
            let (leases, fails, moves) = (self.leases[at], self.fails[at], self.other[at]);
            outcome = outcome
                .union(JobOutcome { commit_targets: self.commits[at], can_retry: intersects(fails, leads_to_lease) });
            for next in
                StateSet(leases.0 | fails.0 | moves.0).iter().filter(|next| !seen.contains(*next)).collect::<Vec<_>>()
            {
                seen = seen.with(next);
                queue.push(next);
            }
        }
        outcome
    }
}

const fn intersects(left: StateSet, right: StateSet) -> bool {
    left.0 & right.0 != 0
}
