//! Which database a verb is about.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// As `--db` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Database {
    Sqlite(PathBuf),
    Postgres(String),
}

impl FromStr for Database {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        match url.split_once(':') {
            Some(("sqlite", ":memory:")) => Err("a database in memory is its own engine's alone".to_owned()),
            Some(("sqlite", "")) => Err("`sqlite:` needs the path of a file".to_owned()),
            Some(("sqlite", path)) => Ok(Self::Sqlite(path.into())),
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres(url.to_owned())),
            None if !url.is_empty() => Err(format!("a database is named by a URL; did you mean `sqlite:{url}`?")),
            _ => Err("a database is named as sqlite:PATH or postgres://…".to_owned()),
        }
    }
}

impl Database {
    /// Where an embedded database has its large payloads, unless it is told otherwise.
    pub(crate) fn objects(&self) -> Option<PathBuf> {
        match self {
            Self::Sqlite(path) => {
                let mut name = path.clone().into_os_string();
                name.push(".objects");
                Some(name.into())
            }
            Self::Postgres(_) => None,
        }
    }
}

impl fmt::Display for Database {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(out, "sqlite:{}", path.display()),
            // Its URL may hold a password.
            Self::Postgres(_) => out.write_str("PostgreSQL"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_named_by_a_url() {
        assert_eq!("sqlite:a/b.db".parse(), Ok(Database::Sqlite("a/b.db".into())));
        assert_eq!("sqlite:/a.db".parse(), Ok(Database::Sqlite("/a.db".into())));
        assert_eq!("postgres://a@b/c".parse(), Ok(Database::Postgres("postgres://a@b/c".into())));
        for wrong in ["", "a.db", "sqlite:", "sqlite::memory:", "mysql://x"] {
            assert!(wrong.parse::<Database>().is_err(), "{wrong}");
        }
    }
}
