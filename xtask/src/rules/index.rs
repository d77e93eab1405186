//! Rules, where they live and what shows them, put together.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context, Result, bail};

use super::declared::{self, Rule};
use super::id::RuleId;
use super::lifecycle_file::{self, Entry};
use super::rust_file::{self, Test};
use super::take_away::{self, Edit};
use crate::lab::guards::{self, Guards};
use crate::tree;

/// Rules that a later part will bring, each with its reason.
const LATER: &str = "docs/rules-later.toml";

pub(crate) struct Index {
    pub(crate) rules: Vec<Rule>,
    /// Rows and entries of lifecycle files.
    pub(crate) entries: Vec<Entry>,
    /// Comments in code: file and rule.
    pub(crate) code: BTreeSet<(String, RuleId)>,
    pub(crate) tests: Vec<Test>,
    pub(crate) edits: Vec<Edit>,
    /// Guards that the lab takes out: it proves their rules.
    guards: Vec<Edit>,
    later: BTreeMap<RuleId, String>,
    /// What is wrong with the files themselves.
    faults: Vec<String>,
}

/// Code that citations are read from. The gate's own code cites rules only in its examples.
fn is_code(path: &str) -> bool {
    tree::has_extension(path, "rs") && ["crates/", "lab/", "systems/"].iter().any(|room| path.starts_with(room))
}

fn is_lifecycle(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let of_a_system = parts.len() == 3 && parts[0] == "systems" && parts[2] != "Cargo.toml";
    tree::has_extension(path, "toml") && (of_a_system || path.starts_with("crates/core/src/builtin/"))
}

impl Index {
    pub(crate) fn gather() -> Result<Self> {
        let rules = declared::rules()?;
        if rules.is_empty() {
            bail!("no systems/*/README.md declares a rule");
        }
        let prefixes: BTreeSet<&str> = rules.iter().map(|rule| rule.id.prefix.as_str()).collect();
        let ours = |found: Vec<RuleId>| -> Vec<RuleId> {
            found.into_iter().filter(|id| prefixes.contains(id.prefix.as_str())).collect()
        };
        let mut entries = Vec::new();
        for source in tree::sources(is_lifecycle)? {
            for mut entry in lifecycle_file::entries(&source)? {
                entry.rules = ours(entry.rules);
                entries.push(entry);
            }
        }
        let (mut code, mut tests) = (BTreeSet::new(), Vec::new());
        for source in tree::sources(is_code)? {
            for (_, found) in rust_file::citations(&source.path, &source.text) {
                code.extend(ours(found).into_iter().map(|id| (source.path.clone(), id)));
            }
            for mut test in rust_file::tests(&source.path, &source.text) {
                test.rules = ours(test.rules);
                tests.push(test);
            }
        }
        let edits = take_away::edits()?;
        let mut faults = Vec::new();
        let guards: Vec<Edit> = Guards::read()?.places.into_iter().map(|place| place.edit).collect();
        for edit in edits.iter().chain(&guards) {
            match std::fs::read_to_string(tree::root().join(&edit.file)) {
                Ok(text) => faults.extend(edit.apply(&text).err().map(|error| error.to_string())),
                Err(error) => faults.push(format!("an edit cannot read {}: {error}", edit.file)),
            }
        }
        Ok(Self { rules, entries, code, tests, edits, guards, later: later()?, faults })
    }

    pub(crate) fn tests_of(&self, id: &RuleId) -> Vec<&Test> {
        self.tests.iter().filter(|test| test.rules.contains(id)).collect()
    }

    pub(crate) fn is_later(&self, id: &RuleId) -> bool {
        self.later.contains_key(id)
    }

    /// Whether the lab takes this rule's guard out.
    pub(crate) fn is_in_the_lab(&self, id: &RuleId) -> bool {
        self.guards.iter().any(|edit| edit.rules.contains(id))
    }

    fn entries_of(&self, id: &RuleId) -> Vec<&Entry> {
        self.entries.iter().filter(|entry| entry.rules.contains(id)).collect()
    }

    fn code_of(&self, id: &RuleId) -> Vec<&str> {
        self.code.iter().filter(|(_, cited)| cited == id).map(|(path, _)| path.as_str()).collect()
    }

    /// Everything that keeps the index from being whole, one line each.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let mut wrong = self.faults.clone();
        for Rule { id, system, .. } in &self.rules {
            let lives = !self.entries_of(id).is_empty() || !self.code_of(id).is_empty();
            let tested = !self.tests_of(id).is_empty();
            match (self.later.contains_key(id), lives && tested) {
                (true, true) => wrong.push(format!("{id} is covered: take it out of {LATER}")),
                (true, false) | (false, true) => {}
                (false, false) => {
                    let lacks = if lives {
                        "has no test"
                    } else if tested {
                        "is cited nowhere"
                    } else {
                        "has no citation and no test"
                    };
                    wrong.push(format!("{id} ({system}) {lacks}; if a later part brings it, say so in {LATER}"));
                }
            }
        }
        let known: BTreeSet<&RuleId> = self.rules.iter().map(|rule| &rule.id).collect();
        let mut cited: Vec<(String, &RuleId)> = Vec::new();
        for entry in &self.entries {
            cited.extend(entry.rules.iter().map(|id| (format!("{}:{}", entry.path, entry.line), id)));
        }
        cited.extend(self.code.iter().map(|(path, id)| (path.clone(), id)));
        for test in &self.tests {
            cited.extend(test.rules.iter().map(|id| (format!("{}:{}", test.path, test.line), id)));
        }
        cited
            .extend(self.edits.iter().flat_map(|edit| edit.rules.iter().map(|id| ("xtask/take_away.toml".into(), id))));
        cited.extend(self.guards.iter().flat_map(|edit| edit.rules.iter().map(|id| (guards::FILE.into(), id))));
        cited.extend(self.later.keys().map(|id| (LATER.into(), id)));
        for (place, id) in cited.into_iter().filter(|(_, id)| !known.contains(id)) {
            wrong.push(format!("{place} cites {id}, which no system declares"));
        }
        let in_code: BTreeSet<&RuleId> = self.code.iter().map(|(_, id)| id).collect();
        for id in in_code {
            let has_edit = self.edits.iter().chain(&self.guards).any(|edit| edit.rules.contains(id));
            if known.contains(id) && !self.later.contains_key(id) && !has_edit {
                wrong.push(format!(
                    "{id} lives in {}, but xtask/take_away.toml has no edit that takes it away",
                    self.code_of(id).join(", ")
                ));
            }
        }
        wrong
    }

    pub(crate) fn summary(&self) -> String {
        format!(
            "{} rules, {} of them for later; {} rows and entries, {} code files and {} tests cite them",
            self.rules.len(),
            self.later.len(),
            self.entries.iter().filter(|entry| !entry.rules.is_empty()).count(),
            self.code.iter().map(|(path, _)| path).collect::<BTreeSet<_>>().len(),
            self.tests.iter().filter(|test| !test.rules.is_empty()).count(),
        )
    }

    /// The page `docs/rules.md`.
    pub(crate) fn page(&self) -> String {
        let mut page = String::from(
            "# Rules index\n\n<!-- Written by `cargo xtask rules`. -->\n\n\
             Every rule of the systems that ship with Onceward: what it asks, where it lives, and the tests that fail when it is taken\n\
             away. Rules that a later part brings say so.\n",
        );
        let systems: BTreeSet<&str> = self.rules.iter().map(|rule| rule.system.as_str()).collect();
        for system in systems {
            let _ = write!(
                page,
                "\n## [{system}](../systems/{system}/README.md)\n\n| id | rule | lives in | shown by |\n| --- | --- | --- | --- |\n"
            );
            for rule in self.rules.iter().filter(|rule| rule.system == system) {
                let entries = self.entries_of(&rule.id);
                let mut lives: Vec<String> = entries
                    .iter()
                    .map(|entry| {
                        format!("[{} `{}`](../{}#L{})", short(&entry.path), entry.what, entry.path, entry.line)
                    })
                    .collect();
                lives.extend(self.code_of(&rule.id).iter().map(|path| format!("[{}](../{path})", short(path))));
                let tests = self.tests_of(&rule.id);
                let mut shown: Vec<String> =
                    tests.iter().map(|test| format!("[`{}`](../{})", test.name, test.path)).collect();
                if let Some(reason) = self.later.get(&rule.id) {
                    shown.push(format!("*later: {reason}*"));
                }
                let _ =
                    writeln!(page, "| {} | {} | {} | {} |", rule.id, rule.wording, lives.join(", "), shown.join(", "));
            }
        }
        page
    }
}

/// The path without what every path of its kind has.
fn short(path: &str) -> String {
    path.trim_start_matches("systems/").trim_start_matches("crates/").replace("/src/", "/")
}

fn later() -> Result<BTreeMap<RuleId, String>> {
    let text = std::fs::read_to_string(tree::root().join(LATER)).with_context(|| format!("cannot read {LATER}"))?;
    let table: BTreeMap<String, String> = toml::from_str(&text).context(LATER)?;
    table
        .into_iter()
        .map(|(id, reason)| Ok((RuleId::parse(&id).with_context(|| format!("{LATER}: {id} is no rule id"))?, reason)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> RuleId {
        RuleId::parse(text).expect("an id")
    }

    fn whole() -> Index {
        let rule = |name: &str| Rule { id: id(name), wording: "w".into(), system: "execution".into() };
        Index {
            rules: vec![rule("EXE-1"), rule("EXE-2"), rule("EXE-3")],
            entries: vec![Entry {
                path: "systems/execution/job.toml".into(),
                line: 4,
                what: "on.lease".into(),
                rules: vec![id("EXE-1")],
            }],
            code: BTreeSet::from([("crates/core/src/x.rs".to_owned(), id("EXE-2"))]),
            tests: vec![Test {
                path: "t.rs".into(),
                line: 1,
                name: "shows".into(),
                rules: vec![id("EXE-1"), id("EXE-2")],
            }],
            edits: vec![Edit {
                rules: vec![id("EXE-2")],
                file: "crates/core/src/x.rs".into(),
                find: "a".into(),
                replace: "b".into(),
                alone: false,
            }],
            guards: Vec::new(),
            later: BTreeMap::from([(id("EXE-3"), "the store".to_owned())]),
            faults: Vec::new(),
        }
    }

    #[test]
    fn a_whole_index_has_no_faults_and_a_page() {
        let index = whole();
        assert_eq!(index.wrong(), Vec::<String>::new());
        assert!(index.page().contains(
            "| EXE-1 | w | [execution/job.toml `on.lease`](../systems/execution/job.toml#L4) | [`shows`](../t.rs) |"
        ));
        assert!(index.page().contains("*later: the store*"));
    }

    #[test]
    fn each_gap_is_a_fault() {
        let faults = |change: fn(&mut Index)| {
            let mut index = whole();
            change(&mut index);
            index.wrong().join("\n")
        };
        assert!(faults(|index| index.tests.clear()).contains("EXE-1 (execution) has no test"));
        assert!(faults(|index| index.entries.clear()).contains("EXE-1 (execution) is cited nowhere"));
        assert!(faults(|index| index.later.clear()).contains("EXE-3 (execution) has no citation and no test"));
        assert!(faults(|index| index.edits.clear()).contains("no edit that takes it away"));
        assert!(faults(|index| index.tests[0].rules.push(id("EXE-99"))).contains("t.rs:1 cites EXE-99"));
        assert!(
            faults(|index| {
                index.later.insert(id("EXE-1"), String::new());
            })
            .contains("EXE-1 is covered")
        );
    }
}
