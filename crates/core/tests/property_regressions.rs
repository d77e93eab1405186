//! Regression tests for bugs in `decide` and static analysis that the properties found, in minimal form.

use onceward_core::analysis::analyze;
use onceward_core::compile::compile;
use onceward_core::decide::{Account, Call, CreateRecord, Operation};
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::model::Definitions;
use onceward_core::record::{Actor, ExecutionStatus, FencingToken};
use onceward_core::time::Time;
use onceward_core::value::{RecordId, Value};
use onceward_testkit::random::{OperationResult, Simulation};
use serde_json::{Map, Value as Json, json};

fn compile_texts(texts: &[&str]) -> Definitions {
    let files =
        texts.iter().enumerate().map(|(at, text)| InputFile { name: format!("{at}.toml"), text: (*text).into() });
    let compiled = compile(&InputFiles { files: files.collect() });
    compiled.definitions.unwrap_or_else(|| panic!("{:#?}", compiled.diagnostics))
}

fn new_simulation(texts: &[&str]) -> Simulation {
    Simulation::new(compile_texts(texts), true, 1)
}

fn submit(simulation: &mut Simulation, actor: Actor, call: Call) -> OperationResult {
    let seed = simulation.rng.next_seed();
    let operation = Operation { seed, actor, call, check_answers: Vec::new(), trace: None };
    simulation.decide_and_apply(operation, simulation.now, &mut []).expect("properties have no external checks")
}

fn create_record(simulation: &mut Simulation, lifecycle: &str, fields: Json) -> RecordId {
    let Json::Object(fields) = fields else { panic!("fields are an object") };
    let create = CreateRecord { lifecycle: lifecycle.into(), id: None, owner: None, fields, payload: None };
    assert_eq!(submit(simulation, Actor::new("ann", &["producer"]), Call::Create(create)), OperationResult::Changed);
    *simulation.records.last().expect("a record was created")
}

fn fire_event(simulation: &mut Simulation, record: RecordId, event: &str) -> OperationResult {
    let call = Call::Fire { record, event: event.into(), input: Map::new(), token: None, if_version: None };
    submit(simulation, Actor::new("ann", &["producer"]), call)
}

fn record_count(simulation: &Simulation, record: RecordId) -> i64 {
    match simulation.world.record(record).and_then(|record| record.field("count")) {
        Some(Value::Int(count)) => *count,
        other => panic!("expected an int, got {other:?}"),
    }
}

fn record_state(simulation: &Simulation, record: RecordId) -> String {
    simulation.world.record(record).expect("it exists").state_name().to_string()
}

/// Such a transition is not a no-op: the record's log has the transfer.
#[test]
fn transfer_between_named_accounts_changes_balance_and_version() {
    let mut simulation = new_simulation(&["
        language = 1
        lifecycle = 'try.gift'
        asset = 'coin'
        outside = ['world']
        [states]
        open = { rest = true }
        [[on.create]]
        go = '-> open'
        [[on.give]]
        go = 'open'
        move = [{ from = 'world', to = 'fee', amount = '3' }]
    "]);
    let gift = create_record(&mut simulation, "try.gift", json!({}));
    assert_eq!(fire_event(&mut simulation, gift, "give"), OperationResult::Changed);
    let fee = Account::Named { asset: "coin".into(), name: "fee".into() };
    assert_eq!(simulation.world.accounts.get(&fee), Some(&3));
    assert_eq!(simulation.world.record(gift).map(|record| record.version), Some(2));
}

const PING_PONG_LIFECYCLES: [&str; 2] = [
    "
        language = 1
        lifecycle = 'try.a'
        [states]
        one = { rest = true }
        two = { rest = true }
        three = { rest = true }
        [fields]
        count = { type = 'int', default = 0 }
        other = { type = 'ref', to = 'try.b', optional = true }
        [[on.create]]
        go = '-> one'
        take = ['other']
        [[on.step]]
        go = 'one -> two'
        cascade = [{ to = 'record.other', event = 'ping', input = { from = 'record.id' } }]
        [[on.pong]]
        go = 'two -> three'
        [[on.enter]]
        go = 'three'
        set = { count = 'record.count + 1' }
    ",
    "
        language = 1
        lifecycle = 'try.b'
        [states]
        open = { rest = true }
        [[on.create]]
        go = '-> open'
        [[on.ping]]
        go = 'open'
        input = { from = { type = 'ref', to = 'try.a' } }
        cascade = [{ to = 'input.from', event = 'pong' }]
    ",
];

/// Applies even if the actions of the first transition have already moved the record on.
#[test]
fn enter_transitions_run_once_per_state_entry() {
    let mut simulation = new_simulation(&PING_PONG_LIFECYCLES);
    let other = create_record(&mut simulation, "try.b", json!({}));
    let record = create_record(&mut simulation, "try.a", json!({ "other": other.to_string() }));
    assert_eq!(fire_event(&mut simulation, record, "step"), OperationResult::Changed);
    assert_eq!((&*record_state(&simulation, record), record_count(&simulation, record)), ("three", 1));
}

#[test]
fn earliest_due_timer_fires_first_regardless_of_file_order() {
    let mut simulation = new_simulation(&["
        language = 1
        lifecycle = 'try.timers'
        [states]
        open = { rest = true }
        late = { final = true }
        early = { final = true }
        [[on.create]]
        go = '-> open'
        [[on.time]]
        go = 'open -> late'
        after = '1h'
        [[on.time]]
        go = 'open -> early'
        after = '1s'
    "]);
    let record = create_record(&mut simulation, "try.timers", json!({}));
    simulation.now = Time::from_micros(simulation.now.micros() + 7_200_000_000);
    assert_eq!(submit(&mut simulation, Actor::engine(), Call::FireDue { record }), OperationResult::Changed);
    assert_eq!(record_state(&simulation, record), "early");
}

/// The event returns from the commit's own `require` and is not taken. The finish transition finds the record in the
/// committed state.
#[test]
fn event_caused_by_commit_does_not_move_committed_record() {
    let mut simulation = new_simulation(&[
        "
        language = 1
        lifecycle = 'try.job'
        [states]
        queued = { ready = true }
        running = {}
        done = { final = true }
        gone = { final = true }
        [fields]
        other = { type = 'ref', to = 'try.b', optional = true }
        [work]
        lease = '30s'
        [[on.create]]
        go = '-> queued'
        take = ['other']
        [[on.lease]]
        go = 'queued -> running'
        [[on.commit]]
        go = 'running'
        require = [{ to = 'record.other', event = 'ping', input = { from = 'record.id' } }]
        [[on.finish]]
        go = 'running -> done'
        [[on.fail]]
        go = 'running -> gone'
        [[on.pong]]
        go = 'running -> gone'
        ",
        &PING_PONG_LIFECYCLES[1].replace("try.a", "try.job"),
    ]);
    let other = create_record(&mut simulation, "try.b", json!({}));
    let record = create_record(&mut simulation, "try.job", json!({ "other": other.to_string() }));
    let worker = || Actor::new("w", &["worker"]);
    let lease = Call::Lease { record, worker: "w".into(), lease: None, start: true };
    assert_eq!(submit(&mut simulation, worker(), lease), OperationResult::Changed);
    let commit = Call::Commit { record, token: FencingToken(1), result: Json::Null, finish: false };
    assert_eq!(submit(&mut simulation, worker(), commit), OperationResult::Changed);
    assert_eq!(record_state(&simulation, record), "running");
    assert_eq!(
        submit(&mut simulation, worker(), Call::Finish { record, token: FencingToken(1) }),
        OperationResult::Changed
    );
    assert_eq!(record_state(&simulation, record), "done");
    let status =
        simulation.world.record(record).and_then(|record| record.execution.as_ref()).map(|execution| execution.status);
    assert_eq!(status, Some(ExecutionStatus::Done));
}

/// The diagnostic shows how the hold was filled, even if that path has a cycle, and the analysis ends.
#[test]
fn cycle_with_filled_hold_is_diagnosed() {
    let definitions = compile_texts(&["
        language = 1
        lifecycle = 'try.circle'
        asset = 'coin'
        outside = ['world']
        [states]
        one = { rest = true }
        two = { rest = true }
        done = { final = true }
        [[on.create]]
        go = '-> one'
        [[on.fill]]
        go = 'one -> two'
        move = [{ from = 'world', to = 'hold', amount = '3' }]
        [[on.back]]
        go = 'two -> one'
        [[on.end]]
        go = 'two -> done'
    "]);
    let codes: Vec<&str> = analyze(&definitions).iter().map(|found| found.code).collect();
    assert!(codes.contains(&"filled-hold"), "{codes:?}");
}
