//! Runs the benchmark over HTTP on loopback against a server process, next to an engine in this process.

mod blocking_connection;
mod http_connection;
mod reports;
mod server;

pub(crate) use blocking_connection::BlockingHttpConnection;
pub(crate) use reports::{idle_workers, jobs_over_http, run_drivers, single_creates, startup_time};
pub(crate) use server::MeasuredServer;
