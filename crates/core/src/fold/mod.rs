//! Folds a log of signed operations from many nodes into a state. For lifecycles with `clock = "operation"`.
//!
//! Nodes deliver operations in any order, some twice, some late. The fold applies [`decide`](crate::decide::decide) to
//! them in the order of their timestamps, so the state depends only on the set of operations. If an operation arrives
//! late, the fold rolls back everything after it and decides again. See docs/fold.md.

mod admission;
mod authority;
mod before_image;
mod clock;
mod contention;
mod eligibility;
mod error;
mod log;
mod operation;
mod replay;
mod state;
mod verdict;

pub use admission::AdmissionError;
pub use authority::{Authority, AuthorityGrant, CheckResolver};
pub use clock::HybridTimestamp;
pub use error::FoldError;
pub use operation::{LogCall, LogOperation, OperationId};
pub use state::{Fold, FoldLimits, FoldReceipt};
pub use verdict::{Admission, ApplyStatus, FoldRefusalReason, OperationVerdict, WaitReason};
