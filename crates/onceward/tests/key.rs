//! `onceward key` and the server's door, run as a user runs them.

mod desk;

use std::process::Output;

use desk::{folder, notes, onceward, serve, text};
use serde_json::{Value, json};

fn parsed(output: &Output) -> Value {
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
    let second = parsed(&create(&worker));
    let list = onceward(&folder, &[&["key", "list"], &db[..]].concat());
    let shown = text(&list.stdout);
    assert!(
        shown.contains(&id(&first)) && shown.contains("for execution.job") && shown.contains("\"first\""),
        "{shown}"
    );
    assert!(!shown.contains(&first) && !shown.contains(second["key"].as_str().expect("a key")), "no secrets");
    let revoke = onceward(&folder, &[&["key", "revoke", &id(&first)], &db[..]].concat());
    assert_eq!(text(&revoke.stdout), format!("{} is revoked\n", id(&first)));
    assert!(text(&revoke.stderr).starts_with("warning: no operator's key is left"), "{revoke:?}");
    let listed = parsed(&onceward(&folder, &[&["key", "list", "--json"], &db[..]].concat()));
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
    let served = serve(&folder, &[], &[]);
    let records = served.get("/v1/records");
    assert_eq!((records.status, &*records.text()), (200, r#"{"records":[],"next":null}"#));
    served.call("GET", "/v1/records", &[("host", "evil.example")], None).is_problem(403, "foreign_host");
    served.call("GET", "/v1/records", &[("origin", "http://evil.example")], None).is_problem(403, "foreign_origin");
    // A proxy in front of it would be this machine for everybody who can reach it.
    for (name, value) in [("x-forwarded-for", "203.0.113.7"), ("forwarded", "for=203.0.113.7"), ("via", "1.1 edge")] {
        served.call("GET", "/v1/records", &[(name, value)], None).is_problem(403, "forwarded");
    }
    let jobs = "/v1/lifecycles/execution.job/records";
    served.call("POST", jobs, &[("content-type", "text/plain")], Some(b"{}")).is_problem(415, "not_json");
    // No file is named and none is free: through the server.
    let url = ["--server", &served.url()];
    let first =
        key(&onceward(&folder, &[&["key", "create", "--owner", "ops", "--role", "operator"], &url[..]].concat()));
    assert_eq!(served.get("/v1/records").status, 401);
    let refused = onceward(&folder, &[&["key", "list"], &url[..]].concat());
    assert!(refused.status.code() == Some(1) && text(&refused.stderr).contains("unauthorized"), "{refused:?}");
    let listed = parsed(&onceward(&folder, &[&["key", "list", "--json", "--key", &first], &url[..]].concat()));
    assert_eq!(listed["keys"][0]["id"], id(&first));
    let create = ["key", "create", "--owner", "ann", "--role", "producer", "--key", &first];
    let anns = key(&onceward(&folder, &[&create[..], &url[..]].concat()));
    let made = served.call_as(&anns, "POST", jobs, &[], Some(b"{}"));
    assert_eq!((made.status, &made.json()["owner"]), (201, &"ann".into()), "{made:?}");
    let passed_on = served.call_as(&anns, "GET", "/v1/records", &[("x-forwarded-for", "203.0.113.7")], None);
    assert_eq!(passed_on.status, 200, "who shows a key may come by a proxy");
    let get = |path: &str| served.call_as(&anns, "GET", path, &[], None);
    get("/v1/keys").is_problem(403, "forbidden");
    let revoke = ["key", "revoke", &*anns, "--key", &first];
    let revoked = onceward(&folder, &[&revoke[..], &url[..]].concat());
    assert_eq!(
        (revoked.status.code(), &*text(&revoked.stderr)),
        (Some(0), ""),
        "an operator is left: nothing to warn of"
    );
    assert_eq!(get("/v1/records").status, 401, "at once");
    // The last operator is not stopped, but told; and the door stays closed when nobody is left.
    let revoked = onceward(&folder, &[&["key", "revoke", "--json", &id(&first), "--key", &first], &url[..]].concat());
    assert_eq!(parsed(&revoked)["operators_left"], 0);
    assert!(text(&revoked.stderr).starts_with("warning: no operator's key is left"), "{revoked:?}");
    assert_eq!(served.call_as(&first, "GET", "/v1/records", &[], None).status, 401);
    served.stop();
    let served = serve(&folder, &[], &[]);
    assert_eq!(served.get("/v1/records").status, 401);
    served.stop();
}

/// The first steps of somebody for whom others have made keys: each is told what is missing.
#[test]
fn with_keys_it_says_how_to_go_on() {
    let folder = folder("key-hints");
    let db = ["--db", "sqlite:onceward.db"];
    let create = |more: &[&str]| onceward(&folder, &[&["key", "create"], &db[..], more].concat());
    let operator = key(&create(&["--owner", "ops", "--role", "operator"]));
    let workers = create(&["--owner", "fleet", "--role", "worker", "--lifecycle", "execution.jb"]);
    let said = text(&workers.stderr);
    assert!(said.contains("no lifecycle `execution.jb` here yet; is `execution.job` meant?"), "{said}");
    let serving = serve(&folder, &[], &[]);
    let url = serving.url();
    let url = ["--server", &url];
    let run = |more: &[&str]| onceward(&folder, &[more, &url[..]].concat());
    for verb in [&["new", "execution.job"][..], &["key", "list"], &["list", "execution.job"], &["lifecycle", "list"]] {
        let refused = run(verb);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{verb:?}: {said}");
        assert!(said.ends_with("no key was given: set ONCEWARD_KEY, or give --key\n"), "{verb:?}: {said}");
    }
    let wrong = run(&["new", "execution.job", "--key", "ow_1_2"]);
    assert!(!text(&wrong.stderr).contains("no key was given"), "{wrong:?}");
    let refused = run(&["new", "execution.job", "--key", &key(&workers)]);
    let said = text(&refused.stderr);
    assert!(said.contains("it has no role but `worker`, and making and moving records is for `producer`"), "{said}");
    let served =
        run(&["key", "create", "--owner", "w", "--role", "worker", "--lifecycle", "no.such", "--key", &operator]);
    assert!(text(&served.stderr).contains("no lifecycle `no.such` here yet\n"), "{served:?}");
    let served =
        ["key", "create", "--owner", "w", "--role", "worker", "--lifecycle", "execution.job", "--key", &operator];
    assert!(!text(&run(&served).stderr).contains("warning"));
    let roles = ["key", "create", "--owner", "w", "--role", "readonly", "--role", "operator", "--key", &operator];
    let said = text(&run(&roles).stderr);
    assert!(said.contains("warning: no lifecycle here names the role `readonly` yet"), "{said}");
    assert!(!said.contains("`operator` yet"), "{said}");
    let greeting = serving.stop();
    assert!(greeting.contains("\n  export ONCEWARD_KEY=ow_…"), "{greeting}");
    // A role that a shipped lifecycle names is none that nobody knows.
    assert!(!text(&create(&["--owner", "m", "--role", "moderator"]).stderr).contains("warning"));
    let said = text(&create(&["--owner", "m", "--role", "readonly"]).stderr);
    assert!(said.contains("names the role `readonly` yet"), "{said}");
}

/// Off loopback it starts only with keys, and tells how to make one; `--dev` never.
#[test]
fn off_loopback_there_must_be_a_key() {
    let folder = folder("key-outside");
    let outside = ["serve", "--listen", "0.0.0.0:0"];
    // Neither where there is nothing yet, of which nothing is made, nor where there is a database without keys.
    for is_there in [false, true] {
        if is_there {
            serve(&folder, &[], &[]).stop();
        }
        let refused = onceward(&folder, &outside);
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused.stderr).contains("onceward key create --db sqlite:onceward.db --owner"), "{refused:?}");
        assert_eq!(folder.join("onceward.db").exists(), is_there);
    }
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
    let served = serve(&folder, &[], &talkative);
    let url = ["--server", &served.url(), "--key", &operator];
    let anns = key(&onceward(
        &folder,
        &[&["key", "create", "--owner", "ann", "--role", "producer", "--role", "worker"], &url[..]].concat(),
    ));
    let unknown = format!("ow_{}_{}", "ab".repeat(8), "cd".repeat(32));
    assert_eq!(served.call_as(&unknown, "GET", "/v1/records", &[], None).status, 401);
    assert_eq!(served.call_as(&anns, "GET", "/v1/records?key=x", &[], None).status, 422);
    let payload = json!({ "payload": { "word": "sesame-payload" } });
    let made = served.post_as(&anns, "/v1/lifecycles/execution.job/records", &payload);
    assert_eq!(made.status, 201, "{made:?}");
    let leased = served.lease_as(&anns, "execution.job", true);
    assert!(leased.to_string().contains("sesame-payload"), "{leased}");
    let done = json!({ "result": "sesame-result", "finish": true });
    assert_eq!(served.report_as(&anns, &leased, "commit", &[], done).status, 200);
    let said = served.stop();
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
