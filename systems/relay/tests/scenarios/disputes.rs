//! REL-21: complaints about what was resolved.

use onceward_testkit::{Attempt, Stage, operator, user, user_with};
use serde_json::json;

use super::{agent, alice, depositor, funded, stage, usdc, won};
use onceward_core::value::RecordId;

fn dispute<'s>(stage: &'s mut Stage, job: RecordId, who: &str) -> Attempt<'s> {
    stage.create("relay.dispute", &user(who)).with("job", job.to_string()).with("reason", "not what was asked for")
}

/// REL-21: buyer and winner of a resolved job may each dispute it, once.
#[test]
fn each_party_once() {
    let mut stage = stage();
    let job = won(&mut stage, "bob");
    let buyers = dispute(&mut stage, job, "alice").ok();
    assert_eq!(stage.state(buyers), "opened");
    dispute(&mut stage, job, "alice").refused(409, "already_disputed");
    dispute(&mut stage, job, "bob").ok();
    dispute(&mut stage, job, "bob").refused(409, "already_disputed");
    stage.fire(buyers, "dismiss", &operator("olga")).with("finding", "it is a haiku").ok();
    dispute(&mut stage, job, "alice").refused(409, "already_disputed");
    let other = won(&mut stage, "bob");
    dispute(&mut stage, other, "alice").ok();
}

/// REL-21: nobody else, and no job that has not resolved.
#[test]
fn only_parties_and_only_resolved_jobs() {
    let mut stage = stage();
    let job = funded(&mut stage);
    dispute(&mut stage, job, "alice").refused(409, "job_not_resolved");
    let lease = super::judged(&mut stage, job, "bob");
    super::claim(&mut stage, job, "carol").ok();
    stage.commit(&lease, super::verdict(90)).ok();
    dispute(&mut stage, job, "carol").not_allowed();
    dispute(&mut stage, job, "mallory").not_allowed();
    let complaint = json!({ "job": job.to_string(), "reason": "I do not like it" });
    stage.create("relay.dispute", &operator("olga")).with_all(complaint).not_allowed();
    stage.create("relay.dispute", &alice()).with("reason", "of no job at all").bad_input();
    for bad in [json!(""), json!("x".repeat(2001)), json!(null)] {
        dispute(&mut stage, job, "alice").with("reason", bad).bad_input();
    }
    dispute(&mut stage, job, "alice").with("reason", "x".repeat(2000)).ok();
    dispute(&mut stage, job, "bob").with("reason", "x").ok();
    let expired = super::expired(&mut stage);
    dispute(&mut stage, expired, "alice").refused(409, "job_not_resolved");
}

/// REL-21: an operator decides, either way, and says what was found; then it is over. No money moves.
#[test]
fn an_operator_decides() {
    for (event, state) in [("uphold", "upheld"), ("dismiss", "dismissed")] {
        let mut stage = stage();
        let job = won(&mut stage, "bob");
        let dispute = dispute(&mut stage, job, "alice").ok();
        let before =
            (usdc(&stage, "fee"), usdc(&stage, "chain"), depositor(&stage), stage.all("relay.settlement").len());
        for who in [alice(), user("bob")] {
            stage.fire(dispute, event, &who).with("finding", "so it is").not_allowed();
        }
        stage.fire(dispute, event, &user("mallory")).with("finding", "so it is").not_found();
        stage.fire(dispute, event, &operator("olga")).bad_input();
        stage.fire(dispute, event, &operator("olga")).with("finding", "so it is").ok();
        assert_eq!((stage.state(dispute).as_str(), stage.field(dispute, "finding")), (state, json!("so it is")));
        assert!(stage.record(dispute).is_final(), "{state} is declared as an end");
        for again in ["uphold", "dismiss"] {
            stage.fire(dispute, again, &operator("olga")).with("finding", "x").wrong_state(state, again);
        }
        let after =
            (usdc(&stage, "fee"), usdc(&stage, "chain"), depositor(&stage), stage.all("relay.settlement").len());
        assert_eq!(before, after);
        assert_eq!((stage.state(job).as_str(), stage.field(agent(&stage, "bob"), "passed")), ("resolved", json!(1)));
    }
}

/// REL-21: a party that is an operator too may complain in somebody's name, who then sees the complaint and decides nothing.
#[test]
fn a_complaint_in_anothers_name() {
    let mut stage = stage();
    let job = won(&mut stage, "bob");
    let complaint = json!({ "job": job.to_string(), "reason": "on behalf of my client" });
    let server = user_with("alice", &["operator"]);
    let id = stage.create("relay.dispute", &server).owner("lawyer").with_all(complaint).ok();
    stage.fire(id, "uphold", &user("lawyer")).with("finding", "quite so").not_allowed();
    stage.fire(id, "uphold", &user("carol")).with("finding", "quite so").not_found();
}

/// REL-21: what the operator found is said, in one to two thousand characters, whichever way it goes.
#[test]
fn a_finding_is_said() {
    for (event, state) in [("uphold", "upheld"), ("dismiss", "dismissed")] {
        let mut stage = stage();
        let job = won(&mut stage, "bob");
        let id = dispute(&mut stage, job, "alice").ok();
        for bad in [json!(""), json!("x".repeat(2001)), json!(null)] {
            stage.fire(id, event, &operator("olga")).with("finding", bad).bad_input();
        }
        let other = dispute(&mut stage, job, "bob").ok();
        for (id, finding) in [(id, "x".repeat(2000)), (other, "x".to_owned())] {
            stage.fire(id, event, &operator("olga")).with("finding", finding.clone()).ok();
            assert_eq!((stage.state(id).as_str(), stage.field(id, "finding")), (state, json!(finding)));
        }
    }
}
