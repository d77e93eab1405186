//! `onceward doctor`: how a database is, and what to do about it.

mod findings;
mod words;

use std::path::Path;

use anyhow::{Context as _, Result};
use clap::Args;
use onceward_store::{Clock, Look, PostgresView, SqliteView, StoreError};

use crate::answer::{Outcome, say};
use crate::database::Database;
use findings::Finding;

/// Say how a database is, and what to do where something is wrong
///
/// Works beside a running engine and writes nothing. It reads what is kept and counts nothing beyond ten thousand rows, so it takes as
/// long on a large database as on a small one. Whether what is kept is true is for `onceward verify` to say.
///
/// Exits with 0 if nothing is wrong, with 1 and each finding if something is, with 2 if there is no database to look at.
#[derive(Args)]
#[command(after_help = "Example:\n  onceward doctor\n  onceward doctor --db postgres://onceward@db/app --json")]
pub(crate) struct Doctor {
    /// The database
    #[arg(long, default_value = "sqlite:onceward.db", value_name = "URL")]
    db: Database,
    /// Print it as JSON on standard output; docs/doctor.md describes it
    #[arg(long)]
    json: bool,
}

/// What was looked at: the database's own words, and what the machine knows besides.
pub(crate) struct Seen {
    look: Look,
    /// The process that works on an embedded database.
    engine: Option<String>,
    is_embedded: bool,
    /// Left on the disk of an embedded database.
    free_bytes: Option<u64>,
    /// The database's clock less the machine's, in microseconds.
    clock_ahead: i64,
}

impl Doctor {
    pub(crate) fn run(&self) -> Result<Outcome> {
        let (seen, findings) = match self.look() {
            Ok(seen) => {
                let findings = findings::of(&seen);
                (Some(seen), findings)
            }
            // There is a database, and it can be said what is wrong with it.
            Err(error @ (StoreError::TooOld { .. } | StoreError::TooNew { .. } | StoreError::Corrupt(_))) => {
                (None, vec![Finding::unreadable(&error)])
            }
            Err(error) => return Err(error).with_context(|| self.db.to_string()),
        };
        let name = self.db.to_string();
        say(&if self.json {
            format!("{:#}\n", words::as_json(&name, seen.as_ref(), &findings))
        } else {
            words::text(&name, seen.as_ref(), &findings)
        })?;
        let is_fine = findings.iter().all(|finding| !finding.is_wrong);
        Ok(if is_fine { Outcome::Done } else { Outcome::Wanting })
    }

    fn look(&self) -> Result<Seen, StoreError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let clock = Clock::machine();
        match &self.db {
            Database::Sqlite(path) => {
                let view = SqliteView::open(path)?;
                let look = runtime.block_on(view.look(clock.now()))?;
                let (engine, free_bytes) = (view.engine(), free(path));
                Ok(Seen { look, engine, is_embedded: true, free_bytes, clock_ahead: 0 })
            }
            Database::Postgres(url) => {
                let look = runtime.block_on(async { PostgresView::open(url).await?.look().await })?;
                let clock_ahead = look.now.micros().saturating_sub(clock.now().micros());
                Ok(Seen { look, engine: None, is_embedded: false, free_bytes: None, clock_ahead })
            }
        }
    }
}

#[cfg(unix)]
fn free(path: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(path).ok()?;
    found.f_bavail.checked_mul(found.f_frsize)
}

#[cfg(not(unix))]
fn free(_: &Path) -> Option<u64> {
    None
}
