//! `onceward prune`: deletes records that ended before the retention cutoff.

use std::fmt::Write as _;
use std::time::Duration as Length;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use onceward_api_types::{PruneBody, PruneReport};
use onceward_core::count_noun;
use onceward_core::time::Duration;
use onceward_engine::{
    EngineConfig, ProgressObserver, PruneOptions, RetentionPolicy, collect_orphans, prune_with_progress,
};
use onceward_server::prune_report_json;
use onceward_store::{AnyStore, SqliteStore, Store as _, StoreError};
use onceward_worker::ClientError;
use serde_json::json;

use crate::database::DatabaseUrl;
use crate::object_storage::ObjectStorageArgs;
use crate::output::{CommandStatus, print_stderr, print_stdout};
use crate::progress_bar::ProgressBar;
use crate::remote;
use crate::retention::RetentionArgs;
use crate::target::{Target, TargetArgs};

/// Delete records that ended before the retention cutoff
///
/// Deletes ended records with their log entries, and stored replies to old idempotency keys. Without --older-than, --keep or a server's
/// --keep, records of your lifecycles are kept forever: the command then deletes only ended records of the engine's own lifecycles
/// (onceward.…) and old idempotency keys. A running server prunes by itself; use this command to prune earlier. Account balances, counts
/// and unique keys that must outlive their records are kept in a checkpoint in the log. Pruning cannot be undone: make a backup first.
///
/// With --db, the command works on the database directly. Stop the server that has a SQLite file open; servers on PostgreSQL may run. With
/// --server, that server prunes; the command needs an operator's API key. With neither, the command uses onceward.db in the current folder
/// if no server has it open, otherwise the server at 127.0.0.1:7171.
///
/// With --db, give the same --keep as to `serve`, or set `ONCEWARD_KEEP` for both. A server uses its own retention for everything that
/// --older-than, --keys-older-than and --only do not set; --keep does not change it.
///
/// Exit codes: 0 done; 1 damaged records were kept, the server refused, an engine has the database open, or its schema is newer than this
/// program; 2 the server or the database cannot be reached.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  onceward prune --older-than 90d --dry-run\n  onceward prune --db sqlite:jobs.db --older-than 90d\n  \
                  onceward prune --server http://127.0.0.1:7171 --only onceward.delivery --older-than 2d"
)]
pub(crate) struct PruneArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    objects: ObjectStorageArgs,
    #[command(flatten)]
    retention: RetentionArgs,
    /// Delete records that ended longer ago, such as 12h or 90d. A lifecycle that --keep names keeps its own time, unless --only names it
    #[arg(long, value_name = "TIME", value_parser = parse_duration_or_days)]
    older_than: Option<Length>,
    /// Delete stored replies to idempotency keys that are older. Default: the server's retention; with --db 7d
    #[arg(long, value_name = "TIME", value_parser = parse_duration_or_days)]
    keys_older_than: Option<Length>,
    /// Only records of this lifecycle. Repeatable
    #[arg(long, value_name = "LIFECYCLE")]
    only: Vec<String>,
    /// Only report what would be deleted
    #[arg(long)]
    dry_run: bool,
    /// Print the result as JSON; see docs/retention.md
    #[arg(long)]
    json: bool,
}

/// Parses a duration in the syntax of lifecycle files, or in days.
pub(crate) fn parse_duration_or_days(text: &str) -> Result<Length, String> {
    let invalid = || format!("`{text}` is not a duration; examples: 30d, 12h, 90m");
    let micros = match text.strip_suffix('d').map(str::parse::<u32>) {
        Some(days) => i64::from(days.map_err(|_| invalid())?) * 86_400_000_000,
        None => text.parse::<Duration>().map_err(|_| invalid())?.micros(),
    };
    u64::try_from(micros).map(Length::from_micros).map_err(|_| invalid())
}

impl PruneArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        let pruned = match self.target.resolve() {
            Target::Server => self.prune_by_server(),
            Target::Database(database) => self.prune_database(&database),
        };
        let pruned = match pruned {
            Ok(pruned) => pruned,
            Err(error) => return self.report_error(error),
        };
        print_stdout(&if self.json { format!("{:#}\n", json!(pruned)) } else { summary(&pruned, self.dry_run) })?;
        Ok(if pruned.damaged.is_empty() { CommandStatus::Success } else { CommandStatus::Failure })
    }

    fn prune_by_server(&self) -> Result<PruneReport> {
        let text = |length: Length| anyhow::Ok(Duration::from_micros(i64::try_from(length.as_micros())?).to_string());
        let body = PruneBody {
            older_than: self.older_than.map(text).transpose()?,
            keys_older_than: self.keys_older_than.map(text).transpose()?,
            only: self.only.clone(),
            dry_run: self.dry_run,
        };
        let client = self.target.client()?;
        Ok(remote::build_runtime()?.block_on(client.prune(&body))?)
    }

    fn retention(&self) -> Result<RetentionPolicy> {
        let retention = self.retention.retention()?.for_call(self.older_than, &self.only);
        let idempotency_keys_ttl = self.keys_older_than.or(retention.idempotency_keys_ttl);
        Ok(RetentionPolicy { idempotency_keys_ttl, ..retention })
    }

    fn prune_database(&self, database: &DatabaseUrl) -> Result<PruneReport> {
        let options = PruneOptions { retention: self.retention()?, dry_run: self.dry_run, ..PruneOptions::default() };
        remote::build_runtime()?.block_on(async {
            self.require_current_schema(database)?;
            let store = database.open_existing().await?;
            self.prune_store(&store, database, &options).await.with_context(|| database.to_string())
        })
    }

    /// A dry run must not run the schema migrations of an embedded database, which opening it would do.
    fn require_current_schema(&self, database: &DatabaseUrl) -> Result<()> {
        let DatabaseUrl::Sqlite(path) = database else { return Ok(()) };
        if !self.dry_run || !path.is_file() {
            return Ok(());
        }
        let schema = SqliteStore::schema(path).with_context(|| database.to_string())?;
        if schema.current != 0 && !schema.pending.is_empty() {
            bail!("{database}: the database has an older schema; run `onceward migrate`");
        }
        Ok(())
    }

    async fn prune_store(
        &self,
        store: &AnyStore,
        database: &DatabaseUrl,
        options: &PruneOptions,
    ) -> Result<PruneReport> {
        let catalog = store.catalog().await?;
        if let Some(name) = self.only.iter().find(|name| catalog.definitions.get(name.as_str()).is_none()) {
            return Err(anyhow!("the database has no lifecycle `{name}`"));
        }
        self.retention.require_known_lifecycles(&catalog.definitions.lifecycles.keys().cloned().collect())?;
        // Open the object storage first: if that fails, nothing has been deleted yet.
        let objects = self.objects.open_or_default(database).await?;
        let mut progress = PruneProgress(ProgressBar::for_terminal());
        let pruned = prune_with_progress(store, options, &mut progress).await;
        progress.clear();
        let pruned = pruned.map_err(anyhow::Error::from)?;
        if let (Some(objects), false) = (objects, self.dry_run) {
            // Delete the large payloads that no record references any more.
            collect_orphans(store, &objects, EngineConfig::default().orphan_ttl).await?;
        }
        Ok(prune_report_json(&pruned, &options.retention))
    }

    /// Reports transient errors and a server's refusal as failure, not as misuse.
    fn report_error(&self, error: anyhow::Error) -> Result<CommandStatus> {
        let error = match error.downcast::<ClientError>() {
            Ok(error) => return self.target.report_error(error, self.json),
            Err(error) => error,
        };
        match error.downcast_ref() {
            Some(StoreError::Locked { by }) => {
                print_stderr(&format!(
                    "error: {by} has the database open; stop that process, or let its server prune with --server\n"
                ));
                Ok(CommandStatus::Failure)
            }
            Some(StoreError::SchemaTooNew { .. } | StoreError::Busy) => {
                print_stderr(&format!("error: {error:#}\n"));
                Ok(CommandStatus::Failure)
            }
            _ => Err(error),
        }
    }
}

struct PruneProgress(Option<ProgressBar>);

impl PruneProgress {
    fn clear(&mut self) {
        if let Some(bar) = &mut self.0 {
            bar.clear();
        }
    }
}

impl ProgressObserver for PruneProgress {
    fn on_progress(&mut self, what: &'static str, done: u64, all: u64) {
        if let Some(bar) = &mut self.0 {
            bar.draw(what, done, all);
        }
    }
}

fn summary(pruned: &PruneReport, dry_run: bool) -> String {
    let (records, entries) =
        (count_noun(pruned.records, "record", "records"), count_noun(pruned.entries, "entry", "entries"));
    let mut summary_text = String::new();
    for share in &pruned.shares {
        let _ = writeln!(
            summary_text,
            "{} in {} of owner {}: {}",
            share.lifecycle, share.state, share.owner, share.records
        );
    }
    for damaged in &pruned.damaged {
        let _ = writeln!(summary_text, "kept {}, which is damaged: {}", damaged.record, damaged.why);
    }
    let _ = match (dry_run, pruned.checkpoint) {
        (true, _) => writeln!(summary_text, "would delete {records} with {entries}"),
        (false, None) => writeln!(summary_text, "no records deleted"),
        (false, Some(seq)) => {
            writeln!(summary_text, "deleted {records} with {entries}; the checkpoint has seq {seq}")
        }
    };
    for (count, one, many) in [
        (pruned.idempotency_keys, "idempotency key deleted", "idempotency keys deleted"),
        (
            pruned.held,
            "old record kept, because related records are not old enough",
            "old records kept, because related records are not old enough",
        ),
        (pruned.busy, "record kept, because it changed meanwhile", "records kept, because they changed meanwhile"),
    ] {
        if count > 0 {
            let _ = writeln!(summary_text, "{}", count_noun(count, one, many));
        }
    }
    let _ = writeln!(summary_text, "kept: {}", pruned.retention);
    summary_text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_is_parsed_from_days_or_duration_units() {
        assert_eq!(parse_duration_or_days("30d"), Ok(Length::from_hours(30 * 24)));
        assert_eq!(parse_duration_or_days("90m"), Ok(Length::from_mins(90)));
        assert_eq!(parse_duration_or_days("0d"), Ok(Length::ZERO));
        for wrong in ["", "d", "-1d", "30", "many"] {
            assert!(parse_duration_or_days(wrong).is_err(), "{wrong}");
        }
    }
}
