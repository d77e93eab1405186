//! One owner never sees or moves another's records: over every route that there is, what is foreign is answered like what is not there, byte for byte.

mod duplicates;
mod fixtures;
mod records;
mod routes;
mod stream;
#[path = "../support/mod.rs"]
mod support;
