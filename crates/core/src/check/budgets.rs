//! Counts that a job is given up by: a guard reads one, and what may still come of the job hangs on which way it falls.
//! A count that only makes the pauses longer, or that picks one of two ways back, is no budget.

use std::collections::BTreeSet;

use super::faults::{Env, Flow, Judge, any, each, growth, in_state, passed_over, stands_before};
use super::prospects::{Prospect, Prospects};
use super::survey::Survey;
use crate::expr::{Expr, Kind, Path, Root, Step};
use crate::model::{Event, EventKind, Row, Slot, StateIx};

/// What tries are counted by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Budget {
    Leases,
    Field(Slot),
}

/// Whether the row counts the field up.
pub(super) fn counts(row: &Row, slot: Slot) -> bool {
    row.set.iter().any(|(set, formula)| *set == slot && growth(&formula.expr, slot).is_some_and(|by| by > 0))
}

/// Those that rows look at which the engine takes by itself.
pub(super) fn find(survey: &Survey, flow: &Flow, prospects: &Prospects) -> BTreeSet<Budget> {
    let fails = survey.lifecycle.rows(EventKind::Fail);
    let slots = fails.iter().flat_map(|row| row.set.iter().filter(|(slot, _)| counts(row, *slot)));
    let counted: BTreeSet<Budget> = slots.map(|(slot, _)| Budget::Field(*slot)).chain([Budget::Leases]).collect();
    let mut search = Search { survey, flow, prospects, found: BTreeSet::new() };
    let asked = |kind| matches!(kind, EventKind::Fail | EventKind::Enter | EventKind::Time | EventKind::Lease);
    for event in survey.lifecycle.events.iter().filter(|event| asked(event.kind)) {
        let rows = event.rows.iter().map(|row| (row, looked_at(row, &counted))).collect::<Vec<_>>();
        // Most files count nothing at most events, and then there is nothing to look for.
        if rows.iter().any(|(_, counts)| !counts.is_empty()) {
            survey.reached.iter().for_each(|state| search.event(event, &rows, state));
        }
    }
    search.found
}

/// Which of these the row's guard reads.
fn looked_at(row: &Row, counted: &BTreeSet<Budget>) -> BTreeSet<Budget> {
    let mut looked_at = BTreeSet::new();
    let mut look = |expr: &Expr| looked_at.extend(read(expr).filter(|budget| counted.contains(budget)));
    row.when.iter().for_each(|when| each(&when.expr, &mut look));
    looked_at
}

fn read(expr: &Expr) -> Option<Budget> {
    let Kind::Read(Path { root: Root::Record, steps, .. }) = &expr.kind else { return None };
    match steps.as_slice() {
        [Step::Attempt] => Some(Budget::Leases),
        [Step::Field { slot, .. }] => Some(Budget::Field(*slot)),
        _ => None,
    }
}

fn reads(expr: &Expr, budget: Budget) -> bool {
    any(expr, &|part| read(part) == Some(budget))
}

/// A row, and the counts that its guard reads.
type Asking<'a> = (&'a Row, BTreeSet<Budget>);

struct Search<'a> {
    survey: &'a Survey<'a>,
    flow: &'a Flow,
    prospects: &'a Prospects<'a>,
    found: BTreeSet<Budget>,
}

impl Search<'_> {
    fn event(&mut self, event: &Event, rows: &[Asking], state: StateIx) {
        let mut groups: Vec<Vec<&Asking>> = Vec::new();
        for asking in rows.iter().filter(|(row, _)| self.survey.fires(event.kind, row, state)) {
            // A warning less is better than a wait, where a file is too much work.
            if self.survey.is_tired() {
                return;
            }
            self.survey.spend(groups.len() as u64);
            // Timers of different moments do not stand in each other's way.
            match groups.iter_mut().find(|group| stands_before(event.kind, group[0].0, asking.0)) {
                Some(group) => group.push(asking),
                None => groups.push(vec![asking]),
            }
        }
        for group in &groups {
            if group.iter().any(|(_, counts)| !counts.is_subset(&self.found)) {
                self.group(event, group, state);
            }
        }
    }

    /// Rows of which the first that holds is taken.
    fn group(&mut self, event: &Event, group: &[&Asking], state: StateIx) {
        let (survey, lifecycle) = (self.survey, self.survey.lifecycle);
        let mut judge = Judge::new(survey.definitions, lifecycle);
        judge.muted = 1;
        let facts = self.flow.seen_by(lifecycle, event, state);
        let mut left = facts.map(|facts| in_state(lifecycle, facts, state));
        for (at, (row, counts)) in group.iter().enumerate() {
            let Some(env) = left else { return };
            for budget in counts {
                if survey.is_tired() {
                    return;
                }
                if !self.found.contains(budget)
                    && self.decides(&mut judge, *budget, &group[at..], &env, event.kind, state)
                {
                    self.found.insert(*budget);
                }
                survey.spend(std::mem::take(&mut judge.steps));
            }
            left = passed_over(&mut judge, row, env);
        }
        survey.spend(judge.steps);
    }

    /// Whether it hangs on this count in the first row's guard what may still come of the job.
    fn decides(
        &self,
        judge: &mut Judge,
        budget: Budget,
        group: &[&Asking],
        env: &Env,
        kind: EventKind,
        state: StateIx,
    ) -> bool {
        let Some(((row, _), later)) = group.split_first() else { return false };
        let Some(when) = &row.when else { return false };
        let Some(env) = hanging_on(judge, budget, &when.expr, env) else { return false };
        let (Some(_), mut left) = judge.split(&when.expr, &env) else { return false };
        let prospect = self.after(row, state);
        for (other, _) in later {
            let Some(env) = left else { return false };
            let holds = other.when.as_ref().is_none_or(|when| judge.split(&when.expr, &env).0.is_some());
            if holds && self.after(other, state) != prospect {
                return true;
            }
            left = passed_over(judge, other, env);
        }
        // A lease and a failure are sure to be answered; the others may leave the job where it is.
        let stays = left.is_some() && matches!(kind, EventKind::Enter | EventKind::Time);
        let rows = || group.iter().map(|(row, _)| *row).collect::<Vec<_>>();
        stays && self.prospects.without(self.survey, state, &rows()) != prospect
    }

    fn after(&self, row: &Row, state: StateIx) -> Prospect {
        self.prospects.of(row.to.unwrap_or(state))
    }
}

/// What is known where the count alone turns the guard: what stands beside it with `&&` holds, and with `||` does not.
fn hanging_on(judge: &mut Judge, budget: Budget, guard: &Expr, env: &Env) -> Option<Env> {
    match &guard.kind {
        Kind::Not(operand) => hanging_on(judge, budget, operand, env),
        Kind::And(left, right) | Kind::Or(left, right) => {
            let (beside, part) = match (reads(left, budget), reads(right, budget)) {
                (false, true) => (left, right),
                (true, false) => (right, left),
                _ => return Some(env.clone()),
            };
            let (yes, no) = judge.split(beside, env);
            let env = if matches!(guard.kind, Kind::And(..)) { yes } else { no };
            hanging_on(judge, budget, part, &env?)
        }
        _ => Some(env.clone()),
    }
}
