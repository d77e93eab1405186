//! REL-9, REL-11: creating submissions.

use onceward_testkit::user;
use serde_json::json;

use super::{
    claim_and_submit, claim_job, create_funded_job, find_agent, fund_exactly, new_simulator, post_job, submit_work,
    verdict,
};

/// REL-11, REL-12: the fields do not contain the content either.
#[test]
fn submission_enters_judging_without_logging_content() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    let submission = claim_and_submit(&mut stage, job, "bob");
    assert_eq!(stage.state(submission), "judging");
    assert_eq!(stage.field(submission, "worker"), find_agent(&stage, "bob").to_string());
    assert_eq!(stage.field(submission, "reason"), json!(null));
    assert!(!stage.visible_text().contains("five, seven, five"));
}

/// REL-9, REL-11: the refusal says which is missing.
#[test]
fn submit_requires_registration_and_claim() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    submit_work(&mut stage, job, "mallory").expect_refusal(403, "not_registered");
    submit_work(&mut stage, job, "bob").expect_refusal(403, "not_claimed");
    submit_work(&mut stage, job, "alice").expect_refusal(403, "not_claimed");
    claim_job(&mut stage, job, "bob").expect_ok();
    submit_work(&mut stage, job, "bob").expect_ok();
}

/// REL-11: also before the scheduler has expired the job.
#[test]
fn submit_to_overdue_job_is_refused() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    claim_job(&mut stage, job, "bob").expect_ok();
    claim_job(&mut stage, job, "carol").expect_ok();
    stage.advance_without_engine_by(onceward_core::time::Duration::from_micros(86_400_000_000 - 1));
    submit_work(&mut stage, job, "bob").expect_ok();
    stage.advance_without_engine_by(onceward_core::time::Duration::from_micros(1));
    submit_work(&mut stage, job, "carol").expect_refusal(409, "job_not_funded");
    assert_eq!(stage.state(job), "expired");
}

/// REL-11: from 1 byte to 50 KB.
#[test]
fn submission_size_is_bounded() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    claim_job(&mut stage, job, "bob").expect_ok();
    let submit_of_size = |stage: &mut onceward_testkit::Simulator, bytes: u64| {
        let attempt = stage.create("relay.submission", &user("bob")).with("job", job.to_string());
        attempt.payload_of_size(bytes).run()
    };
    for bytes in [0, 50 * 1024 + 1] {
        let refusal = submit_of_size(&mut stage, bytes).expect_refusal();
        assert!((400..500).contains(&refusal.status) && !refusal.is_denial, "{} {}", refusal.status, refusal.code);
    }
    for bytes in [1, 50 * 1024] {
        submit_of_size(&mut stage, bytes).expect_changes();
    }
}

/// REL-11: over all workers; failed submissions count.
#[test]
fn submission_over_max_submissions_is_refused() {
    let mut stage = new_simulator();
    let job = post_job(&mut stage).with("max_submissions", 2).expect_ok();
    fund_exactly(&mut stage, job);
    let lease = super::lease_submission(&mut stage, job, "bob");
    stage.commit(&lease, verdict(0)).expect_ok();
    claim_and_submit(&mut stage, job, "carol");
    claim_job(&mut stage, job, "dave").expect_ok();
    submit_work(&mut stage, job, "dave").expect_refusal(409, "job_full");
    let other = post_job(&mut stage).with("max_submissions", 1).expect_ok();
    fund_exactly(&mut stage, other);
    claim_and_submit(&mut stage, other, "dave");
}

/// REL-11
#[test]
fn max_submissions_defaults_to_twenty() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    for number in 0..20 {
        let name = format!("worker-{number}");
        super::register_agent(&mut stage, &name).expect_ok();
        claim_and_submit(&mut stage, job, &name);
    }
    claim_job(&mut stage, job, "bob").expect_ok();
    submit_work(&mut stage, job, "bob").expect_refusal(409, "job_full");
}

/// REL-11: 100 is the highest limit that a buyer can set.
#[test]
fn submission_over_one_hundred_is_refused() {
    let mut stage = new_simulator();
    let job = post_job(&mut stage).with("max_submissions", 100).with("max_retries", 10).expect_ok();
    fund_exactly(&mut stage, job);
    for number in 0..10 {
        let name = format!("worker-{number}");
        super::register_agent(&mut stage, &name).expect_ok();
        for _ in 0..10 {
            claim_and_submit(&mut stage, job, &name);
        }
    }
    claim_job(&mut stage, job, "bob").expect_ok();
    submit_work(&mut stage, job, "bob").expect_refusal(409, "job_full");
    assert_eq!(stage.linked_records(job, "relay.submission", "job").len(), 100);
}

/// REL-11: per worker and job; the default is three.
#[test]
fn submission_over_max_retries_is_refused() {
    for (max_retries, tries) in [(None, 3), (Some(1), 1), (Some(5), 5)] {
        let mut stage = new_simulator();
        let posted = post_job(&mut stage);
        let job = match max_retries {
            Some(tries) => posted.with("max_retries", tries).expect_ok(),
            None => posted.expect_ok(),
        };
        fund_exactly(&mut stage, job);
        for _ in 0..tries {
            claim_and_submit(&mut stage, job, "bob");
        }
        submit_work(&mut stage, job, "bob").expect_refusal(409, "no_tries_left");
        claim_and_submit(&mut stage, job, "carol");
        let other = create_funded_job(&mut stage);
        claim_and_submit(&mut stage, other, "bob");
    }
}

/// The limit is per worker, over all jobs.
#[test]
fn more_than_10_submissions_per_minute_are_refused() {
    let mut stage = new_simulator();
    let jobs: Vec<_> = (0..4).map(|_| create_funded_job(&mut stage)).collect();
    for job in &jobs[..3] {
        for _ in 0..3 {
            claim_and_submit(&mut stage, *job, "bob");
        }
    }
    claim_and_submit(&mut stage, jobs[3], "bob");
    submit_work(&mut stage, jobs[3], "bob").expect_refusal(429, "slow_down");
    claim_and_submit(&mut stage, jobs[3], "carol");
    stage.advance("1m");
    submit_work(&mut stage, jobs[3], "bob").expect_ok();
}

/// REL-11: score, reason and time are not the worker's to set.
#[test]
fn fields_in_submission_are_rejected() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    claim_job(&mut stage, job, "bob").expect_ok();
    for fields in [
        json!({ "score": 100 }),
        json!({ "worker": find_agent(&stage, "carol").to_string() }),
        json!({ "reason": "job_expired" }),
    ] {
        submit_work(&mut stage, job, "bob").with_all(fields).expect_bad_input();
    }
    stage.create("relay.submission", &user("bob")).payload(b"five, seven, five").expect_bad_input();
}
