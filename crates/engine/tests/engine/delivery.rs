//! Deliveries to a real HTTP server on the loopback interface.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::Call;
use onceward_core::record::Record;
use onceward_core::value::{RecordId, Value};
use onceward_engine::{
    DELIVERY_LIFECYCLE, DeliveryError, DeliveryRequest, DeliveryResponse, DeliveryTransport, Engine, EngineConfig,
    HttpTransport, HttpTransportConfig, Submission,
};
use onceward_store::{AnyStore, Clock, ListQuery, Store};
use onceward_testkit::user;
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::http_receiver::{HttpReceiver, ReceiverReaction, loopback_transport};
use crate::support::{
    TEST_TIMEOUT, TempDir, block_on, config_without_polling, json_object, on_each_store, open_engine, open_sqlite,
    operator_actor, start_time,
};

async fn create_letter(engine: &Engine<AnyStore>, to: &str) -> RecordId {
    engine.create(&user("ann"), "race.letter", json_object(json!({ "to": to }))).await.expect("a letter").subject
}

async fn write_letter(engine: &Engine<AnyStore>, letter: RecordId, text: &str) {
    write_letters(engine, letter, &[text]).await;
}

/// In one transaction, so at one time.
async fn write_letters(engine: &Engine<AnyStore>, record: RecordId, texts: &[&str]) {
    let call = |text: &&str| {
        let input = json_object(json!({ "text": text }));
        let call = Call::Fire { record, event: "write".into(), input, token: None, if_version: None };
        Submission::new(&user("ann"), call)
    };
    for reply in engine.submit_all(texts.iter().map(call).collect()).await.expect("room") {
        reply.expect("written");
    }
}

async fn list_deliveries(engine: &Engine<AnyStore>) -> Vec<Arc<Record>> {
    let query = ListQuery { lifecycle: Some(DELIVERY_LIFECYCLE.into()), limit: 100, ..ListQuery::default() };
    engine.list(&operator_actor(), &query).await.expect("a list").records
}

async fn delivery_states(engine: &Engine<AnyStore>) -> Vec<String> {
    list_deliveries(engine).await.iter().map(|delivery| delivery.state_name().to_string()).collect()
}

fn last_error(record: &Record) -> String {
    record.field("lastError").map(Value::to_json).and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Advances the clock from attempt to attempt until every message has ended.
async fn wait_until_settled(engine: &Engine<AnyStore>, clock: &Clock) {
    let settling = async {
        loop {
            let mut firsts: BTreeMap<String, Arc<Record>> = BTreeMap::new();
            for delivery in list_deliveries(engine).await.into_iter().filter(|delivery| !delivery.is_final()) {
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
                engine.wake_all();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, settling).await.expect("no timeout");
}

fn letter_body(text: &str) -> String {
    json!({ "text": text }).to_string()
}

/// EXE-16: a retried message keeps its key, and the next one waits for it.
#[test]
fn deliveries_of_record_are_ordered_and_retried_until_acknowledged() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let receiver = HttpReceiver::start([
            ReceiverReaction::Answer(500),
            ReceiverReaction::Close,
            ReceiverReaction::Answer(204),
        ])
        .await;
        let from = create_letter(engine, &receiver.url()).await;
        write_letters(engine, from, &["one", "two", "three"]).await;
        engine.start_deliveries(loopback_transport(), 4);
        wait_until_settled(engine, clock).await;
        assert_eq!(delivery_states(engine).await, ["delivered"; 3]);
        assert_eq!(receiver.bodies(), ["one", "one", "one", "two", "three"].map(letter_body));
        let ids: Vec<String> = list_deliveries(engine).await.iter().map(|delivery| delivery.id.to_string()).collect();
        let keys: Vec<String> = receiver.received_calls().into_iter().map(|call| call.idempotency_key).collect();
        assert_eq!(keys, [&ids[0], &ids[0], &ids[0], &ids[1], &ids[2]].map(String::clone));
        let attempts: Vec<String> = receiver.received_calls().into_iter().map(|call| call.attempt).collect();
        assert_eq!(attempts, ["1", "2", "3", "1", "1"]);
    });
}

/// EXE-16: afterwards the next message is sent.
#[test]
fn delivery_is_dead_after_retry_budget() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let receiver = HttpReceiver::start((0..12).map(|_| ReceiverReaction::Answer(503))).await;
        let from = create_letter(engine, &receiver.url()).await;
        write_letters(engine, from, &["one", "two"]).await;
        engine.start_deliveries(loopback_transport(), 1);
        wait_until_settled(engine, clock).await;
        assert_eq!(delivery_states(engine).await, ["dead", "delivered"]);
        assert_eq!(receiver.received_calls().len(), 13);
        let dead = &list_deliveries(engine).await[0];
        assert_eq!(last_error(dead), "the receiver answered 503");
        let counts = engine.counts(&operator_actor()).await.unwrap();
        assert!(
            counts.iter().any(|count| &*count.state == "dead" && count.count == 1),
            "the dead delivery is counted: {counts:?}"
        );
    });
}

#[test]
fn crash_after_post_redelivers_with_same_idempotency_key() {
    /// Posts, then returns no response.
    struct HangAfterPost(HttpTransport);

    impl DeliveryTransport for HangAfterPost {
        async fn send(&self, message: DeliveryRequest) -> Result<DeliveryResponse, DeliveryError> {
            let _ = self.0.send(message).await;
            std::future::pending().await
        }
    }

    let (folder, clock) = (TempDir::new(), Clock::manual(start_time()));
    let first_run = block_on(async {
        let engine = open_engine(open_sqlite(&folder, &clock), config_without_polling()).await;
        let receiver = HttpReceiver::start([]).await;
        let from = create_letter(&engine, &receiver.url()).await;
        write_letter(&engine, from, "one").await;
        engine.start_deliveries(HangAfterPost(loopback_transport()), 1);
        receiver.wait_for(1).await;
        assert_eq!(delivery_states(&engine).await, ["sending"]);
        (receiver.address, receiver.received_calls())
    });
    block_on(async {
        let engine: Engine<AnyStore> = Engine::open(open_sqlite(&folder, &clock), config_without_polling());
        let listener = TcpListener::bind(first_run.0).await.expect("the same address again");
        let receiver = HttpReceiver::with_listener(listener, []);
        engine.start_deliveries(loopback_transport(), 1);
        wait_until_settled(&engine, &clock).await;
        assert_eq!(delivery_states(&engine).await, ["delivered"]);
        let again = receiver.received_calls();
        assert_eq!(
            (again.len(), &again[0].idempotency_key, &again[0].body),
            (1, &first_run.1[0].idempotency_key, &first_run.1[0].body)
        );
        assert_eq!((&*first_run.1[0].attempt, &*again[0].attempt), ("1", "2"));
        engine.close().await;
    });
}

#[test]
fn delivery_survives_absent_hanging_and_flooding_receivers() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let absent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = absent.local_addr().unwrap();
        drop(absent);
        let from = create_letter(engine, &format!("http://{address}/hook")).await;
        write_letter(engine, from, "one").await;
        let config = HttpTransportConfig { timeout: Duration::from_secs(2), allow_private_addresses: true };
        let worker = engine.start_deliveries(HttpTransport::new(config), 2);
        let tried = async {
            while last_error(&list_deliveries(engine).await[0]).is_empty() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, tried).await.expect("the failed attempt is recorded in time");
        let listener = TcpListener::bind(address).await.expect("the same address");
        let receiver = HttpReceiver::with_listener(listener, [ReceiverReaction::Hang, ReceiverReaction::Flood]);
        wait_until_settled(engine, clock).await;
        assert_eq!(delivery_states(engine).await, ["delivered"]);
        assert_eq!(receiver.received_calls().len(), 2, "one attempt timed out, one was acknowledged");
        worker.close().await;
    });
}

/// A redirect is not followed.
#[test]
fn permanent_errors_are_dead_and_retry_after_is_honored() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let elsewhere = HttpReceiver::start([]).await;
        for to in ["mail:boss", "http://", "http://not a host/", "http://localhost:99999/hook"] {
            let from = create_letter(engine, to).await;
            write_letter(engine, from, "one").await;
        }
        let gone = HttpReceiver::start([ReceiverReaction::Answer(410)]).await;
        let from = create_letter(engine, &gone.url()).await;
        write_letter(engine, from, "one").await;
        engine.start_deliveries(loopback_transport(), 1);
        wait_until_settled(engine, clock).await;
        assert_eq!(delivery_states(engine).await, ["dead"; 5]);
        assert!(list_deliveries(engine).await.iter().all(|delivery| delivery.attempt == 1));
        assert_eq!(gone.received_calls().len(), 1);

        let there = format!("Location: {}", elsewhere.url());
        let busy = HttpReceiver::start([
            ReceiverReaction::AnswerWithHeader(307, String::leak(there)),
            ReceiverReaction::AnswerWithHeader(429, "Retry-After: 1800"),
        ])
        .await;
        let from = create_letter(engine, &busy.url()).await;
        write_letter(engine, from, "one").await;
        wait_until_settled(engine, clock).await;
        let delivered = list_deliveries(engine).await.pop().unwrap();
        assert_eq!(&**delivered.state_name(), "delivered");
        assert!(elsewhere.received_calls().is_empty());
        assert_eq!(busy.received_calls().len(), 3);
        let waited = delivered.finished_at.unwrap().micros() - delivered.created_at.micros();
        assert!(waited >= 1_800_000_000, "Retry-After asks for half an hour: {waited}");
    });
}

/// A literal address is refused for good; a name may resolve to another address later. Their errors do not differ.
#[test]
fn delivery_to_private_address_is_dead_at_once_and_to_private_name_after_retries() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let receiver = HttpReceiver::start([]).await;
        let port = receiver.address.port();
        let hosts = [("127.0.0.1", 1), ("localhost", 12), ("169.254.169.254", 1)];
        for (host, _) in hosts {
            let from = create_letter(engine, &format!("http://{host}:{port}/hook")).await;
            write_letter(engine, from, "one").await;
        }
        let guarded = HttpTransport::new(HttpTransportConfig::default());
        let worker = engine.start_deliveries(guarded, 1);
        wait_until_settled(engine, clock).await;
        worker.close().await;
        assert!(receiver.received_calls().is_empty());
        for (delivery, (host, attempts)) in list_deliveries(engine).await.iter().zip(hosts) {
            assert_eq!((&**delivery.state_name(), delivery.attempt), ("dead", attempts), "{host}");
            let expected = format!(
                "the address of `{host}` is not allowed: deliveries need a public address, unless the server runs with \
                 --allow-private-deliveries"
            );
            assert_eq!(last_error(delivery), expected);
        }

        let from = create_letter(engine, &format!("http://localhost:{port}/hook")).await;
        write_letter(engine, from, "two").await;
        engine.start_deliveries(loopback_transport(), 1);
        wait_until_settled(engine, clock).await;
        assert_eq!(receiver.bodies(), [letter_body("two")]);
    });
}

#[test]
fn concurrent_deliveries_post_each_message_once() {
    on_each_store(EngineConfig::default(), async |engine, clock| {
        let receiver = HttpReceiver::start([]).await;
        let url = receiver.url();
        for number in 0..20 {
            let from = create_letter(engine, &url).await;
            write_letter(engine, from, &number.to_string()).await;
        }
        engine.start_deliveries(loopback_transport(), 8);
        wait_until_settled(engine, clock).await;
        let mut bodies = receiver.bodies();
        bodies.sort();
        bodies.dedup();
        assert_eq!((bodies.len(), receiver.received_calls().len()), (20, 20));
        assert!(engine.store().log(0, 1_000).await.unwrap().len() >= 80);
    });
}
