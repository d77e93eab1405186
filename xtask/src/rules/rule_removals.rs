//! Parses `xtask/rule_removals.toml`: for each rule in code, an edit that removes it.

use anyhow::{Context, Result, bail};

use super::id::{self, RuleId};
use crate::tree;

const RULE_REMOVALS_FILE: &str = "xtask/rule_removals.toml";

/// Replaces `find`, which occurs once in `file`, by `replace`.
#[derive(Clone, Debug)]
pub(crate) struct CodeEdit {
    pub(crate) rules: Vec<RuleId>,
    pub(crate) file: String,
    pub(crate) find: String,
    pub(crate) replace: String,
}

pub(crate) fn read_edits() -> Result<Vec<CodeEdit>> {
    let text = std::fs::read_to_string(tree::root().join(RULE_REMOVALS_FILE))
        .with_context(|| format!("cannot read {RULE_REMOVALS_FILE}"))?;
    parse_edits(&text).context(RULE_REMOVALS_FILE)
}

fn parse_edits(text: &str) -> Result<Vec<CodeEdit>> {
    let table: toml::Table = toml::from_str(text)?;
    let Some(list) = table.get("edit") else { return Ok(Vec::new()) };
    let list = list.as_array().context("`edit` is a list: [[edit]]")?;
    list.iter()
        .map(|entry| {
            let word = |key: &str| {
                let found = entry.get(key).and_then(toml::Value::as_str);
                found.map(str::to_owned).with_context(|| format!("an edit lacks the text `{key}`"))
            };
            let rules = entry.get("rule").and_then(toml::Value::as_array).context("an edit lacks the list `rule`")?;
            let rules: Vec<RuleId> = rules.iter().filter_map(toml::Value::as_str).flat_map(id::find_rule_ids).collect();
            if rules.is_empty() {
                bail!("an edit names no rule");
            }
            Ok(CodeEdit { rules, file: word("file")?, find: word("find")?, replace: word("replace")? })
        })
        .collect()
}

impl CodeEdit {
    /// Returns the text with the edit applied.
    pub(crate) fn apply(&self, text: &str) -> Result<String> {
        self.find_unique(text)?;
        Ok(text.replacen(&self.find, &self.replace, 1))
    }

    /// Returns the offset of `find`. Fails unless it occurs exactly once.
    pub(crate) fn find_unique(&self, text: &str) -> Result<usize> {
        let mut places = text.match_indices(&self.find);
        match (places.next(), places.next()) {
            (Some((place, _)), None) => Ok(place),
            (None, _) => bail!("{}: the text to find for {} does not occur", self.file, self.rule_names()),
            (Some(_), Some(_)) => {
                bail!("{}: the text to find for {} occurs more than once", self.file, self.rule_names())
            }
        }
    }

    pub(crate) fn rule_names(&self) -> String {
        self.rules.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_applies_only_to_unique_text() -> Result<()> {
        let edits =
            parse_edits("[[edit]]\nrule = [\"EXE-9\"]\nfile = \"a.rs\"\nfind = \"now > end\"\nreplace = \"false\"\n")?;
        assert_eq!(edits[0].apply("if now > end {}")?, "if false {}");
        assert!(edits[0].apply("if now >= end {}").is_err());
        assert!(edits[0].apply("now > end; now > end").is_err());
        assert!(parse_edits("[[edit]]\nrule = []\nfile = \"a\"\nfind = \"b\"\nreplace = \"\"\n").is_err());
        Ok(())
    }
}
