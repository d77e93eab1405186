//! The whole program with a bucket for large payloads, on a real server that speaks S3.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use onceward_testkit::s3::{SECRET, Server};
use onceward_testkit::served::{self, Db, Served};
use onceward_testkit::{Folder, http};
use serde_json::{Value as Json, json};

use crate::server::BINARY;

fn onceward(arguments: &[&str], variables: &[(String, String)]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(arguments).envs(variables.iter().cloned());
    command.stdin(Stdio::null()).output().expect("the binary runs")
}

/// A payload of 5 MB: made, leased, fetched; looked at by `verify`; missed by it, and refused, when the bucket is gone.
#[test]
fn a_bucket_for_large_payloads() {
    let bucket = Server::start();
    let (url, folder) = bucket.bucket();
    let settings = bucket.settings();
    let database = Db::Postgres.url(&Folder::new());
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/parcel.toml");
    let mut command = served::command(BINARY, &database);
    let served = Served::start(command.args(["--objects", &url, "--lifecycles", file]).envs(settings.clone()));
    let payload = json!("x".repeat(5 << 20));
    let create = |payload: &Json| served.post("/v1/lifecycles/desk.parcel/records", &json!({ "payload": payload }));
    let made = create(&payload);
    assert_eq!(made.status, 201, "{}", made.text());
    let id = made.json()["id"].clone();
    let kept: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path()).collect();
    assert_eq!(kept.len(), 1, "one object, and no draft: {kept:?}");
    let leased = served.post("/v1/leases", &json!({ "lifecycles": ["desk.parcel"], "worker": "w" })).json();
    let leased = &leased["executions"][0];
    assert_eq!((&leased["record"]["id"], leased.get("payload")), (&id, None));
    assert_eq!(leased["record"]["payload"]["bytes"], json!((5 << 20) + 2));
    let fetched = served.get(&format!("/v1/records/{}/payload", id.as_str().unwrap()));
    let sent = payload.to_string();
    assert!(fetched.status == 200 && fetched.text() == sent);

    // The place may stand in a variable, too.
    let mut named = settings.clone();
    named.push(("ONCEWARD_OBJECTS".to_owned(), url.clone()));
    let look = || onceward(&["verify", "--db", &database, "--contents", "--json"], &named);
    let seen = look();
    let report: Json = serde_json::from_slice(&seen.stdout).expect("JSON");
    assert!(seen.status.success() && report["objects"] == 1, "{report}");
    let object = std::fs::read_dir(&kept[0]).unwrap().next().unwrap().unwrap().path();
    // Other bytes of the same length: nobody is to take them for the payload.
    std::fs::write(&object, "y".repeat((5 << 20) + 2)).unwrap();
    bucket.forget(&url);
    let path = format!("/v1/records/{}/payload", id.as_str().unwrap());
    let (harmed, is_whole) = served.get_as_far_as_it_comes("", &path);
    assert!(harmed.status == 200 && !is_whole, "{} bytes", harmed.body.len());
    std::fs::write(&object, "other bytes").unwrap();
    bucket.forget(&url);
    let seen = look();
    assert_eq!(seen.status.code(), Some(1), "{}", String::from_utf8_lossy(&seen.stdout));
    let pruned = onceward(&["prune", "--db", &database, "--objects", &url], &settings);
    assert!(pruned.status.success(), "{}", String::from_utf8_lossy(&pruned.stderr));
    assert!(object.is_file(), "its record is there");

    bucket.kill();
    let other = json!("y".repeat(1 << 20));
    create(&other).is_problem(503, "objects_unavailable");
    let listed = served.get("/v1/records?lifecycle=desk.parcel").json();
    assert_eq!(listed["records"].as_array().map(Vec::len), Some(1), "{listed}");
    bucket.start_again();
    assert_eq!(create(&other).status, 201);
}

/// Whatever lies in a bucket, drafts and parts of uploads too.
fn objects(folder: &Path) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}

/// What systems keep goes to the same bucket: a document as it is uploaded, in several parts, and a picture under its name. A document that breaks
/// off after its first part leaves nothing.
#[test]
fn a_bucket_for_documents_and_pictures() {
    let bucket = Server::start();
    let (url, folder) = bucket.bucket();
    let data = Folder::new();
    let mut command = served::command(BINARY, &Db::Sqlite.url(&data));
    let served = Served::start(command.args(["--objects", &url]).envs(bucket.settings())).keeping(data);
    // Three parts of 5 MB.
    let document = "0123456789abcdef".repeat(12 << 16);
    let length = document.len().to_string();
    let head = [http::BYTES, ("client-request-id", "one"), ("content-length", &*length)];
    let mut broken = served.begin_as("", "POST", "/document/upload", &head);
    broken.write_all(&document.as_bytes()[..7 << 20]).expect("it reads");
    let began = Instant::now();
    let until = |is_so: &dyn Fn(&[PathBuf]) -> bool| {
        while !is_so(&objects(&folder)) {
            assert!(began.elapsed() < http::PATIENCE, "{:?}", objects(&folder));
            assert_eq!(served.get("/livez").status, 200);
        }
    };
    // That an upload has begun is noted there.
    until(&|files| !files.is_empty());
    drop(broken);
    until(&<[PathBuf]>::is_empty);
    assert_eq!(served.get("/v1/records?lifecycle=document.job").json()["records"], json!([]));
    let headers = [http::BYTES, ("client-request-id", "one")];
    let uploaded = served.call("POST", "/document/upload", &headers, Some(document.as_bytes()));
    assert_eq!(uploaded.status, 201, "{}", uploaded.text());
    let job = uploaded.json()["jobId"].as_str().expect("an id").to_owned();
    let kept = served.get(&format!("/v1/records/{job}/payload"));
    assert!(kept.status == 200 && kept.text() == document, "byte for byte");
    assert_eq!(objects(&folder).len(), 1, "and nothing else: {:?}", objects(&folder));

    let grant = json!({ "user": "local", "amount": 5, "order": "first" });
    assert_eq!(served.post("/image/credits/grants", &grant).status, 201);
    let ordered = served.post("/image/jobs", &json!({ "prompt": "a boat at sea", "size": "256x256" }));
    let id = ordered.json()["id"].as_str().expect("an id").to_owned();
    served.follow_as("", &format!("/v1/stream?after=0&record={id}")).states(&["completed"]);
    let url = served.get(&format!("/image/jobs/{id}")).json()["resultUrl"].as_str().expect("a picture").to_owned();
    let picture = served.get(&url);
    assert!(picture.status == 200 && picture.body.starts_with(b"\x89PNG"), "{}", picture.head);
    assert!(folder.join("named/originals").is_dir(), "in the bucket");
}

/// It does not start, and says why: without the secret, and before it makes a database.
#[test]
fn a_bucket_that_does_not_let_one_in() {
    let bucket = Server::start();
    let (url, _) = bucket.bucket();
    let folder = Folder::new();
    let database = Db::Sqlite.url(&folder);
    let tried = |url: &str, changed: &[(&str, &str)]| {
        let mut settings = bucket.settings();
        settings.extend(changed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let ended = onceward(&["serve", "--listen", "127.0.0.1:0", "--db", &database, "--objects", url], &settings);
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success() && ended.stdout.is_empty(), "{said}");
        assert!(!said.contains(SECRET) && !said.contains("hidden") && !folder.file().exists(), "{said}");
        said
    };
    assert!(tried(&url, &[("AWS_SECRET_ACCESS_KEY", "hidden")]).contains("look at AWS_ACCESS_KEY_ID"));
    assert!(tried("s3://no-such-bucket", &[]).contains("NoSuchBucket; make the bucket first"));
    assert!(tried("gs://bucket", &[]).contains("is no place for objects"));
    bucket.kill();
    assert!(tried(&url, &[]).contains("cannot be reached"));
}
