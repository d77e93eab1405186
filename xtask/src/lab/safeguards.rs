//! Parses `assurance/lab/guards.toml`: the safeguards, how to remove them, and which tests must fail then.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use toml::Value;

use crate::copy::{core_path, read_source};
use crate::rules::id::{self, RuleId};
use crate::rules::rule_removals::CodeEdit;
use crate::tree;

pub(crate) const SAFEGUARDS_FILE: &str = "assurance/lab/guards.toml";

/// The placeholder for "this safeguard is removed" in an edit's `replace`.
const REMOVED_PLACEHOLDER: &str = "WITHOUT";

/// Names of the removed safeguards.
pub(super) const REMOVED_ENV_VAR: &str = "ONCEWARD_REMOVED_SAFEGUARDS";

/// The function that the copy adds to core: returns whether a safeguard is removed in this process.
pub(crate) const SWITCH_FUNCTION: &str = r#"
/// Only in the copy that proofs run in: whether a guard is out.
pub fn is_safeguard_removed(guard: &str) -> bool {
    static OUT: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();
    let names = || std::env::var("ONCEWARD_REMOVED_SAFEGUARDS").unwrap_or_default().split(',').map(str::to_owned).collect();
    OUT.get_or_init(names).iter().any(|out| out == guard)
}
"#;

/// An edit that removes a safeguard.
pub(crate) struct SafeguardEdit {
    pub(super) safeguard: String,
    pub(crate) edit: CodeEdit,
}

/// Safeguards that are removed together.
pub(super) struct SafeguardRemoval {
    pub(super) safeguards: Vec<String>,
    pub(super) damage_tests: Vec<String>,
    pub(super) failing_tests: Vec<String>,
}

pub(super) struct FailureMode {
    pub(super) rule: RuleId,
    pub(super) name: String,
    pub(super) module: String,
    pub(super) removals: Vec<SafeguardRemoval>,
}

pub(crate) struct Safeguards {
    pub(crate) edits: Vec<SafeguardEdit>,
    pub(super) failure_modes: Vec<FailureMode>,
}

impl Safeguards {
    pub(crate) fn read() -> Result<Self> {
        let text = std::fs::read_to_string(tree::root().join(SAFEGUARDS_FILE))
            .with_context(|| format!("cannot read {SAFEGUARDS_FILE}"))?;
        Self::parse(&text).context(SAFEGUARDS_FILE)
    }

    fn parse(text: &str) -> Result<Self> {
        let table: toml::Table = toml::from_str(text)?;
        let edits = array_of_tables(&table, "edit")?.iter().map(parse_edit).collect::<Result<Vec<_>>>()?;
        let failure_modes =
            array_of_tables(&table, "page")?.iter().map(parse_failure_mode).collect::<Result<Vec<_>>>()?;
        let known: BTreeSet<&str> = edits.iter().map(|place| place.safeguard.as_str()).collect();
        for guard in failure_modes.iter().flat_map(|page| &page.removals).flat_map(|without| &without.safeguards) {
            if !known.contains(guard.as_str()) {
                bail!("no [[edit]] removes the safeguard `{guard}`");
            }
        }
        Ok(Self { edits, failure_modes })
    }

    /// Returns the sources with every safeguard behind its switch.
    pub(crate) fn switched_files(&self) -> Result<BTreeMap<String, String>> {
        let mut edited: BTreeMap<String, String> = BTreeMap::new();
        for place in self.edits.iter().filter(|place| !place.is_lifecycle()) {
            let file = &place.edit.file;
            let text = match edited.get(file) {
                Some(text) => text.clone(),
                None => read_source(file)?,
            };
            edited.insert(file.clone(), place.switched_edit().apply(&text)?);
        }
        Ok(edited)
    }

    /// Returns the shipped lifecycle files without these safeguards, by their path under `systems/`.
    pub(super) fn lifecycles_without(&self, safeguards: &[String]) -> Result<BTreeMap<String, String>> {
        let mut changed: BTreeMap<String, String> = BTreeMap::new();
        for place in self.edits.iter().filter(|place| place.is_lifecycle() && safeguards.contains(&place.safeguard)) {
            let file = &place.edit.file;
            let name = file.trim_start_matches("systems/").to_owned();
            let text = match changed.get(&name) {
                Some(text) => text.clone(),
                None => read_source(file)?,
            };
            changed.insert(name, place.edit.apply(&text)?);
        }
        Ok(changed)
    }
}

impl SafeguardEdit {
    fn is_lifecycle(&self) -> bool {
        self.edit.file.starts_with("systems/")
    }

    /// Returns the edit with the placeholder replaced by a call of the switch.
    fn switched_edit(&self) -> CodeEdit {
        let question = format!("{}::is_safeguard_removed({:?})", core_path(&self.edit.file), self.safeguard);
        CodeEdit { replace: self.edit.replace.replace(REMOVED_PLACEHOLDER, &question), ..self.edit.clone() }
    }
}

fn array_of_tables<'a>(table: &'a toml::Table, key: &str) -> Result<&'a Vec<Value>> {
    table.get(key).and_then(Value::as_array).with_context(|| format!("no [[{key}]]"))
}

fn text_value(entry: &Value, key: &str) -> Result<String> {
    let found = entry.get(key).and_then(Value::as_str).map(str::to_owned);
    found.with_context(|| format!("an entry lacks the text `{key}`: {entry:?}"))
}

fn text_list(entry: &Value, key: &str) -> Result<Vec<String>> {
    let found = entry.get(key).and_then(Value::as_array).with_context(|| format!("an entry lacks the list `{key}`"))?;
    Ok(found.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

fn parse_edit(entry: &Value) -> Result<SafeguardEdit> {
    let rules: Vec<RuleId> = text_list(entry, "rule")?.iter().flat_map(|rule| id::find_rule_ids(rule)).collect();
    let (file, find, replace) = (text_value(entry, "file")?, text_value(entry, "find")?, text_value(entry, "replace")?);
    let edit = CodeEdit { rules, file, find, replace };
    let edit_of_safeguard = SafeguardEdit { safeguard: text_value(entry, "guard")?, edit };
    if edit_of_safeguard.edit.rules.is_empty() {
        bail!("the safeguard `{}` names no rule", edit_of_safeguard.safeguard);
    }
    if edit_of_safeguard.is_lifecycle() == edit_of_safeguard.edit.replace.contains(REMOVED_PLACEHOLDER) {
        bail!(
            "the safeguard `{}`: {REMOVED_PLACEHOLDER} belongs in edits of code, and only there",
            edit_of_safeguard.safeguard
        );
    }
    Ok(edit_of_safeguard)
}

fn parse_failure_mode(entry: &Value) -> Result<FailureMode> {
    let removals = entry.get("without").and_then(Value::as_array).context("a page lacks [[page.without]]")?;
    let without = removals.iter().map(|entry| {
        Ok(SafeguardRemoval {
            safeguards: text_list(entry, "guards")?,
            damage_tests: text_list(entry, "damage")?,
            failing_tests: text_list(entry, "fails")?,
        })
    });
    Ok(FailureMode {
        rule: RuleId::parse(&text_value(entry, "rule")?).context("`rule` is one id")?,
        name: text_value(entry, "name")?,
        module: text_value(entry, "folder")?,
        removals: without.collect::<Result<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE_FILE: &str = r#"
[[edit]]
guard = "fence"
rule = ["FM-5"]
file = "crates/store/src/x.rs"
find = "if late {"
replace = "if late && !WITHOUT {"

[[page]]
rule = "FM-5"
name = "zombie"
folder = "fm_5"
[[page.without]]
guards = ["fence"]
damage = ["damage_a"]
fails = ["prevented_a"]
"#;

    #[test]
    fn safeguard_edit_becomes_runtime_switch() -> Result<()> {
        let guards = Safeguards::parse(SAMPLE_FILE)?;
        let edited = guards.edits[0].switched_edit().apply("if late {")?;
        assert_eq!(edited, "if late && !onceward_core::is_safeguard_removed(\"fence\") {");
        assert_eq!(guards.failure_modes[0].removals[0].failing_tests, ["prevented_a"]);
        Ok(())
    }

    #[test]
    fn inconsistent_file_is_rejected() {
        assert!(Safeguards::parse(&SAMPLE_FILE.replace("guards = [\"fence\"]", "guards = [\"wall\"]")).is_err());
        assert!(Safeguards::parse(&SAMPLE_FILE.replace("!WITHOUT", "true")).is_err());
        assert!(Safeguards::parse(&SAMPLE_FILE.replace("crates/store/src/x.rs", "systems/image/job.toml")).is_err());
    }
}
