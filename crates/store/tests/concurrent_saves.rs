//! Random operations saved concurrently on PostgreSQL: the stored state equals a replay of the log, and no deadlock
//! occurs.

mod support;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use onceward_core::decide::{Decision, Operation, ReadKey, Snapshot, decide, readiness};
use onceward_core::diagnostic::InputFiles;
use onceward_core::time::{Duration, Time};
use onceward_store::{
    Batch, Clock, DecidedOperation, LeaseQuery, LogReplay, OperationOutcome, PostgresStore, ReadSet, SaveResult, Store,
};
use onceward_testkit::postgres::{PostgresServer, psql};
use onceward_testkit::random::{self, Rng, Simulation, theme_seeds};
use support::{start_time, suite_files, system_files};

const OPERATIONS_PER_CASE: usize = 300;
const CONCURRENT_SAVERS: usize = 6;

type BatchQueue = Arc<Mutex<VecDeque<Vec<(Operation, Time)>>>>;

/// Decides and saves one batch like the engine. Returns false on a conflict.
async fn try_save_batch(store: &PostgresStore, operations: &[(Operation, Time)]) -> bool {
    let catalog = store.catalog().await.unwrap();
    let (mut read_set, mut writes) = (ReadSet::default(), Vec::new());
    for (operation, now) in operations {
        loop {
            let outcome = match decide(&catalog.definitions, read_set.snapshot(), operation, *now) {
                Decision::Missing(keys) => {
                    store.load(&mut read_set, &keys).await.unwrap();
                    continue;
                }
                Decision::Changes(changes) => {
                    read_set.apply(&changes);
                    OperationOutcome::Changes(changes)
                }
                Decision::NoOp(no_op) => OperationOutcome::NoOp(no_op),
                Decision::Refusal(refusal) => OperationOutcome::Refusal(refusal),
                Decision::Due { .. } | Decision::NeedsChecks(_) => break,
            };
            writes.push(DecidedOperation::new(operation.clone(), outcome));
            break;
        }
    }
    let batch = Batch { operations: writes, decided_at: operations[0].1, catalog_revision: catalog.revision() };
    matches!(store.save(&Arc::new(read_set), &Arc::new(batch)).await.unwrap(), SaveResult::Saved { .. })
}

async fn run_concurrent_saves(files: &InputFiles, seed: u64) -> (usize, usize) {
    let url = PostgresServer::shared().create_database();
    let mut stores = Vec::new();
    for _ in 0..3 {
        stores.push(PostgresStore::open_with_clock(&url, Clock::manual(start_time())).await.unwrap());
    }
    let catalog = stores[0].put_lifecycles(files).await.unwrap();
    let mut simulation = Simulation::new(catalog.definitions.clone(), true, seed);
    simulation
        .run_operations(OPERATIONS_PER_CASE, &mut [])
        .unwrap_or_else(|broken| panic!("{}: {}", broken.property, broken.detail));
    let mut rng = Rng::new(!seed);
    let (mut remaining, mut batches) = (&simulation.log[..], VecDeque::new());
    while !remaining.is_empty() {
        let (batch, rest) = remaining.split_at((1 + rng.below(12)).min(remaining.len()));
        remaining = rest;
        batches.push_back(batch.to_vec());
    }
    let (queue, conflicts): (BatchQueue, _) = (Arc::new(Mutex::new(batches)), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..CONCURRENT_SAVERS)
        .map(|number| {
            let (store, work, conflicts) = (stores[number % 3].clone(), Arc::clone(&queue), Arc::clone(&conflicts));
            tokio::spawn(async move {
                let mut saved = 0;
                loop {
                    let next = work.lock().unwrap().pop_front();
                    let Some(operations) = next else { return saved };
                    while !try_save_batch(&store, &operations).await {
                        conflicts.fetch_add(1, Ordering::Relaxed);
                    }
                    saved += 1;
                    // Candidate queries promote or delay jobs: query at the current time and with a clock far ahead.
                    for seconds in [0, 100_000].into_iter().take(1 + saved % 2) {
                        let now = operations[0].1.checked_add(Duration::from_secs(seconds)).unwrap();
                        let lifecycles =
                            store.catalog().await.unwrap().definitions.lifecycles.keys().cloned().collect();
                        store.lease_candidates(&LeaseQuery { lifecycles, now, limit: 1_000 }).await.unwrap();
                    }
                }
            })
        })
        .collect();
    let mut saved = 0;
    for task in tasks {
        saved += task.await.expect("no panic");
    }
    let ready_jobs = assert_state_equals_replay(&stores[0]).await;
    let placement_sql = "SELECT count(*) || ' ' || count(DISTINCT record) FROM (SELECT record FROM onceward.delayed UNION ALL \
                 SELECT record FROM onceward.ready WHERE key IS NULL UNION ALL SELECT record FROM onceward.lanes) w";
    assert_eq!(
        psql(&url, placement_sql),
        format!("{ready_jobs} {ready_jobs}"),
        "each ready job is in exactly one table"
    );
    let fronts_sql = "SELECT (SELECT count(*) FROM onceward.ready WHERE key IS NOT NULL) - \
                  (SELECT count(*) FROM onceward.lanes l JOIN onceward.ready USING (lifecycle, rank, record) WHERE l.front)";
    assert_eq!(psql(&url, fronts_sql), "0", "`ready` has exactly the jobs at the front of their lanes");
    let deadlocks_sql =
        "SELECT pg_stat_clear_snapshot(); SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(psql(&url, deadlocks_sql), "0", "no saves deadlocked");
    (saved, conflicts.load(Ordering::Relaxed))
}

/// Asserts that the stored values equal a replay of the log. Returns the number of waiting jobs.
async fn assert_state_equals_replay(store: &PostgresStore) -> usize {
    let mut replay = LogReplay::new(store.catalog().await.unwrap().lifecycles());
    for entry in store.log(0, 1_000_000).await.unwrap() {
        replay.apply(&entry).unwrap_or_else(|error| panic!("{error}: {entry:?}"));
    }
    let Snapshot { records, unique_holders: uniques, counters: counts, accounts, concurrency_queues: queues, .. } =
        &replay.snapshot;
    let mut keys: Vec<ReadKey> = records.keys().map(|id| ReadKey::Record(*id)).collect();
    keys.extend(uniques.keys().cloned().map(ReadKey::Unique));
    keys.extend(counts.keys().cloned().map(ReadKey::Counter));
    keys.extend(accounts.keys().filter(|account| is_named(account)).cloned().map(ReadKey::Account));
    keys.extend(queues.keys().cloned().map(ReadKey::ConcurrencyQueue));
    let mut read_set = ReadSet::default();
    store.load(&mut read_set, &keys).await.unwrap();
    let stored = read_set.snapshot();
    for (id, replayed) in records {
        let (built, stored_record) = (replayed.as_ref().unwrap(), stored.record(*id).unwrap());
        // Heartbeats extend a lease without a log entry.
        let mut stored_record = (**stored_record).clone();
        if let (Some(stored_record), Some(built)) = (&mut stored_record.execution, &built.execution) {
            stored_record.expires_at = built.expires_at;
        }
        assert_eq!(random::record_text(&stored_record), random::record_text(built));
    }
    for (key, holder) in uniques {
        assert_eq!(stored.unique_holders[key], *holder, "{key:?}");
    }
    for (key, count) in counts {
        assert_eq!(stored.counters[key], *count, "{key:?}");
    }
    for (account, balance) in accounts.iter().filter(|(account, _)| is_named(account)) {
        assert_eq!(stored.accounts[account], *balance, "{account:?}");
    }
    for (key, queue) in queues {
        assert_eq!(stored.concurrency_queues[key].first(), queue.first(), "{key:?}");
    }
    records.values().flatten().filter(|record| readiness(record).is_some()).count()
}

fn is_named(account: &onceward_core::decide::Account) -> bool {
    matches!(account, onceward_core::decide::Account::Named { .. })
}

#[test]
fn concurrent_saves_leave_state_equal_to_replay() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let (mut saved, mut conflicts) = (0, 0);
    for seed in theme_seeds("crowd", 4) {
        println!("seed {seed}");
        for files in [suite_files(), system_files("relay"), system_files("image")] {
            let (one, other) = runtime.block_on(run_concurrent_saves(&files, seed));
            (saved, conflicts) = (saved + one, conflicts + other);
        }
    }
    println!("{saved} batches saved, {conflicts} conflicts, no deadlock");
    assert!(conflicts > 0, "the writers never conflicted");
}
