//! Messages of one record are delivered in the order of its log, even if all have the same time.

use std::collections::BTreeMap;

use onceward_core::decide::{Call, CreateRecord};
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_engine::{CheckRegistry, Engine, EngineConfig, Submission};
use onceward_store::{AnyStore, Clock, MemoryStore};
use onceward_testkit::postgres::PostgresServer;
use onceward_testkit::user;
use serde_json::{Value as Json, json};

use crate::support::http_receiver::{HttpReceiver, loopback_transport};
use crate::support::{
    config_without_polling, json_object, new_job_submission, on_each_store, open_engine, open_postgres, start_time,
};

/// Too many to be in order by chance.
const BELL_COUNT: usize = 12;

fn seconds_after_start(seconds: i64) -> Time {
    start_time().checked_add(Duration::from_secs(seconds)).expect("a time")
}

fn bell_config() -> EngineConfig {
    let awake =
        CheckRegistry::default().register("race.bell", "awake", |_| async { Ok(json_object(json!({ "fine": true }))) });
    EngineConfig { checks: awake, ..config_without_polling() }
}

/// Creates bells that ring after one minute and after two.
async fn create_bells(engine: &Engine<AnyStore>, to: &str) -> Vec<RecordId> {
    let fields = json_object(
        json!({ "to": to, "first": seconds_after_start(60).to_string(), "second": seconds_after_start(120).to_string() }),
    );
    let create =
        CreateRecord { lifecycle: "race.bell".into(), id: None, owner: None, fields: fields.clone(), payload: None };
    let calls = (0..BELL_COUNT).map(|_| Submission::new(&user("ann"), Call::Create(create.clone()))).collect();
    let made = engine.submit_all(calls).await.expect("room");
    made.into_iter().map(|reply| reply.expect("a bell").subject).collect()
}

fn fire_event(record: RecordId, event: &str, input: Json) -> Submission {
    let call = Call::Fire { record, event: event.into(), input: json_object(input), token: None, if_version: None };
    Submission::new(&user("ann"), call)
}

async fn ring_bells(engine: &Engine<AnyStore>, bells: &[RecordId], stroke: &str) {
    for bell in bells {
        engine.submit(fire_event(*bell, "ring", json!({ "stroke": stroke }))).await.expect("the event is taken");
    }
}

/// Asserts what was received of each bell, in order of arrival.
async fn assert_strokes(receiver: &HttpReceiver, bells: &[RecordId], strokes: &[&str]) {
    receiver.wait_for(bells.len() * strokes.len()).await;
    let mut strokes_by_bell: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for body in receiver.bodies() {
        let body: Json = serde_json::from_str(&body).expect("JSON");
        let of = |name: &str| body[name].as_str().expect("text").to_owned();
        strokes_by_bell.entry(of("bell")).or_default().push(of("stroke"));
    }
    for bell in bells {
        assert_eq!(strokes_by_bell[&bell.to_string()], strokes, "the deliveries of one record arrive in order");
    }
}

/// EXE-16
#[test]
fn due_timer_delivers_before_the_triggering_call() {
    on_each_store(bell_config(), async |engine, clock| {
        let receiver = HttpReceiver::start([]).await;
        let bells = create_bells(engine, &receiver.url()).await;
        clock.set(seconds_after_start(60));
        ring_bells(engine, &bells, "call").await;
        engine.start_deliveries(loopback_transport(), 4);
        assert_strokes(&receiver, &bells, &["first", "call", "call again"]).await;
    });
}

/// EXE-16
#[test]
fn overdue_timers_deliver_in_order_before_calls() {
    on_each_store(bell_config(), async |engine, clock| {
        let receiver = HttpReceiver::start([]).await;
        let bells = create_bells(engine, &receiver.url()).await;
        clock.set(seconds_after_start(3_600));
        ring_bells(engine, &bells, "one").await;
        ring_bells(engine, &bells, "two").await;
        engine.start_deliveries(loopback_transport(), 4);
        assert_strokes(&receiver, &bells, &["first", "second", "one", "one again", "two", "two again"]).await;
    });
}

/// EXE-16: the call left its batch from a late index; a later single call does not overtake it.
#[test]
fn call_with_check_delivers_before_later_calls() {
    on_each_store(bell_config(), async |engine, _| {
        let receiver = HttpReceiver::start([]).await;
        let bells = create_bells(engine, &receiver.url()).await;
        let mut calls: Vec<Submission> = (0..20).map(|_| new_job_submission()).collect();
        calls.extend(bells.iter().map(|bell| fire_event(*bell, "wake", json!({}))));
        for reply in engine.submit_all(calls).await.expect("room") {
            reply.expect("taken");
        }
        ring_bells(engine, &bells, "call").await;
        engine.start_deliveries(loopback_transport(), 4);
        assert_strokes(&receiver, &bells, &["wake", "call", "call again"]).await;
    });
}

/// EXE-16: the engine whose clock is behind decides at the time of the other, and its messages still come second.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn deliveries_keep_order_across_skewed_clocks() {
    let url = PostgresServer::shared().create_database();
    let (ahead, behind) = (Clock::manual(seconds_after_start(30)), Clock::manual(start_time()));
    let first = open_engine(open_postgres(&url, &ahead).await, bell_config()).await;
    let second = open_engine(open_postgres(&url, &behind).await, bell_config()).await;
    let receiver = HttpReceiver::start([]).await;
    let bells = create_bells(&second, &receiver.url()).await;
    ring_bells(&first, &bells, "one").await;
    ring_bells(&second, &bells, "two").await;
    ring_bells(&first, &bells, "three").await;
    first.start_deliveries(loopback_transport(), 4);
    assert_strokes(&receiver, &bells, &["one", "one again", "two", "two again", "three", "three again"]).await;
    first.close().await;
    second.close().await;
}

/// Until the clock has caught up, all changes of a record have the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn deliveries_keep_order_after_clock_steps_back() {
    let clock = Clock::manual(seconds_after_start(30));
    let engine = open_engine(AnyStore::Memory(MemoryStore::new(clock.clone())), bell_config()).await;
    let receiver = HttpReceiver::start([]).await;
    let bells = create_bells(&engine, &receiver.url()).await;
    ring_bells(&engine, &bells, "one").await;
    clock.set(start_time());
    ring_bells(&engine, &bells, "two").await;
    clock.set(seconds_after_start(30));
    engine.start_deliveries(loopback_transport(), 4);
    assert_strokes(&receiver, &bells, &["one", "one again", "two", "two again"]).await;
    engine.close().await;
}
