//! Cases: operations in batches with injected faults. They run on every store and on a complete snapshot. Differences
//! are returned, not asserted, so that a failing case can be shrunk.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use onceward_core::decide::{Decision, Operation, Snapshot, decide};
use onceward_core::time::Time;
use onceward_store::{AnyStore, ReadSet, SaveResult, Store as _};
use onceward_testkit::random::{self, Rng};

use crate::support::driver::{DriverBatch, StoreDriver};
use crate::{ComparedStores, describe_decision, dump_store, replay_log, without_expiries};

/// Longer than any save takes.
const SAVE_TIMEOUT: Duration = Duration::from_secs(30);

/// After a lost reply, the cache can be stale, so the next batch may need several attempts.
const MAX_SAVE_ATTEMPTS: usize = 20;

/// A fault injected into the save of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InjectedFault {
    None,
    /// Another caller repeats the first operation between decision and save. After a conflict, the batch is decided
    /// again.
    ConcurrentDuplicate,
    /// The batch is saved but the caller gets no reply, and sends all operations again.
    LostReply,
}

/// An operation and its batch; steps of one batch are adjacent.
#[derive(Clone, Debug)]
pub(crate) struct CaseStep {
    pub(crate) batch: usize,
    pub(crate) fault: InjectedFault,
    /// Whether to compare all stores afterwards.
    pub(crate) compare_after: bool,
    pub(crate) operation: Operation,
    pub(crate) now: Time,
}

/// Creates batches of random size, one in five with a fault.
pub(crate) fn random_steps(operations: Vec<(Operation, Time)>, seed: u64) -> Vec<CaseStep> {
    let mut rng = Rng::new(!seed);
    let (mut batch, mut remaining, mut fault, mut compare_after) = (0, 0, InjectedFault::None, false);
    let mut step = |(operation, now)| {
        if remaining == 0 {
            (batch, remaining, compare_after) = (batch + 1, 1 + rng.below(9), rng.percent(20));
            fault = match rng.below(10) {
                0 => InjectedFault::ConcurrentDuplicate,
                1 => InjectedFault::LostReply,
                _ => InjectedFault::None,
            };
        }
        remaining -= 1;
        CaseStep { batch, fault, compare_after, operation, now }
    };
    operations.into_iter().map(&mut step).collect()
}

type TimedOperation = (Operation, Time);

/// Returns the same call with a new seed, as the engine assigns one for a repeated call.
fn with_new_seed((operation, now): &TimedOperation) -> TimedOperation {
    let seed = operation.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    (Operation { seed, ..operation.clone() }, *now)
}

/// The complete snapshot on which each operation is decided alone.
struct ReferenceWorld {
    world: Snapshot,
    latest: Time,
}

impl ReferenceWorld {
    fn decide(&mut self, stores: &ComparedStores, operations: &[TimedOperation]) -> Vec<Decision> {
        let one = |(operation, now): &TimedOperation| {
            let decision = decide(&stores.catalog.definitions, &self.world, operation, *now);
            self.latest = self.latest.max(*now);
            self.apply(&decision);
            decision
        };
        operations.iter().map(one).collect()
    }

    fn apply(&mut self, decision: &Decision) {
        if let Decision::Changes(changes) = decision {
            self.latest = self.latest.max(changes.now);
            self.world.apply(changes);
        }
    }
}

/// Compares a store's decisions with those on the complete snapshot. The cache can be stale after a lost reply. A save
/// would detect that, and an engine would decide again without the cache, as this function does.
async fn decide_and_compare(
    driver: &StoreDriver<'_, AnyStore>,
    operations: &[TimedOperation],
    expected: &[Decision],
    store_name: &str,
) -> Result<DriverBatch, String> {
    let mut open = driver.new_batch(operations[0].1);
    let mut differs = decide_each(&mut open, driver, operations, expected, store_name).await;
    if differs.is_err() && open.read_set.used_cache() {
        open = DriverBatch { read_set: ReadSet::uncached(), ..driver.new_batch(operations[0].1) };
        differs = decide_each(&mut open, driver, operations, expected, store_name).await;
    }
    differs.map(|()| open)
}

async fn decide_each(
    pending: &mut DriverBatch,
    driver: &StoreDriver<'_, AnyStore>,
    operations: &[TimedOperation],
    expected: &[Decision],
    store_name: &str,
) -> Result<(), String> {
    for ((operation, now), expected) in operations.iter().zip(expected) {
        let outline_text = describe_decision(&driver.decide(pending, operation.clone(), *now).await);
        compare_text(&describe_decision(expected), &outline_text, &format!("{store_name}, {operation:?}"))?;
    }
    Ok(())
}

fn compare_text(left: &str, right: &str, subject: &str) -> Result<(), String> {
    if left == right {
        return Ok(());
    }
    let differ = left.lines().zip(right.lines()).find(|(left, right)| left != right).unwrap_or((left, right));
    Err(format!("{subject}:\n  {}\n  {}", differ.0, differ.1))
}

/// Decides a batch and saves it.
async fn save_with_retries(
    stores: &ComparedStores,
    index: usize,
    operations: &[TimedOperation],
    expected: &[Decision],
) -> Result<(), String> {
    let (store_name, store) = stores.named_store(index);
    for _ in 0..MAX_SAVE_ATTEMPTS {
        let driver = StoreDriver::new(store).await;
        let open = decide_and_compare(&driver, operations, expected, store_name).await?;
        if matches!(stores.save(index, &driver, &open).await, SaveResult::Saved { .. }) {
            return Ok(());
        }
    }
    Err(format!("{store_name}: saves keep conflicting without another writer"))
}

/// Starts a save, drops it without waiting for the reply, and waits until its entries are in the log.
async fn save_without_reply(
    stores: &ComparedStores,
    index: usize,
    pending: &DriverBatch,
    expected_seq: &mut Option<u64>,
) -> Result<(), String> {
    let (store_name, store) = stores.named_store(index);
    let last_seq = async || store.last_seq().await.expect("reading");
    let (base, batch) = (Arc::new(pending.read_set.clone()), Arc::new(pending.batch.clone()));
    let before = last_seq().await;
    // Without a log entry, the end of the save is not observable. The memory store completes at once.
    if expected_seq.is_some_and(|until| until == before) {
        let driver = StoreDriver::new(store).await;
        stores.save(index, &driver, pending).await;
        return Ok(());
    }
    let mut save = Box::pin(store.save(&base, &batch));
    let _ = std::future::poll_fn(|context| Poll::Ready(save.as_mut().poll(context))).await;
    drop(save);
    let Some(target_seq) = *expected_seq else {
        *expected_seq = Some(last_seq().await);
        return Ok(());
    };
    let reached_seq = async {
        while last_seq().await < target_seq {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SAVE_TIMEOUT, reached_seq)
        .await
        .map_err(|_| format!("{store_name}: a save whose caller was dropped did not complete"))
}

/// Runs one batch on all stores.
async fn run_batch(
    stores: &ComparedStores,
    reference: &mut ReferenceWorld,
    operations: &[TimedOperation],
    fault: InjectedFault,
) -> Result<(), String> {
    let repeated: Vec<TimedOperation> = operations.iter().map(with_new_seed).collect();
    let before = reference.world.clone();
    let expected = reference.decide(stores, operations);
    match fault {
        InjectedFault::None => {
            for at in stores.indexes() {
                save_with_retries(stores, at, operations, &expected).await?;
            }
        }
        InjectedFault::LostReply => {
            let mut expected_seq = None;
            for at in stores.indexes() {
                let (store_name, store) = stores.named_store(at);
                let open =
                    decide_and_compare(&StoreDriver::new(store).await, operations, &expected, store_name).await?;
                save_without_reply(stores, at, &open, &mut expected_seq).await?;
            }
            let expected = reference.decide(stores, &repeated);
            for at in stores.indexes() {
                save_with_retries(stores, at, &repeated, &expected).await?;
            }
        }
        InjectedFault::ConcurrentDuplicate => {
            reference.world = before;
            let rival = &repeated[..1];
            let first = reference.decide(stores, rival);
            let mut save_results = Vec::new();
            for at in stores.indexes() {
                let (store_name, store) = stores.named_store(at);
                let driver = StoreDriver::new(store).await;
                let open = decide_and_compare(&driver, operations, &expected, store_name).await?;
                save_with_retries(stores, at, rival, &first).await?;
                save_results.push(stores.save(at, &driver, &open).await);
            }
            for (at, save) in save_results.iter().enumerate() {
                compare_text(
                    &format!("{:?}", save_results[0]),
                    &format!("{save:?}"),
                    &format!("{}, after a concurrent write", stores.named_store(at).0),
                )?;
            }
            if let SaveResult::Saved { .. } = save_results[0] {
                for decision in &expected {
                    reference.apply(decision);
                }
            } else {
                let expected = reference.decide(stores, operations);
                for at in stores.indexes() {
                    save_with_retries(stores, at, operations, &expected).await?;
                }
            }
        }
    }
    Ok(())
}

/// Compares the query results of all stores.
async fn compare_stores(stores: &ComparedStores, now: Time) -> Result<(), String> {
    let memory = dump_store(stores.named_store(0).1, now).await;
    for index in stores.indexes().skip(1) {
        let (store_name, store) = stores.named_store(index);
        compare_text(
            &memory,
            &dump_store(store, now).await,
            &format!("memory (left) and {store_name} (right) differ"),
        )?;
    }
    Ok(())
}

/// Runs a case and returns the first difference.
pub(crate) async fn run_steps(stores: &ComparedStores, steps: &[CaseStep]) -> Result<(), String> {
    let mut reference = ReferenceWorld { world: Snapshot::empty_complete(), latest: Time::MIN };
    for batch in steps.chunk_by(|one, next| one.batch == next.batch) {
        let operations: Vec<TimedOperation> = batch.iter().map(|step| (step.operation.clone(), step.now)).collect();
        run_batch(stores, &mut reference, &operations, batch[0].fault).await?;
        if batch[0].compare_after {
            // The fronts of lanes are exact only from the latest time seen.
            compare_stores(stores, reference.latest).await?;
        }
    }
    if steps.is_empty() {
        return Ok(());
    }
    compare_stores(stores, reference.latest).await?;
    for index in stores.indexes() {
        let replayed_world = random::world_text(&without_expiries(&replay_log(stores.named_store(index).1).await));
        compare_text(
            &random::world_text(&without_expiries(&reference.world)),
            &replayed_world,
            "decided (left) and replayed from the log (right) differ",
        )?;
    }
    Ok(())
}
