//! Generates random sets of operations: mostly honest ones, and everything that a careless or lying node might send.

use std::sync::Arc;

use onceward_core::decide::Snapshot;
use onceward_core::fold::{
    Authority, AuthorityGrant, CheckResolver, HybridTimestamp, LogCall, LogOperation, OperationId,
};
use onceward_core::model::{AllowedCaller, DataType, Definitions, EventKind, Transition};
use onceward_core::record::Record;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json};

use super::operation_builder::named_record_id;
use super::reference::reference_fold;
use crate::random::Rng;
use crate::random::values::random_value;

/// Few authors, so that they conflict. Random text fields also contain two of these names.
const AUTHORS: [&str; 4] = ["ann", "bob", "cyd", "dot"];
/// The generator folds after this many operations, to get records for later operations.
const REFRESH_EVERY_OPERATIONS: usize = 6;

/// The capabilities and the number of operations of a random mesh.
pub struct OperationSetSpec<'a> {
    pub definitions: &'a Definitions,
    pub capabilities: &'a [&'a str],
    pub operation_count: usize,
}

/// Returns operations with their final authority.
///
/// Timestamps are often equal. Some operations reuse a timestamp, or depend on later operations, on each other in a
/// cycle, or on operations that never arrive.
pub fn random_operation_set(
    set: &OperationSetSpec,
    resolver: &dyn CheckResolver,
    rng: &mut Rng,
) -> Vec<(LogOperation, Authority)> {
    let ids: Vec<OperationId> = (0..set.operation_count).map(|_| random_id(rng)).collect();
    let stamps = random_stamps(set.operation_count, rng);
    let mut operations: Vec<(LogOperation, Authority)> = Vec::new();
    let mut records: Vec<Arc<Record>> = Vec::new();
    for index in 0..set.operation_count {
        let (author, moment) = stamps[index].clone();
        let after = dependencies(rng, index, &ids, &stamps);
        let same = operations.iter().rfind(|(other, _)| other.timestamp == moment && other.author != author);
        let call = match same {
            // Two nodes send the same call at the same time.
            Some((other, _)) if rng.percent(75) => other.call.clone(),
            _ => random_call(set, rng, &records, moment.wall_time),
        };
        operations.push((
            LogOperation { id: ids[index], author, timestamp: moment, dependencies: after, call },
            random_authority(set, rng),
        ));
        if index % REFRESH_EVERY_OPERATIONS == 0 {
            records = sorted_records(&reference_fold(set.definitions, &operations, resolver).world);
        }
    }
    // Some never arrive.
    operations.retain(|_| !rng.percent(4));
    operations
}

/// Returns authors and timestamps. Timestamps mostly increase, are sometimes equal, and rarely go back.
fn random_stamps(size: usize, rng: &mut Rng) -> Vec<(Arc<str>, HybridTimestamp)> {
    let mut stamps: Vec<(Arc<str>, HybridTimestamp)> = Vec::new();
    let mut second = 1_800_000_000;
    while stamps.len() < size {
        second += i64::from(rng.percent(50));
        let wall = Time::from_secs(second - i64::from(rng.percent(10)) * rng.between(0, 5));
        let stamp = (
            Arc::from(rng.pick_word(&AUTHORS)),
            HybridTimestamp { wall_time: wall, logical_counter: u32::from(rng.percent(15)) },
        );
        if !stamps.contains(&stamp) || rng.percent(6) {
            stamps.push(stamp);
        }
    }
    stamps
}

fn random_id(rng: &mut Rng) -> OperationId {
    let mut id = [0; 32];
    for part in id.chunks_mut(8) {
        part.copy_from_slice(&rng.next_u64().to_be_bytes());
    }
    OperationId(id)
}

fn dependencies(
    rng: &mut Rng,
    index: usize,
    ids: &[OperationId],
    stamps: &[(Arc<str>, HybridTimestamp)],
) -> Vec<OperationId> {
    let mut after = Vec::new();
    if !rng.percent(22) {
        return after;
    }
    let earlier: Vec<usize> = (0..ids.len()).filter(|other| stamps[*other].1 < stamps[index].1).collect();
    for _ in 0..=rng.below(2) {
        let honest = rng.pick(&earlier).copied();
        let any = rng.below(ids.len());
        let other = if rng.percent(93) { honest } else { Some(any) };
        after.extend(other.filter(|other| *other != index).map(|other| ids[other]));
    }
    if rng.percent(4) {
        after.push(random_id(rng));
    }
    after
}

pub(super) fn random_authority(set: &OperationSetSpec, rng: &mut Rng) -> Authority {
    match rng.below(20) {
        0 => Authority::Suspended { reason: "the delegation expired".into() },
        1 => Authority::Withdrawn { reason: "revoked".into() },
        _ => {
            let all = rng.percent(85);
            let mut capabilities = set.capabilities.to_vec();
            capabilities.retain(|_| all || rng.percent(50));
            Authority::Held(AuthorityGrant {
                roles: if rng.percent(90) { vec!["fold".into()] } else { Vec::new() },
                capabilities: capabilities.into_iter().map(Arc::from).collect(),
                user: rng.percent(40),
            })
        }
    }
}

fn sorted_records(world: &Snapshot) -> Vec<Arc<Record>> {
    let mut records: Vec<_> = world.records.values().flatten().cloned().collect();
    records.sort_by_key(|record| record.id);
    records
}

fn random_call(set: &OperationSetSpec, rng: &mut Rng, records: &[Arc<Record>], now: Time) -> LogCall {
    let lifecycles: Vec<_> =
        set.definitions.lifecycles.values().filter(|known| !known.name.starts_with("onceward.")).collect();
    if rng.percent(if records.len() < 6 { 70 } else { 15 }) {
        let lifecycle = rng.pick(&lifecycles).expect("definitions have at least one lifecycle");
        let row = rng.pick(lifecycle.transitions(EventKind::Create));
        // Few names, so that two nodes sometimes create the same record.
        let id = rng.percent(60).then(|| named_record_id(&format!("{} {}", lifecycle.name, rng.below(4))));
        let fields = row.map(|row| random_inputs(rng, records, row, 75, now)).unwrap_or_default();
        return LogCall::Create { lifecycle: Arc::clone(&lifecycle.name), id, fields, payload: None };
    }
    let fallback = LogCall::Fire { record: named_record_id("unknown"), event: "nothing".into(), input: Map::new() };
    let Some(record) = rng.pick(records) else { return fallback };
    let mut events: Vec<_> = record.lifecycle.events.iter().filter(|event| event.kind == EventKind::Called).collect();
    // Mostly plausible events: accepted in the record's state, and not reserved for other records.
    let sensible =
        |transition: &Transition| transition.from.contains(record.state) && transition.by != [AllowedCaller::Record];
    if rng.percent(85) {
        events.retain(|event| event.transitions.iter().any(sensible));
    }
    let Some(event) = rng.pick(&events) else { return fallback };
    let input = rng.pick(&event.transitions).map(|row| random_inputs(rng, records, row, 60, now)).unwrap_or_default();
    LogCall::Fire { record: record.id, event: Arc::clone(&event.name), input }
}

fn random_inputs(
    rng: &mut Rng,
    records: &[Arc<Record>],
    transition: &Transition,
    percent: u64,
    now: Time,
) -> Map<String, Json> {
    let mut values = Map::new();
    for input in &transition.inputs {
        let needed = !input.field.nullable && input.field.default.is_none();
        if needed || rng.percent(percent) {
            let fitting = matching_records(records, &input.field.ty);
            values.insert(input.field.name.to_string(), random_value(rng, &input.field, now, &fitting));
        }
    }
    values
}

fn matching_records(records: &[Arc<Record>], ty: &DataType) -> Vec<RecordId> {
    let to = match ty {
        DataType::Ref(to) => to,
        DataType::List(element) => return matching_records(records, element),
        _ => return Vec::new(),
    };
    records.iter().filter(|record| to.contains(&record.lifecycle.name)).map(|record| record.id).collect()
}
