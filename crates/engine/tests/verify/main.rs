//! `verify` reports damage, and nothing else. `ONCEWARD_SEED=… cargo test -p onceward-engine --test verify` repeats one
//! seed.

#[path = "../../../store/tests/support/mod.rs"]
mod support;

mod backup;
mod damaged_rows;
mod flipped_values;
mod flipped_values_postgres;
mod forged_log;
mod live_engine;
mod memory_use;
mod pruned_databases;
mod released_schemas;
mod scripted_systems;
mod sqlite_tables;
mod test_database;
mod undamaged;
mod undamaged_postgres;
