//! A process that works until it is killed, and the check that its acknowledged work survives.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Stdio};

use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_engine::{Engine, EngineConfig};
use onceward_store::{LogReplay, Store};
use onceward_testkit::worker;
use serde_json::json;

use super::{create_job, lease_one};

/// Starts this test binary again, with one of its tests and a variable.
pub(crate) fn spawn_test_process(test: &str, variable: &str, value: &str) -> Child {
    Command::new(std::env::current_exe().expect("the path of the test binary"))
        .args(["--exact", test, "--nocapture"])
        .env(variable, value)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child process starts")
}

/// Creates and completes jobs, and prints each acknowledged step. Never returns.
pub(crate) async fn work_forever<S: Store + 'static>(engine: Engine<S>) {
    loop {
        println!("\ncreated {}", create_job(&engine).await.0);
        let Some(held) = lease_one(&engine).await else { continue };
        let id = held.record.id;
        println!("\nleased {} {}", id.0, held.token.0);
        engine.commit(&worker("bob"), id, held.token, json!(id.0), true).await.expect("a commit of its own lease");
        println!("\ncommitted {}", id.0);
    }
}

/// Steps that the process printed.
#[derive(Default)]
pub(crate) struct AcknowledgedWork {
    pub(crate) created: BTreeSet<String>,
    leased: BTreeMap<String, usize>,
    pub(crate) committed: BTreeMap<String, usize>,
}

impl AcknowledgedWork {
    /// Records a line; returns whether it was a complete step.
    pub(crate) fn record_line(&mut self, line: &str) -> bool {
        let Some((what, rest)) = line.split_once(' ') else { return false };
        match what {
            "created" if rest.len() == 36 => assert!(self.created.insert(rest.to_owned()), "an id was created twice"),
            "leased" if rest.len() > 36 => *self.leased.entry(rest.to_owned()).or_default() += 1,
            "committed" if rest.len() == 36 => *self.committed.entry(rest.to_owned()).or_default() += 1,
            _ => return false,
        }
        true
    }

    /// Asserts that acknowledged creates, leases and commits exist, each effect once, that the log has no gap, that its
    /// hash chain holds, and that it replays to the stored records. The store's clock must not advance.
    pub(crate) async fn assert_present_in<S: Store + 'static>(&self, store: S) {
        assert!(self.leased.values().all(|count| *count == 1), "no lease was granted twice");
        assert!(self.committed.values().all(|count| *count == 1), "each job has at most one acknowledged commit");
        let log = store.log(0, 1_000_000).await.unwrap();
        let mut replay = LogReplay::new(store.catalog().await.unwrap().lifecycles());
        let mut effects = BTreeMap::<String, usize>::new();
        for (seq, entry) in (1..).zip(&log) {
            assert_eq!(entry.seq, seq, "the log has no gap");
            replay.apply(entry).expect("the hash chain is intact");
            if let (Some(record), true) = (entry.record, entry.body().unwrap().effect.is_some()) {
                *effects.entry(record.0.to_string()).or_default() += 1;
            }
        }
        assert!(effects.values().all(|count| *count == 1), "each job has at most one effect");
        assert!(self.committed.keys().all(|id| effects.contains_key(id)), "every acknowledged commit has an effect");
        let engine = Engine::open(store, EngineConfig::default());
        for id in &self.created {
            let id = RecordId(id.parse().expect("an id"));
            let stored = engine.get(&Actor::engine(), id).await.unwrap().expect("an acknowledged record exists");
            let replayed = replay.snapshot.record(id).expect("an acknowledged record is in the log");
            assert_eq!((stored.version, stored.state), (replayed.version, replayed.state));
        }
        engine.close().await;
    }
}
