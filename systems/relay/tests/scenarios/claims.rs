//! REL-9, REL-10, REL-13, REL-21: claims, unclaims and completion rates.

use onceward_testkit::{operator, user, user_with_roles};
use serde_json::{Value, json};

use super::{
    alice, claim_and_submit, claim_job, completion_rate, create_funded_job, create_won_job, find_agent, fund_exactly,
    lease_submission, new_simulator, post_job, register_agent, verdict,
};

/// REL-9
#[test]
fn each_worker_claims_funded_job_once() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    claim_job(&mut stage, job, "bob").expect_ok();
    claim_job(&mut stage, job, "carol").expect_ok();
    claim_job(&mut stage, job, "bob").expect_refusal(409, "already_claimed");
    assert_eq!(stage.field(job, "participants"), json!(["bob", "carol"]));
    assert_eq!(stage.field(find_agent(&stage, "bob"), "claims"), 1);
}

/// REL-9
#[test]
fn claim_by_stranger_or_buyer_is_refused() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    for event in ["claim", "unclaim"] {
        for caller in [user("mallory"), operator("olga")] {
            stage.fire(job, event, &caller).expect_not_allowed();
        }
    }
    stage.fire(job, "claim", &alice()).expect_refusal(403, "own_job");
    register_agent(&mut stage, "mallory").expect_ok();
    claim_job(&mut stage, job, "mallory").expect_ok();
}

/// REL-9: a registered operator may post a job for an unregistered owner.
#[test]
fn unregistered_owner_cannot_claim() {
    let mut stage = new_simulator();
    let server = user_with_roles("alice", &["operator"]);
    let fields = json!({ "title": "t", "description": "d", "price": super::JOB_PRICE_MICRO_USDC });
    let job = stage.create("relay.job", &server).owner("zoe").with_all(fields).expect_ok();
    stage.fire(job, "fund", &user("zoe")).with("tx_hash", super::tx_hash(1, super::JOB_PRICE_MICRO_USDC)).expect_ok();
    for event in ["claim", "unclaim"] {
        stage.fire(job, event, &user("zoe")).expect_not_allowed();
    }
    claim_job(&mut stage, job, "alice").expect_ok();
}

/// REL-9: also before the scheduler has expired it.
#[test]
fn claim_of_ended_or_overdue_job_is_refused() {
    let mut stage = new_simulator();
    let job = create_won_job(&mut stage, "bob");
    claim_job(&mut stage, job, "carol").expect_wrong_state("resolved", "claim");
    let job = super::create_cancelled_job(&mut stage);
    claim_job(&mut stage, job, "carol").expect_wrong_state("cancelled", "claim");
    let job = create_funded_job(&mut stage);
    stage.advance_without_engine("1d");
    claim_job(&mut stage, job, "carol").expect_wrong_state("expired", "claim");
    assert_eq!(stage.field(find_agent(&stage, "carol"), "claims"), 0);
}

/// REL-9: the refusal gives the reason, and an unclaim frees a place.
#[test]
fn claim_over_one_thousand_is_refused() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    for number in 0..1000 {
        let name = format!("worker-{number}");
        register_agent(&mut stage, &name).expect_ok();
        claim_job(&mut stage, job, &name).expect_ok();
    }
    claim_job(&mut stage, job, "bob").expect_refusal(409, "claims_full");
    claim_job(&mut stage, job, "worker-7").expect_refusal(409, "already_claimed");
    stage.fire(job, "unclaim", &user("worker-7")).expect_ok();
    claim_job(&mut stage, job, "bob").expect_ok();
    claim_job(&mut stage, job, "worker-7").expect_refusal(409, "claims_full");
}

/// REL-13, REL-3: null without claims; recomputed with every claim, unclaim and win.
#[test]
fn completion_rate_is_wins_per_claim() {
    let mut stage = new_simulator();
    assert_eq!(completion_rate(&stage, "bob"), Value::Null);
    let first = create_funded_job(&mut stage);
    claim_job(&mut stage, first, "bob").expect_ok();
    assert_eq!(completion_rate(&stage, "bob"), 0.0);
    create_won_job(&mut stage, "bob");
    assert_eq!(completion_rate(&stage, "bob"), 0.5);
    create_won_job(&mut stage, "bob");
    assert_eq!(completion_rate(&stage, "bob"), 2.0 / 3.0);
    let failed = lease_submission(&mut stage, first, "bob");
    stage.commit(&failed, verdict(10)).expect_ok();
    assert_eq!(completion_rate(&stage, "bob"), 2.0 / 3.0, "a failing verdict changes neither number");
    let bob = find_agent(&stage, "bob");
    assert_eq!((stage.field(bob, "passed"), stage.field(bob, "claims")), (json!(2), json!(3)));
}

/// REL-21, REL-13
#[test]
fn unclaim_before_submission_removes_claim() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    claim_job(&mut stage, job, "bob").expect_ok();
    claim_job(&mut stage, job, "carol").expect_ok();
    stage.fire(job, "unclaim", &user("bob")).expect_ok();
    assert_eq!(stage.field(job, "participants"), json!(["carol"]));
    assert_eq!(
        (stage.field(find_agent(&stage, "bob"), "claims"), completion_rate(&stage, "bob")),
        (json!(0), Value::Null)
    );
    super::submit_work(&mut stage, job, "bob").expect_refusal(403, "not_claimed");
    claim_job(&mut stage, job, "bob").expect_ok();
    create_won_job(&mut stage, "bob");
    stage.fire(job, "unclaim", &user("bob")).expect_ok();
    assert_eq!(completion_rate(&stage, "bob"), 1.0);
    let [lost_job, unclaimed_job] = [create_funded_job(&mut stage), create_funded_job(&mut stage)];
    claim_job(&mut stage, lost_job, "bob").expect_ok();
    claim_job(&mut stage, unclaimed_job, "bob").expect_ok();
    stage.fire(unclaimed_job, "unclaim", &user("bob")).expect_ok();
    assert_eq!(completion_rate(&stage, "bob"), 0.5);
}

/// REL-21: submissions of other workers do not matter.
#[test]
fn unclaim_after_submission_is_refused() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    claim_job(&mut stage, job, "carol").expect_ok();
    let lease = lease_submission(&mut stage, job, "bob");
    stage.fire(job, "unclaim", &user("bob")).expect_refusal(409, "already_submitted");
    stage.fail(&lease, "500").expect_ok();
    stage.fire(job, "unclaim", &user("bob")).expect_refusal(409, "already_submitted");
    stage.fire(job, "unclaim", &user("carol")).expect_ok();
    stage.fire(job, "unclaim", &user("carol")).expect_refusal(409, "not_claimed");
    stage.fire(job, "unclaim", &user("mallory")).expect_not_allowed();
    stage.advance("1d");
    stage.fire(job, "unclaim", &user("bob")).expect_wrong_state("expired", "unclaim");
}

/// REL-10: exactly the minimum is enough; a missing rate counts as 0.
#[test]
fn claim_below_min_reputation_is_refused() {
    for (min_reputation, agent_id, admitted) in [
        (0.5, "bob", true),
        (0.500_001, "bob", false),
        (0.0, "carol", true),
        (0.000_001, "carol", false),
        (1.0, "dave", true),
    ] {
        let mut stage = new_simulator();
        create_won_job(&mut stage, "bob");
        create_won_job(&mut stage, "dave");
        let other = create_funded_job(&mut stage);
        claim_job(&mut stage, other, "bob").expect_ok();
        assert_eq!((completion_rate(&stage, "bob"), completion_rate(&stage, "carol")), (json!(0.5), Value::Null));
        let job = post_job(&mut stage).with("min_reputation", min_reputation).expect_ok();
        fund_exactly(&mut stage, job);
        let attempt = claim_job(&mut stage, job, agent_id);
        if admitted {
            attempt.expect_ok();
        } else {
            attempt.expect_refusal(403, "reputation_too_low");
            assert_eq!(stage.field(job, "participants"), json!([]));
        }
    }
}

/// REL-10
#[test]
fn claim_stays_when_completion_rate_falls() {
    let mut stage = new_simulator();
    create_won_job(&mut stage, "bob");
    let job = post_job(&mut stage).with("min_reputation", 1.0).expect_ok();
    fund_exactly(&mut stage, job);
    claim_job(&mut stage, job, "bob").expect_ok();
    assert_eq!(completion_rate(&stage, "bob"), 0.5);
    claim_and_submit(&mut stage, job, "bob");
}
