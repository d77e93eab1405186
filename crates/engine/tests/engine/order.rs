//! Messages of one record go out in the order of its log, also where all of them are of one moment.

use std::collections::BTreeMap;

use onceward_core::decide::{Call, Create};
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_engine::{Checks, Config, Engine, Http, Submission};
use onceward_store::{AnyStore, Clock, MemoryStore};
use onceward_testkit::postgres::Server;
use onceward_testkit::user;
use serde_json::{Value as Json, json};

use crate::stage::receiver::Receiver;
use crate::stage::{new_job, object, on_each, open, postgres, start, unpolled, wait};

/// By chance alone so many do not all come right.
const BELLS: usize = 12;

fn after(seconds: i64) -> Time {
    start().checked_add(Duration::from_secs(seconds)).expect("a time")
}

fn quiet() -> Config {
    let awake = Checks::default().on("race.bell", "awake", |_| async { Ok(object(json!({ "fine": true }))) });
    Config { checks: awake, ..unpolled() }
}

/// Bells whose times come after a minute and after two.
async fn bells(engine: &Engine<AnyStore>, to: &str) -> Vec<RecordId> {
    let fields = object(json!({ "to": to, "first": after(60).to_string(), "second": after(120).to_string() }));
    let create = Create { lifecycle: "race.bell".into(), id: None, owner: None, fields: fields.clone(), payload: None };
    let calls = (0..BELLS).map(|_| Submission::new(&user("ann"), Call::Create(create.clone()))).collect();
    let made = engine.submit_all(calls).await.expect("room");
    made.into_iter().map(|reply| reply.expect("a bell").subject).collect()
}

fn fire(record: RecordId, event: &str, input: Json) -> Submission {
    let call = Call::Fire { record, event: event.into(), input: object(input), token: None, if_version: None };
    Submission::new(&user("ann"), call)
}

async fn ring(engine: &Engine<AnyStore>, bells: &[RecordId], stroke: &str) {
    for bell in bells {
        engine.submit(fire(*bell, "ring", json!({ "stroke": stroke }))).await.expect("it rings");
    }
}

/// What was heard of each bell, in the order in which it came.
async fn heard(receiver: &Receiver, bells: &[RecordId], strokes: &[&str]) {
    receiver.wait_for(bells.len() * strokes.len()).await;
    let mut heard: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for body in receiver.bodies() {
        let body: Json = serde_json::from_str(&body).expect("JSON");
        let of = |name: &str| body[name].as_str().expect("text").to_owned();
        heard.entry(of("bell")).or_default().push(of("stroke"));
    }
    for bell in bells {
        assert_eq!(heard[&bell.to_string()], strokes, "of one bell");
    }
}

/// EXE-16: a timed row is decided before the call that finds it due; so goes what they send.
#[test]
fn a_timer_before_the_call_that_finds_it_due() {
    on_each(quiet(), async |engine, clock| {
        let receiver = Receiver::start([]).await;
        let bells = bells(engine, &receiver.url()).await;
        clock.set(after(60));
        ring(engine, &bells, "call").await;
        engine.deliver(Http::default(), 4);
        heard(&receiver, &bells, &["first", "call", "call again"]).await;
    });
}

/// EXE-16: two timers that are long due go in their order, and then whatever is asked, one call after another.
#[test]
fn timers_that_are_caught_up() {
    on_each(quiet(), async |engine, clock| {
        let receiver = Receiver::start([]).await;
        let bells = bells(engine, &receiver.url()).await;
        clock.set(after(3_600));
        ring(engine, &bells, "one").await;
        ring(engine, &bells, "two").await;
        engine.deliver(Http::default(), 4);
        heard(&receiver, &bells, &["first", "second", "one", "one again", "two", "two again"]).await;
    });
}

/// EXE-16: an operation whose question was answered stood far back in the batch that it left; what comes after it alone does not
/// overtake it.
#[test]
fn an_answered_question_beside_a_neighbour() {
    on_each(quiet(), async |engine, _| {
        let receiver = Receiver::start([]).await;
        let bells = bells(engine, &receiver.url()).await;
        let mut calls: Vec<Submission> = (0..20).map(|_| new_job()).collect();
        calls.extend(bells.iter().map(|bell| fire(*bell, "wake", json!({}))));
        for reply in engine.submit_all(calls).await.expect("room") {
            reply.expect("taken");
        }
        ring(engine, &bells, "call").await;
        engine.deliver(Http::default(), 4);
        heard(&receiver, &bells, &["wake", "call", "call again"]).await;
    });
}

/// EXE-16: two processes whose clocks are apart: the one that is behind decides at the time of the one that is ahead, and its
/// messages go second all the same.
#[test]
fn two_processes_whose_clocks_are_apart() {
    wait(async {
        let url = Server::shared().database();
        let (ahead, behind) = (Clock::manual(after(30)), Clock::manual(start()));
        let first = open(postgres(&url, &ahead).await, quiet()).await;
        let second = open(postgres(&url, &behind).await, quiet()).await;
        let receiver = Receiver::start([]).await;
        let bells = bells(&second, &receiver.url()).await;
        ring(&first, &bells, "one").await;
        ring(&second, &bells, "two").await;
        ring(&first, &bells, "three").await;
        first.deliver(Http::default(), 4);
        heard(&receiver, &bells, &["one", "one again", "two", "two again", "three", "three again"]).await;
        first.close().await;
        second.close().await;
    });
}

/// A clock that was set back: until it has caught up all that happens to a record is of one time.
#[test]
fn a_clock_that_was_set_back() {
    wait(async {
        let clock = Clock::manual(after(30));
        let engine = open(AnyStore::Memory(MemoryStore::new(clock.clone())), quiet()).await;
        let receiver = Receiver::start([]).await;
        let bells = bells(&engine, &receiver.url()).await;
        ring(&engine, &bells, "one").await;
        clock.set(start());
        ring(&engine, &bells, "two").await;
        clock.set(after(30));
        engine.deliver(Http::default(), 4);
        heard(&receiver, &bells, &["one", "one again", "two", "two again"]).await;
        engine.close().await;
    });
}
