//! Generates expressions: guards, and values of assignments.

use super::plan::{LifecyclePlan, LimitPlan};
use crate::random::Rng;

/// The context of an expression, which determines what it may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpressionContext {
    Create,
    /// An event called by name.
    Called,
    Commit,
    Fail,
    /// Any other engine event.
    Engine,
}

/// Returns a condition that never faults.
pub(super) fn random_condition(rng: &mut Rng, plan: &LifecyclePlan, context: ExpressionContext) -> String {
    match rng.below(10) {
        0 => format!("{} && {}", random_atom(rng, plan, context), random_atom(rng, plan, context)),
        1 => format!("{} || {}", random_atom(rng, plan, context), random_atom(rng, plan, context)),
        2 => format!("!({})", random_atom(rng, plan, context)),
        _ => random_atom(rng, plan, context),
    }
}

fn random_atom(rng: &mut Rng, plan: &LifecyclePlan, context: ExpressionContext) -> String {
    let fields = plan.fields;
    let number = rng.between(0, 4);
    loop {
        let found = match rng.below(14) {
            0 | 1 => Some(format!("record.count < {}", number + 2)),
            2 => Some(format!("record.count % 2 == {}", number % 2)),
            3 if fields.bounded => Some(format!("record.bounded >= {number}")),
            4 if fields.flag => Some("record.flag".to_owned()),
            5 if fields.color => {
                let colour = rng.pick_word(&["red", "green", "blue"]);
                Some(format!("record.colour {} '{colour}'", rng.pick_word(&["==", "!="])))
            }
            6 if fields.maybe => Some(format!("(record.maybe != null && record.maybe > {number})")),
            7 if fields.moment => Some("(record.moment == null || record.moment <= now)".to_owned()),
            8 if fields.word => Some("record.word == null".to_owned()),
            9 if context == ExpressionContext::Fail => {
                Some(rng.pick_word(&["error.retryable", "error.code == 'boom'", "error.retryAfter != null"]).to_owned())
            }
            10 if context == ExpressionContext::Called => {
                Some(rng.pick_word(&["actor.id == record.owner", "'operator' in actor.roles"]).to_owned())
            }
            11 if plan.ref_target.is_some() && context != ExpressionContext::Create => {
                Some("record.other != null".to_owned())
            }
            12 if context != ExpressionContext::Create => Some(format!("record.attempt < {}", number + 1)),
            13 if plan.careless_percent > 0 && rng.percent(plan.careless_percent) => faulty_condition(rng, plan),
            _ => None,
        };
        if let Some(found) = found {
            return found;
        }
    }
}

/// Returns a condition that may fault.
fn faulty_condition(rng: &mut Rng, plan: &LifecyclePlan) -> Option<String> {
    match rng.below(3) {
        0 if plan.fields.maybe => Some("record.maybe > 3".to_owned()),
        1 if plan.fields.bounded => Some("10 / record.bounded > 2".to_owned()),
        2 if plan.ref_target.is_some() => Some("record.other.count >= 0".to_owned()),
        _ => None,
    }
}

/// Returns a field and its new value, within its bounds unless careless.
pub(super) fn random_assignment(
    rng: &mut Rng,
    plan: &LifecyclePlan,
    context: ExpressionContext,
) -> Option<(&'static str, String)> {
    let fields = plan.fields;
    let number = rng.between(0, 9);
    Some(match rng.below(12) {
        0 | 1 => ("count", "record.count + 1".to_owned()),
        2 if fields.bounded => {
            let careless = rng.percent(plan.careless_percent);
            let value = if careless { "record.bounded + 1" } else { "record.bounded < 20 ? record.bounded + 1 : 0" };
            ("bounded", if rng.percent(40) { number.to_string() } else { value.to_owned() })
        }
        3 if fields.flag => ("flag", rng.pick_word(&["true", "false", "!record.flag"]).to_owned()),
        4 if fields.color => ("colour", format!("'{}'", rng.pick_word(&["red", "green", "blue"]))),
        5 if fields.maybe => ("maybe", if rng.percent(30) { "null".to_owned() } else { number.to_string() }),
        6 if fields.moment => {
            let delay = match (context, fields.delay) {
                (ExpressionContext::Fail, _) if rng.percent(50) => "max(duration('2s'), error.retryAfter)".to_owned(),
                // A duration from a caller is unbounded, so the sum may exceed the maximum time.
                (_, true) if rng.percent(plan.careless_percent) => "record.delay".to_owned(),
                _ => rng.pick_word(&["duration('10s')", "backoff(record.count, '1s', 2, '5m')"]).to_owned(),
            };
            ("moment", if rng.percent(15) { "null".to_owned() } else { format!("now + {delay}") })
        }
        7 if fields.note && context == ExpressionContext::Fail => ("note", "error.message".to_owned()),
        8 if fields.note => ("note", rng.pick_word(&["null", "'noted'", "string(record.count)"]).to_owned()),
        9 if context == ExpressionContext::Commit && plan.has_typed_result && fields.maybe => {
            ("maybe", "result.score".to_owned())
        }
        // A unique key that the engine changes may be a duplicate, so only transitions of callers change it.
        10 if fields.word && context == ExpressionContext::Called => {
            ("word", rng.pick_word(&["null", "'x'", "'y'"]).to_owned())
        }
        _ => return None,
    })
}

/// Returns a delay after entering a state.
pub(super) fn random_delay(rng: &mut Rng, plan: &LifecyclePlan) -> String {
    match rng.below(5) {
        0 => "backoff(record.count, '1s', 2, '1m')".to_owned(),
        1 if plan.fields.delay && rng.percent(plan.careless_percent) => "record.delay".to_owned(),
        1 if plan.fields.flag => "record.flag ? duration('2s') : duration('20s')".to_owned(),
        2 if plan.uses_jitter => "duration('1s') + jitter('2s')".to_owned(),
        _ => rng.pick_word(&["1s", "5s", "30s", "10m"]).to_owned(),
    }
}

/// Returns the maximum of a limit.
pub(super) fn random_limit(rng: &mut Rng, plan: &LifecyclePlan) -> String {
    let number = match plan.limit {
        Some(LimitPlan::Lifetime) => rng.between(4, 12),
        _ => rng.between(1, 5),
    };
    if plan.fields.flag && rng.percent(30) {
        format!("record.flag ? {number} : {}", number + 2)
    } else {
        number.to_string()
    }
}
