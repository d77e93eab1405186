//! What the failure modes are played on.

pub(crate) mod books;
pub(crate) mod play;
pub(crate) mod process;
pub(crate) mod workers;
