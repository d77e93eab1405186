//! What is known of a record's fields in each state, whatever way it came there.

use std::rc::Rc;

use super::counters::Counters;
use super::domain::{Known, Shape};
use super::env::Env;
use super::judge::Judge;
use super::taking::{changed, judge_of, passed_over, start, taken};
use crate::check::survey::{Survey, numbered, rows};
use crate::expr::Kind;
use crate::model::{Event, EventKind, Lifecycle, StateIx};
use crate::value::Value;

pub(super) type Facts = Rc<[Known]>;

/// Expressions looked at before the flow gives up and takes what is declared; the largest real file needs some thousands.
const STEPS: u64 = 300_000;
/// A state that changed this often is taken as declared: it would go on changing.
const CHANGES: u32 = 40;
/// Changes of a state before numbers jump to the next landmark instead of creeping.
const PATIENCE: u32 = 3;

/// The facts of one lifecycle.
pub(crate) struct Flow {
    /// On entering, before `enter` rows: what those rows see.
    pub(crate) entry: Vec<Option<Facts>>,
    /// While the record stays: what all other rows see.
    pub(crate) rest: Vec<Option<Facts>>,
    /// After a commit that stays: what `finish` rows see.
    committed: Vec<Option<Facts>>,
    /// What each field may be by its declaration alone.
    pub(crate) declared: Facts,
    /// By event: whether another record may send it within an operation.
    caused: Vec<bool>,
}

impl Flow {
    /// `caused`: the names of events that other records may send to this one within an operation.
    pub(crate) fn new(survey: &Survey, caused: &dyn Fn(&str) -> bool) -> Self {
        let lifecycle = survey.lifecycle;
        let counters = Counters::new(lifecycle);
        let declared: Facts =
            lifecycle.fields.iter().zip(0..).map(|(field, slot)| counters.declared(field, slot)).collect();
        let states = lifecycle.states.len();
        let sent = |event: &Event| event.kind == EventKind::Called && caused(&event.name);
        let mut flow = Self {
            entry: vec![None; states],
            rest: vec![None; states],
            committed: vec![None; states],
            declared,
            caused: lifecycle.events.iter().map(sent).collect(),
        };
        let mut run = Run { survey, caused, landmarks: landmarks(lifecycle), changes: vec![0; states], steps: 0 };
        if !run.settle(&mut flow) {
            for (state, _) in numbered(lifecycle).filter(|(state, _)| survey.reached.contains(*state)) {
                flow.entry[usize::from(state)] = Some(flow.declared.clone());
                flow.rest[usize::from(state)] = Some(flow.declared.clone());
                flow.committed[usize::from(state)] = Some(flow.declared.clone());
            }
        }
        flow
    }

    /// Whether some record sends this event to this one.
    pub(crate) fn is_caused(&self, lifecycle: &Lifecycle, event: &Event) -> bool {
        lifecycle.events.iter().zip(&self.caused).any(|(own, caused)| *caused && own.name == event.name)
    }

    /// What a row of this event sees in this state.
    pub(crate) fn facts(&self, kind: EventKind, state: StateIx) -> Option<Facts> {
        let table = match kind {
            EventKind::Enter => &self.entry,
            EventKind::Finish => &self.committed,
            _ => &self.rest,
        };
        table.get(usize::from(state)).cloned().flatten()
    }

    /// What a row of this event sees in this state; one that another record sends may come between the entering and
    /// the `enter` rows.
    pub(crate) fn seen_by(&self, lifecycle: &Lifecycle, event: &Event, state: StateIx) -> Option<Facts> {
        let rest = self.facts(event.kind, state);
        let number = lifecycle.events.iter().position(|own| own.name == event.name);
        if !number.is_some_and(|number| self.caused[number]) {
            return rest;
        }
        match (rest, self.entry[usize::from(state)].clone()) {
            (Some(rest), Some(entry)) if rest != entry => {
                Some(rest.iter().zip(entry.iter()).map(|(rest, entry)| rest.join(entry)).collect())
            }
            (rest, entry) => rest.or(entry),
        }
    }
}

struct Run<'a> {
    survey: &'a Survey<'a>,
    caused: &'a dyn Fn(&str) -> bool,
    landmarks: Vec<i128>,
    changes: Vec<u32>,
    steps: u64,
}

impl Run<'_> {
    /// False: it took too long.
    fn settle(&mut self, flow: &mut Flow) -> bool {
        let lifecycle = self.survey.lifecycle;
        let mut dirty: u64 = 0;
        if let Some(event) = lifecycle.events.iter().find(|event| event.kind == EventKind::Create) {
            for (at, row) in event.rows.iter().enumerate() {
                let (Some(to), Some(after)) = (row.to, self.after(flow, event, at, None)) else { continue };
                self.enter(flow, to, after, &mut dirty);
            }
        }
        while dirty != 0 {
            let state = u8::try_from(dirty.trailing_zeros()).unwrap_or(0);
            dirty &= dirty - 1;
            self.rest(flow, state, &mut dirty);
            for event in &lifecycle.events {
                for (at, row) in event.rows.iter().enumerate() {
                    if self.steps > STEPS {
                        return false;
                    }
                    if event.kind == EventKind::Enter || !self.survey.fires(event.kind, row, state) {
                        continue;
                    }
                    let Some(after) = self.after(flow, event, at, Some(state)) else { continue };
                    let Some(to) = row.to else {
                        // Another record may do this between the entering and the `enter` rows.
                        if event.kind == EventKind::Called && (self.caused)(&event.name) {
                            self.enter(flow, state, after.clone(), &mut dirty);
                        }
                        if event.kind == EventKind::Commit {
                            self.commit(flow, state, after.clone(), &mut dirty);
                        }
                        self.stay(flow, state, after, &mut dirty);
                        continue;
                    };
                    self.enter(flow, to, after, &mut dirty);
                }
            }
        }
        true
    }

    /// Lets the `enter` rows have their say: what they let rest, and where they send on.
    fn rest(&mut self, flow: &mut Flow, state: StateIx, dirty: &mut u64) {
        let Some(facts) = flow.entry[usize::from(state)].clone() else { return };
        let lifecycle = self.survey.lifecycle;
        let mut left = Some(Env::new(facts));
        if let Some(event) = lifecycle.events.iter().find(|event| event.kind == EventKind::Enter) {
            for (at, row) in event.rows.iter().enumerate().filter(|(_, row)| row.from.contains(state)) {
                if let Some(after) = self.after(flow, event, at, Some(state)) {
                    if let Some(to) = row.to {
                        self.enter(flow, to, after, dirty);
                    } else {
                        // Moved on by another record before its `enter` rows ran, it may run those of the new state
                        // twice.
                        if self.is_disturbed() {
                            self.enter(flow, state, after.clone(), dirty);
                        }
                        self.stay(flow, state, after, dirty);
                    }
                }
                if let Some(env) = left.take() {
                    let mut judge = Judge::new(self.survey.definitions, lifecycle);
                    left = passed_over(&mut judge, row, env);
                    self.steps += judge.steps + 1;
                }
            }
        }
        if let Some(env) = left {
            let facts = env.sharpened();
            self.stay(flow, state, facts, dirty);
        }
    }

    /// Whether another record may move this one within an operation.
    fn is_disturbed(&self) -> bool {
        let mut events = self.survey.lifecycle.events.iter().filter(|event| event.kind == EventKind::Called);
        events.any(|event| (self.caused)(&event.name) && event.rows.iter().any(|row| row.to.is_some()))
    }

    fn enter(&mut self, flow: &mut Flow, state: StateIx, facts: Vec<Known>, dirty: &mut u64) {
        let at = usize::from(state);
        if let Some(facts) = self.grown(flow.entry[at].as_ref(), facts, state, &flow.declared) {
            flow.entry[at] = Some(facts);
            *dirty |= 1 << state;
        }
    }

    fn commit(&mut self, flow: &mut Flow, state: StateIx, facts: Vec<Known>, dirty: &mut u64) {
        let at = usize::from(state);
        if let Some(facts) = self.grown(flow.committed[at].as_ref(), facts, state, &flow.declared) {
            flow.committed[at] = Some(facts);
            *dirty |= 1 << state;
        }
    }

    fn stay(&mut self, flow: &mut Flow, state: StateIx, facts: Vec<Known>, dirty: &mut u64) {
        let at = usize::from(state);
        if let Some(facts) = self.grown(flow.rest[at].as_ref(), facts, state, &flow.declared) {
            flow.rest[at] = Some(facts);
            *dirty |= 1 << state;
        }
    }

    /// The facts with these added, or nothing where they say nothing new.
    fn grown(&mut self, old: Option<&Facts>, new: Vec<Known>, state: StateIx, declared: &Facts) -> Option<Facts> {
        let Some(old) = old else { return Some(new.into()) };
        let changes = &mut self.changes[usize::from(state)];
        let joined: Vec<Known> = old.iter().zip(&new).map(|(old, new)| old.join(new)).collect();
        if joined[..] == old[..] {
            return None;
        }
        *changes += 1;
        if *changes > CHANGES {
            return (old[..] != declared[..]).then(|| declared.clone());
        }
        let patience = *changes > PATIENCE;
        let widened = joined.into_iter().enumerate().map(|(slot, known)| {
            if patience && known != old[slot] { self.widened(&old[slot], known, &declared[slot]) } else { known }
        });
        Some(widened.collect())
    }

    /// Numbers that keep growing jump to the next number that the file mentions, and at last to the declared bound.
    fn widened(&self, old: &Known, new: Known, declared: &Known) -> Known {
        let shape = match (&old.shape, new.shape, &declared.shape) {
            (Shape::Number(a, b), Shape::Number(c, d), Shape::Number(least, most)) => {
                let low = self.landmarks.iter().rev().find(|mark| **mark <= c).map_or(*least, |mark| *mark.max(least));
                let high = self.landmarks.iter().find(|mark| **mark >= d).map_or(*most, |mark| *mark.min(most));
                Shape::Number(if c < *a { low.min(c) } else { c }, if d > *b { high.max(d) } else { d })
            }
            (Shape::Double(..) | Shape::List { .. }, new, declared) if old.shape != new => declared.clone(),
            (Shape::Text { of: None, size, .. }, new @ Shape::Text { .. }, declared) => match &new {
                Shape::Text { size: grown, .. } if grown != size => declared.clone(),
                _ => new,
            },
            (_, new, _) => new,
        };
        Known { null: new.null, shape }
    }

    /// The fields after the row was taken from this state; nothing where it cannot be.
    fn after(&mut self, flow: &Flow, event: &Event, at: usize, from: Option<StateIx>) -> Option<Vec<Known>> {
        let lifecycle = self.survey.lifecycle;
        let row = &event.rows[at];
        let mut judge = judge_of(self.survey, event, row, None);
        let env = start(flow, lifecycle, event, row, from, &judge.given)?;
        let env = taken(&mut judge, event, at, from, env, self.survey.is_tired());
        let after = env.map(|env| changed(&mut judge, flow, row, &env));
        // A field costs about as much to carry along as an eighth of an expression.
        self.steps += judge.steps + 1 + lifecycle.fields.len() as u64 / 8;
        after
    }
}

/// The numbers that the file mentions: where growing values are likely to stop.
fn landmarks(lifecycle: &Lifecycle) -> Vec<i128> {
    let mut marks = vec![0];
    let mut mark = |value: i128| marks.extend([value - 1, value, value + 1]);
    for field in &lifecycle.fields {
        if let Some((least, most)) = field.bounds.int {
            mark(i128::from(least));
            mark(i128::from(most));
        }
        if let Some(Value::Int(value)) = field.default {
            mark(i128::from(value));
        }
    }
    for (_, row) in rows(lifecycle) {
        super::walk::each_of_row(row, &mut |expr| {
            if let Kind::Const(Value::Int(value)) = &expr.kind {
                mark(i128::from(*value));
            }
        });
    }
    marks.sort_unstable();
    marks.dedup();
    // Few enough that a state's patience is not spent on them: the smallest, the largest and some between.
    let step = marks.len().div_ceil(16).max(1);
    marks.into_iter().step_by(step).collect()
}
