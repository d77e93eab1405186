//! REL-9, REL-10, REL-13, REL-21: claiming, unclaiming, and what it does to a reputation.

use onceward_testkit::{operator, user, user_with};
use serde_json::{Value, json};

use super::{agent, alice, claim, funded, judged, pay, post, rate, register, stage, submitted, verdict, won};

/// REL-9: many workers may claim one funded job, each once.
#[test]
fn many_claim_one_job() {
    let mut stage = stage();
    let job = funded(&mut stage);
    claim(&mut stage, job, "bob").ok();
    claim(&mut stage, job, "carol").ok();
    claim(&mut stage, job, "bob").refused(409, "already_claimed");
    assert_eq!(stage.field(job, "participants"), json!(["bob", "carol"]));
    assert_eq!(stage.field(agent(&stage, "bob"), "claims"), 1);
}

/// REL-9: who is not registered cannot claim, and the buyer cannot claim its own job.
#[test]
fn strangers_and_the_buyer_do_not_claim() {
    let mut stage = stage();
    let job = funded(&mut stage);
    for event in ["claim", "unclaim"] {
        for who in [user("mallory"), operator("olga")] {
            stage.fire(job, event, &who).not_allowed();
        }
    }
    stage.fire(job, "claim", &alice()).refused(403, "own_job");
    register(&mut stage, "mallory").ok();
    claim(&mut stage, job, "mallory").ok();
}

/// REL-9: a server that is an agent itself may post for somebody who is none; that one owns the job and still claims nothing.
#[test]
fn an_owner_without_a_name_claims_nothing() {
    let mut stage = stage();
    let server = user_with("alice", &["operator"]);
    let given = json!({ "title": "t", "description": "d", "price": super::PRICE });
    let job = stage.create("relay.job", &server).owner("zoe").with_all(given).ok();
    stage.fire(job, "fund", &user("zoe")).with("tx_hash", super::tx(1, super::PRICE)).ok();
    for event in ["claim", "unclaim"] {
        stage.fire(job, event, &user("zoe")).not_allowed();
    }
    claim(&mut stage, job, "alice").ok();
}

/// REL-9: a job that has ended, or is overdue though nobody has noticed yet, cannot be claimed.
#[test]
fn only_a_funded_job_is_claimed() {
    let mut stage = stage();
    let job = won(&mut stage, "bob");
    claim(&mut stage, job, "carol").wrong_state("resolved", "claim");
    let job = super::cancelled(&mut stage);
    claim(&mut stage, job, "carol").wrong_state("cancelled", "claim");
    let job = funded(&mut stage);
    stage.doze("1d");
    claim(&mut stage, job, "carol").wrong_state("expired", "claim");
    assert_eq!(stage.field(agent(&stage, "carol"), "claims"), 0);
}

/// REL-9: a thousand may claim; the next is told why it may not, until somebody leaves.
#[test]
fn the_thousand_and_first_is_refused() {
    let mut stage = stage();
    let job = funded(&mut stage);
    for number in 0..1000 {
        let name = format!("worker-{number}");
        register(&mut stage, &name).ok();
        claim(&mut stage, job, &name).ok();
    }
    claim(&mut stage, job, "bob").refused(409, "claims_full");
    claim(&mut stage, job, "worker-7").refused(409, "already_claimed");
    stage.fire(job, "unclaim", &user("worker-7")).ok();
    claim(&mut stage, job, "bob").ok();
    claim(&mut stage, job, "worker-7").refused(409, "claims_full");
}

/// REL-13, REL-3: passed over claims: null with no claims, then recomputed with every claim, unclaim and win.
#[test]
fn the_completion_rate() {
    let mut stage = stage();
    assert_eq!(rate(&stage, "bob"), Value::Null);
    let first = funded(&mut stage);
    claim(&mut stage, first, "bob").ok();
    assert_eq!(rate(&stage, "bob"), 0.0);
    won(&mut stage, "bob");
    assert_eq!(rate(&stage, "bob"), 0.5);
    won(&mut stage, "bob");
    assert_eq!(rate(&stage, "bob"), 2.0 / 3.0);
    let failed = judged(&mut stage, first, "bob");
    stage.commit(&failed, verdict(10)).ok();
    assert_eq!(rate(&stage, "bob"), 2.0 / 3.0, "a verdict that is no pass changes neither number");
    let bob = agent(&stage, "bob");
    assert_eq!((stage.field(bob, "passed"), stage.field(bob, "claims")), (json!(2), json!(3)));
}

/// REL-21, REL-13: until the first submission a claim can be taken back, and then never was.
#[test]
fn an_unclaimed_job_does_not_count() {
    let mut stage = stage();
    let job = funded(&mut stage);
    claim(&mut stage, job, "bob").ok();
    claim(&mut stage, job, "carol").ok();
    stage.fire(job, "unclaim", &user("bob")).ok();
    assert_eq!(stage.field(job, "participants"), json!(["carol"]));
    assert_eq!((stage.field(agent(&stage, "bob"), "claims"), rate(&stage, "bob")), (json!(0), Value::Null));
    super::submit(&mut stage, job, "bob").refused(403, "not_claimed");
    claim(&mut stage, job, "bob").ok();
    won(&mut stage, "bob");
    stage.fire(job, "unclaim", &user("bob")).ok();
    assert_eq!(rate(&stage, "bob"), 1.0);
    let [lost, left] = [funded(&mut stage), funded(&mut stage)];
    claim(&mut stage, lost, "bob").ok();
    claim(&mut stage, left, "bob").ok();
    stage.fire(left, "unclaim", &user("bob")).ok();
    assert_eq!(rate(&stage, "bob"), 0.5);
}

/// REL-21: with the first submission the claim stays; what others handed in does not matter.
#[test]
fn a_submission_binds() {
    let mut stage = stage();
    let job = funded(&mut stage);
    claim(&mut stage, job, "carol").ok();
    let lease = judged(&mut stage, job, "bob");
    stage.fire(job, "unclaim", &user("bob")).refused(409, "already_submitted");
    stage.fail(&lease, "500").ok();
    stage.fire(job, "unclaim", &user("bob")).refused(409, "already_submitted");
    stage.fire(job, "unclaim", &user("carol")).ok();
    stage.fire(job, "unclaim", &user("carol")).refused(409, "not_claimed");
    stage.fire(job, "unclaim", &user("mallory")).not_allowed();
    stage.pass("1d");
    stage.fire(job, "unclaim", &user("bob")).wrong_state("expired", "unclaim");
}

/// REL-10: exactly the least rate is enough; a little less is not; none yet counts as nothing.
#[test]
fn reputation_at_its_bound() {
    for (least, who, admitted) in [
        (0.5, "bob", true),
        (0.500_001, "bob", false),
        (0.0, "carol", true),
        (0.000_001, "carol", false),
        (1.0, "dave", true),
    ] {
        let mut stage = stage();
        won(&mut stage, "bob");
        won(&mut stage, "dave");
        let other = funded(&mut stage);
        claim(&mut stage, other, "bob").ok();
        assert_eq!((rate(&stage, "bob"), rate(&stage, "carol")), (json!(0.5), Value::Null));
        let job = post(&mut stage).with("min_reputation", least).ok();
        pay(&mut stage, job);
        let attempt = claim(&mut stage, job, who);
        if admitted {
            attempt.ok();
        } else {
            attempt.refused(403, "reputation_too_low");
            assert_eq!(stage.field(job, "participants"), json!([]));
        }
    }
}

/// REL-10: who got in stays in, whatever becomes of the rate.
#[test]
fn a_claim_outlives_a_falling_rate() {
    let mut stage = stage();
    won(&mut stage, "bob");
    let job = post(&mut stage).with("min_reputation", 1.0).ok();
    pay(&mut stage, job);
    claim(&mut stage, job, "bob").ok();
    assert_eq!(rate(&stage, "bob"), 0.5);
    submitted(&mut stage, job, "bob");
}
