//! `onceward lifecycle move`.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::Args;
use onceward_core::counted;
use serde_json::{Value, json};

use super::desk::{At, Moved, Moving};
use crate::answer::{Outcome, complain, say};
use crate::bar::Bar;

/// Records that could not be moved, and are named one by one.
const NAMED: usize = 20;

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
pub(crate) struct MoveRecords {
    /// The lifecycle
    name: String,
    /// Records in state A go to state B; may be given more than once
    #[arg(long, value_name = "A=B", value_parser = pair)]
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
    at: At,
    /// Print what became of it as JSON on standard output
    #[arg(long)]
    json: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => Ok((from.to_owned(), to.to_owned())),
        _ => Err("write it as OLD=NEW".to_owned()),
    }
}

impl MoveRecords {
    pub(super) fn run(&self) -> Result<Outcome> {
        let mut map = BTreeMap::new();
        for (from, to) in &self.map {
            if map.insert(from.clone(), to.clone()).is_some_and(|other| other != *to) {
                anyhow::bail!("--map sends `{from}` to two states");
            }
        }
        let moving =
            Moving { map, from: self.from.clone(), to: self.to.clone(), ended: self.ended, dry_run: self.dry_run };
        self.at.with(self.json, async |desk| {
            let mut bar = Bar::wanted();
            let mut all = Moved::default();
            let mut after = None;
            let (mut done, mut records) = (0, 0);
            loop {
                let step = desk.move_some(&self.name, &moving, after).await?;
                // The first step knows best: later ones find fewer.
                records = step.records.max(records);
                done += step.count + step.left.len() as u64;
                all.count += step.count;
                all.to = step.to;
                all.left.extend(step.left);
                if let Some(bar) = &mut bar {
                    bar.draw("move", done, records);
                }
                after = step.next;
                if after.is_none() {
                    break;
                }
            }
            if let Some(bar) = &mut bar {
                bar.clear();
            }
            say(&if self.json { format!("{:#}\n", as_json(&all)) } else { self.summary(&all) })?;
            Ok(if all.left.is_empty() { Outcome::Done } else { Outcome::Wanting })
        })
    }

    fn summary(&self, all: &Moved) -> String {
        for left in all.left.iter().take(NAMED) {
            complain(&format!("not moved: {} in {}: {}\n", left.record, left.state, left.reason));
        }
        if all.left.len() > NAMED {
            complain(&format!("not moved: {} more\n", all.left.len() - NAMED));
        }
        let to = all.to.get(..12).unwrap_or(&all.to);
        let records = counted(all.count, "record", "records");
        let did = if self.dry_run {
            "would be moved"
        } else if all.count == 1 {
            "was moved"
        } else {
            "were moved"
        };
        let leased = all.left.iter().filter(|left| left.code == "already_leased").count();
        let left = match (all.left.len(), leased) {
            (0, _) => String::new(),
            (left, 0) => format!("; {left} could not be"),
            (left, leased) => {
                let of_them = counted(
                    leased,
                    "of them because a worker holds it: try that one again",
                    "of them because a worker holds them: try those again",
                );
                format!("; {left} could not be, {of_them}")
            }
        };
        format!("{records} of {} {did} to {to}{left}\n", self.name)
    }
}

fn as_json(all: &Moved) -> Value {
    let left: Vec<Value> = all
        .left
        .iter()
        .map(|left| json!({ "record": left.record, "state": left.state, "code": left.code, "reason": left.reason }))
        .collect();
    json!({ "to": all.to, "moved": all.count, "left": left })
}
