//! Tests workers against a real server: exits of programs, killed workers, restarted servers.

mod client_commands;
mod exit_outcomes;
mod leases;
mod rust_worker;
mod shutdown;
mod support;
