//! Opening a database file: the lock that keeps a second engine out, the settings, and the migrations.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::error::StoreError;

/// Schemas in order; a database's own number is its `user_version`. Never changed once released, only added to.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_first.sql")];

/// How long to wait for another process that writes: only `migrate` and backups could be one.
const BUSY: Duration = Duration::from_secs(5);

/// How long to wait for the lock of a process that is just going. One that is being started holds its parent's files for a
/// moment, between fork and exec, and with them a lock that its parent has let go of.
const GOING: Duration = Duration::from_millis(500);

/// Between two tries for the lock.
const NAP: Duration = Duration::from_millis(5);

/// Statements that a connection keeps prepared: more than there are in this crate.
const STATEMENTS: usize = 128;

/// Should the thread that folds the WAL back fall behind or be gone, whoever commits does it, after so many pages of 4 KB.
const CHECKPOINT_PAGES: u32 = 40_000;

/// What is left of the WAL file after it was folded back.
const WAL_BYTES: u32 = 128 << 20;

/// Keeps a second engine out as long as it lives. The kernel lets go of it when the process dies, however it dies.
#[derive(Debug)]
pub(super) struct EngineLock {
    _file: File,
}

impl EngineLock {
    pub(super) fn take(database: &Path) -> Result<Self, StoreError> {
        let path = beside(database, ".lock");
        let unavailable = |error: std::io::Error| {
            let text = format!("{}: {error}", path.display());
            match error.kind() {
                ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => StoreError::ReadOnly(text),
                ErrorKind::StorageFull => StoreError::Full,
                _ => StoreError::Unavailable(text),
            }
        };
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(unavailable)?;
        let since = Instant::now();
        let locked = loop {
            match file.try_lock() {
                Err(TryLockError::WouldBlock) if since.elapsed() < GOING => std::thread::sleep(NAP),
                locked => break locked,
            }
        };
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut by = String::new();
                let _ = file.read_to_string(&mut by);
                let by = if by.is_empty() { "another process".to_owned() } else { by };
                return Err(StoreError::Locked { by });
            }
            Err(TryLockError::Error(error)) => return Err(unavailable(error)),
        }
        // Who it is, for the message above.
        file.set_len(0).map_err(unavailable)?;
        write!(file, "process {}", std::process::id()).map_err(unavailable)?;
        Ok(Self { _file: file })
    }
}

fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The connection that writes. Makes the file where there is none, and brings an older one up to date.
pub(super) fn writer(path: &Path) -> Result<Connection, StoreError> {
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // An answer is given only after its batch is on the disk.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES)?;
    settle(&connection)?;
    migrate(&mut connection)?;
    Ok(connection)
}

/// The connection of the thread that folds the WAL back.
pub(super) fn checkpointer(path: &Path) -> Result<Connection, StoreError> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

/// A connection that reads beside it.
pub(super) fn reader(path: &Path) -> Result<Connection, StoreError> {
    // Each connection has a thread of its own, so SQLite need not guard it.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    settle(&connection)?;
    Ok(connection)
}

fn settle(connection: &Connection) -> Result<(), StoreError> {
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // 32 MB: the upper levels of every index of a million jobs.
    connection.pragma_update(None, "cache_size", -32_768)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Without it SQLite may plan a statement anew for each value that is bound, which took half of all time.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// Refuse a database that is not ours, or of another schema: one that only reads brings nothing up to date.
pub(super) fn check_schema(connection: &Connection) -> Result<(), StoreError> {
    let known = u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX);
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    match found {
        0 => Err(StoreError::corrupt("this is not one of Onceward's databases")),
        found if found < known => Err(StoreError::TooOld { found, known }),
        found if found > known => Err(StoreError::TooNew { found, known }),
        _ => Ok(()),
    }
}

fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let known = u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX);
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > known {
        return Err(StoreError::TooNew { found, known });
    }
    if found == 0 {
        let tables: u32 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if tables > 0 {
            return Err(StoreError::corrupt("this is a database, but not one of Onceward's"));
        }
    }
    for (number, migration) in (1..).zip(MIGRATIONS).skip(usize::try_from(found).unwrap_or(usize::MAX)) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
    }
    Ok(())
}
