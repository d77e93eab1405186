//! What is left of records that were kept as long as they are kept.

use std::process::Command;

use onceward_testkit::served::{self, Db, Served};
use onceward_testkit::{Folder, http};
use serde_json::json;

use crate::server::BINARY;

/// The name of an upload, and the order of a grant, stand for one job and one purchase for ever. When that is gone the answer says
/// so: no second job is made of the name, and nothing is granted twice.
#[test]
fn a_name_whose_record_is_gone() {
    let folder = Folder::new();
    let url = Db::Sqlite.url(&folder);
    let served = Served::start(&mut served::command(BINARY, &url));
    let headers = [http::BYTES, ("client-request-id", "letter")];
    let grant = json!({ "user": "local", "amount": 5, "order": "first" });
    let made = served.call("POST", "/document/upload", &headers, Some(b"x")).json();
    let job = format!("/document/jobs/{}", made["jobId"].as_str().expect("an id"));
    assert_eq!(served.post(&format!("{job}/cancel"), &json!({})).json()["state"], "FAILED");
    assert_eq!(served.call("POST", "/document/upload", &headers, Some(b"x")).status, 200);
    assert_eq!(served.post("/image/credits/grants", &grant).status, 201);
    assert_eq!(served.post("/image/credits/grants", &grant).status, 200);
    served.stop();

    let pruned = Command::new(BINARY).args(["prune", "--older-than", "0d", "--db", &url]).output();
    let pruned = pruned.expect("the binary runs");
    assert!(pruned.status.success(), "{}", String::from_utf8_lossy(&pruned.stderr));

    let served = Served::start(&mut served::command(BINARY, &url));
    served.get(&job).is_problem(404, "not_found");
    for document in ["x", &"y".repeat(100_000)] {
        let again = served.call("POST", "/document/upload", &headers, Some(document.as_bytes()));
        again.is_problem(410, "gone");
        assert!(again.json()["state"].is_null() && again.json().get("record").is_none(), "{}", again.text());
    }
    served.post("/image/credits/grants", &grant).is_problem(410, "gone");
    assert_eq!(served.get("/image/credits").json()["balance"], 5);
    // A new name is new.
    let headers = [headers[0], ("client-request-id", "second letter")];
    assert_eq!(served.call("POST", "/document/upload", &headers, Some(b"x")).status, 201);
}
