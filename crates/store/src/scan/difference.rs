//! Something that is not as the log says.

use std::fmt;

use super::Cell;

/// One difference: where, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub table: &'static str,
    /// The record or the key; the place of an entry of the log.
    pub key: String,
    pub what: What,
    /// The requirement that does not hold.
    pub rule: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A value is another one.
    Differs {
        column: &'static str,
        kept: Cell,
        /// What it should be.
        told: Cell,
    },
    /// It should be there.
    Missing,
    /// Nothing says that it should be there.
    Extra,
    /// It cannot stand as it does.
    Broken(String),
}

impl Difference {
    pub fn new(table: &'static str, key: impl fmt::Display, what: What) -> Self {
        Self { table, key: key.to_string(), what, rule: None }
    }

    pub fn differs(
        table: &'static str,
        key: impl fmt::Display,
        column: &'static str,
        kept: impl fmt::Display,
        told: impl fmt::Display,
    ) -> Self {
        let what = What::Differs { column, kept: Some(kept.to_string().into()), told: Some(told.to_string().into()) };
        Self::new(table, key, what)
    }

    pub fn broken(table: &'static str, key: impl fmt::Display, why: impl Into<String>) -> Self {
        Self::new(table, key, What::Broken(why.into()))
    }

    pub const fn against(mut self, rule: &'static str) -> Self {
        self.rule = Some(rule);
        self
    }

    pub const fn column(&self) -> Option<&'static str> {
        match self.what {
            What::Differs { column, .. } => Some(column),
            _ => None,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, key, what, rule } = self;
        write!(f, "{table} {key}")?;
        let shown = |cell: &Cell| cell.as_deref().map_or_else(|| "nothing".to_owned(), shorten);
        match what {
            What::Differs { column, kept, told } => {
                write!(f, ", {column}: kept is {}, the log says {}", shown(kept), shown(told))?;
            }
            What::Missing => f.write_str(": not there, though the log says it is")?,
            What::Extra => f.write_str(": there, though the log knows nothing of it")?,
            What::Broken(why) => write!(f, ": {why}")?,
        }
        rule.map_or(Ok(()), |rule| write!(f, " ({rule})"))
    }
}

/// A long text by both its ends.
fn shorten(text: &str) -> String {
    const MOST: usize = 400;
    const END: usize = 150;
    let count = text.chars().count();
    if count <= MOST {
        return text.to_owned();
    }
    let start: String = text.chars().take(END).collect();
    let end: String = text.chars().skip(count - END).collect();
    format!("{start} … {end}")
}
