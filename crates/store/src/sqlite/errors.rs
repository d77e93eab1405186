//! Converts SQLite errors to store errors.

use rusqlite::{Error, ErrorCode};

use crate::error::StoreError;

const NOT_A_DATABASE_MESSAGE: &str = "not an SQLite database, or its first page is damaged";

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            Some(ErrorCode::DiskFull) => Self::DiskFull,
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Self::ReadOnly(text),
            Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch) => Self::Rejected(text),
            Some(ErrorCode::NotADatabase) => Self::ForeignDatabase(NOT_A_DATABASE_MESSAGE.to_owned()),
            // Without an SQLite error code, a row contains a value of an unexpected type.
            Some(ErrorCode::DatabaseCorrupt) | None => Self::Corrupt(text),
            Some(_) => Self::Unavailable(text),
        }
    }
}
