//! `onceward backup`: copies a database while it is in use.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use onceward_core::count_noun;
use onceward_store::{BackupError, BackupReport, backup_database};
use serde_json::{Value, json};

use crate::database::DatabaseUrl;
use crate::output::{CommandStatus, print_stderr, print_stdout};
use crate::progress_bar::ProgressBar;

/// Copy an embedded database to a new file, while its engine runs or without one
///
/// The copy is as the database was at one moment, and has everything that was answered before this began. Writers go on; they wait
/// for some hundredths of a second now and then, half a second at most unless the disk is slow. The file appears under its
/// name only when it is whole and on the disk. To restore, put it in the database's place while no engine runs. docs/backup.md
/// tells more.
///
/// Exits with 0 when the copy is there, with 1 if the file is there already or cannot be made now, with 2 if there is no
/// database to copy. PostgreSQL has its own tool for this: `pg_dump`.
#[derive(Args)]
#[command(
    name = "backup",
    after_help = "Example:\n  onceward backup monday.db\n  onceward verify --db sqlite:monday.db"
)]
pub(crate) struct BackupArgs {
    /// The file to make; never one that is there
    #[arg(value_name = "FILE")]
    to: PathBuf,
    /// The database
    #[arg(long, default_value = "sqlite:onceward.db", value_name = "URL")]
    db: DatabaseUrl,
    /// Print what it took as JSON on standard output; docs/backup.md describes it
    #[arg(long)]
    json: bool,
}

impl BackupArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        let DatabaseUrl::Sqlite(path) = &self.db else {
            bail!(
                "PostgreSQL is backed up with its own tools, `pg_dump --schema=onceward` or a base backup: see docs/backup.md"
            );
        };
        if self.to.to_string_lossy().parse::<DatabaseUrl>().is_ok() {
            bail!("{}: FILE is a path, not the URL of a database", self.to.display());
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
            "{}: {} up to place {} of the log; copied in {}, writers waited {} ms at most\n",
            self.to.display(),
            format_size(done.bytes),
            done.seq,
            count_noun(done.holds, "hold", "holds"),
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
        "holds": done.holds,
        "longest_hold_ms": as_millis(done.longest_hold),
        "longest_pause_ms": as_millis(done.longest_pause),
        "pages_again": done.recopied_pages,
        "wal_bytes": done.max_wal_bytes,
    })
}
