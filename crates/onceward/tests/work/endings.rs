//! Every way in which a program can end, and what becomes of its job.

use std::io::Read as _;
use std::process::Stdio;

use onceward_worker::{NewRecord, Payload};
use serde_json::json;

use crate::stage::Stage;

/// A program that ends with 0 has its output committed, once, and the job is done.
#[test]
fn output_is_the_result() {
    let stage = Stage::new("output");
    let _worker = stage.work(&[]);
    let result = |script: &str| {
        let id = stage.job(script);
        stage.until(id, "DONE");
        assert_eq!(stage.commits(id), 1);
        stage.effect(id)
    };
    assert_eq!(result("echo two words")["result"], json!("two words"));
    assert_eq!(result("echo '{\"a\": [1, 2.5]}'")["result"], json!({ "a": [1, 2.5] }));
    assert_eq!(result("printf 'a\\0'")["result_base64"], json!("YQA="));
    assert_eq!(result(":")["result"], json!(null));
    let id = stage.job("echo \"$ONCEWARD_ID $ONCEWARD_ATTEMPT $ONCEWARD_TOKEN $ONCEWARD_EXECUTION $ONCEWARD_LIFECYCLE ${ONCEWARD_KEY-none}\"");
    stage.until(id, "DONE");
    assert_eq!(stage.effect(id)["result"], json!(format!("{id} 1 1 {id}.1 desk.job none")));
    let id = stage.job("echo \"$ONCEWARD_FIELDS\"");
    stage.until(id, "DONE");
    assert_eq!(stage.effect(id)["result"]["failures"], json!(0));
}

#[test]
fn input_is_the_payload_byte_for_byte() {
    let stage = Stage::new("input");
    let _worker = stage.work_with(&["--result", "bytes"], &["cat"], Stdio::null());
    let large: Vec<u8> = (0..300_000_u32).map(|number| u8::try_from(number % 251).expect("a byte")).collect();
    for payload in [b"{\"a\" : 1.50}".to_vec(), b"\0\xff".to_vec(), large] {
        let record = NewRecord { payload: Some(Payload::Bytes(payload.clone().into())), ..NewRecord::default() };
        let id = stage.runtime.block_on(stage.client.create("desk.job", &record)).expect("a job").id;
        stage.until(id, "DONE");
        let result = stage.effect(id)["result_base64"].as_str().expect("bytes").to_owned();
        assert_eq!(result.len(), payload.len().div_ceil(3) * 4);
        let shown = stage.runtime.block_on(stage.client.payload(id)).expect("readable").expect("there").into_bytes();
        assert!(shown == payload, "as it was given");
    }
    // The text of a JSON string, however long it is.
    for length in [1_000, 100_000, 300_000] {
        let text = format!("line one\n{}", "a".repeat(length));
        let record = NewRecord { payload: Some(Payload::text(&text)), ..NewRecord::default() };
        let id = stage.runtime.block_on(stage.client.create("desk.job", &record)).expect("a job").id;
        stage.until(id, "DONE");
        let result = stage.effect(id)["result_base64"].as_str().expect("bytes").to_owned();
        assert_eq!(result.len(), text.len().div_ceil(3) * 4, "{length}");
    }
    // A program need not read what it is given.
    let _deaf = stage.work_with(&[], &["true"], Stdio::null());
    let record = NewRecord { payload: Some(Payload::Bytes(vec![b'x'; 60_000].into())), ..NewRecord::default() };
    let id = stage.runtime.block_on(stage.client.create("desk.job", &record)).expect("a job").id;
    stage.until(id, "DONE");
}

/// A failure gives the job back or ends it, as the exit code says.
#[test]
fn failures_are_retried_or_final() {
    let stage = Stage::new("failures");
    let _worker = stage.work(&[]);
    let told = |script: &str, state: &str| {
        let record = stage.until(stage.job(script), state);
        let field = |name: &str| record.field(name).as_str().unwrap_or_default().to_owned();
        (record.attempt, field("code"), field("message"))
    };
    let first = |script: &str| format!("if [ $ONCEWARD_ATTEMPT = 1 ]; then {script}; fi; echo fine");
    let expected = |attempt: u64, code: &str, message: &str| (attempt, code.to_owned(), message.to_owned());
    assert_eq!(told(&first("echo 'BUSY: come back' >&2; exit 75"), "DONE"), expected(2, "BUSY", "come back"));
    assert_eq!(told(&first("kill -9 $$"), "DONE"), expected(2, "SIGNAL_9", "signal: 9 (SIGKILL)"));
    assert_eq!(told(&first("kill -SEGV $$"), "DONE").1, "SIGNAL_11");
    assert_eq!(told(&first("kill -TERM $$"), "DONE").1, "SIGNAL_15");
    assert_eq!(told("echo one >&2; echo 'CORRUPT: bad' >&2; exit 3", "FAILED"), expected(1, "CORRUPT", "bad"));
    assert_eq!(told("exit 1", "FAILED"), expected(1, "EXIT_1", "exit code 1"));
    let too_large = expected(1, "SIZE_EXCEEDED", "the result has more than 1048576 bytes");
    assert_eq!(told("head -c 1048577 /dev/zero", "FAILED"), too_large);
    assert_eq!(told("yes", "FAILED"), too_large);
    assert_eq!(told("head -c 1048576 /dev/zero", "DONE").0, 1);
}

#[test]
fn a_program_that_takes_too_long_is_ended() {
    let stage = Stage::new("timeout");
    let up = stage.pipe("up");
    let script = format!(
        "if [ $ONCEWARD_ATTEMPT = 1 ]; then exec 3>{}; trap '' TERM; sleep 1000 & wait; wait; fi; echo fine",
        up.path()
    );
    let id = stage.job(&script);
    let _worker = stage.work(&["--timeout", "1500ms", "--kill-after", "100ms"]);
    assert_eq!(up.read().until_all_are_gone(), "");
    let record = stage.until(id, "DONE");
    assert_eq!((record.field("code"), record.field("message")), (json!("TIMEOUT"), json!("still running after 1.5 s")));
}

#[test]
fn a_program_that_cannot_be_run_stops_the_worker_and_not_the_job() {
    let stage = Stage::new("cannot");
    for (command, code) in
        [(&["/nonexistent/program"][..], 127), (&["/etc/passwd"], 126), (&["sh", "-c", "exit 127"], 127)]
    {
        let id = stage.job("");
        let worker = stage.work_with(&[], command, Stdio::null());
        assert_eq!(worker.ended(), Some(1), "{command:?}");
        let record = stage.get(id);
        assert_eq!(
            (record.state.as_str(), record.field("yields"), record.field("failures")),
            ("WAITING", json!(1), json!(0)),
            "{code}"
        );
        let id = record.id;
        let _worker = stage.work(&["--until-idle"]);
        stage.until(id, "DONE");
    }
}

#[test]
fn complaints_are_passed_on_and_bounded() {
    let stage = Stage::new("complaints");
    let id = stage.job("yes 'some words to read' | head -c 5000000 >&2; echo >&2; echo 'END: fine' >&2; exit 3");
    let mut worker = stage.work_with(&["--until-idle", "--log-format", "human"], &["sh"], Stdio::piped());
    let mut complaints = worker.0.stderr.take().expect("a pipe");
    let mut told = String::new();
    complaints.read_to_string(&mut told).expect("UTF-8");
    assert_eq!(worker.ended(), Some(0));
    assert_eq!(stage.until(id, "FAILED").field("code"), json!("END"));
    let prefix = format!("[{}.1] some words to read\n", &id.simple().to_string()[24..]);
    assert!(told.contains(&prefix), "{}", &told[..200]);
    assert!(told.len() < 4 << 20, "{}", told.len());
    assert!(told.contains("left out"));
}

/// What is read by a program is JSON to the last line, and none of it moves a terminal's cursor.
#[test]
fn complaints_are_part_of_the_log() {
    let stage = Stage::new("json-log");
    let id = stage.job("printf 'one \\033[2Jtwo\\n' >&2; exit 3");
    let mut worker = stage.work_with(&["--until-idle"], &["sh"], Stdio::piped());
    let mut log = String::new();
    worker.0.stderr.take().expect("a pipe").read_to_string(&mut log).expect("UTF-8");
    assert_eq!(worker.ended(), Some(0));
    let parse =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let lines: Vec<_> = log.lines().map(parse).collect();
    assert!(
        lines.iter().any(|line| line["message"].as_str().is_some_and(|text| text.contains("works on desk.job"))),
        "{log}"
    );
    let said = lines.iter().find(|line| line["target"] == "program").unwrap_or_else(|| panic!("{log}"));
    assert_eq!((&said["message"], &said["record"], &said["token"]), (&json!("one [2Jtwo"), &json!(id), &json!(1)));
}

/// By the command line or by the environment: it is the same key.
#[test]
fn programs_get_the_key_when_they_are_to_have_it() {
    let stage = Stage::new("pass-key");
    let id = stage.job("echo \"${ONCEWARD_KEY-none}\"");
    let worker = stage.work(&["--key", "ow_abc_def", "--pass-key", "--until-idle"]);
    assert_eq!(worker.ended(), Some(0));
    assert_eq!((stage.get(id).state.as_str(), &stage.effect(id)["result"]), ("DONE", &json!("ow_abc_def")));
}

#[test]
fn many_run_at_once_and_no_more_than_asked_for() {
    let stage = Stage::new("concurrency");
    let (up, go) = (stage.pipe("up"), stage.pipe("go"));
    let script = format!("exec 4<>{}; echo up >{}; read x <&4", go.path(), up.path());
    let jobs: Vec<_> = (0..5).map(|_| stage.job(&script)).collect();
    // Held open from both ends, so that none who writes is turned away.
    let _both = std::fs::OpenOptions::new().read(true).write(true).open(stage.folder.join("up")).expect("a pipe");
    let _worker = stage.work(&["--concurrency", "4"]);
    let mut heard = up.read();
    for _ in 0..4 {
        assert_eq!(heard.line(), "up");
    }
    let running = jobs.iter().filter(|id| stage.get(**id).state == "RUNNING").count();
    assert_eq!(running, 4);
    go.release(5);
    for id in jobs {
        stage.until(id, "DONE");
    }
}
