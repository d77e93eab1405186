//! What every store does, and no store does otherwise: each test runs on all of them.

#[path = "conformance/conflicts.rs"]
mod conflicts;
#[path = "conformance/constraints.rs"]
mod constraints;
#[path = "conformance/definitions.rs"]
mod definitions;
#[path = "conformance/kept.rs"]
mod kept;
#[path = "conformance/keys.rs"]
mod keys;
#[path = "conformance/log.rs"]
mod log;
#[path = "conformance/look_ups.rs"]
mod look_ups;
#[path = "conformance/moving.rs"]
mod moving;
#[path = "conformance/prune.rs"]
mod prune;
#[path = "conformance/sizes.rs"]
mod sizes;
#[path = "conformance/within_a_batch.rs"]
mod within_a_batch;
#[path = "conformance/work.rs"]
mod work;

mod stage;
