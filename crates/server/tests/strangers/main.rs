//! One owner never sees or moves another's records: over every route that there is, what is foreign is answered like what is not there, byte for byte.

mod clashes;
#[path = "../house/mod.rs"]
mod house;
mod people;
mod records;
mod routes;
mod stream;
