//! Parses the database URL of `--db`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The database that `--db` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DatabaseUrl {
    Sqlite(PathBuf),
    Postgres(String),
}

impl FromStr for DatabaseUrl {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        match url.split_once(':') {
            Some(("sqlite", ":memory:")) => Err("an in-memory database exists only inside `onceward serve`".to_owned()),
            Some(("sqlite", "")) => Err("`sqlite:` needs a path, such as sqlite:onceward.db".to_owned()),
            Some(("sqlite", path)) => Ok(Self::Sqlite(path.into())),
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres(url.to_owned())),
            None if !url.is_empty() => Err(format!("the database must be a URL; did you mean `sqlite:{url}`?")),
            _ => Err("the database must be sqlite:PATH or postgres://…".to_owned()),
        }
    }
}

impl DatabaseUrl {
    /// Returns the folder beside an embedded database that holds its large payloads by default.
    pub(crate) fn default_object_folder(&self) -> Option<PathBuf> {
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

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(out, "sqlite:{}", path.display()),
            // The URL may contain a password.
            Self::Postgres(_) => out.write_str("PostgreSQL"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_url_accepts_sqlite_and_postgres_only() {
        assert_eq!("sqlite:a/b.db".parse(), Ok(DatabaseUrl::Sqlite("a/b.db".into())));
        assert_eq!("sqlite:/a.db".parse(), Ok(DatabaseUrl::Sqlite("/a.db".into())));
        assert_eq!("postgres://a@b/c".parse(), Ok(DatabaseUrl::Postgres("postgres://a@b/c".into())));
        for wrong in ["", "a.db", "sqlite:", "sqlite::memory:", "mysql://x"] {
            assert!(wrong.parse::<DatabaseUrl>().is_err(), "{wrong}");
        }
    }
}
