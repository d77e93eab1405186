//! A process that is killed while it works: all that it answered is there afterwards, and nothing is there twice.
//!
//! Apart from the other tests: a process that is just being started holds its parent's files for a moment, and with them
//! the locks of databases that others want to open again.

mod stage;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use onceward_core::time::Time;
use onceward_engine::{Config, Engine, PruneOptions, Retention, verify};
use onceward_store::{Clock, SqliteStore, SqliteView};
use onceward_testkit::random::Chance;

use stage::killed::{Said, begin, work};
use stage::{Folder, open, wait};

const KILLS: u64 = 20;
const FILE: &str = "ONCEWARD_ENGINE_KILLED";

/// The process that is killed: this very test, run again by the other one. Alone it does nothing.
#[test]
fn works_until_killed() {
    let Some(file) = std::env::var_os(FILE).map(PathBuf::from) else { return };
    wait(async {
        let engine = opened(file).await;
        // Four at once, so that batches hold more than one.
        let _others = [(); 3].map(|()| tokio::spawn(work(engine.clone())));
        work(engine).await;
    });
}

/// The same, while everything that has ended is pruned at once, again and again.
#[test]
fn prunes_until_killed() {
    let Some(file) = std::env::var_os(FILE).map(PathBuf::from) else { return };
    wait(async {
        let engine = opened(file).await;
        let _turns = [(); 2].map(|()| tokio::spawn(work(engine.clone())));
        let retention = Retention { records: Some(std::time::Duration::ZERO), batch: 5, ..Retention::default() };
        let options = PruneOptions { retention, ..PruneOptions::default() };
        loop {
            let pruned = engine.prune(&options).await.expect("pruning");
            if pruned.records > 0 {
                println!("\npruned {:036}", pruned.records);
            }
        }
    });
}

async fn opened(file: PathBuf) -> Engine<SqliteStore> {
    open(SqliteStore::open(file, Clock::machine()).expect("the file opens"), Config::default()).await
}

/// Run the worker on this file and kill it after it has said so many things that are noted.
fn run_and_kill(what: &str, file: &Path, mut lines: usize, mut note: impl FnMut(&str) -> bool) {
    let mut child = begin(what, FILE, file.to_str().expect("UTF-8"));
    // What it had said before it died is still in the pipe, and counts.
    for line in BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok) {
        if note(&line) && lines > 0 {
            lines -= 1;
            if lines == 0 {
                child.kill().expect("SIGKILL");
            }
        }
    }
    let status = child.wait().expect("it ended");
    assert!(lines == 0 && !status.success(), "it ended by itself: {status}");
}

/// After every one of twenty kills at random moments: acknowledged creates, leases and commits are there, each effect once,
/// the log has no gap, its chain holds, and building the records again from it gives those that are kept.
#[test]
fn nothing_answered_is_lost() {
    let folder = Folder::new();
    let seed = std::env::var("ONCEWARD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(45);
    println!("seed {seed}");
    let mut chance = Chance::new(seed);
    let mut said = Said::default();
    for _ in 0..KILLS {
        run_and_kill("works_until_killed", &folder.file(), 1 + chance.below(60), |line| said.note(line));
        let store = SqliteStore::open(folder.file(), Clock::manual(Time::MIN)).expect("it opens after the kill");
        wait(said.is_there(store));
    }
    println!("{KILLS} kills, {} created, {} committed", said.created.len(), said.committed.len());
    assert!(!said.committed.is_empty());
}

/// Killed in the midst of pruning, each checkpoint is there with all that it took gone, or nothing of it is.
#[test]
fn pruning_is_done_or_it_is_not() {
    let folder = Folder::new();
    let seed = std::env::var("ONCEWARD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(46);
    println!("seed {seed}");
    let mut chance = Chance::new(seed);
    let (mut said, mut pruned) = (Said::default(), 0);
    for _ in 0..KILLS / 2 {
        run_and_kill("prunes_until_killed", &folder.file(), 1 + chance.below(80), |line| {
            let number = line.strip_prefix("pruned ").filter(|number| number.len() == 36);
            pruned += number.map_or(0, |number| number.parse::<u64>().expect("a number"));
            number.is_some() || said.note(line)
        });
        let created = said.created.len() as u64;
        let view = SqliteView::open(folder.file()).expect("it opens after the kill");
        let report = wait(verify(&view, Clock::machine().now(), &mut ())).expect("it can be read");
        assert!(report.is_clean() && report.stopped.is_none(), "{report:#?}");
        assert!(report.pruned.records >= pruned, "what was said to be pruned is: {pruned}, {report:?}");
        assert!(report.records + report.pruned.records >= created, "{created} were made: {report:?}");
    }
    println!("{} kills, {} created, {pruned} pruned", KILLS / 2, said.created.len());
    assert!(pruned > 0);
}
