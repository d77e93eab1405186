//! Finds the rules that lifecycle files cite.

use anyhow::{Context, Result, bail};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::id::{self, RuleId};
use crate::tree::SourceFile;

/// A transition or another entry with a `rule` key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RuleEntry {
    pub(crate) path: String,
    /// The line of the `[[on.x]]` or `[work]` header, or of the entry itself.
    pub(crate) line: usize,
    /// Such as `on.fail`, `states.FAILED_OPERATIONS` or `work`.
    pub(crate) path_in_file: String,
    pub(crate) rules: Vec<RuleId>,
}

pub(crate) fn read_entries(source: &SourceFile) -> Result<Vec<RuleEntry>> {
    let parsed = DeTable::parse(&source.text).with_context(|| format!("{} is not TOML", source.path))?;
    let mut entries = Vec::new();
    for (name, value) in parsed.get_ref() {
        let DeValue::Table(table) = value.get_ref() else { continue };
        if *name.get_ref() == "on" {
            for (event, rows) in table {
                let DeValue::Array(rows) = rows.get_ref() else { continue };
                for row in rows {
                    push_citation(source, &format!("on.{}", event.get_ref()), row.span().start, row, &mut entries)?;
                }
            }
            continue;
        }
        push_citation(source, name.get_ref(), name.span().start, value, &mut entries)?;
        for (entry, value) in table {
            push_citation(
                source,
                &format!("{}.{}", name.get_ref(), entry.get_ref()),
                entry.span().start,
                value,
                &mut entries,
            )?;
        }
    }
    entries.sort_by_key(|entry| entry.line);
    Ok(entries)
}

fn push_citation(
    source: &SourceFile,
    path_in_file: &str,
    start: usize,
    value: &Spanned<DeValue<'_>>,
    entries: &mut Vec<RuleEntry>,
) -> Result<()> {
    let DeValue::Table(table) = value.get_ref() else { return Ok(()) };
    let Some((_, rule)) = table.iter().find(|(key, _)| *key.get_ref() == "rule") else { return Ok(()) };
    let line = source.text.get(..start).unwrap_or_default().matches('\n').count() + 1;
    let rules = rule.get_ref().as_str().map(id::find_rule_ids).unwrap_or_default();
    if rules.is_empty() {
        bail!("{}:{line}: `rule` names no rule", source.path);
    }
    entries.push(RuleEntry { path: source.path.clone(), line, path_in_file: path_in_file.into(), rules });
    Ok(())
}

/// Returns the file without that entry.
pub(crate) fn without_entry(text: &str, entry: &RuleEntry) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let first = entry.line.saturating_sub(1).min(lines.len());
    let is_table = lines.get(first).is_some_and(|line| line.starts_with('['));
    let mut last = first + 1;
    if is_table {
        while lines.get(last).is_some_and(|line| !line.starts_with('[')) {
            last += 1;
        }
    }
    lines[..first].iter().chain(&lines[last.min(lines.len())..]).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE_FILE: &str = "\
lifecycle = \"a.b\"

[states]
A = { final = true, rule = \"EXE-10\" }
B = {}

[work]
lease = \"1s\"
rule = \"EXE-5\"

[[on.fail]]
go = \"B -> A\"
rule = \"EXE-10 EXE-11\"

[[on.fail]]
go = \"B\"
set = { x = [
  1,
] }
rule = \"EXE-7\"
";

    fn read_sample() -> Result<Vec<RuleEntry>> {
        read_entries(&SourceFile { path: "systems/a/b.toml".into(), text: SAMPLE_FILE.into() })
    }

    #[test]
    fn citation_has_line_of_header_or_entry() -> Result<()> {
        let found = read_sample()?;
        let places: Vec<(usize, &str)> = found.iter().map(|entry| (entry.line, entry.path_in_file.as_str())).collect();
        assert_eq!(places, [(4, "states.A"), (7, "work"), (11, "on.fail"), (15, "on.fail")]);
        assert_eq!(found[2].rules.len(), 2);
        Ok(())
    }

    #[test]
    fn without_entry_removes_only_its_block() -> Result<()> {
        let found = read_sample()?;
        let without_row = without_entry(SAMPLE_FILE, &found[2]);
        assert!(!without_row.contains("EXE-11") && without_row.contains("EXE-7") && without_row.contains("EXE-5"));
        let without_state = without_entry(SAMPLE_FILE, &found[0]);
        assert_eq!(without_state.lines().count(), SAMPLE_FILE.lines().count() - 1);
        Ok(())
    }
}
