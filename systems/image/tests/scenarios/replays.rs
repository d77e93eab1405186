//! IMG-10: a dead letter tried again.

use onceward_core::decide::{Decision, NoOpReason};
use onceward_testkit::{operator, user};

use super::{alice, credits, dead, image, order, stage, user_role};

/// IMG-10: a replay is a new job with the same prompt, linked to the old one, which stays as it was.
#[test]
fn a_replay_is_a_new_job() {
    let mut stage = stage();
    let old = dead(&mut stage);
    let before = stage.record(old);
    stage.pass("1m");
    stage.fire(old, "replay", &alice()).ok();
    let replays = stage.linked(old, "image.job", "replayOf");
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
    stage.commit(&lease, image(&lease)).ok();
    assert_eq!(stage.state(new), "completed");
}

/// IMG-10, IMG-16: it is an order like any other: paid for again (the first was refunded) and audited.
#[test]
fn a_replay_is_paid_for() {
    let mut stage = stage();
    let old = dead(&mut stage);
    assert_eq!(credits(&stage, "alice"), 100);
    stage.fire(old, "replay", &alice()).ok();
    let new = stage.linked(old, "image.job", "replayOf")[0];
    assert_eq!((credits(&stage, "alice"), stage.hold(new)), (95, 5));
    assert_eq!(stage.audits(), ["JOB_CREATED", "JOB_CREATED"]);
}

/// IMG-10: an operator replays for the owner: the owner keeps the job, the role and the bill.
#[test]
fn an_operator_replays_for_the_owner() {
    let mut stage = stage();
    let lease = {
        let id = stage.create("image.job", &user_role("alice", "pro")).payload(b"a cat").ok();
        stage.lease(id, "w1")
    };
    stage.fail(&lease, "400").ok();
    stage.fire(lease.record, "replay", &operator("olga")).ok();
    let new = stage.linked(lease.record, "image.job", "replayOf")[0];
    assert_eq!(*stage.record(new).owner, *"alice");
    assert_eq!(stage.field(new, "role"), "pro");
    assert_eq!((credits(&stage, "alice"), credits(&stage, "olga")), (95, 0));
}

/// IMG-10: nobody else replays, and nothing but a dead letter is replayed.
#[test]
fn only_a_dead_letter_and_only_its_people() {
    let mut stage = stage();
    let old = dead(&mut stage);
    stage.fire(old, "replay", &user("mallory")).not_found();
    stage.fire(old, "replay", &user_role("mo", "moderator")).not_allowed();
    stage.pass("1m");
    let other = order(&mut stage, "a dog").ok();
    stage.fire(other, "replay", &alice()).wrong_state("queued", "replay");
    assert!(stage.linked(old, "image.job", "replayOf").is_empty());
}

/// IMG-10, IMG-14: a replay meets the checks of an order, and a refused one leaves nothing: active limit, balance.
#[test]
fn a_replay_meets_the_limits() {
    let mut stage = stage();
    let old = dead(&mut stage);
    stage.pass("1m");
    let active = order(&mut stage, "a dog").ok();
    stage.fire(old, "replay", &alice()).refused(429, "one_active_job");
    stage.fire(active, "block", &user_role("mo", "moderator")).ok();

    let mut poor = stage.clone();
    while credits(&poor, "alice") >= 5 {
        poor.pass("1m");
        let id = order(&mut poor, "another").ok();
        poor.fire(id, "block", &user_role("mo", "moderator")).ok();
    }
    poor.fire(old, "replay", &alice()).refused(402, "insufficient_credits");
    assert!(poor.linked(old, "image.job", "replayOf").is_empty());
    stage.fire(old, "replay", &alice()).ok();
}

/// IMG-10, IMG-15: a prompt that the guard has learnt to block meanwhile is blocked in a replay too.
#[test]
fn a_replay_meets_the_guard() {
    let mut stage = stage();
    let old = dead(&mut stage);
    let mut stricter = stage.clone().answer(
        "image.job",
        "prompt",
        |_, _| serde_json::json!({ "readable": true, "pass": false, "sha256": "ab".repeat(32) }),
    );
    stricter.fire(old, "replay", &alice()).refused(422, "policy_violation");
    assert_eq!(stricter.audits(), ["JOB_CREATED", "JOB_BLOCKED"]);
    let mut narrower = stage.clone().answer(
        "image.job",
        "prompt",
        |_, _| serde_json::json!({ "readable": false, "pass": true, "sha256": "ab".repeat(32) }),
    );
    narrower.fire(old, "replay", &alice()).refused(422, "bad_order");
    assert_eq!((credits(&stricter, "alice"), credits(&narrower, "alice")), (100, 100));
    stage.fire(old, "replay", &alice()).ok();
}

/// IMG-10: replaying twice is replaying once, however much later, unless the replay itself is dead.
#[test]
fn a_second_replay_is_the_first() {
    let mut stage = stage();
    let old = dead(&mut stage);
    stage.fire(old, "replay", &alice()).ok();
    stage.fire(old, "replay", &operator("olga")).unchanged();
    let new = stage.linked(old, "image.job", "replayOf")[0];
    stage.pass("10m");
    stage.fire(old, "replay", &alice()).unchanged();
    let lease = stage.lease(new, "w1");
    stage.commit(&lease, image(&lease)).ok();
    stage.pass("10m");
    stage.fire(old, "replay", &alice()).unchanged();
    assert_eq!(stage.linked(old, "image.job", "replayOf").len(), 1);
    assert_eq!(credits(&stage, "alice"), 95);
}

/// IMG-9, IMG-10: a replay in the minute in which its owner has placed the same order again is that order: nothing is charged, and whoever asked
/// can be told which job it is. So is a second replay.
#[test]
fn a_replay_may_have_been_ordered_by_hand() {
    let mut stage = stage().at("2026-11-15T20:00:00Z");
    let old = dead(&mut stage);
    let by_hand = order(&mut stage, "a cat").ok();
    let met = |outcome: onceward_testkit::Outcome| match outcome.decision {
        Decision::NoOp(no_op) => (no_op.subject, no_op.reason, no_op.met),
        other => panic!("{other:?}"),
    };
    let replayed = stage.fire(old, "replay", &alice()).outcome();
    assert_eq!(met(replayed), (old, NoOpReason::Unchanged, vec![by_hand]));
    assert_eq!(credits(&stage, "alice"), 95);
    stage.fire(by_hand, "block", &user_role("mo", "moderator")).ok();
    stage.pass("1m");
    stage.fire(old, "replay", &alice()).ok();
    let new = stage.linked(old, "image.job", "replayOf")[0];
    let again = stage.fire(old, "replay", &operator("olga")).outcome();
    assert_eq!(met(again), (old, NoOpReason::Unchanged, vec![new]));
}

/// IMG-10: a replay that died can be replayed, and so can what it replayed.
#[test]
fn a_dead_replay_can_be_replayed() {
    let mut stage = stage();
    let old = dead(&mut stage);
    stage.fire(old, "replay", &alice()).ok();
    let second = stage.linked(old, "image.job", "replayOf")[0];
    let lease = stage.lease(second, "w1");
    stage.fail(&lease, "400").ok();
    stage.fire(second, "replay", &alice()).ok();
    let third = stage.linked(second, "image.job", "replayOf")[0];
    let lease = stage.lease(third, "w1");
    stage.fail(&lease, "400").ok();
    stage.fire(old, "replay", &alice()).ok();
    assert_eq!(stage.linked(old, "image.job", "replayOf").len(), 2);
    assert_eq!(credits(&stage, "alice"), 95);
}
