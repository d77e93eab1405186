//! Builds the rules index: each rule, where it is implemented and which tests prove it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context, Result, bail};

use super::declared::{self, DeclaredRule};
use super::id::RuleId;
use super::lifecycle_file::{self, RuleEntry};
use super::rule_removals::{self, CodeEdit};
use super::rust_file::{self, TestFunction};
use crate::lab::safeguards::{self, Safeguards};
use crate::tree;

/// Rules that are not implemented yet, each with the reason.
const PLANNED_RULES_FILE: &str = "docs/rules-planned.toml";

pub(crate) struct RuleIndex {
    pub(crate) rules: Vec<DeclaredRule>,
    /// Transitions and other entries of lifecycle files.
    pub(crate) entries: Vec<RuleEntry>,
    /// Citations in code comments: file and rule.
    pub(crate) code: BTreeSet<(String, RuleId)>,
    pub(crate) tests: Vec<TestFunction>,
    pub(crate) edits: Vec<CodeEdit>,
    /// Edits that remove the lab's safeguards. The lab proves their rules.
    safeguard_edits: Vec<CodeEdit>,
    planned: BTreeMap<RuleId, String>,
    /// Errors in the edit files themselves.
    edit_errors: Vec<String>,
}

/// Returns whether citations are read from this file. xtask is excluded, because it cites rules only as examples.
fn is_code(path: &str) -> bool {
    tree::has_extension(path, "rs")
        && ["crates/", "assurance/lab/", "systems/"].iter().any(|room| path.starts_with(room))
}

fn is_lifecycle(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let of_a_system = parts.len() == 3 && parts[0] == "systems" && parts[2] != "Cargo.toml";
    tree::has_extension(path, "toml") && (of_a_system || path.starts_with("crates/core/src/builtin/"))
}

impl RuleIndex {
    pub(crate) fn read_all() -> Result<Self> {
        let rules = declared::declared_rules()?;
        if rules.is_empty() {
            bail!("no systems/*/README.md declares a rule");
        }
        let prefixes: BTreeSet<&str> = rules.iter().map(|rule| rule.id.prefix.as_str()).collect();
        let ours = |found: Vec<RuleId>| -> Vec<RuleId> {
            found.into_iter().filter(|id| prefixes.contains(id.prefix.as_str())).collect()
        };
        let mut entries = Vec::new();
        for source in tree::sources(is_lifecycle)? {
            for mut entry in lifecycle_file::read_entries(&source)? {
                entry.rules = ours(entry.rules);
                entries.push(entry);
            }
        }
        let (mut code, mut tests) = (BTreeSet::new(), Vec::new());
        for source in tree::sources(is_code)? {
            for (_, found) in rust_file::citations(&source.path, &source.text) {
                code.extend(ours(found).into_iter().map(|id| (source.path.clone(), id)));
            }
            for mut test in rust_file::test_functions(&source.path, &source.text) {
                test.rules = ours(test.rules);
                tests.push(test);
            }
        }
        let edits = rule_removals::read_edits()?;
        let mut faults = Vec::new();
        let guards: Vec<CodeEdit> = Safeguards::read()?.edits.into_iter().map(|place| place.edit).collect();
        for edit in edits.iter().chain(&guards) {
            match std::fs::read_to_string(tree::root().join(&edit.file)) {
                Ok(text) => faults.extend(edit.apply(&text).err().map(|error| error.to_string())),
                Err(error) => faults.push(format!("an edit cannot read {}: {error}", edit.file)),
            }
        }
        Ok(Self {
            rules,
            entries,
            code,
            tests,
            edits,
            safeguard_edits: guards,
            planned: read_planned()?,
            edit_errors: faults,
        })
    }

    pub(crate) fn tests_of(&self, id: &RuleId) -> Vec<&TestFunction> {
        self.tests.iter().filter(|test| test.rules.contains(id)).collect()
    }

    pub(crate) fn is_planned(&self, id: &RuleId) -> bool {
        self.planned.contains_key(id)
    }

    /// Returns whether the lab removes a safeguard of this rule.
    pub(crate) fn has_safeguard(&self, id: &RuleId) -> bool {
        self.safeguard_edits.iter().any(|edit| edit.rules.contains(id))
    }

    fn entries_of(&self, id: &RuleId) -> Vec<&RuleEntry> {
        self.entries.iter().filter(|entry| entry.rules.contains(id)).collect()
    }

    fn code_of(&self, id: &RuleId) -> Vec<&str> {
        self.code.iter().filter(|(_, cited)| cited == id).map(|(path, _)| path.as_str()).collect()
    }

    /// Returns everything that makes the index incomplete, one line each.
    pub(crate) fn find_problems(&self) -> Vec<String> {
        let mut problems = self.edit_errors.clone();
        for DeclaredRule { id, system, .. } in &self.rules {
            let is_cited = !self.entries_of(id).is_empty() || !self.code_of(id).is_empty();
            let tested = !self.tests_of(id).is_empty();
            match (self.planned.contains_key(id), is_cited && tested) {
                (true, true) => problems.push(format!("{id} is covered; remove it from {PLANNED_RULES_FILE}")),
                (true, false) | (false, true) => {}
                (false, false) => {
                    let lacks = if is_cited {
                        "has no test"
                    } else if tested {
                        "is cited nowhere"
                    } else {
                        "has no citation and no test"
                    };
                    problems.push(format!("{id} ({system}) {lacks}; if it is planned, add it to {PLANNED_RULES_FILE}"));
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
        cited.extend(
            self.edits.iter().flat_map(|edit| edit.rules.iter().map(|id| ("xtask/rule_removals.toml".into(), id))),
        );
        cited.extend(
            self.safeguard_edits
                .iter()
                .flat_map(|edit| edit.rules.iter().map(|id| (safeguards::SAFEGUARDS_FILE.into(), id))),
        );
        cited.extend(self.planned.keys().map(|id| (PLANNED_RULES_FILE.into(), id)));
        for (place, id) in cited.into_iter().filter(|(_, id)| !known.contains(id)) {
            problems.push(format!("{place} cites {id}, which no system declares"));
        }
        let in_code: BTreeSet<&RuleId> = self.code.iter().map(|(_, id)| id).collect();
        for id in in_code {
            let has_edit = self.edits.iter().chain(&self.safeguard_edits).any(|edit| edit.rules.contains(id));
            if known.contains(id) && !self.planned.contains_key(id) && !has_edit {
                problems.push(format!(
                    "{id} is implemented in {}, but xtask/rule_removals.toml has no edit that removes it",
                    self.code_of(id).join(", ")
                ));
            }
        }
        problems
    }

    pub(crate) fn summary(&self) -> String {
        format!(
            "{} rules, {} of them planned; {} transitions and entries, {} code files and {} tests cite them",
            self.rules.len(),
            self.planned.len(),
            self.entries.iter().filter(|entry| !entry.rules.is_empty()).count(),
            self.code.iter().map(|(path, _)| path).collect::<BTreeSet<_>>().len(),
            self.tests.iter().filter(|test| !test.rules.is_empty()).count(),
        )
    }

    /// Renders `docs/generated/rules.md`.
    pub(crate) fn render_page(&self) -> String {
        let mut page = String::from(
            "# Rules index\n\n<!-- Written by `cargo xtask rules`. -->\n\n\
             Every rule of the systems that ship with Onceward: its text, where it is implemented, and the tests that cite it. `cargo xtask rules\n\
             --prove` removes each rule and expects one of its tests to fail. Planned rules give the reason.\n",
        );
        let systems: BTreeSet<&str> = self.rules.iter().map(|rule| rule.system.as_str()).collect();
        for system in systems {
            let _ = write!(
                page,
                "\n## [{system}](../../systems/{system}/README.md)\n\n| id | rule | implemented in | tested by |\n| --- | --- | --- | --- |\n"
            );
            for rule in self.rules.iter().filter(|rule| rule.system == system) {
                let entries = self.entries_of(&rule.id);
                let mut places: Vec<String> = entries
                    .iter()
                    .map(|entry| {
                        format!(
                            "[{} `{}`](../../{}#L{})",
                            short_path(&entry.path),
                            entry.path_in_file,
                            entry.path,
                            entry.line
                        )
                    })
                    .collect();
                places
                    .extend(self.code_of(&rule.id).iter().map(|path| format!("[{}](../../{path})", short_path(path))));
                let tests = self.tests_of(&rule.id);
                let mut tested_by: Vec<String> =
                    tests.iter().map(|test| format!("[`{}`](../../{})", test.name, test.path)).collect();
                if let Some(reason) = self.planned.get(&rule.id) {
                    tested_by.push(format!("*planned: {reason}*"));
                }
                let _ = writeln!(
                    page,
                    "| {} | {} | {} | {} |",
                    rule.id,
                    rule.wording,
                    places.join(", "),
                    tested_by.join(", ")
                );
            }
        }
        page
    }
}

/// Removes the parts that all paths of a kind share.
fn short_path(path: &str) -> String {
    path.trim_start_matches("systems/").trim_start_matches("crates/").replace("/src/", "/")
}

fn read_planned() -> Result<BTreeMap<RuleId, String>> {
    let text = std::fs::read_to_string(tree::root().join(PLANNED_RULES_FILE))
        .with_context(|| format!("cannot read {PLANNED_RULES_FILE}"))?;
    let table: BTreeMap<String, String> = toml::from_str(&text).context(PLANNED_RULES_FILE)?;
    table
        .into_iter()
        .map(|(id, reason)| {
            Ok((RuleId::parse(&id).with_context(|| format!("{PLANNED_RULES_FILE}: {id} is not a rule id"))?, reason))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> RuleId {
        RuleId::parse(text).expect("an id")
    }

    fn complete_index() -> RuleIndex {
        let rule = |name: &str| DeclaredRule { id: id(name), wording: "w".into(), system: "execution".into() };
        RuleIndex {
            rules: vec![rule("EXE-1"), rule("EXE-2"), rule("EXE-3")],
            entries: vec![RuleEntry {
                path: "systems/execution/job.toml".into(),
                line: 4,
                path_in_file: "on.lease".into(),
                rules: vec![id("EXE-1")],
            }],
            code: BTreeSet::from([("crates/core/src/x.rs".to_owned(), id("EXE-2"))]),
            tests: vec![TestFunction {
                path: "t.rs".into(),
                line: 1,
                name: "shows".into(),
                rules: vec![id("EXE-1"), id("EXE-2")],
            }],
            edits: vec![CodeEdit {
                rules: vec![id("EXE-2")],
                file: "crates/core/src/x.rs".into(),
                find: "a".into(),
                replace: "b".into(),
            }],
            safeguard_edits: Vec::new(),
            planned: BTreeMap::from([(id("EXE-3"), "the store".to_owned())]),
            edit_errors: Vec::new(),
        }
    }

    #[test]
    fn complete_index_has_no_problems_and_renders() {
        let index = complete_index();
        assert_eq!(index.find_problems(), Vec::<String>::new());
        assert!(index.render_page().contains(
            "| EXE-1 | w | [execution/job.toml `on.lease`](../../systems/execution/job.toml#L4) | [`shows`](../../t.rs) |"
        ));
        assert!(index.render_page().contains("*planned: the store*"));
    }

    #[test]
    fn each_gap_is_reported() {
        let problems_after = |change: fn(&mut RuleIndex)| {
            let mut index = complete_index();
            change(&mut index);
            index.find_problems().join("\n")
        };
        assert!(problems_after(|index| index.tests.clear()).contains("EXE-1 (execution) has no test"));
        assert!(problems_after(|index| index.entries.clear()).contains("EXE-1 (execution) is cited nowhere"));
        assert!(
            problems_after(|index| index.planned.clear()).contains("EXE-3 (execution) has no citation and no test")
        );
        assert!(problems_after(|index| index.edits.clear()).contains("no edit that removes it"));
        assert!(problems_after(|index| index.tests[0].rules.push(id("EXE-99"))).contains("t.rs:1 cites EXE-99"));
        assert!(
            problems_after(|index| {
                index.planned.insert(id("EXE-1"), String::new());
            })
            .contains("EXE-1 is covered")
        );
    }
}
