//! Test support for folds: operations of nodes, random sets of them, and a reference implementation.

mod arrival_orders;
mod operation_builder;
mod operation_sets;
mod reference;

pub use arrival_orders::{assert_matches_reference, fold_in_random_order};
pub use operation_builder::{authority_with, named_record_id, operation_by, timestamp_at};
pub use operation_sets::{OperationSetSpec, random_operation_set};
pub use reference::{ReferenceFold, reference_fold};
