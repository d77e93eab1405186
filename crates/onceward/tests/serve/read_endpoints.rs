//! Tests the endpoints for links, accounts, workers and large payloads.

use onceward_testkit::TempDir;
use onceward_testkit::server_process::{self, ALL_DATABASES, DatabaseKind, ServerProcess};
use serde_json::{Value as Json, json};

use crate::server::{BINARY, start_server};

/// Lifecycles of the store tests: one with a link, one with accounts.
const LIFECYCLE_FILES: [(&str, &str); 3] = [
    ("box.toml", include_str!("../../../store/tests/support/box.toml")),
    ("stub.toml", include_str!("../../../store/tests/support/stub.toml")),
    ("task.toml", include_str!("../../../store/tests/support/task.toml")),
];

fn serve_lifecycle_files(db: DatabaseKind) -> ServerProcess {
    let folder = TempDir::new();
    let files = folder.join("lifecycles");
    std::fs::create_dir(&files).unwrap();
    for (name, text) in LIFECYCLE_FILES {
        std::fs::write(files.join(name), text).unwrap();
    }
    let mut command = server_process::serve_command(BINARY, &db.new_url(&folder));
    ServerProcess::start(command.arg("--lifecycles").arg(files)).with_temp_dir(folder)
}

fn create_record(server: &ServerProcess, lifecycle: &str, fields: &Json) -> String {
    let made = server.post(&format!("/v1/lifecycles/{lifecycle}/records"), &json!({ "fields": fields }));
    assert_eq!(made.status, 201, "{}", made.text());
    made.json()["id"].as_str().unwrap().to_owned()
}

fn ids(page: &Json) -> Vec<String> {
    page.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn links_endpoint_pages_related_records() {
    for db in ALL_DATABASES {
        let server = serve_lifecycle_files(db);
        let first = create_record(&server, "suite.box", &json!({}));
        let second = create_record(&server, "suite.box", &json!({ "beside": first }));
        let tasks: Vec<String> =
            (0..3).map(|_| create_record(&server, "suite.task", &json!({ "box": second }))).collect();
        let shown = server.get(&format!("/v1/records/{second}/links")).json();
        assert_eq!(shown["refs"], json!({ "beside": [{ "id": first, "lifecycle": "suite.box", "state": "open" }] }));
        assert_eq!(
            (ids(&shown["links"]["tasks"]["records"]), &shown["links"]["tasks"]["next"]),
            (tasks.clone(), &Json::Null)
        );
        let page = server.get(&format!("/v1/records/{second}/links?name=tasks&limit=2")).json();
        let next = page["links"]["tasks"]["next"].as_str().unwrap().to_owned();
        let rest = server.get(&format!("/v1/records/{second}/links?name=tasks&limit=2&cursor={next}")).json();
        assert_eq!([ids(&page["links"]["tasks"]["records"]), ids(&rest["links"]["tasks"]["records"])].concat(), tasks);
        assert_eq!(rest["links"]["tasks"]["next"], Json::Null);
        let none = "00000000-0000-7000-8000-000000000000";
        server.get(&format!("/v1/records/{none}/links")).assert_problem(404, "not_found");
        for wrong in ["name=nothing", "cursor=1", "name=tasks&cursor=x", "limit=0", "other=1"] {
            server.get(&format!("/v1/records/{second}/links?{wrong}")).assert_problem(422, "invalid_input");
        }
    }
}

#[test]
fn account_entries_match_transfers() {
    for db in ALL_DATABASES {
        let server = serve_lifecycle_files(db);
        let id = create_record(&server, "suite.box", &json!({}));
        for (event, amount) in [("earn", 50), ("spend", 20), ("spend", 5)] {
            let body = json!({ "input": { "amount": amount } });
            assert_eq!(server.post(&format!("/v1/records/{id}/events/{event}"), &body).status, 200);
        }
        let coins = |page: &Json| -> Vec<Json> {
            let all = page["accounts"].as_array().unwrap().iter();
            all.filter(|one| one["asset"] == "coin")
                .map(|one| json!([one["id"], one["outside"], one["balance"]]))
                .collect()
        };
        let listed = server.get("/v1/accounts").json();
        let expected =
            [json!(["coin:mint", true, -50]), json!(["coin:purse:local", false, 25]), json!(["coin:shop", false, 25])];
        assert_eq!(coins(&listed), expected);
        let (mut paged, mut path) = (Vec::new(), "/v1/accounts?limit=1".to_owned());
        loop {
            let page = server.get(&path).json();
            paged.extend(coins(&page));
            let Some(next) = page["next"].as_str() else { break };
            path = format!("/v1/accounts?limit=1&cursor={}", next.replace(':', "%3A"));
        }
        assert_eq!(paged, expected);
        let statement = server.get("/v1/accounts/coin:purse%3Alocal/entries").json();
        let lines: Vec<Json> = statement["entries"].as_array().unwrap().clone();
        let short: Vec<Json> =
            lines.iter().map(|one| json!([one["event"], one["amount"], one["balance"], one["other"]])).collect();
        let (shop, mint) = (json!({ "account": "coin:shop" }), json!({ "account": "coin:mint" }));
        assert_eq!(
            short,
            [json!(["spend", -5, 25, shop]), json!(["spend", -20, 30, shop]), json!(["earn", 50, 50, mint])]
        );
        assert!(lines.iter().all(|one| one["record"] == json!(id) && one["at"].is_string() && one["seq"].is_u64()));
        assert_eq!((&statement["next"], &statement["carried_forward"]), (&Json::Null, &json!(0)));
        let page = server.get("/v1/accounts/coin:purse:local/entries?limit=2").json();
        assert_eq!(
            (page["entries"].as_array().unwrap(), &page["carried_forward"]),
            (&lines[..2].to_vec(), &Json::Null)
        );
        let next = page["next"].as_str().unwrap();
        let rest = server.get(&format!("/v1/accounts/coin:purse:local/entries?limit=2&cursor={next}")).json();
        assert_eq!(rest["entries"].as_array().unwrap(), &lines[2..].to_vec());
        server.get("/v1/accounts/coin:missing/entries").assert_problem(404, "not_found");
        server.get("/v1/accounts/nothing/entries").assert_problem(404, "not_found");
        server.get("/v1/accounts/coin:mint/entries?cursor=7").assert_problem(422, "invalid_input");
        server.get("/v1/accounts?cursor=7").assert_problem(422, "invalid_input");
    }
}

#[test]
fn workers_endpoint_shows_leasing_worker() {
    for db in ALL_DATABASES {
        let server = start_server(db);
        // The server's own delivery worker may be listed, too.
        let own = |shown: &Json| shown["workers"].as_array().unwrap().iter().find(|one| one["worker"] == "w").cloned();
        let before = server.get("/v1/workers").json();
        assert_eq!((own(&before), &before["complete"]), (None, &json!(true)));
        server.create_job(&json!(1));
        server.lease();
        let shown = server.get("/v1/workers").json();
        let worker = own(&shown).unwrap();
        assert_eq!(
            (&worker["worker"], &worker["owner"], &worker["lifecycles"], &worker["holding"]),
            (&json!("w"), &json!("local"), &json!(["execution.job"]), &json!(1))
        );
        assert!(worker["last_seen"].is_string(), "{shown}");
        server.get("/v1/workers?limit=0").assert_problem(422, "invalid_input");
    }
}

/// Payload sizes around the limit of a lease and around that of chunked responses.
#[test]
fn payload_over_64_kb_is_fetched_separately() {
    for db in ALL_DATABASES {
        let server = start_server(db);
        for length in [100, 64 << 10, (64 << 10) + 1, 1 << 20] {
            // JSON adds two quotes.
            let payload = json!("x".repeat(length - 2));
            let id = server.create_job(&payload);
            let leased = server.lease();
            assert_eq!(leased["record"]["id"], json!(id));
            assert_eq!(leased["record"]["payload"]["bytes"], json!(length), "{db:?}");
            assert_eq!(leased.get("payload").is_some(), length <= 64 << 10, "{db:?} {length}");
            let fetched = server.get(&format!("/v1/records/{id}/payload"));
            assert_eq!((fetched.status, fetched.header("content-length")), (200, Some(&*length.to_string())));
            let sent = payload.to_string();
            assert!(fetched.text() == sent, "{db:?} {length}");
        }
    }
}

#[test]
fn out_of_range_cursor_returns_empty_page_or_error() {
    for db in ALL_DATABASES {
        let server = start_server(db);
        let id = server.create_job(&json!(1));
        for far in ["9223372036854775807", "9223372036854775808", "9999999999999999999", "18446744073709551615"] {
            assert_eq!(
                server.get(&format!("/v1/records?cursor={far}")).expect_ok()["records"],
                json!([]),
                "{db:?} {far}"
            );
            for path in ["history", "executions", "links"] {
                let query = if path == "links" { "name=none&" } else { "" };
                let printed = server.get(&format!("/v1/records/{id}/{path}?{query}cursor={far}"));
                assert!(printed.status == 200 || printed.status == 422, "{db:?} {path} {far}: {}", printed.text());
            }
            // A `seq` of another log is a conflict.
            assert_eq!(server.get(&format!("/v1/stream?after={far}&wait_ms=0")).status, 409, "{db:?} {far}");
        }
    }
}

#[test]
fn accounts_and_workers_commands_print_tables() {
    let server = serve_lifecycle_files(DatabaseKind::Sqlite);
    let url = server.url();
    let run = |words: &[&str]| {
        let done =
            std::process::Command::new(BINARY).args(words).args(["--server", &url]).output().expect("the binary runs");
        (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned())
    };
    assert_eq!(run(&["accounts", "coin:none"]).0, Some(1));
    let id = create_record(&server, "suite.box", &json!({}));
    let body = json!({ "input": { "amount": 50 } });
    assert_eq!(server.post(&format!("/v1/records/{id}/events/earn"), &body).status, 200);
    let (_, accounts) = run(&["accounts"]);
    assert!(accounts.contains("coin:mint") && accounts.contains("-50") && accounts.contains("outside"), "{accounts}");
    let (_, statement) = run(&["accounts", "coin:purse:local"]);
    assert!(statement.contains("earn") && statement.contains(&id) && statement.contains("coin:mint"), "{statement}");
    let listed: Json = serde_json::from_str(&run(&["accounts", "--json"]).1).expect("JSON");
    assert!(listed.as_array().expect("accounts").iter().any(|one| one["id"] == "coin:purse:local"), "{listed}");
    server.create_job(&json!(1));
    server.lease();
    let (_, workers) = run(&["workers"]);
    assert!(
        workers.starts_with("WORKER") && workers.contains("\nw ") && workers.contains("execution.job"),
        "{workers}"
    );
    let listed: Json = serde_json::from_str(&run(&["workers", "--json"]).1).expect("JSON");
    assert!(listed["workers"].is_array(), "{listed}");
}
