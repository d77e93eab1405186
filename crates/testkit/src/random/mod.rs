//! Random lifecycles, random operations on them, and properties that must hold for all of them.
//!
//! Everything derives from one seed, which a failing test prints. `ONCEWARD_SEED=… cargo test -p onceward-core --test
//! properties_…` repeats that case, and `ONCEWARD_CASES=…` runs more cases than the gate does.

mod cases;
mod comparable_text;
mod lifecycle_generator;
mod operations;
mod partial_snapshot;
mod property;
mod random_walk;
mod rng;
mod simulation;
pub(crate) mod values;

pub use cases::{CasesReport, case_count, run_cases, theme_seeds};
pub use comparable_text::{changes_text, changes_text_without_ids, decision_text, record_text, world_text};
pub use lifecycle_generator::{GeneratorOptions, generate_lifecycles};
pub use partial_snapshot::{SnapshotLoader, decide_with_loader, snapshot_of_keys, with_reshuffled_maps};
pub use property::{
    BatchProperty, DeadTransitionProperty, DeterminismProperty, IndexProperty, LeaseProperty, LedgerProperty,
    LimitProperty, NullOperandProperty, OrphanProperty, PartialSnapshotProperty, Property, PropertyViolation,
    ReadSetProperty, RecordProgressProperty, RefusalProperty, SoundnessProperty, UndoProperty,
};
pub use random_walk::RandomWalk;
pub use rng::Rng;
pub use simulation::{DecisionStep, OperationCounts, OperationResult, Simulation, compile_definitions};
