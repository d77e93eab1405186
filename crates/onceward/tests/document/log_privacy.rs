//! Tests that logs, metrics and errors contain no document data.

use onceward_testkit::http::{BINARY_CONTENT_TYPE, JSON_CONTENT_TYPE};
use onceward_testkit::server_process::{ALL_DATABASES, DatabaseKind};
use onceward_testkit::stored_text;
use serde_json::json;

use crate::support::DocumentServer;

/// DOC-15: covers the server's log at trace level, its metrics and errors, the worker's log, and all tables except
/// those of payloads and results.
#[test]
fn logs_and_errors_contain_no_document_bytes() {
    for db in ALL_DATABASES {
        let server = DocumentServer::open(db);
        let mut output = String::new();
        let large = "MARK-large ".repeat(10_000);
        for (name, document) in [("MARK-small", "MARK-document"), ("MARK-large", &large)] {
            let id = server.submit_document(name, document.as_bytes());
            output += &server.upload(&server.alice, name, document.as_bytes()).text();
            let options = ["--until-idle", "--result", "bytes", "--raw"];
            let worked =
                server.work_command(&options, &["cat"]).env("ONCEWARD_LOG", "trace").output().expect("the binary runs");
            assert!(worked.status.success(), "{worked:?}");
            output += &String::from_utf8_lossy(&worked.stderr);
            output += &String::from_utf8_lossy(&worked.stdout);
            output += &server.job(&id).to_string();
            // The owner can read the result.
            let result = server.get(&server.alice, &format!("/document/jobs/{id}/result"));
            assert!(result.text() == document, "the document is returned unchanged");
            output += &server.get(&server.bob, &format!("/document/jobs/{id}/result")).text();
            output += &server.post(&server.alice, &format!("/document/jobs/{id}/submit"), &json!({})).text();
        }
        // Several kinds of refusals.
        let head = [BINARY_CONTENT_TYPE, ("client-request-id", "MARK-name"), ("client-request-id", "MARK-name")];
        output += &server.send(&server.alice, &head, b"MARK-document").text();
        output += &server.send(&server.alice, &[JSON_CONTENT_TYPE], b"MARK-document").text();
        output += &server.upload(&server.worker, "MARK-name", b"MARK-document").text();
        output += &server.get(&server.operator, "/metrics").text();
        let DocumentServer { process: served, url, .. } = server;
        let server_log = served.stop();
        assert!(server_log.contains("/document/upload") && server_log.contains("engine drained"), "{server_log}");
        assert!(output.contains("worker started") && output.contains("onceward_executions_ended_total"), "{output}");
        for (what, text) in [("the server's log", &server_log), ("a response, the metrics or the worker", &output)] {
            let found = text.find("MARK");
            assert!(
                found.is_none(),
                "{what} contains document bytes: {}",
                &text[found.unwrap_or(0).saturating_sub(300)..]
            );
        }
        if db == DatabaseKind::Postgres {
            // The document is stored as it is and the result as base64, but neither in the log nor in the record.
            assert_eq!(stored_text::tables_containing(&url, "MARK-document"), ["contents"]);
            assert_eq!(stored_text::tables_containing(&url, "TUFSSy1kb2N1bWVud"), ["effects"]);
        }
    }
}

/// DOC-15: ciphertext included.
#[test]
fn arbitrary_bytes_round_trip_through_worker() {
    for db in ALL_DATABASES {
        let server = DocumentServer::open(db);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |length: usize| -> Vec<u8> {
            let mut bytes = vec![0; length];
            for byte in &mut bytes {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *byte = state.to_le_bytes()[3];
            }
            bytes
        };
        let mut documents = vec![random(1), random(1_000), random(65_536), random(65_537), random(700_000)];
        // Bytes that look like JSON are not interpreted.
        documents.extend([&b"null"[..], b"\"text\"", b"12.50", b" { } \n", b"\n", b"\0"].map(<[u8]>::to_vec));
        let ids: Vec<String> = documents
            .iter()
            .enumerate()
            .map(|(number, document)| server.submit_document(&number.to_string(), document))
            .collect();
        let options = ["--until-idle", "--concurrency", "2", "--result", "bytes", "--raw"];
        let worked = server.work_command(&options, &["cat"]).output().expect("the binary runs");
        assert!(worked.status.success(), "{worked:?}");
        for (id, document) in ids.iter().zip(&documents) {
            let result = server.get(&server.alice, &format!("/document/jobs/{id}/result"));
            assert!(
                result.status == 200 && result.body == *document,
                "{db:?}: {} bytes: {}",
                document.len(),
                result.status
            );
        }
    }
}
