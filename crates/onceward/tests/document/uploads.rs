//! Tests uploads.

use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use onceward_testkit::http::{self, BINARY_CONTENT_TYPE, JSON_CONTENT_TYPE, TEST_TIMEOUT};
use onceward_testkit::server_process::{ALL_DATABASES, DatabaseKind};
use serde_json::json;

use crate::support::DocumentServer;

/// DOC-12: regardless of the job's state and of the bytes of the second upload. Other owners get jobs of their own.
#[test]
fn repeated_upload_returns_first_job() {
    for db in ALL_DATABASES {
        let server = DocumentServer::open(db);
        let small = b"\x00\xff not a document at all".to_vec();
        let large: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        for (name, document) in [("small", &small), ("large \u{fc}", &large)] {
            let made = server.upload(&server.alice, name, document);
            assert_eq!(made.status, 201, "{}", made.text());
            let job = made.json();
            let mut names: Vec<&String> = job.as_object().expect("JSON object").keys().collect();
            names.sort();
            let all = "completedAt createdAt errorCode errorType jobId lastError maxRetries retryCount startedAt state";
            assert_eq!(names, all.split(' ').collect::<Vec<_>>());
            assert_eq!(
                (&job["state"], &job["retryCount"], &job["maxRetries"]),
                (&json!("CREATED"), &json!(0), &json!(3))
            );
            for none in ["startedAt", "completedAt", "lastError", "errorCode", "errorType"] {
                assert!(job[none].is_null(), "`{none}` in {job}");
            }
            let id = job["jobId"].as_str().expect("id");
            let again = server.upload(&server.alice, name, document);
            assert_eq!((again.status, again.json()), (200, job.clone()));
            let other = server.upload(&server.alice, name, b"other bytes");
            assert_eq!((other.status, &other.json()["jobId"]), (200, &job["jobId"]));
            let kept = server.get(&server.alice, &format!("/v1/records/{id}/payload"));
            assert!(kept.body == *document, "the first upload is the document");
            let bobs = server.upload(&server.bob, name, document);
            assert_eq!(bobs.status, 201);
            assert_ne!(bobs.json()["jobId"], job["jobId"]);
            assert_eq!(
                server.post(&server.alice, &format!("/document/jobs/{id}/cancel"), &json!({})).json()["state"],
                "FAILED"
            );
            let late = server.upload(&server.alice, name, document);
            assert_eq!(
                (late.status, &late.json()["state"], &late.json()["jobId"]),
                (200, &json!("FAILED"), &job["jobId"])
            );
        }
    }
}

/// A repeated name needs no disk space. With `Expect: 100-continue` the client need not send the body. An invalid
/// document is still refused.
#[test]
fn repeated_upload_writes_nothing() {
    for db in ALL_DATABASES {
        let server = DocumentServer::open(db);
        let large = vec![7; 3_000_000];
        let made = server.upload(&server.alice, "a", &large);
        assert_eq!(made.status, 201, "{}", made.text());
        std::fs::remove_dir_all(server.objects().join("drafts")).expect("drafts folder");
        std::fs::write(server.objects().join("drafts"), "file in place of the folder").expect("file");
        server.upload(&server.alice, "b", &large).assert_problem(503, "object_storage_unavailable");
        let again = server.upload(&server.alice, "a", &large);
        assert_eq!((again.status, again.json()), (200, made.json()));
        let head = [
            BINARY_CONTENT_TYPE,
            ("client-request-id", "a"),
            ("content-length", "3000000"),
            ("expect", "100-continue"),
        ];
        let response =
            http::read_response(&server.process.begin_request_as(&server.alice, "POST", "/document/upload", &head));
        assert_eq!((response.status, response.json()), (200, made.json()), "before the body is sent");
        server.upload(&server.alice, "a", b"").assert_problem(422, "invalid_input");
        // Two requests on one connection: the first leaves no bytes unread.
        let mut stream = server.process.connect();
        let bearer = format!("Bearer {}", server.alice);
        for _ in 0..2 {
            let head = [BINARY_CONTENT_TYPE, ("client-request-id", "a"), ("authorization", &*bearer)];
            http::write_request(&mut stream, "POST", "/document/upload", &head, Some(&large));
            assert_eq!(http::read_response(&stream).status, 200);
        }
    }
}

#[test]
fn invalid_upload_creates_no_job() {
    let server = DocumentServer::open(DatabaseKind::Sqlite);
    let send = |headers: &[(&str, &str)], body: &[u8]| server.send(&server.alice, headers, body);
    let name = ("client-request-id", "a");
    send(&[BINARY_CONTENT_TYPE, name], b"").assert_problem(422, "invalid_input");
    send(&[BINARY_CONTENT_TYPE], b"x").assert_problem(422, "invalid_input");
    send(&[BINARY_CONTENT_TYPE, ("client-request-id", "")], b"x").assert_problem(422, "invalid_input");
    let prefixed = ("x-client-request-id", "a");
    send(&[BINARY_CONTENT_TYPE, name, prefixed], b"x").assert_problem(422, "invalid_input");
    send(&[BINARY_CONTENT_TYPE, ("client-request-id", &"n".repeat(201))], b"x").assert_problem(422, "invalid_input");
    send(&[BINARY_CONTENT_TYPE, name, ("client-request-id", "b")], b"x").assert_problem(422, "invalid_input");
    send(&[JSON_CONTENT_TYPE, name], b"{}").assert_problem(415, "octet_stream_required");
    send(&[("content-type", "text/plain"), name], b"x").assert_problem(415, "octet_stream_required");
    send(&[name], b"x").assert_problem(415, "octet_stream_required");
    server.upload("", "a", b"x").assert_problem(401, "unauthorized");
    // A worker may not upload.
    server.upload(&server.worker, "a", b"x").assert_problem(403, "forbidden");
    let listed = server.get(&server.operator, "/v1/records?lifecycle=document.job").json();
    assert_eq!(listed["records"], json!([]));
    assert_eq!(send(&[BINARY_CONTENT_TYPE, ("client-request-id", &"n".repeat(200))], b"x").status, 201);
    assert_eq!(send(&[BINARY_CONTENT_TYPE, prefixed], b"x").status, 201);
    assert_eq!(send(&[BINARY_CONTENT_TYPE, name], b"x").status, 200, "the same id");
}

/// A declared size is refused before the body, an undeclared one once it exceeds the limit.
#[test]
fn oversized_upload_returns_413() {
    let max_bytes = 100 * 1024 * 1024_u64;
    let server = DocumentServer::open(DatabaseKind::Sqlite);
    let head = [BINARY_CONTENT_TYPE, ("client-request-id", "a"), ("content-length", &*(max_bytes + 1).to_string())];
    let response =
        http::read_response(&server.process.begin_request_as(&server.alice, "POST", "/document/upload", &head));
    response.assert_problem(413, "request_too_large");
    assert_eq!(response.json()["max_bytes"], max_bytes);
    // Without object storage, documents are stored whole in the database, with a smaller limit.
    let server = DocumentServer::without_objects();
    let max_bytes_without_objects = 16 * 1024 * 1024_usize;
    let head = [
        BINARY_CONTENT_TYPE,
        ("client-request-id", "a"),
        ("content-length", &*(max_bytes_without_objects + 1).to_string()),
    ];
    let response =
        http::read_response(&server.process.begin_request_as(&server.alice, "POST", "/document/upload", &head));
    response.assert_problem(413, "object_storage_not_configured");
    assert_eq!(response.json()["max_bytes"], max_bytes_without_objects);
    let document: Vec<u8> = (0..3_000_000_u32).map(|at| at.to_le_bytes()[0] ^ 0x5a).collect();
    let made = server.upload(&server.alice, "b", &document);
    assert_eq!(made.status, 201, "{}", made.text());
    let id = made.json()["jobId"].as_str().expect("id").to_owned();
    assert!(server.get(&server.alice, &format!("/v1/records/{id}/payload")).body == document);
}

fn count_drafts(objects: &Path) -> usize {
    std::fs::read_dir(objects.join("drafts")).map_or(0, Iterator::count)
}

#[test]
fn aborted_upload_leaves_no_job_or_draft() {
    for db in ALL_DATABASES {
        let server = DocumentServer::open(db);
        let head = [BINARY_CONTENT_TYPE, ("client-request-id", "a"), ("content-length", "10000000")];
        let mut stream = server.process.begin_request_as(&server.alice, "POST", "/document/upload", &head);
        stream.write_all(&vec![7; 5_000_000]).expect("read");
        let started_at = Instant::now();
        let wait_for_drafts = |until: usize| {
            while count_drafts(&server.objects()) != until {
                assert!(
                    started_at.elapsed() < TEST_TIMEOUT,
                    "{:?}: {} drafts, expected {until}",
                    db,
                    count_drafts(&server.objects())
                );
                assert_eq!(server.get("", "/livez").status, 200);
            }
        };
        // The draft grows while the upload runs.
        wait_for_drafts(1);
        drop(stream);
        wait_for_drafts(0);
        let folders: Vec<_> = std::fs::read_dir(server.objects()).expect("folder").flatten().collect();
        assert_eq!(folders.len(), 1, "only the drafts folder: {folders:?}");
        let listed = server.get(&server.operator, "/v1/records?lifecycle=document.job").json();
        assert_eq!(listed["records"], json!([]));
        // The name is still unused.
        assert_eq!(server.upload(&server.alice, "a", b"whole").status, 201);
    }
}
