//! A reader thread's connection.

use std::sync::Arc;

use rusqlite::Connection;

use super::read;
use super::shared::SqliteShared;
use super::transaction::SqliteTransaction;
use crate::error::StoreError;
use crate::symbols::CatalogSnapshot;

/// The resources of a reader thread.
#[derive(Debug)]
pub(super) struct SqliteReader {
    pub(super) connection: Connection,
    pub(super) shared: Arc<SqliteShared>,
}

/// Ends a transaction that a panic left open. A reader has written nothing.
pub(super) fn roll_back_open(connection: &Connection) -> bool {
    if !connection.is_autocommit() {
        let _ = connection.execute_batch("ROLLBACK");
    }
    true
}

impl SqliteReader {
    /// Runs a job in one read transaction, which takes SQLite's locks once instead of once per statement.
    pub(super) fn read<R>(
        &self,
        job: impl FnOnce(&Connection, &CatalogSnapshot) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        let transaction = SqliteTransaction::begin_read(&self.connection)?;
        // SQLite's snapshot begins with the first statement. The catalog must not be older than the snapshot.
        read::last_seq(&transaction)?;
        job(&transaction, &self.shared.current_catalog())
    }
}
