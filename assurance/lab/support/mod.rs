//! The lab's test harness.

pub(crate) mod lab_engine;
mod postgres_server;
pub(crate) mod process;
pub(crate) mod store_checks;
pub(crate) mod worker_calls;
