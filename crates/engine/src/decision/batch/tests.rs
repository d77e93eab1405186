//! Random batches: deciding in passes on a partial read set gives the same as deciding one by one on the complete
//! state, in the order of the writes. `ONCEWARD_SEED=… cargo test -p onceward-engine batch_decisions` repeats one case.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onceward_core::decide::{Call, CreateRecord, Decision, Operation, Snapshot, decide};
use onceward_core::diagnostic::InputFiles;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{Batch, Clock, DecidedOperation, MemoryStore, OperationOutcome, SaveResult, Store};
use onceward_testkit::random::{self, Rng, Simulation, theme_seeds};
use onceward_testkit::{systems, user};
use serde_json::Map;

use super::{DecidedBatch, RetryHints, decide_batch};
use crate::error::EngineError;
use crate::submission::queue::QueuedOperation;

const OPERATIONS_PER_CASE: usize = 200;

/// Describes a decision without its read keys: the complete state is read in another order.
fn describe_write(write: &DecidedOperation) -> String {
    match &write.outcome {
        OperationOutcome::Changes(changes) => random::changes_text(changes),
        OperationOutcome::NoOp(no_op) => format!("no-op {} {:?}", no_op.subject, no_op.reason),
        OperationOutcome::Refusal(refusal) => format!("{refusal:?}"),
    }
}

fn describe_decision(decision: &Decision) -> String {
    match decision {
        Decision::Changes(changes) => random::changes_text(changes),
        Decision::NoOp(no_op) => format!("no-op {} {:?}", no_op.subject, no_op.reason),
        Decision::Refusal(refusal) => format!("{refusal:?}"),
        other => format!("{other:?}"),
    }
}

#[derive(Debug, Default)]
struct CaseTotals {
    batches: usize,
    operations: usize,
    /// Due operations that the batch added.
    due: usize,
    checks: usize,
}

/// Groups operations of the same time at random: a batch has one time.
fn split_into_batches(log: Vec<(Operation, Time)>, rng: &mut Rng) -> Vec<(Vec<Operation>, Time)> {
    let mut batches: Vec<(Vec<Operation>, Time)> = Vec::new();
    for (operation, now) in log {
        match batches.last_mut() {
            Some((batch, time)) if *time == now && !rng.percent(10) => batch.push(operation),
            _ => batches.push((vec![operation], now)),
        }
    }
    batches
}

/// Deterministic seeds for due operations.
static NEXT_DUE_SEED: AtomicU64 = AtomicU64::new(0);

#[expect(clippy::unnecessary_wraps, reason = "the real source of randomness may fail")]
fn due_seed() -> Result<u128, EngineError> {
    Ok(u128::from(NEXT_DUE_SEED.fetch_add(1, Ordering::SeqCst)) << 64)
}

async fn run_case(system: &str, seed: u64, totals: &mut CaseTotals) {
    NEXT_DUE_SEED.store(seed, Ordering::SeqCst);
    let store = MemoryStore::new(Clock::manual(Time::from_secs(0)));
    let catalog =
        store.put_lifecycles(&InputFiles { files: systems::source_files(system) }).await.expect("the system compiles");
    let definitions = &catalog.definitions;
    let mut simulation = Simulation::new(definitions.clone(), true, seed);
    assert!(simulation.run_operations(OPERATIONS_PER_CASE, &mut []).is_ok());
    let mut rng = Rng::new(!seed);
    // The engine must find due records itself, or they are submitted as well.
    let includes_due = rng.percent(50);
    let log = simulation
        .log
        .into_iter()
        .filter(|(operation, _)| includes_due || !matches!(operation.call, Call::FireDue { .. }));
    let mut world = Snapshot::empty_complete();
    for (operations, now) in split_into_batches(log.collect(), &mut rng) {
        let groups: Vec<u64> = operations.iter().map(|_| u64::from(rng.percent(50))).collect();
        let submitted = operations.len();
        let requests: Vec<QueuedOperation> = operations
            .into_iter()
            .zip(&groups)
            .map(|(operation, group)| QueuedOperation::for_test(operation, *group))
            .collect();
        let (_, decided) = decide_batch(&store, Arc::clone(&catalog), &requests, RetryHints::default(), now, due_seed)
            .await
            .expect("decided");
        let DecidedBatch { read_set: base, writes, replies, checks: checks_needed, .. } = decided;
        assert_eq!(
            replies.iter().flatten().count() + checks_needed.len(),
            submitted,
            "each operation has an outcome or needs a check"
        );
        totals.batches += 1;
        totals.operations += submitted;
        totals.due += writes.len() + checks_needed.len() - submitted;
        totals.checks += checks_needed.len();
        for group in [0, 1] {
            let own = |operation: &Operation| {
                requests.iter().position(|request| request.group == group && request.operation == *operation)
            };
            let order: Vec<usize> = writes.iter().filter_map(|write| own(&write.operation)).collect();
            assert!(order.is_sorted(), "one call's operations are decided in order");
        }
        for write in &writes {
            // A due operation may have a later time than the batch, if its record was logged later.
            let decided_at = match &write.outcome {
                OperationOutcome::Changes(changes) => changes.now.max(now),
                _ => now,
            };
            let decision = decide(definitions, &world, &write.operation, decided_at);
            assert_eq!(describe_write(write), describe_decision(&decision), "{:?}", write.operation);
            if let Decision::Changes(changes) = &decision {
                world.apply(changes);
            }
        }
        let batch = Batch { operations: writes, decided_at: now, catalog_revision: catalog.revision() };
        let save = store.save(&Arc::new(base), &Arc::new(batch)).await.expect("saved");
        assert!(matches!(save, SaveResult::Saved { .. }), "no other writer conflicts: {save:?}");
    }
}

#[test]
fn batch_decisions_equal_sequential_decisions() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut totals = CaseTotals::default();
    for system in ["execution", "document", "image", "relay"] {
        for seed in theme_seeds(system, 8) {
            println!("{system}: ONCEWARD_SEED={seed}");
            runtime.block_on(run_case(system, seed, &mut totals));
        }
    }
    println!("{totals:?}");
    assert!(totals.batches < totals.operations && totals.due > 0, "{totals:?}");
}

/// A record id that the caller names is loaded.
#[test]
fn generated_record_id_is_not_loaded() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let store = MemoryStore::new(Clock::manual(Time::from_secs(0)));
        let files = InputFiles { files: systems::source_files("execution") };
        let catalog = store.put_lifecycles(&files).await.expect("the system compiles");
        for (id, load_rounds) in [(None, 0), (Some(RecordId(uuid::Uuid::from_u128(7 << 76 | 2 << 62))), 1)] {
            let fields = Map::new();
            let create = CreateRecord { lifecycle: "execution.job".into(), id, owner: None, fields, payload: None };
            let call = Call::Create(create);
            let operation = Operation { seed: 1, actor: user("ann"), call, check_answers: Vec::new(), trace: None };
            let (request, now) = (QueuedOperation::for_test(operation, 0), Time::from_secs(0));
            let decided =
                decide_batch(&store, Arc::clone(&catalog), &[request], RetryHints::default(), now, due_seed).await;
            let (_, decided) = decided.expect("decided");
            assert!(matches!(decided.writes[0].outcome, OperationOutcome::Changes(_)), "{:?}", decided.writes);
            assert_eq!(decided.load_rounds, load_rounds);
        }
    });
}
