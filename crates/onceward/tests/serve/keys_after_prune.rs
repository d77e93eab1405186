//! Tests unique keys of pruned records.

use std::process::Command;

use onceward_testkit::server_process::{self, DatabaseKind, ServerProcess};
use onceward_testkit::{TempDir, http};
use serde_json::json;

use crate::server::BINARY;

/// The name of an upload creates no second job, and the order of a grant grants no second time.
#[test]
fn unique_name_of_pruned_record_returns_410() {
    let folder = TempDir::new();
    let url = DatabaseKind::Sqlite.new_url(&folder);
    let server = ServerProcess::start(&mut server_process::serve_command(BINARY, &url));
    let headers = [http::BINARY_CONTENT_TYPE, ("client-request-id", "letter")];
    let grant = json!({ "user": "local", "amount": 5, "order": "first" });
    let made = server.call("POST", "/document/upload", &headers, Some(b"x")).json();
    let job = format!("/document/jobs/{}", made["jobId"].as_str().expect("id"));
    assert_eq!(server.post(&format!("{job}/cancel"), &json!({})).json()["state"], "FAILED");
    assert_eq!(server.call("POST", "/document/upload", &headers, Some(b"x")).status, 200);
    assert_eq!(server.post("/image/credits/grants", &grant).status, 201);
    assert_eq!(server.post("/image/credits/grants", &grant).status, 200);
    server.stop();

    let pruned = Command::new(BINARY).args(["prune", "--older-than", "0d", "--db", &url]).output();
    let pruned = pruned.expect("the binary runs");
    assert!(pruned.status.success(), "{}", String::from_utf8_lossy(&pruned.stderr));

    let server = ServerProcess::start(&mut server_process::serve_command(BINARY, &url));
    server.get(&job).assert_problem(404, "not_found");
    for document in ["x", &"y".repeat(100_000)] {
        let again = server.call("POST", "/document/upload", &headers, Some(document.as_bytes()));
        again.assert_problem(410, "gone");
        assert!(again.json()["state"].is_null() && again.json().get("record").is_none(), "{}", again.text());
    }
    server.post("/image/credits/grants", &grant).assert_problem(410, "gone");
    assert_eq!(server.get("/image/credits").json()["balance"], 5);
    // An unused name still works.
    let headers = [headers[0], ("client-request-id", "second letter")];
    assert_eq!(server.call("POST", "/document/upload", &headers, Some(b"x")).status, 201);
}
