//! Looks through everything that one row evaluates when it is taken in one state.

use std::sync::Arc;

use super::certain;
use super::domain::{Known, Shape};
use super::env::Env;
use super::fits::misfit;
use super::flow::Flow;
use super::judge::{Finding, Judge};
use super::taking::{changed, judge_of, start, taken};
use crate::bounds;
use crate::check::survey::Survey;
use crate::diagnostic::Span;
use crate::expr::{Expr, FaultKind};
use crate::model::{AccountRef, Amount, By, Cause, Event, Formula, Row, StateIx, TemplatePart};

/// Values sent to another record, by name.
pub(crate) type Sent = Vec<(Arc<str>, Known)>;

/// What taking the row may lead to.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) findings: Vec<Finding>,
    /// By index into the row's spawns: what each gives; those that cannot happen are absent.
    pub(crate) spawned: Vec<(usize, Sent)>,
    /// The requires, then the cascades: what each sends.
    pub(crate) caused: Vec<(usize, Sent)>,
    /// Which, where to, and how many bytes its body may have.
    pub(crate) delivered: Vec<(usize, Known, u64)>,
    /// Where and why it faults, whoever takes it.
    pub(crate) fault: Option<(Span, String)>,
    /// The fields afterwards; nothing where the row cannot be taken.
    pub(crate) after: Option<Vec<Known>>,
}

pub(crate) fn examine(
    survey: &Survey,
    flow: &Flow,
    event: &Event,
    at: usize,
    from: Option<StateIx>,
    given: Option<&[Known]>,
) -> Outcome {
    let row = &event.rows[at];
    let mut judge = judge_of(survey, event, row, given);
    let mut outcome = Outcome::default();
    let start = if survey.is_spent() && from.is_some() {
        Some(Env::new(flow.declared.clone()))
    } else {
        start(flow, survey.lifecycle, event, row, from, &judge.given)
    };
    if let Some(env) = start {
        for by in &row.by {
            if let By::Who(who) = by
                && let Some(who) = survey.lifecycle.who.get(usize::from(*who))
            {
                judge.split(&who.formula.expr, &env);
            }
        }
        if let Some(env) = taken(&mut judge, event, at, from, env, survey.is_tired()) {
            carry_out(&mut judge, survey, row, &env, &mut outcome);
            outcome.fault = certain::fault(&mut judge, row, &env);
            judge.muted += 1;
            outcome.after = Some(changed(&mut judge, flow, row, &env));
        }
    }
    survey.spend(judge.steps);
    outcome.findings = judge.findings;
    outcome
}

fn carry_out(judge: &mut Judge, survey: &Survey, row: &Row, env: &Env, outcome: &mut Outcome) {
    for (slot, formula) in &row.set {
        let value = judge.eval(&formula.expr, env);
        let Some(field) = survey.lifecycle.fields.get(usize::from(*slot)) else { continue };
        if let Some(why) = misfit(&value, &field.ty, &field.bounds, field.nullable) {
            let what = format!("the value set for `{}` {why}", field.name);
            judge.note(FaultKind::OutOfBounds, formula.expr.at, what, None);
        }
    }
    for step in &row.moves {
        if let Amount::Formula(amount) = &step.amount {
            let known = judge.needed(&amount.expr, env);
            if known.number().is_none_or(|(least, _)| least < 0) {
                let what = "the amount may be negative".to_owned();
                judge.note(FaultKind::NegativeAmount, amount.expr.at, what, None);
            }
        }
        for account in [&step.from, &step.to] {
            let AccountRef::Named(template) = account else { continue };
            for part in &template.parts {
                if let TemplatePart::Value(expr) = part {
                    judge.needed(expr, env);
                }
            }
        }
    }
    for (at, spawn) in row.spawn.iter().enumerate() {
        let Some(env) = where_true(judge, spawn.condition.as_ref(), env) else { continue };
        let sent = send(judge, &spawn.fields, &env);
        if let Some(owner) = &spawn.owner {
            let known = judge.needed(&owner.expr, &env);
            if matches!(known.shape, Shape::Text { size, .. } if size.1 > bounds::TEXT_CHARS as u64) {
                let what = format!("the owner may have more than {} characters", bounds::TEXT_CHARS);
                judge.note(FaultKind::OutOfBounds, owner.expr.at, what, None);
            }
        }
        outcome.spawned.push((at, sent));
    }
    for (at, cause) in causes(row).enumerate() {
        let Some(env) = where_true(judge, cause.condition.as_ref(), env) else { continue };
        judge.eval(&cause.to.expr, &env);
        let sent = send(judge, &cause.input, &env);
        outcome.caused.push((at, sent));
    }
    for (at, deliver) in row.deliver.iter().enumerate() {
        let Some(env) = where_true(judge, deliver.condition.as_ref(), env) else { continue };
        let to = judge.needed(&deliver.to.expr, &env);
        let body = send(judge, &deliver.body, &env);
        // Each part with its name, quotes, colon and comma.
        let bytes = body.iter().map(|(name, value)| value.json_bytes().saturating_add(name.len() as u64 * 6 + 4));
        outcome.delivered.push((at, to, bytes.fold(2, u64::saturating_add)));
    }
}

pub(crate) fn causes(row: &Row) -> impl Iterator<Item = &Cause> {
    row.require.iter().chain(&row.cascade)
}

fn where_true(judge: &mut Judge, condition: Option<&Formula>, env: &Env) -> Option<Env> {
    match condition {
        Some(condition) => judge.split(&condition.expr, env).0,
        None => Some(env.clone()),
    }
}

fn send(judge: &mut Judge, fields: &[(Arc<str>, Formula)], env: &Env) -> Sent {
    fields.iter().map(|(name, formula)| (name.clone(), judge.eval(&formula.expr, env))).collect()
}

/// A formula that is evaluated while the record stands in a state: how it may fault there.
pub(crate) fn standing(survey: &Survey, flow: &Flow, formula: &Expr, state: StateIx) -> (Vec<Finding>, Option<Known>) {
    let mut judge = Judge::new(survey.definitions, survey.lifecycle);
    let mut value = None;
    for facts in [&flow.entry, &flow.rest].into_iter().filter_map(|table| table[usize::from(state)].clone()) {
        let known = judge.eval(formula, &Env::new(facts));
        value = Some(value.map_or_else(|| known.clone(), |old: Known| old.join(&known)));
    }
    (judge.findings, value)
}
