//! Differences between the tables and the log.

use std::fmt;

use super::CellText;

/// A difference: the row and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDifference {
    pub table: &'static str,
    /// The record, the key, or the seq of a log entry.
    pub key: String,
    pub kind: DifferenceKind,
    /// Id of the rule that is violated.
    pub rule: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// A column has an unexpected value.
    Differs {
        column: &'static str,
        stored: CellText,
        /// The value that follows from the log.
        expected: CellText,
    },
    /// The row should exist.
    Missing,
    /// The row should not exist.
    Extra,
    /// The row is inconsistent in itself.
    Invalid(String),
}

impl TableDifference {
    pub fn new(table: &'static str, key: impl fmt::Display, kind: DifferenceKind) -> Self {
        Self { table, key: key.to_string(), kind, rule: None }
    }

    pub fn differs(
        table: &'static str,
        key: impl fmt::Display,
        column: &'static str,
        stored: impl fmt::Display,
        expected: impl fmt::Display,
    ) -> Self {
        let what = DifferenceKind::Differs {
            column,
            stored: Some(stored.to_string().into()),
            expected: Some(expected.to_string().into()),
        };
        Self::new(table, key, what)
    }

    pub fn invalid(table: &'static str, key: impl fmt::Display, why: impl Into<String>) -> Self {
        Self::new(table, key, DifferenceKind::Invalid(why.into()))
    }

    pub const fn with_rule(mut self, rule: &'static str) -> Self {
        self.rule = Some(rule);
        self
    }

    pub const fn column(&self) -> Option<&'static str> {
        match self.kind {
            DifferenceKind::Differs { column, .. } => Some(column),
            _ => None,
        }
    }
}

impl fmt::Display for TableDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, key, kind: what, rule } = self;
        write!(f, "{table} {key}")?;
        let shown = |cell: &CellText| cell.as_deref().map_or_else(|| "null".to_owned(), shorten);
        match what {
            DifferenceKind::Differs { column, stored, expected } => {
                write!(f, ", {column}: stored {}, expected {}", shown(stored), shown(expected))?;
            }
            DifferenceKind::Missing => f.write_str(": the row is missing")?,
            DifferenceKind::Extra => f.write_str(": the log does not account for the row")?,
            DifferenceKind::Invalid(why) => write!(f, ": {why}")?,
        }
        rule.map_or(Ok(()), |rule| write!(f, " ({rule})"))
    }
}

/// Shortens a long text to its start and end.
fn shorten(text: &str) -> String {
    const MAX_SHOWN_CHARS: usize = 400;
    const SHOWN_END_CHARS: usize = 150;
    let count = text.chars().count();
    if count <= MAX_SHOWN_CHARS {
        return text.to_owned();
    }
    let start: String = text.chars().take(SHOWN_END_CHARS).collect();
    let end: String = text.chars().skip(count - SHOWN_END_CHARS).collect();
    format!("{start} … {end}")
}
