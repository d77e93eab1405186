//! `xtask/survivors.toml`: mutants that nobody can notice, each with the reason; and the systems that wait for their turn.

use anyhow::{Context, Result, bail};

use super::maker::Mutant;
use crate::tree;

const PATH: &str = "xtask/survivors.toml";

pub(super) struct Survivor {
    file: String,
    mutant: String,
    pub(super) why: String,
}

pub(super) struct Survivors {
    all: Vec<Survivor>,
    /// Systems whose mutants nobody has gone through yet.
    pub(super) waiting: Vec<String>,
}

impl Survivors {
    pub(super) fn read() -> Result<Self> {
        let text = std::fs::read_to_string(tree::root().join(PATH)).with_context(|| format!("cannot read {PATH}"))?;
        let table: toml::Table = toml::from_str(&text).with_context(|| format!("cannot read {PATH}"))?;
        let mut all = Vec::new();
        for entry in table.get("survivor").and_then(toml::Value::as_array).into_iter().flatten() {
            let part = |name: &str| {
                let found = entry.get(name).and_then(toml::Value::as_str).filter(|text| !text.trim().is_empty());
                found.map(str::to_owned).with_context(|| format!("{PATH}: an entry has no `{name}`"))
            };
            all.push(Survivor { file: part("file")?, mutant: part("mutant")?, why: part("why")? });
        }
        let waiting = table.get("waiting").and_then(toml::Value::as_array).into_iter().flatten();
        let waiting = waiting.filter_map(toml::Value::as_str).map(str::to_owned).collect();
        Ok(Self { all, waiting })
    }

    pub(super) fn why(&self, mutant: &Mutant) -> Option<&str> {
        let found = self.all.iter().find(|entry| entry.file == mutant.file && entry.mutant == mutant.name);
        found.map(|found| found.why.as_str())
    }

    /// An entry that names no mutant excuses nothing.
    pub(super) fn check(&self, mutants: &[Mutant]) -> Result<()> {
        for entry in &self.all {
            if !mutants.iter().any(|mutant| mutant.file == entry.file && mutant.name == entry.mutant) {
                bail!("{PATH}: {} has no mutant `{}` (any more)", entry.file, entry.mutant);
            }
        }
        Ok(())
    }
}
