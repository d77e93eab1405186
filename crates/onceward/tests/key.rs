//! `onceward key` and the server's door, run as a user runs them.

mod desk;

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use desk::{folder, notes, onceward, text};
use onceward_testkit::http;
use serde_json::Value;

fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A key's text on a line of its own.
fn key(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let shown = text(&output.stdout).trim_end().to_owned();
    assert!(shown.starts_with("ow_") && shown.len() == 84 && !shown.contains('\n'), "{shown}");
    shown
}

/// The id in a key's text.
fn id(key: &str) -> String {
    key.split('_').nth(1).expect("an id").to_owned()
}

/// A server in a folder, on a free port.
struct Serving {
    child: Child,
    url: String,
}

impl Serving {
    fn start(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_onceward"))
            .current_dir(folder)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(folder.join("stderr")).expect("a file"))
            .spawn()
            .expect("the binary runs");
        let mut lines = BufReader::new(child.stdout.take().expect("its output"));
        let (mut said, mut url) = (String::new(), None);
        while url.is_none() {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).expect("a line") > 0, "it ended: {said}");
            url = line.split_whitespace().find(|word| word.starts_with("http://")).map(str::to_owned);
            said.push_str(&line);
        }
        let copy = folder.join("stdout");
        std::thread::spawn(move || {
            let _ = lines.read_to_string(&mut said);
            let _ = std::fs::write(copy, said);
        });
        Self { child, url: url.unwrap_or_default() }
    }

    /// Status and body.
    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let address = self.url.trim_start_matches("http://").trim_end_matches('/');
        let headers: Vec<_> = headers.lines().filter_map(|line| line.split_once(": ")).collect();
        let reply = http::call(address, method, path, &headers, Some(body).filter(|body| !body.is_empty()));
        (reply.status, reply.text())
    }

    fn end(mut self) {
        let id = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &id]).status().expect("kill runs");
        assert!(told.success() && self.child.wait().expect("it ends").success());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first key is made in a database that is not there yet; keys are listed without their secrets, and revoked.
#[test]
fn keys_are_made_in_a_database() {
    let folder = folder("key-database");
    let db = ["--db", "sqlite:new.db"];
    let create = |more: &[&str]| onceward(&folder, &[&["key", "create"], &db[..], more].concat());
    let first = key(&create(&["--owner", "ops", "--role", "operator", "--name", "first"]));
    let worker = [
        "--owner",
        "fleet",
        "--role",
        "worker",
        "--lifecycle",
        "execution.job",
        "--expires",
        "2100-01-01T00:00:00Z",
        "--json",
    ];
    let second = json(&create(&worker));
    let list = onceward(&folder, &[&["key", "list"], &db[..]].concat());
    let shown = text(&list.stdout);
    assert!(
        shown.contains(&id(&first)) && shown.contains("for execution.job") && shown.contains("\"first\""),
        "{shown}"
    );
    assert!(!shown.contains(&first) && !shown.contains(second["key"].as_str().expect("a key")), "no secrets");
    let revoke = onceward(&folder, &[&["key", "revoke", &id(&first)], &db[..]].concat());
    assert_eq!(text(&revoke.stdout), format!("{} is revoked\n", id(&first)));
    let listed = json(&onceward(&folder, &[&["key", "list", "--json"], &db[..]].concat()));
    assert!(listed["keys"][0]["revoked_at"].is_string() && listed["keys"][1]["revoked_at"].is_null());
    assert_eq!(listed["keys"][1]["expires_at"], "2100-01-01T00:00:00Z");
    let none = onceward(&folder, &[&["key", "revoke", "0123"], &db[..]].concat());
    assert_eq!(none.status.code(), Some(1), "{none:?}");
    let wrong = create(&["--owner", "engine", "--role", "operator"]);
    assert!(wrong.status.code() == Some(1) && text(&wrong.stderr).contains("bad_api_key"), "{wrong:?}");
    assert_eq!(onceward(&folder, &["key", "list", "--db", "sqlite:none.db"]).status.code(), Some(2));
    assert!(!folder.join("none.db").exists());
    let verify = onceward(&folder, &["verify", "--db", "sqlite:new.db"]);
    assert_eq!(verify.status.code(), Some(0), "{verify:?}");
}

/// A file that a server has open is not written behind its back.
#[test]
fn an_open_database_is_left_alone() {
    let folder = folder("key-locked");
    let (_runtime, _engine) = notes(&folder);
    let refused =
        onceward(&folder, &["key", "create", "--db", "sqlite:onceward.db", "--owner", "o", "--role", "operator"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(text(&refused.stderr).contains("--server"), "{refused:?}");
}

/// Open while there is no key, and it says so; with the first key everybody needs one, at once, and the server looks after keys.
#[test]
fn the_first_key_closes_an_open_server() {
    let folder = folder("key-served");
    let serving = Serving::start(&folder, &[], &[]);
    let (status, records) = serving.send("GET", "/v1/records", "", "");
    assert_eq!((status, &*records), (200, r#"{"records":[],"next":null}"#));
    let rebound = serving.send("GET", "/v1/records", "host: evil.example\r\n", "");
    assert!(rebound.0 == 403 && rebound.1.contains("foreign_host"), "{rebound:?}");
    let site = serving.send("GET", "/v1/records", "origin: http://evil.example\r\n", "");
    assert!(site.0 == 403 && site.1.contains("foreign_origin"), "{site:?}");
    let form = serving.send("POST", "/v1/lifecycles/execution.job/records", "content-type: text/plain\r\n", "{}");
    assert!(form.0 == 415 && form.1.contains("not_json"), "{form:?}");
    // No file is named and none is free: through the server.
    let url = ["--server", &serving.url];
    let first =
        key(&onceward(&folder, &[&["key", "create", "--owner", "ops", "--role", "operator"], &url[..]].concat()));
    assert_eq!(serving.send("GET", "/v1/records", "", "").0, 401);
    let refused = onceward(&folder, &[&["key", "list"], &url[..]].concat());
    assert!(refused.status.code() == Some(1) && text(&refused.stderr).contains("unauthorized"), "{refused:?}");
    let listed = json(&onceward(&folder, &[&["key", "list", "--json", "--key", &first], &url[..]].concat()));
    assert_eq!(listed["keys"][0]["id"], id(&first));
    let create = ["key", "create", "--owner", "ann", "--role", "producer", "--key", &first];
    let anns = key(&onceward(&folder, &[&create[..], &url[..]].concat()));
    let bearer = format!("authorization: Bearer {anns}\r\n");
    let (status, made) = serving.send("POST", "/v1/lifecycles/execution.job/records", &bearer, "{}");
    assert!(status == 201 && made.contains("\"owner\":\"ann\""), "{made}");
    let forbidden = serving.send("GET", "/v1/keys", &bearer, "");
    assert!(forbidden.0 == 403 && forbidden.1.contains("forbidden"), "{forbidden:?}");
    let revoke = ["key", "revoke", &id(&anns), "--key", &first];
    assert_eq!(onceward(&folder, &[&revoke[..], &url[..]].concat()).status.code(), Some(0));
    assert_eq!(serving.send("GET", "/v1/records", &bearer, "").0, 401, "at once");
    serving.end();
    // The door stays closed when nobody is left.
    assert_eq!(onceward(&folder, &["key", "revoke", &id(&first)]).status.code(), Some(0));
    let serving = Serving::start(&folder, &[], &[]);
    assert_eq!(serving.send("GET", "/v1/records", "", "").0, 401);
    serving.end();
}

/// Off loopback it starts only with keys, and tells how to make one; `--dev` never.
#[test]
fn off_loopback_there_must_be_a_key() {
    let folder = folder("key-outside");
    let outside = ["serve", "--listen", "0.0.0.0:0"];
    let refused = onceward(&folder, &outside);
    assert_ne!(refused.status.code(), Some(0));
    assert!(text(&refused.stderr).contains("onceward key create --db sqlite:onceward.db --owner"), "{refused:?}");
    key(&onceward(&folder, &["key", "create", "--db", "sqlite:onceward.db", "--owner", "ops", "--role", "operator"]));
    let refused = onceward(&folder, &[&outside[..], &["--dev"]].concat());
    assert!(refused.status.code() != Some(0) && text(&refused.stderr).contains("--dev"), "{refused:?}");
}

/// DOC-15: neither keys nor payloads are in what a server says, however talkative it is.
#[test]
fn nothing_secret_is_logged() {
    let folder = folder("key-secrets");
    let operator = key(&onceward(
        &folder,
        &["key", "create", "--db", "sqlite:onceward.db", "--owner", "ops", "--role", "operator"],
    ));
    let talkative = [("ONCEWARD_LOG", "trace"), ("RUST_LOG", "trace")];
    let serving = Serving::start(&folder, &[], &talkative);
    let url = ["--server", &serving.url, "--key", &operator];
    let anns = key(&onceward(
        &folder,
        &[&["key", "create", "--owner", "ann", "--role", "producer", "--role", "worker"], &url[..]].concat(),
    ));
    let bearer = format!("authorization: Bearer {anns}\r\n");
    let unknown = format!("ow_{}_{}", "ab".repeat(8), "cd".repeat(32));
    assert_eq!(serving.send("GET", "/v1/records", &format!("authorization: Bearer {unknown}\r\n"), "").0, 401);
    assert_eq!(serving.send("GET", &format!("/v1/records?key={}", "x"), &bearer, "").0, 422);
    let (status, made) = serving.send(
        "POST",
        "/v1/lifecycles/execution.job/records",
        &bearer,
        r#"{"payload": {"word": "sesame-payload"}}"#,
    );
    assert_eq!(status, 201, "{made}");
    let lease = r#"{"lifecycles": ["execution.job"], "worker": "w", "start": true}"#;
    let (_, leased) = serving.send("POST", "/v1/leases", &bearer, lease);
    assert!(leased.contains("sesame-payload"), "{leased}");
    let execution: Value = serde_json::from_str(&leased).expect("JSON");
    let execution = execution["executions"][0]["id"].as_str().expect("an id").to_owned();
    let done = r#"{"token": 1, "result": "sesame-result", "finish": true}"#;
    assert_eq!(serving.send("POST", &format!("/v1/executions/{execution}/commit"), &bearer, done).0, 200);
    serving.end();
    let mut said = std::fs::read_to_string(folder.join("stderr")).expect("what it said");
    while !folder.join("stdout").exists() {
        std::thread::yield_now();
    }
    said.push_str(&std::fs::read_to_string(folder.join("stdout")).expect("what it said"));
    // The lowest level does apply, and what was done above is told at it: the silence below means something.
    for level in ["TRACE", "DEBUG"] {
        assert!(said.contains(&format!("\"level\":\"{level}\"")), "nothing is told at {level}: {said}");
    }
    assert!(said.contains("\"route\":\"/v1/executions/{id}/{report}\""), "{said}");
    for secret in [&operator, &anns, &unknown] {
        let secret = secret.rsplit('_').next().expect("a secret");
        assert!(!said.contains(secret), "a secret is in the log");
    }
    for word in ["sesame-payload", "sesame-result"] {
        assert!(!said.contains(word), "a payload is in the log");
    }
}
