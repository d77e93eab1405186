//! REL-9, REL-11: handing something in.

use onceward_testkit::user;
use serde_json::json;

use super::{agent, claim, funded, pay, post, stage, submit, submitted, verdict};

/// REL-11, REL-12: what a worker hands in is judged; the content is nowhere in fields or log.
#[test]
fn a_submission_is_judged() {
    let mut stage = stage();
    let job = funded(&mut stage);
    let submission = submitted(&mut stage, job, "bob");
    assert_eq!(stage.state(submission), "judging");
    assert_eq!(stage.field(submission, "worker"), agent(&stage, "bob").to_string());
    assert_eq!(stage.field(submission, "reason"), json!(null));
    assert!(!stage.everything_said().contains("five, seven, five"));
}

/// REL-9, REL-11: only who is registered and has claimed; the answer says which of the two is missing.
#[test]
fn only_who_claimed_submits() {
    let mut stage = stage();
    let job = funded(&mut stage);
    submit(&mut stage, job, "mallory").refused(403, "not_registered");
    submit(&mut stage, job, "bob").refused(403, "not_claimed");
    submit(&mut stage, job, "alice").refused(403, "not_claimed");
    claim(&mut stage, job, "bob").ok();
    submit(&mut stage, job, "bob").ok();
}

/// REL-11: only while the job is funded and not overdue, even if nobody has noticed that it is.
#[test]
fn only_in_time() {
    let mut stage = stage();
    let job = funded(&mut stage);
    claim(&mut stage, job, "bob").ok();
    claim(&mut stage, job, "carol").ok();
    stage.doze_for(onceward_core::time::Duration::from_micros(86_400_000_000 - 1));
    submit(&mut stage, job, "bob").ok();
    stage.doze_for(onceward_core::time::Duration::from_micros(1));
    submit(&mut stage, job, "carol").refused(409, "job_not_funded");
    assert_eq!(stage.state(job), "expired");
}

/// REL-11: content from one byte to 50 KB.
#[test]
fn content_is_bounded() {
    let mut stage = stage();
    let job = funded(&mut stage);
    claim(&mut stage, job, "bob").ok();
    let bare = |stage: &mut onceward_testkit::Stage, bytes: u64| {
        let attempt = stage.create("relay.submission", &user("bob")).with("job", job.to_string());
        attempt.payload_of_size(bytes).outcome()
    };
    for bytes in [0, 50 * 1024 + 1] {
        let refusal = bare(&mut stage, bytes).refusal();
        assert!((400..500).contains(&refusal.status) && !refusal.denial, "{} {}", refusal.status, refusal.code);
    }
    for bytes in [1, 50 * 1024] {
        bare(&mut stage, bytes).changes();
    }
}

/// REL-11: so many submissions for a job, whoever they are from; failed ones count.
#[test]
fn a_job_takes_so_many_submissions() {
    let mut stage = stage();
    let job = post(&mut stage).with("max_submissions", 2).ok();
    pay(&mut stage, job);
    let lease = super::judged(&mut stage, job, "bob");
    stage.commit(&lease, verdict(0)).ok();
    submitted(&mut stage, job, "carol");
    claim(&mut stage, job, "dave").ok();
    submit(&mut stage, job, "dave").refused(409, "job_full");
    let other = post(&mut stage).with("max_submissions", 1).ok();
    pay(&mut stage, other);
    submitted(&mut stage, other, "dave");
}

/// REL-11: twenty where the buyer says nothing.
#[test]
fn twenty_submissions_by_default() {
    let mut stage = stage();
    let job = funded(&mut stage);
    for number in 0..20 {
        let name = format!("worker-{number}");
        super::register(&mut stage, &name).ok();
        submitted(&mut stage, job, &name);
    }
    claim(&mut stage, job, "bob").ok();
    submit(&mut stage, job, "bob").refused(409, "job_full");
}

/// REL-11: a hundred are the most that a buyer can ask for, and the next is told the same as at any other number.
#[test]
fn the_hundred_and_first_is_refused() {
    let mut stage = stage();
    let job = post(&mut stage).with("max_submissions", 100).with("max_retries", 10).ok();
    pay(&mut stage, job);
    for number in 0..10 {
        let name = format!("worker-{number}");
        super::register(&mut stage, &name).ok();
        for _ in 0..10 {
            submitted(&mut stage, job, &name);
        }
    }
    claim(&mut stage, job, "bob").ok();
    submit(&mut stage, job, "bob").refused(409, "job_full");
    assert_eq!(stage.linked(job, "relay.submission", "job").len(), 100);
}

/// REL-11: so many tries for a worker at one job: three where the buyer says nothing.
#[test]
fn a_worker_has_so_many_tries() {
    for (given, tries) in [(None, 3), (Some(1), 1), (Some(5), 5)] {
        let mut stage = stage();
        let posted = post(&mut stage);
        let job = match given {
            Some(tries) => posted.with("max_retries", tries).ok(),
            None => posted.ok(),
        };
        pay(&mut stage, job);
        for _ in 0..tries {
            submitted(&mut stage, job, "bob");
        }
        submit(&mut stage, job, "bob").refused(409, "no_tries_left");
        submitted(&mut stage, job, "carol");
        let other = funded(&mut stage);
        submitted(&mut stage, other, "bob");
    }
}

/// Ten a minute from one worker, over all jobs.
#[test]
fn submitting_is_rate_bounded() {
    let mut stage = stage();
    let jobs: Vec<_> = (0..4).map(|_| funded(&mut stage)).collect();
    for job in &jobs[..3] {
        for _ in 0..3 {
            submitted(&mut stage, *job, "bob");
        }
    }
    submitted(&mut stage, jobs[3], "bob");
    submit(&mut stage, jobs[3], "bob").refused(429, "slow_down");
    submitted(&mut stage, jobs[3], "carol");
    stage.pass("1m");
    submit(&mut stage, jobs[3], "bob").ok();
}

/// REL-11: a worker gives the job and the content; score, reason and time are not its to give.
#[test]
fn a_worker_gives_its_content_and_nothing_else() {
    let mut stage = stage();
    let job = funded(&mut stage);
    claim(&mut stage, job, "bob").ok();
    for given in [
        json!({ "score": 100 }),
        json!({ "worker": agent(&stage, "carol").to_string() }),
        json!({ "reason": "job_expired" }),
    ] {
        submit(&mut stage, job, "bob").with_all(given).bad_input();
    }
    stage.create("relay.submission", &user("bob")).payload(b"five, seven, five").bad_input();
}
