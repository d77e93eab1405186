//! What the server and the worker tell of documents.

use onceward_testkit::http::{BYTES, JSON};
use onceward_testkit::kept;
use onceward_testkit::served::{BOTH, Db};
use serde_json::json;

use crate::house::House;

/// DOC-15: neither the document nor its result stands in the server's log, its metrics or its errors, nor in the worker's log, at the lowest
/// level of all, nor in any table but their own; and they are there for who may have them.
#[test]
fn nothing_of_a_document_is_told() {
    for db in BOTH {
        let house = House::open(db);
        let mut said = String::new();
        let large = "MARK-large ".repeat(10_000);
        for (name, document) in [("MARK-small", "MARK-document"), ("MARK-large", &large)] {
            let id = house.submitted(name, document.as_bytes());
            said += &house.upload(&house.alice, name, document.as_bytes()).text();
            let options = ["--until-idle", "--result", "bytes", "--raw"];
            let worked = house.work(&options, &["cat"]).env("ONCEWARD_LOG", "trace").output().expect("the binary runs");
            assert!(worked.status.success(), "{worked:?}");
            said += &String::from_utf8_lossy(&worked.stderr);
            said += &String::from_utf8_lossy(&worked.stdout);
            said += &house.job(&id).to_string();
            // It is there, for its owner.
            let result = house.get(&house.alice, &format!("/document/jobs/{id}/result"));
            assert!(result.text() == document, "it comes back as it went in");
            said += &house.get(&house.bob, &format!("/document/jobs/{id}/result")).text();
            said += &house.post(&house.alice, &format!("/document/jobs/{id}/submit"), &json!({})).text();
        }
        // Refused, in several ways.
        let head = [BYTES, ("client-request-id", "MARK-name"), ("client-request-id", "MARK-name")];
        said += &house.send(&house.alice, &head, b"MARK-document").text();
        said += &house.send(&house.alice, &[JSON], b"MARK-document").text();
        said += &house.upload(&house.worker, "MARK-name", b"MARK-document").text();
        said += &house.get(&house.operator, "/metrics").text();
        let House { served, url, .. } = house;
        let written = served.stop();
        assert!(written.contains("/document/upload") && written.contains("engine drained"), "{written}");
        assert!(said.contains("works on document.job") && said.contains("onceward_executions_ended_total"), "{said}");
        for (what, text) in [("the server's log", &written), ("an answer, the metrics or the worker", &said)] {
            let found = text.find("MARK");
            assert!(found.is_none(), "{what} tells of it: {}", &text[found.unwrap_or(0).saturating_sub(300)..]);
        }
        if db == Db::Postgres {
            // Where the document and its result are kept, the one as it is and the other in base64; not in the log, nor with the record.
            assert_eq!(kept::tables_with(&url, "MARK-document"), ["contents"]);
            assert_eq!(kept::tables_with(&url, "TUFSSy1kb2N1bWVud"), ["effects"]);
        }
    }
}

/// DOC-15: whatever the bytes are, ciphertext too, they pass through untouched, there and back.
#[test]
fn ciphertext_passes_through_untouched() {
    for db in BOTH {
        let house = House::open(db);
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
        // What looks like something is not taken for it.
        documents.extend([&b"null"[..], b"\"text\"", b"12.50", b" { } \n", b"\n", b"\0"].map(<[u8]>::to_vec));
        let ids: Vec<String> = documents
            .iter()
            .enumerate()
            .map(|(number, document)| house.submitted(&number.to_string(), document))
            .collect();
        let options = ["--until-idle", "--concurrency", "2", "--result", "bytes", "--raw"];
        let worked = house.work(&options, &["cat"]).output().expect("the binary runs");
        assert!(worked.status.success(), "{worked:?}");
        for (id, document) in ids.iter().zip(&documents) {
            let result = house.get(&house.alice, &format!("/document/jobs/{id}/result"));
            assert!(
                result.status == 200 && result.body == *document,
                "{db:?}: {} bytes: {}",
                document.len(),
                result.status
            );
        }
    }
}
