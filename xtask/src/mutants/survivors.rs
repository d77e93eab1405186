//! Parses `xtask/survivors.toml`: mutants that no test can catch, grouped by reason, and the pending systems.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::generator::LifecycleMutant;
use crate::tree;

const SURVIVORS_FILE: &str = "xtask/survivors.toml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KnownSurvivors {
    /// Systems whose surviving mutants are not reviewed yet.
    #[serde(rename = "pending")]
    pub(super) pending_systems: Vec<String>,
    #[serde(rename = "reason")]
    reasons: Vec<SurvivorReason>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SurvivorReason {
    why: String,
    /// The mutants' names, by lifecycle file.
    mutants: BTreeMap<String, Vec<String>>,
}

impl KnownSurvivors {
    pub(super) fn read() -> Result<Self> {
        let text = std::fs::read_to_string(tree::root().join(SURVIVORS_FILE)).context(SURVIVORS_FILE)?;
        Self::parse(&text).context(SURVIVORS_FILE)
    }

    fn parse(text: &str) -> Result<Self> {
        let survivors: Self = toml::from_str(text)?;
        if survivors.reasons.iter().any(|reason| reason.why.trim().is_empty() || reason.mutants.is_empty()) {
            bail!("a [[reason]] needs `why` and at least one mutant");
        }
        Ok(survivors)
    }

    pub(super) fn reason(&self, mutant: &LifecycleMutant) -> Option<&str> {
        let found = self
            .reasons
            .iter()
            .find(|reason| reason.mutants.get(&mutant.file).is_some_and(|names| names.contains(&mutant.name)));
        found.map(|found| found.why.as_str())
    }

    /// Fails if an entry names a mutant that does not exist.
    pub(super) fn ensure_all_exist(&self, mutants: &[LifecycleMutant]) -> Result<()> {
        for (file, names) in self.reasons.iter().flat_map(|reason| &reason.mutants) {
            if let Some(name) =
                names.iter().find(|name| !mutants.iter().any(|mutant| mutant.file == *file && mutant.name == **name))
            {
                bail!("{SURVIVORS_FILE}: {file} has no mutant `{name}`");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::KnownSurvivors;

    #[test]
    fn reason_without_text_or_mutant_is_rejected() {
        let text = "pending = []\n[[reason]]\nwhy = 'same states'\n[reason.mutants]\n'a.toml' = ['one', 'two']\n";
        assert!(KnownSurvivors::parse(text).is_ok());
        assert!(KnownSurvivors::parse(&text.replace("same states", " ")).is_err());
        assert!(KnownSurvivors::parse(&text.replace("'a.toml' = ['one', 'two']", "")).is_err());
        assert!(KnownSurvivors::parse(&text.replace("why", "reason")).is_err());
    }
}
