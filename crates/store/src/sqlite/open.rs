//! Opening a database file: the lock that keeps a second engine out, and the settings.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::migrate::{self, MIGRATIONS};
use crate::error::StoreError;

/// How long to wait for another process that writes: only `migrate` and backups could be one.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait for the lock of a process that is just going. One that is being started holds its parent's files for a
/// moment, between fork and exec, and with them a lock that its parent has let go of.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);

/// Between two tries for the lock.
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(5);

/// Statements that a connection keeps prepared: more than there are in this crate.
const MAX_CACHED_STATEMENTS: usize = 128;

/// Should the thread that folds the WAL back fall behind or be gone, whoever commits does it, after so many pages of 4 KB.
const FALLBACK_CHECKPOINT_PAGES: u32 = 40_000;

/// What is left of the WAL file after it was folded back.
const MAX_IDLE_WAL_BYTES: u32 = 128 << 20;

/// Keeps a second engine out as long as it lives. The kernel lets go of it when the process dies, however it dies.
#[derive(Debug)]
pub(super) struct EngineLock {
    _file: File,
}

impl EngineLock {
    pub(super) fn acquire(database: &Path) -> Result<Self, StoreError> {
        let unavailable = |error: std::io::Error| {
            let text = format!("the lock of {}: {error}", database.display());
            match error.kind() {
                ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => StoreError::ReadOnly(text),
                ErrorKind::StorageFull => StoreError::DiskFull,
                _ => StoreError::Unavailable(text),
            }
        };
        let database = canonical_path(database).map_err(unavailable)?;
        let path = sibling_path(&database, ".lock");
        let mut file = private_file_options().read(true).open(&path).map_err(unavailable)?;
        let started_at = Instant::now();
        let locked = loop {
            match file.try_lock() {
                Err(TryLockError::WouldBlock) if started_at.elapsed() < LOCK_TIMEOUT => {
                    std::thread::sleep(LOCK_RETRY_DELAY);
                }
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
        // Behind another name of the same file there is another lock, and another WAL: SQLite itself could not see what is written there.
        if std::fs::metadata(&database).is_ok_and(|file| file.nlink() > 1) {
            let name = database.display();
            let text = format!(
                "{name} has another name (a hard link), by which a second engine could write: remove one of them"
            );
            return Err(StoreError::Unavailable(text));
        }
        // Who it is, for the message above.
        file.set_len(0).map_err(unavailable)?;
        write!(file, "process {}", std::process::id()).map_err(unavailable)?;
        Ok(Self { _file: file })
    }
}

/// Who has the lock, if anybody.
pub(super) fn lock_holder(database: &Path) -> Option<String> {
    let mut file = File::open(sibling_path(&canonical_path(database).ok()?, ".lock")).ok()?;
    // Let go of at once. An engine that starts in just this moment waits for longer than that.
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            let mut by = String::new();
            let _ = file.read_to_string(&mut by);
            Some(by)
        }
        _ => None,
    }
}

/// The one name that a file has by whichever way it is reached, links and all, also before it is made: as SQLite, too, names the
/// files beside it.
pub(super) fn canonical_path(database: &Path) -> std::io::Result<PathBuf> {
    let folder = database.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (std::fs::canonicalize(database), database.file_name()) {
        (Err(error), Some(name)) if error.kind() == ErrorKind::NotFound => match std::fs::read_link(database) {
            // A link to what is not made yet. Links that go round in a circle are another error.
            Ok(target) => canonical_path(&folder.join(target)),
            Err(_) => Ok(std::fs::canonicalize(folder)?.join(name)),
        },
        (found, _) => found,
    }
}

/// The name of a file that belongs to a database's.
pub(super) fn sibling_path(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The name by which SQLite opens a file that nobody writes, without making any beside it.
pub(super) fn immutable_uri(path: &Path) -> String {
    let name = path.display().to_string().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    format!("file:{name}?immutable=1")
}

/// To write a file, which is for nobody else where it is made now: payloads stand in it. One that is there stays as whoever it belongs
/// to has set it.
pub(super) fn private_file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options
}

/// The connection that writes. Makes the file where there is none, and brings an older one up to date.
pub(super) fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    // SQLite takes an empty file for a new database, and gives the WAL the mode of the database's file. Why it cannot be made, it tells
    // itself.
    let _ = private_file_options().open(path);
    let mut connection = Connection::open(path).map_err(|error| explain_open_error(path, error.into()))?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // An answer is given only after its batch is on the disk.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", FALLBACK_CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", MAX_IDLE_WAL_BYTES)?;
    configure(&connection)?;
    migrate::migrate(&mut connection, MIGRATIONS)?;
    Ok(connection)
}

/// The connection of the thread that folds the WAL back.
pub(super) fn open_checkpointer(path: &Path) -> Result<Connection, StoreError> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

/// A connection that reads beside it.
pub(super) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    // Each connection has a thread of its own, so SQLite need not guard it.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        configure(&connection)?;
        Ok(connection)
    };
    open().map_err(|error: StoreError| explain_open_error(path, error))
}

/// SQLite says of everything that it cannot open that it cannot.
pub(super) fn explain_open_error(path: &Path, error: StoreError) -> StoreError {
    let StoreError::Unavailable(message) = error else { return error };
    let found = std::fs::metadata(path);
    StoreError::Unavailable(match found.map(|found| found.is_dir()).map_err(|error| error.kind()) {
        Ok(true) => "this is a folder, not the file of a database".to_owned(),
        Err(ErrorKind::NotFound) => "there is no such file".to_owned(),
        Err(ErrorKind::PermissionDenied) => "its folder may not be looked into".to_owned(),
        Ok(false) => format!("it may not be read, or its folder not be written ({message})"),
        Err(kind) => format!("{kind} ({message})"),
    })
}

fn configure(connection: &Connection) -> Result<(), StoreError> {
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // 32 MB: the upper levels of every index of a million jobs.
    connection.pragma_update(None, "cache_size", -32_768)?;
    connection.set_prepared_statement_cache_capacity(MAX_CACHED_STATEMENTS);
    // Without it SQLite may plan a statement anew for each value that is bound, which took half of all time.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}
