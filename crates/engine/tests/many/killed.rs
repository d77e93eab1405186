//! Three processes on one database, killed at random moments and started again: all that they answered is there, nothing is
//! there twice, and the log tells all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};

use onceward_core::time::Time;
use onceward_engine::{Config, Engine};
use onceward_store::{AnyStore, Clock, PostgresStore, Replay, Store};
use onceward_testkit::postgres::Server;
use onceward_testkit::random::Chance;
use onceward_testkit::worker;
use serde_json::json;

use crate::proven;
use crate::stage::{job, leased, open, postgres, wait};

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
        let turns = || {
            let engine = engine.clone();
            tokio::spawn(async move { work(&engine).await })
        };
        let (_one, _two) = (turns(), turns());
        turns().await.expect("no panic");
    });
}

async fn work(engine: &Engine<AnyStore>) {
    loop {
        println!("\ncreated {}", job(engine).await.0);
        let Some(held) = leased(engine).await else { continue };
        let id = held.record.id;
        println!("\nleased {} {}", id.0, held.token.0);
        engine.commit(&worker("bob"), id, held.token, json!(id.0), true).await.expect("a commit of its own lease");
        println!("\ncommitted {}", id.0);
    }
}

/// Start one; its words go to the channel, with its number.
fn begin(url: &str, number: usize, words: &Sender<(usize, Option<String>)>) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "killed::works_beside_others_until_killed", "--nocapture"])
        .env(URL, url)
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test runs again");
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

/// What processes have said.
#[derive(Default)]
struct Said {
    created: BTreeSet<String>,
    leased: BTreeMap<String, usize>,
    committed: BTreeMap<String, usize>,
}

impl Said {
    /// Whether it was a word of ours.
    fn note(&mut self, line: &str) -> bool {
        let Some((what, rest)) = line.split_once(' ') else { return false };
        match what {
            "created" if rest.len() == 36 => assert!(self.created.insert(rest.to_owned()), "an id came twice"),
            "leased" if rest.len() > 36 => *self.leased.entry(rest.to_owned()).or_default() += 1,
            "committed" if rest.len() == 36 => *self.committed.entry(rest.to_owned()).or_default() += 1,
            _ => return false,
        }
        true
    }
}

#[test]
fn nothing_answered_is_lost_and_nothing_is_done_twice() {
    let seed = std::env::var("ONCEWARD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(46);
    println!("seed {seed}");
    let mut chance = Chance::new(seed);
    let url = Server::shared().database();
    let (sender, words) = channel();
    let mut running: Vec<Child> = (0..PROCESSES).map(|number| begin(&url, number, &sender)).collect();
    let mut until: Vec<usize> = (0..PROCESSES).map(|_| 10 + chance.below(60)).collect();
    let (mut said, mut kills, mut ended) = (Said::default(), 0, 0);
    while ended < PROCESSES {
        let (number, line) = words.recv().expect("somebody still runs");
        let Some(line) = line else {
            let status = running[number].wait().expect("it ended");
            assert!(!status.success() && until[number] == 0, "it ended by itself: {status}");
            if kills < KILLS {
                running[number] = begin(&url, number, &sender);
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
    wait(look(&url, &said));
}

async fn look(url: &str, said: &Said) {
    assert!(said.leased.values().all(|count| *count == 1), "no lease was handed out twice");
    assert!(said.committed.values().all(|count| *count == 1), "one commit acknowledged a job");
    // A clock that stands: nothing falls due while we look.
    let store = postgres(url, &Clock::manual(Time::MIN)).await;
    let log = store.log(0, 1_000_000).await.unwrap();
    let mut replay = Replay::new(store.definitions().await.unwrap().lifecycles());
    let mut effects = BTreeMap::<String, usize>::new();
    for (place, entry) in (1..).zip(&log) {
        assert_eq!(entry.seq, place, "no gap");
        replay.apply(entry).expect("the chain holds");
        if let (Some(record), true) = (entry.record, entry.body().unwrap().effect.is_some()) {
            *effects.entry(record.0.to_string()).or_default() += 1;
        }
    }
    assert!(effects.values().all(|count| *count == 1), "one effect a job");
    for id in &said.created {
        let id = onceward_core::value::RecordId(id.parse().expect("an id"));
        let kept = store.record(id).await.unwrap().expect("what was acknowledged is there");
        let built = replay.world.record(id).expect("and in the log");
        assert_eq!((kept.version, kept.state), (built.version, built.state));
    }
    assert!(said.committed.keys().all(|id| effects.contains_key(id)), "an acknowledged commit is there");
    proven(url, Clock::machine().now()).await;
}
