//! `lab/guards.toml`: what is taken out of the engine, and what must come of it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use toml::Value;

use crate::copy::{home, source};
use crate::rules::id::{self, RuleId};
use crate::rules::take_away::Edit;
use crate::tree;

pub(crate) const FILE: &str = "lab/guards.toml";

/// The word that stands for "this guard is out".
const WITHOUT: &str = "WITHOUT";

/// Guards that are out, by name.
pub(super) const VARIABLE: &str = "ONCEWARD_LAB_WITHOUT";

/// What the copy's core has besides: whether a guard is out in this process.
pub(crate) const QUESTION: &str = r#"
/// Only in the copy that proofs run in: whether a guard is out.
pub fn guard_is_out(guard: &str) -> bool {
    static OUT: std::sync::OnceLock<Vec<String>> = std::sync::OnceLock::new();
    let names = || std::env::var("ONCEWARD_LAB_WITHOUT").unwrap_or_default().split(',').map(str::to_owned).collect();
    OUT.get_or_init(names).iter().any(|out| out == guard)
}
"#;

/// A guard's place in the sources.
pub(crate) struct Place {
    pub(super) guard: String,
    pub(crate) edit: Edit,
}

/// Some guards out together.
pub(super) struct Without {
    pub(super) guards: Vec<String>,
    pub(super) damage: Vec<String>,
    pub(super) fails: Vec<String>,
}

/// A failure mode.
pub(super) struct Page {
    pub(super) rule: RuleId,
    pub(super) name: String,
    pub(super) folder: String,
    pub(super) without: Vec<Without>,
}

pub(crate) struct Guards {
    pub(crate) places: Vec<Place>,
    pub(super) pages: Vec<Page>,
}

impl Guards {
    pub(crate) fn read() -> Result<Self> {
        let text = std::fs::read_to_string(tree::root().join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
        Self::parse(&text).context(FILE)
    }

    fn parse(text: &str) -> Result<Self> {
        let table: toml::Table = toml::from_str(text)?;
        let places = list(&table, "edit")?.iter().map(place).collect::<Result<Vec<_>>>()?;
        let pages = list(&table, "page")?.iter().map(page).collect::<Result<Vec<_>>>()?;
        let known: BTreeSet<&str> = places.iter().map(|place| place.guard.as_str()).collect();
        for guard in pages.iter().flat_map(|page| &page.without).flat_map(|without| &without.guards) {
            if !known.contains(guard.as_str()) {
                bail!("no [[edit]] takes out the guard `{guard}`");
            }
        }
        Ok(Self { places, pages })
    }

    /// The sources with every guard put behind the question whether it is out.
    pub(crate) fn edited(&self) -> Result<BTreeMap<String, String>> {
        let mut edited: BTreeMap<String, String> = BTreeMap::new();
        for place in self.places.iter().filter(|place| !place.is_lifecycle()) {
            let file = &place.edit.file;
            let text = match edited.get(file) {
                Some(text) => text.clone(),
                None => source(file)?,
            };
            edited.insert(file.clone(), place.question().apply(&text)?);
        }
        Ok(edited)
    }

    /// The lifecycle files of shipped systems, by their place under `systems/`, without these guards.
    pub(super) fn lifecycles(&self, guards: &[String]) -> Result<BTreeMap<String, String>> {
        let mut changed: BTreeMap<String, String> = BTreeMap::new();
        for place in self.places.iter().filter(|place| place.is_lifecycle() && guards.contains(&place.guard)) {
            let file = &place.edit.file;
            let name = file.trim_start_matches("systems/").to_owned();
            let text = match changed.get(&name) {
                Some(text) => text.clone(),
                None => source(file)?,
            };
            changed.insert(name, place.edit.apply(&text)?);
        }
        Ok(changed)
    }
}

impl Place {
    fn is_lifecycle(&self) -> bool {
        self.edit.file.starts_with("systems/")
    }

    /// The edit as code that asks whether the guard is out.
    fn question(&self) -> Edit {
        let question = format!("{}::guard_is_out({:?})", home(&self.edit.file), self.guard);
        Edit { replace: self.edit.replace.replace(WITHOUT, &question), ..self.edit.clone() }
    }
}

fn list<'a>(table: &'a toml::Table, key: &str) -> Result<&'a Vec<Value>> {
    table.get(key).and_then(Value::as_array).with_context(|| format!("no [[{key}]]"))
}

fn word(entry: &Value, key: &str) -> Result<String> {
    let found = entry.get(key).and_then(Value::as_str).map(str::to_owned);
    found.with_context(|| format!("an entry lacks the text `{key}`: {entry:?}"))
}

fn words(entry: &Value, key: &str) -> Result<Vec<String>> {
    let found = entry.get(key).and_then(Value::as_array).with_context(|| format!("an entry lacks the list `{key}`"))?;
    Ok(found.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

fn place(entry: &Value) -> Result<Place> {
    let rules: Vec<RuleId> = words(entry, "rule")?.iter().flat_map(|rule| id::all_in(rule)).collect();
    let (file, find, replace) = (word(entry, "file")?, word(entry, "find")?, word(entry, "replace")?);
    let edit = Edit { rules, file, find, replace, alone: false };
    let place = Place { guard: word(entry, "guard")?, edit };
    if place.edit.rules.is_empty() {
        bail!("the guard `{}` names no rule", place.guard);
    }
    if place.is_lifecycle() == place.edit.replace.contains(WITHOUT) {
        bail!("the guard `{}`: {WITHOUT} stands in edits of code, and only there", place.guard);
    }
    Ok(place)
}

fn page(entry: &Value) -> Result<Page> {
    let without = entry.get("without").and_then(Value::as_array).context("a page lacks [[page.without]]")?;
    let without = without.iter().map(|entry| {
        Ok(Without { guards: words(entry, "guards")?, damage: words(entry, "damage")?, fails: words(entry, "fails")? })
    });
    Ok(Page {
        rule: RuleId::parse(&word(entry, "rule")?).context("`rule` is one id")?,
        name: word(entry, "name")?,
        folder: word(entry, "folder")?,
        without: without.collect::<Result<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
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
    fn a_guard_is_put_behind_a_question() -> Result<()> {
        let guards = Guards::parse(TEXT)?;
        let edited = guards.places[0].question().apply("if late {")?;
        assert_eq!(edited, "if late && !onceward_core::guard_is_out(\"fence\") {");
        assert_eq!(guards.pages[0].without[0].fails, ["prevented_a"]);
        Ok(())
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(Guards::parse(&TEXT.replace("guards = [\"fence\"]", "guards = [\"wall\"]")).is_err());
        assert!(Guards::parse(&TEXT.replace("!WITHOUT", "true")).is_err());
        assert!(Guards::parse(&TEXT.replace("crates/store/src/x.rs", "systems/image/job.toml")).is_err());
    }
}
