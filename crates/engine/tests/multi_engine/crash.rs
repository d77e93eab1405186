//! Kills and restarts three processes on one database at random moments: everything they acknowledged survives, nothing
//! exists twice, and the log replays.

use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::sync::mpsc::{Sender, channel};

use onceward_core::time::Time;
use onceward_engine::EngineConfig;
use onceward_store::{AnyStore, Clock, PostgresStore};
use onceward_testkit::postgres::{PostgresServer, psql};
use onceward_testkit::random::Rng;

use crate::assert_verified;
use crate::support::crash::{AcknowledgedWork, spawn_test_process, work_forever};
use crate::support::{TEST_TIMEOUT, block_on, open_engine, open_postgres};

const PROCESS_COUNT: usize = 3;
const KILL_COUNT: usize = 15;
const DATABASE_URL_VARIABLE: &str = "ONCEWARD_ENGINE_MANY";

/// The child process, started by the other test. Without the variable it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn works_beside_others_until_killed() {
    let Ok(url) = std::env::var(DATABASE_URL_VARIABLE) else { return };
    let store = PostgresStore::open(&url).await.expect("the database opens");
    let engine = open_engine(AnyStore::Postgres(store), EngineConfig::default()).await;
    let _others = [(); 2].map(|()| tokio::spawn(work_forever(engine.clone())));
    work_forever(engine).await;
}

/// Starts a process; its lines go to the channel with its number.
fn spawn_process(url: &str, number: usize, lines: &Sender<(usize, Option<String>)>) -> Child {
    let mut child = spawn_test_process("crash::works_beside_others_until_killed", DATABASE_URL_VARIABLE, url);
    let (pipe, sender) = (child.stdout.take().expect("a pipe"), lines.clone());
    std::thread::spawn(move || {
        // Lines from before its death are still in the pipe, and count.
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let _ = sender.send((number, Some(line)));
        }
        let _ = sender.send((number, None));
    });
    child
}

#[test]
fn acknowledged_work_survives_kills_without_duplicates() {
    let seed = std::env::var("ONCEWARD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(46);
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let url = PostgresServer::shared().create_database();
    let (sender, lines) = channel();
    let mut running: Vec<Child> = (0..PROCESS_COUNT).map(|number| spawn_process(&url, number, &sender)).collect();
    let mut lines_until_kill: Vec<usize> = (0..PROCESS_COUNT).map(|_| 10 + rng.below(60)).collect();
    let (mut acknowledged, mut kills, mut ended) = (AcknowledgedWork::default(), 0, 0);
    while ended < PROCESS_COUNT {
        let (number, line) = lines.recv().expect("a child process still runs");
        let Some(line) = line else {
            let status = running[number].wait().expect("the process ended");
            assert!(!status.success() && lines_until_kill[number] == 0, "the process was not killed: {status}");
            if kills < KILL_COUNT {
                running[number] = spawn_process(&url, number, &sender);
                lines_until_kill[number] = 10 + rng.below(60);
            } else {
                ended += 1;
            }
            continue;
        };
        if acknowledged.record_line(&line) && lines_until_kill[number] > 0 {
            lines_until_kill[number] -= 1;
            if lines_until_kill[number] == 0 {
                running[number].kill().expect("SIGKILL");
                kills += 1;
            }
        }
    }
    println!("{kills} kills, {} created, {} committed", acknowledged.created.len(), acknowledged.committed.len());
    assert!(kills >= KILL_COUNT && !acknowledged.committed.is_empty());
    // Statements of a dead process may still be running.
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() \
                  AND backend_type = 'client backend'";
    let began = std::time::Instant::now();
    while psql(&url, others) != "0" {
        assert!(began.elapsed() < TEST_TIMEOUT, "a killed process left its connection open");
    }
    block_on(async {
        acknowledged.assert_present_in(open_postgres(&url, &Clock::manual(Time::MIN)).await).await;
        assert_verified(&url, Clock::machine().now()).await;
    });
}
