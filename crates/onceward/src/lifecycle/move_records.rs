//! `onceward lifecycle move`: migrates records to another version.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::Args;
use onceward_api_types::{MigrateRecordsBody, MigrationStep};
use onceward_core::count_noun;
use serde_json::{Value, json};

use super::backend::run_on_target;
use crate::output::{CommandStatus, print_stderr, print_stdout};
use crate::progress_bar::ProgressBar;
use crate::target::TargetArgs;

/// Below the limit of one step, so that progress is visible.
const MAX_RECORDS_PER_STEP: usize = 500;

/// More skipped records than this are only counted, so that the list fits on a screen.
const MAX_LISTED_RECORDS: usize = 20;

/// Migrate records to another version of their lifecycle
///
/// Each record is migrated by its own operation with a log entry. States with the same name in both versions need no --map. Incompatible
/// versions are refused before the first record is migrated. The command skips and lists records that a worker holds, and records whose
/// values do not fit the version. Run it again when the workers have finished.
///
/// Exit codes: 0 all records were migrated; 1 some or all were not; 2 the server or the database cannot be reached.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  onceward lifecycle move shop.refund --dry-run\n  onceward lifecycle move shop.refund --map approved=to_pay --map stuck=to_pay"
)]
pub(crate) struct MoveRecordsArgs {
    /// Name of the lifecycle
    name: String,
    /// Migrate records in state A to state B. Repeatable
    #[arg(long, value_name = "A=B", value_parser = parse_state_pair)]
    map: Vec<(String, String)>,
    /// Only records of this version: its hash, or at least its first 8 characters
    #[arg(long, value_name = "HASH")]
    from: Option<String>,
    /// Target version. Default: the current version
    #[arg(long, value_name = "HASH")]
    to: Option<String>,
    /// Also migrate records that have ended
    #[arg(long)]
    ended: bool,
    /// Only report which records would be migrated
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    target: TargetArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

fn parse_state_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => Ok((from.to_owned(), to.to_owned())),
        _ => Err("expected OLD=NEW, two state names".to_owned()),
    }
}

impl MoveRecordsArgs {
    pub(super) fn run(&self) -> Result<CommandStatus> {
        let mut map = BTreeMap::new();
        for (from, to) in &self.map {
            if map.insert(from.clone(), to.clone()).is_some_and(|other| other != *to) {
                anyhow::bail!("--map maps `{from}` to two states");
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
        run_on_target(&self.target, self.json, async |backend| {
            let mut bar = ProgressBar::for_terminal();
            let mut total = MigrationStep::default();
            let (mut done, mut records) = (0, 0);
            loop {
                let step = backend.migrate_records(&self.name, &request).await?;
                // The first step reports the total; later steps report the remaining records.
                records = step.records.max(records);
                done += step.moved + step.skipped.len() as u64;
                total.moved += step.moved;
                total.to = step.to;
                total.skipped.extend(step.skipped);
                if let Some(bar) = &mut bar {
                    bar.draw("migrating", done, records);
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
        for skipped in total.skipped.iter().take(MAX_LISTED_RECORDS) {
            print_stderr(&format!("skipped: {} in {}: {}\n", skipped.record, skipped.state, skipped.reason));
        }
        if total.skipped.len() > MAX_LISTED_RECORDS {
            print_stderr(&format!("skipped: {} more\n", total.skipped.len() - MAX_LISTED_RECORDS));
        }
        let to = total.to.get(..12).unwrap_or(&total.to);
        let records = count_noun(total.moved, "record", "records");
        let verb_phrase = if self.dry_run {
            "would be migrated"
        } else if total.moved == 1 {
            "was migrated"
        } else {
            "were migrated"
        };
        let leased = total.skipped.iter().filter(|skipped| skipped.code == "already_leased").count();
        let skipped = match (total.skipped.len(), leased) {
            (0, _) => String::new(),
            (skipped, 0) => format!("; {skipped} skipped"),
            (skipped, leased) => {
                let leased = count_noun(leased, "of them is leased", "of them are leased");
                format!("; {skipped} skipped, {leased}: run the command again later")
            }
        };
        format!("{records} of {} {verb_phrase} to {to}{skipped}\n", self.name)
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
