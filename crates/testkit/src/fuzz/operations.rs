//! Bytes as a play on one of the shipped systems.

use std::sync::LazyLock;

use onceward_core::decide::{Call, Create, ErrorReport};
use onceward_core::model::{Definitions, EventKind, Field, Lifecycle, Type};
use onceward_core::record::{Actor, Payload, Token};
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json, json};

use super::bytes::Choices;
use crate::{Stage, systems};

/// Longer plays find nothing more, they only take longer.
const OPERATIONS: usize = 64;

static SYSTEMS: LazyLock<Vec<Definitions>> = LazyLock::new(|| {
    let thing = systems::load_text(&[("thing.toml", include_str!("thing.toml"))]);
    let mut all: Vec<_> = ["execution", "document", "image", "mesh"].into_iter().map(systems::load).collect();
    all.push(thing);
    all
});

pub(super) fn run(bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let definitions = choices.pick(&SYSTEMS).clone();
    let lifecycles: Vec<_> = definitions.lifecycles.values().cloned().collect();
    let mut stage = Stage::new(definitions)
        .answer("image.job", "prompt", |question, _| {
            let hash = question.payload.map_or(0, |payload| payload.sha256[0]);
            json!({ "readable": hash != 8, "pass": hash != 7, "sha256": format!("{hash:064}") })
        })
        .answer("mesh.node", "chain", |question, _| {
            let known = question.arguments["did"] != "a";
            json!({ "valid": known, "key": "a", "userBearing": known, "why": "" })
        })
        .answer("fuzz.thing", "deposit", |_, _| json!({ "ok": true, "sum": 5 }));
    let mut known: Vec<RecordId> = Vec::new();
    for _ in 0..OPERATIONS {
        if choices.is_empty() {
            break;
        }
        let wait = [0, 1, 20, 40, 4_000, 1_000_000][choices.below(6)];
        if choices.coin() {
            stage.pass_for(Duration::from_secs(wait));
        } else {
            stage.doze_for(Duration::from_secs(wait));
        }
        let (actor, call) = (actor(&mut choices), call(&mut choices, &mut stage, &lifecycles, &known));
        let _ = stage.attempt(&actor, call).outcome();
        known.clear();
        for lifecycle in &lifecycles {
            known.extend(stage.all(&lifecycle.name).iter().map(|record| record.id));
        }
    }
    for lifecycle in &lifecycles {
        for record in stage.all(&lifecycle.name) {
            assert!(record.stuck.is_none(), "{} was proven sound, yet is stuck: {:?}", lifecycle.name, record.stuck);
        }
    }
}

/// What the author of a signed operation holds, where everything is allowed.
const CAPABILITIES: &[&str] = &[
    "Evidence.Write",
    "Claim.Write",
    "Episode.Write",
    "Action.Write",
    "Artifact.Write",
    "Job.Schedule",
    "Job.Claim",
    "Job.Complete",
    "Mesh.Write",
];

fn actor(choices: &mut Choices) -> Actor {
    let id = *choices.pick(&["ann", "bob", "worker-1"]);
    let roles: &[&[&str]] =
        &[&["producer"], &["worker"], &["operator"], &["viewer"], &["producer", "pro"], &["moderator"], &[], &["fold"]];
    let kind = choices.below(roles.len() + 2);
    match roles.get(kind) {
        Some(roles) => Actor::new(id, roles),
        None => Actor {
            capabilities: CAPABILITIES.iter().map(|one| (*one).into()).collect(),
            user: kind > roles.len(),
            ..Actor::new(id, &[])
        },
    }
}

fn call(
    choices: &mut Choices,
    stage: &mut Stage,
    lifecycles: &[std::sync::Arc<Lifecycle>],
    known: &[RecordId],
) -> Call {
    let lifecycle = choices.pick(lifecycles);
    if known.is_empty() || choices.below(5) == 0 {
        let fields = lifecycle.rows(EventKind::Create).iter().flat_map(|row| &row.inputs);
        let fields = given(choices, &fields.map(|input| input.field.clone()).collect::<Vec<_>>(), known);
        let owner = (choices.below(8) == 0).then(|| "bob".into());
        let payload = choices.coin().then(|| stage.keep(&[choices.byte()]));
        let payload = if choices.below(16) == 0 { Some(Payload { sha256: [0; 32], bytes: u64::MAX }) } else { payload };
        return Call::Create(Create { lifecycle: lifecycle.name.clone(), id: None, owner, fields, payload });
    }
    let id = *choices.pick(known);
    let record = stage.record(id);
    let token = match choices.below(4) {
        0 => Token(u64::from(choices.byte())),
        _ => Token(record.attempt),
    };
    match choices.below(12) {
        0 | 1 => {
            let lease = (choices.below(4) == 0).then(|| Duration::from_micros(choices.number()));
            Call::Lease { record: id, worker: "worker-1".into(), lease, start: choices.coin() }
        }
        2 => Call::Start { record: id, token },
        3 => Call::Heartbeat { record: id, token, lease: None },
        4 => {
            let result = record.lifecycle.work.as_ref().and_then(|work| work.result.clone()).unwrap_or_default();
            let result = Json::Object(given(choices, &result, known));
            Call::Commit { record: id, token, result, finish: choices.coin() }
        }
        5 => Call::Finish { record: id, token },
        6 | 7 => {
            let codes = ["TIMEOUT", "429", "policy", "OCR_FAILURE", "lost", "yielded", "timeout", ""];
            let error = ErrorReport {
                code: (*choices.pick(&codes)).into(),
                message: ["it broke", "", "\0", "é"][choices.below(4)].repeat(1 + choices.below(3) * 700).into(),
                retryable: [None, Some(true), Some(false)][choices.below(3)],
                retry_after: (choices.below(3) == 0).then(|| Duration::from_micros(choices.number())),
            };
            Call::Fail { record: id, token, error }
        }
        8 => Call::Yield { record: id, token },
        9 => Call::Lost { record: id, token },
        10 => Call::Due { record: id },
        _ => {
            let events = &record.lifecycle.events;
            let event = choices.pick(events);
            let inputs: Vec<Field> =
                event.rows.iter().flat_map(|row| &row.inputs).map(|input| input.field.clone()).collect();
            Call::Fire {
                record: id,
                event: event.name.clone(),
                input: given(choices, &inputs, known),
                token: choices.coin().then_some(token),
                if_version: (choices.below(8) == 0).then_some(record.version),
            }
        }
    }
}

/// Values for some of the fields, most of them fit.
fn given(choices: &mut Choices, fields: &[Field], known: &[RecordId]) -> Map<String, Json> {
    let mut map = Map::new();
    for field in fields {
        if choices.below(4) > 0 {
            map.insert(field.name.to_string(), value(choices, &field.ty, known));
        }
    }
    if choices.below(32) == 0 {
        map.insert("nobody".to_owned(), Json::Null);
    }
    map
}

fn value(choices: &mut Choices, ty: &Type, known: &[RecordId]) -> Json {
    if choices.below(16) == 0 {
        return [Json::Null, json!(1), json!("x"), json!([]), json!({ "a": [null] })][choices.below(5)].clone();
    }
    match ty {
        Type::Null => Json::Null,
        Type::Bool => json!(choices.coin()),
        Type::Int if choices.coin() => json!(choices.byte()),
        Type::Int => json!(choices.number()),
        Type::Double => json!(f64::from(choices.byte()) / 4.0),
        Type::Text => {
            let text = ["", "a", "originals/1.png", "2026", "é\0"][choices.below(5)];
            json!(text.repeat(1 + choices.below(2) * 63))
        }
        Type::Enum(values) => json!(**choices.pick(values)),
        Type::Time => json!(["2026-11-15T20:00:00Z", "2027-01-01T00:00:00Z", "0001-01-01T00:00:00Z"][choices.below(3)]),
        Type::Duration => json!(["1s", "5m", "0s"][choices.below(3)]),
        Type::Json => json!({ "any": [choices.byte()] }),
        Type::Ref(_) if known.is_empty() => json!("01890000-0000-7000-8000-000000000000"),
        Type::Ref(_) => json!(choices.pick(known).to_string()),
        Type::List(element) => (0..choices.below(4)).map(|_| value(choices, element, known)).collect(),
    }
}
