//! Kills a working process: everything it acknowledged survives, and nothing exists twice.
//!
//! In a test binary of its own: a process that is being spawned briefly holds its parent's files, and with them the
//! locks of databases that other tests want to reopen.

mod support;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use onceward_core::time::Time;
use onceward_engine::{Engine, EngineConfig, PruneOptions, RetentionPolicy, verify};
use onceward_store::{Clock, SqliteScanner, SqliteStore};
use onceward_testkit::random::Rng;

use support::crash::{AcknowledgedWork, spawn_test_process, work_forever};
use support::{TempDir, block_on, open_engine};

const KILL_COUNT: u64 = 20;
const DATABASE_FILE_VARIABLE: &str = "ONCEWARD_ENGINE_KILLED";

/// The child process, started by the other tests. Without the variable it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn works_until_killed() {
    let Some(file) = std::env::var_os(DATABASE_FILE_VARIABLE).map(PathBuf::from) else { return };
    let engine = open_sqlite_engine(file).await;
    // Four at once, so that batches have several operations.
    let _others = [(); 3].map(|()| tokio::spawn(work_forever(engine.clone())));
    work_forever(engine).await;
}

/// Like `works_until_killed`, while ended records are pruned continuously.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn prunes_until_killed() {
    let Some(file) = std::env::var_os(DATABASE_FILE_VARIABLE).map(PathBuf::from) else { return };
    let engine = open_sqlite_engine(file).await;
    let _turns = [(); 2].map(|()| tokio::spawn(work_forever(engine.clone())));
    let retention = RetentionPolicy {
        records_ttl: Some(std::time::Duration::ZERO),
        max_batch_records: 5,
        ..RetentionPolicy::default()
    };
    let options = PruneOptions { retention, ..PruneOptions::default() };
    loop {
        let pruned = engine.prune(&options).await.expect("pruning");
        if pruned.records > 0 {
            println!("\npruned {:036}", pruned.records);
        }
    }
}

async fn open_sqlite_engine(file: PathBuf) -> Engine<SqliteStore> {
    open_engine(SqliteStore::open(file, Clock::machine()).expect("the file opens"), EngineConfig::default()).await
}

/// Runs the child on this file, and kills it after so many recorded lines.
fn run_and_kill(test: &str, file: &Path, mut lines: usize, mut record_line: impl FnMut(&str) -> bool) {
    let mut child = spawn_test_process(test, DATABASE_FILE_VARIABLE, file.to_str().expect("UTF-8"));
    // Lines from before its death are still in the pipe, and count.
    for barrier in BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok) {
        if record_line(&barrier) && lines > 0 {
            lines -= 1;
            if lines == 0 {
                child.kill().expect("SIGKILL");
            }
        }
    }
    let status = child.wait().expect("the process ended");
    assert!(lines == 0 && !status.success(), "the process was not killed: {status}");
}

/// Twenty kills at random moments. The log has no gap, its hash chain holds, and it replays to the stored records.
#[test]
fn acknowledged_work_survives_kills() {
    let folder = TempDir::new();
    let seed = std::env::var("ONCEWARD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(45);
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let mut acknowledged = AcknowledgedWork::default();
    for _ in 0..KILL_COUNT {
        run_and_kill("works_until_killed", &folder.database_path(), 1 + rng.below(60), |line| {
            acknowledged.record_line(line)
        });
        let store =
            SqliteStore::open(folder.database_path(), Clock::manual(Time::MIN)).expect("it opens after the kill");
        block_on(acknowledged.assert_present_in(store));
    }
    println!("{KILL_COUNT} kills, {} created, {} committed", acknowledged.created.len(), acknowledged.committed.len());
    assert!(!acknowledged.committed.is_empty());
}

#[test]
fn prune_is_atomic_across_kills() {
    let folder = TempDir::new();
    let seed = std::env::var("ONCEWARD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(46);
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let (mut acknowledged, mut pruned) = (AcknowledgedWork::default(), 0);
    for _ in 0..KILL_COUNT / 2 {
        run_and_kill("prunes_until_killed", &folder.database_path(), 1 + rng.below(80), |line| {
            let number = line.strip_prefix("pruned ").filter(|number| number.len() == 36);
            pruned += number.map_or(0, |number| number.parse::<u64>().expect("a number"));
            number.is_some() || acknowledged.record_line(line)
        });
        let created = acknowledged.created.len() as u64;
        let view = SqliteScanner::open(folder.database_path()).expect("it opens after the kill");
        let report = block_on(verify(&view, Clock::machine().now(), &mut ())).expect("the read succeeds");
        assert!(report.is_clean() && report.stopped.is_none(), "{report:#?}");
        assert!(report.pruned.records >= pruned, "acknowledged prunes are missing: {pruned}, {report:?}");
        assert!(report.records + report.pruned.records >= created, "{created} records were created: {report:?}");
    }
    println!("{} kills, {} created, {pruned} pruned", KILL_COUNT / 2, acknowledged.created.len());
    assert!(pruned > 0);
}
