//! The baseline: writes the rows of a job's life through the bare driver.
//!
//! Uses the same tables, batches and settings with prepared statements, but decides nothing, hashes nothing and builds
//! no JSON.

mod pipelined_connection;
mod postgres;
mod sqlite;

use std::error::Error;

pub(crate) use postgres::PostgresBaseline;
pub(crate) use sqlite::SqliteBaseline;

/// A baseline on one database.
pub(crate) trait Baseline {
    /// Runs `count` jobs from create to finish, in batches of `batch` operations.
    fn run_jobs(&mut self, count: i64, batch: i64) -> Result<(), Box<dyn Error>>;

    /// Creates and leases a job in one transaction, as the engine's sync match does. Returns false if not implemented.
    fn create_leased(&mut self) -> Result<bool, Box<dyn Error>> {
        Ok(false)
    }

    /// Commits and finishes that job.
    fn commit_leased(&mut self) -> Result<(), Box<dyn Error>> {
        Ok(())
    }

    /// Returns statements sent and round trips, if the database is a server.
    fn wire_counts(&self) -> Option<(u64, u64)> {
        None
    }
}

/// Parts of the writes that can be left out to measure their cost.
pub(crate) type BaselineParts = &'static [(&'static str, &'static str)];

/// Times increase with the row, as ids do.
const fn row_time(row: i64) -> i64 {
    1_800_000_000_000_000 + row
}

/// Resembles a UUIDv7: ordered by its milliseconds, which a few hundred jobs share, and random otherwise.
fn row_id(row: i64) -> [u8; 16] {
    let mut bytes = row_hash(row);
    bytes[..8].copy_from_slice(&(row / 300).to_be_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&bytes[..16]);
    id
}

/// Returns bytes that look like a hash but are cheap to compute.
fn row_hash(row: i64) -> [u8; 32] {
    let mut bytes = [0; 32];
    let mut state = row.cast_unsigned();
    for eight in bytes.chunks_exact_mut(8) {
        state = (state ^ (state >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0xd1b5_4a32_d192_ed03);
        eight.copy_from_slice(&state.to_be_bytes());
    }
    bytes
}
