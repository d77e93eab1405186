//! End-to-end tests of the server: the real binary, HTTP, both databases.

mod connections;
mod deliveries;
mod drain;
mod idle_workers;
mod job_lifecycle;
mod keys_after_prune;
mod malformed_requests;
mod object_storage;
mod read_endpoints;
mod retention;
mod server;
mod stream;
mod worker_api;
