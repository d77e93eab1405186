//! Public ids of executions: the record's id, a point and the fencing token.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::record::{Execution, FencingToken};
use crate::value::RecordId;

/// Tokens stay below 2^53, so that numbers of every programming language hold them exactly.
const TOKEN_LIMIT: u64 = 1 << 53;

/// Public id of an execution (EXE-2). Tokens are unique per record, so the id is unique, and the index of records is
/// enough to find the execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutionId {
    pub record: RecordId,
    pub token: FencingToken,
}

impl Execution {
    /// Returns the id of this execution of `record`.
    pub const fn id(&self, record: RecordId) -> ExecutionId {
        ExecutionId { record, token: self.token }
    }
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.record, self.token.0)
    }
}

impl Serialize for ExecutionId {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ExecutionId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The text is not an execution id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an execution id is the record id, a dot and the attempt number")]
pub struct ParseExecutionIdError;

impl FromStr for ExecutionId {
    type Err = ParseExecutionIdError;

    /// Accepts only the canonical text, the one that [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<Self, ParseExecutionIdError> {
        let (record, token) = text.split_once('.').ok_or(ParseExecutionIdError)?;
        let record = RecordId(Uuid::try_parse(record).map_err(|_| ParseExecutionIdError)?);
        let token: u64 = token.parse().map_err(|_| ParseExecutionIdError)?;
        let id = Self { record, token: FencingToken(token) };
        if (1..TOKEN_LIMIT).contains(&token) && id.to_string() == text { Ok(id) } else { Err(ParseExecutionIdError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD_ID_TEXT: &str = "01990000-0000-7000-8000-00000000abcd";

    /// EXE-2
    #[test]
    fn execution_id_round_trips_through_text() {
        for token in [1, 2, 10, TOKEN_LIMIT - 1] {
            let id = ExecutionId { record: RecordId(Uuid::from_u128(7 << 76 | 5)), token: FencingToken(token) };
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        assert_eq!(
            format!("{RECORD_ID_TEXT}.3").parse::<ExecutionId>().map(|id| id.to_string()),
            Ok(format!("{RECORD_ID_TEXT}.3"))
        );
    }

    /// EXE-2
    #[test]
    fn non_canonical_execution_id_is_rejected() {
        for token in
            ["", "0", "-1", "+1", "01", "1 ", " 1", "1.0", "1e3", "9007199254740992", "18446744073709551616", "١"]
        {
            assert_eq!(
                format!("{RECORD_ID_TEXT}.{token}").parse::<ExecutionId>(),
                Err(ParseExecutionIdError),
                "{token:?}"
            );
        }
        let plain = RECORD_ID_TEXT.replace('-', "");
        for record in [
            "",
            "x",
            &RECORD_ID_TEXT.to_uppercase(),
            &plain,
            &format!("{{{RECORD_ID_TEXT}}}"),
            &format!("urn:uuid:{RECORD_ID_TEXT}"),
        ] {
            assert_eq!(format!("{record}.1").parse::<ExecutionId>(), Err(ParseExecutionIdError), "{record:?}");
        }
        for text in [RECORD_ID_TEXT, "", ".", "1"] {
            assert_eq!(text.parse::<ExecutionId>(), Err(ParseExecutionIdError), "{text:?}");
        }
    }
}
