//! IMG-13: withdrawals.

use onceward_testkit::{operator, user};

use super::{
    alice, create_failed_job, create_queued_job, create_running_job, grant_credits, image_result, new_simulator,
    order_image, user_credits, user_with_role,
};

/// IMG-13: while it waits for a worker or a retry, by its owner or an operator; no timer remains.
#[test]
fn waiting_job_is_withdrawn_and_refunded() {
    for caller in [alice(), operator("olga")] {
        let mut stage = new_simulator();
        let waiting = create_queued_job(&mut stage);
        let transfers = stage.fire(waiting, "withdraw", &caller).expect_changes().transfers.len();
        assert_eq!((transfers, stage.hold_balance(waiting), user_credits(&stage, "alice")), (1, 0, 100));
        assert_eq!(
            (stage.state(waiting).as_str(), stage.field(waiting, "lastError")),
            ("dead_letter", "withdrawn".into())
        );
        assert!(stage.record(waiting).is_final());
        stage.try_lease(waiting, "w1").expect_not_leasable();

        stage.advance("1m");
        let failed_job = create_failed_job(&mut stage, 2).record;
        stage.fire(failed_job, "withdraw", &caller).expect_ok();
        assert_eq!(
            (stage.state(failed_job).as_str(), stage.field(failed_job, "lastError")),
            ("dead_letter", "withdrawn".into())
        );
        assert_eq!(
            (user_credits(&stage, "alice"), stage.hold_balance(failed_job), stage.next_timer_due(failed_job)),
            (100, 0, None)
        );
        stage.advance("1h");
        assert_eq!(stage.state(failed_job), "dead_letter");
        assert_eq!((stage.balance("credit", "revenue"), stage.balance("credit", "penalties")), (0, 0));
        assert_eq!(stage.audit_tags(), ["JOB_CREATED", "JOB_CREATED"]);
    }
}

/// IMG-13: callers other than owner and operator are refused, too.
#[test]
fn withdraw_of_running_or_final_job_is_refused() {
    let mut stage = new_simulator();
    let id = create_queued_job(&mut stage);
    stage.fire(id, "withdraw", &user("mallory")).expect_not_found();
    stage.fire(id, "withdraw", &user_with_role("mo", "moderator")).expect_not_allowed();
    let lease = stage.lease(id, "w1");
    stage.fire(id, "withdraw", &alice()).expect_wrong_state("running", "withdraw");
    stage.fire(id, "withdraw", &operator("olga")).expect_wrong_state("running", "withdraw");
    stage.commit(&lease, image_result(&lease)).expect_ok();
    stage.fire(id, "withdraw", &alice()).expect_wrong_state("completed", "withdraw");
    stage.advance("1m");
    let rejected = create_running_job(&mut stage);
    stage.fail(&rejected, "policy").expect_ok();
    stage.fire(rejected.record, "withdraw", &alice()).expect_wrong_state("rejected", "withdraw");
    stage.advance("1m");
    let withdrawn = create_queued_job(&mut stage);
    stage.fire(withdrawn, "withdraw", &alice()).expect_ok();
    stage.fire(withdrawn, "withdraw", &alice()).expect_wrong_state("dead_letter", "withdraw");
    assert_eq!(user_credits(&stage, "alice"), 90, "one image and one penalty");
}

/// IMG-9, IMG-14: the same order in the same minute creates a new job.
#[test]
fn withdrawn_job_frees_slot_but_counts_in_quota() {
    let mut stage = new_simulator().starting_at("2026-11-15T20:00:00Z");
    grant_credits(&mut stage, "zoe", 25);
    let create_job =
        |stage: &mut onceward_testkit::Simulator| stage.create("image.job", &user("zoe")).payload(b"a cat").expect_ok();
    let mut all = Vec::new();
    for _ in 0..5 {
        let id = create_job(&mut stage);
        stage.fire(id, "withdraw", &user("zoe")).expect_ok();
        all.push(id);
    }
    all.dedup();
    assert_eq!((all.len(), user_credits(&stage, "zoe")), (5, 25));
    stage.create("image.job", &user("zoe")).payload(b"a cat").expect_refusal(429, "quota");
    let dog = order_image(&mut stage, "a dog").expect_ok();
    stage.fire(dog, "withdraw", &alice()).expect_ok();
    order_image(&mut stage, "a mouse").expect_ok();
}

/// IMG-10: the replay is charged.
#[test]
fn withdrawn_job_can_be_replayed() {
    let mut stage = new_simulator();
    let old = create_queued_job(&mut stage);
    stage.fire(old, "withdraw", &alice()).expect_ok();
    stage.fire(old, "replay", &alice()).expect_ok();
    let new = stage.linked_records(old, "image.job", "replayOf")[0];
    assert_eq!((stage.state(new).as_str(), user_credits(&stage, "alice"), stage.hold_balance(new)), ("queued", 95, 5));
    assert_eq!(stage.state(old), "dead_letter");
}
