//! Delivers a set of operations to a fold in random orders.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceward_core::fold::{Authority, CheckResolver, Fold, FoldLimits, LogOperation, OperationId};
use onceward_core::model::Definitions;

use super::operation_sets::{OperationSetSpec, random_authority};
use super::reference::{ReferenceFold, reference_fold};
use crate::random::{Rng, world_text};

/// Inserts the set in a random order, with duplicates and in random portions, while authority changes. After each
/// portion, the fold must equal the reference fold of the operations so far.
pub fn fold_in_random_order(
    set: &OperationSetSpec,
    definitions: &Arc<Definitions>,
    operations: &[(LogOperation, Authority)],
    resolver: &dyn CheckResolver,
    rng: &mut Rng,
) -> Fold {
    // In some cases there are too few images.
    let images = [usize::MAX, 40, 3, 0][rng.below(4)];
    let bounds = FoldLimits { max_before_image_records: images, ..FoldLimits::default() };
    let mut fold = Fold::new(Arc::clone(definitions), bounds).expect("foldable lifecycles");
    let mut order: Vec<&(LogOperation, Authority)> = operations.iter().collect();
    let duplicates: Vec<_> = operations.iter().filter(|_| rng.percent(20)).collect();
    order.extend(duplicates);
    shuffle(&mut order, rng);

    let mut arrived: BTreeMap<OperationId, (LogOperation, Authority)> = BTreeMap::new();
    let mut remaining = order.as_slice();
    while !remaining.is_empty() {
        let portion = match rng.below(3) {
            0 => 1,
            1 => 1 + rng.below(4),
            _ => 1 + rng.below(remaining.len()),
        };
        let (now, later) = remaining.split_at(portion.min(remaining.len()));
        remaining = later;
        let mut inserted = Vec::new();
        for (operation, last) in now {
            // Many operations first arrive with another authority than their final one.
            let first = if rng.percent(30) { random_authority(set, rng) } else { last.clone() };
            arrived.entry(operation.id).or_insert_with(|| (operation.clone(), first.clone()));
            inserted.push((operation.clone(), first));
        }
        fold.insert(resolver, inserted).expect("the log has room for all");
        if rng.percent(30) {
            let mut changed = Vec::new();
            for (operation, current) in arrived.values_mut() {
                if rng.percent(15) {
                    *current = random_authority(set, rng);
                    changed.push((operation.id, current.clone()));
                }
            }
            fold.reevaluate(resolver, changed).expect("all operations are on the log");
        }
        if rng.percent(15) {
            let present: Vec<_> = arrived.values().cloned().collect();
            assert_matches_reference(&fold, &reference_fold(definitions, &present, resolver));
        }
    }
    // In the end, each operation has its final authority.
    let mut last: Vec<_> = operations.iter().map(|(operation, standing)| (operation.id, standing.clone())).collect();
    shuffle(&mut last, rng);
    for portion in last.chunks(1 + rng.below(last.len())) {
        fold.reevaluate(resolver, portion.to_vec()).expect("all operations are on the log");
    }
    assert_matches_reference(&fold, &reference_fold(definitions, operations, resolver));
    fold
}

/// Asserts that the fold equals the reference: every record with its fields, version and times, every key, and the
/// status of every operation.
pub fn assert_matches_reference(fold: &Fold, reference: &ReferenceFold) {
    for (operation, _, applied) in fold.operations() {
        assert_eq!(Some(applied), reference.statuses.get(&operation.id), "the status of {operation:?}");
    }
    assert_eq!(fold.len(), reference.statuses.len(), "operations on the log");
    assert_eq!(world_text(fold.snapshot()), world_text(&reference.world), "the state");
}

fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for index in (1..items.len()).rev() {
        items.swap(index, rng.below(index + 1));
    }
}
