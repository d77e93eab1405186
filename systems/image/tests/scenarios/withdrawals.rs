//! IMG-13: an order that its owner does not want to wait for any more.

use onceward_testkit::{operator, user};

use super::{alice, credits, failed, grant, image, order, queued, running, stage, user_role};

/// IMG-13: what waits for a worker or for its next try is taken back by its owner or an operator: it is over, the credits are the owner's again,
/// and nothing is due any more.
#[test]
fn what_waits_can_be_withdrawn() {
    for by in [alice(), operator("olga")] {
        let mut stage = stage();
        let waiting = queued(&mut stage);
        let moves = stage.fire(waiting, "withdraw", &by).changes().moves.len();
        assert_eq!((moves, stage.hold(waiting), credits(&stage, "alice")), (1, 0, 100));
        assert_eq!(
            (stage.state(waiting).as_str(), stage.field(waiting, "lastError")),
            ("dead_letter", "withdrawn".into())
        );
        assert!(stage.record(waiting).is_final());
        stage.try_lease(waiting, "w1").not_leasable();

        stage.pass("1m");
        let pausing = failed(&mut stage, 2).record;
        stage.fire(pausing, "withdraw", &by).ok();
        assert_eq!(
            (stage.state(pausing).as_str(), stage.field(pausing, "lastError")),
            ("dead_letter", "withdrawn".into())
        );
        assert_eq!((credits(&stage, "alice"), stage.hold(pausing), stage.due(pausing)), (100, 0, None));
        stage.pass("1h");
        assert_eq!(stage.state(pausing), "dead_letter");
        assert_eq!((stage.balance("credit", "revenue"), stage.balance("credit", "penalties")), (0, 0));
        assert_eq!(stage.audits(), ["JOB_CREATED", "JOB_CREATED"]);
    }
}

/// IMG-13: what is being drawn runs to its end, and what has ended stays as it is; nobody but owner and operator withdraws.
#[test]
fn what_runs_or_has_ended_is_not_withdrawn() {
    let mut stage = stage();
    let id = queued(&mut stage);
    stage.fire(id, "withdraw", &user("mallory")).not_found();
    stage.fire(id, "withdraw", &user_role("mo", "moderator")).not_allowed();
    let lease = stage.lease(id, "w1");
    stage.fire(id, "withdraw", &alice()).wrong_state("running", "withdraw");
    stage.fire(id, "withdraw", &operator("olga")).wrong_state("running", "withdraw");
    stage.commit(&lease, image(&lease)).ok();
    stage.fire(id, "withdraw", &alice()).wrong_state("completed", "withdraw");
    stage.pass("1m");
    let rejected = running(&mut stage);
    stage.fail(&rejected, "policy").ok();
    stage.fire(rejected.record, "withdraw", &alice()).wrong_state("rejected", "withdraw");
    stage.pass("1m");
    let withdrawn = queued(&mut stage);
    stage.fire(withdrawn, "withdraw", &alice()).ok();
    stage.fire(withdrawn, "withdraw", &alice()).wrong_state("dead_letter", "withdraw");
    assert_eq!(credits(&stage, "alice"), 90, "one picture, one penalty");
}

/// IMG-9, IMG-14: what was withdrawn makes room: another order, or the same in the same minute, is a new one. It counts in the hour all the same.
#[test]
fn what_was_withdrawn_makes_room() {
    let mut stage = stage().at("2026-11-15T20:00:00Z");
    grant(&mut stage, "zoe", 25);
    let place = |stage: &mut onceward_testkit::Stage| stage.create("image.job", &user("zoe")).payload(b"a cat").ok();
    let mut all = Vec::new();
    for _ in 0..5 {
        let id = place(&mut stage);
        stage.fire(id, "withdraw", &user("zoe")).ok();
        all.push(id);
    }
    all.dedup();
    assert_eq!((all.len(), credits(&stage, "zoe")), (5, 25));
    stage.create("image.job", &user("zoe")).payload(b"a cat").refused(429, "quota");
    let dog = order(&mut stage, "a dog").ok();
    stage.fire(dog, "withdraw", &alice()).ok();
    order(&mut stage, "a mouse").ok();
}

/// IMG-10: who has thought better of it may have it replayed, as any dead letter: a new order, paid for.
#[test]
fn what_was_withdrawn_can_be_replayed() {
    let mut stage = stage();
    let old = queued(&mut stage);
    stage.fire(old, "withdraw", &alice()).ok();
    stage.fire(old, "replay", &alice()).ok();
    let new = stage.linked(old, "image.job", "replayOf")[0];
    assert_eq!((stage.state(new).as_str(), credits(&stage, "alice"), stage.hold(new)), ("queued", 95, 5));
    assert_eq!(stage.state(old), "dead_letter");
}
