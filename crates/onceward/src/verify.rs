//! `onceward verify`: replays the log and compares all tables with it.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use clap::Args;
use onceward_core::count_noun;
use onceward_engine::{DecisionDrift, ProgressObserver, VerifyReport, verify, verify_objects};
use onceward_store::scan::{DifferenceKind, Scan};
use onceward_store::{Clock, PostgresScanner, SqliteScanner, StoreError, TableDifference};
use onceward_system_image::verify_images;
use serde_json::{Value, json};

use crate::database::DatabaseUrl;
use crate::database_args::DatabaseArg;
use crate::object_storage::ObjectStorageArgs;
use crate::output::{CommandStatus, print_stderr, print_stdout};
use crate::progress_bar::ProgressBar;

/// Verify a database: replay its log and report each difference
///
/// The command only reads and may run beside an engine. It checks the hashes and the completeness of the log, recomputes every record,
/// execution, effect, balance, unique key, count, link, queue and timer from the log, re-decides every operation that the same version of
/// the engine decided, and checks the invariants. See docs/verify.md.
///
/// Exit codes: 0 the database matches its log; 1 there are differences, or the database has another schema version; 2 there is no database
/// to read.
#[derive(Args)]
#[command(after_help = "Examples:\n  onceward verify\n  onceward verify --db sqlite:backup.db --json")]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    db: DatabaseArg<DatabaseUrl>,
    #[command(flatten)]
    objects: ObjectStorageArgs,
    /// Also read large payloads and images and compare their hashes. Default: only check that they exist
    #[arg(long)]
    contents: bool,
    /// Print the report as JSON; see docs/verify.md
    #[arg(long)]
    json: bool,
}

impl VerifyArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        let mut progress =
            VerifyProgress { prints_lines: !self.json, bar: ProgressBar::for_terminal(), output_error: None };
        let report = match self.verify_database(&mut progress) {
            // Unreadable because damaged: a finding, not misuse.
            Err(StoreError::Corrupt(why)) => VerifyReport { stopped: Some(why), ..VerifyReport::default() },
            // The database exists, and another version of the program can verify it.
            Err(error @ (StoreError::SchemaTooOld { .. } | StoreError::SchemaTooNew { .. })) => {
                progress.clear();
                print_stderr(&format!("error: {}: {error}\n", self.db));
                return Ok(CommandStatus::Failure);
            }
            other => other.with_context(|| self.db.to_string())?,
        };
        progress.clear();
        if let Some(error) = progress.output_error {
            return Err(error);
        }
        print_stdout(&if self.json { format!("{:#}\n", as_json(&report)) } else { summary(&report) })?;
        let is_fine = report.is_clean() && report.stopped.is_none();
        Ok(if is_fine { CommandStatus::Success } else { CommandStatus::Failure })
    }

    fn verify_database(&self, progress: &mut VerifyProgress) -> Result<VerifyReport, StoreError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        match &*self.db {
            DatabaseUrl::Sqlite(path) => runtime.block_on(self.verify_view(&SqliteScanner::open(path)?, progress)),
            DatabaseUrl::Postgres(url) => {
                runtime.block_on(async { self.verify_view(&PostgresScanner::open(url).await?, progress).await })
            }
        }
    }

    async fn verify_view<S: Scan>(&self, view: &S, progress: &mut VerifyProgress) -> Result<VerifyReport, StoreError> {
        let mut report = verify(view, Clock::machine().now(), progress).await?;
        let objects = self.objects.open_or_default(&self.db).await;
        let objects = objects.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let verified = verify_objects(view, objects.as_ref(), self.contents, progress, &mut report).await;
        verified.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        if let Some(objects) = objects {
            let verified = verify_images(view, &objects, self.contents, progress, &mut report).await;
            verified.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        }
        Ok(report)
    }
}

/// Prints each difference as it is found, and draws the progress bar.
struct VerifyProgress {
    prints_lines: bool,
    bar: Option<ProgressBar>,
    output_error: Option<anyhow::Error>,
}

impl VerifyProgress {
    fn print_line(&mut self, text: &str) {
        if self.prints_lines && self.output_error.is_none() {
            self.clear();
            self.output_error = print_stdout(text).err();
        }
    }

    fn clear(&mut self) {
        if let Some(bar) = &mut self.bar {
            bar.clear();
        }
    }
}

impl ProgressObserver for VerifyProgress {
    fn on_difference(&mut self, difference: &TableDifference) {
        self.print_line(&format!("{difference}\n"));
    }

    fn on_drift(&mut self, drift: &DecisionDrift) {
        self.print_line(&format!("drift: entry {}: {}\n", drift.seq, drift.reason));
    }

    fn on_progress(&mut self, what: &'static str, done: u64, all: u64) {
        if let Some(bar) = &mut self.bar {
            bar.draw(what, done, all);
        }
    }
}

fn summary(report: &VerifyReport) -> String {
    let VerifyReport {
        seq,
        entries,
        records,
        rows,
        redecided,
        not_redecided,
        other_refusals,
        changed_while_read,
        pruned,
        ..
    } = report;
    let mut text = format!(
        "verified {} up to seq {seq}, {} and {}; re-decided {}\n",
        count_noun(*entries, "entry", "entries"),
        count_noun(*records, "record", "records"),
        count_noun(*rows, "row", "rows"),
        count_noun(*redecided, "operation", "operations"),
    );
    if pruned.checkpoints > 0 {
        let _ = writeln!(
            text,
            "note: {} with {} up to seq {} were pruned; {} their totals and cannot be verified; {} not re-decided",
            count_noun(pruned.records, "record", "records"),
            count_noun(pruned.entries, "entry", "entries"),
            pruned.floor_seq,
            count_noun(pruned.checkpoints, "checkpoint has", "checkpoints have"),
            count_noun(pruned.not_redecided, "operation is", "operations are"),
        );
    }
    for (count, one, many) in [
        (
            not_redecided,
            "operation was not re-decided, because another version of the engine decided it",
            "operations were not re-decided, because another version of the engine decided them",
        ),
        (
            other_refusals,
            "refusal differs when re-decided; that is expected, because a refusal is logged without validating its reads",
            "refusals differ when re-decided; that is expected, because refusals are logged without validating their reads",
        ),
        (
            changed_while_read,
            "row was not compared, because it changed while its table was read",
            "rows were not compared, because they changed while their table was read",
        ),
    ] {
        if *count > 0 {
            let _ = writeln!(text, "note: {}", count_noun(*count, one, many));
        }
    }
    if let Some(why) = &report.stopped {
        let _ = writeln!(text, "stopped: {why}");
    }
    match (report.total_differences(), report.total_drifts()) {
        (0, 0) if report.stopped.is_none() => text.push_str("no differences: the database matches its log\n"),
        (0, 0) => text.push_str("verification failed: the database could not be read completely\n"),
        (differences, drifts) => {
            let (differences, drifts) =
                (count_noun(differences, "difference", "differences"), count_noun(drifts, "drift", "drifts"));
            let _ = writeln!(text, "verification failed: {differences}, {drifts}");
        }
    }
    text
}

fn as_json(report: &VerifyReport) -> Value {
    let differences: Vec<Value> = report.differences.iter().map(difference_json).collect();
    let drifts: Vec<Value> =
        report.drifts.iter().map(|drift| json!({ "entry": drift.seq, "reason": drift.reason })).collect();
    json!({
        "clean": report.is_clean() && report.stopped.is_none(),
        "last_entry": report.seq,
        "entries": report.entries,
        "records": report.records,
        "rows": report.rows,
        "objects": report.objects,
        "redecided": report.redecided,
        "not_redecided": report.not_redecided,
        "other_refusals": report.other_refusals,
        "changed_while_read": report.changed_while_read,
        "pruned": {
            "checkpoints": report.pruned.checkpoints,
            "records": report.pruned.records,
            "entries": report.pruned.entries,
            "up_to": report.pruned.floor_seq,
            "not_redecided": report.pruned.not_redecided,
        },
        "stopped": report.stopped,
        "differences": differences,
        "more_differences": report.more_differences,
        "drifts": drifts,
        "more_drifts": report.more_drifts,
    })
}

fn difference_json(difference: &TableDifference) -> Value {
    let (kind, column, stored, expected, reason) = match &difference.kind {
        DifferenceKind::Differs { column, stored, expected } => {
            ("differs", Some(*column), stored.as_deref(), expected.as_deref(), None)
        }
        DifferenceKind::Missing => ("missing", None, None, None, None),
        DifferenceKind::Extra => ("extra", None, None, None, None),
        DifferenceKind::Invalid(reason) => ("invalid", None, None, None, Some(reason)),
    };
    json!({
        "table": difference.table,
        "key": difference.key,
        "kind": kind,
        "column": column,
        "stored": stored,
        "expected": expected,
        "reason": reason,
        "rule": difference.rule,
    })
}
