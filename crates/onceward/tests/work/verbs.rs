//! The verbs that ask a server: what they print, and with what they exit.

use std::io::BufRead as _;

use serde_json::{Value, json};

use crate::stage::{Stage, text};

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_records_life_on_the_command_line() {
    let stage = Stage::new("verbs");
    let id = stage.says(&["new", "desk.job", "--payload", "echo hello", "--once", "first"]).trim().to_owned();
    assert_eq!(
        stage.says(&["new", "desk.job", "--payload", "echo hello", "--once", "first"]).trim(),
        id,
        "the same one"
    );
    let shown = stage.says(&["get", &id]);
    assert!(shown.contains(&format!("id         {id}\n")) && shown.contains("state      WAITING\n"), "{shown}");
    assert_eq!(parsed(&stage.says(&["get", &id, "--json"]))["state"], "WAITING");
    assert!(stage.says(&["list", "desk.job", "--state", "WAITING"]).contains(&id));
    assert_eq!(stage.says(&["list", "desk.job", "--state", "DONE"]), "no records\n");
    stage.says(&["work", "desk.job", "--until-idle", "--name", "w1", "--", "sh"]);
    assert!(stage.says(&["get", &id]).contains("result     hello\n"));
    assert_eq!(parsed(&stage.says(&["get", &id, "--json"]))["effect"]["result"], "hello");
    let watched = stage.says(&["watch", &id, "--until", "DONE"]);
    assert_eq!(watched.lines().count(), 3, "{watched}");
    assert!(watched.lines().last().is_some_and(|line| line.contains("RUNNING -> DONE")), "{watched}");
    let story = stage.says(&["history", &id]);
    for part in ["WHEN", "-> WAITING", "WAITING -> RUNNING", "local (w1)", "RUNNING -> DONE", "the effect landed"] {
        assert!(story.contains(part), "{part} in {story}");
    }
    assert_eq!(parsed(&stage.says(&["history", &id, "--json"])).as_array().map(Vec::len), Some(3));
    assert_eq!(parsed(&stage.says(&["list", "desk.job", "--json"]))[0]["id"], json!(id));
    let lines = stage.says(&["watch", &id, "--until", "DONE", "--json"]);
    assert!(lines.lines().all(|line| parsed(line)["record"] == json!(id)), "{lines}");
}

/// It ends when what is waited for cannot come any more, and when nobody reads.
#[test]
fn watching_has_an_end() {
    let stage = Stage::new("watched");
    let id = stage.job("exit 3").to_string();
    stage.says(&["work", "desk.job", "--until-idle", "--", "sh"]);
    let watched = stage.onceward(&["watch", &id, "--until", "DONE"]);
    assert_eq!(watched.status.code(), Some(1));
    assert!(text(&watched.stderr).contains("ended in FAILED"), "{}", text(&watched.stderr));
    let (watching, mut out) = stage.watch(&[&id]);
    let mut line = String::new();
    out.read_line(&mut line).expect("a line");
    assert!(line.contains("-> WAITING"), "{line}");
    drop(out);
    assert_eq!(watching.ended(), Some(0), "though nothing happens any more");
}

/// A server that is restarted is missed for a moment, and the story goes on.
#[test]
fn watching_outlives_a_restart() {
    let mut stage = Stage::new("watched-on");
    let first = stage.job("echo 1");
    let (_watching, out) = stage.watch(&["--after", "0", "--until", "CANCELLED"]);
    let mut lines = out.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains(&first.to_string())));
    stage.kill_server();
    stage.restart_server();
    let second = stage.job("echo 2");
    assert!(lines.any(|line| line.contains(&second.to_string())), "it goes on");
}

#[test]
fn there_are_more_than_are_listed() {
    let stage = Stage::new("listed");
    for _ in 0..3 {
        stage.job("");
    }
    let listed = stage.onceward(&["list", "desk.job", "--limit", "2"]);
    assert_eq!(text(&listed.stdout).lines().count(), 3, "a heading, and two");
    assert!(text(&listed.stderr).contains("the first 2, and there are more"), "{}", text(&listed.stderr));
    assert_eq!(text(&stage.onceward(&["list", "desk.job", "--limit", "3"]).stderr), "");
}

#[test]
fn a_refusal_is_json_where_json_is_asked_for() {
    let stage = Stage::new("refused-json");
    for arguments in
        [&["lifecycle", "use", "desk.nothing", "0123456789", "--json"][..], &["key", "revoke", "nobody", "--json"]]
    {
        let arguments = [arguments, &["--server", &stage.url]].concat();
        let refused = stage.onceward(&arguments);
        assert_eq!(refused.status.code(), Some(1), "{arguments:?} {}", text(&refused.stderr));
        assert!(parsed(&text(&refused.stdout))["error"].is_object(), "{arguments:?} {}", text(&refused.stdout));
    }
}

#[test]
fn an_event_by_hand() {
    let stage = Stage::new("fired");
    let id = stage.says(&["new", "desk.job"]).trim().to_owned();
    let refused = stage.onceward(&["fire", &id, "cancel"]);
    assert_eq!(refused.status.code(), Some(1));
    let why = text(&refused.stderr);
    assert!(why.contains("409 wrong_state") && why.contains("WAITING") && why.contains("cancel"), "{why}");
    let refused = stage.onceward(&["fire", &id, "cancel", "--json"]);
    assert_eq!(parsed(&text(&refused.stdout))["error"]["code"], "wrong_state");
    assert_eq!(stage.onceward(&["fire", &id, "cancel", "--input", "[1]"]).status.code(), Some(2), "no object");
    let up = stage.pipe("up");
    let id = stage.job(&format!("echo up >{}; exec sleep 1000", up.path())).to_string();
    let _worker = stage.work(&["--lease", "6s", "--kill-after", "10ms"]);
    assert_eq!(up.read().line(), "up");
    let old = stage.onceward(&["fire", &id, "cancel", "--version", "1"]);
    assert!(text(&old.stderr).contains("412 version_mismatch"), "{}", text(&old.stderr));
    assert_eq!(stage.says(&["fire", &id, "cancel"]), "RUNNING\n");
    stage.says(&["watch", &id, "--until", "CANCELLED"]);
}

#[test]
fn payloads_come_as_text_from_a_file_or_a_pipe() {
    let stage = Stage::new("payloads");
    std::fs::write(stage.folder.join("script"), "echo 'from a file'\n").expect("a file");
    let id = stage.says(&["new", "desk.job", "--payload", "@script"]).trim().to_owned();
    stage.says(&["work", "desk.job", "--until-idle", "--", "sh"]);
    let effect = stage.effect(id.parse().expect("an id"));
    assert_eq!(effect["result"], "from a file");
    assert_eq!(stage.onceward(&["new", "desk.job", "--payload", "@nothing"]).status.code(), Some(2));
}

#[test]
fn what_is_wrong_is_said_and_exits_as_agreed() {
    let stage = Stage::new("wrong");
    let code = |arguments: &[&str]| stage.onceward(arguments).status.code();
    let nobody = "0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b";
    assert_eq!(code(&["get", nobody]), Some(1));
    assert_eq!(code(&["history", nobody]), Some(1));
    assert_eq!(code(&["watch", nobody]), Some(1));
    assert_eq!(code(&["new", "desk.nothing"]), Some(1));
    assert_eq!(code(&["new", "desk.job", "--field", "failures=3"]), Some(1), "nobody may give that");
    assert_eq!(code(&["get", "not-an-id"]), Some(2));
    assert_eq!(code(&["get", nobody, "--server", "ftp://x"]), Some(2));
    // A port that was just free, with nobody behind it.
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let url = format!("http://{free}");
    let away = stage.onceward(&["list", "desk.job", "--server", &url, "--key", "ow_secret"]);
    assert_eq!(away.status.code(), Some(2));
    let told = text(&away.stderr);
    assert!(told.contains("onceward serve") && !told.contains("secret"), "{told}");
}
