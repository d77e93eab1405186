//! The value of a typed expression.
//!
//! Values are borrowed from the record, the environment and the tree wherever they can be, so that a guard such as
//! `record.failures + 1 >= record.budget` allocates nothing.

mod evaluator;
mod functions;
mod operators;
mod paths;

pub(super) use evaluator::Evaluator;
