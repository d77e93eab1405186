//! `onceward verify`: is everything in a database as its log says?

use std::fmt::Write as _;

use anyhow::{Context, Result};
use clap::Args;
use onceward_core::counted;
use onceward_engine::{Drift, Report, Watch, verify, verify_objects};
use onceward_store::scan::{Scan, What};
use onceward_store::{Clock, Difference, PostgresView, SqliteView, StoreError};
use onceward_system_image::verify_pictures;
use serde_json::{Value, json};

use crate::answer::{Outcome, complain, say};
use crate::bar::Bar;
use crate::database::Database;
use crate::objects::Kept;

/// Recompute everything that a database keeps from its log, and name each difference
///
/// Works on a copy and on a database that an engine is writing. Nothing is written. Checks the log's hashes and that it has no
/// gap, works out every record, execution, effect, balance, key, count, link, queue and timer again and compares them, decides
/// every operation again that this version of the deciding code decided, and checks what must hold of all of it.
///
/// Exits with 0 if all is as the log says, with 1 and each difference if not or if the database is of another schema, with 2 if there
/// is no database to read.
#[derive(Args)]
#[command(after_help = "Example:\n  onceward verify\n  onceward verify --db sqlite:backup.db --json")]
pub(crate) struct Verify {
    /// The database
    #[arg(long, default_value = "sqlite:onceward.db", value_name = "URL")]
    db: Database,
    #[command(flatten)]
    objects: Kept,
    /// Read large payloads and pictures, too, and compare them with their hashes; else only whether they are there
    #[arg(long)]
    contents: bool,
    /// Print the findings as JSON on standard output; docs/verify.md describes it
    #[arg(long)]
    json: bool,
}

impl Verify {
    pub(crate) fn run(&self) -> Result<Outcome> {
        let mut show = Show { tells: !self.json, bar: Bar::wanted(), failed: None };
        let report = match self.look(&mut show) {
            // What cannot be read because it is damaged is found wanting, too.
            Err(StoreError::Corrupt(why)) => Report { stopped: Some(why), ..Report::default() },
            // There is a database, and another program can look at it.
            Err(error @ (StoreError::TooOld { .. } | StoreError::TooNew { .. })) => {
                show.clear();
                complain(&format!("error: {}: {error}\n", self.db));
                return Ok(Outcome::Wanting);
            }
            other => other.with_context(|| self.db.to_string())?,
        };
        show.clear();
        if let Some(error) = show.failed {
            return Err(error);
        }
        say(&if self.json { format!("{:#}\n", as_json(&report)) } else { summary(&report) })?;
        let is_fine = report.is_clean() && report.stopped.is_none();
        Ok(if is_fine { Outcome::Done } else { Outcome::Wanting })
    }

    fn look(&self, show: &mut Show) -> Result<Report, StoreError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        match &self.db {
            Database::Sqlite(path) => runtime.block_on(self.look_at(&SqliteView::open(path)?, show)),
            Database::Postgres(url) => {
                runtime.block_on(async { self.look_at(&PostgresView::open(url).await?, show).await })
            }
        }
    }

    async fn look_at<S: Scan>(&self, view: &S, show: &mut Show) -> Result<Report, StoreError> {
        let mut report = verify(view, Clock::machine().now(), show).await?;
        let objects = self.objects.existing(&self.db).await;
        if let Some(objects) = objects.map_err(|error| StoreError::Unavailable(error.to_string()))? {
            let looked = verify_objects(view, &objects, self.contents, show, &mut report).await;
            looked.map_err(|error| StoreError::Unavailable(error.to_string()))?;
            let looked = verify_pictures(view, &objects, self.contents, show, &mut report).await;
            looked.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        }
        Ok(report)
    }
}

/// Tells of each difference when it is found, and shows how far it is.
struct Show {
    tells: bool,
    bar: Option<Bar>,
    failed: Option<anyhow::Error>,
}

impl Show {
    fn line(&mut self, text: &str) {
        if self.tells && self.failed.is_none() {
            self.clear();
            self.failed = say(text).err();
        }
    }

    fn clear(&mut self) {
        if let Some(bar) = &mut self.bar {
            bar.clear();
        }
    }
}

impl Watch for Show {
    fn difference(&mut self, difference: &Difference) {
        self.line(&format!("{difference}\n"));
    }

    fn drift(&mut self, drift: &Drift) {
        self.line(&format!("drift: entry {}: {}\n", drift.seq, drift.why));
    }

    fn progress(&mut self, what: &'static str, done: u64, all: u64) {
        if let Some(bar) = &mut self.bar {
            bar.draw(what, done, all);
        }
    }
}

fn summary(report: &Report) -> String {
    let Report { seq, entries, records, rows, decided, undecided, other_refusals, too_young, pruned, .. } = report;
    let mut text = format!(
        "{} up to place {seq}, {}, {}; {} decided again\n",
        counted(*entries, "entry", "entries"),
        counted(*records, "record", "records"),
        counted(*rows, "row", "rows"),
        counted(*decided, "operation", "operations"),
    );
    if pruned.checkpoints > 0 {
        let _ = writeln!(
            text,
            "note: pruning took {} with {}, up to place {}. What they were is no longer proved, only what {} of them; nor is what \
             they left in accounts, counts and keys. {} not decided again",
            counted(pruned.records, "record", "records"),
            counted(pruned.entries, "entry", "entries"),
            pruned.floor,
            counted(pruned.checkpoints, "checkpoint says", "checkpoints say"),
            counted(pruned.undecided, "operation is", "operations are"),
        );
    }
    for (count, one, many) in [
        (
            undecided,
            "operation could not be decided again: another version of the deciding code decided it",
            "operations could not be decided again: another version of the deciding code decided them",
        ),
        (
            other_refusals,
            "refusal would be answered otherwise: it rested on what had been loaded",
            "refusals would be answered otherwise: they rested on what had been loaded",
        ),
        (
            too_young,
            "row changed while its table was read, and was not looked for",
            "rows changed while their table was read, and were not looked for",
        ),
    ] {
        if *count > 0 {
            let _ = writeln!(text, "note: {}", counted(*count, one, many));
        }
    }
    if let Some(why) = &report.stopped {
        let _ = writeln!(text, "stopped: {why}");
    }
    match (report.all_differences(), report.all_drifts()) {
        (0, 0) if report.stopped.is_none() => text.push_str("all is as the log says\n"),
        (0, 0) => text.push_str("found wanting: it could not be looked at to its end\n"),
        (differences, drifts) => {
            let (differences, drifts) =
                (counted(differences, "difference", "differences"), counted(drifts, "drift", "drifts"));
            let _ = writeln!(text, "found wanting: {differences}, {drifts}");
        }
    }
    text
}

fn as_json(report: &Report) -> Value {
    let differences: Vec<Value> = report.differences.iter().map(difference).collect();
    let drifts: Vec<Value> =
        report.drifts.iter().map(|drift| json!({ "entry": drift.seq, "why": drift.why })).collect();
    json!({
        "clean": report.is_clean() && report.stopped.is_none(),
        "last_entry": report.seq,
        "entries": report.entries,
        "records": report.records,
        "rows": report.rows,
        "objects": report.objects,
        "decided_again": report.decided,
        "not_decided_again": report.undecided,
        "other_refusals": report.other_refusals,
        "too_young": report.too_young,
        "pruned": {
            "checkpoints": report.pruned.checkpoints,
            "records": report.pruned.records,
            "entries": report.pruned.entries,
            "up_to": report.pruned.floor,
            "not_decided_again": report.pruned.undecided,
        },
        "stopped": report.stopped,
        "differences": differences,
        "more_differences": report.more_differences,
        "drifts": drifts,
        "more_drifts": report.more_drifts,
    })
}

fn difference(difference: &Difference) -> Value {
    let (what, column, kept, told, why) = match &difference.what {
        What::Differs { column, kept, told } => ("differs", Some(*column), kept.as_deref(), told.as_deref(), None),
        What::Missing => ("missing", None, None, None, None),
        What::Extra => ("extra", None, None, None, None),
        What::Broken(why) => ("broken", None, None, None, Some(why)),
    };
    json!({
        "table": difference.table,
        "key": difference.key,
        "what": what,
        "column": column,
        "kept": kept,
        "told": told,
        "why": why,
        "rule": difference.rule,
    })
}
