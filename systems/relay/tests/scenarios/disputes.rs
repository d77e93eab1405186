//! REL-21: disputes of resolved jobs.

use onceward_testkit::{SimulatedCall, Simulator, operator, user, user_with_roles};
use serde_json::json;

use super::{account_balance, alice, create_funded_job, create_won_job, depositor_balance, find_agent, new_simulator};
use onceward_core::value::RecordId;

fn open_dispute<'s>(stage: &'s mut Simulator, job: RecordId, agent_id: &str) -> SimulatedCall<'s> {
    stage.create("relay.dispute", &user(agent_id)).with("job", job.to_string()).with("reason", "not what was asked for")
}

/// REL-21
#[test]
fn buyer_and_winner_dispute_once_each() {
    let mut stage = new_simulator();
    let job = create_won_job(&mut stage, "bob");
    let buyer_dispute = open_dispute(&mut stage, job, "alice").expect_ok();
    assert_eq!(stage.state(buyer_dispute), "opened");
    open_dispute(&mut stage, job, "alice").expect_refusal(409, "already_disputed");
    open_dispute(&mut stage, job, "bob").expect_ok();
    open_dispute(&mut stage, job, "bob").expect_refusal(409, "already_disputed");
    stage.fire(buyer_dispute, "dismiss", &operator("olga")).with("finding", "it is a haiku").expect_ok();
    open_dispute(&mut stage, job, "alice").expect_refusal(409, "already_disputed");
    let other = create_won_job(&mut stage, "bob");
    open_dispute(&mut stage, other, "alice").expect_ok();
}

/// REL-21
#[test]
fn dispute_requires_party_of_resolved_job() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    open_dispute(&mut stage, job, "alice").expect_refusal(409, "job_not_resolved");
    let lease = super::lease_submission(&mut stage, job, "bob");
    super::claim_job(&mut stage, job, "carol").expect_ok();
    stage.commit(&lease, super::verdict(90)).expect_ok();
    open_dispute(&mut stage, job, "carol").expect_not_allowed();
    open_dispute(&mut stage, job, "mallory").expect_not_allowed();
    let dispute_fields = json!({ "job": job.to_string(), "reason": "I do not like it" });
    stage.create("relay.dispute", &operator("olga")).with_all(dispute_fields).expect_not_allowed();
    stage.create("relay.dispute", &alice()).with("reason", "of an unknown job").expect_bad_input();
    for bad in [json!(""), json!("x".repeat(2001)), json!(null)] {
        open_dispute(&mut stage, job, "alice").with("reason", bad).expect_bad_input();
    }
    open_dispute(&mut stage, job, "alice").with("reason", "x".repeat(2000)).expect_ok();
    open_dispute(&mut stage, job, "bob").with("reason", "x").expect_ok();
    let expired = super::create_expired_job(&mut stage);
    open_dispute(&mut stage, expired, "alice").expect_refusal(409, "job_not_resolved");
}

/// REL-21: with a finding, either way.
#[test]
fn operator_closes_dispute_without_transfers() {
    for (event, state) in [("uphold", "upheld"), ("dismiss", "dismissed")] {
        let mut stage = new_simulator();
        let job = create_won_job(&mut stage, "bob");
        let dispute = open_dispute(&mut stage, job, "alice").expect_ok();
        let before = (
            account_balance(&stage, "fee"),
            account_balance(&stage, "chain"),
            depositor_balance(&stage),
            stage.records_of("relay.settlement").len(),
        );
        for caller in [alice(), user("bob")] {
            stage.fire(dispute, event, &caller).with("finding", "agreed").expect_not_allowed();
        }
        stage.fire(dispute, event, &user("mallory")).with("finding", "agreed").expect_not_found();
        stage.fire(dispute, event, &operator("olga")).expect_bad_input();
        stage.fire(dispute, event, &operator("olga")).with("finding", "agreed").expect_ok();
        assert_eq!((stage.state(dispute).as_str(), stage.field(dispute, "finding")), (state, json!("agreed")));
        assert!(stage.record(dispute).is_final(), "{state} is declared final");
        for second_event in ["uphold", "dismiss"] {
            stage
                .fire(dispute, second_event, &operator("olga"))
                .with("finding", "x")
                .expect_wrong_state(state, second_event);
        }
        let after = (
            account_balance(&stage, "fee"),
            account_balance(&stage, "chain"),
            depositor_balance(&stage),
            stage.records_of("relay.settlement").len(),
        );
        assert_eq!(before, after);
        assert_eq!(
            (stage.state(job).as_str(), stage.field(find_agent(&stage, "bob"), "passed")),
            ("resolved", json!(1))
        );
    }
}

/// REL-21: a party with the operator role may open a dispute for another owner, who sees it but cannot decide it.
#[test]
fn dispute_owner_cannot_decide_it() {
    let mut stage = new_simulator();
    let job = create_won_job(&mut stage, "bob");
    let dispute_fields = json!({ "job": job.to_string(), "reason": "on behalf of my client" });
    let server = user_with_roles("alice", &["operator"]);
    let id = stage.create("relay.dispute", &server).owner("lawyer").with_all(dispute_fields).expect_ok();
    stage.fire(id, "uphold", &user("lawyer")).with("finding", "agreed").expect_not_allowed();
    stage.fire(id, "uphold", &user("carol")).with("finding", "agreed").expect_not_found();
}

/// REL-21: from 1 to 2,000 characters, for both decisions.
#[test]
fn dispute_finding_is_required_and_bounded() {
    for (event, state) in [("uphold", "upheld"), ("dismiss", "dismissed")] {
        let mut stage = new_simulator();
        let job = create_won_job(&mut stage, "bob");
        let id = open_dispute(&mut stage, job, "alice").expect_ok();
        for bad in [json!(""), json!("x".repeat(2001)), json!(null)] {
            stage.fire(id, event, &operator("olga")).with("finding", bad).expect_bad_input();
        }
        let other = open_dispute(&mut stage, job, "bob").expect_ok();
        for (id, finding) in [(id, "x".repeat(2000)), (other, "x".to_owned())] {
            stage.fire(id, event, &operator("olga")).with("finding", finding.clone()).expect_ok();
            assert_eq!((stage.state(id).as_str(), stage.field(id, "finding")), (state, json!(finding)));
        }
    }
}
