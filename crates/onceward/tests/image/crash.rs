//! Kills the server while it receives a picture, and between storing and committing it. Afterwards there is one
//! picture, charged once.

use std::path::Path;
use std::time::Instant;

use onceward_testkit::fake_image_service::{FakeImageService, FakeResponse, RequestKind, TestGate};
use onceward_testkit::http::TEST_TIMEOUT;
use onceward_testkit::server_process::{ALL_DATABASES, DatabaseKind};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::ImageServer;

/// The moment is short, so some kills come too late.
const MAX_KILL_ATTEMPTS: usize = 20;

/// Asserts that the order completed with one picture and one charge.
fn assert_completed_once(server: &mut ImageServer, id: &str) {
    let job = server.wait_for_job("", id, "completed");
    let library = server.get("", "/image/assets");
    let assets: Vec<_> = library["assets"].as_array().unwrap().iter().filter(|asset| asset["job"] == id).collect();
    assert_eq!(assets.len(), 1, "exactly one picture: {library}");
    let picture = server.process().get(job["resultUrl"].as_str().unwrap());
    assert_eq!(picture.status, 200, "{}", picture.text());
    assert!(picture.body.starts_with(b"\x89PNG") && picture.body.ends_with(b"IEND\xae\x42\x60\x82"), "all of it");
    let own = stored_names(&server.originals()).into_iter().filter(|name| name.starts_with(id)).count();
    assert_eq!(own, 1, "objects of the killed attempt are deleted");
}

fn stored_names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.map_while(Result::ok).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn execution_count(server: &ImageServer, id: &str) -> usize {
    server.get("", &format!("/v1/records/{id}/executions"))["executions"].as_array().map_or(0, Vec::len)
}

/// The picture is in the response, or fetched from the URL in it. A restarted server, on PostgreSQL with its old name,
/// resumes the work at once and does not wait for the lease to expire.
#[test]
fn crash_while_receiving_picture_completes_order_once() {
    for (db, request_kind) in
        ALL_DATABASES.into_iter().flat_map(|db| [(db, RequestKind::Generation), (db, RequestKind::Download)])
    {
        let (service, halfway) = (FakeImageService::start(), TestGate::new());
        let mut server = ImageServer::open(db, &["--image-url", &service.url(), "--name", "studio"]);
        server.grant("local", 20);
        if request_kind == RequestKind::Download {
            service.respond_next(RequestKind::Generation, FakeResponse::ImageUrl);
        }
        service.respond_next(request_kind, FakeResponse::StallMidBody(halfway.clone()));
        let id = server.place_order("", "a lighthouse");
        halfway.wait_until_reached();
        server.kill();
        halfway.open();
        assert_eq!(stored_names(&server.originals()), [""; 0], "no partial object is stored");
        server.start_server();
        assert_completed_once(&mut server, &id);
        assert_eq!(execution_count(&server, &id), 2);
        let first = &server.get("", &format!("/v1/records/{id}/executions"))["executions"][0];
        let (ended_at, expires_at) = (first["finished_at"].as_str().unwrap(), first["expires_at"].as_str().unwrap());
        assert!(ended_at < expires_at, "{db:?}: the second attempt waited: {first}");
        assert_eq!(
            server.checked_statement(""),
            [("order".to_owned(), -5), ("grant".to_owned(), 20)],
            "{db:?} {request_kind:?}"
        );
        server.kill_and_verify();
    }
}

/// Kills the server once the picture is in the bucket. A second attempt shows that the kill came before the commit.
#[test]
fn crash_between_store_and_commit_completes_order_once() {
    for db in ALL_DATABASES {
        let service = FakeImageService::start();
        let mut server = ImageServer::open(db, &["--image-url", &service.url()]);
        let mut hits = 0;
        for turn in 1..=MAX_KILL_ATTEMPTS {
            server.grant("local", 5);
            let folder = server.originals();
            let before = stored_names(&folder).len();
            // The user watches the order.
            let gate = TestGate::new();
            service.respond_next(RequestKind::Generation, FakeResponse::Delayed(gate.clone()));
            let id = server.place_order("", &format!("picture {turn}"));
            std::thread::scope(|scope| {
                let server_pid =
                    Pid::from_raw(i32::try_from(server.process().pid()).expect("a small number")).expect("a process");
                let folder = &folder;
                // Busy-waits, so that the kill follows at once.
                let killer = scope.spawn(move || {
                    let deadline = Instant::now() + TEST_TIMEOUT;
                    while stored_names(folder).len() <= before {
                        assert!(Instant::now() < deadline, "no picture is stored");
                    }
                    kill_process(server_pid, Signal::KILL).expect("start process");
                });
                gate.open();
                killer.join().expect("wait for killed server");
            });
            server.kill();
            server.start_server();
            assert_completed_once(&mut server, &id);
            hits += usize::from(execution_count(&server, &id) > 1);
            if hits >= required_hits(db) {
                break;
            }
        }
        assert!(hits > 0, "{db:?}: {MAX_KILL_ATTEMPTS} kills, all too late");
        let balance = server.balance("");
        assert_eq!(balance, 0, "each order was charged once");
        server.kill_and_verify();
    }
}

/// On PostgreSQL the lease of the killed server must expire, which takes a while.
const fn required_hits(db: DatabaseKind) -> usize {
    match db {
        DatabaseKind::Sqlite => 3,
        DatabaseKind::Postgres => 1,
    }
}
