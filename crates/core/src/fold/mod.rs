//! The fold: what a log of operations that many nodes wrote comes to. For lifecycles with `clock = "operation"`.
//!
//! Nodes bring operations in any order, some twice, some late. The state is what [`decide`](crate::decide::decide) makes of
//! them one after another in the order of their clocks, and so it hangs on the set alone. One that comes late is put in its
//! place: what stands behind it is taken back and decided again. See docs/fold.md.

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
