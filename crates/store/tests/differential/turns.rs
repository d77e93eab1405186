//! A case: operations in batches, and what goes wrong with saving them. Played on every store beside a whole world that is decided on one
//! by one; what differs is told, not asserted, so that a case that fails can be made shorter.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use onceward_core::decide::{Decision, Operation, Snapshot, decide};
use onceward_core::time::Time;
use onceward_store::{AnyStore, Base, Save, Store as _};
use onceward_testkit::random::{self, Chance};

use crate::stage::driver::{Driver, Open};
use crate::{Stores, everything, outline, replayed, without_expiries};

/// Longer than any save takes.
const LONG: Duration = Duration::from_secs(30);

/// Attempts at a batch that comes after one whose answer nobody waited for: what a store remembers may still be from before.
const ATTEMPTS: usize = 20;

/// What goes wrong with saving a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    /// Somebody else does the same as its first operation after it was decided and before it is saved. Where that is a conflict it is
    /// decided again.
    Beaten,
    /// It is saved, and nobody hears of it: who asked goes away, comes again, and asks for all of it once more.
    Lost,
}

/// One operation, and the batch that it is in; steps of one batch stand together.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) batch: usize,
    pub(crate) trouble: Trouble,
    /// All that can be asked of the stores is asked afterwards.
    pub(crate) look: bool,
    pub(crate) operation: Operation,
    pub(crate) now: Time,
}

/// Batches of random sizes, one in five in trouble.
pub(crate) fn steps(operations: Vec<(Operation, Time)>, seed: u64) -> Vec<Step> {
    let mut chance = Chance::new(!seed);
    let (mut batch, mut left, mut trouble, mut look) = (0, 0, Trouble::None, false);
    let mut step = |(operation, now)| {
        if left == 0 {
            (batch, left, look) = (batch + 1, 1 + chance.below(9), chance.yes(20));
            trouble = match chance.below(10) {
                0 => Trouble::Beaten,
                1 => Trouble::Lost,
                _ => Trouble::None,
            };
        }
        left -= 1;
        Step { batch, trouble, look, operation, now }
    };
    operations.into_iter().map(&mut step).collect()
}

type Timed = (Operation, Time);

/// The same asked anew, as an engine gives it a seed of its own.
fn again((operation, now): &Timed) -> Timed {
    let seed = operation.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    (Operation { seed, ..operation.clone() }, *now)
}

/// A world that is all in one hand.
struct Whole {
    world: Snapshot,
    latest: Time,
}

impl Whole {
    fn decide(&mut self, stores: &Stores, operations: &[Timed]) -> Vec<Decision> {
        let one = |(operation, now): &Timed| {
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

/// What a store decides must be what was decided on the whole. What it remembers may be from before a save of which nobody heard: a save
/// would find that out, and an engine asks again, as here, without resting on memory.
async fn decided(
    driver: &Driver<'_, AnyStore>,
    operations: &[Timed],
    expected: &[Decision],
    place: &str,
) -> Result<Open, String> {
    let mut open = driver.open(operations[0].1);
    let mut differs = decided_on(&mut open, driver, operations, expected, place).await;
    if differs.is_err() && open.base.is_remembered() {
        open = Open { base: Base::wary(), ..driver.open(operations[0].1) };
        differs = decided_on(&mut open, driver, operations, expected, place).await;
    }
    differs.map(|()| open)
}

async fn decided_on(
    open: &mut Open,
    driver: &Driver<'_, AnyStore>,
    operations: &[Timed],
    expected: &[Decision],
    place: &str,
) -> Result<(), String> {
    for ((operation, now), expected) in operations.iter().zip(expected) {
        let said = outline(&driver.decide(open, operation.clone(), *now).await);
        same(&outline(expected), &said, &format!("{place}, {operation:?}"))?;
    }
    Ok(())
}

fn same(left: &str, right: &str, what: &str) -> Result<(), String> {
    if left == right {
        return Ok(());
    }
    let differ = left.lines().zip(right.lines()).find(|(left, right)| left != right).unwrap_or((left, right));
    Err(format!("{what}:\n  {}\n  {}", differ.0, differ.1))
}

/// Decide a batch and save it.
async fn saved(stores: &Stores, at: usize, operations: &[Timed], expected: &[Decision]) -> Result<(), String> {
    let (place, store) = stores.get(at);
    for _ in 0..ATTEMPTS {
        let driver = Driver::new(store).await;
        let open = decided(&driver, operations, expected, place).await?;
        if matches!(stores.save(at, &driver, &open).await, Save::Saved { .. }) {
            return Ok(());
        }
    }
    Err(format!("{place}: nobody else is here, yet it is a conflict again and again"))
}

/// Save it and go away before it is answered. Whatever it leaves in the log is there when this is done.
async fn lost(stores: &Stores, at: usize, open: &Open, until: &mut Option<u64>) -> Result<(), String> {
    let (place, store) = stores.get(at);
    let last = async || store.last().await.expect("reading");
    let (base, batch) = (Arc::new(open.base.clone()), Arc::new(open.batch.clone()));
    let before = last().await;
    // Where nothing is logged nobody could see when it is done. Memory, the first, is done at once.
    if until.is_some_and(|until| until == before) {
        let driver = Driver::new(store).await;
        stores.save(at, &driver, open).await;
        return Ok(());
    }
    let mut save = Box::pin(store.save(&base, &batch));
    let _ = std::future::poll_fn(|context| Poll::Ready(save.as_mut().poll(context))).await;
    drop(save);
    let Some(until) = *until else {
        *until = Some(last().await);
        return Ok(());
    };
    let landed = async {
        while last().await < until {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, landed).await.map_err(|_| format!("{place}: what nobody waited for was not done"))
}

/// One batch on all stores.
async fn turn(stores: &Stores, whole: &mut Whole, operations: &[Timed], trouble: Trouble) -> Result<(), String> {
    let repeated: Vec<Timed> = operations.iter().map(again).collect();
    let before = whole.world.clone();
    let expected = whole.decide(stores, operations);
    match trouble {
        Trouble::None => {
            for at in stores.places() {
                saved(stores, at, operations, &expected).await?;
            }
        }
        Trouble::Lost => {
            let mut until = None;
            for at in stores.places() {
                let (place, store) = stores.get(at);
                let open = decided(&Driver::new(store).await, operations, &expected, place).await?;
                lost(stores, at, &open, &mut until).await?;
            }
            let expected = whole.decide(stores, &repeated);
            for at in stores.places() {
                saved(stores, at, &repeated, &expected).await?;
            }
        }
        Trouble::Beaten => {
            whole.world = before;
            let rival = &repeated[..1];
            let first = whole.decide(stores, rival);
            let mut told = Vec::new();
            for at in stores.places() {
                let (place, store) = stores.get(at);
                let driver = Driver::new(store).await;
                let open = decided(&driver, operations, &expected, place).await?;
                saved(stores, at, rival, &first).await?;
                told.push(stores.save(at, &driver, &open).await);
            }
            for (at, save) in told.iter().enumerate() {
                same(&format!("{:?}", told[0]), &format!("{save:?}"), &format!("{}, beaten", stores.get(at).0))?;
            }
            if let Save::Saved { .. } = told[0] {
                for decision in &expected {
                    whole.apply(decision);
                }
            } else {
                let expected = whole.decide(stores, operations);
                for at in stores.places() {
                    saved(stores, at, operations, &expected).await?;
                }
            }
        }
    }
    Ok(())
}

/// All stores tell the same of all that can be asked.
async fn compared(stores: &Stores, now: Time) -> Result<(), String> {
    let memory = everything(stores.get(0).1, now).await;
    for at in stores.places().skip(1) {
        let (place, store) = stores.get(at);
        same(&memory, &everything(store, now).await, &format!("memory, then {place}"))?;
    }
    Ok(())
}

/// Play a case; what differs.
pub(crate) async fn attempt(stores: &Stores, steps: &[Step]) -> Result<(), String> {
    let mut whole = Whole { world: Snapshot::world(), latest: Time::MIN };
    for batch in steps.chunk_by(|one, next| one.batch == next.batch) {
        let operations: Vec<Timed> = batch.iter().map(|step| (step.operation.clone(), step.now)).collect();
        turn(stores, &mut whole, &operations, batch[0].trouble).await?;
        if batch[0].look {
            // Who stands in front of a work key is exact from the latest time on that was seen.
            compared(stores, whole.latest).await?;
        }
    }
    if steps.is_empty() {
        return Ok(());
    }
    compared(stores, whole.latest).await?;
    for at in stores.places() {
        let built = random::world(&without_expiries(&replayed(stores.get(at).1).await));
        same(&random::world(&without_expiries(&whole.world)), &built, "as decided, then built from the log")?;
    }
    Ok(())
}
