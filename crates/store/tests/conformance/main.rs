//! Conformance tests: each test runs on every store.

mod api_keys;
mod batches;
mod conflicts;
mod constraints;
mod definitions;
mod leasing;
mod log;
mod lookups;
mod prune;
mod sizes;
mod stored_values;
mod version_migration;

#[path = "../support/mod.rs"]
mod support;
