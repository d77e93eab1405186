//! Random batches: what is decided in passes on a part of the world is what a whole world decides one by one, in the order
//! of the writes. `ONCEWARD_SEED=… cargo test -p onceward-engine deciding` plays one case again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onceward_core::decide::{Call, Create, Decision, Operation, Snapshot, decide};
use onceward_core::diagnostic::Files;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{Batch, Clock, MemoryStore, Outcome, Save, Store, Write};
use onceward_testkit::random::{self, Chance, Play, seeds};
use onceward_testkit::{systems, user};
use serde_json::Map;

use super::{Decided, Hints, decide_all};
use crate::error::EngineError;
use crate::queue::Request;

const OPERATIONS: usize = 200;

/// A decision without the keys that it rests on: a whole world is asked in another order than a part of it.
fn outline(write: &Write) -> String {
    match &write.outcome {
        Outcome::Changes(changes) => random::changes(changes),
        Outcome::NoOp(no_op) => format!("no-op {} {:?}", no_op.subject, no_op.reason),
        Outcome::Refusal(refusal) => format!("{refusal:?}"),
    }
}

fn expected(decision: &Decision) -> String {
    match decision {
        Decision::Changes(changes) => random::changes(changes),
        Decision::NoOp(no_op) => format!("no-op {} {:?}", no_op.subject, no_op.reason),
        Decision::Refusal(refusal) => format!("{refusal:?}"),
        other => format!("{other:?}"),
    }
}

/// What came of a case.
#[derive(Debug, Default)]
struct Came {
    batches: usize,
    operations: usize,
    /// Operations that nobody handed in: what was due came first.
    due: usize,
    asks: usize,
}

/// Operations of the same time, some at once: a batch has one time.
fn batches(log: Vec<(Operation, Time)>, chance: &mut Chance) -> Vec<(Vec<Operation>, Time)> {
    let mut batches: Vec<(Vec<Operation>, Time)> = Vec::new();
    for (operation, now) in log {
        match batches.last_mut() {
            Some((batch, time)) if *time == now && !chance.yes(10) => batch.push(operation),
            _ => batches.push((vec![operation], now)),
        }
    }
    batches
}

/// Of what is due: the same in every run of a case.
static DUE: AtomicU64 = AtomicU64::new(0);

#[expect(clippy::unnecessary_wraps, reason = "the machine's own may fail")]
fn due_seed() -> Result<u128, EngineError> {
    Ok(u128::from(DUE.fetch_add(1, Ordering::SeqCst)) << 64)
}

async fn case(system: &str, seed: u64, came: &mut Came) {
    DUE.store(seed, Ordering::SeqCst);
    let store = MemoryStore::new(Clock::manual(Time::from_secs(0)));
    let catalog = store.put_definitions(&Files { files: systems::sources(system) }).await.expect("a sound system");
    let definitions = &catalog.definitions;
    let mut play = Play::new(definitions.clone(), true, seed);
    assert!(play.play(OPERATIONS, &mut []).is_ok());
    let mut chance = Chance::new(!seed);
    // Left to find out for itself what is due, or told as well.
    let told = chance.yes(50);
    let log = play.log.into_iter().filter(|(operation, _)| told || !matches!(operation.call, Call::Due { .. }));
    let mut world = Snapshot::world();
    for (operations, now) in batches(log.collect(), &mut chance) {
        let groups: Vec<u64> = operations.iter().map(|_| u64::from(chance.yes(50))).collect();
        let handed = operations.len();
        let requests: Vec<Request> =
            operations.into_iter().zip(&groups).map(|(operation, group)| Request::of(operation, *group)).collect();
        let decided =
            decide_all(&store, definitions, &requests, Hints::default(), now, due_seed).await.expect("decided");
        let Decided { base, writes, replies, asks, .. } = decided;
        assert_eq!(replies.iter().flatten().count() + asks.len(), handed, "each is answered or asks");
        came.batches += 1;
        came.operations += handed;
        came.due += writes.len() + asks.len() - handed;
        came.asks += asks.len();
        for group in [0, 1] {
            let own = |operation: &Operation| {
                requests.iter().position(|request| request.group == group && request.operation == *operation)
            };
            let order: Vec<usize> = writes.iter().filter_map(|write| own(&write.operation)).collect();
            assert!(order.is_sorted(), "one call's operations are decided in order");
        }
        for write in &writes {
            // What is due may be done later than the batch, where a record was logged later.
            let at = match &write.outcome {
                Outcome::Changes(changes) => changes.now.max(now),
                _ => now,
            };
            let decision = decide(definitions, &world, &write.operation, at);
            assert_eq!(outline(write), expected(&decision), "{:?}", write.operation);
            if let Decision::Changes(changes) = &decision {
                world.apply(changes);
            }
        }
        let batch = Batch { writes, now, catalog: catalog.number() };
        let save = store.save(&Arc::new(base), &Arc::new(batch)).await.expect("saved");
        assert!(matches!(save, Save::Saved { .. }), "nobody else is here: {save:?}");
    }
}

#[test]
fn a_batch_is_what_one_by_one_would_be() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut came = Came::default();
    for system in ["execution", "document", "image", "relay"] {
        for seed in seeds(system, 8) {
            println!("{system}: ONCEWARD_SEED={seed}");
            runtime.block_on(case(system, seed, &mut came));
        }
    }
    println!("{came:?}");
    assert!(came.batches < came.operations && came.due > 0, "{came:?}");
}

/// The store is not asked for a record whose id was made here; for one that the caller names it is.
#[test]
fn an_id_of_our_own_is_not_looked_for() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let store = MemoryStore::new(Clock::manual(Time::from_secs(0)));
        let files = Files { files: systems::sources("execution") };
        let catalog = store.put_definitions(&files).await.expect("a sound system");
        for (id, looks) in [(None, 0), (Some(RecordId(uuid::Uuid::from_u128(7 << 76 | 2 << 62))), 1)] {
            let fields = Map::new();
            let create = Create { lifecycle: "execution.job".into(), id, owner: None, fields, payload: None };
            let call = Call::Create(create);
            let operation = Operation { seed: 1, actor: user("ann"), call, answers: Vec::new(), trace: None };
            let (request, now) = (Request::of(operation, 0), Time::from_secs(0));
            let decided = decide_all(&store, &catalog.definitions, &[request], Hints::default(), now, due_seed).await;
            let decided = decided.expect("decided");
            assert!(matches!(decided.writes[0].outcome, Outcome::Changes(_)), "{:?}", decided.writes);
            assert_eq!(decided.looks, looks);
        }
    });
}
