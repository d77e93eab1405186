//! Reads the declared rules from the tables in the systems' READMEs.

use anyhow::{Result, bail};

use super::id::RuleId;
use crate::tree::{self, SourceFile};

#[derive(Clone, Debug)]
pub(crate) struct DeclaredRule {
    pub(crate) id: RuleId,
    /// The rule in one sentence.
    pub(crate) wording: String,
    /// Such as `execution`.
    pub(crate) system: String,
}

/// Parses the rows `| EXE-1 | … |` of every `systems/*/README.md`.
pub(crate) fn declared_rules() -> Result<Vec<DeclaredRule>> {
    let pages = tree::sources(|path| path.starts_with("systems/") && path.ends_with("/README.md"))?;
    let mut rules: Vec<DeclaredRule> = Vec::new();
    for rule in pages.iter().flat_map(rules_on_page) {
        if let Some(first) = rules.iter().find(|first| first.id == rule.id) {
            bail!("{} is declared twice: in systems/{} and systems/{}", rule.id, first.system, rule.system);
        }
        rules.push(rule);
    }
    Ok(rules)
}

fn rules_on_page(page: &SourceFile) -> Vec<DeclaredRule> {
    let system = page.path.split('/').nth(1).unwrap_or_default();
    page.text
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.trim_end().trim_end_matches('|').split(" |");
            let id = RuleId::parse(cells.next()?.split_whitespace().next()?)?;
            let wording = cells.next()?.trim().to_owned();
            Some(DeclaredRule { id, wording, system: system.to_owned() })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_rows_starting_with_id_are_rules() {
        let text =
            "| id | rule |\n| --- | --- |\n| EXE-1 | A job has an id. |\n| not one | x |\n| FM-2 torn write | dies |\n";
        let page = SourceFile { path: "systems/execution/README.md".into(), text: text.into() };
        let rules = rules_on_page(&page);
        assert_eq!(rules.len(), 2);
        assert_eq!((rules[0].wording.as_str(), rules[0].system.as_str()), ("A job has an id.", "execution"));
        assert_eq!(rules[1].id.to_string(), "FM-2");
    }
}
