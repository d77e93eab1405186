//! Tests the server's retention policy.

use std::process::{Output, Stdio};

use onceward_testkit::TempDir;
use onceward_testkit::http::BINARY_CONTENT_TYPE;
use onceward_testkit::server_process::{self, ALL_DATABASES, DatabaseKind, ServerProcess};
use serde_json::{Value as Json, json};

use crate::server::BINARY;

/// Creates an ended document job and returns its path.
fn create_ended_document_job(server: &ServerProcess, name: &str) -> String {
    let headers = [BINARY_CONTENT_TYPE, ("client-request-id", name)];
    let made = server.call("POST", "/document/upload", &headers, Some(b"x")).expect_ok();
    let job = format!("/document/jobs/{}", made["jobId"].as_str().expect("id"));
    assert_eq!(server.post(&format!("{job}/cancel"), &json!({})).expect_ok()["state"], "FAILED");
    job
}

/// Creates a withdrawn order and returns its path.
fn create_withdrawn_order(server: &ServerProcess) -> String {
    let grant = json!({ "user": "local", "amount": 5, "order": "first" });
    server.post("/image/credits/grants", &grant).expect_ok();
    let ordered = server.post("/image/jobs", &json!({ "prompt": "a cat" })).expect_ok();
    let job = format!("/image/jobs/{}", ordered["id"].as_str().expect("id"));
    assert_eq!(server.post(&format!("{job}/withdraw"), &json!({})).expect_ok()["state"], "dead_letter");
    job
}

fn pruned_records(server: &ServerProcess, options: &Json) -> Json {
    server.post("/v1/prune", options).expect_ok()["records"].clone()
}

/// A lifecycle with a flag of its own is pruned only if it is named.
#[test]
fn manual_prune_follows_keep_flags() {
    for db in ALL_DATABASES {
        let folder = TempDir::new();
        let mut command = server_process::serve_command(BINARY, &db.new_url(&folder));
        command.arg("--objects").arg(folder.join("bucket")).args(["--image-provider", "none"]);
        command.args(["--keep", "0d", "--keep", "image.job=forever"]);
        let server = ServerProcess::start(command.env("ONCEWARD_KEEP", "1d,document.job=1d")).with_temp_dir(folder);
        let (document, order) = (create_ended_document_job(&server, "a"), create_withdrawn_order(&server));
        assert_eq!(pruned_records(&server, &json!({ "dry_run": true })), 2, "document.job and image.grant");
        assert_eq!(pruned_records(&server, &json!({})), 2);
        server.get(&document).assert_problem(404, "not_found");
        assert_eq!(server.get(&order).status, 200, "kept forever");
        assert_eq!(pruned_records(&server, &json!({ "older_than": "0s" })), 0, "the lifecycle has its own retention");
        let second = create_ended_document_job(&server, "b");
        assert_eq!(pruned_records(&server, &json!({ "only": ["image.job"] })), 0);
        assert_eq!(
            pruned_records(&server, &json!({ "older_than": "0s", "only": ["image.job"] })),
            1,
            "selected with --only"
        );
        server.get(&order).assert_problem(404, "not_found");
        assert_eq!(server.get(&second).status, 200, "not selected with --only");
    }
}

/// Without flag and variable the default is thirty days.
#[test]
fn keep_variable_sets_retention() {
    for (keep, expected_pruned) in
        [(Some("forever,document.job=0d"), 1), (Some("forever"), 0), (None, 0), (Some(""), 0)]
    {
        let folder = TempDir::new();
        let mut command = server_process::serve_command(BINARY, &DatabaseKind::Sqlite.new_url(&folder));
        let server = ServerProcess::start(command.envs(keep.map(|keep| ("ONCEWARD_KEEP", keep)))).with_temp_dir(folder);
        create_ended_document_job(&server, "a");
        assert_eq!(pruned_records(&server, &json!({})), expected_pruned, "{keep:?}");
        assert_eq!(
            pruned_records(&server, &json!({ "older_than": "0s", "only": ["document.job"] })),
            1 - expected_pruned,
            "{keep:?}"
        );
    }
}

#[test]
fn invalid_keep_flag_prevents_start() {
    let folder = TempDir::new();
    let start = |keep: &[&str]| -> Output {
        let mut command = server_process::serve_command(BINARY, &DatabaseKind::Sqlite.new_url(&folder));
        command.args(keep.iter().flat_map(|keep| ["--keep", keep])).env_remove("ONCEWARD_KEEP").stdin(Stdio::null());
        command.output().expect("the binary runs")
    };
    for (keep, expected_error) in [
        (&["soon"][..], "`soon` is not a duration"),
        (&["image.job=-1d"], "is not a duration"),
        (&["=1d"], "has no lifecycle before `=`"),
        (&["1d", "forever"], "was given twice for records"),
        (&["image.job=1d", "image.job=2d"], "was given twice for records of image.job"),
        (&["image.jobs=1d"], "there is no lifecycle `image.jobs`; known lifecycles: document.job"),
    ] {
        let ended = start(keep);
        let printed = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.code() == Some(2) && printed.contains(expected_error), "{keep:?}: {printed}");
    }
}

/// A server that starts with a changed file stores its `keep`, although the version is the same.
#[test]
fn keep_in_lifecycle_file_protects_existing_records() {
    for db in ALL_DATABASES {
        let folder = TempDir::new();
        let url = db.new_url(&folder);
        let file = folder.join("note.toml");
        let write = |keep: &str| {
            let text = format!(
                "language = 1\nlifecycle = \"desk.note\"\nabout = \"A note\"\n[states]\nopen = {{ rest = true }}\n\
                 torn = {{ final = true{keep} }}\n[[on.create]]\ngo = \"-> open\"\n[[on.tear]]\ngo = \"open -> torn\"\n"
            );
            std::fs::write(&file, text).expect("file");
        };
        let start = || {
            let mut command = server_process::serve_command(BINARY, &url);
            ServerProcess::start(command.arg("--no-systems").arg("--lifecycles").arg(&file))
        };
        write("");
        let server = start();
        let names: Vec<Json> = server.get("/v1/lifecycles").json()["lifecycles"]
            .as_array()
            .expect("lifecycles")
            .iter()
            .map(|lifecycle| lifecycle["name"].clone())
            .collect();
        assert_eq!(names, ["desk.note", "onceward.delivery"], "no shipped lifecycle is loaded");
        let note = server.post("/v1/lifecycles/desk.note/records", &json!({})).expect_ok();
        let id = note["id"].as_str().expect("id").to_owned();
        server.post(&format!("/v1/records/{id}/events/tear"), &json!({})).expect_ok();
        server.stop();
        let prune = || {
            let arguments = ["prune", "--older-than", "0d", "--db", &url];
            let done = std::process::Command::new(BINARY).args(arguments).output().expect("the binary runs");
            String::from_utf8_lossy(&done.stdout).into_owned()
        };
        write(", keep = true");
        start().stop();
        assert!(prune().starts_with("no records deleted\n"), "{}", prune());
        let verify =
            std::process::Command::new(BINARY).args(["verify", "--db", &url]).output().expect("the binary runs");
        assert!(verify.status.success(), "{verify:?}");
        write("");
        start().stop();
        assert!(prune().contains("deleted 1 record with 2 entries"), "{}", prune());
    }
}
