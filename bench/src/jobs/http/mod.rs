//! The same lives over HTTP on loopback, from this process to a server in another, beside the engine in this one.

mod blocking_connection;
mod http_connection;
mod reports;
mod server;

pub(crate) use blocking_connection::BlockingHttpConnection;
pub(crate) use reports::{idle_workers, jobs_over_http, run_drivers, single_creates, startup_time};
pub(crate) use server::MeasuredServer;
