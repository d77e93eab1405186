//! Opens database files: the engine lock and the connection settings.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::migrate::{self, MIGRATIONS};
use crate::error::StoreError;

/// How long to wait for another writing process. Only `migrate` and backups can be one.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait for the lock of an ending process. A process that is being started shares its parent's open files
/// between fork and exec, and so can hold a lock for a moment that its parent has released.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);

const LOCK_RETRY_DELAY: Duration = Duration::from_millis(5);

/// More than the statements in this crate, so that none is evicted.
const MAX_CACHED_STATEMENTS: usize = 128;

/// If the checkpoint thread falls behind or ended, the committing connection checkpoints after this many pages of 4 KB.
const FALLBACK_CHECKPOINT_PAGES: u32 = 40_000;

/// The WAL file is truncated to this size after a checkpoint.
const MAX_IDLE_WAL_BYTES: u32 = 128 << 20;

/// A lock that keeps other engines out while it exists. The kernel releases it when the process ends for any reason.
#[derive(Debug)]
pub(super) struct EngineLock {
    _file: File,
}

impl EngineLock {
    pub(super) fn acquire(database: &Path) -> Result<Self, StoreError> {
        let unavailable = |error: std::io::Error| {
            let text = format!("cannot lock {}: {error}", database.display());
            match error.kind() {
                ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => StoreError::ReadOnly(text),
                ErrorKind::StorageFull => StoreError::DiskFull,
                ErrorKind::NotFound => StoreError::Unavailable(
                    "the folder of the database file does not exist; create it first".to_owned(),
                ),
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
        // A hard link would have its own lock file and its own WAL, so neither Onceward nor SQLite would notice a
        // second writer.
        if std::fs::metadata(&database).is_ok_and(|file| file.nlink() > 1) {
            let name = database.display();
            let text =
                format!("{name} has a second hard link, through which another engine could write; remove one of them");
            return Err(StoreError::Unavailable(text));
        }
        // The lock holder's name, for the error message above.
        file.set_len(0).map_err(unavailable)?;
        write!(file, "process {}", std::process::id()).map_err(unavailable)?;
        Ok(Self { _file: file })
    }
}

/// Returns the process that holds the engine lock, if any.
pub(super) fn lock_holder(database: &Path) -> Option<String> {
    let mut file = File::open(sibling_path(&canonical_path(database).ok()?, ".lock")).ok()?;
    // The shared lock is released at once. An engine that starts at this moment waits longer than that.
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            let mut by = String::new();
            let _ = file.read_to_string(&mut by);
            Some(by)
        }
        _ => None,
    }
}

/// Resolves a path with all symbolic links, even if the file does not exist yet. SQLite names the WAL and other files
/// the same way.
pub(super) fn canonical_path(database: &Path) -> std::io::Result<PathBuf> {
    let folder = database.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (std::fs::canonicalize(database), database.file_name()) {
        (Err(error), Some(name)) if error.kind() == ErrorKind::NotFound => match std::fs::read_link(database) {
            // A link to a file that does not exist yet. A cycle of links is a different error.
            Ok(target) => canonical_path(&folder.join(target)),
            Err(_) => Ok(std::fs::canonicalize(folder)?.join(name)),
        },
        (found, _) => found,
    }
}

/// Returns the path of a file that belongs to a database, such as its WAL.
pub(super) fn sibling_path(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns a URI with which SQLite opens a file that does not change, without creating other files.
pub(super) fn immutable_uri(path: &Path) -> String {
    let name = path.display().to_string().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    format!("file:{name}?immutable=1")
}

/// Options to open a file for writing. A new file is readable only by its owner, because it contains payloads. The mode
/// of an existing file is kept.
pub(super) fn private_file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    options
}

/// Opens the writing connection. Creates a missing file and migrates an old schema.
pub(super) fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    // SQLite accepts an empty file as a new database, and gives the WAL the same mode. If creation fails here, SQLite
    // reports the error below.
    let _ = private_file_options().open(path);
    let mut connection = Connection::open(path).map_err(|error| explain_open_error(path, error.into()))?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // A reply is sent only after its batch is on disk.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", FALLBACK_CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", MAX_IDLE_WAL_BYTES)?;
    configure(&connection)?;
    migrate::migrate(&mut connection, MIGRATIONS)?;
    Ok(connection)
}

/// Opens the connection of the checkpoint thread.
pub(super) fn open_checkpointer(path: &Path) -> Result<Connection, StoreError> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

/// Opens a read-only connection.
pub(super) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    // Each connection belongs to one thread, so SQLite needs no mutex.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        configure(&connection)?;
        Ok(connection)
    };
    open().map_err(|error: StoreError| explain_open_error(path, error))
}

/// Replaces SQLite's generic message by the reason why a file cannot be opened.
pub(super) fn explain_open_error(path: &Path, error: StoreError) -> StoreError {
    let StoreError::Unavailable(message) = error else { return error };
    let found = std::fs::metadata(path);
    StoreError::Unavailable(match found.map(|found| found.is_dir()).map_err(|error| error.kind()) {
        Ok(true) => "it is a folder, not a database file".to_owned(),
        Err(ErrorKind::NotFound) => {
            "the file does not exist; check its path, or start a server to create it".to_owned()
        }
        Err(ErrorKind::PermissionDenied) => "access to its folder is denied".to_owned(),
        Ok(false) => format!("the file cannot be read, or its folder cannot be written ({message})"),
        Err(kind) => format!("{kind} ({message})"),
    })
}

fn configure(connection: &Connection) -> Result<(), StoreError> {
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    // 32 MB hold the upper levels of all indexes for a million jobs.
    connection.pragma_update(None, "cache_size", -32_768)?;
    connection.set_prepared_statement_cache_capacity(MAX_CACHED_STATEMENTS);
    // Prevents SQLite from planning a statement again for each bound value, which took half of the run time.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}
