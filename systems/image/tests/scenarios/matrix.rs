//! Transition matrix of the three lifecycles: every event in every state by every caller.

use onceward_testkit::matrix::{AllowedTransition, LifecycleMatrix};
use onceward_testkit::user;
use serde_json::{Map, Value, json};

use super::{
    alice, create_dead_letter, create_failed_job, create_queued_job, create_running_job, grant_credits, image_result,
    user_with_role, with_prompt_check,
};

/// All transitions of the requirement.
const ALLOWED_JOB_TRANSITIONS: &[AllowedTransition<'static>] = &[
    ("nothing", "create", "owner, operator, stranger, moderator, record", "queued"),
    ("queued", "lease", "operator, worker, another worker", "running"),
    ("queued", "block", "moderator", "rejected"),
    ("queued", "withdraw", "owner, operator", "dead_letter"),
    ("running", "start", "worker", "running"),
    ("running", "heartbeat", "worker", "running"),
    ("running: first try", "commit", "worker", "completed"),
    ("running: first try", "commit and finish", "worker", "completed"),
    ("running: first try", "fail policy", "worker", "rejected"),
    ("running: first try", "fail 400", "worker", "dead_letter"),
    ("running: first try", "fail 503", "worker", "failed"),
    ("running: first try", "yield", "worker", "failed"),
    ("running: first try", "lost", "engine", "failed"),
    ("running: first try", "time", "engine", "failed"),
    ("running: last try", "commit", "worker", "completed"),
    ("running: last try", "commit and finish", "worker", "completed"),
    ("running: last try", "fail policy", "worker", "rejected"),
    ("running: last try", "fail 400", "worker", "dead_letter"),
    ("running: last try", "fail 503", "worker", "dead_letter"),
    ("running: last try", "yield", "worker", "dead_letter"),
    ("running: last try", "lost", "engine", "dead_letter"),
    ("running: last try", "time", "engine", "dead_letter"),
    ("failed", "time", "engine", "queued"),
    ("failed", "withdraw", "owner, operator", "dead_letter"),
    ("dead_letter", "replay", "owner, operator", "dead_letter"),
    // The job's state does not change: its execution is still open after the commit.
    ("completed: not closed", "heartbeat", "worker", "completed"),
    ("completed: not closed", "finish", "worker", "completed"),
    ("completed: not closed", "commit and finish", "worker", "completed"),
    ("completed: not closed", "lost", "engine", "completed"),
    ("completed: not closed", "time", "engine", "completed"),
];

fn with_credits_for_all(stage: onceward_testkit::Simulator) -> onceward_testkit::Simulator {
    let mut stage = with_prompt_check(stage);
    for caller in ["alice", "olga", "mallory", "w1", "w2", "mo"] {
        grant_credits(&mut stage, caller, 100);
    }
    stage
}

/// IMG-1, IMG-2, IMG-3, IMG-4, IMG-5, IMG-6, IMG-7, IMG-8, IMG-10
#[test]
fn only_allowed_job_transitions_happen() {
    LifecycleMatrix::new("image", "image.job", &[], with_credits_for_all)
        .with_caller("moderator", user_with_role("mo", "moderator"))
        .with_create_input(Map::new(), Some(b"a cat"))
        .with_work_trials(
            &json!({ "url": "originals/{id}.png", "sha256": "ab".repeat(32), "bytes": 1 }),
            &["policy", "400", "503"],
        )
        .with_scene("queued", create_queued_job)
        .with_scene("running: first try", create_running_job)
        .with_scene("running: last try", |stage| {
            let lease = create_failed_job(stage, 3);
            stage.advance("10s");
            stage.lease(lease.record, "w1")
        })
        .with_scene("failed", |stage| create_failed_job(stage, 1))
        .with_scene("completed", |stage| {
            let lease = create_running_job(stage);
            stage.commit(&lease, image_result(&lease)).expect_ok();
            lease
        })
        .with_scene("completed: not closed", |stage| {
            let lease = create_running_job(stage);
            stage.commit_only(&lease, image_result(&lease)).expect_ok();
            lease
        })
        .with_scene("rejected", |stage| {
            let lease = create_running_job(stage);
            stage.fail(&lease, "policy").expect_ok();
            lease
        })
        .with_scene("dead_letter", create_dead_letter)
        .assert_only_allowed(ALLOWED_JOB_TRANSITIONS);
}

/// IMG-3
#[test]
fn only_allowed_asset_transitions_happen() {
    // The asset belongs to a replay; the replayed job has no asset, so another record may try to spawn one.
    let create_stored_asset = |stage: &mut onceward_testkit::Simulator| {
        let old = create_dead_letter(stage);
        stage.fire(old, "replay", &alice()).expect_ok();
        let new = stage.linked_records(old, "image.job", "replayOf")[0];
        let lease = stage.lease(new, "w1");
        stage.commit(&lease, image_result(&lease)).expect_ok();
        stage.linked_records(new, "image.asset", "job")[0]
    };
    let job_without_asset = "record.target.job.replayOf == null ? record.target.job : record.target.job.replayOf";
    let spawned = [("job", job_without_asset), ("url", "'originals/x'"), ("sha256", "'ab'"), ("bytes", "1")];
    let create_clearing_asset = |stage: &mut onceward_testkit::Simulator| {
        let id = create_stored_asset(stage);
        stage.fire(id, "remove", &alice()).expect_ok();
        stage.lease(id, "w1")
    };
    LifecycleMatrix::new("image", "image.asset", &spawned, with_credits_for_all)
        .with_work_trials(&json!({}), &["503"])
        .with_scene("stored", create_stored_asset)
        .with_scene("removing", |stage| {
            let id = create_stored_asset(stage);
            stage.fire(id, "remove", &alice()).expect_ok()
        })
        .with_scene("clearing", create_clearing_asset)
        .with_scene("removed", |stage| {
            let lease = create_clearing_asset(stage);
            stage.commit(&lease, json!({})).expect_ok();
            lease
        })
        .assert_only_allowed(&[
            ("nothing", "create", "record", "stored"),
            ("stored", "remove", "owner", "removing"),
            ("removing", "lease", "operator, worker, another worker", "clearing"),
            ("clearing", "start", "worker", "clearing"),
            ("clearing", "heartbeat", "worker", "clearing"),
            ("clearing", "commit", "worker", "removed"),
            ("clearing", "commit and finish", "worker", "removed"),
            ("clearing", "fail 503", "worker", "removing"),
            ("clearing", "yield", "worker", "removing"),
            ("clearing", "lost", "engine", "removing"),
            ("clearing", "time", "engine", "removing"),
        ]);
}

/// IMG-17
#[test]
fn only_allowed_grant_transitions_happen() {
    let Value::Object(grant_fields) = json!({ "user": "alice", "amount": 5, "order": "o-1" }) else { unreachable!() };
    LifecycleMatrix::new(
        "image",
        "image.grant",
        &[("user", "'eve'"), ("amount", "5"), ("order", "'o-2'")],
        with_prompt_check,
    )
    .with_caller("payee", user("alice"))
    .with_owner(user("zoe"))
    .with_create_input(grant_fields, None)
    .with_scene("granted", |stage| grant_credits(stage, "alice", 5))
    .assert_only_allowed(&[("nothing", "create", "operator", "granted")]);
}
