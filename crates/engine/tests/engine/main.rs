//! The engine's guarantees, on every store.

mod api_keys;
mod clock_jumps;
mod delivery;
mod delivery_order;
mod error_logging;
mod guarantees;
mod idempotency;
mod in_process_worker;
mod limits;
mod lookups;
mod metrics;
mod object_storage;
mod prune;
mod queries;
mod races;
mod relay;
mod store_errors;
mod streams;
mod supervision;
mod sync_match;
mod timers;
mod version_migration;
mod worker_reports;

#[path = "../support/mod.rs"]
mod support;
