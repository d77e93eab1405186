//! Decides a single operation.

use onceward_core::decide::{Decision, Operation, ReadKey, Snapshot, decide};
use onceward_core::model::Definitions;
use onceward_core::time::Time;
use onceward_store::{ReadSet, Store};

use crate::error::EngineError;

/// Loads what the operation needs until it is decided. Returns `None` if it needs more than `remaining_loads` loads.
/// After an error, the read set must not be used.
pub(crate) async fn load_until_decided<S: Store>(
    store: &S,
    definitions: &Definitions,
    read_set: &mut ReadSet,
    operation: &Operation,
    now: Time,
    remaining_loads: &mut usize,
) -> Result<Option<Decision>, EngineError> {
    loop {
        match decide(definitions, read_set.snapshot(), operation, now) {
            Decision::Missing(keys) if *remaining_loads > 0 => {
                *remaining_loads -= 1;
                store.load(read_set, &keys).await?;
            }
            Decision::Missing(_) => return Ok(None),
            decision => return Ok(Some(decision)),
        }
    }
}

/// Decides without stored data. A refusal is final: no stored data can change it.
pub(crate) fn decide_without_data(definitions: &Definitions, operation: &Operation, now: Time) -> Decision {
    let mut snapshot = Snapshot::default();
    loop {
        let decision = decide(definitions, &snapshot, operation, now);
        match &decision {
            // `decide` first asks whether the new record exists. If the actor may not create it, the call is refused in
            // either case.
            Decision::Missing(keys) if snapshot.records.is_empty() => {
                let [ReadKey::Record(new_record)] = keys[..] else { return decision };
                snapshot.records.insert(new_record, None);
            }
            _ => return decision,
        }
    }
}
