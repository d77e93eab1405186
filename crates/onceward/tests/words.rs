//! What the program says where something is mistyped or missing: what there is instead, and what to do.

mod desk;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use desk::{folder, onceward, serve, text};
use onceward_testkit::served::Served;

/// A door that may be opened, and broken down by its owner's smith.
const DOOR: &str = r#"
language  = 1
lifecycle = "door.door"
about     = "A door"

[states]
shut = { about = "nobody passes", rest = true }
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

/// Run it against a server, and end it should it wait for what never comes.
fn bounded(folder: &Path, url: &str, arguments: &[&str]) -> Output {
    Command::new("timeout")
        .args(["60", env!("CARGO_BIN_EXE_onceward")])
        .args(arguments)
        .current_dir(folder)
        .env("ONCEWARD_URL", url)
        .stdin(Stdio::null())
        .output()
        .expect("timeout runs")
}

/// Refused with this exit code, in words that end or go on like these.
#[track_caller]
fn says(output: &Output, code: i32, words: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.contains(words), "no {words:?}: {said}");
}

fn with_door(folder: &Path, text: &str) -> Served {
    std::fs::write(folder.join("door.toml"), text).expect("a file");
    serve(folder, &["--lifecycles", "door.toml"], &[])
}

fn made(folder: &Path, url: &str, lifecycle: &str) -> String {
    let made = onceward(folder, &["new", lifecycle, "--server", url]);
    assert_eq!(made.status.code(), Some(0), "{made:?}");
    text(&made.stdout).trim().to_owned()
}

/// Neither an empty list nor a wait without end is the answer to a name that is none.
#[test]
fn a_lifecycle_or_a_state_that_is_not_there_is_told() {
    let folder = folder("words-names");
    let serving = serve(&folder, &[], &[]);
    let id = made(&folder, &serving.url(), "execution.job");
    let run = |more: &[&str]| bounded(&folder, &serving.url(), more);
    let near = "no lifecycle `execution.jb`; did you mean `execution.job`?";
    says(&run(&["list", "execution.jb"]), 1, near);
    says(&run(&["watch", "--lifecycle", "execution.jb"]), 1, near);
    says(&run(&["new", "execution.jb"]), 1, near);
    says(&run(&["work", "execution.jb", "--", "cat"]), 1, near);
    says(&run(&["lifecycle", "list", "execution.jb"]), 1, near);
    says(&run(&["new", "nothing.like.it"]), 1, "`nothing.like.it`; the lifecycles: `document.job`, `execution.job`");
    let states =
        |state: &str| format!("execution.job has no state `{state}`; it has PENDING, RUNNING, SUCCEEDED, FAILED\n");
    says(&run(&["list", "execution.job", "--state", "PENDNG"]), 1, &states("PENDNG"));
    says(&run(&["watch", &id, "--until", "SUCEEDED"]), 1, &states("SUCEEDED"));
    says(&run(&["watch", "--lifecycle", "execution.job", "--until", "DONE"]), 1, &states("DONE"));
    says(&run(&["watch", "--until", "SUCEEDED"]), 1, "no lifecycle has a state `SUCEEDED`\n");
    assert_eq!(run(&["watch", &id, "--until", "PENDING"]).status.code(), Some(0));
    assert_eq!(text(&run(&["list", "execution.job", "--state", "FAILED"]).stdout), "no records\n");
    assert_eq!(text(&run(&["list", "onceward.delivery"]).stdout), "no records\n", "the engine's own are there, too");
    for (path, status, words) in [
        ("/v1/records?lifecycle=no.such", 404, "no_such_lifecycle"),
        ("/v1/stream?lifecycle=no.such", 404, "no_such_lifecycle"),
        ("/v1/records?lifecycle=execution.job&state=x", 404, "no_such_state"),
        ("/v1/records?state=x", 404, "no_such_state"),
        ("/v1/records?state=FAILED", 200, "\"records\":[]"),
        ("/v1/records?lifecyle=x", 422, "behind the `?`: lifecyle: unknown field"),
    ] {
        let reply = serving.get(path);
        assert!(reply.status == status && reply.text().contains(words), "{path}: {reply:?}");
    }
    serving.stop();
}

/// Records may live by an old version of their lifecycle, so that its states are asked for with right.
#[test]
fn states_of_old_versions_are_known() {
    let folder = folder("words-versions");
    with_door(&folder, &DOOR.replace("gone", "lost")).stop();
    let serving = with_door(&folder, DOOR);
    for (state, code) in [("gone", 0), ("lost", 0), ("open", 1)] {
        let listed = onceward(&folder, &["list", "door.door", "--state", state, "--server", &serving.url()]);
        assert_eq!(listed.status.code(), Some(code), "{state}: {listed:?}");
    }
    serving.stop();
}

/// A system that ships with the program and lacks something here is not simply unknown.
#[test]
fn what_was_left_out_is_told_with_the_reason() {
    let folder = folder("words-left-out");
    let serving = serve(&folder, &[], &[]);
    let run = |more: &[&str]| bounded(&folder, &serving.url(), more);
    let reason = "there is no lifecycle `relay.job` here: it ships with Onceward, but was not loaded, since nobody here answers \
                  the check `";
    says(&run(&["new", "relay.job"]), 1, reason);
    says(&run(&["list", "relay.job"]), 1, reason);
    says(&run(&["work", "relay.job", "--until-idle", "--", "cat"]), 1, reason);
    serving.stop();
}

#[test]
fn an_event_that_is_not_there_is_told_with_those_that_are() {
    let folder = folder("words-events");
    let serving = with_door(&folder, DOOR);
    let run = |more: &[&str]| bounded(&folder, &serving.url(), more);
    let door = made(&folder, &serving.url(), "door.door");
    says(&run(&["fire", &door, "destory"]), 1, "door.door declares no `destory`; did you mean `destroy`?");
    says(&run(&["fire", &door, "paint"]), 1, "`paint`; the events that can be called: `destroy`, `knock`");
    let job = made(&folder, &serving.url(), "execution.job");
    says(&run(&["fire", &job, "cancel"]), 1, "declares no `cancel`; there are no events that can be called");
    let key = text(&run(&["key", "create", "--owner", "ops", "--role", "operator"]).stdout);
    let door = text(&run(&["new", "door.door", "--key", key.trim()]).stdout);
    let refused = run(&["fire", door.trim(), "destroy", "--key", key.trim()]);
    says(&refused, 1, "`destroy` is not for this caller in shut; it is for smith");
    serving.stop();
}

#[test]
fn what_is_no_id_is_told_what_one_looks_like() {
    let folder = folder("words-ids");
    let id = "an id is a UUID, such as 0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b";
    for verb in [&["get"][..], &["history"], &["watch"], &["fire"], &["new", "execution.job", "--id"]] {
        says(&onceward(&folder, &[verb, &["nope"]].concat()), 2, &format!("`nope` is no id: {id}"));
        says(&onceward(&folder, &[verb, &[""]].concat()), 2, &format!("nothing is given here: {id}"));
    }
}

#[test]
fn an_address_that_will_not_do_is_told_one_that_does() {
    let folder = folder("words-addresses");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let held = TcpListener::bind(taken).expect("the same");
    let address = taken.to_string();
    let refused = onceward(&folder, &["serve", "--listen", &address]);
    says(&refused, 2, "another server may run there; --listen 127.0.0.1:0 takes a free port\n");
    assert!(text(&refused.stderr).starts_with(&format!("error: {address}: ")), "{refused:?}");
    drop(held);
    for (wrong, right) in [
        ("7199", "127.0.0.1:7199"),
        ("localhost:7199", "127.0.0.1:7199"),
        (":80", "127.0.0.1:80"),
        ("x", "127.0.0.1:7171"),
    ] {
        says(
            &onceward(&folder, &["serve", "--listen", wrong]),
            2,
            &format!("`{wrong}` is no address with a port: write {right}"),
        );
    }
}

#[test]
fn verbs_that_are_nobodys_are_not_offered() {
    let folder = folder("words-verbs");
    let refused = onceward(&folder, &["serv"]);
    says(&refused, 2, "'serve'");
    assert!(!text(&refused.stderr).contains("__"), "{refused:?}");
    says(&onceward(&folder, &["__supervise"]), 2, "unrecognized subcommand");
    let help = text(&onceward(&folder, &["serve", "--help"]).stdout);
    assert!(help.contains("Exits with 0") && help.contains("with 2 if it"), "{help}");
}

/// The cause first, then what to do about it; and nobody waits without end for a server to say that nothing is left.
#[test]
fn where_no_server_is_it_says_so() {
    let folder = folder("words-away");
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let url = format!("http://{nobody}");
    let id = "0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b";
    let cause = format!("error: cannot reach {url}: ");
    for verb in [&["get", id][..], &["key", "list"], &["work", "execution.job", "--until-idle", "--", "cat"]] {
        let refused = bounded(&folder, &url, verb);
        says(&refused, 2, "; is a server running there? `onceward serve` starts one; --server names another\n");
        assert!(text(&refused.stderr).contains(&cause), "{refused:?}");
    }
}

/// JSON with a slip in it is kept as a text, which is hardly meant.
#[test]
fn a_payload_that_is_nearly_json_gets_a_note() {
    let folder = folder("words-payload");
    let serving = serve(&folder, &[], &[]);
    let give =
        |payload: &str| onceward(&folder, &["new", "execution.job", "--payload", payload, "--server", &serving.url()]);
    says(&give(r#"{"hello": "world""#), 0, "note: the payload is not JSON (");
    says(&give("[1, 2"), 0, "so it is kept as a text\n");
    for fine in ["hello", r#"{"hello": "world"}"#, "\"{\""] {
        assert_eq!(text(&give(fine).stderr), "", "{fine}");
    }
    serving.stop();
}
