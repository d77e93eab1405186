//! Objects in a folder and in a bucket of a real server: the same suite on both, and what can happen to a bucket besides.
//!
//! Apart from the engine's other tests: some of these start this program again, and a process that is just being started holds its
//! parent's files for a moment.

mod child_process;
mod gc;
mod round_trip;
mod storage_errors;
mod test_storage;

#[path = "../support/mod.rs"]
mod support;
