//! What PostgreSQL says, in our words.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{WasNull, WrongType};

use crate::error::StoreError;

/// Why a statement has no answer.
#[derive(Debug)]
pub(super) enum StatementError {
    /// By the words of the server, or of the driver.
    Database(Error),
    /// None came in time.
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
            // Nothing from the server: either it cannot be reached, or a row holds another kind of value than we write.
            let misread = error.source().is_some_and(|cause| cause.is::<WrongType>() || cause.is::<WasNull>());
            return if misread { Self::Corrupt(text) } else { Self::Unavailable(text) };
        };
        match code.code() {
            // Two transactions in each other's way: nothing was written.
            "40001" | "40P01" | "55P03" => Self::Busy,
            "53100" => Self::DiskFull,
            "25006" | "42501" => Self::ReadOnly(text),
            "XX001" | "XX002" => Self::Corrupt(text),
            // A constraint, a value out of range, a text that no index takes, a row that was not there.
            other if ["22", "23", "54"].contains(&&other[..2]) => Self::Rejected(text),
            _ if *code == SqlState::UNDEFINED_TABLE || *code == SqlState::UNDEFINED_COLUMN => Self::Corrupt(text),
            _ => Self::Unavailable(text),
        }
    }
}

/// The server's own message where there is one; the driver's says only `db error`.
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
