//! The fold: what a log of operations that many nodes wrote comes to. For lifecycles with `clock = "operation"`.
//!
//! Nodes bring operations in any order, some twice, some late. The state is what [`decide`](crate::decide::decide) makes of
//! them one after another in the order of their clocks, and so it hangs on the set alone. One that comes late is put in its
//! place: what stands behind it is taken back and decided again. See docs/fold.md.

mod admit;
mod clock;
mod error;
mod image;
mod judge;
mod log;
mod operation;
mod replay;
mod standing;
mod state;
mod tie;
mod verdict;

pub use admit::Malformed;
pub use clock::Moment;
pub use error::FoldError;
pub use operation::{LogCall, LogOperation, OperationId};
pub use standing::{Grant, Outside, Standing};
pub use state::{Bounds, Fold, Receipt};
pub use verdict::{Admission, Applied, Reason, Verdict, Wait};
