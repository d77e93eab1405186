//! Object storage in a folder and in a bucket of a real server: one suite for both, and failures of a bucket.
//!
//! In a test binary of its own: some tests start this program again, and a process that is being spawned briefly holds
//! its parent's files.

mod child_process;
mod gc;
mod round_trip;
mod storage_errors;
mod test_storage;

#[path = "../support/mod.rs"]
mod support;
