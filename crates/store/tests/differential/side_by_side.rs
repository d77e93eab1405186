//! Everybody moved to another version, and batches that are decided side by side: all stores find the same.

use std::sync::Arc;

use onceward_core::decide::{Call, Decision, Move, Operation, Snapshot, decide};
use onceward_core::diagnostic::Files;
use onceward_core::record::{Actor, Record};
use onceward_core::time::Time;
use onceward_store::{AnyStore, Save, Store as _};
use onceward_testkit::random::{self, Chance, seeds};

use crate::stage::driver::{Driver, Open};
use crate::stage::{later_suite, suite, system, wait};
use crate::{Running, Stores, everything, operations, outline, replayed, without_expiries};

/// Decide some operations as one batch on a store and save it; what was decided, as text.
async fn batch(store: &AnyStore, operations: &[(Operation, Time)]) -> Vec<String> {
    let driver = Driver::new(store).await;
    let mut open = driver.open(operations[0].1);
    let mut said = Vec::new();
    for (operation, now) in operations {
        said.push(outline(&driver.decide(&mut open, operation.clone(), *now).await));
    }
    let save = driver.save(&open).await;
    assert!(matches!(save, Save::Saved { .. }), "nobody else is here, yet: {save:?}");
    said
}

/// A world of one version, of which everybody is moved to another one, in batches of random sizes: some are refused, all stores agree
/// on whom, and work goes on.
async fn moved(seed: u64) -> (usize, usize) {
    let stores = Stores::new(&suite()).await.expect("sound files");
    let operations = operations(&stores.catalog, seed);
    let mut chance = Chance::new(seed ^ 0xaaaa);
    let mut world = Snapshot::world();
    let latest = operations.iter().map(|(_, time)| *time).max().expect("some operations");
    for chunk in operations.chunks(20) {
        for (operation, time) in chunk {
            if let Decision::Changes(changes) = decide(&stores.catalog.definitions, &world, operation, *time) {
                world.apply(&changes);
            }
        }
        for store in stores.all() {
            batch(store, chunk).await;
        }
    }
    let mut catalog = Arc::clone(&stores.catalog);
    for store in stores.all() {
        catalog = store.put_definitions(&later_suite()).await.expect("sound files");
    }
    let mut records: Vec<Arc<Record>> = world.records.values().flatten().cloned().collect();
    records.sort_unstable_by_key(|record| record.id);
    let ops = Actor::new("ops", &["operator"]);
    let mut moves = Vec::new();
    for (record, number) in records.iter().zip(1_u128..) {
        let to = Arc::clone(&catalog.definitions.get(&record.lifecycle.name).expect("it is known").hash);
        let states = [("waiting".into(), "queued".into())].into();
        let call = Call::Move(Move { record: record.id, to, states, ended: chance.yes(50) });
        moves.push((
            Operation { seed: number << 80, actor: ops.clone(), call, answers: Vec::new(), trace: None },
            latest,
        ));
    }
    let (mut taken, mut refused) = (0, 0);
    let mut left = &moves[..];
    while !left.is_empty() {
        let (now, rest) = left.split_at((1 + chance.below(9)).min(left.len()));
        left = rest;
        let mut expected = Vec::new();
        for (operation, time) in now {
            let decision = decide(&catalog.definitions, &world, operation, *time);
            match &decision {
                Decision::Changes(changes) => {
                    taken += 1;
                    world.apply(changes);
                }
                _ => refused += 1,
            }
            expected.push(outline(&decision));
        }
        for store in stores.all() {
            assert_eq!(batch(store, now).await, expected);
        }
    }
    let memory = everything(&stores.memory, latest).await;
    for (name, store) in &stores.others {
        let other = everything(store, latest).await;
        for (memory, other) in memory.lines().zip(other.lines()) {
            assert_eq!(memory, other, "memory, then {name}");
        }
        assert_eq!(stores.memory.counts_by_version().await.unwrap(), store.counts_by_version().await.unwrap());
    }
    for store in stores.all() {
        let built = random::world(&without_expiries(&replayed(store).await));
        assert_eq!(built, random::world(&without_expiries(&world)), "built from the log, then as decided");
    }
    (taken, refused)
}

#[test]
fn moves() {
    let (mut taken, mut refused) = (0, 0);
    for seed in seeds("moves", 10) {
        let _running = Running(seed);
        let found = wait(moved(seed));
        taken += found.0;
        refused += found.1;
    }
    println!("moves: {taken} taken, {refused} not");
    assert!(taken > 0 && refused > 0);
}

/// Batches that are decided side by side and saved one after the other: all stores find the same conflicts in them.
async fn raced(files: &Files, seed: u64) -> (usize, usize) {
    let stores = Stores::new(files).await.expect("sound files");
    let operations = operations(&stores.catalog, seed);
    let mut chance = Chance::new(seed ^ 0xffff);
    let (mut conflicts, mut saved) = (0, 0);
    let mut left = &operations[..];
    while !left.is_empty() {
        let size = 1 + chance.below(3);
        let mut outcomes = Vec::new();
        for store in stores.all() {
            let driver = Driver::new(store).await;
            let mut open: Vec<Open> = Vec::new();
            for chunk in left.chunks(size).take(3) {
                let mut one = driver.open(chunk[0].1);
                for (operation, now) in chunk {
                    driver.decide(&mut one, operation.clone(), *now).await;
                }
                open.push(one);
            }
            let mut said = Vec::new();
            for one in &open {
                said.push(driver.save(one).await);
            }
            outcomes.push(said);
        }
        for (outcome, (name, _)) in outcomes[1..].iter().zip(&stores.others) {
            assert_eq!(&outcomes[0], outcome, "memory, then {name}");
        }
        conflicts += outcomes[0].iter().filter(|save| matches!(save, Save::Conflict(_))).count();
        saved += outcomes[0].iter().filter(|save| matches!(save, Save::Saved { .. })).count();
        left = &left[(3 * size).min(left.len())..];
    }
    let time = operations.iter().map(|(_, time)| *time).max().expect("some operations");
    let memory = everything(&stores.memory, time).await;
    for (name, store) in &stores.others {
        assert_eq!(memory, everything(store, time).await, "memory, then {name}");
        replayed(store).await;
    }
    (conflicts, saved)
}

#[test]
fn races() {
    let (mut conflicts, mut saved) = (0, 0);
    for seed in seeds("races", 12) {
        let _running = Running(seed);
        for files in [suite(), system("image")] {
            let found = wait(raced(&files, seed));
            conflicts += found.0;
            saved += found.1;
        }
    }
    println!("races: {conflicts} conflicts, {saved} batches saved");
    assert!(conflicts > 0 && saved > 0);
}
