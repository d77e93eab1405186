//! A database file looked through beside the engine that writes it, or a copy of one that nobody writes.

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

/// A database file, read only. It takes no lock that an engine would wait for, and is let in while one runs.
#[derive(Debug)]
pub struct SqliteScanner {
    // The reader ends before what it left is tidied up.
    reader: ThreadPool<Connection>,
    path: PathBuf,
    /// Where it is read as it lies, SQLite does not look for how it is written.
    is_immutable: bool,
    _tidy: Option<WalCleanup>,
}

/// A file that nobody had open: the files beside it that reading makes go with the last reader.
#[derive(Debug)]
struct WalCleanup(PathBuf);

impl WalCleanup {
    /// Nothing is done where there is a WAL already, be it an engine's or a copy's.
    fn if_unopened(path: &Path) -> Option<Self> {
        let is_there = |suffix: &str| open::sibling_path(path, suffix).exists();
        (!is_there("-wal") && !is_there("-shm")).then(|| Self(path.to_owned()))
    }
}

impl Drop for WalCleanup {
    fn drop(&mut self) {
        // Not an engine's that came meanwhile. SQLite itself makes sure that nobody else has it open, and only then takes them away.
        if open::lock_holder(&self.0).is_none() && wal::file_bytes(&wal::wal_path(&self.0)) == 0 {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            if let Ok(connection) = Connection::open_with_flags(&self.0, flags) {
                let _ = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()));
            }
        }
    }
}

impl SqliteScanner {
    /// Open a file that is there. Its schema must be one that this program knows.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let given = path.as_ref();
        // By its own name, as the files beside it have theirs from that.
        let path = open::canonical_path(given).unwrap_or_else(|_| given.to_owned());
        let (mut cleanup, mut is_immutable) = (WalCleanup::if_unopened(&path), false);
        let connection =
            open::open_reader(&path).and_then(|connection| migrate::require_current(&connection).map(|()| connection));
        let connection = match connection {
            // A copy in a folder that cannot be written has no place for the files beside it that readers share.
            Err(StoreError::Unavailable(_) | StoreError::ReadOnly(_)) if path.is_file() => {
                // Opened so, its WAL would be passed over, and with it perhaps all that came last.
                let wal = wal::wal_path(&path);
                if wal::file_bytes(&wal) > 0 {
                    let why =
                        "holds changes that are not in the file yet, and cannot be read where nothing may be written";
                    let what = "copy both into a folder that can be written, or make the copy with `onceward backup`";
                    return Err(StoreError::Unavailable(format!("{} {why}: {what}", wal.display())));
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

    /// All of it at a glance.
    pub async fn status(&self, now: Time) -> Result<DatabaseStatus, StoreError> {
        let path = self.path.clone();
        let mut status = self.reader.run(move |connection| status::read_status(connection, &path, now)).await?;
        if self.is_immutable {
            status.settings.retain(|setting| setting.name != "journal_mode");
        }
        Ok(status)
    }

    /// Who has the file open to work on it, as it calls itself.
    pub fn lock_holder(&self) -> Option<String> {
        open::lock_holder(&self.path)
    }

    /// What SQLite itself finds wrong with the pages of each table and of its indexes. Reading the rows does not come to all of
    /// them, and an engine does, sooner or later. One short transaction for each table.
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
                let (kept, told) = (
                    symbols::load_symbols(&transaction)?,
                    SymbolTable::from_versions(catalog_scan.catalog.versions_since(0)),
                );
                if catalog_scan.is_complete {
                    catalog_scan.differences.extend(told.differences(&kept));
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
