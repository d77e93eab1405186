//! Generates random operations: mostly plausible ones, some that make no sense.

use std::sync::Arc;

use onceward_core::decide::{Call, CreateRecord, FailureReport, Operation};
use onceward_core::model::{EventKind, Lifecycle, StateReadiness, Transition};
use onceward_core::record::{Actor, ExecutionStatus, FencingToken, PayloadRef, Record};
use onceward_core::time::Duration;
use onceward_core::trace::TraceContext;
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json, json};

use super::rng::Rng;
use super::simulation::Simulation;
use super::values::random_value;

/// Enough records to interact, few enough to reach each often.
const MAX_RECORDS: usize = 30;

pub(super) fn random_operation(simulation: &mut Simulation) -> Operation {
    let mut rng = simulation.rng.fork();
    let call = random_call(&mut rng, simulation);
    let actor = match &call {
        Call::Create(_) | Call::Fire { .. } => random_actor(&mut rng),
        Call::FireDue { .. } | Call::LoseLease { .. } => Actor::engine(),
        _ if rng.percent(92) => Actor::new("w1", &["worker"]),
        _ => random_actor(&mut rng),
    };
    let seed = rng.next_seed();
    let trace = rng.percent(30).then(|| random_trace(seed));
    Operation { seed, actor, call, check_answers: Vec::new(), trace }
}

fn random_trace(seed: u128) -> TraceContext {
    let [.., last] = seed.to_be_bytes();
    TraceContext { trace_id: (seed | 1).to_be_bytes(), span_id: [last | 1; 8], flags: last & 1 }
}

fn random_actor(rng: &mut Rng) -> Actor {
    match rng.below(12) {
        0 => Actor::new("op", &["operator"]),
        1 => Actor::new("eve", &["viewer"]),
        2 | 3 => Actor::new("bob", &["producer", "friend"]),
        4 => Actor::new("x", &["producer"]),
        5 => Actor::new("w1", &["worker"]),
        _ => Actor::new("ann", &["producer"]),
    }
}

fn random_call(rng: &mut Rng, simulation: &Simulation) -> Call {
    let few = simulation.records.len() < 4;
    if simulation.records.len() < MAX_RECORDS && rng.percent(if few { 60 } else { 12 }) || simulation.records.is_empty()
    {
        return random_create(rng, simulation);
    }
    match rng.below(100) {
        0..=35 => random_fire(rng, simulation),
        36..=54 => {
            let record = choose_record(rng, simulation, is_leasable);
            let lease = rng.percent(20).then(|| Duration::from_secs(rng.between(-1, 100)));
            Call::Lease { record, worker: "w1".into(), lease, start: rng.percent(50) }
        }
        55..=58 => worker_call(rng, simulation, is_live, |record, token, _| Call::Start { record, token }),
        59..=63 => worker_call(rng, simulation, is_live, |record, token, chance| Call::Heartbeat {
            record,
            token,
            lease: chance.percent(20).then(|| Duration::from_secs(chance.between(-1, 100))),
        }),
        64..=76 => {
            let finish = rng.percent(50);
            worker_call(rng, simulation, is_running, |record, token, chance| Call::Commit {
                record,
                token,
                result: random_result(chance, simulation, record),
                finish,
            })
        }
        77..=81 => worker_call(rng, simulation, is_committed, |record, token, _| Call::Finish { record, token }),
        82..=90 => worker_call(rng, simulation, is_running, |record, token, chance| Call::Fail {
            record,
            token,
            error: random_failure(chance),
        }),
        91..=93 => worker_call(rng, simulation, is_running, |record, token, _| Call::Yield { record, token }),
        94..=96 => worker_call(rng, simulation, is_live, |record, token, _| Call::LoseLease { record, token }),
        _ => Call::FireDue { record: choose_record(rng, simulation, |_| true) },
    }
}

fn random_create(rng: &mut Rng, simulation: &Simulation) -> Call {
    let lifecycles: Vec<&Arc<Lifecycle>> = simulation.definitions.lifecycles.values().collect();
    let own: Vec<_> = lifecycles.iter().filter(|lifecycle| !lifecycle.name.starts_with("onceward.")).copied().collect();
    let from = if rng.percent(97) { own } else { lifecycles };
    let Some(lifecycle) = rng.pick(&from).copied() else {
        return Call::FireDue { record: RecordId(uuid::Uuid::nil()) };
    };
    let rows = lifecycle.transitions(EventKind::Create);
    let fields = rng.pick(rows).map(|row| random_inputs(rng, simulation, row, 60)).unwrap_or_default();
    let bytes = lifecycle.payload_bounds.min_bytes.max(u64::from(rng.percent(10)));
    Call::Create(CreateRecord {
        lifecycle: Arc::clone(&lifecycle.name),
        id: None,
        owner: rng.percent(8).then(|| rng.pick_word(&["ann", "bob"]).into()),
        fields,
        payload: (bytes > 0 && rng.percent(95)).then_some(PayloadRef { sha256: [7; 32], bytes }),
    })
}

fn random_fire(rng: &mut Rng, simulation: &Simulation) -> Call {
    let record = choose_record(rng, simulation, |record| !record.is_final());
    let token = |record: &Record, rng: &mut Rng| rng.percent(90).then_some(FencingToken(record.attempt));
    let Some(found) = simulation.world.record(record) else {
        return Call::Fire { record, event: "told".into(), input: Map::new(), token: None, if_version: None };
    };
    let events: Vec<_> = found.lifecycle.events.iter().filter(|event| event.kind == EventKind::Called).collect();
    let fitting: Vec<_> = events
        .iter()
        .filter(|event| event.transitions.iter().any(|row| row.from.contains(found.state)))
        .copied()
        .collect();
    let pool = if fitting.is_empty() || rng.percent(10) { events } else { fitting };
    let Some(event) = rng.pick(&pool).copied() else {
        return Call::Fire { record, event: "nothing".into(), input: Map::new(), token: None, if_version: None };
    };
    let rows: Vec<&Transition> = event.transitions.iter().filter(|row| row.from.contains(found.state)).collect();
    let input = rng.pick(&rows).map(|row| random_inputs(rng, simulation, row, 40)).unwrap_or_default();
    let leased = found.live_execution().is_some();
    Call::Fire {
        record,
        event: Arc::clone(&event.name),
        input,
        token: if leased && rng.percent(30) { token(found, rng) } else { None },
        if_version: rng.percent(10).then(|| found.version + u64::from(rng.percent(30))),
    }
}

fn random_inputs(rng: &mut Rng, simulation: &Simulation, transition: &Transition, percent: u64) -> Map<String, Json> {
    let mut values = Map::new();
    for input in &transition.inputs {
        let needed = !input.field.nullable && input.field.default.is_none() && input.target_field.is_none();
        if needed || rng.percent(percent) {
            let fitting = matching_refs(simulation, &input.field.ty);
            values.insert(input.field.name.to_string(), random_value(rng, &input.field, simulation.now, &fitting));
        }
    }
    if rng.percent(3) {
        values.insert("stranger".to_owned(), json!(1));
    }
    values
}

fn matching_refs(simulation: &Simulation, ty: &onceward_core::model::DataType) -> Vec<RecordId> {
    use onceward_core::model::DataType;
    let to = match ty {
        DataType::Ref(to) => to,
        DataType::List(element) => match &**element {
            DataType::Ref(to) => to,
            _ => return Vec::new(),
        },
        _ => return Vec::new(),
    };
    let fits = |id: &&RecordId| simulation.world.record(**id).is_some_and(|record| to.contains(&record.lifecycle.name));
    simulation.records.iter().filter(fits).copied().collect()
}

fn random_result(rng: &mut Rng, simulation: &Simulation, record: RecordId) -> Json {
    let work = simulation.world.record(record).and_then(|record| record.lifecycle.work.clone());
    let Some(fields) = work.and_then(|work| work.result) else { return json!({ "free": true }) };
    let mut result = Map::new();
    for field in &fields {
        result.insert(field.name.to_string(), random_value(rng, field, simulation.now, &[]));
    }
    Json::Object(result)
}

fn random_failure(rng: &mut Rng) -> FailureReport {
    FailureReport {
        code: rng.pick_word(&["boom", "busy", "bad", "odd", "lost", "yielded"]).into(),
        message: if rng.percent(10) { "long ".repeat(300).into() } else { "failed".into() },
        retryable: [None, Some(true), Some(false)][rng.below(3)],
        retry_after: rng.percent(30).then(|| Duration::from_secs(rng.between(-5, 4_000_000_000))),
    }
}

/// Returns mostly a record that fits, else any record.
fn choose_record(rng: &mut Rng, simulation: &Simulation, fits: impl Fn(&Record) -> bool) -> RecordId {
    let fitting: Vec<RecordId> = simulation
        .records
        .iter()
        .filter(|id| simulation.world.record(**id).is_some_and(|record| fits(record)))
        .copied()
        .collect();
    if rng.percent(90) && !fitting.is_empty() {
        return rng.pick(&fitting).copied().unwrap_or(fitting[0]);
    }
    if rng.percent(3) {
        return RecordId(uuid::Uuid::from_u128(7));
    }
    rng.pick(&simulation.records).copied().unwrap_or(RecordId(uuid::Uuid::from_u128(7)))
}

/// Returns a worker's call on a record that fits, mostly with the token of its latest lease.
fn worker_call(
    rng: &mut Rng,
    simulation: &Simulation,
    fits: impl Fn(&Record) -> bool,
    make: impl FnOnce(RecordId, FencingToken, &mut Rng) -> Call,
) -> Call {
    let record = choose_record(rng, simulation, fits);
    let newest = simulation.world.record(record).map_or(0, |record| record.attempt);
    let token = if rng.percent(88) { newest } else { rng.next_u64() % (newest + 2) };
    make(record, FencingToken(token), rng)
}

fn is_leasable(record: &Record) -> bool {
    record.live_execution().is_none()
        && record.lifecycle.states[usize::from(record.state)].readiness != StateReadiness::NotReady
}

fn is_live(record: &Record) -> bool {
    record.live_execution().is_some()
}

fn is_running(record: &Record) -> bool {
    record.live_execution().is_some_and(|execution| execution.status != ExecutionStatus::Committed)
}

fn is_committed(record: &Record) -> bool {
    record.live_execution().is_some_and(|execution| execution.status == ExecutionStatus::Committed)
}
