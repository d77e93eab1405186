//! What becomes of a job, and of its program, when a worker dies, is too late, or is told to stop.

use std::process::Stdio;

use rustix::process::Signal;

use crate::stage::{Pipe, Stage, signal};

/// A lease that is waited for until it runs out, and must not have run out before: its hearts beat each second, and a machine that is busy
/// for two of them loses nothing.
const KEPT: &str = "3s";

/// Everything that a program can leave behind has the pipe open: a child in its group, one outside of it, and one whose parent is
/// gone.
fn with_a_family(pipe: &Pipe) -> String {
    format!(
        "exec 3>{}; sleep 1000 & setsid sleep 1001 & (setsid sh -c 'sleep 1002 & sleep 1003' &); trap '' TERM; echo up >&3; wait",
        pipe.path()
    )
}

/// A worker is killed in the middle. Nothing of its program stays, the job is taken over, and its effect
/// lands once.
#[test]
fn a_killed_worker_leaves_nothing_and_its_job_finishes_once() {
    let stage = Stage::new("killed");
    let pipe = stage.pipe("up");
    let family = with_a_family(&pipe);
    let id = stage.job(&format!("if [ $ONCEWARD_ATTEMPT = 1 ]; then {family}; fi; echo fine"));
    let worker = stage.work(&["--lease", KEPT]);
    let mut heard = pipe.read();
    assert_eq!(heard.line(), "up");
    worker.signal(Signal::KILL);
    assert_eq!(heard.until_all_are_gone(), "");
    assert_eq!(stage.get(id).attempt, 1);
    let _other = stage.work(&[]);
    let record = stage.until(id, "DONE");
    assert_eq!((record.attempt, record.field("code")), (2, "lost".into()));
    assert_eq!(stage.commits(id), 1);
    assert_eq!(stage.effect(id)["result"], "fine");
}

/// A program that tells of its supervisor, which is killed: nothing of the program stays, and the job is done by the next attempt.
fn with_its_supervisor_killed(stage: &Stage, program: impl Fn(&Pipe) -> String) {
    let pipe = stage.pipe("up");
    let id = stage.job(&format!("if [ $ONCEWARD_ATTEMPT = 1 ]; then {}; fi; echo fine", program(&pipe)));
    let _worker = stage.work(&[]);
    let mut heard = pipe.read();
    signal(&heard.line(), Signal::KILL);
    assert_eq!(heard.until_all_are_gone(), "");
    let record = stage.until(id, "DONE");
    assert_eq!((record.attempt, record.field("code")), (2, "SIGNAL_9".into()));
}

#[test]
fn a_killed_supervisor_takes_the_program_with_it() {
    with_its_supervisor_killed(&Stage::new("supervisor"), |pipe| {
        format!("exec 3>{}; echo $PPID >&3; exec sleep 1000", pipe.path())
    });
}

/// It has no time to see to what the program started: the worker does, before anybody else gets the job.
#[test]
fn a_killed_supervisor_leaves_no_family() {
    with_its_supervisor_killed(&Stage::new("orphans"), |pipe| with_a_family(pipe).replace("echo up", "echo $PPID"));
}

/// What is sent to all processes of a terminal or a unit is for the worker to mind.
#[test]
fn a_supervisor_minds_no_signals_but_its_workers_words() {
    let stage = Stage::new("unminded");
    let (up, go) = (stage.pipe("up"), stage.pipe("go"));
    let id = stage.job(&format!("exec 4<>{}; echo $PPID >{}; read x <&4; echo fine", go.path(), up.path()));
    let _worker = stage.work(&[]);
    let supervisor = up.read().line();
    for unminded in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        signal(&supervisor, unminded);
    }
    go.release(1);
    assert_eq!(stage.until(id, "DONE").attempt, 1);
}

#[test]
fn a_job_that_is_to_stop_stops_its_program_and_its_children() {
    let stage = Stage::new("cancelled");
    let pipe = stage.pipe("up");
    let id = stage.job(&with_a_family(&pipe));
    let _worker = stage.work(&["--lease", KEPT, "--kill-after", "50ms"]);
    let mut heard = pipe.read();
    assert_eq!(heard.line(), "up");
    stage.fire(id, "cancel");
    assert_eq!(heard.until_all_are_gone(), "");
    assert_eq!(stage.until(id, "CANCELLED").field("code"), "yielded");
}

#[test]
fn a_program_that_minds_has_time_to_tidy_up() {
    let stage = Stage::new("tidy");
    let pipe = stage.pipe("up");
    let id = stage.job(&format!(
        "exec 3>{}; trap 'echo tidied >&3; exit 0' TERM; echo up >&3; while :; do sleep 0.05; done",
        pipe.path()
    ));
    let _worker = stage.work(&["--lease", KEPT, "--kill-after", "60s"]);
    let mut heard = pipe.read();
    assert_eq!(heard.line(), "up");
    stage.fire(id, "cancel");
    assert_eq!(heard.until_all_are_gone(), "tidied\n");
    // It ended with 0, and not because its work was done.
    stage.until(id, "CANCELLED");
    assert_eq!(stage.commits(id), 0);
}

/// A worker sleeps past its lease. Its program ends with the lease all the same; the one who took over commits, and
/// the sleeper changes nothing when it wakes up.
#[test]
fn a_worker_that_slept_too_long_has_lost() {
    let stage = Stage::new("slept");
    let pipe = stage.pipe("up");
    let family = with_a_family(&pipe);
    let id = stage.job(&format!("if [ $ONCEWARD_ATTEMPT = 1 ]; then {family}; fi; echo second"));
    let sleeper = stage.work(&["--lease", KEPT]);
    let mut heard = pipe.read();
    assert_eq!(heard.line(), "up");
    sleeper.signal(Signal::STOP);
    assert_eq!(heard.until_all_are_gone(), "");
    let other = stage.work(&[]);
    stage.until(id, "DONE");
    drop(other);
    sleeper.signal(Signal::CONT);
    // It is well, and works on.
    stage.until(stage.job("echo third"), "DONE");
    assert_eq!(stage.get(id).attempt, 2);
    assert_eq!(stage.commits(id), 1);
    assert_eq!(stage.effect(id)["result"], "second");
}

#[test]
fn no_program_outlives_its_lease_when_the_server_is_away() {
    let mut stage = Stage::new("away");
    let pipe = stage.pipe("up");
    let family = with_a_family(&pipe);
    let id = stage.job(&format!("if [ $ONCEWARD_ATTEMPT = 1 ]; then {family}; fi; echo fine"));
    let _worker = stage.work(&["--lease", KEPT]);
    let mut heard = pipe.read();
    assert_eq!(heard.line(), "up");
    stage.kill_server();
    assert_eq!(heard.until_all_are_gone(), "");
    stage.restart_server();
    // The worker is still there, and takes it up again.
    assert_eq!(stage.until(id, "DONE").attempt, 2);
    assert_eq!(stage.commits(id), 1);
}

/// A server that dies and comes back in the middle of a job costs nothing: the same attempt commits.
#[test]
fn a_server_that_comes_back_gets_the_report() {
    let mut stage = Stage::new("restarted");
    let (id, up, go) = stage.held();
    let _worker = stage.work(&["--lease", "60s"]);
    assert_eq!(up.read().line(), "up");
    stage.kill_server();
    go.release(1);
    stage.restart_server();
    let record = stage.until(id, "DONE");
    assert_eq!((record.attempt, stage.commits(id)), (1, 1));
    assert_eq!(stage.effect(id)["result"], "fine");
}

#[test]
fn a_worker_that_the_server_will_not_have_says_so() {
    let stage = Stage::new("refused");
    let output = stage.onceward(&["work", "desk.nothing", "--", "true"]);
    assert_eq!(output.status.code(), Some(1));
    let told = crate::stage::text(&output.stderr);
    assert!(told.contains("404 no_such_lifecycle"), "{told}");
    let worker = stage.work_with(&["--until-idle"], &["true"], Stdio::null());
    assert_eq!(worker.ended(), Some(0), "nothing to do");
}
