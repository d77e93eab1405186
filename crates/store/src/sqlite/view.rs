//! A database file looked through beside the engine that writes it, or a copy of one that nobody writes.

use std::path::{Path, PathBuf};

use onceward_core::time::Time;
use onceward_core::value::RecordId;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use serde_json::Value as Json;

use super::definitions::kept;
use super::scan::{self, TABLES};
use super::threads::Threads;
use super::{let_go, look, migrate, names, open, wal};
use crate::StoreError;
use crate::look::Look;
use crate::names::Names;
use crate::scan::{Cursor, Difference, Learned, LogPage, Scan, ScanPage, Table, held_against_files};

/// A database file, read only. It takes no lock that an engine would wait for, and is let in while one runs.
#[derive(Debug)]
pub struct SqliteView {
    // The reader ends before what it left is tidied up.
    reader: Threads<Connection>,
    path: PathBuf,
    /// Where it is read as it lies, SQLite does not look for how it is written.
    is_still: bool,
    _tidy: Option<Tidy>,
}

/// A file that nobody had open: the files beside it that reading makes go with the last reader.
#[derive(Debug)]
struct Tidy(PathBuf);

impl Tidy {
    /// Nothing is done where there is a WAL already, be it an engine's or a copy's.
    fn of(path: &Path) -> Option<Self> {
        let is_there = |suffix: &str| open::beside(path, suffix).exists();
        (!is_there("-wal") && !is_there("-shm")).then(|| Self(path.to_owned()))
    }
}

impl Drop for Tidy {
    fn drop(&mut self) {
        // Not an engine's that came meanwhile. SQLite itself makes sure that nobody else has it open, and only then takes them away.
        if open::engine(&self.0).is_none() && wal::bytes(&wal::path(&self.0)) == 0 {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            if let Ok(connection) = Connection::open_with_flags(&self.0, flags) {
                let _ = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()));
            }
        }
    }
}

impl SqliteView {
    /// Open a file that is there. Its schema must be one that this program knows.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let given = path.as_ref();
        // By its own name, as the files beside it have theirs from that.
        let path = open::real(given).unwrap_or_else(|_| given.to_owned());
        let (mut tidy, mut is_still) = (Tidy::of(&path), false);
        let connection = open::reader(&path).and_then(|connection| migrate::check(&connection).map(|()| connection));
        let connection = match connection {
            // A copy in a folder that cannot be written has no place for the files beside it that readers share.
            Err(StoreError::Unavailable(_) | StoreError::ReadOnly(_)) if path.is_file() => {
                // Opened so, its WAL would be passed over, and with it perhaps all that came last.
                let wal = wal::path(&path);
                if wal::bytes(&wal) > 0 {
                    let why =
                        "holds changes that are not in the file yet, and cannot be read where nothing may be written";
                    let what = "copy both into a folder that can be written, or make the copy with `onceward backup`";
                    return Err(StoreError::Unavailable(format!("{} {why}: {what}", wal.display())));
                }
                let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
                let connection = Connection::open_with_flags(open::immutable(&path), flags)?;
                migrate::check(&connection)?;
                (tidy, is_still) = (None, true);
                connection
            }
            other => other?,
        };
        let reader = Threads::start("view", vec![connection], |connection| let_go(connection))?;
        Ok(Self { reader, path, is_still, _tidy: tidy })
    }

    /// All of it at a glance.
    pub async fn look(&self, now: Time) -> Result<Look, StoreError> {
        let path = self.path.clone();
        let mut look = self.reader.run(move |connection| look::look(connection, &path, now)).await?;
        if self.is_still {
            look.settings.retain(|setting| setting.name != "journal_mode");
        }
        Ok(look)
    }

    /// Who has the file open to work on it, as it calls itself.
    pub fn engine(&self) -> Option<String> {
        open::engine(&self.path)
    }

    /// What SQLite itself finds wrong with the pages of each table and of its indexes. Reading the rows does not come to all of
    /// them, and an engine does, sooner or later. One short transaction for each table.
    async fn damage(&self) -> Result<Vec<Difference>, StoreError> {
        let tables = self.reader.run(|connection| {
            let mut statement = connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
            let names = statement.query_map([], |row| row.get::<_, String>(0))?;
            Ok(names.collect::<Result<Vec<_>, _>>()?)
        });
        let mut found = Vec::new();
        for table in tables.await? {
            let said = self.reader.run(move |connection| {
                let mut statement = connection.prepare("SELECT * FROM pragma_integrity_check(?1)")?;
                let said =
                    statement.query_map([&table], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
                Ok((table, said))
            });
            let (table, said) = said.await?;
            let wrong = said.into_iter().filter(|line| line != "ok");
            found.extend(wrong.map(|line| Difference::broken("pages", &table, line)));
        }
        Ok(found)
    }
}

impl Scan for SqliteView {
    fn tables(&self) -> &'static [Table] {
        TABLES
    }

    async fn learn(&self) -> Result<Learned, StoreError> {
        let damage = self.damage().await?;
        self.reader
            .run(move |connection| {
                let transaction = connection.transaction()?;
                let mut learned = held_against_files(&kept(&transaction)?);
                let (kept, told) = (names::load(&transaction)?, Names::of(learned.catalog.since(0)));
                if learned.is_whole {
                    learned.differences.extend(told.differences(&kept));
                }
                learned.differences.extend(damage);
                Ok(learned)
            })
            .await
    }

    async fn scan_log(&self, after: i64, limit: usize) -> Result<LogPage, StoreError> {
        self.reader.run(move |connection| scan::log(connection, after, limit)).await
    }

    async fn scan(&self, table: Table, after: Option<Cursor>, limit: usize) -> Result<ScanPage, StoreError> {
        self.reader.run(move |connection| scan::page(connection, table, after.as_ref(), limit)).await
    }

    async fn result(&self, record: RecordId) -> Result<Option<Json>, StoreError> {
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
