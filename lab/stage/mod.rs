//! What the failure modes are played on.

pub(crate) mod books;
pub(crate) mod play;
pub(crate) mod process;
mod server;
pub(crate) mod workers;
