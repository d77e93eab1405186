//! An owner never sees or changes records of another: every route answers for a foreign record exactly as for a
//! missing one.

mod deliveries;
mod duplicates;
mod fixtures;
mod records;
mod routes;
mod stream;
#[path = "../support/mod.rs"]
mod support;
