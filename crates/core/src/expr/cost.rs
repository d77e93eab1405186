//! Bounds the cost of an evaluation before it runs, in steps.
//!
//! Each node costs a step, and so does each element that a list operator visits. The body of a comprehension costs its
//! steps for each element that its range may have. Sums saturate.

use crate::bounds;
use crate::model::{DataType, FieldBounds};

pub(super) fn saturating_sum(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}

pub(super) fn comprehension_cost(range: u64, max_items: u64, body: u64) -> u64 {
    saturating_sum([range, max_items.saturating_mul(body.saturating_add(1)), 1])
}

/// Returns the maximum number of elements of a field.
pub(super) fn max_items(ty: &DataType, bounds: &FieldBounds) -> u64 {
    match ty {
        DataType::List(_) => bounds.size.map_or(bounds::DEFAULT_MAX_LIST_ITEMS as u64, |(_, most)| most),
        _ => 0,
    }
}

/// Formats a cost for a message.
pub(super) fn format_cost(cost: u64) -> String {
    if cost == u64::MAX { "more than 10^19".to_owned() } else { cost.to_string() }
}
