//! Tests the shipped extraction script with a real server. `systems/document/tests/extract/` covers each of its exit
//! codes.

use std::path::{Path, PathBuf};

use onceward_testkit::server_process::{ALL_DATABASES, DatabaseKind};
use serde_json::{Value as Json, json};

use crate::support::DocumentServer;

fn system_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems/document").canonicalize().expect("the system")
}

fn sample(name: &str) -> Vec<u8> {
    let path = system_folder().join("samples").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn script() -> String {
    system_folder().join("worker/extract.sh").to_string_lossy().into_owned()
}

/// Returns the error code of the job's last attempt.
fn last_error_code(server: &DocumentServer, id: &str) -> Json {
    let all = server.get(&server.alice, &format!("/v1/records/{id}/executions")).json();
    all["executions"].as_array().and_then(|all| all.last()).expect("attempt")["aborted"]["code"].clone()
}

/// DOC-3, DOC-4, DOC-11: a truncated or encrypted file, or another format, fails with its code and a message without
/// document data.
#[test]
fn extract_script_reads_documents_or_fails_with_code() {
    let letter = sample("letter.pdf");
    for db in ALL_DATABASES {
        let server = DocumentServer::open(db);
        let good = [("letter.pdf", "The parcel weighs 42 kilograms."), ("scan.pdf", "keeper of the lighthouse")];
        let good: Vec<_> = good.map(|(name, words)| (server.submit_document(name, &sample(name)), words)).into();
        let bad = [
            ("truncated", letter[..letter.len() / 2].to_vec(), "CORRUPT_DATA"),
            ("encrypted", sample("sealed.pdf"), "UNSUPPORTED_FORMAT"),
            ("no document", b"MARK my words: I am no PDF".to_vec(), "UNSUPPORTED_FORMAT"),
        ];
        let bad: Vec<_> = bad.map(|(name, bytes, code)| (server.submit_document(name, &bytes), code)).into();
        let options = ["--until-idle", "--result", "text"];
        let worked = server.work_command(&options, &[&script()]).output().expect("the binary runs");
        let printed = String::from_utf8_lossy(&worked.stderr);
        assert!(worked.status.success(), "{printed}");
        for (id, words) in &good {
            assert_eq!(server.job(id)["state"], "SUCCEEDED", "{}\n{printed}", server.job(id));
            let text = server.get(&server.alice, &format!("/document/jobs/{id}/result"));
            assert_eq!(text.header("content-type"), Some("text/plain; charset=utf-8"));
            assert!(text.text().contains(words), "{}", text.text());
        }
        for (id, expected) in &bad {
            let job = server.job(id);
            assert_eq!((&job["state"], &job["errorType"]), (&json!("FAILED"), &json!("TERMINAL")), "{job}");
            assert_eq!((last_error_code(&server, id), &job["retryCount"]), (json!(expected), &json!(0)), "{job}");
            assert!(!job["lastError"].as_str().expect("words").contains("MARK"), "{job}");
        }
        assert!(!printed.contains("MARK"), "{printed}");
    }
}

/// DOC-17: the worker yields the job.
#[test]
fn worker_stops_when_programs_are_missing() {
    let server = DocumentServer::open(DatabaseKind::Sqlite);
    let id = server.submit_document("a", &sample("letter.pdf"));
    let mut work = server.work_command(&[], &[&script()]);
    let worked = work.env("PATH", server.objects()).output().expect("the binary runs");
    let printed = String::from_utf8_lossy(&worked.stderr);
    assert_eq!(worked.status.code(), Some(1), "{printed}");
    assert!(printed.contains("is not installed"), "{printed}");
    // A yield costs a retry, but is not a failure of the job.
    let job = server.job(&id);
    assert_eq!((&job["retryCount"], &job["errorType"]), (&json!(1), &json!("RETRYABLE")), "{job}");
}

/// DOC-10, DOC-11: a full temporary folder is retryable. An oversized picture is not, and is not decoded.
#[test]
fn full_disk_is_retryable_and_oversized_picture_terminal() {
    let server = DocumentServer::open(DatabaseKind::Sqlite);
    let mut bomb = sample("page.png");
    // The header declares 20,000 by 20,000 pixels.
    bomb[16..24].copy_from_slice(&[0, 0, 0x4e, 0x20, 0, 0, 0x4e, 0x20]);
    let (scan, bomb) = (server.submit_document("scan", &sample("scan.pdf")), server.submit_document("bomb", &bomb));
    // A file size limit of 60 KB: both documents fit, the rendered page does not.
    let limited = "trap '' XFSZ; ulimit -f 120; exec \"$0\"";
    let worked = server
        .work_command(&["--until-idle", "--result", "text"], &["sh", "-c", limited, &script()])
        .output()
        .expect("the binary runs");
    let printed = String::from_utf8_lossy(&worked.stderr);
    assert!(worked.status.success(), "{printed}");
    let (job, code_of) = (server.job(&scan), last_error_code(&server, &scan));
    assert_eq!((&job["errorType"], code_of), (&json!("RETRYABLE"), json!("SYSTEM_TRANSIENT")), "{job}\n{printed}");
    assert!(job["retryCount"].as_u64() >= Some(1), "{job}");
    let (job, code_of) = (server.job(&bomb), last_error_code(&server, &bomb));
    assert_eq!((&job["errorType"], code_of), (&json!("TERMINAL"), json!("LIMIT_EXCEEDED")), "{job}\n{printed}");
    assert_eq!((&job["state"], &job["retryCount"]), (&json!("FAILED"), &json!(0)), "{job}");
}
