//! Every state, every event, every caller, for the three lifecycles.

use onceward_testkit::matrix::{Allowed, Matrix};
use onceward_testkit::user;
use serde_json::{Map, Value, json};

use super::{alice, dead, dressed, failed, grant, image, queued, running, user_role};

/// Typed from the requirement.
const JOB: &[Allowed<'static>] = &[
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
    // Not a move of the job: its worker's execution is still to be closed after the commit.
    ("completed: not closed", "heartbeat", "worker", "completed"),
    ("completed: not closed", "finish", "worker", "completed"),
    ("completed: not closed", "commit and finish", "worker", "completed"),
    ("completed: not closed", "lost", "engine", "completed"),
    ("completed: not closed", "time", "engine", "completed"),
];

fn with_credits(stage: onceward_testkit::Stage) -> onceward_testkit::Stage {
    let mut stage = dressed(stage);
    for caller in ["alice", "olga", "mallory", "w1", "w2", "mo"] {
        grant(&mut stage, caller, 100);
    }
    stage
}

/// IMG-1, IMG-2, IMG-3, IMG-4, IMG-5, IMG-6, IMG-7, IMG-8, IMG-10: these moves happen, and no other does.
#[test]
fn every_state_event_and_caller_of_a_job() {
    Matrix::new("image", "image.job", &[], with_credits)
        .caller("moderator", user_role("mo", "moderator"))
        .given(Map::new(), Some(b"a cat"))
        .works(
            &json!({ "url": "originals/{id}.png", "sha256": "ab".repeat(32), "bytes": 1 }),
            &["policy", "400", "503"],
        )
        .scene("queued", queued)
        .scene("running: first try", running)
        .scene("running: last try", |stage| {
            let lease = failed(stage, 3);
            stage.pass("10s");
            stage.lease(lease.record, "w1")
        })
        .scene("failed", |stage| failed(stage, 1))
        .scene("completed", |stage| {
            let lease = running(stage);
            stage.commit(&lease, image(&lease)).ok();
            lease
        })
        .scene("completed: not closed", |stage| {
            let lease = running(stage);
            stage.commit_only(&lease, image(&lease)).ok();
            lease
        })
        .scene("rejected", |stage| {
            let lease = running(stage);
            stage.fail(&lease, "policy").ok();
            lease
        })
        .scene("dead_letter", dead)
        .check(JOB);
}

/// IMG-3: only a job's commit makes an asset, and only its owner removes it.
#[test]
fn every_state_event_and_caller_of_an_asset() {
    // Of a replay: what it replays is a job without an asset, for another record to make one of.
    let stored = |stage: &mut onceward_testkit::Stage| {
        let old = dead(stage);
        stage.fire(old, "replay", &alice()).ok();
        let new = stage.linked(old, "image.job", "replayOf")[0];
        let lease = stage.lease(new, "w1");
        stage.commit(&lease, image(&lease)).ok();
        stage.linked(new, "image.asset", "job")[0]
    };
    let without = "record.target.job.replayOf == null ? record.target.job : record.target.job.replayOf";
    let spawned = [("job", without), ("url", "'originals/x'"), ("sha256", "'ab'"), ("bytes", "1")];
    let clearing = |stage: &mut onceward_testkit::Stage| {
        let id = stored(stage);
        stage.fire(id, "remove", &alice()).ok();
        stage.lease(id, "w1")
    };
    Matrix::new("image", "image.asset", &spawned, with_credits)
        .works(&json!({}), &["503"])
        .scene("stored", stored)
        .scene("removing", |stage| {
            let id = stored(stage);
            stage.fire(id, "remove", &alice()).ok()
        })
        .scene("clearing", clearing)
        .scene("removed", |stage| {
            let lease = clearing(stage);
            stage.commit(&lease, json!({})).ok();
            lease
        })
        .check(&[
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

/// IMG-17: only an operator makes a grant, and nothing moves it.
#[test]
fn every_state_event_and_caller_of_a_grant() {
    let Value::Object(gift) = json!({ "user": "alice", "amount": 5, "order": "o-1" }) else { unreachable!() };
    Matrix::new("image", "image.grant", &[("user", "'eve'"), ("amount", "5"), ("order", "'o-2'")], dressed)
        .caller("payee", user("alice"))
        .owner_is(user("zoe"))
        .given(gift, None)
        .scene("granted", |stage| grant(stage, "alice", 5))
        .check(&[("nothing", "create", "operator", "granted")]);
}
