//! Many at once on one PostgreSQL: random operations decided and saved side by side. Whatever order they come in, the log tells
//! one story, and everything that is kept is what that story comes to. Nobody ever waits in a circle.

mod stage;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use onceward_core::decide::{Decision, Key, Operation, Snapshot, decide, readiness};
use onceward_core::diagnostic::Files;
use onceward_core::time::{Duration, Time};
use onceward_store::{Base, Batch, Clock, LeaseQuery, Outcome, PostgresStore, Replay, Save, Store, Write};
use onceward_testkit::postgres::{Server, psql};
use onceward_testkit::random::{self, Chance, Play, seeds};
use stage::{start, suite, system};

const OPERATIONS: usize = 300;
const AT_ONCE: usize = 6;

type Work = Arc<Mutex<VecDeque<Vec<(Operation, Time)>>>>;

/// Decide one batch as the engine does, and save it; `false` where something had changed.
async fn attempt(store: &PostgresStore, operations: &[(Operation, Time)]) -> bool {
    let catalog = store.definitions().await.unwrap();
    let (mut base, mut writes) = (Base::default(), Vec::new());
    for (operation, now) in operations {
        loop {
            let outcome = match decide(&catalog.definitions, base.snapshot(), operation, *now) {
                Decision::Missing(keys) => {
                    store.load(&mut base, &keys).await.unwrap();
                    continue;
                }
                Decision::Changes(changes) => {
                    base.apply(&changes);
                    Outcome::Changes(changes)
                }
                Decision::NoOp(no_op) => Outcome::NoOp(no_op),
                Decision::Refusal(refusal) => Outcome::Refusal(refusal),
                Decision::Due { .. } | Decision::Ask(_) => break,
            };
            writes.push(Write::new(operation.clone(), outcome));
            break;
        }
    }
    let batch = Batch { writes, now: operations[0].1, catalog: catalog.number() };
    matches!(store.save(&Arc::new(base), &Arc::new(batch)).await.unwrap(), Save::Saved { .. })
}

async fn crowd(files: &Files, seed: u64) -> (usize, usize) {
    let url = Server::shared().database();
    let mut stores = Vec::new();
    for _ in 0..3 {
        stores.push(PostgresStore::open_with_clock(&url, Clock::manual(start())).await.unwrap());
    }
    let catalog = stores[0].put_definitions(files).await.unwrap();
    let mut play = Play::new(catalog.definitions.clone(), true, seed);
    play.play(OPERATIONS, &mut []).unwrap_or_else(|broken| panic!("{}: {}", broken.property, broken.detail));
    let mut chance = Chance::new(!seed);
    let (mut left, mut batches) = (&play.log[..], VecDeque::new());
    while !left.is_empty() {
        let (now, rest) = left.split_at((1 + chance.below(12)).min(left.len()));
        left = rest;
        batches.push_back(now.to_vec());
    }
    let (work, conflicts): (Work, _) = (Arc::new(Mutex::new(batches)), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..AT_ONCE)
        .map(|number| {
            let (store, work, conflicts) = (stores[number % 3].clone(), Arc::clone(&work), Arc::clone(&conflicts));
            tokio::spawn(async move {
                let mut saved = 0;
                loop {
                    let next = work.lock().unwrap().pop_front();
                    let Some(operations) = next else { return saved };
                    while !attempt(&store, &operations).await {
                        conflicts.fetch_add(1, Ordering::Relaxed);
                    }
                    saved += 1;
                    // Looking moves those whose time has come, or has not: now, and by a clock far ahead.
                    for seconds in [0, 100_000].into_iter().take(1 + saved % 2) {
                        let now = operations[0].1.checked_add(Duration::from_secs(seconds)).unwrap();
                        let lifecycles =
                            store.definitions().await.unwrap().definitions.lifecycles.keys().cloned().collect();
                        store.leasable(&LeaseQuery { lifecycles, now, limit: 1_000 }).await.unwrap();
                    }
                }
            })
        })
        .collect();
    let mut saved = 0;
    for task in tasks {
        saved += task.await.expect("no panic");
    }
    let waiting = same_story(&stores[0]).await;
    let stand = "SELECT count(*) || ' ' || count(DISTINCT record) FROM (SELECT record FROM onceward.later UNION ALL \
                 SELECT record FROM onceward.ready WHERE key IS NULL UNION ALL SELECT record FROM onceward.lanes) w";
    assert_eq!(psql(&url, stand), format!("{waiting} {waiting}"), "each stands once where it belongs");
    let fronts = "SELECT (SELECT count(*) FROM onceward.ready WHERE key IS NOT NULL) - \
                  (SELECT count(*) FROM onceward.lanes l JOIN onceward.ready USING (lifecycle, rank, record) WHERE l.front)";
    assert_eq!(psql(&url, fronts), "0", "in `ready` is who stands in front");
    let deadlocks =
        "SELECT pg_stat_clear_snapshot(); SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(psql(&url, deadlocks), "0", "two saves waited for each other");
    (saved, conflicts.load(Ordering::Relaxed))
}

/// All that is kept under keys is what the log comes to. How many jobs wait.
async fn same_story(store: &PostgresStore) -> usize {
    let mut replay = Replay::new(store.definitions().await.unwrap().lifecycles());
    for entry in store.log(0, 1_000_000).await.unwrap() {
        replay.apply(&entry).unwrap_or_else(|error| panic!("{error}: {entry:?}"));
    }
    let Snapshot { records, uniques, counts, accounts, queues, .. } = &replay.world;
    let mut keys: Vec<Key> = records.keys().map(|id| Key::Record(*id)).collect();
    keys.extend(uniques.keys().cloned().map(Key::Unique));
    keys.extend(counts.keys().cloned().map(Key::Count));
    keys.extend(accounts.keys().filter(|account| is_named(account)).cloned().map(Key::Account));
    keys.extend(queues.keys().cloned().map(Key::Queue));
    let mut base = Base::default();
    store.load(&mut base, &keys).await.unwrap();
    let kept = base.snapshot();
    for (id, built) in records {
        let (built, kept) = (built.as_ref().unwrap(), kept.record(*id).unwrap());
        // Heartbeats move a lease's end and leave no entry.
        let mut kept = (**kept).clone();
        if let (Some(kept), Some(built)) = (&mut kept.execution, &built.execution) {
            kept.expires_at = built.expires_at;
        }
        assert_eq!(random::record(&kept), random::record(built));
    }
    for (key, holder) in uniques {
        assert_eq!(kept.uniques[key], *holder, "{key:?}");
    }
    for (key, count) in counts {
        assert_eq!(kept.counts[key], *count, "{key:?}");
    }
    for (account, balance) in accounts.iter().filter(|(account, _)| is_named(account)) {
        assert_eq!(kept.accounts[account], *balance, "{account:?}");
    }
    for (key, queue) in queues {
        assert_eq!(kept.queues[key].first(), queue.first(), "{key:?}");
    }
    records.values().flatten().filter(|record| readiness(record).is_some()).count()
}

fn is_named(account: &onceward_core::decide::Account) -> bool {
    matches!(account, onceward_core::decide::Account::Named { .. })
}

#[test]
fn one_story_of_many_tellers() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let (mut saved, mut conflicts) = (0, 0);
    for seed in seeds("crowd", 4) {
        println!("seed {seed}");
        for files in [suite(), system("relay"), system("image")] {
            let (one, other) = runtime.block_on(crowd(&files, seed));
            (saved, conflicts) = (saved + one, conflicts + other);
        }
    }
    println!("{saved} batches saved, {conflicts} conflicts, no deadlock");
    assert!(conflicts > 0, "they never met");
}
