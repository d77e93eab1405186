//! Workers against a real server: programs that end in every way, workers that are killed, servers that come back.

mod endings;
mod leases;
mod rust;
mod shutdown;
mod stage;
mod verbs;
