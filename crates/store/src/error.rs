//! Errors of stores.

use onceward_core::diagnostic::{Diagnostic, Severity};

use crate::compatibility::DiagnosticReport;

/// Why a store call failed. A failed call leaves no changes behind.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Other transactions hold the needed locks. The caller can retry soon.
    #[error("the database is busy: other transactions hold the needed locks; retry")]
    Busy,
    #[error("the disk of the database is full; nothing was written")]
    DiskFull,
    #[error("the database cannot be written: {0}")]
    ReadOnly(String),
    #[error("the database is damaged: {0}")]
    Corrupt(String),
    /// The database or file exists but was not created by Onceward.
    #[error("{0}")]
    ForeignDatabase(String),
    #[error("the database cannot be reached: {0}")]
    Unavailable(String),
    /// Only one engine at a time can open an embedded database.
    #[error("{by} has the database open, and only one engine can open a file; stop that process, or use another file")]
    Locked { by: String },
    /// The store panicked before it wrote anything.
    #[error("a bug in the store ended the call; nothing was written")]
    Panicked,
    /// A database constraint was violated. Validation should have prevented the write.
    #[error("the database rejected the write: {0}")]
    Rejected(String),
    #[error("the database has schema {found}, and the program supports only {known}; use a newer version of onceward")]
    SchemaTooNew { found: u32, known: u32 },
    #[error("the database has schema {found}, and the program needs {known}; run `onceward migrate`")]
    SchemaTooOld { found: u32, known: u32 },
    /// Deleting by a wrong time cannot be undone.
    #[error(
        "the clock jumped, so nothing is pruned; correct the clock, or accept its time with `onceward clock accept`"
    )]
    ClockHeld,
    /// Pruning deleted requested entries. `oldest` is the smallest seq after which the log can still be read.
    #[error("the log is pruned up to seq {oldest}; start reading after it")]
    LogPruned { oldest: u64 },
    #[error("the database has no version {hash} of the lifecycle `{lifecycle}`; load its files first")]
    UnknownVersion { lifecycle: String, hash: String },
    #[error("{}", summarize_report(.0))]
    InvalidLifecycles(Box<DiagnosticReport>),
}

/// Returns the number of errors and the first one.
fn summarize_report(findings: &DiagnosticReport) -> String {
    if let Some(beside) = &findings.incompatible_with {
        return format!(
            "the lifecycle files are incompatible with {beside}; compiled together, they {}",
            summarize_errors(&findings.diagnostics)
        );
    }
    format!("the lifecycle files {}", summarize_errors(&findings.diagnostics))
}

fn summarize_errors(diagnostics: &[Diagnostic]) -> String {
    let mut errors = diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error);
    match (errors.next(), errors.count()) {
        (None, _) => "have errors".to_owned(),
        (Some(first), 0) => format!("have an error: {} [{}]", first.message, first.code),
        (Some(first), more) => format!("have {} errors, the first: {} [{}]", more + 1, first.message, first.code),
    }
}

impl StoreError {
    /// Returns the stable error code. `docs/errors` describes each code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Busy => "store_busy",
            Self::DiskFull => "store_full",
            Self::ReadOnly(_) => "store_read_only",
            Self::Corrupt(_) => "store_corrupt",
            Self::ForeignDatabase(_) => "store_foreign_database",
            Self::Unavailable(_) => "store_unavailable",
            Self::Locked { .. } => "store_locked",
            Self::Panicked => "panicked",
            Self::Rejected(_) => "store_rejected",
            Self::SchemaTooNew { .. } => "store_too_new",
            Self::SchemaTooOld { .. } => "store_too_old",
            Self::ClockHeld => "clock_held",
            Self::LogPruned { .. } => "pruned",
            Self::UnknownVersion { .. } => "store_unknown_version",
            Self::InvalidLifecycles(_) => "invalid_lifecycle",
        }
    }

    /// Returns the HTTP status. 503 and 507 can disappear after a retry or an operator's action; 500 does not.
    pub fn status(&self) -> u16 {
        match self {
            Self::Busy | Self::ReadOnly(_) | Self::Unavailable(_) | Self::Locked { .. } | Self::ClockHeld => 503,
            Self::DiskFull => 507,
            Self::LogPruned { .. } => 410,
            Self::InvalidLifecycles(_) => 422,
            Self::Corrupt(_)
            | Self::ForeignDatabase(_)
            | Self::Panicked
            | Self::Rejected(_)
            | Self::SchemaTooNew { .. }
            | Self::SchemaTooOld { .. }
            | Self::UnknownVersion { .. } => 500,
        }
    }

    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt(what.into())
    }
}
