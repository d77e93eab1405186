//! `onceward lifecycle list`: lists the versions of lifecycles.

use std::fmt::Write as _;

use anyhow::Result;
use clap::Args;
use onceward_api_types::LifecycleVersion;
use serde_json::{Value, json};

use super::backend::run_on_target;
use crate::output::{CommandStatus, print_stdout};
use crate::target::TargetArgs;

/// List the versions of one lifecycle or of all lifecycles, oldest first
#[derive(Args)]
#[command(after_help = "Examples:\n  onceward lifecycle list\n  onceward lifecycle list shop.refund --json")]
pub(crate) struct LifecycleListArgs {
    /// Only versions of this lifecycle
    name: Option<String>,
    #[command(flatten)]
    target: TargetArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl LifecycleListArgs {
    pub(super) fn run(&self) -> Result<CommandStatus> {
        run_on_target(&self.target, self.json, async |backend| {
            let versions = backend.versions(self.name.as_deref()).await?;
            print_stdout(&if self.json { format!("{:#}\n", as_json(&versions)) } else { render(&versions) })?;
            Ok(CommandStatus::Success)
        })
    }
}

fn render(versions: &[LifecycleVersion]) -> String {
    let mut text = String::new();
    let width = versions.iter().map(|version| version.lifecycle.chars().count()).max().unwrap_or(0);
    for version in versions {
        let current_mark = if version.current { "current" } else { "" };
        let by = version.by.as_ref().map_or_else(String::new, |by| format!(", by {by}"));
        let _ = writeln!(
            text,
            "{:width$}  {}  {current_mark:7}  since {}{by}  {} live, {} ended",
            version.lifecycle,
            version.hash.get(..12).unwrap_or(&version.hash),
            version.current_since,
            version.live_records.unwrap_or(0),
            version.ended_records.unwrap_or(0),
        );
    }
    text
}

fn as_json(versions: &[LifecycleVersion]) -> Value {
    let one = |version: &LifecycleVersion| {
        json!({
            "lifecycle": version.lifecycle, "hash": version.hash, "current": version.current, "added_at": version.added_at,
            "current_since": version.current_since, "by": version.by, "live_records": version.live_records.unwrap_or(0),
            "ended_records": version.ended_records.unwrap_or(0),
        })
    };
    json!({ "versions": versions.iter().map(one).collect::<Vec<_>>() })
}
