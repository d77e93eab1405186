//! Tests `onceward key` and the server's authentication.

mod support;

use std::process::Output;

use serde_json::{Value, json};
use support::{create_test_folder, database_with_notes, run_onceward, start_server, utf8};

fn parse_json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns the API key from a command's output.
fn printed_key(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let key_text = utf8(&output.stdout).trim_end().to_owned();
    assert!(key_text.starts_with("ow_") && key_text.len() == 84 && !key_text.contains('\n'), "{key_text}");
    key_text
}

/// Returns the id in an API key.
fn key_id(key_text: &str) -> String {
    key_text.split('_').nth(1).expect("id").to_owned()
}

/// The first `key create` creates the database. The list contains no secrets.
#[test]
fn key_commands_work_on_database_without_server() {
    let folder = create_test_folder("key-database");
    let db = ["--db", "sqlite:new.db"];
    let create = |more: &[&str]| run_onceward(&folder, &[&["key", "create"], &db[..], more].concat());
    let first = printed_key(&create(&["--owner", "ops", "--role", "operator", "--name", "first"]));
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
    let second = parse_json(&create(&worker));
    let list = run_onceward(&folder, &[&["key", "list"], &db[..]].concat());
    let shown = utf8(&list.stdout);
    assert!(
        shown.contains(&key_id(&first)) && shown.contains("lifecycles execution.job") && shown.contains("\"first\""),
        "{shown}"
    );
    assert!(!shown.contains(&first) && !shown.contains(second["key"].as_str().expect("API key")), "no secrets");
    let revoke = run_onceward(&folder, &[&["key", "revoke", &key_id(&first)], &db[..]].concat());
    assert_eq!(utf8(&revoke.stdout), format!("revoked {}\n", key_id(&first)));
    assert!(utf8(&revoke.stderr).starts_with("warning: no operator's API key is left"), "{revoke:?}");
    let listed = parse_json(&run_onceward(&folder, &[&["key", "list", "--json"], &db[..]].concat()));
    assert!(listed["keys"][0]["revoked_at"].is_string() && listed["keys"][1]["revoked_at"].is_null());
    assert_eq!(listed["keys"][1]["expires_at"], "2100-01-01T00:00:00Z");
    let none = run_onceward(&folder, &[&["key", "revoke", "0123"], &db[..]].concat());
    assert_eq!(none.status.code(), Some(1), "{none:?}");
    let wrong = create(&["--owner", "engine", "--role", "operator"]);
    assert!(wrong.status.code() == Some(1) && utf8(&wrong.stderr).contains("invalid_api_key"), "{wrong:?}");
    assert_eq!(run_onceward(&folder, &["key", "list", "--db", "sqlite:none.db"]).status.code(), Some(2));
    assert!(!folder.join("none.db").exists());
    let verify = run_onceward(&folder, &["verify", "--db", "sqlite:new.db"]);
    assert_eq!(verify.status.code(), Some(0), "{verify:?}");
}

/// The error ends with a command that creates the operator's key, for a database and for a server.
#[test]
fn first_key_without_operator_role_is_refused_with_command() {
    let folder = create_test_folder("key-first");
    let postgres = onceward_testkit::postgres::PostgresServer::shared().create_database();
    let worker = ["key", "create", "--owner", "fleet", "--role", "worker"];
    for (url, shown) in [("sqlite:new.db", "sqlite:new.db"), (&*postgres, "postgres://…")] {
        let refused = run_onceward(&folder, &[&worker[..], &["--db", url]].concat());
        let expected = format!("create that first: onceward key create --owner ops --role operator --db {shown} [");
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert!(utf8(&refused.stderr).contains(&expected), "{refused:?}");
        let operator = ["key", "create", "--owner", "ops", "--role", "operator", "--db", url];
        printed_key(&run_onceward(&folder, &operator));
        printed_key(&run_onceward(&folder, &[&worker[..], &["--db", url]].concat()));
    }
    let server = start_server(&folder, &[], &[]);
    let body = json!({ "owner": "fleet", "roles": ["worker"] });
    let refused =
        server.call("POST", "/v1/keys", &[("content-type", "application/json")], Some(body.to_string().as_bytes()));
    refused.assert_problem(409, "operator_key_required");
    assert_eq!(server.get("/v1/records").status, 200, "the server is still open");
    let url = server.url();
    let refused = run_onceward(&folder, &[&worker[..], &["--server", &url]].concat());
    assert!(utf8(&refused.stderr).contains("onceward key create --owner ops --role operator"), "{refused:?}");
    server.stop();
}

#[test]
fn key_create_refuses_database_open_in_server() {
    let folder = create_test_folder("key-locked");
    let (_runtime, _engine) = database_with_notes(&folder);
    let refused =
        run_onceward(&folder, &["key", "create", "--db", "sqlite:onceward.db", "--owner", "o", "--role", "operator"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(utf8(&refused.stderr).contains("--server"), "{refused:?}");
}

/// The server prints that it is open. With the first key it requires one at once, and manages keys itself.
#[test]
fn first_key_makes_server_require_keys() {
    let folder = create_test_folder("key-served");
    let server = start_server(&folder, &[], &[]);
    let records = server.get("/v1/records");
    assert_eq!((records.status, &*records.text()), (200, r#"{"records":[],"next":null}"#));
    server.call("GET", "/v1/records", &[("host", "evil.example")], None).assert_problem(403, "foreign_host");
    server.call("GET", "/v1/records", &[("origin", "http://evil.example")], None).assert_problem(403, "foreign_origin");
    // Behind a proxy, every caller would look local.
    for (name, value) in [("x-forwarded-for", "203.0.113.7"), ("forwarded", "for=203.0.113.7"), ("via", "1.1 edge")] {
        server.call("GET", "/v1/records", &[(name, value)], None).assert_problem(403, "proxied_request");
    }
    let jobs = "/v1/lifecycles/execution.job/records";
    server.call("POST", jobs, &[("content-type", "text/plain")], Some(b"{}")).assert_problem(415, "json_required");
    // Without a flag and with the file in use, the command asks the server.
    let url = ["--server", &server.url()];
    let first = printed_key(&run_onceward(
        &folder,
        &[&["key", "create", "--owner", "ops", "--role", "operator"], &url[..]].concat(),
    ));
    assert_eq!(server.get("/v1/records").status, 401);
    let refused = run_onceward(&folder, &[&["key", "list"], &url[..]].concat());
    assert!(refused.status.code() == Some(1) && utf8(&refused.stderr).contains("unauthorized"), "{refused:?}");
    let listed = parse_json(&run_onceward(&folder, &[&["key", "list", "--json", "--key", &first], &url[..]].concat()));
    assert_eq!(listed["keys"][0]["id"], key_id(&first));
    let create = ["key", "create", "--owner", "ann", "--role", "producer", "--key", &first];
    let anns = printed_key(&run_onceward(&folder, &[&create[..], &url[..]].concat()));
    let made = server.call_as(&anns, "POST", jobs, &[], Some(b"{}"));
    assert_eq!((made.status, &made.json()["owner"]), (201, &"ann".into()), "{made:?}");
    let passed_on = server.call_as(&anns, "GET", "/v1/records", &[("x-forwarded-for", "203.0.113.7")], None);
    assert_eq!(passed_on.status, 200, "a proxied request with an API key is accepted");
    let get = |path: &str| server.call_as(&anns, "GET", path, &[], None);
    get("/v1/keys").assert_problem(403, "forbidden");
    let revoke = ["key", "revoke", &*anns, "--key", &first];
    let revoked = run_onceward(&folder, &[&revoke[..], &url[..]].concat());
    assert_eq!(
        (revoked.status.code(), &*utf8(&revoked.stderr)),
        (Some(0), ""),
        "no warning while an operator's API key is left"
    );
    assert_eq!(get("/v1/records").status, 401, "revocation takes effect at once");
    // Revoking the last operator's key succeeds with a warning, and the server keeps requiring keys.
    let revoked =
        run_onceward(&folder, &[&["key", "revoke", "--json", &key_id(&first), "--key", &first], &url[..]].concat());
    assert_eq!(parse_json(&revoked)["operators_left"], 0);
    assert!(utf8(&revoked.stderr).starts_with("warning: no operator's API key is left"), "{revoked:?}");
    assert_eq!(server.call_as(&first, "GET", "/v1/records", &[], None).status, 401);
    server.stop();
    let server = start_server(&folder, &[], &[]);
    assert_eq!(server.get("/v1/records").status, 401);
    server.stop();
}

#[test]
fn missing_key_or_role_error_says_what_to_do() {
    let folder = create_test_folder("key-hints");
    let db = ["--db", "sqlite:onceward.db"];
    let create = |more: &[&str]| run_onceward(&folder, &[&["key", "create"], &db[..], more].concat());
    let operator = printed_key(&create(&["--owner", "ops", "--role", "operator"]));
    let workers = create(&["--owner", "fleet", "--role", "worker", "--lifecycle", "execution.jb"]);
    let printed = utf8(&workers.stderr);
    assert!(
        printed.contains("the lifecycle `execution.jb` does not exist yet; did you mean `execution.job`?"),
        "{printed}"
    );
    let server = start_server(&folder, &[], &[]);
    let url = server.url();
    let url = ["--server", &url];
    let run = |more: &[&str]| run_onceward(&folder, &[more, &url[..]].concat());
    for verb in [&["new", "execution.job"][..], &["key", "list"], &["list", "execution.job"], &["lifecycle", "list"]] {
        let refused = run(verb);
        let printed = utf8(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{verb:?}: {printed}");
        assert!(printed.ends_with("no API key was sent: set ONCEWARD_KEY or use --key\n"), "{verb:?}: {printed}");
    }
    let wrong = run(&["new", "execution.job", "--key", "ow_1_2"]);
    assert!(!utf8(&wrong.stderr).contains("no API key was sent"), "{wrong:?}");
    let refused = run(&["new", "execution.job", "--key", &printed_key(&workers)]);
    let printed = utf8(&refused.stderr);
    assert!(printed.contains("it has only `worker`, which cannot create or change records"), "{printed}");
    let served =
        run(&["key", "create", "--owner", "w", "--role", "worker", "--lifecycle", "no.such", "--key", &operator]);
    assert!(utf8(&served.stderr).contains("the lifecycle `no.such` does not exist yet\n"), "{served:?}");
    let served =
        ["key", "create", "--owner", "w", "--role", "worker", "--lifecycle", "execution.job", "--key", &operator];
    assert!(!utf8(&run(&served).stderr).contains("warning"));
    let roles = ["key", "create", "--owner", "w", "--role", "readonly", "--role", "operator", "--key", &operator];
    let printed = utf8(&run(&roles).stderr);
    assert!(printed.contains("warning: no lifecycle defines the role `readonly` yet"), "{printed}");
    assert!(!printed.contains("`operator` yet"), "{printed}");
    let greeting = server.stop();
    assert!(greeting.contains("\n  export ONCEWARD_KEY=ow_…"), "{greeting}");
    // A role of a shipped lifecycle is known.
    assert!(!utf8(&create(&["--owner", "m", "--role", "moderator"]).stderr).contains("warning"));
    let printed = utf8(&create(&["--owner", "m", "--role", "readonly"]).stderr);
    assert!(printed.contains("defines the role `readonly` yet"), "{printed}");
}

/// The error says how to create a key. `--dev` refuses even with keys.
#[test]
fn server_off_loopback_requires_api_key() {
    let folder = create_test_folder("key-outside");
    let outside = ["serve", "--listen", "0.0.0.0:0"];
    // Neither without a database, which is not created, nor with one without API keys.
    for is_there in [false, true] {
        if is_there {
            start_server(&folder, &[], &[]).stop();
        }
        let refused = run_onceward(&folder, &outside);
        assert_eq!(refused.status.code(), Some(1));
        assert!(utf8(&refused.stderr).contains("onceward key create --db sqlite:onceward.db --owner"), "{refused:?}");
        assert_eq!(folder.join("onceward.db").exists(), is_there);
    }
    printed_key(&run_onceward(
        &folder,
        &["key", "create", "--db", "sqlite:onceward.db", "--owner", "ops", "--role", "operator"],
    ));
    let refused = run_onceward(&folder, &[&outside[..], &["--dev"]].concat());
    assert!(refused.status.code() != Some(0) && utf8(&refused.stderr).contains("--dev"), "{refused:?}");
}

/// DOC-15
#[test]
fn trace_log_contains_no_keys_or_payloads() {
    let folder = create_test_folder("key-secrets");
    let operator = printed_key(&run_onceward(
        &folder,
        &["key", "create", "--db", "sqlite:onceward.db", "--owner", "ops", "--role", "operator"],
    ));
    let talkative = [("ONCEWARD_LOG", "trace"), ("RUST_LOG", "trace")];
    let server = start_server(&folder, &[], &talkative);
    let url = ["--server", &server.url(), "--key", &operator];
    let anns = printed_key(&run_onceward(
        &folder,
        &[&["key", "create", "--owner", "ann", "--role", "producer", "--role", "worker"], &url[..]].concat(),
    ));
    let unknown = format!("ow_{}_{}", "ab".repeat(8), "cd".repeat(32));
    assert_eq!(server.call_as(&unknown, "GET", "/v1/records", &[], None).status, 401);
    assert_eq!(server.call_as(&anns, "GET", "/v1/records?key=x", &[], None).status, 422);
    let payload = json!({ "payload": { "word": "sesame-payload" } });
    let made = server.post_as(&anns, "/v1/lifecycles/execution.job/records", &payload);
    assert_eq!(made.status, 201, "{made:?}");
    let leased = server.lease_as(&anns, "execution.job", true);
    assert!(leased.to_string().contains("sesame-payload"), "{leased}");
    let done = json!({ "result": "sesame-result", "finish": true });
    assert_eq!(server.report_as(&anns, &leased, "commit", &[], done).status, 200);
    let log = server.stop();
    // The log has lines of the lowest levels, so the missing text proves something.
    for level in ["TRACE", "DEBUG"] {
        assert!(log.contains(&format!("\"level\":\"{level}\"")), "no {level} line: {log}");
    }
    assert!(log.contains("\"route\":\"/v1/executions/{id}/{report}\""), "{log}");
    for secret in [&operator, &anns, &unknown] {
        let secret = secret.rsplit('_').next().expect("secret");
        assert!(!log.contains(secret), "a secret is in the log");
    }
    for word in ["sesame-payload", "sesame-result"] {
        assert!(!log.contains(word), "a payload is in the log");
    }
}
