//! Parses the database URL of `--db` and opens the database.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};
use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore, StoreError};

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
    /// Opens the database. Creates an embedded one that does not exist.
    pub(crate) async fn open(&self) -> Result<AnyStore, StoreError> {
        match self {
            Self::Sqlite(path) => SqliteStore::open(path, Clock::machine()).map(AnyStore::Sqlite),
            Self::Postgres(url) => PostgresStore::open(url).await.map(AnyStore::Postgres),
        }
    }

    /// Opens the database if it is one of Onceward's. Opening any other file would create it, or create tables in it.
    pub(crate) async fn open_existing(&self) -> Result<AnyStore> {
        if let Self::Sqlite(path) = self {
            if path.is_dir() {
                bail!("{self}: it is a folder, not a database file");
            }
            if !path.is_file() {
                bail!("{self}: the file does not exist");
            }
            if SqliteStore::schema(path).with_context(|| self.to_string())?.current == 0 {
                bail!("{self}: not an Onceward database; check the path");
            }
        }
        self.open().await.with_context(|| self.to_string())
    }

    /// Returns the URL for commands in messages; a PostgreSQL URL may contain a password.
    pub(crate) fn without_password(&self) -> String {
        match self {
            Self::Sqlite(_) => self.to_string(),
            Self::Postgres(_) => "postgres://…".to_owned(),
        }
    }

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
