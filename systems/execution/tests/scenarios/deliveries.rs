//! EXE-16 and EXE-17: deliveries, and exactly-once effects.

use onceward_testkit::{Simulator, systems, user};
use serde_json::json;

use super::{create_job, new_simulator};

/// A job whose commit spawns a delivery.
const NOTIFY_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "test.notify"
about     = "Delivers a message when it is done"

[states]
todo = { about = "waiting", ready = true }
busy = { about = "running" }
done = { about = "told", final = true }

[fields]
address = { type = "string", min = 1, max = 200 }

[work]
lease = "30s"

[[on.create]]
go   = "-> todo"
take = ["address"]

[[on.lease]]
go = "todo -> busy"

[[on.commit]]
go      = "busy -> done"
deliver = [{ to = "record.address", body = { job = "record.id", state = "'done'" } }]

[[on.fail]]
go = "busy -> todo"
"#;

fn simulator_with_notify() -> Simulator {
    Simulator::new(systems::load_texts(&[("notify.toml", NOTIFY_LIFECYCLE)]))
}

/// EXE-16: the commit creates the delivery in the same operation.
#[test]
fn commit_spawns_delivery() {
    let mut stage = simulator_with_notify();
    let id = stage.create("test.notify", &user("alice")).with("address", "https://example.org/hook").expect_ok();
    let lease = stage.lease(id, "w1");
    assert!(stage.records_of("onceward.delivery").is_empty());
    let changes = stage.commit(&lease, json!(null)).expect_changes();
    let deliveries = stage.records_of("onceward.delivery");
    assert_eq!(deliveries.len(), 1);
    assert!(changes.records.iter().any(|change| change.after.id == deliveries[0].id));
    assert_eq!(changes.payloads.len(), 1);
    let body: serde_json::Value = serde_json::from_str(&changes.payloads[0].bytes).expect("the body is JSON");
    assert_eq!(body, json!({ "job": id.to_string(), "state": "done" }));
}

/// EXE-16: the id serves the receiver as idempotency key.
#[test]
fn failed_delivery_is_retried_with_same_id() {
    let mut stage = simulator_with_notify();
    let id = stage.create("test.notify", &user("alice")).with("address", "https://example.org/hook").expect_ok();
    let lease = stage.lease(id, "w1");
    stage.commit(&lease, json!(null)).expect_ok();
    let delivery = stage.records_of("onceward.delivery")[0].id;
    for _ in 0..2 {
        let lease_of_delivery = stage.lease(delivery, "poster");
        stage.fail(&lease_of_delivery, "503").retryable(true).expect_ok();
        assert!(!stage.record(delivery).is_final());
        stage.advance("1h");
    }
    let lease_of_delivery = stage.lease(delivery, "poster");
    for status in [199, 300, 500] {
        stage.commit(&lease_of_delivery, json!({ "status": status })).expect_bad_input();
    }
    stage.commit(&lease_of_delivery, json!({ "status": 204 })).expect_ok();
    assert!(stage.record(delivery).is_final());
    assert_eq!(stage.records_of("onceward.delivery").len(), 1);
}

/// EXE-16
#[test]
fn delivery_is_dead_after_twelve_failures() {
    let mut stage = simulator_with_notify();
    let id = stage.create("test.notify", &user("alice")).with("address", "https://example.org/hook").expect_ok();
    let lease = stage.lease(id, "w1");
    stage.commit(&lease, json!(null)).expect_ok();
    let delivery = stage.records_of("onceward.delivery")[0].id;
    for attempt in 1..=12 {
        assert!(!stage.record(delivery).is_final(), "dead before attempt {attempt}");
        let lease_of_delivery = stage.lease(delivery, "poster");
        stage.fail(&lease_of_delivery, "503").retryable(true).expect_ok();
        stage.advance("1d");
    }
    assert_eq!(stage.state(delivery), "dead");
    assert!(stage.effects(delivery).is_empty(), "an unacknowledged delivery is not delivered");
}

/// EXE-16: the first hundred yields are free.
#[test]
fn delivery_is_dead_after_too_many_yields() {
    let mut stage = simulator_with_notify();
    let id = stage.create("test.notify", &user("alice")).with("address", "https://example.org/hook").expect_ok();
    let lease = stage.lease(id, "w1");
    stage.commit(&lease, json!(null)).expect_ok();
    let delivery = stage.records_of("onceward.delivery")[0].id;
    for yield_count in 1..=112 {
        assert!(!stage.record(delivery).is_final(), "dead before yield {yield_count}");
        let lease_of_delivery = stage.lease(delivery, "poster");
        stage.yield_job(&lease_of_delivery).expect_ok();
        stage.advance("1h");
    }
    assert_eq!(stage.state(delivery), "dead");
}

/// EXE-16: a terminal error ends a delivery at once; its replay has the same body.
#[test]
fn replay_of_dead_delivery_creates_new_delivery() {
    let mut stage = simulator_with_notify();
    let id = stage.create("test.notify", &user("alice")).with("address", "https://example.org/hook").expect_ok();
    let lease = stage.lease(id, "w1");
    stage.commit(&lease, json!(null)).expect_ok();
    let dead = stage.records_of("onceward.delivery")[0].id;
    stage.fire(dead, "replay", &user("alice")).expect_wrong_state("pending", "replay");
    let lease_of_delivery = stage.lease(dead, "poster");
    stage.fail(&lease_of_delivery, "410").message("gone").expect_ok();
    assert_eq!((stage.state(dead).as_str(), stage.field(dead, "lastError")), ("dead", json!("gone")));
    stage.fire(dead, "replay", &user("mallory")).expect_not_found();
    stage.fire(dead, "replay", &user("alice")).expect_ok();
    let deliveries = stage.records_of("onceward.delivery");
    let new = deliveries.iter().find(|message| message.id != dead).expect("a second delivery");
    assert_eq!((deliveries.len(), stage.state(dead).as_str(), stage.state(new.id).as_str()), (2, "dead", "pending"));
    assert_eq!((new.payload, &new.owner), (stage.record(dead).payload, &stage.record(dead).owner));
    assert_eq!(stage.field(new.id, "to"), stage.field(dead, "to"));
}

/// EXE-17
#[test]
fn repeated_execution_applies_effect_once() {
    let mut stage = new_simulator();
    let id = create_job(&mut stage);
    let first = stage.lease(id, "a");
    stage.advance("1m");
    let second = stage.lease(id, "b");
    stage.commit(&second, json!(null)).expect_ok();
    stage.commit(&first, json!(null)).expect_already_committed(&second);
    assert_eq!(stage.executions(id).len(), 2, "the work ran twice");
    assert_eq!(stage.effects(id).len(), 1, "the effect was applied once");
}
