//! Random operations: mostly such as somebody would try, some that make no sense.

use std::sync::Arc;

use onceward_core::decide::{Call, Create, ErrorReport, Operation};
use onceward_core::model::{EventKind, Lifecycle, Ready, Row};
use onceward_core::record::{Actor, ExecutionStatus, Payload, Record, Token};
use onceward_core::time::Duration;
use onceward_core::trace::Trace;
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json, json};

use super::chance::Chance;
use super::play::Play;
use super::values::plausible;

/// Enough that records meet, few enough that each is seen often.
const RECORDS: usize = 30;

pub(super) fn operation(play: &mut Play) -> Operation {
    let mut chance = play.chance.fork();
    let call = call(&mut chance, play);
    let actor = match &call {
        Call::Create(_) | Call::Fire { .. } => somebody(&mut chance),
        Call::Due { .. } | Call::Lost { .. } => Actor::engine(),
        _ if chance.yes(92) => Actor::new("w1", &["worker"]),
        _ => somebody(&mut chance),
    };
    let seed = chance.seed();
    let trace = chance.yes(30).then(|| trace(seed));
    Operation { seed, actor, call, answers: Vec::new(), trace }
}

fn trace(seed: u128) -> Trace {
    let [.., last] = seed.to_be_bytes();
    Trace { id: (seed | 1).to_be_bytes(), span: [last | 1; 8], flags: last & 1 }
}

fn somebody(chance: &mut Chance) -> Actor {
    match chance.below(12) {
        0 => Actor::new("op", &["operator"]),
        1 => Actor::new("eve", &["viewer"]),
        2 | 3 => Actor::new("bob", &["producer", "friend"]),
        4 => Actor::new("x", &["producer"]),
        5 => Actor::new("w1", &["worker"]),
        _ => Actor::new("ann", &["producer"]),
    }
}

fn call(chance: &mut Chance, play: &Play) -> Call {
    let few = play.records.len() < 4;
    if play.records.len() < RECORDS && chance.yes(if few { 60 } else { 12 }) || play.records.is_empty() {
        return create(chance, play);
    }
    match chance.below(100) {
        0..=35 => fire(chance, play),
        36..=54 => {
            let record = choose(chance, play, leasable);
            let lease = chance.yes(20).then(|| Duration::from_secs(chance.between(-1, 100)));
            Call::Lease { record, worker: "w1".into(), lease, start: chance.yes(50) }
        }
        55..=58 => with_token(chance, play, is_live, |record, token, _| Call::Start { record, token }),
        59..=63 => with_token(chance, play, is_live, |record, token, chance| Call::Heartbeat {
            record,
            token,
            lease: chance.yes(20).then(|| Duration::from_secs(chance.between(-1, 100))),
        }),
        64..=76 => {
            let finish = chance.yes(50);
            with_token(chance, play, is_running, |record, token, chance| Call::Commit {
                record,
                token,
                result: result(chance, play, record),
                finish,
            })
        }
        77..=81 => with_token(chance, play, is_committed, |record, token, _| Call::Finish { record, token }),
        82..=90 => with_token(chance, play, is_running, |record, token, chance| Call::Fail {
            record,
            token,
            error: error(chance),
        }),
        91..=93 => with_token(chance, play, is_running, |record, token, _| Call::Yield { record, token }),
        94..=96 => with_token(chance, play, is_live, |record, token, _| Call::Lost { record, token }),
        _ => Call::Due { record: choose(chance, play, |_| true) },
    }
}

fn create(chance: &mut Chance, play: &Play) -> Call {
    let lifecycles: Vec<&Arc<Lifecycle>> = play.definitions.lifecycles.values().collect();
    let own: Vec<_> = lifecycles.iter().filter(|lifecycle| !lifecycle.name.starts_with("onceward.")).copied().collect();
    let from = if chance.yes(97) { own } else { lifecycles };
    let Some(lifecycle) = chance.pick(&from).copied() else {
        return Call::Due { record: RecordId(uuid::Uuid::nil()) };
    };
    let rows = lifecycle.rows(EventKind::Create);
    let fields = chance.pick(rows).map(|row| inputs(chance, play, row, 60)).unwrap_or_default();
    let bytes = lifecycle.payload.min.max(u64::from(chance.yes(10)));
    Call::Create(Create {
        lifecycle: Arc::clone(&lifecycle.name),
        id: None,
        owner: chance.yes(8).then(|| chance.word(&["ann", "bob"]).into()),
        fields,
        payload: (bytes > 0 && chance.yes(95)).then_some(Payload { sha256: [7; 32], bytes }),
    })
}

fn fire(chance: &mut Chance, play: &Play) -> Call {
    let record = choose(chance, play, |record| !record.is_final());
    let token = |record: &Record, chance: &mut Chance| chance.yes(90).then_some(Token(record.attempt));
    let Some(found) = play.world.record(record) else {
        return Call::Fire { record, event: "told".into(), input: Map::new(), token: None, if_version: None };
    };
    let events: Vec<_> = found.lifecycle.events.iter().filter(|event| event.kind == EventKind::Called).collect();
    let fitting: Vec<_> =
        events.iter().filter(|event| event.rows.iter().any(|row| row.from.contains(found.state))).copied().collect();
    let pool = if fitting.is_empty() || chance.yes(10) { events } else { fitting };
    let Some(event) = chance.pick(&pool).copied() else {
        return Call::Fire { record, event: "nothing".into(), input: Map::new(), token: None, if_version: None };
    };
    let rows: Vec<&Row> = event.rows.iter().filter(|row| row.from.contains(found.state)).collect();
    let input = chance.pick(&rows).map(|row| inputs(chance, play, row, 40)).unwrap_or_default();
    let leased = found.live_execution().is_some();
    Call::Fire {
        record,
        event: Arc::clone(&event.name),
        input,
        token: if leased && chance.yes(30) { token(found, chance) } else { None },
        if_version: chance.yes(10).then(|| found.version + u64::from(chance.yes(30))),
    }
}

fn inputs(chance: &mut Chance, play: &Play, row: &Row, percent: u64) -> Map<String, Json> {
    let mut given = Map::new();
    for input in &row.inputs {
        let needed = !input.field.nullable && input.field.default.is_none() && input.take.is_none();
        if needed || chance.yes(percent) {
            let fitting = fitting_refs(play, &input.field.ty);
            given.insert(input.field.name.to_string(), plausible(chance, &input.field, play.now, &fitting));
        }
    }
    if chance.yes(3) {
        given.insert("stranger".to_owned(), json!(1));
    }
    given
}

fn fitting_refs(play: &Play, ty: &onceward_core::model::Type) -> Vec<RecordId> {
    use onceward_core::model::Type;
    let to = match ty {
        Type::Ref(to) => to,
        Type::List(element) => match &**element {
            Type::Ref(to) => to,
            _ => return Vec::new(),
        },
        _ => return Vec::new(),
    };
    let fits = |id: &&RecordId| play.world.record(**id).is_some_and(|record| to.contains(&record.lifecycle.name));
    play.records.iter().filter(fits).copied().collect()
}

fn result(chance: &mut Chance, play: &Play, record: RecordId) -> Json {
    let work = play.world.record(record).and_then(|record| record.lifecycle.work.clone());
    let Some(fields) = work.and_then(|work| work.result) else { return json!({ "free": true }) };
    let mut result = Map::new();
    for field in &fields {
        result.insert(field.name.to_string(), plausible(chance, field, play.now, &[]));
    }
    Json::Object(result)
}

fn error(chance: &mut Chance) -> ErrorReport {
    ErrorReport {
        code: chance.word(&["boom", "busy", "bad", "odd", "lost", "yielded"]).into(),
        message: if chance.yes(10) { "long ".repeat(300).into() } else { "it broke".into() },
        retryable: [None, Some(true), Some(false)][chance.below(3)],
        retry_after: chance.yes(30).then(|| Duration::from_secs(chance.between(-5, 4_000_000_000))),
    }
}

/// A record that fits, mostly; else any.
fn choose(chance: &mut Chance, play: &Play, fits: impl Fn(&Record) -> bool) -> RecordId {
    let fitting: Vec<RecordId> =
        play.records.iter().filter(|id| play.world.record(**id).is_some_and(|record| fits(record))).copied().collect();
    if chance.yes(90) && !fitting.is_empty() {
        return chance.pick(&fitting).copied().unwrap_or(fitting[0]);
    }
    if chance.yes(3) {
        return RecordId(uuid::Uuid::from_u128(7));
    }
    chance.pick(&play.records).copied().unwrap_or(RecordId(uuid::Uuid::from_u128(7)))
}

/// A worker's call on a record that fits, mostly with the token of its newest lease.
fn with_token(
    chance: &mut Chance,
    play: &Play,
    fits: impl Fn(&Record) -> bool,
    make: impl FnOnce(RecordId, Token, &mut Chance) -> Call,
) -> Call {
    let record = choose(chance, play, fits);
    let newest = play.world.record(record).map_or(0, |record| record.attempt);
    let token = if chance.yes(88) { newest } else { chance.next() % (newest + 2) };
    make(record, Token(token), chance)
}

fn leasable(record: &Record) -> bool {
    record.live_execution().is_none() && record.lifecycle.states[usize::from(record.state)].ready != Ready::No
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
