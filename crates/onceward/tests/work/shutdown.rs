//! Tests the worker's shutdown: it finishes or yields its jobs.

use std::process::Stdio;

use rustix::process::Signal;

use crate::support::{WorkerTestServer, signal};

#[test]
fn sigterm_lets_running_program_finish() {
    let server = WorkerTestServer::new("drained");
    let (id, up, go) = server.create_gated_job();
    let mut worker = server.spawn_worker_with(&[], &["sh"], Stdio::piped());
    assert_eq!(up.open_reader().read_line(), "up");
    worker.signal(Signal::TERM);
    // The worker has received the signal before it can lease the next job.
    worker.wait_for_stderr("a second signal stops the worker at once");
    let later = server.create_job("echo later");
    go.release(1);
    assert_eq!(worker.wait_exit_code(), Some(0));
    assert_eq!(server.wait_for_state(id, "DONE").attempt, 1);
    assert_eq!(server.get(later).state, "WAITING", "no further job is leased");
}

#[test]
fn job_unfinished_after_grace_is_yielded() {
    let server = WorkerTestServer::new("given-back");
    let up = server.create_pipe("up");
    let id = server.create_job(&format!("exec 3>{}; trap '' TERM; echo up >&3; sleep 1000 & wait; wait", up.path()));
    let worker = server.spawn_worker(&["--grace", "300ms", "--kill-after", "100ms"]);
    let mut reader = up.open_reader();
    assert_eq!(reader.read_line(), "up");
    worker.signal(Signal::INT);
    assert_eq!(reader.read_until_closed(), "");
    assert_eq!(worker.wait_exit_code(), Some(0));
    let record = server.get(id);
    assert_eq!((record.state.as_str(), record.field("yields")), ("WAITING", 1.into()));
}

#[test]
fn sighup_lets_running_program_finish() {
    let server = WorkerTestServer::new("hung-up");
    let (id, up, go) = server.create_gated_job();
    let worker = server.spawn_worker(&[]);
    assert_eq!(up.open_reader().read_line(), "up");
    worker.signal(Signal::HUP);
    go.release(1);
    assert_eq!(worker.wait_exit_code(), Some(0));
    assert_eq!(server.get(id).state, "DONE");
}

#[test]
fn worker_under_nohup_ignores_sighup() {
    let server = WorkerTestServer::new("nohup");
    let (id, up, go) = server.create_gated_job();
    let worker = server.spawn_worker_under(&["nohup"], &[], &["sh"], Stdio::null());
    assert_eq!(up.open_reader().read_line(), "up");
    worker.signal(Signal::HUP);
    go.release(1);
    server.wait_for_state(id, "DONE");
    // The worker leases the next job as well.
    server.wait_for_state(server.create_job("echo later"), "DONE");
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_exit_code(), Some(0));
}

#[test]
fn unread_stderr_does_not_block_worker() {
    let server = WorkerTestServer::new("unheard");
    let (long, up, go) = server.create_gated_job();
    let worker =
        server.spawn_worker_with(&["--concurrency", "4", "--lease", "5s", "--grace", "1s"], &["sh"], Stdio::piped());
    assert_eq!(up.open_reader().read_line(), "up");
    // Each line alone exceeds a pipe's buffer.
    let loud: Vec<_> =
        (0..6).map(|_| server.create_job("yes 'some words to read' | head -c 300000 >&2; echo loud")).collect();
    for id in loud {
        assert_eq!(server.wait_for_state(id, "DONE").attempt, 1);
    }
    go.release(1);
    assert_eq!(server.wait_for_state(long, "DONE").attempt, 1);
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_exit_code(), Some(0));
}

#[test]
fn second_signal_kills_running_program() {
    let server = WorkerTestServer::new("second-signal");
    let up = server.create_pipe("up");
    server.create_job(&format!("exec 3>{}; trap '' TERM; echo up >&3; sleep 1000 & wait; wait", up.path()));
    let mut worker = server.spawn_worker_with(&["--grace", "1h"], &["sh"], Stdio::piped());
    let mut reader = up.open_reader();
    assert_eq!(reader.read_line(), "up");
    worker.signal(Signal::TERM);
    worker.wait_for_stderr("a second signal stops the worker at once");
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_exit_code(), Some(1));
    assert_eq!(reader.read_until_closed(), "");
}

#[test]
fn idle_worker_exits_at_once_on_sigterm() {
    let server = WorkerTestServer::new("idle");
    let mut worker = server.spawn_worker_with(&[], &["sh"], Stdio::piped());
    worker.wait_for_stderr("worker started");
    server.wait_for_state(server.create_job("echo first"), "DONE");
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_exit_code(), Some(0));
    let id = server.create_job("echo second");
    assert_eq!(server.get(id).state, "WAITING");
}

/// By default systemd signals program, supervisor and worker at once. The job must be yielded, not failed.
#[test]
fn program_signaled_with_its_worker_is_yielded() {
    let server = WorkerTestServer::new("unit");
    let up = server.create_pipe("up");
    let id = server.create_job(&format!("exec 3>{}; echo $$ >&3; echo $PPID >&3; exec sleep 1000", up.path()));
    let worker = server.spawn_worker(&[]);
    let mut reader = up.open_reader();
    // Both lines first, because the program prints nothing once it is signaled.
    for line in [reader.read_line(), reader.read_line()] {
        signal(&line, Signal::TERM);
    }
    worker.signal(Signal::TERM);
    assert_eq!(reader.read_until_closed(), "");
    assert_eq!(worker.wait_exit_code(), Some(0));
    let record = server.get(id);
    let fields = (record.field("yields"), record.field("failures"));
    assert_eq!((record.state.as_str(), fields), ("WAITING", (1.into(), 0.into())));
}

/// The pipe stays full. Jobs complete, and the worker ends on a signal.
#[test]
fn unread_stderr_does_not_lose_leases() {
    let server = WorkerTestServer::new("unread");
    let long = server.create_job("sleep 7; echo fine");
    let loud: Vec<_> = (0..6).map(|_| server.create_job("yes 'not to be read' | head -c 300000 >&2")).collect();
    let options = ["--lease", "3s", "--concurrency", "3", "--grace", "2s"];
    let worker = server.spawn_worker_with(&options, &["sh"], Stdio::piped());
    for id in loud {
        server.wait_for_state(id, "DONE");
    }
    assert_eq!(server.wait_for_state(long, "DONE").attempt, 1);
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait_exit_code(), Some(0));
}
