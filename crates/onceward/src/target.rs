//! Chooses between a server and a database for commands that support both.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use clap::Args;
use onceward_store::SqliteScanner;
use onceward_worker::{Client, ClientError};

use crate::database::DatabaseUrl;
use crate::output::print_stderr;
use crate::remote;

/// The file that `onceward serve` creates by default.
const DEFAULT_DATABASE_FILE: &str = "onceward.db";

/// The address that `onceward serve` listens on by default.
const DEFAULT_SERVER_URL: &str = "http://127.0.0.1:7171";

/// Arguments that select the server or the database of a command.
#[derive(Args)]
pub(crate) struct TargetArgs {
    /// Work on this database directly, without a server: sqlite:PATH or postgres://…
    #[arg(long, value_name = "URL")]
    db: Option<DatabaseUrl>,
    /// Address of the server
    #[arg(long, value_name = "URL", env = "ONCEWARD_URL")]
    server: Option<String>,
    /// Operator's API key for the server
    #[arg(long, value_name = "KEY", env = "ONCEWARD_KEY", hide_env_values = true)]
    key: Option<String>,
    /// File with additional root certificates (PEM) for https
    #[arg(long, env = "ONCEWARD_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
}

pub(crate) enum Target {
    Database(DatabaseUrl),
    /// The default file exists, but this program cannot read it.
    Unreadable(DatabaseUrl),
    Server,
}

impl TargetArgs {
    /// Returns the target named by a flag. Without one, returns the default file, or the default server if the file is
    /// missing or a server has it open.
    pub(crate) fn resolve(&self) -> Target {
        if let Some(database) = &self.db {
            return Target::Database(database.clone());
        }
        if self.server.is_some() || !Path::new(DEFAULT_DATABASE_FILE).exists() {
            return Target::Server;
        }
        match SqliteScanner::open(DEFAULT_DATABASE_FILE).map(|view| view.lock_holder()) {
            Ok(None) => Target::Database(DatabaseUrl::Sqlite(DEFAULT_DATABASE_FILE.into())),
            Ok(Some(_)) => Target::Server,
            Err(_) => Target::Unreadable(DatabaseUrl::Sqlite(DEFAULT_DATABASE_FILE.into())),
        }
    }

    /// Creates a client. If no server was named, prints the address, because another user's server may run there.
    pub(crate) fn client(&self) -> Result<Client, ClientError> {
        if self.server.is_none() {
            print_stderr(&format!("using the server at {DEFAULT_SERVER_URL}\n"));
        }
        remote::build_client(self.server.as_deref().unwrap_or(DEFAULT_SERVER_URL), self.api_key(), self.ca.as_deref())
    }

    pub(crate) fn api_key(&self) -> Option<&str> {
        self.key.as_deref().filter(|key| !key.is_empty())
    }

    /// Adds a hint if the server is unreachable.
    pub(crate) fn with_hint(&self, error: ClientError) -> anyhow::Error {
        if self.server.is_none() && !Path::new(DEFAULT_DATABASE_FILE).exists() {
            return anyhow!(
                "{error}, and the current folder has no {DEFAULT_DATABASE_FILE}; choose a database with --db or a server with --server"
            );
        }
        remote::with_hint(error)
    }
}
