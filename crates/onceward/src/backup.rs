//! `onceward backup`: copies a database while it is in use.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use onceward_core::count_noun;
use onceward_store::{BackupError, BackupReport, backup_database};
use serde_json::{Value, json};

use crate::database::DatabaseUrl;
use crate::database_args::DatabaseArg;
use crate::output::{CommandStatus, print_stderr, print_stdout};
use crate::progress_bar::ProgressBar;

/// Back up a SQLite database to a new file, also while its engine runs
///
/// The backup is a consistent snapshot and contains everything that was acknowledged before the command started. The engine keeps
/// writing; a write waits some tens of milliseconds, at most half a second unless the disk is slow. The file appears under its name only
/// when it is complete and synced to disk. To restore, stop the engine and replace the database file with the backup. For PostgreSQL, use
/// `pg_dump`. See docs/backup.md.
///
/// Exit codes: 0 the backup is complete; 1 the file exists or cannot be written now; 2 there is no database to back up.
#[derive(Args)]
#[command(
    name = "backup",
    after_help = "Examples:\n  onceward backup monday.db\n  onceward verify --db sqlite:monday.db"
)]
pub(crate) struct BackupArgs {
    /// File to create; it must not exist
    #[arg(value_name = "FILE")]
    to: PathBuf,
    #[command(flatten)]
    db: DatabaseArg<DatabaseUrl>,
    /// Print the result as JSON; see docs/backup.md
    #[arg(long)]
    json: bool,
}

impl BackupArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        let DatabaseUrl::Sqlite(path) = &*self.db else {
            bail!(
                "`onceward backup` copies SQLite files only; for PostgreSQL use `pg_dump --schema=onceward` or a base backup, see docs/backup.md"
            );
        };
        if self.to.to_string_lossy().parse::<DatabaseUrl>().is_ok() {
            bail!("{}: FILE must be a path, not a database URL", self.to.display());
        }
        let mut bar = ProgressBar::for_terminal();
        let result = backup_database(path, &self.to, &mut |done, all| {
            if let Some(bar) = &mut bar {
                bar.draw("copying", done, all);
            }
        });
        if let Some(bar) = &mut bar {
            bar.clear();
        }
        match result {
            Ok(done) => {
                print_stdout(&if self.json { format!("{:#}\n", as_json(&done)) } else { self.summary(&done) })?;
                Ok(CommandStatus::Success)
            }
            // A refusal, not misuse: a retry may succeed.
            Err(
                error @ (BackupError::Exists(_)
                | BackupError::InProgress(_)
                | BackupError::FileError(..)
                | BackupError::BlockedByReader(_)
                | BackupError::NotWalMode(_)),
            ) => {
                print_stderr(&format!("error: {error}\n"));
                Ok(CommandStatus::Failure)
            }
            Err(error @ BackupError::Store(_)) => Err(error).with_context(|| self.db.to_string()),
        }
    }

    fn summary(&self, done: &BackupReport) -> String {
        format!(
            "{}: {} up to seq {} of the log; writers were blocked {}, at most {} ms each\n",
            self.to.display(),
            format_size(done.bytes),
            done.seq,
            count_noun(done.read_transactions, "time", "times"),
            as_millis(done.longest_pause),
        )
    }
}

fn format_size(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KB", bytes >> 10),
        _ => format!("{} MB", bytes >> 20),
    }
}

fn as_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn as_json(done: &BackupReport) -> Value {
    json!({
        "bytes": done.bytes,
        "last_entry": done.seq,
        "read_transactions": done.read_transactions,
        "longest_read_transaction_ms": as_millis(done.longest_read_transaction),
        "longest_pause_ms": as_millis(done.longest_pause),
        "recopied_pages": done.recopied_pages,
        "max_wal_bytes": done.max_wal_bytes,
    })
}
