//! `verify` finds what is wrong, and only that. `ONCEWARD_SEED=… cargo test -p onceward-engine --test verify` plays one seed again.

#[path = "../../store/tests/stage/mod.rs"]
mod stage;

#[path = "verify/built.rs"]
mod built;
#[path = "verify/clean.rs"]
mod clean;
#[path = "verify/copied.rs"]
mod copied;
#[path = "verify/flips.rs"]
mod flips;
#[path = "verify/flips_postgres.rs"]
mod flips_postgres;
#[path = "verify/forged.rs"]
mod forged;
#[path = "verify/harm.rs"]
mod harm;
#[path = "verify/live.rs"]
mod live;
#[path = "verify/many.rs"]
mod many;
#[path = "verify/many_machines.rs"]
mod many_machines;
#[path = "verify/pruned.rs"]
mod pruned;
#[path = "verify/schema.rs"]
mod schema;
#[path = "verify/upgraded.rs"]
mod upgraded;
#[path = "verify/wandered.rs"]
mod wandered;
