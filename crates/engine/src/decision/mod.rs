//! The decision driver: loads what `decide` needs, fires due records first, and says when a batch is tried again.
//!
//! No other module of the engine calls `onceward_core::decide::decide`, except `verify`: a verifier must not share the
//! code that it verifies.

mod batch;
mod driver;
mod pass;
pub(crate) mod retry_policy;
mod seeds;

pub(crate) use batch::{DecidedBatch, ExtraOperation, ExtraOutcome, RetryHints, decide_batch, decide_extra};
pub(crate) use driver::{decide_without_data, load_until_decided};
pub(crate) use seeds::{assign_ordered_seeds, ordered_seed};
