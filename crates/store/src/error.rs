//! What may go wrong in a store.

use onceward_core::diagnostic::Diagnostic;

/// Why a store did not do what it was asked. Nothing of the failed call is kept.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Try again soon.
    #[error("the database is busy: another process holds its write lock")]
    Busy,
    #[error("the disk is full: nothing was written")]
    Full,
    #[error("the database cannot be written: {0}")]
    ReadOnly(String),
    #[error("the database is damaged: {0}")]
    Corrupt(String),
    #[error("the database cannot be reached: {0}")]
    Unavailable(String),
    /// One engine at a time works on an embedded database.
    #[error("{by} has this database open; only one engine may, stop it or give this one another file")]
    Locked { by: String },
    /// The last line of defence: one of the database's own constraints would not hold.
    #[error("the database refused what was to be written: {0}")]
    Rejected(String),
    #[error("the database has schema {found}, this program knows {known}: use a newer one")]
    TooNew { found: u32, known: u32 },
    #[error("the database has schema {found}, this program works on {known}: run `onceward migrate`")]
    TooOld { found: u32, known: u32 },
    /// Pruning took something that was asked for. The oldest place after which the log can be read is named.
    #[error("the log is pruned up to place {oldest}: ask for what comes after it")]
    Pruned { oldest: u64 },
    #[error("version {hash} of the lifecycle `{lifecycle}` was never given to this store")]
    UnknownDefinition { lifecycle: String, hash: String },
    #[error("the lifecycle files have {} errors", .0.len())]
    Unsound(Vec<Diagnostic>),
}

impl StoreError {
    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt(what.into())
    }
}
