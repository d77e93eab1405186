//! A process that is killed while it works: all that it answered is there afterwards, and nothing is there twice.
//!
//! Apart from the other tests: a process that is just being started holds its parent's files for a moment, and with them
//! the locks of databases that others want to open again.

mod stage;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use onceward_core::time::Time;
use onceward_engine::{Config, Engine, PruneOptions, Retention, verify};
use onceward_store::{Clock, Replay, SqliteStore, SqliteView, Store};
use onceward_testkit::random::Chance;
use onceward_testkit::worker;
use serde_json::json;

use stage::{Folder, job, leased, open, wait};

const KILLS: u64 = 20;
const FILE: &str = "ONCEWARD_ENGINE_KILLED";

/// The process that is killed: this very test, run again by the other one. Alone it does nothing.
#[test]
fn works_until_killed() {
    let Some(file) = std::env::var_os(FILE).map(PathBuf::from) else { return };
    wait(async {
        let engine = opened(file).await;
        // Four at once, so that batches hold more than one.
        let _others = [(); 3].map(|()| turns(&engine));
        turns(&engine).await.expect("no panic");
    });
}

/// The same, while everything that has ended is pruned at once, again and again.
#[test]
fn prunes_until_killed() {
    let Some(file) = std::env::var_os(FILE).map(PathBuf::from) else { return };
    wait(async {
        let engine = opened(file).await;
        let _turns = [(); 2].map(|()| turns(&engine));
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

fn turns(engine: &Engine<SqliteStore>) -> tokio::task::JoinHandle<()> {
    let engine = engine.clone();
    tokio::spawn(async move { work(&engine).await })
}

async fn work(engine: &Engine<SqliteStore>) {
    loop {
        println!("\ncreated {}", job(engine).await.0);
        let Some(held) = leased(engine).await else { continue };
        let id = held.record.id;
        println!("\nleased {}", id.0);
        engine.commit(&worker("bob"), id, held.token, json!(id.0), true).await.expect("a commit");
        println!("\ncommitted {}", id.0);
    }
}

/// Run the worker on this file and kill it after it has said so many things; all that it said.
fn run_and_kill(what: &str, file: &PathBuf, lines: usize) -> Vec<(String, String)> {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", what, "--nocapture"])
        .env(FILE, file)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test runs again");
    let mut said = Vec::new();
    let mut killed = false;
    // What it had said before it died is still in the pipe, and counts.
    for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
        let Ok(line) = line else { break };
        if let Some((what, id)) = line.split_once(' ')
            && ["created", "leased", "committed", "pruned"].contains(&what)
            && id.len() == 36
        {
            said.push((what.to_owned(), id.to_owned()));
        }
        if !killed && said.len() >= lines {
            child.kill().expect("SIGKILL");
            killed = true;
        }
    }
    let status = child.wait().expect("it ended");
    assert!(killed && !status.success(), "it ended by itself: {status}");
    said
}

/// After every one of twenty kills at random moments: acknowledged creates, leases and commits are there, each effect once,
/// the log has no gap, its chain holds, and building the records again from it gives those that are kept.
#[test]
fn nothing_answered_is_lost() {
    let folder = Folder::new();
    let seed = std::env::var("ONCEWARD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(45);
    println!("seed {seed}");
    let mut chance = Chance::new(seed);
    let (mut created, mut committed) = (BTreeSet::new(), BTreeMap::<String, usize>::new());
    for _ in 0..KILLS {
        for (what, id) in run_and_kill("works_until_killed", &folder.file(), 1 + chance.below(60)) {
            match what.as_str() {
                "created" => assert!(created.insert(id), "an id came twice"),
                "committed" => *committed.entry(id).or_default() += 1,
                _ => {}
            }
        }
        wait(look(&folder.file(), &created, &committed));
    }
    println!("{KILLS} kills, {} created, {} committed", created.len(), committed.len());
    assert!(!committed.is_empty());
}

/// Killed in the midst of pruning, each checkpoint is there with all that it took gone, or nothing of it is.
#[test]
fn pruning_is_done_or_it_is_not() {
    let folder = Folder::new();
    let seed = std::env::var("ONCEWARD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(46);
    println!("seed {seed}");
    let mut chance = Chance::new(seed);
    let (mut created, mut pruned) = (0, 0);
    for _ in 0..KILLS / 2 {
        for (what, number) in run_and_kill("prunes_until_killed", &folder.file(), 1 + chance.below(80)) {
            match what.as_str() {
                "created" => created += 1,
                "pruned" => pruned += number.parse::<u64>().expect("a number"),
                _ => {}
            }
        }
        let view = SqliteView::open(folder.file()).expect("it opens after the kill");
        let report = wait(verify(&view, Clock::machine().now(), &mut ())).expect("it can be read");
        assert!(report.is_clean() && report.stopped.is_none(), "{report:#?}");
        assert!(report.pruned.records >= pruned, "what was said to be pruned is: {pruned}, {report:?}");
        assert!(report.records + report.pruned.records >= created, "{created} were made: {report:?}");
    }
    println!("{} kills, {created} created, {pruned} pruned", KILLS / 2);
    assert!(pruned > 0);
}

async fn look(file: &PathBuf, created: &BTreeSet<String>, committed: &BTreeMap<String, usize>) {
    // A clock that stands: nothing falls due while we look.
    let store = SqliteStore::open(file, Clock::manual(Time::MIN)).expect("it opens after the kill");
    let log = store.log(0, 1_000_000).await.unwrap();
    let places: Vec<u64> = log.iter().map(|entry| entry.seq).collect();
    assert_eq!(places, (1..=log.len() as u64).collect::<Vec<_>>(), "no gap");
    let mut replay = Replay::new(store.definitions().await.unwrap().lifecycles());
    let mut commits = BTreeMap::<String, usize>::new();
    for entry in &log {
        replay.apply(entry).expect("the chain holds");
        if let (Some(record), Ok(body)) = (entry.record, entry.body())
            && body.effect.is_some()
        {
            *commits.entry(record.0.to_string()).or_default() += 1;
        }
    }
    assert!(commits.values().all(|count| *count == 1), "one effect a job");
    assert!(committed.values().all(|count| *count == 1), "one commit acknowledged a job");
    let engine = Engine::open(store, Config::default());
    for id in created {
        let id = onceward_core::value::RecordId(id.parse().expect("an id"));
        let kept = engine
            .get(&onceward_core::record::Actor::engine(), id)
            .await
            .unwrap()
            .expect("what was acknowledged is there");
        let built = replay.world.record(id).expect("and in the log");
        assert_eq!((kept.version, kept.state), (built.version, built.state));
    }
    for id in committed.keys() {
        assert!(commits.contains_key(id), "an acknowledged commit is there");
    }
    engine.close().await;
}
