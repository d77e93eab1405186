//! Taking a row: where its expressions are evaluated, what is known once it is the one, and what it leaves behind.

use super::domain::{Known, Shape};
use super::env::Env;
use super::flow::{Facts, Flow};
use super::judge::{Judge, constant};
use crate::check::survey::Survey;
use crate::expr::{ActorPart, Binary, Expr, Kind, Path, Root, Step};
use crate::model::{By, Event, EventKind, Input, Lifecycle, Row, StateIx, Timing, Who};
use crate::value::Value;

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
    Some(in_state(lifecycle, flow.seen_by(lifecycle, event, from)?, from))
}

/// What is known of a record with these facts, in this state.
pub(crate) fn in_state(lifecycle: &Lifecycle, facts: Facts, state: StateIx) -> Env {
    let mut env = Env::new(facts);
    if let Some(state) = lifecycle.states.get(usize::from(state)) {
        let path = Path { root: Root::Record, steps: vec![Step::State], doubtful: Vec::new() };
        env.learn(&path, Known::some(Shape::named([state.name.clone()])));
    }
    env
}

/// A new record before its row's `set`: defaults, then what is given.
fn newborn(lifecycle: &Lifecycle, row: &Row, given: &[Known]) -> Facts {
    let mut facts: Vec<Known> = lifecycle
        .fields
        .iter()
        .map(|field| field.default.as_ref().map_or(Known::only_null(), Known::of_value))
        .collect();
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
    let mut env = chosen(judge, event, at, from, env, tired)?;
    for refuse in &row.refuse {
        env = judge.split(&refuse.condition.expr, &env).1?;
    }
    Some(env)
}

/// What is known where the row is the one, before it may refuse.
fn chosen(judge: &mut Judge, event: &Event, at: usize, from: Option<StateIx>, env: Env, tired: bool) -> Option<Env> {
    let row = &event.rows[at];
    let mut env = env;
    judge.muted += 1;
    for earlier in event.rows[..at].iter().filter(|_| !tired) {
        if from.is_none_or(|from| earlier.from.contains(from))
            && decides_before(&judge.lifecycle.who, event.kind, earlier, row)
        {
            let Some(left) = passed_over(judge, earlier, env) else {
                judge.muted -= 1;
                return None;
            };
            env = left;
        }
    }
    let env = admitted(judge, row, env);
    judge.muted -= 1;
    match &row.when {
        Some(when) => judge.split(&when.expr, &env?).0,
        None => env,
    }
}

/// What is known where one of those whom the row admits has called.
fn admitted(judge: &mut Judge, row: &Row, env: Env) -> Option<Env> {
    let mut admitted = None;
    for by in &row.by {
        let who = match by {
            By::Who(who) => judge.lifecycle.who.get(usize::from(*who)),
            _ => None,
        };
        let Some(who) = who else { return Some(env) };
        admitted = Env::join_maybe(admitted, judge.split(&who.formula.expr, &env).0);
    }
    if row.by.is_empty() { Some(env) } else { admitted }
}

/// What may come of an entry of `refuse`, once it is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlook {
    Always,
    Never,
    May,
}

/// For each entry of the row's `refuse` that is ever asked in this state.
pub(crate) fn outlook(survey: &Survey, flow: &Flow, event: &Event, at: usize, from: Option<StateIx>) -> Vec<Outlook> {
    let row = &event.rows[at];
    let mut judge = judge_of(survey, event, row, None);
    judge.muted = 1;
    let Some(env) = start(flow, survey.lifecycle, event, row, from, &judge.given) else {
        return vec![Outlook::May; row.refuse.len()];
    };
    let mut left = chosen(&mut judge, event, at, from, env, survey.is_tired());
    let mut outlooks = Vec::new();
    for refuse in &row.refuse {
        let Some(env) = left else { break };
        let (yes, no) = judge.split(&refuse.condition.expr, &env);
        outlooks.push(match (yes, &no) {
            (_, None) => Outlook::Always,
            (None, Some(_)) => Outlook::Never,
            (Some(_), Some(_)) => Outlook::May,
        });
        left = no;
    }
    survey.spend(judge.steps);
    outlooks
}

/// Whether `later` is reached only where the guard of `earlier` is false, both fitting the state.
pub(crate) fn decides_before(who: &[Who], kind: EventKind, earlier: &Row, later: &Row) -> bool {
    let admitted = if earlier.by.is_empty() {
        later.by.iter().all(|by| is_open_to(who, by))
    } else {
        covers(&earlier.by, &later.by)
    };
    admitted && stands_before(kind, earlier, later)
}

/// Whether whoever is admitted by both finds `earlier` first, and takes it where its guard holds.
pub(crate) fn stands_before(kind: EventKind, earlier: &Row, later: &Row) -> bool {
    let same_moment = match (kind, &earlier.timing, &later.timing) {
        (EventKind::Time, Some(Timing::At(a)), Some(Timing::At(b))) => a == b,
        (EventKind::Time, Some(Timing::After(a)), Some(Timing::After(b))) => match (&a.expr.kind, &b.expr.kind) {
            (Kind::Const(Value::Duration(a)), Kind::Const(Value::Duration(b))) => a == b,
            _ => false,
        },
        (EventKind::Time, _, _) => false,
        _ => true,
    };
    same_moment && earlier.require.is_empty() && same_inputs(earlier, later, kind == EventKind::Create)
}

/// Whether all whom it admits are admitted by a row without `by`, too. Such a row is for every key that may write, but for one that is
/// only a worker's and holds no lease: of somebody whom `[who]` knows by more than a role, it may be the key.
fn is_open_to(who: &[Who], by: &By) -> bool {
    match by {
        By::Owner | By::Operator | By::Worker | By::Record => true,
        By::Who(number) => who.get(usize::from(*number)).is_some_and(|who| needs_role(&who.formula.expr)),
    }
}

/// Whether it is true only for who has a role that is more than a worker's, or its like in a signed log.
fn needs_role(expr: &Expr) -> bool {
    match &expr.kind {
        Kind::And(left, right) => needs_role(left) || needs_role(right),
        Kind::Or(left, right) => needs_role(left) && needs_role(right),
        // Whoever has a capability may do more than work.
        Kind::Binary(Binary::In, role, list) => match (&role.kind, actor_part(list)) {
            (Kind::Const(Value::Text(role)), Some(ActorPart::Roles)) => !MODEST.contains(&&**role),
            (_, part) => part == Some(ActorPart::Capabilities),
        },
        _ => actor_part(expr) == Some(ActorPart::User),
    }
}

fn actor_part(expr: &Expr) -> Option<ActorPart> {
    match &expr.kind {
        Kind::Read(Path { root: Root::Actor(part), .. }) => Some(*part),
        _ => None,
    }
}

/// Roles with which alone nothing is made or moved.
const MODEST: [&str; 3] = ["viewer", "metrics", "worker"];

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
pub(crate) fn passed_over(judge: &mut Judge, row: &Row, env: Env) -> Option<Env> {
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
    super::walk::any(expr, &|expr| matches!(&expr.kind, Kind::Read(path) if matches!(path.root, Root::Input(_))))
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
