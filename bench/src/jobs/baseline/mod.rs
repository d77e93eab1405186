//! The floor: the rows that a job's life leaves, written by a bare loop through the driver. The same tables, the same
//! batches, the same settings; prepared statements, nothing decided, nothing hashed, no JSON made.

mod pipelined_connection;
mod postgres;
mod sqlite;

use std::error::Error;

pub(crate) use postgres::PostgresBaseline;
pub(crate) use sqlite::SqliteBaseline;

/// A floor on one of the databases.
pub(crate) trait Baseline {
    /// So many lives, in batches of so many operations.
    fn run_jobs(&mut self, count: i64, batch: i64) -> Result<(), Box<dyn Error>>;

    /// One job made and leased in one transaction, as the engine does for who waits. `false` where nobody has written it.
    fn create_leased(&mut self) -> Result<bool, Box<dyn Error>> {
        Ok(false)
    }

    /// That job committed and finished.
    fn commit_leased(&mut self) -> Result<(), Box<dyn Error>> {
        Ok(())
    }

    /// Statements sent and round trips waited for, where there is a wire.
    fn wire_counts(&self) -> Option<(u64, u64)> {
        None
    }
}

/// Rows of a life, by what can be left out to see what it costs.
pub(crate) type BaselineParts = &'static [(&'static str, &'static str)];

/// Jobs come in the order of time, as their ids do.
const fn row_time(row: i64) -> i64 {
    1_800_000_000_000_000 + row
}

/// As a UUIDv7 made by chance: in order by its milliseconds, of which a few hundred jobs share one.
fn row_id(row: i64) -> [u8; 16] {
    let mut bytes = row_hash(row);
    bytes[..8].copy_from_slice(&(row / 300).to_be_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&bytes[..16]);
    id
}

/// Bytes that look like a hash and cost nothing.
fn row_hash(row: i64) -> [u8; 32] {
    let mut bytes = [0; 32];
    let mut state = row.cast_unsigned();
    for eight in bytes.chunks_exact_mut(8) {
        state = (state ^ (state >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0xd1b5_4a32_d192_ed03);
        eight.copy_from_slice(&state.to_be_bytes());
    }
    bytes
}
