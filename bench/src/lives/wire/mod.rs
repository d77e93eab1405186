//! The same lives over HTTP on loopback, from this process to a server in another, beside the engine in this one.

mod client;
mod line;
mod reports;
mod server;

pub(crate) use line::Line;
pub(crate) use reports::{creates, drivers, idle, lives, ready};
pub(crate) use server::Server;
