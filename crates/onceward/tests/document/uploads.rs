//! Documents on their way in.

use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use onceward_testkit::http::{self, BYTES, JSON, PATIENCE};
use onceward_testkit::served::{BOTH, Db};
use serde_json::json;

use crate::house::House;

/// DOC-12: an upload makes a job that shows its metadata and nothing else; the same name of the same owner is the same job, whatever
/// has become of it and whatever bytes come the second time; another owner's is another.
#[test]
fn an_upload_makes_a_job_once() {
    for db in BOTH {
        let house = House::open(db);
        let small = b"\x00\xff not a document at all".to_vec();
        let large: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
        for (name, document) in [("small", &small), ("large \u{fc}", &large)] {
            let made = house.upload(&house.alice, name, document);
            assert_eq!(made.status, 201, "{}", made.text());
            let job = made.json();
            let mut names: Vec<&String> = job.as_object().expect("an object").keys().collect();
            names.sort();
            let all = "completedAt createdAt errorType jobId lastError maxRetries retryCount startedAt state";
            assert_eq!(names, all.split(' ').collect::<Vec<_>>());
            assert_eq!(
                (&job["state"], &job["retryCount"], &job["maxRetries"]),
                (&json!("CREATED"), &json!(0), &json!(3))
            );
            for none in ["startedAt", "completedAt", "lastError", "errorType"] {
                assert!(job[none].is_null(), "{none} in {job}");
            }
            let id = job["jobId"].as_str().expect("an id");
            let again = house.upload(&house.alice, name, document);
            assert_eq!((again.status, again.json()), (200, job.clone()));
            let other = house.upload(&house.alice, name, b"other bytes");
            assert_eq!((other.status, &other.json()["jobId"]), (200, &job["jobId"]));
            let kept = house.get(&house.alice, &format!("/v1/records/{id}/payload"));
            assert!(kept.body == *document, "the first bytes are the document");
            let bobs = house.upload(&house.bob, name, document);
            assert_eq!(bobs.status, 201);
            assert_ne!(bobs.json()["jobId"], job["jobId"]);
            assert_eq!(
                house.post(&house.alice, &format!("/document/jobs/{id}/cancel"), &json!({})).json()["state"],
                "FAILED"
            );
            let late = house.upload(&house.alice, name, document);
            assert_eq!(
                (late.status, &late.json()["state"], &late.json()["jobId"]),
                (200, &json!("FAILED"), &job["jobId"])
            );
        }
    }
}

/// What comes under a name that came before is written nowhere: there is no room for it here, and it does not matter. Who asks first is told
/// without sending it. It must be a document all the same.
#[test]
fn what_comes_again_is_written_nowhere() {
    for db in BOTH {
        let house = House::open(db);
        let large = vec![7; 3_000_000];
        let made = house.upload(&house.alice, "a", &large);
        assert_eq!(made.status, 201, "{}", made.text());
        std::fs::remove_dir_all(house.objects().join("drafts")).expect("drafts are written there");
        std::fs::write(house.objects().join("drafts"), "in the way").expect("a file");
        house.upload(&house.alice, "b", &large).is_problem(503, "objects_unavailable");
        let again = house.upload(&house.alice, "a", &large);
        assert_eq!((again.status, again.json()), (200, made.json()));
        let head = [BYTES, ("client-request-id", "a"), ("content-length", "3000000"), ("expect", "100-continue")];
        let told = http::answer(&house.served.begin_as(&house.alice, "POST", "/document/upload", &head));
        assert_eq!((told.status, told.json()), (200, made.json()), "without a byte of it");
        house.upload(&house.alice, "a", b"").is_problem(422, "bad_input");
        // One after the other on one connection: nothing of the first is left in it.
        let mut stream = house.served.connect();
        let bearer = format!("Bearer {}", house.alice);
        for _ in 0..2 {
            let head = [BYTES, ("client-request-id", "a"), ("authorization", &*bearer)];
            http::write(&mut stream, "POST", "/document/upload", &head, Some(&large));
            assert_eq!(http::answer(&stream).status, 200);
        }
    }
}

/// What is no upload is told why, and makes nothing.
#[test]
fn what_is_no_upload_makes_nothing() {
    let house = House::open(Db::Sqlite);
    let send = |headers: &[(&str, &str)], body: &[u8]| house.send(&house.alice, headers, body);
    let name = ("client-request-id", "a");
    send(&[BYTES, name], b"").is_problem(422, "bad_input");
    send(&[BYTES], b"x").is_problem(422, "bad_input");
    send(&[BYTES, ("client-request-id", "")], b"x").is_problem(422, "bad_input");
    send(&[BYTES, ("client-request-id", &"n".repeat(201))], b"x").is_problem(422, "bad_input");
    send(&[BYTES, name, ("client-request-id", "b")], b"x").is_problem(422, "bad_input");
    send(&[JSON, name], b"{}").is_problem(415, "not_bytes");
    send(&[("content-type", "text/plain"), name], b"x").is_problem(415, "not_bytes");
    send(&[name], b"x").is_problem(415, "not_bytes");
    house.upload("", "a", b"x").is_problem(401, "unauthorized");
    // A worker works; documents are others'.
    house.upload(&house.worker, "a", b"x").is_problem(403, "forbidden");
    let listed = house.get(&house.operator, "/v1/records?lifecycle=document.job").json();
    assert_eq!(listed["records"], json!([]));
    assert_eq!(send(&[BYTES, ("client-request-id", &"n".repeat(200))], b"x").status, 201);
}

/// A document that is said to be too large is turned away before it comes, one that is not said to be as soon as it is.
#[test]
fn what_is_too_large_is_turned_away() {
    let most = 100 * 1024 * 1024_u64;
    let house = House::open(Db::Sqlite);
    let head = [BYTES, ("client-request-id", "a"), ("content-length", &*(most + 1).to_string())];
    let told = http::answer(&house.served.begin_as(&house.alice, "POST", "/document/upload", &head));
    told.is_problem(413, "too_large");
    assert_eq!(told.json()["most"], most);
    // Without a place for large payloads, documents go into the database as a whole: only smaller ones.
    let house = House::without_objects();
    let bound = 16 * 1024 * 1024_usize;
    let head = [BYTES, ("client-request-id", "a"), ("content-length", &*(bound + 1).to_string())];
    let told = http::answer(&house.served.begin_as(&house.alice, "POST", "/document/upload", &head));
    told.is_problem(413, "no_objects");
    assert_eq!(told.json()["most"], bound);
    let document: Vec<u8> = (0..3_000_000_u32).map(|at| at.to_le_bytes()[0] ^ 0x5a).collect();
    let made = house.upload(&house.alice, "b", &document);
    assert_eq!(made.status, 201, "{}", made.text());
    let id = made.json()["jobId"].as_str().expect("an id").to_owned();
    assert!(house.get(&house.alice, &format!("/v1/records/{id}/payload")).body == document);
}

fn drafts(objects: &Path) -> usize {
    std::fs::read_dir(objects.join("drafts")).map_or(0, Iterator::count)
}

/// Who goes away in the middle leaves neither a job nor bytes.
#[test]
fn an_upload_that_breaks_off_leaves_nothing() {
    for db in BOTH {
        let house = House::open(db);
        let head = [BYTES, ("client-request-id", "a"), ("content-length", "10000000")];
        let mut stream = house.served.begin_as(&house.alice, "POST", "/document/upload", &head);
        stream.write_all(&vec![7; 5_000_000]).expect("it reads");
        let began = Instant::now();
        let wait = |until: usize| {
            while drafts(&house.objects()) != until {
                assert!(began.elapsed() < PATIENCE, "{:?}: {} drafts, not {until}", db, drafts(&house.objects()));
                assert_eq!(house.get("", "/livez").status, 200);
            }
        };
        // It is written as it comes.
        wait(1);
        drop(stream);
        wait(0);
        let folders: Vec<_> = std::fs::read_dir(house.objects()).expect("a folder").flatten().collect();
        assert_eq!(folders.len(), 1, "only where drafts are written: {folders:?}");
        let listed = house.get(&house.operator, "/v1/records?lifecycle=document.job").json();
        assert_eq!(listed["records"], json!([]));
        // The name is free.
        assert_eq!(house.upload(&house.alice, "a", b"whole").status, 201);
    }
}
