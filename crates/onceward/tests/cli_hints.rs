//! Tests the hints in error messages about mistyped or missing arguments.

mod support;

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use onceward_testkit::server_process::ServerProcess;
use support::{create_test_folder, run_onceward, start_server, utf8};

/// A lifecycle with an event of the owner and one of a declared role.
const DOOR_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "door.door"
about     = "A door"

[states]
shut = { about = "closed", rest = true }
gone = { about = "broken down", final = true }

[who]
smith = "'smith' in actor.roles"

[[on.create]]
go = "-> shut"

[[on.destroy]]
go = "shut -> gone"
by = "smith"

[[on.knock]]
go = "shut"
"#;

/// Runs the binary against a server, with an empty `ONCEWARD_CA`, which counts as unset. Kills it if it hangs.
fn run_with_timeout(folder: &Path, url: &str, arguments: &[&str]) -> Output {
    Command::new("timeout")
        .args(["60", env!("CARGO_BIN_EXE_onceward")])
        .args(arguments)
        .current_dir(folder)
        .env("ONCEWARD_URL", url)
        .env("ONCEWARD_CA", "")
        .stdin(Stdio::null())
        .output()
        .expect("timeout runs")
}

/// Asserts the exit code and the error text.
#[track_caller]
fn assert_refused(output: &Output, code: i32, words: &str) {
    let printed = utf8(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{printed}");
    assert!(printed.contains(words), "no {words:?}: {printed}");
}

fn serve_door_lifecycle(folder: &Path, text: &str) -> ServerProcess {
    std::fs::write(folder.join("door.toml"), text).expect("file");
    start_server(folder, &["--lifecycles", "door.toml"], &[])
}

fn create_record(folder: &Path, url: &str, lifecycle: &str) -> String {
    let made = run_onceward(folder, &["new", lifecycle, "--server", url]);
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    utf8(&made.stdout).trim().to_owned()
}

/// Also neither prints an empty list nor waits forever.
#[test]
fn unknown_lifecycle_or_state_error_suggests_known_names() {
    let folder = create_test_folder("words-names");
    let server = start_server(&folder, &[], &[]);
    let id = create_record(&folder, &server.url(), "execution.job");
    let run = |more: &[&str]| run_with_timeout(&folder, &server.url(), more);
    let near = "no lifecycle `execution.jb`; did you mean `execution.job`?";
    assert_refused(&run(&["list", "execution.jb"]), 1, near);
    assert_refused(&run(&["watch", "--lifecycle", "execution.jb"]), 1, near);
    assert_refused(&run(&["new", "execution.jb"]), 1, near);
    assert_refused(&run(&["work", "execution.jb", "--", "cat"]), 1, near);
    assert_refused(&run(&["lifecycle", "list", "execution.jb"]), 1, near);
    assert_refused(
        &run(&["new", "nothing.like.it"]),
        1,
        "`nothing.like.it`; known lifecycles: `document.job`, `execution.job`",
    );
    let states = |state: &str| {
        format!("`execution.job` has no state `{state}`; its states are PENDING, RUNNING, SUCCEEDED, FAILED\n")
    };
    assert_refused(&run(&["list", "execution.job", "--state", "PENDNG"]), 1, &states("PENDNG"));
    assert_refused(&run(&["watch", &id, "--until", "SUCEEDED"]), 1, &states("SUCEEDED"));
    assert_refused(&run(&["watch", "--lifecycle", "execution.job", "--until", "DONE"]), 1, &states("DONE"));
    assert_refused(&run(&["watch", "--until", "SUCEEDED"]), 1, "no lifecycle has a state `SUCEEDED`\n");
    assert_eq!(run(&["watch", &id, "--until", "PENDING"]).status.code(), Some(0));
    assert_eq!(utf8(&run(&["list", "execution.job", "--state", "FAILED"]).stdout), "no records\n");
    assert_eq!(utf8(&run(&["list", "onceward.delivery"]).stdout), "no records\n", "built-in lifecycles are known");
    for (path, status, words) in [
        ("/v1/records?lifecycle=no.such", 404, "unknown_lifecycle"),
        ("/v1/stream?lifecycle=no.such", 404, "unknown_lifecycle"),
        ("/v1/records?lifecycle=execution.job&state=x", 404, "unknown_state"),
        ("/v1/records?state=x", 404, "unknown_state"),
        ("/v1/records?state=FAILED", 200, "\"records\":[]"),
        ("/v1/records?lifecyle=x", 422, "the query parameter `lifecyle` is unknown; expected one of"),
    ] {
        let reply = server.get(path);
        assert!(reply.status == status && reply.text().contains(words), "{path}: {reply:?}");
    }
    server.stop();
}

/// Records may be pinned to an old version.
#[test]
fn list_accepts_states_of_old_versions() {
    let folder = create_test_folder("words-versions");
    serve_door_lifecycle(&folder, &DOOR_LIFECYCLE.replace("gone", "lost")).stop();
    let server = serve_door_lifecycle(&folder, DOOR_LIFECYCLE);
    for (state, code) in [("gone", 0), ("lost", 0), ("open", 1)] {
        let listed = run_onceward(&folder, &["list", "door.door", "--state", state, "--server", &server.url()]);
        assert_eq!(listed.status.code(), Some(code), "{state}: {listed:?}");
    }
    server.stop();
}

#[test]
fn unloaded_shipped_lifecycle_error_gives_reason() {
    let folder = create_test_folder("words-left-out");
    let server = start_server(&folder, &[], &[]);
    let run = |more: &[&str]| run_with_timeout(&folder, &server.url(), more);
    let reason = "the lifecycle `relay.job` ships with Onceward but was not loaded, because the external check `";
    assert_refused(&run(&["new", "relay.job"]), 1, reason);
    assert_refused(&run(&["list", "relay.job"]), 1, reason);
    assert_refused(&run(&["work", "relay.job", "--until-idle", "--", "cat"]), 1, reason);
    server.stop();
}

#[test]
fn unknown_event_error_lists_callable_events() {
    let folder = create_test_folder("words-events");
    let server = serve_door_lifecycle(&folder, DOOR_LIFECYCLE);
    let run = |more: &[&str]| run_with_timeout(&folder, &server.url(), more);
    let door = create_record(&folder, &server.url(), "door.door");
    assert_refused(
        &run(&["fire", &door, "destory"]),
        1,
        "door.door declares no event `destory`; did you mean `destroy`?",
    );
    assert_refused(&run(&["fire", &door, "paint"]), 1, "`paint`; events that callers may fire: `destroy`, `knock`");
    let job = create_record(&folder, &server.url(), "execution.job");
    assert_refused(
        &run(&["fire", &job, "cancel"]),
        1,
        "declares no event `cancel`; there are no events that callers may fire",
    );
    let key = utf8(&run(&["key", "create", "--owner", "ops", "--role", "operator"]).stdout);
    let door = utf8(&run(&["new", "door.door", "--key", key.trim()]).stdout);
    let refused = run(&["fire", door.trim(), "destroy", "--key", key.trim()]);
    assert_refused(&refused, 1, "the caller may not fire `destroy` in shut; allowed callers: smith");
    server.stop();
}

#[test]
fn invalid_record_id_error_shows_example() {
    let folder = create_test_folder("words-ids");
    let hint = "expected a UUID, such as 0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b";
    for verb in [&["get"][..], &["history"], &["watch"], &["fire"], &["new", "execution.job", "--id"]] {
        assert_refused(
            &run_onceward(&folder, &[verb, &["nope"]].concat()),
            2,
            &format!("`nope` is not a record id: {hint}"),
        );
        assert_refused(&run_onceward(&folder, &[verb, &[""]].concat()), 2, &format!("the record id is empty: {hint}"));
    }
}

#[test]
fn invalid_listen_address_error_suggests_valid_one() {
    let folder = create_test_folder("words-addresses");
    let taken = TcpListener::bind("127.0.0.1:0").expect("port").local_addr().expect("address");
    let held = TcpListener::bind(taken).expect("the same");
    let address = taken.to_string();
    let refused = run_onceward(&folder, &["serve", "--listen", &address]);
    assert_refused(&refused, 2, "another server may use the port; --listen 127.0.0.1:0 picks a free one\n");
    assert!(utf8(&refused.stderr).starts_with(&format!("error: {address}: ")), "{refused:?}");
    drop(held);
    for (wrong, right) in [
        ("7199", "127.0.0.1:7199"),
        ("localhost:7199", "127.0.0.1:7199"),
        (":80", "127.0.0.1:80"),
        ("x", "127.0.0.1:7171"),
    ] {
        assert_refused(
            &run_onceward(&folder, &["serve", "--listen", wrong]),
            2,
            &format!("`{wrong}` is not an address with a port: use {right}"),
        );
    }
}

#[test]
fn internal_commands_are_hidden_from_users() {
    let folder = create_test_folder("words-verbs");
    let refused = run_onceward(&folder, &["serv"]);
    assert_refused(&refused, 2, "'serve'");
    assert!(!utf8(&refused.stderr).contains("__"), "{refused:?}");
    assert_refused(&run_onceward(&folder, &["__supervise"]), 2, "unrecognized subcommand");
    let help = utf8(&run_onceward(&folder, &["serve", "--help"]).stdout);
    assert!(help.contains("Exit codes: 0 ") && help.contains("; 2 "), "{help}");
}

/// Starts a server that closes each connection without a response. Returns its URL, and the request lines that it got.
fn start_closing_server() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut line = String::new();
            let _ = BufReader::new(stream).read_line(&mut line);
            recorded.lock().expect("lock").push(line.trim_end().to_owned());
        }
    });
    (url, requests)
}

/// With `--until-idle`, also does not wait for the server forever. The notice needs no other request than the retries.
#[test]
fn unreachable_server_error_gives_cause_and_hint() {
    let folder = create_test_folder("words-away");
    let unused = TcpListener::bind("127.0.0.1:0").expect("port").local_addr().expect("address");
    let (absent, (closing, requests)) = (format!("http://{unused}"), start_closing_server());
    let id = "0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b";
    for (url, verb) in [
        (&closing, &["get", id][..]),
        (&absent, &["key", "list"]),
        (&absent, &["work", "execution.job", "--until-idle", "--", "cat"]),
    ] {
        let refused = run_with_timeout(&folder, url, verb);
        assert_refused(&refused, 2, "; start a server with `onceward serve`, or choose another with --server\n");
        assert!(utf8(&refused.stderr).contains(&format!("error: cannot reach {url}: ")), "{refused:?}");
        let notices = utf8(&refused.stderr).matches("; retrying for up to 5 s\n").count();
        assert_eq!(notices, usize::from(verb[0] != "work"), "{refused:?}");
    }
    let requests = requests.lock().expect("lock");
    let expected = format!("GET /v1/records/{id} HTTP/1.1");
    assert!(requests.len() > 1 && requests.iter().all(|line| *line == expected), "{requests:?}");
}

#[test]
fn malformed_json_payload_prints_note() {
    let folder = create_test_folder("words-payload");
    let server = start_server(&folder, &[], &[]);
    let give = |payload: &str| {
        run_onceward(&folder, &["new", "execution.job", "--payload", payload, "--server", &server.url()])
    };
    assert_refused(&give(r#"{"hello": "world""#), 0, "note: the payload is not valid JSON (");
    assert_refused(&give("[1, 2"), 0, " and is stored as text\n");
    for valid in ["hello", r#"{"hello": "world"}"#, "\"{\""] {
        assert_eq!(utf8(&give(valid).stderr), "", "{valid}");
    }
    server.stop();
}
