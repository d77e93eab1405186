//! Three processes on one database, killed at random moments and started again: all that they answered is there, nothing is
//! there twice, and the log tells all of it.

use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::sync::mpsc::{Sender, channel};

use onceward_core::time::Time;
use onceward_engine::Config;
use onceward_store::{AnyStore, Clock, PostgresStore};
use onceward_testkit::postgres::{Server, psql};
use onceward_testkit::random::Chance;

use crate::proven;
use crate::stage::killed::{Said, begin, work};
use crate::stage::{LONG, open, postgres, wait};

const PROCESSES: usize = 3;
const KILLS: usize = 15;
const URL: &str = "ONCEWARD_ENGINE_MANY";

/// A process that is killed: this very test, run again by the other one. Alone it does nothing.
#[test]
fn works_beside_others_until_killed() {
    let Ok(url) = std::env::var(URL) else { return };
    wait(async {
        let store = PostgresStore::open(&url).await.expect("the database opens");
        let engine = open(AnyStore::Postgres(store), Config::default()).await;
        let _others = [(); 2].map(|()| tokio::spawn(work(engine.clone())));
        work(engine).await;
    });
}

/// Start one; its words go to the channel, with its number.
fn start(url: &str, number: usize, words: &Sender<(usize, Option<String>)>) -> Child {
    let mut child = begin("killed::works_beside_others_until_killed", URL, url);
    let (pipe, words) = (child.stdout.take().expect("a pipe"), words.clone());
    std::thread::spawn(move || {
        // What it had said before it died is still in the pipe, and counts.
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let _ = words.send((number, Some(line)));
        }
        let _ = words.send((number, None));
    });
    child
}

#[test]
fn nothing_answered_is_lost_and_nothing_is_done_twice() {
    let seed = std::env::var("ONCEWARD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(46);
    println!("seed {seed}");
    let mut chance = Chance::new(seed);
    let url = Server::shared().database();
    let (sender, words) = channel();
    let mut running: Vec<Child> = (0..PROCESSES).map(|number| start(&url, number, &sender)).collect();
    let mut until: Vec<usize> = (0..PROCESSES).map(|_| 10 + chance.below(60)).collect();
    let (mut said, mut kills, mut ended) = (Said::default(), 0, 0);
    while ended < PROCESSES {
        let (number, line) = words.recv().expect("somebody still runs");
        let Some(line) = line else {
            let status = running[number].wait().expect("it ended");
            assert!(!status.success() && until[number] == 0, "it ended by itself: {status}");
            if kills < KILLS {
                running[number] = start(&url, number, &sender);
                until[number] = 10 + chance.below(60);
            } else {
                ended += 1;
            }
            continue;
        };
        if said.note(&line) && until[number] > 0 {
            until[number] -= 1;
            if until[number] == 0 {
                running[number].kill().expect("SIGKILL");
                kills += 1;
            }
        }
    }
    println!("{kills} kills, {} created, {} committed", said.created.len(), said.committed.len());
    assert!(kills >= KILLS && !said.committed.is_empty());
    // What a dead one had sent may still be landing, between one look and the next.
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
                  AND backend_type = 'client backend'";
    let began = std::time::Instant::now();
    while psql(&url, others) != "0" {
        assert!(began.elapsed() < LONG, "a dead one's connection stays");
    }
    wait(async {
        said.is_there(postgres(&url, &Clock::manual(Time::MIN)).await).await;
        proven(&url, Clock::machine().now()).await;
    });
}
