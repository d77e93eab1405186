//! Scans a database file while an engine writes to it, or a copy of a file.

use std::path::{Path, PathBuf};

use onceward_core::time::Time;
use onceward_core::value::RecordId;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use serde_json::Value as Json;

use super::definitions::load_catalog_rows;
use super::scan::{self, SQLITE_TABLES};
use super::thread_pool::ThreadPool;
use super::{migrate, open, roll_back_open, status, symbols, wal};
use crate::StoreError;
use crate::database_status::DatabaseStatus;
use crate::scan::{
    CatalogScan, ProjectionTable, Scan, ScanCursor, ScanPage, StoredLogPage, TableDifference, compare_with_files,
};
use crate::symbols::SymbolTable;

/// A read-only view of a database file. It takes no lock that an engine would wait for, so it works while one runs.
#[derive(Debug)]
pub struct SqliteScanner {
    // Dropped before the cleanup below runs.
    reader: ThreadPool<Connection>,
    path: PathBuf,
    /// The file was opened as immutable, so SQLite does not report its journal mode.
    is_immutable: bool,
    _tidy: Option<WalCleanup>,
}

/// Removes the WAL files that reading creates, if no other process had the file open before.
#[derive(Debug)]
struct WalCleanup(PathBuf);

impl WalCleanup {
    /// Returns `None` if there is a WAL already, from an engine or a copy.
    fn if_unopened(path: &Path) -> Option<Self> {
        let is_there = |suffix: &str| open::sibling_path(path, suffix).exists();
        (!is_there("-wal") && !is_there("-shm")).then(|| Self(path.to_owned()))
    }
}

impl Drop for WalCleanup {
    fn drop(&mut self) {
        // Keep the files if an engine has started meanwhile. SQLite removes them only if no other connection is open.
        if open::lock_holder(&self.0).is_none() && wal::file_bytes(&wal::wal_path(&self.0)) == 0 {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            if let Ok(connection) = Connection::open_with_flags(&self.0, flags) {
                let _ = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()));
            }
        }
    }
}

impl SqliteScanner {
    /// Opens an existing file. Its schema version must be the one that this program supports.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let given = path.as_ref();
        // Canonical path, because the names of the WAL files derive from it.
        let path = open::canonical_path(given).unwrap_or_else(|_| given.to_owned());
        let (mut cleanup, mut is_immutable) = (WalCleanup::if_unopened(&path), false);
        let connection =
            open::open_reader(&path).and_then(|connection| migrate::require_current(&connection).map(|()| connection));
        let connection = match connection {
            // Readers share files next to the database. If the folder is read-only, SQLite cannot create them.
            Err(StoreError::Unavailable(_) | StoreError::ReadOnly(_)) if path.is_file() => {
                // An immutable open would ignore the WAL, and possibly the latest commits with it.
                let wal = wal::wal_path(&path);
                if wal::file_bytes(&wal) > 0 {
                    let why = "contains changes that are not yet in the database file, and it cannot be read in a read-only folder";
                    let what = "copy both files to a writable folder, or make the copy with `onceward backup`";
                    return Err(StoreError::Unavailable(format!("{} {why}; {what}", wal.display())));
                }
                let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
                let connection = Connection::open_with_flags(open::immutable_uri(&path), flags)?;
                migrate::require_current(&connection)?;
                (cleanup, is_immutable) = (None, true);
                connection
            }
            other => other?,
        };
        let reader = ThreadPool::start("view", vec![connection], |connection| roll_back_open(connection))?;
        Ok(Self { reader, path, is_immutable, _tidy: cleanup })
    }

    /// Reads the status summary.
    pub async fn status(&self, now: Time) -> Result<DatabaseStatus, StoreError> {
        let path = self.path.clone();
        let mut status = self.reader.run(move |connection| status::read_status(connection, &path, now)).await?;
        if self.is_immutable {
            status.settings.retain(|setting| setting.name != "journal_mode");
        }
        Ok(status)
    }

    /// Returns the process that has the file open as an engine.
    pub fn lock_holder(&self) -> Option<String> {
        Self::lock_holder_of(&self.path)
    }

    /// Like [`lock_holder`](Self::lock_holder), but does not open the database, so that it may be unreadable.
    pub fn lock_holder_of(path: &Path) -> Option<String> {
        open::lock_holder(path)
    }

    /// Runs SQLite's integrity check on the pages of each table and its indexes, because a scan of the rows does not
    /// read all pages. Uses one short transaction for each table.
    async fn integrity_differences(&self) -> Result<Vec<TableDifference>, StoreError> {
        let tables = self.reader.run(|connection| {
            let mut statement = connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
            let names = statement.query_map([], |row| row.get::<_, String>(0))?;
            Ok(names.collect::<Result<Vec<_>, _>>()?)
        });
        let mut found = Vec::new();
        for table in tables.await? {
            let messages = self.reader.run(move |connection| {
                let mut statement = connection.prepare("SELECT * FROM pragma_integrity_check(?1)")?;
                let messages =
                    statement.query_map([&table], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
                Ok((table, messages))
            });
            let (table, messages) = messages.await?;
            let damaged = messages.into_iter().filter(|line| line != "ok");
            found.extend(damaged.map(|line| TableDifference::invalid("pages", &table, line)));
        }
        Ok(found)
    }
}

impl Scan for SqliteScanner {
    fn tables(&self) -> &'static [ProjectionTable] {
        SQLITE_TABLES
    }

    async fn scan_catalog(&self) -> Result<CatalogScan, StoreError> {
        let integrity = self.integrity_differences().await?;
        self.reader
            .run(move |connection| {
                let transaction = connection.transaction()?;
                let mut catalog_scan = compare_with_files(&load_catalog_rows(&transaction)?);
                let (stored, expected) = (
                    symbols::load_symbols(&transaction)?,
                    SymbolTable::from_versions(catalog_scan.catalog.versions_since(0)),
                );
                if catalog_scan.is_complete {
                    catalog_scan.differences.extend(expected.differences(&stored));
                }
                catalog_scan.differences.extend(integrity);
                Ok(catalog_scan)
            })
            .await
    }

    async fn scan_log(&self, after_seq: i64, limit: usize) -> Result<StoredLogPage, StoreError> {
        self.reader.run(move |connection| scan::scan_log(connection, after_seq, limit)).await
    }

    async fn scan(
        &self,
        table: ProjectionTable,
        after: Option<ScanCursor>,
        limit: usize,
    ) -> Result<ScanPage, StoreError> {
        self.reader.run(move |connection| scan::scan_page(connection, table, after.as_ref(), limit)).await
    }

    async fn effect_result(&self, record: RecordId) -> Result<Option<Json>, StoreError> {
        let sql = "SELECT f.result FROM effects f JOIN records r ON r.row = f.record WHERE r.id = ?1";
        self.reader
            .run(move |connection| {
                let mut statement = connection.prepare_cached(sql)?;
                let found: Option<String> = statement.query_row([record.0.as_bytes()], |row| row.get(0)).optional()?;
                Ok(found.and_then(|text| serde_json::from_str(&text).ok()))
            })
            .await
    }
}
