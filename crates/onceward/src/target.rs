//! Chooses between a server and a database for commands that support both.

use std::path::Path;

use anyhow::{Result, anyhow};
use clap::Args;
use onceward_store::SqliteScanner;
use onceward_worker::{Client, ClientError};

use crate::database::DatabaseUrl;
use crate::database_args::OptionalDatabaseArg;
use crate::output::{CommandStatus, print_stderr};
use crate::remote::{self, DEFAULT_SERVER_URL, ServerArgs};

/// The file that `onceward serve` creates by default.
const DEFAULT_DATABASE_FILE: &str = "onceward.db";

/// Arguments that select the server or the database of a command.
#[derive(Args)]
pub(crate) struct TargetArgs {
    #[command(flatten)]
    db: OptionalDatabaseArg,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) enum Target {
    Database(DatabaseUrl),
    Server,
}

impl TargetArgs {
    /// Returns the database that a flag names, else the server of `--server` or `ONCEWARD_URL`, else the database of
    /// `ONCEWARD_DB`. Without any of them, returns the default file, or the default server if the file is missing or a
    /// server has it open.
    pub(crate) fn resolve(&self) -> Target {
        let by_variable = self.db.by_variable.as_ref().filter(|_| !self.server.is_server_named());
        if let Some(database) = self.db.by_flag.as_ref().or(by_variable) {
            return Target::Database(database.clone());
        }
        let file = Path::new(DEFAULT_DATABASE_FILE);
        if self.server.is_server_named() || !file.exists() || SqliteScanner::lock_holder_of(file).is_some() {
            return Target::Server;
        }
        print_stderr(&format!("using the database {DEFAULT_DATABASE_FILE}; choose a server with --server\n"));
        Target::Database(DatabaseUrl::Sqlite(file.into()))
    }

    /// Creates a client. If no server was named, prints the address, because another user's server may run there.
    pub(crate) fn client(&self) -> Result<Client> {
        if !self.server.is_server_named() {
            print_stderr(&format!("using the server at {DEFAULT_SERVER_URL}\n"));
        }
        self.server.client()
    }

    pub(crate) fn api_key(&self) -> Option<&str> {
        self.server.api_key()
    }

    /// Prints a server's refusal and returns failure; returns an error if there was no reply.
    pub(crate) fn report_error(&self, error: ClientError, as_json: bool) -> Result<CommandStatus> {
        let ClientError::Problem(problem) = error else { return Err(self.with_hint(error)) };
        remote::report_problem(&problem, self.api_key(), as_json)
    }

    /// Adds a hint if the server is unreachable.
    pub(crate) fn with_hint(&self, error: ClientError) -> anyhow::Error {
        if !self.server.is_server_named() && !Path::new(DEFAULT_DATABASE_FILE).exists() {
            return anyhow!(
                "{error}, and the current folder has no {DEFAULT_DATABASE_FILE}; choose a database with --db or a server with --server"
            );
        }
        if !self.server.is_server_named() && matches!(error, ClientError::Unreachable { .. }) {
            // Without a flag, the file exists and yet is not the target only if it is locked.
            return anyhow!(
                "{error}, but another process has {DEFAULT_DATABASE_FILE} open; if it is a server, choose its address with --server"
            );
        }
        remote::with_hint(error)
    }
}
