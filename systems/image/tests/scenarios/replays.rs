//! IMG-10: replays of dead letters.

use onceward_core::decide::{Decision, NoOpReason};
use onceward_testkit::{operator, user};

use super::{alice, create_dead_letter, image_result, new_simulator, order_image, user_credits, user_with_role};

/// IMG-10: with the same prompt.
#[test]
fn replay_creates_linked_job_and_keeps_dead_letter() {
    let mut stage = new_simulator();
    let old = create_dead_letter(&mut stage);
    let before = stage.record(old);
    stage.advance("1m");
    stage.fire(old, "replay", &alice()).expect_ok();
    let replays = stage.linked_records(old, "image.job", "replayOf");
    assert_eq!(replays.len(), 1);
    let new = replays[0];
    assert_eq!(stage.state(new), "queued");
    assert_eq!(stage.field(new, "replayOf"), old.to_string());
    assert_eq!(stage.record(new).payload, before.payload);
    assert_eq!(stage.field(new, "promptHash"), stage.field(old, "promptHash"));
    assert_eq!(stage.field(new, "retryCount"), 0);
    assert_eq!(stage.state(old), "dead_letter");
    assert_eq!(stage.record(old).finished_at, before.finished_at);
    let lease = stage.lease(new, "w1");
    stage.commit(&lease, image_result(&lease)).expect_ok();
    assert_eq!(stage.state(new), "completed");
}

/// IMG-10, IMG-16: the dead letter was refunded.
#[test]
fn replay_is_charged_and_audited() {
    let mut stage = new_simulator();
    let old = create_dead_letter(&mut stage);
    assert_eq!(user_credits(&stage, "alice"), 100);
    stage.fire(old, "replay", &alice()).expect_ok();
    let new = stage.linked_records(old, "image.job", "replayOf")[0];
    assert_eq!((user_credits(&stage, "alice"), stage.hold_balance(new)), (95, 5));
    assert_eq!(stage.audit_tags(), ["JOB_CREATED", "JOB_CREATED"]);
}

/// IMG-10
#[test]
fn operator_replay_keeps_owner_role_and_bill() {
    let mut stage = new_simulator();
    let lease = {
        let id = stage.create("image.job", &user_with_role("alice", "pro")).payload(b"a cat").expect_ok();
        stage.lease(id, "w1")
    };
    stage.fail(&lease, "400").expect_ok();
    stage.fire(lease.record, "replay", &operator("olga")).expect_ok();
    let new = stage.linked_records(lease.record, "image.job", "replayOf")[0];
    assert_eq!(*stage.record(new).owner, *"alice");
    assert_eq!(stage.field(new, "role"), "pro");
    assert_eq!((user_credits(&stage, "alice"), user_credits(&stage, "olga")), (95, 0));
}

/// IMG-10
#[test]
fn replay_requires_dead_letter_and_owner_or_operator() {
    let mut stage = new_simulator();
    let old = create_dead_letter(&mut stage);
    stage.fire(old, "replay", &user("mallory")).expect_not_found();
    stage.fire(old, "replay", &user_with_role("mo", "moderator")).expect_not_allowed();
    stage.advance("1m");
    let other = order_image(&mut stage, "a dog").expect_ok();
    stage.fire(other, "replay", &alice()).expect_wrong_state("queued", "replay");
    assert!(stage.linked_records(old, "image.job", "replayOf").is_empty());
}

/// IMG-10, IMG-14: a refused replay changes nothing.
#[test]
fn replay_is_refused_over_limit_or_balance() {
    let mut stage = new_simulator();
    let old = create_dead_letter(&mut stage);
    stage.advance("1m");
    let active = order_image(&mut stage, "a dog").expect_ok();
    stage.fire(old, "replay", &alice()).expect_refusal(429, "one_active_job");
    stage.fire(active, "block", &user_with_role("mo", "moderator")).expect_ok();

    let mut poor = stage.clone();
    while user_credits(&poor, "alice") >= 5 {
        poor.advance("1m");
        let id = order_image(&mut poor, "another").expect_ok();
        poor.fire(id, "block", &user_with_role("mo", "moderator")).expect_ok();
    }
    poor.fire(old, "replay", &alice()).expect_refusal(402, "insufficient_credits");
    assert!(poor.linked_records(old, "image.job", "replayOf").is_empty());
    stage.fire(old, "replay", &alice()).expect_ok();
}

/// IMG-10, IMG-15: the check has started to flag the prompt since the first order.
#[test]
fn replay_is_refused_when_prompt_check_fails() {
    let mut stage = new_simulator();
    let old = create_dead_letter(&mut stage);
    let mut stricter = stage.clone().on_check(
        "image.job",
        "prompt",
        |_, _| serde_json::json!({ "readable": true, "pass": false, "sha256": "ab".repeat(32) }),
    );
    stricter.fire(old, "replay", &alice()).expect_refusal(422, "policy_violation");
    assert_eq!(stricter.audit_tags(), ["JOB_CREATED", "JOB_BLOCKED"]);
    let mut narrower = stage.clone().on_check(
        "image.job",
        "prompt",
        |_, _| serde_json::json!({ "readable": false, "pass": true, "sha256": "ab".repeat(32) }),
    );
    narrower.fire(old, "replay", &alice()).expect_refusal(422, "bad_order");
    assert_eq!((user_credits(&stricter, "alice"), user_credits(&narrower, "alice")), (100, 100));
    stage.fire(old, "replay", &alice()).expect_ok();
}

/// IMG-10: at any later time, unless the replay itself is a dead letter.
#[test]
fn second_replay_changes_nothing() {
    let mut stage = new_simulator();
    let old = create_dead_letter(&mut stage);
    stage.fire(old, "replay", &alice()).expect_ok();
    stage.fire(old, "replay", &operator("olga")).expect_unchanged();
    let new = stage.linked_records(old, "image.job", "replayOf")[0];
    stage.advance("10m");
    stage.fire(old, "replay", &alice()).expect_unchanged();
    let lease = stage.lease(new, "w1");
    stage.commit(&lease, image_result(&lease)).expect_ok();
    stage.advance("10m");
    stage.fire(old, "replay", &alice()).expect_unchanged();
    assert_eq!(stage.linked_records(old, "image.job", "replayOf").len(), 1);
    assert_eq!(user_credits(&stage, "alice"), 95);
}

/// IMG-9, IMG-10: nothing is charged, and the answer names the existing job. A second replay gets the same answer.
#[test]
fn replay_returns_equal_job_of_same_minute() {
    let mut stage = new_simulator().starting_at("2026-11-15T20:00:00Z");
    let old = create_dead_letter(&mut stage);
    let manual_job = order_image(&mut stage, "a cat").expect_ok();
    let no_op_parts = |outcome: onceward_testkit::CallOutcome| match outcome.decision {
        Decision::NoOp(no_op) => (no_op.subject, no_op.reason, no_op.existing),
        other => panic!("{other:?}"),
    };
    let replayed = stage.fire(old, "replay", &alice()).run();
    assert_eq!(no_op_parts(replayed), (old, NoOpReason::Unchanged, vec![manual_job]));
    assert_eq!(user_credits(&stage, "alice"), 95);
    stage.fire(manual_job, "block", &user_with_role("mo", "moderator")).expect_ok();
    stage.advance("1m");
    stage.fire(old, "replay", &alice()).expect_ok();
    let new = stage.linked_records(old, "image.job", "replayOf")[0];
    let repeated = stage.fire(old, "replay", &operator("olga")).run();
    assert_eq!(no_op_parts(repeated), (old, NoOpReason::Unchanged, vec![new]));
}

/// IMG-10: so can the dead letter that it replayed.
#[test]
fn dead_replay_can_be_replayed_again() {
    let mut stage = new_simulator();
    let old = create_dead_letter(&mut stage);
    stage.fire(old, "replay", &alice()).expect_ok();
    let second = stage.linked_records(old, "image.job", "replayOf")[0];
    let lease = stage.lease(second, "w1");
    stage.fail(&lease, "400").expect_ok();
    stage.fire(second, "replay", &alice()).expect_ok();
    let third = stage.linked_records(second, "image.job", "replayOf")[0];
    let lease = stage.lease(third, "w1");
    stage.fail(&lease, "400").expect_ok();
    stage.fire(old, "replay", &alice()).expect_ok();
    assert_eq!(stage.linked_records(old, "image.job", "replayOf").len(), 2);
    assert_eq!(user_credits(&stage, "alice"), 95);
}
