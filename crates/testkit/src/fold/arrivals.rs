//! One set of operations, arriving in one of very many ways.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceward_core::fold::{Bounds, Fold, LogOperation, OperationId, Outside, Standing};
use onceward_core::model::Definitions;

use super::reference::{Opinion, fold_plainly};
use super::sets::{Set, standing};
use crate::random::{Chance, world};

/// Bring the set in a random order, with duplicates, in random portions; authority comes and goes meanwhile. What has
/// come of it must at every look be what the plain fold of what is there comes to.
pub fn arrive_anyhow(
    set: &Set,
    definitions: &Arc<Definitions>,
    said: &[(LogOperation, Standing)],
    outside: &dyn Outside,
    chance: &mut Chance,
) -> Fold {
    // So few images that they run out, in some cases.
    let images = [usize::MAX, 40, 3, 0][chance.below(4)];
    let bounds = Bounds { images, ..Bounds::default() };
    let mut fold = Fold::new(Arc::clone(definitions), bounds).expect("lifecycles that can be folded");
    let mut order: Vec<&(LogOperation, Standing)> = said.iter().collect();
    let twice: Vec<_> = said.iter().filter(|_| chance.yes(20)).collect();
    order.extend(twice);
    shuffle(&mut order, chance);

    let mut here: BTreeMap<OperationId, (LogOperation, Standing)> = BTreeMap::new();
    let mut rest = order.as_slice();
    while !rest.is_empty() {
        let portion = match chance.below(3) {
            0 => 1,
            1 => 1 + chance.below(4),
            _ => 1 + chance.below(rest.len()),
        };
        let (now, later) = rest.split_at(portion.min(rest.len()));
        rest = later;
        let mut brought = Vec::new();
        for (operation, last) in now {
            // Many are first seen with another standing than they will have in the end.
            let first = if chance.yes(30) { standing(set, chance) } else { last.clone() };
            here.entry(operation.id).or_insert_with(|| (operation.clone(), first.clone()));
            brought.push((operation.clone(), first));
        }
        fold.insert(outside, brought).expect("room for all");
        if chance.yes(30) {
            let mut changed = Vec::new();
            for (operation, current) in here.values_mut() {
                if chance.yes(15) {
                    *current = standing(set, chance);
                    changed.push((operation.id, current.clone()));
                }
            }
            fold.rejudge(outside, changed).expect("all of them are on the log");
        }
        if chance.yes(15) {
            let present: Vec<_> = here.values().cloned().collect();
            compare(&fold, &fold_plainly(definitions, &present, outside));
        }
    }
    // In the end each has the standing that it has.
    let mut last: Vec<_> = said.iter().map(|(operation, standing)| (operation.id, standing.clone())).collect();
    shuffle(&mut last, chance);
    for portion in last.chunks(1 + chance.below(last.len())) {
        fold.rejudge(outside, portion.to_vec()).expect("all of them are on the log");
    }
    compare(&fold, &fold_plainly(definitions, said, outside));
    fold
}

/// The fold and the second opinion agree: on every record with its fields, version and times, on every key, and on what
/// became of every operation.
pub fn compare(fold: &Fold, opinion: &Opinion) {
    for (operation, _, applied) in fold.operations() {
        assert_eq!(Some(applied), opinion.applied.get(&operation.id), "the verdict on {operation:?}");
    }
    assert_eq!(fold.len(), opinion.applied.len(), "operations on the log");
    assert_eq!(world(fold.world()), world(&opinion.world), "the state");
}

fn shuffle<T>(items: &mut [T], chance: &mut Chance) {
    for at in (1..items.len()).rev() {
        items.swap(at, chance.below(at + 1));
    }
}
