//! Documents read by the programs that people use, through the script that ships with the system. Each of its endings is tried in
//! `systems/document/tests/extract.rs`; here it works for a real server.

use std::path::{Path, PathBuf};

use onceward_testkit::served::{BOTH, Db};
use serde_json::{Value as Json, json};

use crate::house::House;

fn system() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems/document").canonicalize().expect("the system")
}

fn sample(name: &str) -> Vec<u8> {
    let path = system().join("samples").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The code of the last attempt at a job.
fn code(house: &House, id: &str) -> Json {
    let all = house.get(&house.alice, &format!("/v1/records/{id}/executions")).json();
    all["executions"].as_array().and_then(|all| all.last()).expect("an attempt")["aborted"]["code"].clone()
}

/// DOC-3, DOC-4, DOC-11: a text PDF and a scan become text; what is truncated, encrypted or no document ends with its code, in words
/// that hold nothing of the document.
#[test]
fn documents_are_read_by_real_programs() {
    let letter = sample("letter.pdf");
    for db in BOTH {
        let house = House::open(db);
        let good = [("letter.pdf", "The parcel weighs 42 kilograms."), ("scan.pdf", "keeper of the lighthouse")];
        let good: Vec<_> = good.map(|(name, words)| (house.submitted(name, &sample(name)), words)).into();
        let bad = [
            ("truncated", letter[..letter.len() / 2].to_vec(), "CORRUPT_DATA"),
            ("encrypted", sample("sealed.pdf"), "UNSUPPORTED_FORMAT"),
            ("no document", b"MARK my words: I am no PDF".to_vec(), "UNSUPPORTED_FORMAT"),
        ];
        let bad: Vec<_> = bad.map(|(name, bytes, code)| (house.submitted(name, &bytes), code)).into();
        let script = system().join("worker/extract.sh");
        let options = ["--until-idle", "--result", "text"];
        let worked = house.work(&options, &[&script.to_string_lossy()]).output().expect("the binary runs");
        let said = String::from_utf8_lossy(&worked.stderr);
        assert!(worked.status.success(), "{said}");
        for (id, words) in &good {
            assert_eq!(house.job(id)["state"], "SUCCEEDED", "{}\n{said}", house.job(id));
            let text = house.get(&house.alice, &format!("/document/jobs/{id}/result"));
            assert_eq!(text.header("content-type"), Some("text/plain; charset=utf-8"));
            assert!(text.text().contains(words), "{}", text.text());
        }
        for (id, expected) in &bad {
            let job = house.job(id);
            assert_eq!((&job["state"], &job["errorType"]), (&json!("FAILED"), &json!("TERMINAL")), "{job}");
            assert_eq!((code(&house, id), &job["retryCount"]), (json!(expected), &json!(0)), "{job}");
            assert!(!job["lastError"].as_str().expect("words").contains("MARK"), "{job}");
        }
        assert!(!said.contains("MARK"), "{said}");
    }
}

/// DOC-17: where its programs are missing the script says so, and the worker gives the job back and stops.
#[test]
fn a_worker_without_its_programs_stops() {
    let house = House::open(Db::Sqlite);
    let id = house.submitted("a", &sample("letter.pdf"));
    let script = system().join("worker/extract.sh");
    let mut work = house.work(&[], &[&script.to_string_lossy()]);
    let worked = work.env("PATH", house.objects()).output().expect("the binary runs");
    let said = String::from_utf8_lossy(&worked.stderr);
    assert_eq!(worked.status.code(), Some(1), "{said}");
    assert!(said.contains("is not installed"), "{said}");
    // Given back, which costs a retry; nothing is wrong with it.
    let job = house.job(&id);
    assert_eq!((&job["retryCount"], &job["errorType"]), (&json!(1), &json!("RETRYABLE")), "{job}");
}
