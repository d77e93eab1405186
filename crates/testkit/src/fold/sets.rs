//! Random sets of operations: honest ones mostly, and all that a careless or lying node might send.

use std::sync::Arc;

use onceward_core::decide::Snapshot;
use onceward_core::fold::{Grant, LogCall, LogOperation, Moment, OperationId, Outside, Standing};
use onceward_core::model::{By, Definitions, EventKind, Row, Type};
use onceward_core::record::Record;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json};

use super::node::id_of;
use super::reference::fold_plainly;
use crate::random::Chance;
use crate::random::values::plausible;

/// Few, so that they meet; two of them are words that random text fields hold too.
const AUTHORS: [&str; 4] = ["ann", "bob", "cyd", "dot"];
/// Operations after which the generator looks at what has come of them, to have records to speak of.
const LOOK_EVERY: usize = 6;

/// What the nodes of a random mesh may do, and how many operations they say.
pub struct Set<'a> {
    pub definitions: &'a Definitions,
    pub capabilities: &'a [&'a str],
    pub size: usize,
}

/// Operations with the standing that counts in the end. Their clocks meet often; some reuse one, build on what is later, on one
/// another in a circle, or on what never comes.
pub fn random_set(set: &Set, outside: &dyn Outside, chance: &mut Chance) -> Vec<(LogOperation, Standing)> {
    let ids: Vec<OperationId> = (0..set.size).map(|_| random_id(chance)).collect();
    let stamps = stamps(set.size, chance);
    let mut said: Vec<(LogOperation, Standing)> = Vec::new();
    let mut records: Vec<Arc<Record>> = Vec::new();
    for at in 0..set.size {
        let (author, moment) = stamps[at].clone();
        let after = dependencies(chance, at, &ids, &stamps);
        let same = said.iter().rfind(|(other, _)| other.moment == moment && other.author != author);
        let call = match same {
            // Two nodes have the same thought at the same time.
            Some((other, _)) if chance.yes(75) => other.call.clone(),
            _ => call(set, chance, &records, moment.wall),
        };
        said.push((LogOperation { id: ids[at], author, moment, after, call }, standing(set, chance)));
        if at % LOOK_EVERY == 0 {
            records = known(&fold_plainly(set.definitions, &said, outside).world);
        }
    }
    // Some never arrive.
    said.retain(|_| !chance.yes(4));
    said
}

/// Authors and clocks that go forward by and large, meet now and then, and in few cases lie.
fn stamps(size: usize, chance: &mut Chance) -> Vec<(Arc<str>, Moment)> {
    let mut stamps: Vec<(Arc<str>, Moment)> = Vec::new();
    let mut second = 1_800_000_000;
    while stamps.len() < size {
        second += i64::from(chance.yes(50));
        let wall = Time::from_secs(second - i64::from(chance.yes(10)) * chance.between(0, 5));
        let stamp = (Arc::from(chance.word(&AUTHORS)), Moment { wall, logical: u32::from(chance.yes(15)) });
        if !stamps.contains(&stamp) || chance.yes(6) {
            stamps.push(stamp);
        }
    }
    stamps
}

fn random_id(chance: &mut Chance) -> OperationId {
    let mut id = [0; 32];
    for part in id.chunks_mut(8) {
        part.copy_from_slice(&chance.next().to_be_bytes());
    }
    OperationId(id)
}

fn dependencies(
    chance: &mut Chance,
    at: usize,
    ids: &[OperationId],
    stamps: &[(Arc<str>, Moment)],
) -> Vec<OperationId> {
    let mut after = Vec::new();
    if !chance.yes(22) {
        return after;
    }
    let earlier: Vec<usize> = (0..ids.len()).filter(|other| stamps[*other].1 < stamps[at].1).collect();
    for _ in 0..=chance.below(2) {
        let honest = chance.pick(&earlier).copied();
        let any = chance.below(ids.len());
        let other = if chance.yes(93) { honest } else { Some(any) };
        after.extend(other.filter(|other| *other != at).map(|other| ids[other]));
    }
    if chance.yes(4) {
        after.push(random_id(chance));
    }
    after
}

pub(super) fn standing(set: &Set, chance: &mut Chance) -> Standing {
    match chance.below(20) {
        0 => Standing::Suspended { why: "the delegation ran out".into() },
        1 => Standing::Withdrawn { why: "revoked".into() },
        _ => {
            let all = chance.yes(85);
            let mut capabilities = set.capabilities.to_vec();
            capabilities.retain(|_| all || chance.yes(50));
            Standing::Held(Grant {
                roles: if chance.yes(90) { vec!["fold".into()] } else { Vec::new() },
                capabilities: capabilities.into_iter().map(Arc::from).collect(),
                user: chance.yes(40),
            })
        }
    }
}

fn known(world: &Snapshot) -> Vec<Arc<Record>> {
    let mut records: Vec<_> = world.records.values().flatten().cloned().collect();
    records.sort_by_key(|record| record.id);
    records
}

fn call(set: &Set, chance: &mut Chance, records: &[Arc<Record>], now: Time) -> LogCall {
    let lifecycles: Vec<_> =
        set.definitions.lifecycles.values().filter(|known| !known.name.starts_with("onceward.")).collect();
    if chance.yes(if records.len() < 6 { 70 } else { 15 }) {
        let lifecycle = chance.pick(&lifecycles).expect("a set of definitions has lifecycles");
        let row = chance.pick(lifecycle.rows(EventKind::Create));
        // A few names, so that two nodes make the same record now and then.
        let id = chance.yes(60).then(|| id_of(&format!("{} {}", lifecycle.name, chance.below(4))));
        let fields = row.map(|row| inputs(chance, records, row, 75, now)).unwrap_or_default();
        return LogCall::Create { lifecycle: Arc::clone(&lifecycle.name), id, fields, payload: None };
    }
    let nobody = LogCall::Fire { record: id_of("nobody"), event: "nothing".into(), input: Map::new() };
    let Some(record) = chance.pick(records) else { return nobody };
    let mut events: Vec<_> = record.lifecycle.events.iter().filter(|event| event.kind == EventKind::Called).collect();
    // Mostly such as somebody would try: what the record takes, and not only from other records.
    let sensible = |row: &Row| row.from.contains(record.state) && row.by != [By::Record];
    if chance.yes(85) {
        events.retain(|event| event.rows.iter().any(sensible));
    }
    let Some(event) = chance.pick(&events) else { return nobody };
    let input = chance.pick(&event.rows).map(|row| inputs(chance, records, row, 60, now)).unwrap_or_default();
    LogCall::Fire { record: record.id, event: Arc::clone(&event.name), input }
}

fn inputs(chance: &mut Chance, records: &[Arc<Record>], row: &Row, percent: u64, now: Time) -> Map<String, Json> {
    let mut given = Map::new();
    for input in &row.inputs {
        let needed = !input.field.nullable && input.field.default.is_none();
        if needed || chance.yes(percent) {
            let fitting = fitting(records, &input.field.ty);
            given.insert(input.field.name.to_string(), plausible(chance, &input.field, now, &fitting));
        }
    }
    given
}

fn fitting(records: &[Arc<Record>], ty: &Type) -> Vec<RecordId> {
    let to = match ty {
        Type::Ref(to) => to,
        Type::List(element) => return fitting(records, element),
        _ => return Vec::new(),
    };
    records.iter().filter(|record| to.contains(&record.lifecycle.name)).map(|record| record.id).collect()
}
