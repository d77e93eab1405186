//! Seeds that order the ids of a batch.

use crate::submission::queue::QueuedOperation;

/// Bits of a seed that form an id, and the random ones among them.
const ID_BITS: u32 = 74;
const RANDOM_BITS: u32 = 54;

/// Makes the ids of later operations larger. A batch has one time, and records of the same time are ordered by id; so
/// jobs keep the order in which callers created them. An operation with check answers keeps its seed: the queries may
/// contain an id. Deliveries do not need this: core orders them by record version.
pub(crate) fn assign_ordered_seeds(requests: &mut [QueuedOperation]) {
    for (index, request) in
        requests.iter_mut().enumerate().filter(|(_, request)| request.operation.check_answers.is_empty())
    {
        request.operation.seed = ordered_seed(request.operation.seed, index);
    }
}

/// Returns a seed for the operation at `index` of a batch.
pub(crate) fn ordered_seed(seed: u128, index: usize) -> u128 {
    let offset = u128::try_from(index).unwrap_or(u128::MAX) << RANDOM_BITS & ((1 << ID_BITS) - 1);
    seed & ((1 << RANDOM_BITS) - 1) | offset
}
