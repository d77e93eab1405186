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
use onceward_engine::{Config, Engine};
use onceward_store::{Clock, Replay, SqliteStore, Store};
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
        let store = SqliteStore::open(file, Clock::machine()).expect("the file opens");
        let engine = open(store, Config::default()).await;
        let turns = || {
            let engine = engine.clone();
            tokio::spawn(async move { work(&engine).await })
        };
        // Four at once, so that batches hold more than one.
        let (_one, _two, _three) = (turns(), turns(), turns());
        turns().await.expect("no panic");
    });
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
fn run_and_kill(file: &PathBuf, lines: usize) -> Vec<(String, String)> {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "works_until_killed", "--nocapture"])
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
            && ["created", "leased", "committed"].contains(&what)
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
        for (what, id) in run_and_kill(&folder.file(), 1 + chance.below(60)) {
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
