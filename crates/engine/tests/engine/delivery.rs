//! Deliveries to a real HTTP server on the loopback interface.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::Call;
use onceward_core::record::{Actor, Record};
use onceward_core::value::{RecordId, Value};
use onceward_engine::{
    DELIVERY_LIFECYCLE, DeliveryError, DeliveryRequest, DeliveryResponse, DeliveryTransport, Engine, EngineConfig,
    HttpTransport, HttpTransportConfig, Submission, reveal_webhook_secret,
};
use onceward_store::{AnyStore, Clock, ListQuery, Store};
use onceward_testkit::user;
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::http_receiver::{HttpReceiver, ReceiverReaction, loopback_config, loopback_transport};
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
        let config = HttpTransportConfig { timeout: Duration::from_secs(2), ..loopback_config() };
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

/// The lookup judges a name, because it may resolve to another address later. All errors have the same text.
#[test]
fn delivery_without_allowed_target_is_dead_at_once_and_name_with_private_address_after_retries() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let receiver = HttpReceiver::start([]).await;
        let port = receiver.address.port();
        let targets = [
            ("http", "127.0.0.1", 1),
            ("https", "127.0.0.1", 1),
            ("https", "localhost", 12),
            ("http", "localhost", 1),
            ("http", "169.254.169.254", 1),
            ("http", "8.8.8.8", 1),
        ];
        for (scheme, host, _) in targets {
            let from = create_letter(engine, &format!("{scheme}://{host}:{port}/hook")).await;
            write_letter(engine, from, "one").await;
        }
        let guarded = HttpTransport::new(HttpTransportConfig::default());
        let worker = engine.start_deliveries(guarded, 1);
        wait_until_settled(engine, clock).await;
        worker.close().await;
        assert!(receiver.received_calls().is_empty());
        for (delivery, (scheme, host, attempts)) in list_deliveries(engine).await.iter().zip(targets) {
            assert_eq!((&**delivery.state_name(), delivery.attempt), ("dead", attempts), "{scheme}://{host}");
            let expected = format!(
                "the address of `{host}` is not allowed: deliveries need https and a public address, unless the server \
                 runs with --allow-delivery-to {host}"
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

/// Returns the signature of a received message with a secret, computed by another program.
fn expected_signature(secret: &str, id: &str, timestamp: &str, body: &str) -> String {
    let script = "import base64, hashlib, hmac, sys\n\
                  secret, content = sys.argv[1:]\n\
                  key = base64.b64decode(secret.removeprefix('whsec_'))\n\
                  digest = hmac.new(key, content.encode(), hashlib.sha256).digest()\n\
                  print('v1,' + base64.b64encode(digest).decode())";
    let content = format!("{id}.{timestamp}.{body}");
    let output = std::process::Command::new("python3").args(["-c", script, secret, &content]).output();
    let output = output.expect("python3 runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// EXE-16: signed with the owner's secret, and after a rotation for a day with the previous one, too.
#[test]
fn delivery_is_signed_with_all_valid_secrets_of_its_owner() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let receiver = HttpReceiver::start([]).await;
        let from = create_letter(engine, &receiver.url()).await;
        engine.start_deliveries(loopback_transport(), 1);
        let check_last = async |text: &str, secrets: &[&str]| {
            write_letter(engine, from, text).await;
            wait_until_settled(engine, clock).await;
            let call = receiver.received_calls().pop().expect("a call");
            assert_eq!((&call.body, &call.webhook_id), (&letter_body(text), &call.idempotency_key));
            assert_eq!(call.timestamp, (clock.now().micros() / 1_000_000).to_string());
            let signed = |secret: &&str| expected_signature(secret, &call.webhook_id, &call.timestamp, &call.body);
            let expected: Vec<String> = secrets.iter().map(signed).collect();
            assert_eq!(call.signatures, expected.join(" "));
        };
        let first = engine.webhook_secrets(&user("ann")).await.expect("a secret");
        assert_eq!(first.previous, None);
        assert_eq!(engine.webhook_secrets(&user("ann")).await.expect("the same"), first);
        assert_ne!(engine.webhook_secrets(&user("eve")).await.expect("another").current, first.current);
        let first = reveal_webhook_secret(&first.current);
        check_last("one", &[&first]).await;

        let rotated = engine.rotate_webhook_secret(&user("ann")).await.expect("rotated");
        let second = reveal_webhook_secret(&rotated.current);
        assert_ne!(first, second);
        check_last("two", &[&second, &first]).await;
        let again = engine.rotate_webhook_secret(&user("ann")).await.expect_err("receivers may not know it yet");
        assert_eq!((again.status(), again.code()), (409, "secret_rotation_pending"));
        assert_eq!(engine.webhook_secrets(&user("ann")).await.expect("unchanged"), rotated);

        let (_, until) = rotated.previous.expect("the first secret");
        assert_eq!(until.micros() - clock.now().micros(), 24 * 60 * 60 * 1_000_000);
        clock.set(until);
        check_last("three", &[&second]).await;
        engine.rotate_webhook_secret(&user("ann")).await.expect("the previous secret signs no longer");
    });
}

#[test]
fn webhook_secret_is_refused_without_permission_to_create_records_and_is_not_in_log() {
    on_each_store(config_without_polling(), async |engine, _| {
        for role in ["worker", "viewer", "metrics"] {
            let actor = Actor::new("ann", &[role]);
            for refused in [engine.webhook_secrets(&actor).await, engine.rotate_webhook_secret(&actor).await] {
                assert_eq!(refused.expect_err(role).code(), "forbidden");
            }
        }
        let before = engine.store().last_seq().await.unwrap();
        engine.webhook_secrets(&user("ann")).await.expect("a secret");
        engine.rotate_webhook_secret(&user("ann")).await.expect("rotated");
        assert_eq!(engine.store().last_seq().await.unwrap(), before);
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
