//! Expressions: guards, and the values that rows set.

use super::plan::{Limit, Plan};
use crate::random::Chance;

/// Where an expression stands, and so what it may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Create,
    /// An event called by name.
    Called,
    Commit,
    Fail,
    /// Any other of the engine's own events.
    Engine,
}

/// Something that is true or false, and never faults.
pub(super) fn condition(chance: &mut Chance, plan: &Plan, place: Place) -> String {
    match chance.below(10) {
        0 => format!("{} && {}", atom(chance, plan, place), atom(chance, plan, place)),
        1 => format!("{} || {}", atom(chance, plan, place), atom(chance, plan, place)),
        2 => format!("!({})", atom(chance, plan, place)),
        _ => atom(chance, plan, place),
    }
}

fn atom(chance: &mut Chance, plan: &Plan, place: Place) -> String {
    let fields = plan.fields;
    let number = chance.between(0, 4);
    loop {
        let found = match chance.below(14) {
            0 | 1 => Some(format!("record.count < {}", number + 2)),
            2 => Some(format!("record.count % 2 == {}", number % 2)),
            3 if fields.bounded => Some(format!("record.bounded >= {number}")),
            4 if fields.flag => Some("record.flag".to_owned()),
            5 if fields.colour => {
                let colour = chance.word(&["red", "green", "blue"]);
                Some(format!("record.colour {} '{colour}'", chance.word(&["==", "!="])))
            }
            6 if fields.maybe => Some(format!("(record.maybe != null && record.maybe > {number})")),
            7 if fields.moment => Some("(record.moment == null || record.moment <= now)".to_owned()),
            8 if fields.word => Some("record.word == null".to_owned()),
            9 if place == Place::Fail => {
                Some(chance.word(&["error.retryable", "error.code == 'boom'", "error.retryAfter != null"]).to_owned())
            }
            10 if place == Place::Called => {
                Some(chance.word(&["actor.id == record.owner", "'operator' in actor.roles"]).to_owned())
            }
            11 if plan.other.is_some() && place != Place::Create => Some("record.other != null".to_owned()),
            12 if place != Place::Create => Some(format!("record.attempt < {}", number + 1)),
            13 if plan.careless > 0 && chance.yes(plan.careless) => careless(chance, plan),
            _ => None,
        };
        if let Some(found) = found {
            return found;
        }
    }
}

/// Something that may fault.
fn careless(chance: &mut Chance, plan: &Plan) -> Option<String> {
    match chance.below(3) {
        0 if plan.fields.maybe => Some("record.maybe > 3".to_owned()),
        1 if plan.fields.bounded => Some("10 / record.bounded > 2".to_owned()),
        2 if plan.other.is_some() => Some("record.other.count >= 0".to_owned()),
        _ => None,
    }
}

/// A field and what it is set to; within its bounds unless written carelessly.
pub(super) fn assignment(chance: &mut Chance, plan: &Plan, place: Place) -> Option<(&'static str, String)> {
    let fields = plan.fields;
    let number = chance.between(0, 9);
    Some(match chance.below(12) {
        0 | 1 => ("count", "record.count + 1".to_owned()),
        2 if fields.bounded => {
            let careless = chance.yes(plan.careless);
            let value = if careless { "record.bounded + 1" } else { "record.bounded < 20 ? record.bounded + 1 : 0" };
            ("bounded", if chance.yes(40) { number.to_string() } else { value.to_owned() })
        }
        3 if fields.flag => ("flag", chance.word(&["true", "false", "!record.flag"]).to_owned()),
        4 if fields.colour => ("colour", format!("'{}'", chance.word(&["red", "green", "blue"]))),
        5 if fields.maybe => ("maybe", if chance.yes(30) { "null".to_owned() } else { number.to_string() }),
        6 if fields.moment => {
            let delay = match (place, fields.delay) {
                (Place::Fail, _) if chance.yes(50) => "max(duration('2s'), error.retryAfter)".to_owned(),
                // A duration that callers give has no bound, so the sum may lie beyond all time.
                (_, true) if chance.yes(plan.careless) => "record.delay".to_owned(),
                _ => chance.word(&["duration('10s')", "backoff(record.count, '1s', 2, '5m')"]).to_owned(),
            };
            ("moment", if chance.yes(15) { "null".to_owned() } else { format!("now + {delay}") })
        }
        7 if fields.note && place == Place::Fail => ("note", "error.message".to_owned()),
        8 if fields.note => ("note", chance.word(&["null", "'noted'", "string(record.count)"]).to_owned()),
        9 if place == Place::Commit && plan.result && fields.maybe => ("maybe", "result.score".to_owned()),
        // A key that an engine-fired row changes may clash, so only callers' rows do.
        10 if fields.word && place == Place::Called => ("word", chance.word(&["null", "'x'", "'y'"]).to_owned()),
        _ => return None,
    })
}

/// How long after entering.
pub(super) fn delay(chance: &mut Chance, plan: &Plan) -> String {
    match chance.below(5) {
        0 => "backoff(record.count, '1s', 2, '1m')".to_owned(),
        1 if plan.fields.delay && chance.yes(plan.careless) => "record.delay".to_owned(),
        1 if plan.fields.flag => "record.flag ? duration('2s') : duration('20s')".to_owned(),
        2 if plan.jitter => "duration('1s') + jitter('2s')".to_owned(),
        _ => chance.word(&["1s", "5s", "30s", "10m"]).to_owned(),
    }
}

/// What a limit admits.
pub(super) fn most(chance: &mut Chance, plan: &Plan) -> String {
    let number = match plan.limit {
        Some(Limit::Ever) => chance.between(4, 12),
        _ => chance.between(1, 5),
    };
    if plan.fields.flag && chance.yes(30) {
        format!("record.flag ? {number} : {}", number + 2)
    } else {
        number.to_string()
    }
}
