//! `onceward migrate`: runs schema migrations.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use clap::Args;
use onceward_store::{PostgresStore, SchemaStatus, SqliteStore, StoreError};
use serde_json::json;

use crate::database::DatabaseUrl;
use crate::database_args::DatabaseArg;
use crate::output::{CommandStatus, print_stderr, print_stdout};

/// Migrate a database to the schema of this program
///
/// Runs the pending schema migrations in order. A migration that fails changes nothing. A server migrates a SQLite file by itself when it
/// opens it. On PostgreSQL, a server creates the tables in an empty database but refuses an older schema: stop the servers of the old
/// version, make a backup, and run this command.
///
/// Exit codes: 0 the schema is up to date; 1 the schema is newer than this program, an engine has the database open, or with --dry-run
/// there are pending migrations; 2 the database cannot be reached.
#[derive(Args)]
#[command(after_help = "Examples:\n  onceward migrate --dry-run --db postgres://onceward@db/app\n  \
                        onceward migrate --db postgres://onceward@db/app")]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    db: DatabaseArg<DatabaseUrl>,
    /// Only list the pending migrations
    #[arg(long)]
    dry_run: bool,
    /// Print the schema versions and migrations as JSON
    #[arg(long)]
    json: bool,
}

impl MigrateArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        let schema = match self.migrate_or_inspect() {
            Err(error @ (StoreError::SchemaTooNew { .. } | StoreError::Locked { .. } | StoreError::Busy)) => {
                print_stderr(&format!("error: {}: {error}\n", self.db));
                return Ok(CommandStatus::Failure);
            }
            other => other.with_context(|| self.db.to_string())?,
        };
        print_stdout(&if self.json { self.as_json(&schema) } else { self.summary(&schema) })?;
        let has_pending = self.dry_run && !schema.pending.is_empty();
        Ok(if has_pending { CommandStatus::Failure } else { CommandStatus::Success })
    }

    fn migrate_or_inspect(&self) -> Result<SchemaStatus, StoreError> {
        match &*self.db {
            DatabaseUrl::Sqlite(path) if self.dry_run => SqliteStore::schema(path),
            DatabaseUrl::Sqlite(path) => SqliteStore::migrate(path),
            DatabaseUrl::Postgres(url) => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime = runtime.map_err(|error| StoreError::Unavailable(error.to_string()))?;
                runtime.block_on(async {
                    if self.dry_run { PostgresStore::schema(url).await } else { PostgresStore::migrate(url).await }
                })
            }
        }
    }

    fn summary(&self, schema: &SchemaStatus) -> String {
        let SchemaStatus { current: found, supported: known, pending: missing } = schema;
        if missing.is_empty() {
            return format!("{}: schema {found}, up to date\n", self.db);
        }
        let mut text = String::new();
        for name in missing {
            let _ = writeln!(text, "{} {name}", if self.dry_run { "would run" } else { "ran" });
        }
        let verb = if self.dry_run { "would be migrated" } else { "migrated" };
        let _ = writeln!(text, "{}: {verb} from schema {found} to {known}", self.db);
        text
    }

    fn as_json(&self, schema: &SchemaStatus) -> String {
        let SchemaStatus { current: found, supported: known, pending: missing } = schema;
        let now = if self.dry_run { found } else { known };
        format!("{:#}\n", json!({ "found": found, "now": now, "known": known, "migrations": missing }))
    }
}
