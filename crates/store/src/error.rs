//! What may go wrong in a store.

use onceward_core::diagnostic::{Diagnostic, Severity};

use crate::compatibility::DiagnosticReport;

/// Why a store did not do what it was asked. Nothing of the failed call is kept.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Try again soon.
    #[error("the database is busy: others hold what this needs, try again")]
    Busy,
    #[error("the disk is full: nothing was written")]
    DiskFull,
    #[error("the database cannot be written: {0}")]
    ReadOnly(String),
    #[error("the database is damaged: {0}")]
    Corrupt(String),
    /// There is something, and it is none of ours.
    #[error("{0}")]
    ForeignDatabase(String),
    #[error("the database cannot be reached: {0}")]
    Unavailable(String),
    /// One engine at a time works on an embedded database.
    #[error("{by} has this database open; only one engine may, stop it or give this one another file")]
    Locked { by: String },
    /// The last line of defence: one of the database's own constraints would not hold.
    #[error("the database refused what was to be written: {0}")]
    Rejected(String),
    #[error("the database has schema {found}, this program knows {known}: use a newer one")]
    SchemaTooNew { found: u32, known: u32 },
    #[error("the database has schema {found}, this program works on {known}: run `onceward migrate`")]
    SchemaTooOld { found: u32, known: u32 },
    /// Pruning took something that was asked for. The oldest place after which the log can be read is named.
    #[error("the log is pruned up to place {oldest}: ask for what comes after it")]
    LogPruned { oldest: u64 },
    #[error("version {hash} of the lifecycle `{lifecycle}` was never given to this store")]
    UnknownVersion { lifecycle: String, hash: String },
    #[error("{}", summarize_report(.0))]
    InvalidLifecycles(Box<DiagnosticReport>),
}

/// How many errors there are, and the first of them.
fn summarize_report(findings: &DiagnosticReport) -> String {
    if let Some(beside) = &findings.incompatible_with {
        return format!("the lifecycle files do not fit {beside}: they {}", summarize_errors(&findings.diagnostics));
    }
    format!("the lifecycle files {}", summarize_errors(&findings.diagnostics))
}

fn summarize_errors(diagnostics: &[Diagnostic]) -> String {
    let mut errors = diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error);
    match (errors.next(), errors.count()) {
        (None, _) => "are not sound".to_owned(),
        (Some(first), 0) => format!("have an error: {} [{}]", first.message, first.code),
        (Some(first), more) => format!("have {} errors, the first: {} [{}]", more + 1, first.message, first.code),
    }
}

impl StoreError {
    /// Stable, for programs; docs/errors says what to do about each.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Busy => "store_busy",
            Self::DiskFull => "store_full",
            Self::ReadOnly(_) => "store_read_only",
            Self::Corrupt(_) => "store_corrupt",
            Self::ForeignDatabase(_) => "store_no_database",
            Self::Unavailable(_) => "store_unavailable",
            Self::Locked { .. } => "store_locked",
            Self::Rejected(_) => "store_rejected",
            Self::SchemaTooNew { .. } => "store_too_new",
            Self::SchemaTooOld { .. } => "store_too_old",
            Self::LogPruned { .. } => "pruned",
            Self::UnknownVersion { .. } => "unknown_definition",
            Self::InvalidLifecycles(_) => "unsound_lifecycle",
        }
    }

    /// As HTTP numbers it: 503 and 507 may pass by themselves or by an operator's hand, 500 does not.
    pub fn status(&self) -> u16 {
        match self {
            Self::Busy | Self::ReadOnly(_) | Self::Unavailable(_) | Self::Locked { .. } => 503,
            Self::DiskFull => 507,
            Self::LogPruned { .. } => 410,
            Self::InvalidLifecycles(_) => 422,
            Self::Corrupt(_)
            | Self::ForeignDatabase(_)
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
