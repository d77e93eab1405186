//! Converts PostgreSQL errors to store errors.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{WasNull, WrongType};

use crate::error::StoreError;

/// Why a statement has no result.
#[derive(Debug)]
pub(super) enum StatementError {
    /// An error of the server or of the driver.
    Database(Error),
    /// No answer came in time.
    TimedOut(String),
}

impl From<Error> for StatementError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl From<StatementError> for StoreError {
    fn from(failed: StatementError) -> Self {
        match failed {
            StatementError::Database(error) => error.into(),
            StatementError::TimedOut(why) => Self::Unavailable(why),
        }
    }
}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        let text = database_message(&error);
        let Some(code) = error.code() else {
            // Without a server code, either the server is unreachable or a row contains a value of an unexpected type.
            let misread = error.source().is_some_and(|cause| cause.is::<WrongType>() || cause.is::<WasNull>());
            return if misread { Self::Corrupt(text) } else { Self::Unavailable(text) };
        };
        match code.code() {
            // Serialization failure, deadlock or lock timeout: nothing was written.
            "40001" | "40P01" | "55P03" => Self::Busy,
            "53100" => Self::DiskFull,
            "25006" | "42501" => Self::ReadOnly(text),
            "XX001" | "XX002" => Self::Corrupt(text),
            // A violated constraint, a value out of range, a text too long for an index, or a missing row.
            other if ["22", "23", "54"].contains(&&other[..2]) => Self::Rejected(text),
            _ if *code == SqlState::UNDEFINED_TABLE || *code == SqlState::UNDEFINED_COLUMN => Self::Corrupt(text),
            _ => Self::Unavailable(text),
        }
    }
}

/// Returns the server's own message, because the driver's message is only `db error`.
fn database_message(error: &Error) -> String {
    match error.as_db_error() {
        Some(db) => match db.constraint() {
            Some(constraint) => format!("{} ({}, {})", db.message(), db.code().code(), constraint),
            None => format!("{} ({})", db.message(), db.code().code()),
        },
        None => match error.source() {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        },
    }
}
