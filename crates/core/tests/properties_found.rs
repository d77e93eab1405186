//! What the properties, or reading for them, have found in `decide` and `check`: each in its smallest form.

use onceward_core::check::check;
use onceward_core::compile::compile;
use onceward_core::decide::{Account, Call, Create, Operation};
use onceward_core::diagnostic::{File, Files};
use onceward_core::model::Definitions;
use onceward_core::record::{Actor, ExecutionStatus, Token};
use onceward_core::time::Time;
use onceward_core::value::{RecordId, Value};
use onceward_testkit::random::{Play, Said};
use serde_json::{Map, Value as Json, json};

fn compiled(texts: &[&str]) -> Definitions {
    let files = texts.iter().enumerate().map(|(at, text)| File { name: format!("{at}.toml"), text: (*text).into() });
    let compiled = compile(&Files { files: files.collect() });
    compiled.definitions.unwrap_or_else(|| panic!("{:#?}", compiled.diagnostics))
}

fn play(texts: &[&str]) -> Play {
    Play::new(compiled(texts), true, 1)
}

fn act(play: &mut Play, actor: Actor, call: Call) -> Said {
    let seed = play.chance.seed();
    let operation = Operation { seed, actor, call, answers: Vec::new(), trace: None };
    play.settle(operation, play.now, &mut []).expect("no property is asked")
}

fn create(play: &mut Play, lifecycle: &str, fields: Json) -> RecordId {
    let Json::Object(fields) = fields else { panic!("fields are an object") };
    let create = Create { lifecycle: lifecycle.into(), id: None, owner: None, fields, payload: None };
    assert_eq!(act(play, Actor::new("ann", &["producer"]), Call::Create(create)), Said::Changed);
    *play.records.last().expect("a record was made")
}

fn fire(play: &mut Play, record: RecordId, event: &str) -> Said {
    let call = Call::Fire { record, event: event.into(), input: Map::new(), token: None, if_version: None };
    act(play, Actor::new("ann", &["producer"]), call)
}

fn count(play: &Play, record: RecordId) -> i64 {
    match play.world.record(record).and_then(|record| record.field("count")) {
        Some(Value::Int(count)) => *count,
        other => panic!("a count, not {other:?}"),
    }
}

fn state(play: &Play, record: RecordId) -> String {
    play.world.record(record).expect("it is there").state_name().to_string()
}

/// A row that only moves money between named accounts is no no-op: the money moves, and the record's log tells of it.
#[test]
fn money_that_moves_past_a_record_is_not_lost() {
    let mut play = play(&["
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
    let gift = create(&mut play, "try.gift", json!({}));
    assert_eq!(fire(&mut play, gift, "give"), Said::Changed);
    let fee = Account::Named { asset: "coin".into(), name: "fee".into() };
    assert_eq!(play.world.accounts.get(&fee), Some(&3));
    assert_eq!(play.world.record(gift).map(|record| record.version), Some(2));
}

const PAIR: [&str; 2] = [
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

/// Enter rows run once for each time that a row brings the record into a state, also where what the first row caused
/// has already moved the record on.
#[test]
fn enter_rows_run_once_for_each_entry() {
    let mut play = play(&PAIR);
    let other = create(&mut play, "try.b", json!({}));
    let record = create(&mut play, "try.a", json!({ "other": other.to_string() }));
    assert_eq!(fire(&mut play, record, "step"), Said::Changed);
    assert_eq!((&*state(&play, record), count(&play, record)), ("three", 1));
}

/// Timers have their turn in the order of their times, not of their rows, however late the engine comes.
#[test]
fn the_timer_that_was_due_first_goes_first() {
    let mut play = play(&["
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
    let record = create(&mut play, "try.timers", json!({}));
    play.now = Time::from_micros(play.now.micros() + 7_200_000_000);
    assert_eq!(act(&mut play, Actor::engine(), Call::Due { record }), Said::Changed);
    assert_eq!(state(&play, record), "early");
}

/// A commit that stays holds its record at once: an event that comes back to it out of its own require is not taken, and
/// the finish row still finds it where it was.
#[test]
fn nothing_that_a_commit_causes_moves_its_record_away() {
    let mut play = play(&[
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
        &PAIR[1].replace("try.a", "try.job"),
    ]);
    let other = create(&mut play, "try.b", json!({}));
    let record = create(&mut play, "try.job", json!({ "other": other.to_string() }));
    let worker = || Actor::new("w", &["worker"]);
    let lease = Call::Lease { record, worker: "w".into(), lease: None, start: true };
    assert_eq!(act(&mut play, worker(), lease), Said::Changed);
    let commit = Call::Commit { record, token: Token(1), result: Json::Null, finish: false };
    assert_eq!(act(&mut play, worker(), commit), Said::Changed);
    assert_eq!(state(&play, record), "running");
    assert_eq!(act(&mut play, worker(), Call::Finish { record, token: Token(1) }), Said::Changed);
    assert_eq!(state(&play, record), "done");
    let status =
        play.world.record(record).and_then(|record| record.execution.as_ref()).map(|execution| execution.status);
    assert_eq!(status, Some(ExecutionStatus::Done));
}

/// The checker says how a hold came to be filled, also where that way goes in a circle, and does not go round it for ever.
#[test]
fn a_circle_of_filled_holds_is_told_of_in_finite_time() {
    let definitions = compiled(&["
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
    let codes: Vec<&str> = check(&definitions).iter().map(|found| found.code).collect();
    assert!(codes.contains(&"filled-hold"), "{codes:?}");
}
