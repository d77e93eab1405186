//! What an evaluation may cost, counted in steps before it ever runs: one for each part of the tree, one for each
//! element a list operator looks at, and a comprehension's body once for each element its range may have. Sums stop
//! at the largest number instead of wrapping.

use crate::bounds;
use crate::model::{DataType, FieldBounds};

pub(super) fn saturating_sum(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}

pub(super) fn comprehension_cost(range: u64, max_items: u64, body: u64) -> u64 {
    saturating_sum([range, max_items.saturating_mul(body.saturating_add(1)), 1])
}

/// Elements a field may hold.
pub(super) fn max_items(ty: &DataType, bounds: &FieldBounds) -> u64 {
    match ty {
        DataType::List(_) => bounds.size.map_or(bounds::DEFAULT_MAX_LIST_ITEMS as u64, |(_, most)| most),
        _ => 0,
    }
}

/// A cost as a message shows it.
pub(super) fn format_cost(cost: u64) -> String {
    if cost == u64::MAX { "more than 10^19".to_owned() } else { cost.to_string() }
}
