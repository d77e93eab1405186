//! Evaluates typed expressions.
//!
//! Values are borrowed from the record, the environment and the tree where possible, so that a guard such as
//! `record.failures + 1 >= record.budget` allocates nothing.

mod evaluator;
mod functions;
mod operators;
mod paths;

pub(super) use evaluator::Evaluator;
