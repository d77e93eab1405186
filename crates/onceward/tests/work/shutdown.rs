//! How a worker ends: with what it has begun, or giving it back.

use std::process::Stdio;

use rustix::process::Signal;

use crate::stage::{Stage, signal};

#[test]
fn what_runs_may_finish_when_the_worker_is_to_end() {
    let stage = Stage::new("drained");
    let (id, up, go) = stage.held();
    let mut worker = stage.work_with(&[], &["sh"], Stdio::piped());
    assert_eq!(up.read().line(), "up");
    worker.signal(Signal::TERM);
    // It has heard it, before it could ask for the next.
    worker.says("a second signal ends at once");
    let later = stage.job("echo later");
    go.release(1);
    assert_eq!(worker.ended(), Some(0));
    assert_eq!(stage.until(id, "DONE").attempt, 1);
    assert_eq!(stage.get(later).state, "WAITING", "it takes no more");
}

#[test]
fn what_does_not_finish_in_time_is_given_back() {
    let stage = Stage::new("given-back");
    let up = stage.pipe("up");
    let id = stage.job(&format!("exec 3>{}; trap '' TERM; echo up >&3; sleep 1000 & wait; wait", up.path()));
    let worker = stage.work(&["--grace", "300ms", "--kill-after", "100ms"]);
    let mut heard = up.read();
    assert_eq!(heard.line(), "up");
    worker.signal(Signal::INT);
    assert_eq!(heard.until_all_are_gone(), "");
    assert_eq!(worker.ended(), Some(0));
    let record = stage.get(id);
    assert_eq!((record.state.as_str(), record.field("yields")), ("WAITING", 1.into()));
}

/// A terminal that is closed is a wish to end, like any other.
#[test]
fn a_hang_up_lets_what_runs_finish() {
    let stage = Stage::new("hung-up");
    let (id, up, go) = stage.held();
    let worker = stage.work(&[]);
    assert_eq!(up.read().line(), "up");
    worker.signal(Signal::HUP);
    go.release(1);
    assert_eq!(worker.ended(), Some(0));
    assert_eq!(stage.get(id).state, "DONE");
}

/// But for who has started it so that the terminal does not matter.
#[test]
fn nohup_keeps_it_working() {
    let stage = Stage::new("nohup");
    let (id, up, go) = stage.held();
    let worker = stage.work_under(&["nohup"], &[], &["sh"], Stdio::null());
    assert_eq!(up.read().line(), "up");
    worker.signal(Signal::HUP);
    go.release(1);
    stage.until(id, "DONE");
    // It takes the next one as well.
    stage.until(stage.job("echo later"), "DONE");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended(), Some(0));
}

/// Nobody reads its standard error: neither leases nor the wish to end hang on that.
#[test]
fn a_worker_that_nobody_listens_to_works_on() {
    let stage = Stage::new("unheard");
    let (long, up, go) = stage.held();
    let worker = stage.work_with(&["--concurrency", "4", "--lease", "5s", "--grace", "1s"], &["sh"], Stdio::piped());
    assert_eq!(up.read().line(), "up");
    // Each of them alone is more than a pipe takes.
    let loud: Vec<_> = (0..6).map(|_| stage.job("yes 'some words to read' | head -c 300000 >&2; echo loud")).collect();
    for id in loud {
        assert_eq!(stage.until(id, "DONE").attempt, 1);
    }
    go.release(1);
    assert_eq!(stage.until(long, "DONE").attempt, 1);
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended(), Some(0));
}

#[test]
fn a_second_signal_ends_at_once() {
    let stage = Stage::new("second-signal");
    let up = stage.pipe("up");
    stage.job(&format!("exec 3>{}; trap '' TERM; echo up >&3; sleep 1000 & wait; wait", up.path()));
    let mut worker = stage.work_with(&["--grace", "1h"], &["sh"], Stdio::piped());
    let mut heard = up.read();
    assert_eq!(heard.line(), "up");
    worker.signal(Signal::TERM);
    worker.says("a second signal ends at once");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended(), Some(1));
    assert_eq!(heard.until_all_are_gone(), "");
}

#[test]
fn a_worker_that_waits_for_jobs_ends_at_once() {
    let stage = Stage::new("idle");
    let mut worker = stage.work_with(&[], &["sh"], Stdio::piped());
    worker.says("works on desk.job");
    stage.until(stage.job("echo first"), "DONE");
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended(), Some(0));
    let id = stage.job("echo second");
    assert_eq!(stage.get(id).state, "WAITING");
}

/// As systemd ends a unit unless it is told otherwise: program, supervisor and worker are all told at once. The job is given back, not failed.
#[test]
fn what_is_ended_together_with_its_worker_is_given_back() {
    let stage = Stage::new("unit");
    let up = stage.pipe("up");
    let id = stage.job(&format!("exec 3>{}; echo $$ >&3; echo $PPID >&3; exec sleep 1000", up.path()));
    let worker = stage.work(&[]);
    let mut heard = up.read();
    // Both first: the program has nothing more to say when it is told to end.
    for line in [heard.line(), heard.line()] {
        signal(&line, Signal::TERM);
    }
    worker.signal(Signal::TERM);
    assert_eq!(heard.until_all_are_gone(), "");
    assert_eq!(worker.ended(), Some(0));
    let record = stage.get(id);
    let fields = (record.field("yields"), record.field("failures"));
    assert_eq!((record.state.as_str(), fields), ("WAITING", (1.into(), 0.into())));
}

/// Its standard error is full and stays so: leases are kept, jobs are done, and it ends when it is told to.
#[test]
fn nobody_need_read_what_a_worker_says() {
    let stage = Stage::new("unread");
    let long = stage.job("sleep 7; echo fine");
    let loud: Vec<_> = (0..6).map(|_| stage.job("yes 'not to be read' | head -c 300000 >&2")).collect();
    let options = ["--lease", "3s", "--concurrency", "3", "--grace", "2s"];
    let worker = stage.work_with(&options, &["sh"], Stdio::piped());
    for id in loud {
        stage.until(id, "DONE");
    }
    assert_eq!(stage.until(long, "DONE").attempt, 1);
    worker.signal(Signal::TERM);
    assert_eq!(worker.ended(), Some(0));
}
