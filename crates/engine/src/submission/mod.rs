//! Accepts operations into a bounded queue and rejects those over the size limits.

pub(crate) mod json_size;
pub(crate) mod limits;
pub(crate) mod queue;
pub(crate) mod reply;
