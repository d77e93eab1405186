//! The same lives over HTTP on loopback, from this process to a server in another, beside the engine in this one.

mod client;
mod reports;
mod server;

pub(crate) use reports::{creates, idle, latency, lives, ready};
