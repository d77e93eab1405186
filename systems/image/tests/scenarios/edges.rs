//! The edges of what is allowed: one more, one fewer, and somebody who is not a caller at all.

use onceward_core::value::RecordId;
use onceward_testkit::{Stage, operator, systems, user};
use serde_json::json;

use super::{alice, credits, dead, dressed, grant, image, order, queued, running, stage, user_role};

/// Another record, which does whatever it is told to.
const BOSS: &str = r#"
language  = 1
lifecycle = "test.boss"
about     = "Sends what a record's own people may send"

[states]
there = { about = "at hand", rest = true }

[fields]
job   = { type = "ref", to = "image.job" }
asset = { type = "ref", to = "image.asset", optional = true }

[access]
read = ["anyone"]

[[on.create]]
go   = "-> there"
take = ["job", "asset"]

[[on.block]]
go      = "there"
cascade = [{ to = "record.job", event = "block" }]

[[on.replay]]
go      = "there"
cascade = [{ to = "record.job", event = "replay" }]

[[on.withdraw]]
go      = "there"
cascade = [{ to = "record.job", event = "withdraw" }]

[[on.remove]]
go      = "there"
cascade = [{ to = "record.asset", event = "remove" }]

[[on.grant]]
go    = "there"
spawn = [{ lifecycle = "image.grant", fields = { user = "'alice'", amount = "5", order = "'boss'" } }]
"#;

/// IMG-3, IMG-7, IMG-10, IMG-13, IMG-17: only people block, replay, withdraw, remove and grant; no other record does it for them.
#[test]
fn no_record_speaks_for_its_people() {
    let mut stage = dressed(Stage::new(systems::load_with("image", &[("boss.toml", BOSS)])));
    grant(&mut stage, "alice", 100);
    let lease = running(&mut stage);
    stage.commit(&lease, image(&lease)).ok();
    let asset = stage.linked(lease.record, "image.asset", "job")[0];
    stage.pass("1m");
    let dead = dead(&mut stage);
    stage.pass("1m");
    let tell = |stage: &mut Stage, event: &str, job: RecordId| {
        let given = json!({ "job": job.to_string(), "asset": asset.to_string() });
        let (boss, nobody) = (stage.create("test.boss", &user("alice")).with_all(given).ok(), user("nobody"));
        stage.fire(boss, event, &nobody).unchanged();
        stage.fire(boss, "grant", &nobody).refused(409, "spawn_not_taken");
    };
    // While no other job is active, which would be in the way of any replay.
    tell(&mut stage, "replay", dead);
    tell(&mut stage, "remove", dead);
    let waiting = queued(&mut stage);
    tell(&mut stage, "block", waiting);
    tell(&mut stage, "withdraw", waiting);
    assert_eq!((stage.state(dead).as_str(), stage.state(asset).as_str()), ("dead_letter", "stored"));
    assert_eq!(credits(&stage, "alice"), 90);
}

/// IMG-10: what runs or waits out its backoff is not replayed.
#[test]
fn only_the_dead_are_replayed() {
    let mut stage = stage();
    let lease = running(&mut stage);
    stage.fire(lease.record, "replay", &alice()).wrong_state("running", "replay");
    stage.fail(&lease, "500").ok();
    stage.fire(lease.record, "replay", &alice()).wrong_state("failed", "replay");
}

/// IMG-10: a replay that was rejected has been tried: asking again answers that job.
#[test]
fn a_rejected_replay_was_a_replay() {
    let mut stage = stage();
    let old = dead(&mut stage);
    stage.fire(old, "replay", &alice()).ok();
    let new = stage.linked(old, "image.job", "replayOf")[0];
    stage.fire(new, "block", &user_role("mo", "moderator")).ok();
    stage.pass("5m");
    stage.fire(old, "replay", &alice()).unchanged();
    assert_eq!(stage.linked(old, "image.job", "replayOf"), [new]);
}

/// IMG-9, IMG-10: a replay holds the key of its own minute, as an order does.
#[test]
fn a_replay_is_ordered_in_its_minute() {
    let mut stage = stage().at("2026-11-15T20:00:00Z");
    let old = dead(&mut stage);
    stage.pass("7m");
    stage.fire(old, "replay", &alice()).ok();
    let new = stage.linked(old, "image.job", "replayOf")[0];
    assert_eq!(stage.field(new, "minute"), stage.now().micros() / 60_000_000);
    assert_eq!(order(&mut stage, "a cat").holder(), new);
}

/// IMG-1, IMG-14: a new order has not failed, and nobody but a replay says what role it had or what it replays.
#[test]
fn only_a_replay_says_what_it_replays() {
    let mut stage = stage();
    let old = dead(&mut stage);
    for who in [alice(), operator("olga"), user_role("mo", "moderator")] {
        stage.create("image.job", &who).payload(b"x").with("role", "pro").bad_input();
        stage.create("image.job", &who).payload(b"x").with("replayOf", old.to_string()).bad_input();
    }
    let id = stage.create("image.job", &user_role("alice", "user")).payload(b"x").ok();
    assert_eq!(stage.field(id, "retryable"), true);
}

/// IMG-3: the bounds of a result, from both sides.
#[test]
fn a_result_keeps_to_its_bounds() {
    for (part, value, fits) in [
        ("url", json!(200), true),
        ("url", json!(201), false),
        ("sha256", json!("a".repeat(63)), false),
        ("sha256", json!("a".repeat(65)), false),
        ("bytes", json!(1), true),
        ("bytes", json!(0), false),
    ] {
        let mut stage = stage();
        let lease = running(&mut stage);
        let mut result = image(&lease);
        result[part] = match value.as_u64() {
            Some(length) if part == "url" => json!(format!(
                "{:x<1$}",
                format!("originals/{}", lease.record),
                usize::try_from(length).expect("small")
            )),
            _ => value,
        };
        if fits {
            stage.commit(&lease, result).ok();
        } else {
            stage.commit(&lease, result).bad_input();
        }
    }
}

/// IMG-15: an answer of the guard without its verdict or its hash is no answer, and makes no job.
#[test]
fn the_guard_answers_with_a_verdict_and_a_hash() {
    for (readable, pass, hash, fits) in [
        (json!(true), json!(true), json!("a".repeat(64)), true),
        (json!(null), json!(true), json!("a".repeat(64)), false),
        (json!(true), json!(null), json!("a".repeat(64)), false),
        (json!(true), json!(true), json!("a".repeat(63)), false),
        (json!(true), json!(true), json!("a".repeat(65)), false),
        (json!(true), json!(true), json!(null), false),
    ] {
        let answer = json!({ "readable": readable, "pass": pass, "sha256": hash });
        let mut stage = stage().answer("image.job", "prompt", move |_, _| answer.clone());
        let outcome = order(&mut stage, "a cat").outcome();
        assert_eq!(matches!(outcome.decision, onceward_core::decide::Decision::Changes(_)), fits, "{outcome:?}");
        if !fits {
            assert_eq!(outcome.refusal().code, "bad_answer".into(), "the answer is at fault, not the order");
        }
        assert_eq!(stage.all("image.job").len(), usize::from(fits));
    }
}

/// IMG-15: one letter is a prompt.
#[test]
fn a_prompt_may_be_one_letter() {
    order(&mut stage(), "x").ok();
}

/// IMG-4, IMG-12: a job given back waits and is tried again, like one whose worker is lost.
#[test]
fn a_yield_is_tried_again() {
    let mut stage = stage();
    let lease = running(&mut stage);
    stage.give_back(&lease).ok();
    assert_eq!(stage.state(lease.record), "failed");
    stage.pass("5s");
    stage.lease(lease.record, "w2");
}

/// IMG-17: the bounds of a grant's texts, from both sides.
#[test]
fn a_grant_keeps_to_its_bounds() {
    let mut stage = stage();
    let letters = |count: usize| "x".repeat(count);
    for (part, most) in [("user", 1_000), ("order", 200)] {
        for (length, fits) in [(0, false), (1, true), (most, true), (most + 1, false)] {
            let mut given = json!({ "user": "bob", "amount": 5, "order": format!("o-{part}-{length}") });
            given[part] = json!(letters(length));
            let attempt = stage.create("image.grant", &operator("olga")).with_all(given);
            if fits {
                attempt.ok();
            } else {
                attempt.bad_input();
            }
        }
    }
}

/// IMG-17, IMG-3: a grant and a removed asset are over, and who made the grant may still see it.
#[test]
fn a_grant_and_a_removed_asset_are_over() {
    let mut stage = stage();
    let id = grant(&mut stage, "bob", 5);
    assert!(stage.record(id).is_final());
    // Who made it sees it, operator or not.
    stage.fire(id, "undo", &user("olga")).refused(404, "no_such_event");
    let lease = running(&mut stage);
    stage.commit(&lease, image(&lease)).ok();
    let asset = stage.linked(lease.record, "image.asset", "job")[0];
    stage.fire(asset, "remove", &alice()).ok();
    let lease = stage.lease(asset, "w1");
    stage.commit(&lease, json!({})).ok();
    assert!(stage.record(asset).is_final());
}
