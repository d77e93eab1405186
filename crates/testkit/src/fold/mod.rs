//! Folds in tests: nodes that author operations, random sets of them, and a plain second opinion of what they come to.

mod arrivals;
mod node;
mod reference;
mod sets;

pub use arrivals::{arrive_anyhow, compare};
pub use node::{at, id_of, node, with};
pub use reference::{Opinion, fold_plainly};
pub use sets::{Set, random_set};
