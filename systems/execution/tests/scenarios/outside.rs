//! EXE-16 and EXE-17: what goes outside, and the promise as a whole.

use onceward_testkit::{Stage, systems, user};
use serde_json::json;

use super::{job, stage};

/// A job whose commit tells somebody outside.
const NOTIFY: &str = r#"
language  = 1
lifecycle = "test.notify"
about     = "Tells an address when it is done"

[states]
todo = { about = "waiting", ready = true }
busy = { about = "at work" }
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

fn notify() -> Stage {
    Stage::new(systems::load_text(&[("notify.toml", NOTIFY)]))
}

/// EXE-16: the message outside is a job of its own, made by the commit and in the same operation.
#[test]
fn a_commit_spawns_its_message() {
    let mut stage = notify();
    let id = stage.create("test.notify", &user("alice")).with("address", "https://example.org/hook").ok();
    let lease = stage.lease(id, "w1");
    assert!(stage.all("onceward.delivery").is_empty());
    let changes = stage.commit(&lease, json!(null)).changes();
    let messages = stage.all("onceward.delivery");
    assert_eq!(messages.len(), 1);
    assert!(changes.records.iter().any(|change| change.after.id == messages[0].id));
    assert_eq!(changes.payloads.len(), 1);
    let body: serde_json::Value = serde_json::from_str(&changes.payloads[0].bytes).expect("a body is JSON");
    assert_eq!(body, json!({ "job": id.to_string(), "state": "done" }));
}

/// EXE-16: it is tried again under the same id, which is its key, until it is acknowledged or dead.
#[test]
fn a_message_is_retried_under_one_key() {
    let mut stage = notify();
    let id = stage.create("test.notify", &user("alice")).with("address", "https://example.org/hook").ok();
    let lease = stage.lease(id, "w1");
    stage.commit(&lease, json!(null)).ok();
    let message = stage.all("onceward.delivery")[0].id;
    for _ in 0..2 {
        let post = stage.lease(message, "poster");
        stage.fail(&post, "503").retryable(true).ok();
        assert!(!stage.record(message).is_final());
        stage.pass("1h");
    }
    let post = stage.lease(message, "poster");
    for no in [199, 300, 500] {
        stage.commit(&post, json!({ "status": no })).bad_input();
    }
    stage.commit(&post, json!({ "status": 204 })).ok();
    assert!(stage.record(message).is_final());
    assert_eq!(stage.all("onceward.delivery").len(), 1);
}

/// EXE-16: a receiver that never answers leaves it dead, for all to see, and not in a loop.
#[test]
fn a_message_that_is_never_acknowledged_ends() {
    let mut stage = notify();
    let id = stage.create("test.notify", &user("alice")).with("address", "https://example.org/hook").ok();
    let lease = stage.lease(id, "w1");
    stage.commit(&lease, json!(null)).ok();
    let message = stage.all("onceward.delivery")[0].id;
    for attempt in 1..=12 {
        assert!(!stage.record(message).is_final(), "given up before try {attempt}");
        let post = stage.lease(message, "poster");
        stage.fail(&post, "503").retryable(true).ok();
        stage.pass("1d");
    }
    assert_eq!(stage.state(message), "dead");
    assert!(stage.effects(message).is_empty(), "what was never acknowledged is not called delivered");
}

/// EXE-16: nor is it turned for ever by senders that give it back unsent: a hundred times are free.
#[test]
fn a_message_that_is_always_given_back_ends() {
    let mut stage = notify();
    let id = stage.create("test.notify", &user("alice")).with("address", "https://example.org/hook").ok();
    let lease = stage.lease(id, "w1");
    stage.commit(&lease, json!(null)).ok();
    let message = stage.all("onceward.delivery")[0].id;
    for turn in 1..=112 {
        assert!(!stage.record(message).is_final(), "given up before turn {turn}");
        let post = stage.lease(message, "poster");
        stage.give_back(&post).ok();
        stage.pass("1h");
    }
    assert_eq!(stage.state(message), "dead");
}

/// EXE-16: an error that will not pass ends it at once; its people may then send it again, as a new message with the same body.
#[test]
fn a_dead_message_is_sent_again_as_a_new_one() {
    let mut stage = notify();
    let id = stage.create("test.notify", &user("alice")).with("address", "https://example.org/hook").ok();
    let lease = stage.lease(id, "w1");
    stage.commit(&lease, json!(null)).ok();
    let dead = stage.all("onceward.delivery")[0].id;
    stage.fire(dead, "replay", &user("alice")).wrong_state("pending", "replay");
    let post = stage.lease(dead, "poster");
    stage.fail(&post, "410").message("gone").ok();
    assert_eq!((stage.state(dead).as_str(), stage.field(dead, "lastError")), ("dead", json!("gone")));
    stage.fire(dead, "replay", &user("mallory")).not_found();
    stage.fire(dead, "replay", &user("alice")).ok();
    let messages = stage.all("onceward.delivery");
    let new = messages.iter().find(|message| message.id != dead).expect("a second message");
    assert_eq!((messages.len(), stage.state(dead).as_str(), stage.state(new.id).as_str()), (2, "dead", "pending"));
    assert_eq!((new.payload, &new.owner), (stage.record(dead).payload, &stage.record(dead).owner));
    assert_eq!(stage.field(new.id, "to"), stage.field(dead, "to"));
}

/// EXE-17: the promise: work may happen more than once, its effect in the store lands once.
#[test]
fn at_least_once_outside_exactly_once_inside() {
    let mut stage = stage();
    let id = job(&mut stage);
    let first = stage.lease(id, "a");
    stage.pass("1m");
    let second = stage.lease(id, "b");
    stage.commit(&second, json!(null)).ok();
    stage.commit(&first, json!(null)).already_committed(&second);
    assert_eq!(stage.executions(id).len(), 2, "the work happened twice");
    assert_eq!(stage.effects(id).len(), 1, "its effect did not");
}
