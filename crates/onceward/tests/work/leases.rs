//! Tests jobs and their programs when a worker dies, is too late, or must stop.

use std::process::Stdio;

use rustix::process::Signal;

use crate::support::{NamedPipe, WorkerTestServer, signal};

/// Long enough that a busy machine may miss two heartbeats of one second each, short enough to wait for its expiry.
const LEASE_DURATION: &str = "3s";

/// Returns a script whose descendants all hold the pipe open: a child in its process group, one outside of it, and an
/// orphan.
fn spawn_descendants_script(pipe: &NamedPipe) -> String {
    format!(
        "exec 3>{}; sleep 1000 & setsid sleep 1001 & (setsid sh -c 'sleep 1002 & sleep 1003' &); trap '' TERM; echo up >&3; wait",
        pipe.path()
    )
}

#[test]
fn killed_worker_leaves_no_process_and_job_commits_once() {
    let server = WorkerTestServer::new("killed");
    let pipe = server.create_pipe("up");
    let family = spawn_descendants_script(&pipe);
    let id = server.create_job(&format!("if [ $ONCEWARD_ATTEMPT = 1 ]; then {family}; fi; echo fine"));
    let worker = server.spawn_worker(&["--lease", LEASE_DURATION]);
    let mut reader = pipe.open_reader();
    assert_eq!(reader.read_line(), "up");
    worker.signal(Signal::KILL);
    assert_eq!(reader.read_until_closed(), "");
    assert_eq!(server.get(id).attempt, 1);
    let _other = server.spawn_worker(&[]);
    let record = server.wait_for_state(id, "DONE");
    assert_eq!((record.attempt, record.field("code")), (2, "lost".into()));
    assert_eq!(server.commit_count(id), 1);
    assert_eq!(server.effect(id)["result"], "fine");
}

/// The program reports its supervisor, which is killed. No descendant may survive, and the next attempt must complete
/// the job.
fn assert_cleanup_after_supervisor_kill(server: &WorkerTestServer, program: impl Fn(&NamedPipe) -> String) {
    let pipe = server.create_pipe("up");
    let id = server.create_job(&format!("if [ $ONCEWARD_ATTEMPT = 1 ]; then {}; fi; echo fine", program(&pipe)));
    let _worker = server.spawn_worker(&[]);
    let mut reader = pipe.open_reader();
    signal(&reader.read_line(), Signal::KILL);
    assert_eq!(reader.read_until_closed(), "");
    let record = server.wait_for_state(id, "DONE");
    assert_eq!((record.attempt, record.field("code")), (2, "SIGNAL_9".into()));
}

#[test]
fn killed_supervisor_ends_its_program() {
    assert_cleanup_after_supervisor_kill(&WorkerTestServer::new("supervisor"), |pipe| {
        format!("exec 3>{}; echo $PPID >&3; exec sleep 1000", pipe.path())
    });
}

/// The worker kills the descendants before the job can be leased again.
#[test]
fn killed_supervisor_leaves_no_descendants() {
    assert_cleanup_after_supervisor_kill(&WorkerTestServer::new("orphans"), |pipe| {
        spawn_descendants_script(pipe).replace("echo up", "echo $PPID")
    });
}

/// A terminal or systemd sends signals to all processes. Only the worker must react.
#[test]
fn supervisor_ignores_termination_signals() {
    let server = WorkerTestServer::new("unminded");
    let (up, go) = (server.create_pipe("up"), server.create_pipe("go"));
    let id = server.create_job(&format!("exec 4<>{}; echo $PPID >{}; read x <&4; echo fine", go.path(), up.path()));
    let _worker = server.spawn_worker(&[]);
    let supervisor = up.open_reader().read_line();
    for ignored in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        signal(&supervisor, ignored);
    }
    go.release(1);
    assert_eq!(server.wait_for_state(id, "DONE").attempt, 1);
}

#[test]
fn cancelled_job_ends_program_and_descendants() {
    let server = WorkerTestServer::new("cancelled");
    let pipe = server.create_pipe("up");
    let id = server.create_job(&spawn_descendants_script(&pipe));
    let _worker = server.spawn_worker(&["--lease", LEASE_DURATION, "--kill-after", "50ms"]);
    let mut reader = pipe.open_reader();
    assert_eq!(reader.read_line(), "up");
    server.fire(id, "cancel");
    assert_eq!(reader.read_until_closed(), "");
    assert_eq!(server.wait_for_state(id, "CANCELLED").field("code"), "yielded");
}

#[test]
fn cancelled_program_can_clean_up_on_sigterm() {
    let server = WorkerTestServer::new("tidy");
    let pipe = server.create_pipe("up");
    let id = server.create_job(&format!(
        "exec 3>{}; trap 'echo tidied >&3; exit 0' TERM; echo up >&3; while :; do sleep 0.05; done",
        pipe.path()
    ));
    let _worker = server.spawn_worker(&["--lease", LEASE_DURATION, "--kill-after", "60s"]);
    let mut reader = pipe.open_reader();
    assert_eq!(reader.read_line(), "up");
    server.fire(id, "cancel");
    assert_eq!(reader.read_until_closed(), "tidied\n");
    // The program exited with 0 because of the stop request, not because its work was complete.
    server.wait_for_state(id, "CANCELLED");
    assert_eq!(server.commit_count(id), 0);
}

/// The program is killed when the lease expires, and the new holder commits.
#[test]
fn worker_suspended_past_lease_cannot_commit() {
    let server = WorkerTestServer::new("slept");
    let pipe = server.create_pipe("up");
    let family = spawn_descendants_script(&pipe);
    let id = server.create_job(&format!("if [ $ONCEWARD_ATTEMPT = 1 ]; then {family}; fi; echo second"));
    let sleeper = server.spawn_worker(&["--lease", LEASE_DURATION]);
    let mut reader = pipe.open_reader();
    assert_eq!(reader.read_line(), "up");
    sleeper.signal(Signal::STOP);
    assert_eq!(reader.read_until_closed(), "");
    let other = server.spawn_worker(&[]);
    server.wait_for_state(id, "DONE");
    drop(other);
    sleeper.signal(Signal::CONT);
    // The worker goes on with other jobs.
    server.wait_for_state(server.create_job("echo third"), "DONE");
    assert_eq!(server.get(id).attempt, 2);
    assert_eq!(server.commit_count(id), 1);
    assert_eq!(server.effect(id)["result"], "second");
}

#[test]
fn program_ends_with_lease_while_server_is_down() {
    let mut server = WorkerTestServer::new("away");
    let pipe = server.create_pipe("up");
    let family = spawn_descendants_script(&pipe);
    let id = server.create_job(&format!("if [ $ONCEWARD_ATTEMPT = 1 ]; then {family}; fi; echo fine"));
    let _worker = server.spawn_worker(&["--lease", LEASE_DURATION]);
    let mut reader = pipe.open_reader();
    assert_eq!(reader.read_line(), "up");
    server.kill_server();
    assert_eq!(reader.read_until_closed(), "");
    server.restart_server();
    // The same worker leases the job again.
    assert_eq!(server.wait_for_state(id, "DONE").attempt, 2);
    assert_eq!(server.commit_count(id), 1);
}

/// The same attempt commits.
#[test]
fn report_is_retried_until_server_restarts() {
    let mut server = WorkerTestServer::new("restarted");
    let (id, up, go) = server.create_gated_job();
    let _worker = server.spawn_worker(&["--lease", "60s"]);
    assert_eq!(up.open_reader().read_line(), "up");
    server.kill_server();
    go.release(1);
    server.restart_server();
    let record = server.wait_for_state(id, "DONE");
    assert_eq!((record.attempt, server.commit_count(id)), (1, 1));
    assert_eq!(server.effect(id)["result"], "fine");
}

#[test]
fn worker_for_unknown_lifecycle_exits_1() {
    let server = WorkerTestServer::new("refused");
    let output = server.run_onceward(&["work", "desk.nothing", "--", "true"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = crate::support::lossy_utf8(&output.stderr);
    assert!(stderr.contains("404 unknown_lifecycle"), "{stderr}");
    let worker = server.spawn_worker_with(&["--until-idle"], &["true"], Stdio::null());
    assert_eq!(worker.wait_exit_code(), Some(0), "no job");
}
