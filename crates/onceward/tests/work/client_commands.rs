//! Tests output and exit codes of the client commands.

use std::io::BufRead as _;

use serde_json::{Value, json};

use crate::support::{WorkerTestServer, lossy_utf8};

fn parse_json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn record_is_created_worked_and_watched_by_commands() {
    let server = WorkerTestServer::new("verbs");
    let id =
        server.stdout_of_success(&["new", "desk.job", "--payload", "echo hello", "--once", "first"]).trim().to_owned();
    assert_eq!(
        server.stdout_of_success(&["new", "desk.job", "--payload", "echo hello", "--once", "first"]).trim(),
        id,
        "the same record"
    );
    let shown = server.stdout_of_success(&["get", &id]);
    assert!(shown.contains(&format!("id         {id}\n")) && shown.contains("state      WAITING\n"), "{shown}");
    assert_eq!(parse_json(&server.stdout_of_success(&["get", &id, "--json"]))["state"], "WAITING");
    assert!(server.stdout_of_success(&["list", "desk.job", "--state", "WAITING"]).contains(&id));
    assert_eq!(server.stdout_of_success(&["list", "desk.job", "--state", "DONE"]), "no records\n");
    server.stdout_of_success(&["work", "desk.job", "--until-idle", "--name", "w1", "--", "sh"]);
    assert!(server.stdout_of_success(&["get", &id]).contains("result     hello\n"));
    assert_eq!(parse_json(&server.stdout_of_success(&["get", &id, "--json"]))["effect"]["result"], "hello");
    let watched = server.stdout_of_success(&["watch", &id, "--until", "DONE"]);
    assert_eq!(watched.lines().count(), 3, "{watched}");
    assert!(watched.lines().last().is_some_and(|line| line.contains("RUNNING -> DONE")), "{watched}");
    let history = server.stdout_of_success(&["history", &id]);
    for part in ["WHEN", "-> WAITING", "WAITING -> RUNNING", "local (w1)", "RUNNING -> DONE", "effect committed"] {
        assert!(history.contains(part), "{part} in {history}");
    }
    assert_eq!(parse_json(&server.stdout_of_success(&["history", &id, "--json"])).as_array().map(Vec::len), Some(3));
    assert_eq!(parse_json(&server.stdout_of_success(&["list", "desk.job", "--json"]))[0]["id"], json!(id));
    let lines = server.stdout_of_success(&["watch", &id, "--until", "DONE", "--json"]);
    assert!(lines.lines().all(|line| parse_json(line)["record"] == json!(id)), "{lines}");
}

/// A retry that succeeds does not hide why the first attempt failed.
#[test]
fn get_shows_errors_of_earlier_attempts() {
    let server = WorkerTestServer::new("attempts");
    let job = "if [ $ONCEWARD_ATTEMPT = 1 ]; then echo 'BUSY: the printer is warm' >&2; exit 75; fi; echo done";
    let id = server.create_job(job).to_string();
    server.stdout_of_success(&["work", "desk.job", "--until-idle", "--", "sh"]);
    let shown = server.stdout_of_success(&["get", &id]);
    assert!(shown.contains("state      DONE\n"), "{shown}");
    assert!(shown.contains("error      attempt 1: BUSY: the printer is warm\n"), "{shown}");
    let executions = parse_json(&server.stdout_of_success(&["get", &id, "--json"]))["executions"].clone();
    assert_eq!(executions[0]["aborted"]["message"], "the printer is warm");
    assert_eq!(executions[1]["aborted"], json!(null));
}

/// The final state is not the one waited for.
#[test]
fn watch_ends_on_final_state_or_closed_stdout() {
    let server = WorkerTestServer::new("watched");
    let id = server.create_job("exit 3").to_string();
    server.stdout_of_success(&["work", "desk.job", "--until-idle", "--", "sh"]);
    let watched = server.run_onceward(&["watch", &id, "--until", "DONE"]);
    assert_eq!(watched.status.code(), Some(1));
    assert!(lossy_utf8(&watched.stderr).contains("ended in state FAILED"), "{}", lossy_utf8(&watched.stderr));
    let (watching, mut out) = server.spawn_watch(&[&id]);
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    assert!(line.contains("-> WAITING"), "{line}");
    drop(out);
    assert_eq!(watching.wait_exit_code(), Some(0), "exits although no entry follows");
}

#[test]
fn watch_continues_after_server_restart() {
    let mut server = WorkerTestServer::new("watched-on");
    let first = server.create_job("echo 1");
    let (_watching, out) = server.spawn_watch(&["--after", "0", "--until", "CANCELLED"]);
    let mut lines = out.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains(&first.to_string())));
    server.kill_server();
    server.restart_server();
    let second = server.create_job("echo 2");
    assert!(lines.any(|line| line.contains(&second.to_string())), "continues after the restart");
}

#[test]
fn list_notes_records_beyond_limit() {
    let server = WorkerTestServer::new("listed");
    for _ in 0..3 {
        server.create_job("");
    }
    let listed = server.run_onceward(&["list", "desk.job", "--limit", "2"]);
    assert_eq!(lossy_utf8(&listed.stdout).lines().count(), 3, "heading and two rows");
    assert!(
        lossy_utf8(&listed.stderr).contains("more than 2 records match; raise --limit"),
        "{}",
        lossy_utf8(&listed.stderr)
    );
    assert_eq!(lossy_utf8(&server.run_onceward(&["list", "desk.job", "--limit", "3"]).stderr), "");
}

#[test]
fn refusal_is_printed_as_json_with_json_flag() {
    let server = WorkerTestServer::new("refused-json");
    for arguments in
        [&["lifecycle", "use", "desk.nothing", "0123456789", "--json"][..], &["key", "revoke", "missing", "--json"]]
    {
        let arguments = [arguments, &["--server", &server.url]].concat();
        let refused = server.run_onceward(&arguments);
        assert_eq!(refused.status.code(), Some(1), "{arguments:?} {}", lossy_utf8(&refused.stderr));
        assert!(
            parse_json(&lossy_utf8(&refused.stdout))["error"].is_object(),
            "{arguments:?} {}",
            lossy_utf8(&refused.stdout)
        );
    }
}

#[test]
fn fire_prints_new_state_or_refusal() {
    let server = WorkerTestServer::new("fired");
    let id = server.stdout_of_success(&["new", "desk.job"]).trim().to_owned();
    let refused = server.run_onceward(&["fire", &id, "cancel"]);
    assert_eq!(refused.status.code(), Some(1));
    let message = lossy_utf8(&refused.stderr);
    assert!(
        message.contains("409 wrong_state") && message.contains("WAITING") && message.contains("cancel"),
        "{message}"
    );
    let refused = server.run_onceward(&["fire", &id, "cancel", "--json"]);
    assert_eq!(parse_json(&lossy_utf8(&refused.stdout))["error"]["code"], "wrong_state");
    assert_eq!(
        server.run_onceward(&["fire", &id, "cancel", "--input", "[1]"]).status.code(),
        Some(2),
        "input is not an object"
    );
    let up = server.create_pipe("up");
    let id = server.create_job(&format!("echo up >{}; exec sleep 1000", up.path())).to_string();
    let _worker = server.spawn_worker(&["--lease", "6s", "--kill-after", "10ms"]);
    assert_eq!(up.open_reader().read_line(), "up");
    let old = server.run_onceward(&["fire", &id, "cancel", "--version", "1"]);
    assert!(lossy_utf8(&old.stderr).contains("412 version_mismatch"), "{}", lossy_utf8(&old.stderr));
    assert_eq!(server.stdout_of_success(&["fire", &id, "cancel"]), "RUNNING\n");
    server.stdout_of_success(&["watch", &id, "--until", "CANCELLED"]);
}

#[test]
fn new_reads_payload_from_file() {
    let server = WorkerTestServer::new("payloads");
    std::fs::write(server.folder.join("script"), "echo 'from a file'\n").expect("file");
    let id = server.stdout_of_success(&["new", "desk.job", "--payload", "@script"]).trim().to_owned();
    server.stdout_of_success(&["work", "desk.job", "--until-idle", "--", "sh"]);
    let effect = server.effect(id.parse().expect("id"));
    assert_eq!(effect["result"], "from a file");
    assert_eq!(server.run_onceward(&["new", "desk.job", "--payload", "@nothing"]).status.code(), Some(2));
}

#[test]
fn client_commands_exit_1_on_refusal_and_2_on_misuse() {
    let server = WorkerTestServer::new("wrong");
    let code = |arguments: &[&str]| server.run_onceward(arguments).status.code();
    let missing_id = "0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b";
    assert_eq!(code(&["get", missing_id]), Some(1));
    assert_eq!(code(&["history", missing_id]), Some(1));
    assert_eq!(code(&["watch", missing_id]), Some(1));
    assert_eq!(code(&["new", "desk.nothing"]), Some(1));
    assert_eq!(code(&["new", "desk.job", "--field", "failures=3"]), Some(1), "the caller may not set the field");
    assert_eq!(code(&["get", "not-an-id"]), Some(2));
    assert_eq!(code(&["get", missing_id, "--server", "ftp://x"]), Some(2));
    // A free port without a server.
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("port");
    let url = format!("http://{free}");
    let away = server.run_onceward(&["list", "desk.job", "--server", &url, "--key", "ow_secret"]);
    assert_eq!(away.status.code(), Some(2));
    let stderr = lossy_utf8(&away.stderr);
    assert!(stderr.contains("onceward serve") && !stderr.contains("secret"), "{stderr}");
}
