//! Which rules there are: the tables in the systems' own pages.

use anyhow::{Result, bail};

use super::id::RuleId;
use crate::tree::{self, Source};

#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) id: RuleId,
    /// One line in our own words.
    pub(crate) wording: String,
    /// `execution`.
    pub(crate) system: String,
}

/// The rows `| EXE-1 | … |` of every `systems/*/README.md`.
pub(crate) fn rules() -> Result<Vec<Rule>> {
    let pages = tree::sources(|path| path.starts_with("systems/") && path.ends_with("/README.md"))?;
    let mut rules: Vec<Rule> = Vec::new();
    for rule in pages.iter().flat_map(rules_of) {
        if let Some(first) = rules.iter().find(|first| first.id == rule.id) {
            bail!("{} stands twice: in systems/{} and systems/{}", rule.id, first.system, rule.system);
        }
        rules.push(rule);
    }
    Ok(rules)
}

fn rules_of(page: &Source) -> Vec<Rule> {
    let system = page.path.split('/').nth(1).unwrap_or_default();
    page.text
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.trim_end().trim_end_matches('|').split(" |");
            let id = RuleId::parse(cells.next()?.split_whitespace().next()?)?;
            let wording = cells.next()?.trim().to_owned();
            Some(Rule { id, wording, system: system.to_owned() })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_rows_that_start_with_an_id() {
        let text =
            "| id | rule |\n| --- | --- |\n| EXE-1 | A job has an id. |\n| not one | x |\n| FM-2 torn write | dies |\n";
        let page = Source { path: "systems/execution/README.md".into(), text: text.into() };
        let rules = rules_of(&page);
        assert_eq!(rules.len(), 2);
        assert_eq!((rules[0].wording.as_str(), rules[0].system.as_str()), ("A job has an id.", "execution"));
        assert_eq!(rules[1].id.to_string(), "FM-2");
    }
}
