//! What is known of a record's fields in each state, whatever way it came there.

use std::rc::Rc;

use super::counters::Counters;
use super::domain::{Known, Shape};
use super::env::Env;
use super::judge::{Judge, constant};
use crate::check::survey::{Survey, numbered, rows};
use crate::expr::{Expr, Kind};
use crate::model::{By, Event, EventKind, Input, Lifecycle, Row, StateIx, Timing};
use crate::value::Value;

type Facts = Rc<[Known]>;

/// Expressions looked at before the flow gives up and takes what is declared; the largest real file needs some thousands.
const STEPS: u64 = 2_000_000;
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
}

impl Flow {
    /// `caused`: the names of events that other records may send to this one within an operation.
    pub(crate) fn new(survey: &Survey, caused: &dyn Fn(&str) -> bool) -> Self {
        let lifecycle = survey.lifecycle;
        let counters = Counters::new(lifecycle);
        let declared: Facts =
            lifecycle.fields.iter().zip(0..).map(|(field, slot)| counters.declared(field, slot)).collect();
        let states = lifecycle.states.len();
        let mut flow = Self { entry: vec![None; states], rest: vec![None; states], committed: vec![None; states], declared };
        let mut run = Run {
            survey,
            caused,
            landmarks: landmarks(lifecycle),
            changes: vec![0; states],
            steps: 0,
        };
        if !run.settle(&mut flow) {
            for (state, _) in numbered(lifecycle).filter(|(state, _)| survey.reached.contains(*state)) {
                flow.entry[usize::from(state)] = Some(flow.declared.clone());
                flow.rest[usize::from(state)] = Some(flow.declared.clone());
                flow.committed[usize::from(state)] = Some(flow.declared.clone());
            }
        }
        flow
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
                    match row.to {
                        Some(to) => self.enter(flow, to, after, &mut dirty),
                        None => {
                            // Another record may do this between the entering and the `enter` rows.
                            if event.kind == EventKind::Called && (self.caused)(&event.name) {
                                self.enter(flow, state, after.clone(), &mut dirty);
                            }
                            if event.kind == EventKind::Commit {
                                self.commit(flow, state, after.clone(), &mut dirty);
                            }
                            self.stay(flow, state, after, &mut dirty);
                        }
                    }
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
                    match row.to {
                        Some(to) => self.enter(flow, to, after, dirty),
                        None => self.stay(flow, state, after, dirty),
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
        self.steps += judge.steps + 1;
        after
    }
}

/// A judge of this row; `given` where the inputs are known better than by their declaration.
pub(crate) fn judge_of<'a>(survey: &Survey<'a>, event: &Event, row: &'a Row, given: Option<&[Known]>) -> Judge<'a> {
    let mut judge = Judge::new(survey.definitions, survey.lifecycle);
    judge.inputs = &row.inputs;
    judge.creating = event.kind == EventKind::Create;
    judge.given = match given {
        Some(given) => given.to_vec(),
        None => row.inputs.iter().map(|input| any_input(input, row, judge.creating)).collect(),
    };
    judge
}

/// Whatever a caller may give.
pub(crate) fn any_input(input: &Input, row: &Row, creating: bool) -> Known {
    Known::of_type(&input.field.ty, &input.field.bounds, !is_required(input, row, creating))
}

/// Whether the row does not hold without this input.
pub(crate) fn is_required(input: &Input, row: &Row, creating: bool) -> bool {
    let free = input.field.nullable || input.field.default.is_some();
    match input.take {
        Some(slot) => creating && !free && !row.set.iter().any(|(set, _)| *set == slot),
        None => !free,
    }
}

/// Where the row's expressions are evaluated.
pub(crate) fn start(
    flow: &Flow,
    lifecycle: &Lifecycle,
    event: &Event,
    row: &Row,
    from: Option<StateIx>,
    given: &[Known],
) -> Option<Env> {
    let Some(from) = from else {
        return Some(Env::new(newborn(lifecycle, row, given)));
    };
    Some(Env::new(flow.facts(event.kind, from)?))
}

/// A new record before its row's `set`: defaults, then what is given.
fn newborn(lifecycle: &Lifecycle, row: &Row, given: &[Known]) -> Facts {
    let mut facts: Vec<Known> =
        lifecycle.fields.iter().map(|field| field.default.as_ref().map_or(Known::only_null(), Known::of_value)).collect();
    for (input, given) in row.inputs.iter().zip(given) {
        let Some(slot) = input.take else { continue };
        let Some(fact) = facts.get_mut(usize::from(slot)) else { continue };
        // Absent leaves the default; null clears where the field may be null.
        *fact = match (given.null, lifecycle.fields[usize::from(slot)].nullable) {
            (false, _) => given.clone(),
            (true, nullable) => fact.join(&given.clone().not_null()).or_null(nullable),
        };
    }
    facts.into()
}

/// What is known where the row is the one: earlier rows that would have been taken did not hold, and its guard does.
pub(crate) fn taken(
    judge: &mut Judge,
    event: &Event,
    at: usize,
    from: Option<StateIx>,
    env: Env,
    tired: bool,
) -> Option<Env> {
    let row = &event.rows[at];
    let mut env = env;
    judge.muted += 1;
    for earlier in event.rows[..at].iter().filter(|_| !tired) {
        if from.is_none_or(|from| earlier.from.contains(from)) && decides_before(event.kind, earlier, row) {
            match passed_over(judge, earlier, env) {
                Some(left) => env = left,
                None => {
                    judge.muted -= 1;
                    return None;
                }
            }
        }
    }
    judge.muted -= 1;
    let mut env = match &row.when {
        Some(when) => judge.split(&when.expr, &env).0?,
        None => env,
    };
    for refuse in &row.refuse {
        env = judge.split(&refuse.condition.expr, &env).1?;
    }
    Some(env)
}

/// Whether `later` is reached only where the guard of `earlier` is false, both fitting the state.
pub(crate) fn decides_before(kind: EventKind, earlier: &Row, later: &Row) -> bool {
    let same_moment = match (kind, &earlier.timing, &later.timing) {
        (EventKind::Time, Some(Timing::At(a)), Some(Timing::At(b))) => a == b,
        (EventKind::Time, Some(Timing::After(a)), Some(Timing::After(b))) => match (&a.expr.kind, &b.expr.kind) {
            (Kind::Const(Value::Duration(a)), Kind::Const(Value::Duration(b))) => a == b,
            _ => false,
        },
        (EventKind::Time, _, _) => false,
        _ => true,
    };
    // No `by` is any key that may write, which the owner's need not be; so it covers only its like.
    let admitted = if earlier.by.is_empty() { later.by.is_empty() } else { covers(&earlier.by, &later.by) };
    same_moment && admitted && earlier.require.is_empty() && same_inputs(earlier, later, kind == EventKind::Create)
}

/// Everyone whom `later` admits is admitted by `earlier` too.
fn covers(earlier: &[By], later: &[By]) -> bool {
    !later.is_empty() && later.iter().all(|by| earlier.contains(by))
}

/// The same input fits both or neither: the same names, types, bounds and needs.
fn same_inputs(earlier: &Row, later: &Row, creating: bool) -> bool {
    earlier.inputs.len() == later.inputs.len()
        && earlier.inputs.iter().all(|input| {
            later.inputs.iter().any(|other| {
                input.field.name == other.field.name
                    && input.field.ty == other.field.ty
                    && input.take == other.take
                    && is_required(input, earlier, creating) == is_required(other, later, creating)
                    && format!("{:?}", input.field.bounds) == format!("{:?}", other.field.bounds)
            })
        })
}

/// What is known where this row's guard does not hold.
fn passed_over(judge: &mut Judge, row: &Row, env: Env) -> Option<Env> {
    // Its inputs are numbered apart from the later row's, so nothing is learned from a guard that reads them.
    if !row.require.is_empty() || row.when.as_ref().is_some_and(|when| reads_input(&when.expr)) {
        return Some(env);
    }
    match &row.when {
        Some(when) => judge.split(&when.expr, &env).1,
        None => None,
    }
}

fn reads_input(expr: &Expr) -> bool {
    super::walk::any(expr, &|expr| matches!(&expr.kind, Kind::Read(path) if matches!(path.root, crate::expr::Root::Input(_))))
}

/// The fields once `take` and `set` are applied.
pub(crate) fn changed(judge: &mut Judge, flow: &Flow, row: &Row, env: &Env) -> Vec<Known> {
    let mut facts = env.sharpened();
    if !judge.creating {
        for (input, given) in row.inputs.iter().zip(judge.given.clone()) {
            let Some(slot) = input.take else { continue };
            let Some(fact) = facts.get_mut(usize::from(slot)) else { continue };
            let nullable = judge.lifecycle.fields[usize::from(slot)].nullable;
            *fact = fact.join(&given.not_null()).or_null(nullable);
        }
    }
    for (slot, formula) in &row.set {
        let value = judge.eval(&formula.expr, env);
        let Some(fact) = facts.get_mut(usize::from(*slot)) else { continue };
        // A value beyond what is declared is a fault, and then nothing is written.
        let fits = value.meet(&flow.declared[usize::from(*slot)]);
        *fact = if fits.is_impossible() { flow.declared[usize::from(*slot)].clone() } else { fits };
    }
    for (fact, field) in facts.iter_mut().zip(&judge.lifecycle.fields) {
        if field.constant {
            *fact = constant(field);
        }
    }
    facts
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
