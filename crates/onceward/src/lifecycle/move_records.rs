//! `onceward lifecycle move`: migrates records to another version.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::Args;
use onceward_api_types::{MigrateRecordsBody, MigrationStep};
use onceward_core::count_noun;
use serde_json::{Value, json};

use super::backend::BackendArgs;
use crate::output::{CommandStatus, print_stderr, print_stdout};
use crate::progress_bar::ProgressBar;

/// Below the limit of one step, so that progress is visible.
const MAX_RECORDS_PER_STEP: usize = 500;

/// More skipped records than this are only counted, so that the list fits on a screen.
const MAX_LISTED_RECORDS: usize = 20;

/// Move records to another version of their lifecycle
///
/// Each is moved by an operation of its own, with an entry in the log. A state of the same name needs no word; where the other version
/// calls it differently, say so with --map. What could keep all of them is found before the first one is moved. Records that a worker
/// holds are left for another time, as are those whose fields do not fit: they are named, and the verb can be called again.
///
/// Exits with 0 when all were moved; with 1 if some were not, or none can be; with 2 if it cannot be tried.
#[derive(Args)]
#[command(
    after_help = "Example:\n  onceward lifecycle move shop.refund --dry-run\n  onceward lifecycle move shop.refund --map approved=to_pay --map stuck=to_pay"
)]
pub(crate) struct MoveRecordsArgs {
    /// The lifecycle
    name: String,
    /// Records in state A go to state B; may be given more than once
    #[arg(long, value_name = "A=B", value_parser = parse_state_pair)]
    map: Vec<(String, String)>,
    /// Only records of this version: its hash, or 8 characters of it
    #[arg(long, value_name = "HASH")]
    from: Option<String>,
    /// To this version, in place of the current one
    #[arg(long, value_name = "HASH")]
    to: Option<String>,
    /// Records that have ended, too
    #[arg(long)]
    ended: bool,
    /// Find out who can be moved, and move nobody
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    backend: BackendArgs,
    /// Print what became of it as JSON on standard output
    #[arg(long)]
    json: bool,
}

fn parse_state_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => Ok((from.to_owned(), to.to_owned())),
        _ => Err("write it as OLD=NEW".to_owned()),
    }
}

impl MoveRecordsArgs {
    pub(super) fn run(&self) -> Result<CommandStatus> {
        let mut map = BTreeMap::new();
        for (from, to) in &self.map {
            if map.insert(from.clone(), to.clone()).is_some_and(|other| other != *to) {
                anyhow::bail!("--map sends `{from}` to two states");
            }
        }
        let mut request = MigrateRecordsBody {
            map,
            from: self.from.clone(),
            to: self.to.clone(),
            ended: self.ended,
            dry_run: self.dry_run,
            after: None,
            limit: Some(MAX_RECORDS_PER_STEP),
        };
        self.backend.run(self.json, async |desk| {
            let mut bar = ProgressBar::for_terminal();
            let mut total = MigrationStep::default();
            let (mut done, mut records) = (0, 0);
            loop {
                let step = desk.migrate_records(&self.name, &request).await?;
                // The first step reports the total; later steps report the remaining records.
                records = step.records.max(records);
                done += step.moved + step.skipped.len() as u64;
                total.moved += step.moved;
                total.to = step.to;
                total.skipped.extend(step.skipped);
                if let Some(bar) = &mut bar {
                    bar.draw("move", done, records);
                }
                request.after = step.next;
                if request.after.is_none() {
                    break;
                }
            }
            if let Some(bar) = &mut bar {
                bar.clear();
            }
            print_stdout(&if self.json { format!("{:#}\n", as_json(&total)) } else { self.summary(&total) })?;
            Ok(if total.skipped.is_empty() { CommandStatus::Success } else { CommandStatus::Failure })
        })
    }

    fn summary(&self, total: &MigrationStep) -> String {
        for left in total.skipped.iter().take(MAX_LISTED_RECORDS) {
            print_stderr(&format!("not moved: {} in {}: {}\n", left.record, left.state, left.reason));
        }
        if total.skipped.len() > MAX_LISTED_RECORDS {
            print_stderr(&format!("not moved: {} more\n", total.skipped.len() - MAX_LISTED_RECORDS));
        }
        let to = total.to.get(..12).unwrap_or(&total.to);
        let records = count_noun(total.moved, "record", "records");
        let verb_phrase = if self.dry_run {
            "would be moved"
        } else if total.moved == 1 {
            "was moved"
        } else {
            "were moved"
        };
        let leased = total.skipped.iter().filter(|left| left.code == "already_leased").count();
        let left = match (total.skipped.len(), leased) {
            (0, _) => String::new(),
            (left, 0) => format!("; {left} could not be"),
            (left, leased) => {
                let of_them = count_noun(
                    leased,
                    "of them because a worker holds it: try that one again",
                    "of them because a worker holds them: try those again",
                );
                format!("; {left} could not be, {of_them}")
            }
        };
        format!("{records} of {} {verb_phrase} to {to}{left}\n", self.name)
    }
}

fn as_json(total: &MigrationStep) -> Value {
    let skipped: Vec<Value> = total
        .skipped
        .iter()
        .map(|left| json!({ "record": left.record, "state": left.state, "code": left.code, "reason": left.reason }))
        .collect();
    json!({ "to": total.to, "moved": total.moved, "skipped": skipped })
}
