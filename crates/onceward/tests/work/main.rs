//! Workers against a real server: programs that end in every way, workers that are killed, servers that come back.

mod client_commands;
mod exit_outcomes;
mod leases;
mod rust_worker;
mod shutdown;
mod support;
