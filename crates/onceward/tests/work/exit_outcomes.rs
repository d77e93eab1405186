//! Tests how each exit of a program decides the outcome of its job.

use std::io::Read as _;
use std::process::Stdio;

use onceward_worker::{NewRecord, Payload};
use serde_json::json;

use crate::support::WorkerTestServer;

#[test]
fn exit_0_commits_stdout_as_result() {
    let server = WorkerTestServer::new("output");
    let _worker = server.spawn_worker(&[]);
    let result = |script: &str| {
        let id = server.create_job(script);
        server.wait_for_state(id, "DONE");
        assert_eq!(server.commit_count(id), 1);
        server.effect(id)
    };
    assert_eq!(result("echo two words")["result"], json!("two words"));
    assert_eq!(result("echo '{\"a\": [1, 2.5]}'")["result"], json!({ "a": [1, 2.5] }));
    assert_eq!(result("printf 'a\\0'")["result_base64"], json!("YQA="));
    assert_eq!(result(":")["result"], json!(null));
    let id = server.create_job("echo \"$ONCEWARD_ID $ONCEWARD_ATTEMPT $ONCEWARD_TOKEN $ONCEWARD_EXECUTION $ONCEWARD_LIFECYCLE ${ONCEWARD_KEY-none}\"");
    server.wait_for_state(id, "DONE");
    assert_eq!(server.effect(id)["result"], json!(format!("{id} 1 1 {id}.1 desk.job none")));
    let id = server.create_job("echo \"$ONCEWARD_FIELDS\"");
    server.wait_for_state(id, "DONE");
    assert_eq!(server.effect(id)["result"]["failures"], json!(0));
}

#[test]
fn stdin_receives_payload_unchanged() {
    let server = WorkerTestServer::new("input");
    let _worker = server.spawn_worker_with(&["--result", "bytes"], &["cat"], Stdio::null());
    let large: Vec<u8> = (0..300_000_u32).map(|number| u8::try_from(number % 251).expect("a byte")).collect();
    for payload in [b"{\"a\" : 1.50}".to_vec(), b"\0\xff".to_vec(), large] {
        let record = NewRecord { payload: Some(Payload::Bytes(payload.clone().into())), ..NewRecord::default() };
        let id = server.runtime.block_on(server.client.create("desk.job", &record)).expect("a job").id;
        server.wait_for_state(id, "DONE");
        let result = server.effect(id)["result_base64"].as_str().expect("bytes").to_owned();
        assert_eq!(result.len(), payload.len().div_ceil(3) * 4);
        let shown =
            server.runtime.block_on(server.client.payload(id)).expect("readable").expect("there").into_stdin_bytes();
        assert!(shown == payload, "payload is unchanged");
    }
    // A JSON string is passed as text, whatever its length.
    for length in [1_000, 100_000, 300_000] {
        let text = format!("line one\n{}", "a".repeat(length));
        let record = NewRecord { payload: Some(Payload::text(&text)), ..NewRecord::default() };
        let id = server.runtime.block_on(server.client.create("desk.job", &record)).expect("a job").id;
        server.wait_for_state(id, "DONE");
        let result = server.effect(id)["result_base64"].as_str().expect("bytes").to_owned();
        assert_eq!(result.len(), text.len().div_ceil(3) * 4, "{length}");
    }
    // The program need not read its input.
    let _non_reading_worker = server.spawn_worker_with(&[], &["true"], Stdio::null());
    let record = NewRecord { payload: Some(Payload::Bytes(vec![b'x'; 60_000].into())), ..NewRecord::default() };
    let id = server.runtime.block_on(server.client.create("desk.job", &record)).expect("a job").id;
    server.wait_for_state(id, "DONE");
}

#[test]
fn exit_code_decides_retry_or_final_failure() {
    let server = WorkerTestServer::new("failures");
    let _worker = server.spawn_worker(&[]);
    let failure_of = |script: &str, state: &str| {
        let record = server.wait_for_state(server.create_job(script), state);
        let field = |name: &str| record.field(name).as_str().unwrap_or_default().to_owned();
        (record.attempt, field("code"), field("message"))
    };
    let first = |script: &str| format!("if [ $ONCEWARD_ATTEMPT = 1 ]; then {script}; fi; echo fine");
    let expected = |attempt: u64, code: &str, message: &str| (attempt, code.to_owned(), message.to_owned());
    assert_eq!(failure_of(&first("echo 'BUSY: come back' >&2; exit 75"), "DONE"), expected(2, "BUSY", "come back"));
    assert_eq!(failure_of(&first("kill -9 $$"), "DONE"), expected(2, "SIGNAL_9", "signal: 9 (SIGKILL)"));
    assert_eq!(failure_of(&first("kill -SEGV $$"), "DONE").1, "SIGNAL_11");
    assert_eq!(failure_of(&first("kill -TERM $$"), "DONE").1, "SIGNAL_15");
    assert_eq!(failure_of("echo one >&2; echo 'CORRUPT: bad' >&2; exit 3", "FAILED"), expected(1, "CORRUPT", "bad"));
    assert_eq!(failure_of("exit 1", "FAILED"), expected(1, "EXIT_1", "exit code 1"));
    let too_large = expected(1, "SIZE_EXCEEDED", "the result exceeds 1048576 bytes");
    assert_eq!(failure_of("head -c 1048577 /dev/zero", "FAILED"), too_large);
    assert_eq!(failure_of("yes", "FAILED"), too_large);
    assert_eq!(failure_of("head -c 1048576 /dev/zero", "DONE").0, 1);
}

#[test]
fn program_over_timeout_is_killed_and_retried() {
    let server = WorkerTestServer::new("timeout");
    let up = server.create_pipe("up");
    let script = format!(
        "if [ $ONCEWARD_ATTEMPT = 1 ]; then exec 3>{}; trap '' TERM; sleep 1000 & wait; wait; fi; echo fine",
        up.path()
    );
    let id = server.create_job(&script);
    let _worker = server.spawn_worker(&["--timeout", "1500ms", "--kill-after", "100ms"]);
    assert_eq!(up.open_reader().read_until_closed(), "");
    let record = server.wait_for_state(id, "DONE");
    assert_eq!(
        (record.field("code"), record.field("message")),
        (json!("TIMEOUT"), json!("the command was still running after 1.5 s"))
    );
}

#[test]
fn unrunnable_program_yields_job_and_stops_worker() {
    let server = WorkerTestServer::new("cannot");
    for (command, code) in
        [(&["/nonexistent/program"][..], 127), (&["/etc/passwd"], 126), (&["sh", "-c", "exit 127"], 127)]
    {
        let id = server.create_job("");
        let worker = server.spawn_worker_with(&[], command, Stdio::null());
        assert_eq!(worker.wait_exit_code(), Some(1), "{command:?}");
        let record = server.get(id);
        assert_eq!(
            (record.state.as_str(), record.field("yields"), record.field("failures")),
            ("WAITING", json!(1), json!(0)),
            "{code}"
        );
        let id = record.id;
        let _worker = server.spawn_worker(&["--until-idle"]);
        server.wait_for_state(id, "DONE");
    }
}

#[test]
fn stderr_is_forwarded_up_to_limit() {
    let server = WorkerTestServer::new("complaints");
    let id =
        server.create_job("yes 'some words to read' | head -c 5000000 >&2; echo >&2; echo 'END: fine' >&2; exit 3");
    let mut worker = server.spawn_worker_with(&["--until-idle", "--log-format", "human"], &["sh"], Stdio::piped());
    let mut stderr = worker.0.stderr.take().expect("pipe");
    let mut stderr_text = String::new();
    stderr.read_to_string(&mut stderr_text).expect("UTF-8");
    assert_eq!(worker.wait_exit_code(), Some(0));
    assert_eq!(server.wait_for_state(id, "FAILED").field("code"), json!("END"));
    let prefix = format!("[{}.1] some words to read\n", &id.simple().to_string()[24..]);
    assert!(stderr_text.contains(&prefix), "{}", &stderr_text[..200]);
    assert!(stderr_text.len() < 4 << 20, "{}", stderr_text.len());
    assert!(stderr_text.contains("further output is omitted"));
}

/// Also contains no terminal control characters.
#[test]
fn stderr_lines_are_json_in_json_log() {
    let server = WorkerTestServer::new("json-log");
    let id = server.create_job("printf 'one \\033[2Jtwo\\n' >&2; exit 3");
    let mut worker = server.spawn_worker_with(&["--until-idle"], &["sh"], Stdio::piped());
    let mut log = String::new();
    worker.0.stderr.take().expect("pipe").read_to_string(&mut log).expect("UTF-8");
    assert_eq!(worker.wait_exit_code(), Some(0));
    let parse =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let lines: Vec<_> = log.lines().map(parse).collect();
    assert!(lines.iter().any(|line| line["message"] == "worker started" && line["lifecycle"] == "desk.job"), "{log}");
    let printed = lines.iter().find(|line| line["target"] == "program").unwrap_or_else(|| panic!("{log}"));
    assert_eq!(
        (&printed["message"], &printed["record"], &printed["token"]),
        (&json!("one [2Jtwo"), &json!(id), &json!(1))
    );
}

/// From the command line or from the environment.
#[test]
fn pass_key_gives_program_the_api_key() {
    let server = WorkerTestServer::new("pass-key");
    let id = server.create_job("echo \"${ONCEWARD_KEY-none}\"");
    let worker = server.spawn_worker(&["--key", "ow_abc_def", "--pass-key", "--until-idle"]);
    assert_eq!(worker.wait_exit_code(), Some(0));
    assert_eq!((server.get(id).state.as_str(), &server.effect(id)["result"]), ("DONE", &json!("ow_abc_def")));
}

#[test]
fn concurrency_bounds_running_programs() {
    let server = WorkerTestServer::new("concurrency");
    let (up, go) = (server.create_pipe("up"), server.create_pipe("go"));
    let script = format!("exec 4<>{}; echo up >{}; read x <&4", go.path(), up.path());
    let jobs: Vec<_> = (0..5).map(|_| server.create_job(&script)).collect();
    // Open for reading and writing, so that opening the pipe blocks no program.
    let _both = std::fs::OpenOptions::new().read(true).write(true).open(server.folder.join("up")).expect("pipe");
    let _worker = server.spawn_worker(&["--concurrency", "4"]);
    let mut reader = up.open_reader();
    for _ in 0..4 {
        assert_eq!(reader.read_line(), "up");
    }
    let running = jobs.iter().filter(|id| server.get(**id).state == "RUNNING").count();
    assert_eq!(running, 4);
    go.release(5);
    for id in jobs {
        server.wait_for_state(id, "DONE");
    }
}
