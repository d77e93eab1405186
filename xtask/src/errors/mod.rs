//! `cargo xtask errors`: generates the pages of `docs/errors/` from `docs/errors/errors.toml`.

#[cfg(test)]
mod source_codes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::tree;

const ERRORS_DIR: &str = "docs/errors";
const CATALOG_FILE: &str = "docs/errors/errors.toml";
const GENERATE_COMMAND: &str = "cargo xtask errors";

/// Longer titles do not fit into the index.
const MAX_TITLE_CHARS: usize = 60;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorCatalog {
    introduction: String,
    #[serde(rename = "error")]
    errors: Vec<ErrorEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorEntry {
    code: String,
    status: u16,
    title: String,
    cause: String,
    action: String,
    retryable: bool,
    committed: CommitOutcome,
    #[serde(default)]
    fields: BTreeMap<String, String>,
    #[serde(default)]
    see: Vec<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CommitOutcome {
    No,
    Yes,
    Unknown,
}

impl CommitOutcome {
    fn word(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Yes => "yes",
            Self::Unknown => "unknown",
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::No => "no.",
            Self::Yes => "yes.",
            Self::Unknown => "unknown. Send the call again with the same idempotency key, or read the record.",
        }
    }
}

pub(crate) fn write() -> Result<()> {
    generate_pages(false)
}

pub(crate) fn check() -> Result<()> {
    generate_pages(true)
}

fn generate_pages(only_check: bool) -> Result<()> {
    let catalog = ErrorCatalog::read()?;
    let mut generated = BTreeSet::new();
    let pages = catalog.errors.iter().map(|entry| (entry.code.as_str(), entry.page()));
    for (name, page) in pages.chain([("README", catalog.index())]) {
        let path = format!("{ERRORS_DIR}/{name}.md");
        tree::generate(&path, &page, only_check, GENERATE_COMMAND)?;
        generated.insert(path);
    }
    for path in tree::paths()?.into_iter().filter(|path| path.starts_with(ERRORS_DIR) && path != CATALOG_FILE) {
        if generated.contains(&path) {
            continue;
        }
        if only_check {
            bail!("{path} belongs to no code of {CATALOG_FILE}; run `{GENERATE_COMMAND}` and commit it");
        }
        std::fs::remove_file(tree::root().join(path))?;
    }
    println!("{} error codes", catalog.errors.len());
    Ok(())
}

impl ErrorCatalog {
    fn read() -> Result<Self> {
        let text = std::fs::read_to_string(tree::root().join(CATALOG_FILE))?;
        Self::parse(&text).context(CATALOG_FILE)
    }

    fn parse(text: &str) -> Result<Self> {
        let catalog: Self = toml::from_str(text)?;
        if let Some(pair) = catalog.errors.windows(2).find(|pair| pair[0].code >= pair[1].code) {
            bail!("codes must be sorted and unique: `{}` comes before `{}`", pair[0].code, pair[1].code);
        }
        if let Some(entry) = catalog.errors.iter().find(|entry| entry.title.chars().count() > MAX_TITLE_CHARS) {
            bail!("the title of `{}` has more than {MAX_TITLE_CHARS} characters", entry.code);
        }
        Ok(catalog)
    }

    fn index(&self) -> String {
        let mut text = format!("# Errors\n\n{}\n\n", self.introduction.trim());
        text.push_str("| code | status | what happened | safe to retry | was it written |\n");
        text.push_str("| --- | --- | --- | --- | --- |\n");
        for ErrorEntry { code, status, title, retryable, committed, .. } in &self.errors {
            let (retry, written) = (yes_or_no(*retryable), committed.word());
            let _ = writeln!(text, "| [`{code}`]({code}.md) | {status} | {title} | {retry} | {written} |");
        }
        text
    }
}

impl ErrorEntry {
    fn page(&self) -> String {
        let mut text = format!("# `{}`\n\nStatus {}: {}.\n\n", self.code, self.status, self.title);
        let _ = writeln!(text, "**Cause:** {}\n\n**Action:** {}\n", self.cause.trim(), self.action.trim());
        let _ = writeln!(text, "**Safe to retry:** {}.\n", yes_or_no(self.retryable));
        let _ = writeln!(text, "**Was it written:** {}\n", self.committed.sentence());
        if !self.fields.is_empty() {
            text.push_str("| field | meaning |\n| --- | --- |\n");
            for (field, meaning) in &self.fields {
                let _ = writeln!(text, "| `{field}` | {meaning} |");
            }
            text.push('\n');
        }
        let links = self.see.iter().map(|target| format!("[{}]({target})", target.trim_start_matches("../")));
        let links: Vec<String> = links.chain(["[all codes](README.md)".to_owned()]).collect();
        let _ = writeln!(text, "See also: {}", links.join(", "));
        text
    }
}

fn yes_or_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE_CATALOG: &str = r#"
introduction = "All codes."
[[error]]
code = "a"
status = 409
title = "A happened"
cause = "It was A."
action = "Do B."
retryable = true
committed = "unknown"
see = ["../auth.md"]
fields = { last = "the last one" }
[[error]]
code = "b"
status = 404
title = "B"
cause = "C"
action = "D"
retryable = false
committed = "no"
"#;

    #[test]
    fn page_contains_every_part_of_its_entry() -> Result<()> {
        let catalog = ErrorCatalog::parse(SAMPLE_CATALOG)?;
        let expected = "# `a`\n\nStatus 409: A happened.\n\n**Cause:** It was A.\n\n**Action:** Do B.\n\n\
            **Safe to retry:** yes.\n\n\
            **Was it written:** unknown. Send the call again with the same idempotency key, or read the record.\n\n\
            | field | meaning |\n| --- | --- |\n| `last` | the last one |\n\n\
            See also: [auth.md](../auth.md), [all codes](README.md)\n";
        assert_eq!(catalog.errors[0].page(), expected);
        let index = catalog.index();
        assert!(index.starts_with("# Errors\n\nAll codes.\n\n| code |"), "{index}");
        assert!(index.ends_with("| [`b`](b.md) | 404 | B | no | no |\n"), "{index}");
        Ok(())
    }

    #[test]
    fn unsorted_codes_and_long_titles_are_rejected() {
        assert!(ErrorCatalog::parse(&SAMPLE_CATALOG.replace("\"b\"", "\"a\"")).is_err());
        assert!(ErrorCatalog::parse(&SAMPLE_CATALOG.replace("A happened", &"A".repeat(61))).is_err());
    }
}
