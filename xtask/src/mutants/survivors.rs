//! Parses `xtask/survivors.toml`: mutants that no test can catch, each with the reason, and the pending systems.

use anyhow::{Context, Result, bail};

use super::generator::LifecycleMutant;
use crate::tree;

const SURVIVORS_FILE: &str = "xtask/survivors.toml";

pub(super) struct KnownSurvivor {
    file: String,
    mutant: String,
    pub(super) reason: String,
}

pub(super) struct KnownSurvivors {
    entries: Vec<KnownSurvivor>,
    /// Systems whose surviving mutants are not reviewed yet.
    pub(super) pending_systems: Vec<String>,
}

impl KnownSurvivors {
    pub(super) fn read() -> Result<Self> {
        let text = std::fs::read_to_string(tree::root().join(SURVIVORS_FILE))
            .with_context(|| format!("cannot read {SURVIVORS_FILE}"))?;
        let table: toml::Table = toml::from_str(&text).with_context(|| format!("cannot read {SURVIVORS_FILE}"))?;
        let mut all = Vec::new();
        for entry in table.get("survivor").and_then(toml::Value::as_array).into_iter().flatten() {
            let part = |name: &str| {
                let found = entry.get(name).and_then(toml::Value::as_str).filter(|text| !text.trim().is_empty());
                found.map(str::to_owned).with_context(|| format!("{SURVIVORS_FILE}: an entry has no `{name}`"))
            };
            all.push(KnownSurvivor { file: part("file")?, mutant: part("mutant")?, reason: part("why")? });
        }
        let waiting = table.get("waiting").and_then(toml::Value::as_array).into_iter().flatten();
        let waiting = waiting.filter_map(toml::Value::as_str).map(str::to_owned).collect();
        Ok(Self { entries: all, pending_systems: waiting })
    }

    pub(super) fn reason(&self, mutant: &LifecycleMutant) -> Option<&str> {
        let found = self.entries.iter().find(|entry| entry.file == mutant.file && entry.mutant == mutant.name);
        found.map(|found| found.reason.as_str())
    }

    /// Fails if an entry names a mutant that does not exist.
    pub(super) fn ensure_all_exist(&self, mutants: &[LifecycleMutant]) -> Result<()> {
        for entry in &self.entries {
            if !mutants.iter().any(|mutant| mutant.file == entry.file && mutant.name == entry.mutant) {
                bail!("{SURVIVORS_FILE}: {} has no mutant `{}` (any more)", entry.file, entry.mutant);
            }
        }
        Ok(())
    }
}
