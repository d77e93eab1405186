//! EXE-1 to EXE-4: what a job and an execution are.

use onceward_core::project::job_state;
use onceward_core::record::ExecutionStatus::{Aborted, Done, Leased};
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use onceward_testkit::{Stage, operator, user};
use serde_json::json;

use super::{job, stage};

/// EXE-1: a job has an id of its own, a payload known by hash and size, a state, a count of attempts and its times.
#[test]
fn a_new_job_waits_with_nothing_tried() {
    let mut stage = stage();
    let (one, two) = (job(&mut stage), job(&mut stage));
    assert_ne!(one, two);
    let record = stage.record(one);
    assert_eq!(stage.state(one), "PENDING");
    assert_eq!(record.attempt, 0);
    assert_eq!(record.version, 1);
    assert_eq!(record.payload.map(|payload| payload.bytes), Some(9));
    assert_eq!((record.created_at, record.updated_at), (stage.now(), stage.now()));
    assert_eq!((record.started_at, record.finished_at), (None, None));
    assert_eq!(stage.field(one, "budget"), 5);
    assert_eq!(stage.field(one, "failures"), 0);
    assert_eq!(stage.field(one, "lastError"), json!(null));
}

/// EXE-1: an id may be the caller's own, of the kind that sorts by time, and only once.
#[test]
fn an_id_is_nobody_elses() {
    let mut stage = stage();
    let own = |text: &str| RecordId(text.parse().expect("a UUID"));
    let id = own("01938d6e-7a2b-7c00-8000-000000000001");
    assert_eq!(stage.create("execution.job", &user("alice")).id(id).ok(), id);
    stage.create("execution.job", &user("alice")).id(id).refused(409, "id_taken");
    stage.create("execution.job", &user("bob")).id(id).refused(409, "id_taken");
    stage.create("execution.job", &user("alice")).id(own("6ba7b810-9dad-41d1-80b4-00c04fd430c8")).bad_input();
    assert_eq!(stage.all("execution.job").len(), 1);
}

/// EXE-1: attempts grow by one with each lease and never shrink; the updated time follows, the created time stays.
#[test]
fn attempts_only_grow() {
    let mut stage = stage();
    let made = stage.now();
    let id = job(&mut stage);
    for attempt in 1..=3 {
        stage.pass("1h");
        let lease = stage.lease(id, "w1");
        assert_eq!(stage.record(id).attempt, attempt);
        stage.fail(&lease, "HICCUP").retryable(true).ok();
        assert_eq!(stage.record(id).attempt, attempt);
        assert_eq!(stage.record(id).updated_at, stage.now());
        assert_eq!(stage.record(id).created_at, made);
    }
}

/// EXE-1: callers give what the job declares, within its bounds, and nothing else.
#[test]
fn what_a_caller_may_give_is_bounded() {
    let mut stage = stage();
    let alice = user("alice");
    for (budget, fits) in [(0, false), (1, true), (100, true), (101, false)] {
        let attempt = stage.create("execution.job", &alice).with("budget", budget);
        if fits {
            attempt.ok();
        } else {
            attempt.bad_input();
        }
    }
    stage.create("execution.job", &alice).with("failures", 3).bad_input();
    stage.create("execution.job", &alice).with("budget", "many").bad_input();
    stage.create("execution.job", &alice).with("colour", "red").bad_input();
}

/// EXE-1: a job that is not to start before a time is leased from that time on, to the microsecond.
#[test]
fn a_job_for_later_waits_until_then() {
    let mut stage = stage().at("2026-11-15T20:00:00Z");
    let id = stage.create("execution.job", &user("alice")).with("readyAt", "2026-11-15T21:00:00Z").ok();
    stage.pass_for(Duration::from_micros(3_600_000_000 - 1));
    stage.try_lease(id, "w1").not_leasable();
    stage.pass_for(Duration::from_micros(1));
    stage.try_lease(id, "w1").ok();
}

/// EXE-2: an execution says whose it is, which attempt, until when, how it stands and when it began and ended, and the
/// earlier ones stay beside it.
#[test]
fn every_attempt_stays_on_record() {
    let mut stage = stage();
    let id = job(&mut stage);
    let first = stage.lease(id, "w1");
    let granted = stage.execution(&first);
    assert_eq!(granted.token.0, 1);
    assert_eq!(*granted.worker, *"w1");
    assert_eq!(granted.status, Leased);
    assert_eq!(granted.leased_at, stage.now());
    assert_eq!(granted.expires_at.since(stage.now()), Some(Duration::from_secs(30)));
    assert_eq!((granted.started_at, granted.finished_at), (None, None));

    stage.pass("1s");
    stage.start(&first).ok();
    assert_eq!(stage.execution(&first).started_at, Some(stage.now()));
    stage.pass("1s");
    stage.fail(&first, "HICCUP").retryable(true).ok();
    assert_eq!(stage.execution(&first).finished_at, Some(stage.now()));

    stage.pass("1m");
    let second = stage.lease(id, "w2");
    stage.commit(&second, json!(null)).ok();
    let all = stage.executions(id);
    assert_eq!(all.iter().map(|execution| execution.status).collect::<Vec<_>>(), [Aborted, Done]);
    let names: Vec<String> = all.iter().map(|execution| execution.id(id).to_string()).collect();
    assert_eq!(names, [format!("{id}.1"), format!("{id}.2")]);
    assert_eq!(all[0].aborted.as_ref().map(|abort| &*abort.code), Some("HICCUP"));
    assert_eq!(all[1].aborted, None);
}

/// EXE-3: at every step of a job's life its state is what its executions alone say it is.
#[test]
fn the_state_follows_from_the_executions() {
    let mut stage = stage();
    let id = stage.create("execution.job", &user("alice")).with("budget", 3).ok();
    let agrees = |stage: &Stage, state: &str| {
        assert_eq!(stage.state(id), state);
        assert_eq!(job_state(3, &stage.executions(id)).name(), state);
    };
    agrees(&stage, "PENDING");
    let lease = stage.lease(id, "w1");
    agrees(&stage, "RUNNING");
    stage.give_back(&lease).ok();
    agrees(&stage, "PENDING");
    stage.pass("1m");
    let lease = stage.lease(id, "w1");
    stage.fail(&lease, "HICCUP").retryable(true).ok();
    agrees(&stage, "PENDING");
    stage.pass("1m");
    stage.lease(id, "w1");
    stage.pass("1m");
    agrees(&stage, "PENDING");
    let lease = stage.lease(id, "w1");
    let mut other = stage.clone();
    stage.commit_only(&lease, json!(null)).ok();
    agrees(&stage, "RUNNING");
    stage.finish(&lease).ok();
    agrees(&stage, "SUCCEEDED");
    other.fail(&lease, "HICCUP").retryable(true).ok();
    agrees(&other, "FAILED");
}

/// EXE-4: a second delivery is a normal thing: the next worker gets the job as the first did, and the number of attempts
/// shows it.
#[test]
fn a_job_is_delivered_again_when_its_worker_is_gone() {
    let mut stage = stage();
    let id = job(&mut stage);
    let first = stage.lease(id, "w1");
    stage.pass("30s");
    assert_eq!(stage.state(id), "PENDING");
    assert_eq!(stage.execution(&first).aborted.map(|abort| abort.code.to_string()).as_deref(), Some("lost"));
    stage.pass("2s");
    let second = stage.lease(id, "w2");
    assert_eq!(stage.record(id).attempt, 2);
    stage.commit(&second, json!(null)).ok();
    assert_eq!(stage.state(id), "SUCCEEDED");
}

/// EXE-1: a job is its owner's; operators look after everybody's, and to others it is not there.
#[test]
fn a_job_is_its_owners() {
    let mut stage = stage();
    let id = job(&mut stage);
    stage.fire(id, "cancel", &user("mallory")).not_found();
    stage.fire(id, "cancel", &user("alice")).refused(404, "no_such_event");
    stage.fire(id, "cancel", &operator("olga")).refused(404, "no_such_event");
}
