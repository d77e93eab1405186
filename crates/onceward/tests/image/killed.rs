//! The server, killed where it hurts: while a picture comes in, and when it is stored but not yet committed. Afterwards there is one picture, paid
//! for once.

use std::path::Path;
use std::time::Instant;

use onceward_testkit::http::PATIENCE;
use onceward_testkit::pictures::{Answer, Asked, Gate, Pictures};
use onceward_testkit::served::{BOTH, Db};
use rustix::process::{Pid, Signal, kill_process};

use crate::house::House;

/// Kills that may come too late before the test gives up: the moment is short.
const TRIES: usize = 20;

/// What must be true of an order that has come through.
fn came_through(house: &mut House, id: &str) {
    let job = house.until("", id, "completed");
    let library = house.get("", "/image/assets");
    let assets: Vec<_> = library["assets"].as_array().unwrap().iter().filter(|asset| asset["job"] == id).collect();
    assert_eq!(assets.len(), 1, "one picture: {library}");
    let picture = house.served().get(job["resultUrl"].as_str().unwrap());
    assert_eq!(picture.status, 200, "{}", picture.text());
    assert!(picture.body.starts_with(b"\x89PNG") && picture.body.ends_with(b"IEND\xae\x42\x60\x82"), "all of it");
    let own = stored(&house.originals()).into_iter().filter(|name| name.starts_with(id)).count();
    assert_eq!(own, 1, "what the dead attempt left is gone");
}

fn stored(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    entries.map_while(Result::ok).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn attempts(house: &House, id: &str) -> usize {
    house.get("", &format!("/v1/records/{id}/executions"))["executions"].as_array().map_or(0, Vec::len)
}

/// In the answer itself, or while it is fetched from the address that the answer names. A server that is back, on PostgreSQL under its old name,
/// takes the work of the dead one up at once and does not wait for its lease to run out.
#[test]
fn killed_while_a_picture_comes_in() {
    for (db, way) in BOTH.into_iter().flat_map(|db| [(db, Asked::Drawing), (db, Asked::Download)]) {
        let (service, halfway) = (Pictures::start(), Gate::new());
        let mut house = House::open(db, &["--image-url", &service.url(), "--name", "studio"]);
        house.grant("local", 20);
        if way == Asked::Download {
            service.next(Asked::Drawing, Answer::Link);
        }
        service.next(way, Answer::Stall(halfway.clone()));
        let id = house.ordered("", "a lighthouse");
        halfway.reached();
        house.kill();
        halfway.open();
        assert_eq!(stored(&house.originals()), [""; 0], "nothing is stored by halves");
        house.begin();
        came_through(&mut house, &id);
        assert_eq!(attempts(&house, &id), 2);
        let first = &house.get("", &format!("/v1/records/{id}/executions"))["executions"][0];
        let (ended, lasted) = (first["finished_at"].as_str().unwrap(), first["expires_at"].as_str().unwrap());
        assert!(ended < lasted, "{db:?}: it was waited for: {first}");
        assert_eq!(house.statement(""), [("order".to_owned(), -5), ("grant".to_owned(), 20)], "{db:?} {way:?}");
        house.verified();
    }
}

/// Killed as soon as the picture is in the bucket. Whether that was before the commit is seen afterwards: then there was a second attempt.
#[test]
fn killed_between_storing_and_committing() {
    for db in BOTH {
        let service = Pictures::start();
        let mut house = House::open(db, &["--image-url", &service.url()]);
        let mut hits = 0;
        for turn in 1..=TRIES {
            house.grant("local", 5);
            let folder = house.originals();
            let before = stored(&folder).len();
            // Whoever ordered it is to hear of it.
            let gate = Gate::new();
            service.next(Asked::Drawing, Answer::Late(gate.clone()));
            let id = house.ordered("", &format!("picture {turn}"));
            std::thread::scope(|scope| {
                let server =
                    Pid::from_raw(i32::try_from(house.served().pid()).expect("a small number")).expect("a process");
                let folder = &folder;
                // Nothing but looking, so that the kill comes in the same moment.
                let killer = scope.spawn(move || {
                    let until = Instant::now() + PATIENCE;
                    while stored(folder).len() <= before {
                        assert!(Instant::now() < until, "no picture is stored");
                    }
                    kill_process(server, Signal::KILL).expect("it runs");
                });
                gate.open();
                killer.join().expect("it was killed");
            });
            house.kill();
            house.begin();
            came_through(&mut house, &id);
            hits += usize::from(attempts(&house, &id) > 1);
            if hits >= enough(db) {
                break;
            }
        }
        assert!(hits > 0, "{db:?}: {TRIES} kills, and none came in time");
        let balance = house.balance("");
        assert_eq!(balance, 0, "each was paid for once");
        house.verified();
    }
}

/// On PostgreSQL the lease of the dead must run out, which takes a while.
const fn enough(db: Db) -> usize {
    match db {
        Db::Sqlite => 3,
        Db::Postgres => 1,
    }
}
