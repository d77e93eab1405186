//! Tests the server with large payloads in a bucket of a real S3 server.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use onceward_testkit::s3::{S3Server, SECRET_ACCESS_KEY};
use onceward_testkit::server_process::{self, DatabaseKind, ServerProcess};
use onceward_testkit::{TempDir, http};
use serde_json::{Value as Json, json};

use crate::server::BINARY;

fn run_onceward(arguments: &[&str], variables: &[(String, String)]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(arguments).envs(variables.iter().cloned());
    command.stdin(Stdio::null()).output().expect("the binary runs")
}

/// Creates, leases and fetches a payload of 5 MB. Without the bucket, `verify` reports it missing, and the server
/// refuses it.
#[test]
fn large_payload_is_stored_in_bucket_and_verified() {
    let bucket = S3Server::start();
    let (url, folder) = bucket.new_bucket();
    let settings = bucket.env_vars();
    let database = DatabaseKind::Postgres.new_url(&TempDir::new());
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/parcel.toml");
    let mut command = server_process::serve_command(BINARY, &database);
    let server = ServerProcess::start(command.args(["--objects", &url, "--lifecycles", file]).envs(settings.clone()));
    let payload = json!("x".repeat(5 << 20));
    let create = |payload: &Json| server.post("/v1/lifecycles/desk.parcel/records", &json!({ "payload": payload }));
    let made = create(&payload);
    assert_eq!(made.status, 201, "{}", made.text());
    let id = made.json()["id"].clone();
    let stored: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path()).collect();
    assert_eq!(stored.len(), 1, "expected one object and no draft: {stored:?}");
    let leased = server.post("/v1/leases", &json!({ "lifecycles": ["desk.parcel"], "worker": "w" })).json();
    let leased = &leased["executions"][0];
    assert_eq!((&leased["record"]["id"], leased.get("payload")), (&id, None));
    assert_eq!(leased["record"]["payload"]["bytes"], json!((5 << 20) + 2));
    let fetched = server.get(&format!("/v1/records/{}/payload", id.as_str().unwrap()));
    let sent = payload.to_string();
    assert!(fetched.status == 200 && fetched.text() == sent);

    // The URL may come from an environment variable.
    let mut with_url = settings.clone();
    with_url.push(("ONCEWARD_OBJECTS".to_owned(), url.clone()));
    let run_verify = || run_onceward(&["verify", "--db", &database, "--contents", "--json"], &with_url);
    let output = run_verify();
    let report: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(output.status.success() && report["objects"] == 1, "{report}");
    let unnamed = run_onceward(&["verify", "--db", &database], &[]);
    let text = String::from_utf8_lossy(&unnamed.stdout);
    assert!(unnamed.status.code() == Some(1) && text.contains("1 payload is in object storage"), "{text}");
    let object = std::fs::read_dir(&stored[0]).unwrap().next().unwrap().unwrap().path();
    // Other bytes of the same length must not be served as the payload.
    std::fs::write(&object, "y".repeat((5 << 20) + 2)).unwrap();
    bucket.invalidate_cache(&url);
    let path = format!("/v1/records/{}/payload", id.as_str().unwrap());
    let (harmed, is_whole) = server.get_partial("", &path);
    assert!(harmed.status == 200 && !is_whole, "{} bytes", harmed.body.len());
    std::fs::write(&object, "other bytes").unwrap();
    bucket.invalidate_cache(&url);
    let seen = run_verify();
    assert_eq!(seen.status.code(), Some(1), "{}", String::from_utf8_lossy(&seen.stdout));
    let pruned = run_onceward(&["prune", "--db", &database, "--objects", &url], &settings);
    assert!(pruned.status.success(), "{}", String::from_utf8_lossy(&pruned.stderr));
    assert!(object.is_file(), "record exists");

    bucket.kill();
    let other = json!("y".repeat(1 << 20));
    create(&other).assert_problem(503, "object_storage_unavailable");
    let listed = server.get("/v1/records?lifecycle=desk.parcel").json();
    assert_eq!(listed["records"].as_array().map(Vec::len), Some(1), "{listed}");
    bucket.restart();
    assert_eq!(create(&other).status, 201);
}

#[test]
fn verify_and_doctor_report_missing_objects_folder() {
    let folder = TempDir::new();
    let database = DatabaseKind::Sqlite.new_url(&folder);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/parcel.toml");
    let mut command = server_process::serve_command(BINARY, &database);
    let server = ServerProcess::start(command.args(["--lifecycles", file]));
    let payload = json!({ "payload": "x".repeat(1 << 20) });
    assert_eq!(server.post("/v1/lifecycles/desk.parcel/records", &payload).status, 201);
    server.stop();
    let run = |verb| run_onceward(&[verb, "--db", &database], &[]);
    assert!(run("verify").status.success() && run("doctor").status.success());
    std::fs::remove_dir_all(format!("{}.objects", database.strip_prefix("sqlite:").unwrap())).expect("the folder");
    for (verb, expected) in [("verify", "nor in the object storage"), ("doctor", "objects are missing: 1 of the 1")] {
        let output = run(verb);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.code() == Some(1) && text.contains(expected), "{verb}: {text}");
    }
}

/// Lists all files of a bucket, including drafts and parts of uploads.
fn list_objects(folder: &Path) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}

/// A document is uploaded in parts, and a picture is stored under its name. An upload that breaks off after its first
/// part leaves no data.
#[test]
fn documents_and_pictures_are_stored_in_bucket() {
    let bucket = S3Server::start();
    let (url, folder) = bucket.new_bucket();
    let data = TempDir::new();
    let mut command = server_process::serve_command(BINARY, &DatabaseKind::Sqlite.new_url(&data));
    let server = ServerProcess::start(command.args(["--objects", &url]).envs(bucket.env_vars())).with_temp_dir(data);
    // Three parts of 5 MB.
    let document = "0123456789abcdef".repeat(12 << 16);
    let length = document.len().to_string();
    let head = [http::BINARY_CONTENT_TYPE, ("client-request-id", "one"), ("content-length", &*length)];
    let mut broken = server.begin_request_as("", "POST", "/document/upload", &head);
    broken.write_all(&document.as_bytes()[..7 << 20]).expect("read");
    let started_at = Instant::now();
    let poll_until = |is_so: &dyn Fn(&[PathBuf]) -> bool| {
        while !is_so(&list_objects(&folder)) {
            assert!(started_at.elapsed() < http::TEST_TIMEOUT, "{:?}", list_objects(&folder));
            assert_eq!(server.get("/livez").status, 200);
        }
    };
    // The bucket contains the started upload.
    poll_until(&|files| !files.is_empty());
    drop(broken);
    poll_until(&<[PathBuf]>::is_empty);
    assert_eq!(server.get("/v1/records?lifecycle=document.job").json()["records"], json!([]));
    let headers = [http::BINARY_CONTENT_TYPE, ("client-request-id", "one")];
    let uploaded = server.call("POST", "/document/upload", &headers, Some(document.as_bytes()));
    assert_eq!(uploaded.status, 201, "{}", uploaded.text());
    let job = uploaded.json()["jobId"].as_str().expect("id").to_owned();
    let payload = server.get(&format!("/v1/records/{job}/payload"));
    assert!(payload.status == 200 && payload.text() == document, "bytes are unchanged");
    assert_eq!(list_objects(&folder).len(), 1, "no other object: {:?}", list_objects(&folder));

    let grant = json!({ "user": "local", "amount": 5, "order": "first" });
    assert_eq!(server.post("/image/credits/grants", &grant).status, 201);
    let ordered = server.post("/image/jobs", &json!({ "prompt": "a boat at sea", "size": "256x256" }));
    let id = ordered.json()["id"].as_str().expect("id").to_owned();
    server.stream_log_as("", &format!("/v1/stream?after=0&record={id}")).states_until(&["completed"]);
    let url = server.get(&format!("/image/jobs/{id}")).json()["resultUrl"].as_str().expect("a picture").to_owned();
    let picture = server.get(&url);
    assert!(picture.status == 200 && picture.body.starts_with(b"\x89PNG"), "{}", picture.head);
    assert!(folder.join("named/originals").is_dir(), "in the bucket");
}

/// The error does not contain the secret, and no database is created.
#[test]
fn unusable_bucket_prevents_start_without_leaking_secret() {
    let bucket = S3Server::start();
    let (url, _) = bucket.new_bucket();
    let folder = TempDir::new();
    let database = DatabaseKind::Sqlite.new_url(&folder);
    let start_error = |url: &str, changed: &[(&str, &str)]| {
        let mut settings = bucket.env_vars();
        settings.extend(changed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let ended = run_onceward(&["serve", "--listen", "127.0.0.1:0", "--db", &database, "--objects", url], &settings);
        let printed = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success() && ended.stdout.is_empty(), "{printed}");
        assert!(
            !printed.contains(SECRET_ACCESS_KEY) && !printed.contains("hidden") && !folder.database_path().exists(),
            "{printed}"
        );
        printed
    };
    assert!(start_error(&url, &[("AWS_SECRET_ACCESS_KEY", "hidden")]).contains("check AWS_ACCESS_KEY_ID"));
    assert!(start_error("s3://no-such-bucket", &[]).contains("NoSuchBucket; create the bucket"));
    assert!(start_error("gs://bucket", &[]).contains("is not object storage"));
    bucket.kill();
    assert!(start_error(&url, &[]).contains("cannot be reached"));
}
