//! Fuzzes operations on one of the shipped systems.

use std::sync::LazyLock;

use onceward_core::decide::{Call, CreateRecord, FailureReport};
use onceward_core::model::{DataType, Definitions, EventKind, FieldDef, Lifecycle};
use onceward_core::record::{Actor, FencingToken, PayloadRef};
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json, json};

use super::choices::ByteChoices;
use crate::{Simulator, systems};

/// More operations find no more bugs and take longer.
const MAX_OPERATIONS: usize = 64;

static SYSTEMS: LazyLock<Vec<Definitions>> = LazyLock::new(|| {
    let thing = systems::load_texts(&[("thing.toml", include_str!("thing.toml"))]);
    let mut all: Vec<_> = ["execution", "document", "image", "mesh"].into_iter().map(systems::load_system).collect();
    all.push(thing);
    all
});

pub(super) fn run(bytes: &[u8]) {
    let mut choices = ByteChoices::new(bytes);
    let definitions = choices.pick(&SYSTEMS).clone();
    let lifecycles: Vec<_> = definitions.lifecycles.values().cloned().collect();
    let mut simulator = Simulator::new(definitions)
        .on_check("image.job", "prompt", |question, _| {
            let hash = question.payload.map_or(0, |payload| payload.sha256[0]);
            json!({ "readable": hash != 8, "pass": hash != 7, "sha256": format!("{hash:064}") })
        })
        .on_check("mesh.node", "chain", |question, _| {
            let known = question.arguments["did"] != "a";
            json!({ "valid": known, "key": "a", "userBearing": known, "why": "" })
        })
        .on_check("fuzz.thing", "deposit", |_, _| json!({ "ok": true, "sum": 5 }));
    let mut record_ids: Vec<RecordId> = Vec::new();
    for _ in 0..MAX_OPERATIONS {
        if choices.is_empty() {
            break;
        }
        let wait = [0, 1, 20, 40, 4_000, 1_000_000][choices.below(6)];
        if choices.next_bool() {
            simulator.advance_by(Duration::from_secs(wait));
        } else {
            simulator.advance_without_engine_by(Duration::from_secs(wait));
        }
        let (actor, call) =
            (random_actor(&mut choices), random_call(&mut choices, &mut simulator, &lifecycles, &record_ids));
        let _ = simulator.call(&actor, call).run();
        record_ids.clear();
        for lifecycle in &lifecycles {
            record_ids.extend(simulator.records_of(&lifecycle.name).iter().map(|record| record.id));
        }
    }
    for lifecycle in &lifecycles {
        for record in simulator.records_of(&lifecycle.name) {
            assert!(
                record.stuck_reason.is_none(),
                "{} passed the analysis, but is stuck: {:?}",
                lifecycle.name,
                record.stuck_reason
            );
        }
    }
}

/// Capabilities of an author of signed operations that may do everything.
const ALL_CAPABILITIES: &[&str] = &[
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

fn random_actor(choices: &mut ByteChoices) -> Actor {
    let id = *choices.pick(&["ann", "bob", "worker-1"]);
    let roles: &[&[&str]] =
        &[&["producer"], &["worker"], &["operator"], &["viewer"], &["producer", "pro"], &["moderator"], &[], &["fold"]];
    let kind = choices.below(roles.len() + 2);
    match roles.get(kind) {
        Some(roles) => Actor::new(id, roles),
        None => Actor {
            capabilities: ALL_CAPABILITIES.iter().map(|one| (*one).into()).collect(),
            user: kind > roles.len(),
            ..Actor::new(id, &[])
        },
    }
}

fn random_call(
    choices: &mut ByteChoices,
    simulator: &mut Simulator,
    lifecycles: &[std::sync::Arc<Lifecycle>],
    record_ids: &[RecordId],
) -> Call {
    let lifecycle = choices.pick(lifecycles);
    if record_ids.is_empty() || choices.below(5) == 0 {
        let fields = lifecycle.transitions(EventKind::Create).iter().flat_map(|row| &row.inputs);
        let fields = random_inputs(choices, &fields.map(|input| input.field.clone()).collect::<Vec<_>>(), record_ids);
        let owner = (choices.below(8) == 0).then(|| "bob".into());
        let payload = choices.next_bool().then(|| simulator.store_payload(&[choices.next_byte()]));
        let payload =
            if choices.below(16) == 0 { Some(PayloadRef { sha256: [0; 32], bytes: u64::MAX }) } else { payload };
        return Call::Create(CreateRecord { lifecycle: lifecycle.name.clone(), id: None, owner, fields, payload });
    }
    let id = *choices.pick(record_ids);
    let record = simulator.record(id);
    let token = match choices.below(4) {
        0 => FencingToken(u64::from(choices.next_byte())),
        _ => FencingToken(record.attempt),
    };
    match choices.below(12) {
        0 | 1 => {
            let lease = (choices.below(4) == 0).then(|| Duration::from_micros(choices.next_i64()));
            Call::Lease { record: id, worker: "worker-1".into(), lease, start: choices.next_bool() }
        }
        2 => Call::Start { record: id, token },
        3 => Call::Heartbeat { record: id, token, lease: None },
        4 => {
            let result = record.lifecycle.work.as_ref().and_then(|work| work.result.clone()).unwrap_or_default();
            let result = Json::Object(random_inputs(choices, &result, record_ids));
            Call::Commit { record: id, token, result, finish: choices.next_bool() }
        }
        5 => Call::Finish { record: id, token },
        6 | 7 => {
            let codes = ["TIMEOUT", "429", "policy", "OCR_FAILURE", "lost", "yielded", "timeout", ""];
            let error = FailureReport {
                code: (*choices.pick(&codes)).into(),
                message: ["failed", "", "\0", "é"][choices.below(4)].repeat(1 + choices.below(3) * 700).into(),
                retryable: [None, Some(true), Some(false)][choices.below(3)],
                retry_after: (choices.below(3) == 0).then(|| Duration::from_micros(choices.next_i64())),
            };
            Call::Fail { record: id, token, error }
        }
        8 => Call::Yield { record: id, token },
        9 => Call::LoseLease { record: id, token },
        10 => Call::FireDue { record: id },
        _ => {
            let events = &record.lifecycle.events;
            let event = choices.pick(events);
            let inputs: Vec<FieldDef> =
                event.transitions.iter().flat_map(|row| &row.inputs).map(|input| input.field.clone()).collect();
            Call::Fire {
                record: id,
                event: event.name.clone(),
                input: random_inputs(choices, &inputs, record_ids),
                token: choices.next_bool().then_some(token),
                if_version: (choices.below(8) == 0).then_some(record.version),
            }
        }
    }
}

/// Returns values for some of the fields; most of them are valid.
fn random_inputs(choices: &mut ByteChoices, fields: &[FieldDef], record_ids: &[RecordId]) -> Map<String, Json> {
    let mut map = Map::new();
    for field in fields {
        if choices.below(4) > 0 {
            map.insert(field.name.to_string(), random_value(choices, &field.ty, record_ids));
        }
    }
    if choices.below(32) == 0 {
        map.insert("unknown".to_owned(), Json::Null);
    }
    map
}

fn random_value(choices: &mut ByteChoices, ty: &DataType, record_ids: &[RecordId]) -> Json {
    if choices.below(16) == 0 {
        return [Json::Null, json!(1), json!("x"), json!([]), json!({ "a": [null] })][choices.below(5)].clone();
    }
    match ty {
        DataType::Null => Json::Null,
        DataType::Bool => json!(choices.next_bool()),
        DataType::Int if choices.next_bool() => json!(choices.next_byte()),
        DataType::Int => json!(choices.next_i64()),
        DataType::Double => json!(f64::from(choices.next_byte()) / 4.0),
        DataType::Text => {
            let text = ["", "a", "originals/1.png", "2026", "é\0"][choices.below(5)];
            json!(text.repeat(1 + choices.below(2) * 63))
        }
        DataType::Enum(values) => json!(**choices.pick(values)),
        DataType::Time => {
            json!(["2026-11-15T20:00:00Z", "2027-01-01T00:00:00Z", "0001-01-01T00:00:00Z"][choices.below(3)])
        }
        DataType::Duration => json!(["1s", "5m", "0s"][choices.below(3)]),
        DataType::Json => json!({ "any": [choices.next_byte()] }),
        DataType::Ref(_) if record_ids.is_empty() => json!("01890000-0000-7000-8000-000000000000"),
        DataType::Ref(_) => json!(choices.pick(record_ids).to_string()),
        DataType::List(element) => (0..choices.below(4)).map(|_| random_value(choices, element, record_ids)).collect(),
    }
}
