//! Version migrations and concurrently decided batches give the same results on all stores.

use std::sync::Arc;

use onceward_core::decide::{Call, Decision, Operation, RecordMigration, Snapshot, decide};
use onceward_core::diagnostic::InputFiles;
use onceward_core::record::{Actor, Record};
use onceward_core::time::Time;
use onceward_store::{AnyStore, SaveResult, Store as _};
use onceward_testkit::random::{self, Rng, theme_seeds};

use crate::support::driver::{DriverBatch, StoreDriver};
use crate::support::{block_on, migrated_suite_files, suite_files, system_files};
use crate::{
    ComparedStores, SeedReporter, describe_decision, dump_store, random_operations, replay_log, without_expiries,
};

/// Decides operations as one batch, saves it, and returns the decisions as text.
async fn save_batch(store: &AnyStore, operations: &[(Operation, Time)]) -> Vec<String> {
    let driver = StoreDriver::new(store).await;
    let mut open = driver.new_batch(operations[0].1);
    let mut outlines = Vec::new();
    for (operation, now) in operations {
        outlines.push(describe_decision(&driver.decide(&mut open, operation.clone(), *now).await));
    }
    let save = driver.save(&open).await;
    assert!(matches!(save, SaveResult::Saved { .. }), "the save conflicts without another writer: {save:?}");
    outlines
}

/// Migrates all records to another version in batches of random size, then continues with more operations. All stores
/// must refuse the same records.
async fn run_migrations(seed: u64) -> (usize, usize) {
    let stores = ComparedStores::new(&suite_files()).await.expect("valid files");
    let operations = random_operations(&stores.catalog, seed);
    let mut rng = Rng::new(seed ^ 0xaaaa);
    let mut world = Snapshot::empty_complete();
    let latest = operations.iter().map(|(_, time)| *time).max().expect("some operations");
    for chunk in operations.chunks(20) {
        for (operation, time) in chunk {
            if let Decision::Changes(changes) = decide(&stores.catalog.definitions, &world, operation, *time) {
                world.apply(&changes);
            }
        }
        for store in stores.iter_stores() {
            save_batch(store, chunk).await;
        }
    }
    let mut catalog = Arc::clone(&stores.catalog);
    for store in stores.iter_stores() {
        catalog = store.put_lifecycles(&migrated_suite_files()).await.expect("valid files");
    }
    let mut records: Vec<Arc<Record>> = world.records.values().flatten().cloned().collect();
    records.sort_unstable_by_key(|record| record.id);
    let ops = Actor::new("ops", &["operator"]);
    let mut migrations = Vec::new();
    for (record, number) in records.iter().zip(1_u128..) {
        let to = Arc::clone(&catalog.definitions.get(&record.lifecycle.name).expect("the lifecycle exists").hash);
        let states = [("waiting".into(), "queued".into())].into();
        let call = Call::MigrateVersion(RecordMigration {
            record: record.id,
            target_hash: to,
            state_map: states,
            include_ended: rng.percent(50),
        });
        migrations.push((
            Operation { seed: number << 80, actor: ops.clone(), call, check_answers: Vec::new(), trace: None },
            latest,
        ));
    }
    let (mut taken, mut refused) = (0, 0);
    let mut remaining = &migrations[..];
    while !remaining.is_empty() {
        let (batch_operations, rest) = remaining.split_at((1 + rng.below(9)).min(remaining.len()));
        remaining = rest;
        let mut expected = Vec::new();
        for (operation, time) in batch_operations {
            let decision = decide(&catalog.definitions, &world, operation, *time);
            match &decision {
                Decision::Changes(changes) => {
                    taken += 1;
                    world.apply(changes);
                }
                _ => refused += 1,
            }
            expected.push(describe_decision(&decision));
        }
        for store in stores.iter_stores() {
            assert_eq!(save_batch(store, batch_operations).await, expected);
        }
    }
    let memory = dump_store(&stores.memory, latest).await;
    for (name, store) in &stores.others {
        let other = dump_store(store, latest).await;
        for (memory, other) in memory.lines().zip(other.lines()) {
            assert_eq!(memory, other, "memory (left) and {name} (right) differ");
        }
        assert_eq!(stores.memory.counts_by_version().await.unwrap(), store.counts_by_version().await.unwrap());
    }
    for store in stores.iter_stores() {
        let replayed_world = random::world_text(&without_expiries(&replay_log(store).await));
        assert_eq!(
            replayed_world,
            random::world_text(&without_expiries(&world)),
            "replayed from the log (left) and decided (right) differ"
        );
    }
    (taken, refused)
}

#[test]
fn stores_agree_on_version_migrations() {
    let (mut taken, mut refused) = (0, 0);
    for seed in theme_seeds("moves", 10) {
        let _seed_reporter = SeedReporter(seed);
        let found = block_on(run_migrations(seed));
        taken += found.0;
        refused += found.1;
    }
    println!("migrations: {taken} taken, {refused} refused");
    assert!(taken > 0 && refused > 0);
}

/// Decides batches concurrently and saves them one after another. All stores must report the same conflicts.
async fn run_conflicting_batches(files: &InputFiles, seed: u64) -> (usize, usize) {
    let stores = ComparedStores::new(files).await.expect("valid files");
    let operations = random_operations(&stores.catalog, seed);
    let mut rng = Rng::new(seed ^ 0xffff);
    let (mut conflicts, mut saved) = (0, 0);
    let mut remaining = &operations[..];
    while !remaining.is_empty() {
        let size = 1 + rng.below(3);
        let mut outcomes = Vec::new();
        for store in stores.iter_stores() {
            let driver = StoreDriver::new(store).await;
            let mut pending: Vec<DriverBatch> = Vec::new();
            for chunk in remaining.chunks(size).take(3) {
                let mut pending_batch = driver.new_batch(chunk[0].1);
                for (operation, now) in chunk {
                    driver.decide(&mut pending_batch, operation.clone(), *now).await;
                }
                pending.push(pending_batch);
            }
            let mut save_results = Vec::new();
            for one in &pending {
                save_results.push(driver.save(one).await);
            }
            outcomes.push(save_results);
        }
        for (outcome, (name, _)) in outcomes[1..].iter().zip(&stores.others) {
            assert_eq!(&outcomes[0], outcome, "memory (left) and {name} (right) differ");
        }
        conflicts += outcomes[0].iter().filter(|save| matches!(save, SaveResult::Conflict(_))).count();
        saved += outcomes[0].iter().filter(|save| matches!(save, SaveResult::Saved { .. })).count();
        remaining = &remaining[(3 * size).min(remaining.len())..];
    }
    let time = operations.iter().map(|(_, time)| *time).max().expect("some operations");
    let memory = dump_store(&stores.memory, time).await;
    for (name, store) in &stores.others {
        assert_eq!(memory, dump_store(store, time).await, "memory (left) and {name} (right) differ");
        replay_log(store).await;
    }
    (conflicts, saved)
}

#[test]
fn stores_agree_on_conflicts() {
    let (mut conflicts, mut saved) = (0, 0);
    for seed in theme_seeds("races", 12) {
        let _seed_reporter = SeedReporter(seed);
        for files in [suite_files(), system_files("image")] {
            let found = block_on(run_conflicting_batches(&files, seed));
            conflicts += found.0;
            saved += found.1;
        }
    }
    println!("races: {conflicts} conflicts, {saved} batches saved");
    assert!(conflicts > 0 && saved > 0);
}
