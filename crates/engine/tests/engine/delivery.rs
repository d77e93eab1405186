//! Messages to the outside, posted to a real server on the loopback interface.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::Call;
use onceward_core::record::Record;
use onceward_core::value::{RecordId, Value};
use onceward_engine::{Config, DELIVERY, Engine, Http, Message, NotPosted, Post, Posted, Submission};
use onceward_store::{AnyStore, Clock, ListQuery, Store};
use onceward_testkit::user;
use serde_json::json;
use tokio::net::TcpListener;

use crate::stage::receiver::{Reaction, Receiver};
use crate::stage::{Folder, LONG, object, on_each, open, ops, sqlite, start, unpolled, wait};

async fn letter(engine: &Engine<AnyStore>, to: &str) -> RecordId {
    engine.create(&user("ann"), "race.letter", object(json!({ "to": to }))).await.expect("a letter").subject
}

async fn write(engine: &Engine<AnyStore>, letter: RecordId, text: &str) {
    write_all(engine, letter, &[text]).await;
}

/// In one transaction, and so at one time.
async fn write_all(engine: &Engine<AnyStore>, record: RecordId, texts: &[&str]) {
    let call = |text: &&str| {
        let input = object(json!({ "text": text }));
        let call = Call::Fire { record, event: "write".into(), input, token: None, if_version: None };
        Submission::new(&user("ann"), call)
    };
    for reply in engine.submit_all(texts.iter().map(call).collect()).await.expect("room") {
        reply.expect("written");
    }
}

async fn deliveries(engine: &Engine<AnyStore>) -> Vec<Arc<Record>> {
    let query = ListQuery { lifecycle: Some(DELIVERY.into()), limit: 100, ..ListQuery::default() };
    engine.list(&ops(), &query).await.expect("a list").records
}

async fn states(engine: &Engine<AnyStore>) -> Vec<String> {
    deliveries(engine).await.iter().map(|delivery| delivery.state_name().to_string()).collect()
}

fn last_error(record: &Record) -> String {
    record.field("lastError").map(Value::to_json).and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Lets time pass until every message has come to its end: from one try to the next, while nobody is at any of them.
async fn until_settled(engine: &Engine<AnyStore>, clock: &Clock) {
    let settling = async {
        loop {
            let mut firsts: BTreeMap<String, Arc<Record>> = BTreeMap::new();
            for delivery in deliveries(engine).await.into_iter().filter(|delivery| !delivery.is_final()) {
                let source = delivery.field("source").map(|source| source.to_json().to_string()).unwrap_or_default();
                firsts.entry(source).or_insert(delivery);
            }
            if firsts.is_empty() {
                return;
            }
            let ready_at = |delivery: &Arc<Record>| match delivery.field("readyAt") {
                Some(Value::Time(at)) if delivery.live_execution().is_none() && *at > clock.now() => Some(*at),
                _ => None,
            };
            let tries: Option<Vec<_>> = firsts.values().map(ready_at).collect();
            if let Some(next) = tries.and_then(|tries| tries.into_iter().min()) {
                clock.set(next);
                engine.wake();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(LONG, settling).await.expect("in time");
}

fn text(text: &str) -> String {
    json!({ "text": text }).to_string()
}

/// EXE-16: messages of one record come in their order, each until it is acknowledged; one that is tried again keeps its key, and
/// the next one waits for it.
#[test]
fn in_order_until_acknowledged() {
    on_each(unpolled(), async |engine, clock| {
        let receiver = Receiver::start([Reaction::Answer(500), Reaction::Close, Reaction::Answer(204)]).await;
        let from = letter(engine, &receiver.url()).await;
        write_all(engine, from, &["one", "two", "three"]).await;
        engine.deliver(Http::default(), 4);
        until_settled(engine, clock).await;
        assert_eq!(states(engine).await, ["delivered"; 3]);
        assert_eq!(receiver.bodies(), ["one", "one", "one", "two", "three"].map(text));
        let ids: Vec<String> = deliveries(engine).await.iter().map(|delivery| delivery.id.to_string()).collect();
        let keys: Vec<String> = receiver.came().into_iter().map(|came| came.key).collect();
        assert_eq!(keys, [&ids[0], &ids[0], &ids[0], &ids[1], &ids[2]].map(String::clone));
        let attempts: Vec<String> = receiver.came().into_iter().map(|came| came.attempt).collect();
        assert_eq!(attempts, ["1", "2", "3", "1", "1"]);
    });
}

/// EXE-16: a receiver that never acknowledges leaves the message dead after its budget, for all to see; the next one then has
/// its turn.
#[test]
fn dead_after_its_budget() {
    on_each(unpolled(), async |engine, clock| {
        let receiver = Receiver::start((0..12).map(|_| Reaction::Answer(503))).await;
        let from = letter(engine, &receiver.url()).await;
        write_all(engine, from, &["one", "two"]).await;
        engine.deliver(Http::default(), 1);
        until_settled(engine, clock).await;
        assert_eq!(states(engine).await, ["dead", "delivered"]);
        assert_eq!(receiver.came().len(), 13);
        let dead = &deliveries(engine).await[0];
        assert_eq!(last_error(dead), "the receiver answered 503");
        let counts = engine.counts(&ops()).await.unwrap();
        assert!(counts.iter().any(|count| &*count.state == "dead" && count.count == 1), "to be seen: {counts:?}");
    });
}

/// A process that dies between the post and its commit: whoever comes next posts again, under the same key.
#[test]
fn a_crash_after_the_post() {
    /// Posts, and then hears nothing any more.
    struct Dying(Http);

    impl Post for Dying {
        async fn post(&self, message: Message) -> Result<Posted, NotPosted> {
            let _ = self.0.post(message).await;
            std::future::pending().await
        }
    }

    let (folder, clock) = (Folder::new(), Clock::manual(start()));
    let came = wait(async {
        let engine = open(sqlite(&folder, &clock), unpolled()).await;
        let receiver = Receiver::start([]).await;
        let from = letter(&engine, &receiver.url()).await;
        write(&engine, from, "one").await;
        engine.deliver(Dying(Http::default()), 1);
        receiver.wait_for(1).await;
        assert_eq!(states(&engine).await, ["sending"]);
        (receiver.address, receiver.came())
    });
    wait(async {
        let engine: Engine<AnyStore> = Engine::open(sqlite(&folder, &clock), unpolled());
        let listener = TcpListener::bind(came.0).await.expect("the same address again");
        let receiver = Receiver::at(listener, []);
        engine.deliver(Http::default(), 1);
        until_settled(&engine, &clock).await;
        assert_eq!(states(&engine).await, ["delivered"]);
        let again = receiver.came();
        assert_eq!((again.len(), &again[0].key, &again[0].body), (1, &came.1[0].key, &came.1[0].body));
        assert_eq!((&*came.1[0].attempt, &*again[0].attempt), ("1", "2"));
        engine.close().await;
    });
}

/// Nobody there, nobody who answers, and an answer without end.
#[test]
fn receivers_in_trouble() {
    on_each(unpolled(), async |engine, clock| {
        let absent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = absent.local_addr().unwrap();
        drop(absent);
        let from = letter(engine, &format!("http://{address}/hook")).await;
        write(engine, from, "one").await;
        let worker = engine.deliver(Http::new(Duration::from_secs(2)), 2);
        let tried = async {
            while last_error(&deliveries(engine).await[0]).is_empty() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(LONG, tried).await.expect("nobody is there, and that is told");
        let listener = TcpListener::bind(address).await.expect("the same address");
        let receiver = Receiver::at(listener, [Reaction::Hang, Reaction::Flood]);
        until_settled(engine, clock).await;
        assert_eq!(states(engine).await, ["delivered"]);
        assert_eq!(receiver.came().len(), 2, "one had no answer in time, one was acknowledged");
        worker.close().await;
    });
}

/// What cannot be delivered ever is dead at once; a redirect is not followed; and who asks to be left alone for a while is.
#[test]
fn other_answers() {
    on_each(unpolled(), async |engine, clock| {
        let elsewhere = Receiver::start([]).await;
        for to in ["mail:boss", "http://", "http://not a host/"] {
            let from = letter(engine, to).await;
            write(engine, from, "one").await;
        }
        let gone = Receiver::start([Reaction::Answer(410)]).await;
        let from = letter(engine, &gone.url()).await;
        write(engine, from, "one").await;
        engine.deliver(Http::default(), 1);
        until_settled(engine, clock).await;
        assert_eq!(states(engine).await, ["dead"; 4]);
        assert_eq!(gone.came().len(), 1);

        let there = format!("Location: {}", elsewhere.url());
        let busy =
            Receiver::start([Reaction::With(307, String::leak(there)), Reaction::With(429, "Retry-After: 1800")]).await;
        let from = letter(engine, &busy.url()).await;
        write(engine, from, "one").await;
        until_settled(engine, clock).await;
        let delivered = deliveries(engine).await.pop().unwrap();
        assert_eq!(&**delivered.state_name(), "delivered");
        assert!(elsewhere.came().is_empty());
        assert_eq!(busy.came().len(), 3);
        let waited = delivered.finished_at.unwrap().micros() - delivered.created_at.micros();
        assert!(waited >= 1_800_000_000, "half an hour was asked for: {waited}");
    });
}

/// Deliveries of many records go side by side, and nothing is posted twice.
#[test]
fn many_at_once() {
    on_each(Config::default(), async |engine, clock| {
        let receiver = Receiver::start([]).await;
        let url = receiver.url();
        for number in 0..20 {
            let from = letter(engine, &url).await;
            write(engine, from, &number.to_string()).await;
        }
        engine.deliver(Http::default(), 8);
        until_settled(engine, clock).await;
        let mut bodies = receiver.bodies();
        bodies.sort();
        bodies.dedup();
        assert_eq!((bodies.len(), receiver.came().len()), (20, 20));
        assert!(engine.store().log(0, 1_000).await.unwrap().len() >= 80);
    });
}
