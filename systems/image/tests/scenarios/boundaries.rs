//! Boundary cases: limits from both sides, and events sent by other records.

use onceward_core::value::RecordId;
use onceward_testkit::{Simulator, operator, systems, user};
use serde_json::json;

use super::{
    alice, create_dead_letter, create_queued_job, create_running_job, grant_credits, image_result, new_simulator,
    order_image, user_credits, user_with_role, with_prompt_check,
};

/// A record that sends the named event to another record.
const FORWARDER_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "test.boss"
about     = "Sends events of the record's owner and operators"

[states]
there = { about = "open", rest = true }

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

/// IMG-3, IMG-7, IMG-10, IMG-13, IMG-17: a record cannot block, replay, withdraw, remove or grant.
#[test]
fn cascade_from_other_record_cannot_act_for_people() {
    let mut stage =
        with_prompt_check(Simulator::new(systems::load_with_files("image", &[("boss.toml", FORWARDER_LIFECYCLE)])));
    grant_credits(&mut stage, "alice", 100);
    let lease = create_running_job(&mut stage);
    stage.commit(&lease, image_result(&lease)).expect_ok();
    let asset = stage.linked_records(lease.record, "image.asset", "job")[0];
    stage.advance("1m");
    let dead = create_dead_letter(&mut stage);
    stage.advance("1m");
    let forward = |stage: &mut Simulator, event: &str, job: RecordId| {
        let fields = json!({ "job": job.to_string(), "asset": asset.to_string() });
        let (forwarder, stranger) =
            (stage.create("test.boss", &user("alice")).with_all(fields).expect_ok(), user("stranger"));
        stage.fire(forwarder, event, &stranger).expect_unchanged();
        stage.fire(forwarder, "grant", &stranger).expect_refusal(409, "spawn_not_taken");
    };
    // No other job may be active, because it would prevent a replay.
    forward(&mut stage, "replay", dead);
    forward(&mut stage, "remove", dead);
    let waiting = create_queued_job(&mut stage);
    forward(&mut stage, "block", waiting);
    forward(&mut stage, "withdraw", waiting);
    assert_eq!((stage.state(dead).as_str(), stage.state(asset).as_str()), ("dead_letter", "stored"));
    assert_eq!(user_credits(&stage, "alice"), 90);
}

/// IMG-10
#[test]
fn replay_of_running_or_failed_job_is_refused() {
    let mut stage = new_simulator();
    let lease = create_running_job(&mut stage);
    stage.fire(lease.record, "replay", &alice()).expect_wrong_state("running", "replay");
    stage.fail(&lease, "500").expect_ok();
    stage.fire(lease.record, "replay", &alice()).expect_wrong_state("failed", "replay");
}

/// IMG-10: a rejected replay counts as a replay.
#[test]
fn second_replay_returns_rejected_replay() {
    let mut stage = new_simulator();
    let old = create_dead_letter(&mut stage);
    stage.fire(old, "replay", &alice()).expect_ok();
    let new = stage.linked_records(old, "image.job", "replayOf")[0];
    stage.fire(new, "block", &user_with_role("mo", "moderator")).expect_ok();
    stage.advance("5m");
    stage.fire(old, "replay", &alice()).expect_unchanged();
    assert_eq!(stage.linked_records(old, "image.job", "replayOf"), [new]);
}

/// IMG-9, IMG-10
#[test]
fn replay_holds_idempotency_key_of_its_minute() {
    let mut stage = new_simulator().starting_at("2026-11-15T20:00:00Z");
    let old = create_dead_letter(&mut stage);
    stage.advance("7m");
    stage.fire(old, "replay", &alice()).expect_ok();
    let new = stage.linked_records(old, "image.job", "replayOf")[0];
    assert_eq!(stage.field(new, "minute"), stage.now().micros() / 60_000_000);
    assert_eq!(order_image(&mut stage, "a cat").expect_existing(), new);
}

/// IMG-1, IMG-14: only a replay sets these fields.
#[test]
fn role_and_replay_of_in_create_are_rejected() {
    let mut stage = new_simulator();
    let old = create_dead_letter(&mut stage);
    for caller in [alice(), operator("olga"), user_with_role("mo", "moderator")] {
        stage.create("image.job", &caller).payload(b"x").with("role", "pro").expect_bad_input();
        stage.create("image.job", &caller).payload(b"x").with("replayOf", old.to_string()).expect_bad_input();
    }
    let id = stage.create("image.job", &user_with_role("alice", "user")).payload(b"x").expect_ok();
    assert_eq!(stage.field(id, "retryable"), true);
}

/// IMG-3
#[test]
fn result_fields_are_bounded() {
    for (field, value, fits) in [
        ("url", json!(200), true),
        ("url", json!(201), false),
        ("sha256", json!("a".repeat(63)), false),
        ("sha256", json!("a".repeat(65)), false),
        ("bytes", json!(1), true),
        ("bytes", json!(0), false),
    ] {
        let mut stage = new_simulator();
        let lease = create_running_job(&mut stage);
        let mut result = image_result(&lease);
        result[field] = match value.as_u64() {
            Some(length) if field == "url" => json!(format!(
                "{:x<1$}",
                format!("originals/{}", lease.record),
                usize::try_from(length).expect("small")
            )),
            _ => value,
        };
        if fits {
            stage.commit(&lease, result).expect_ok();
        } else {
            stage.commit(&lease, result).expect_bad_input();
        }
    }
}

/// IMG-15: verdict and hash are required.
#[test]
fn incomplete_check_answer_creates_no_job() {
    for (readable, pass, hash, fits) in [
        (json!(true), json!(true), json!("a".repeat(64)), true),
        (json!(null), json!(true), json!("a".repeat(64)), false),
        (json!(true), json!(null), json!("a".repeat(64)), false),
        (json!(true), json!(true), json!("a".repeat(63)), false),
        (json!(true), json!(true), json!("a".repeat(65)), false),
        (json!(true), json!(true), json!(null), false),
    ] {
        let answer = json!({ "readable": readable, "pass": pass, "sha256": hash });
        let mut stage = new_simulator().on_check("image.job", "prompt", move |_, _| answer.clone());
        let outcome = order_image(&mut stage, "a cat").run();
        assert_eq!(matches!(outcome.decision, onceward_core::decide::Decision::Changes(_)), fits, "{outcome:?}");
        if !fits {
            assert_eq!(
                outcome.expect_refusal().code,
                "invalid_check_answer".into(),
                "the answer is invalid, not the order"
            );
        }
        assert_eq!(stage.records_of("image.job").len(), usize::from(fits));
    }
}

/// IMG-15
#[test]
fn one_letter_prompt_is_accepted() {
    order_image(&mut new_simulator(), "x").expect_ok();
}

/// IMG-4, IMG-12: like a job with a lost lease.
#[test]
fn yielded_job_is_retried() {
    let mut stage = new_simulator();
    let lease = create_running_job(&mut stage);
    stage.yield_job(&lease).expect_ok();
    assert_eq!(stage.state(lease.record), "failed");
    stage.advance("5s");
    stage.lease(lease.record, "w2");
}

/// IMG-17
#[test]
fn grant_text_lengths_are_bounded() {
    let mut stage = new_simulator();
    let letters = |count: usize| "x".repeat(count);
    for (field, max_chars) in [("user", 1_000), ("order", 200)] {
        for (length, fits) in [(0, false), (1, true), (max_chars, true), (max_chars + 1, false)] {
            let mut given = json!({ "user": "bob", "amount": 5, "order": format!("o-{field}-{length}") });
            given[field] = json!(letters(length));
            let attempt = stage.create("image.grant", &operator("olga")).with_all(given);
            if fits {
                attempt.expect_ok();
            } else {
                attempt.expect_bad_input();
            }
        }
    }
}

/// IMG-17, IMG-3: the grant's creator may still see it.
#[test]
fn grant_and_removed_asset_are_final() {
    let mut stage = new_simulator();
    let id = grant_credits(&mut stage, "bob", 5);
    assert!(stage.record(id).is_final());
    // The creator sees it even without the operator role.
    stage.fire(id, "undo", &user("olga")).expect_refusal(404, "unknown_event");
    let lease = create_running_job(&mut stage);
    stage.commit(&lease, image_result(&lease)).expect_ok();
    let asset = stage.linked_records(lease.record, "image.asset", "job")[0];
    stage.fire(asset, "remove", &alice()).expect_ok();
    let lease = stage.lease(asset, "w1");
    stage.commit(&lease, json!({})).expect_ok();
    assert!(stage.record(asset).is_final());
}
