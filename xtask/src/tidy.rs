//! Small things that a reviewer should never have to say.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::tree::{self, Source};

/// A file that a newcomer can hold in mind; longer ones stand with their reason in xtask/tidy.toml.
const LINES: usize = 500;

/// Written by cargo or by a command of ours.
const GENERATED: &[&str] = &["Cargo.lock", "docs/rules.md", "fuzz/Cargo.lock"];

/// Split, so that this file does not find itself.
const LEFTOVERS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("db", "g!("),
];

/// A mirror must serve as well as the first house: no file says from where packages come.
const REGISTRIES: &[&str] = &[
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("npmjs", ".org"),
    concat!("npmjs", ".com"),
    concat!("deb.debian", ".org"),
    concat!("static.rust-lang", ".org"),
];

pub(crate) fn run() -> Result<()> {
    let sources = tree::sources(|path| !GENERATED.contains(&path))?;
    let reasons: BTreeMap<String, BTreeMap<String, String>> =
        toml::from_str(&std::fs::read_to_string(tree::root().join("xtask/tidy.toml"))?).context("xtask/tidy.toml")?;
    let long = reasons.get("long").cloned().unwrap_or_default();
    let mut wrong = Vec::new();
    for source in &sources {
        wrong.extend(leftovers(source));
        wrong.extend(too_long(source, &long));
        if tree::has_extension(&source.path, "md") {
            wrong.extend(dead_links(source, &|path| tree::root().join(path).exists(), &|path| {
                std::fs::read_to_string(tree::root().join(path)).unwrap_or_default()
            }));
        }
    }
    let guide = sources.iter().find(|source| source.path == "ARCHITECTURE.md").map_or("", |source| &source.text);
    for manifest in sources.iter().filter(|source| source.path.ends_with("Cargo.toml")) {
        wrong.extend(undescribed(manifest, guide)?);
    }
    for path in long.keys().filter(|path| !sources.iter().any(|source| source.path == **path)) {
        wrong.push(format!("xtask/tidy.toml gives a reason for {path}, which is not there"));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("not tidy:\n  {}", wrong.join("\n  "))
}

fn too_long(source: &Source, reasons: &BTreeMap<String, String>) -> Option<String> {
    let judged = ["rs", "toml", "md", "html", "css", "js"].iter().any(|kind| tree::has_extension(&source.path, kind));
    let lines = source.text.lines().count();
    let reasoned = reasons.contains_key(&source.path);
    if judged && lines > LINES && !reasoned {
        return Some(format!("{} has {lines} lines: split it along a noun or a verb of the domain", source.path));
    }
    (reasoned && lines <= LINES).then(|| format!("{} is short again: take it out of xtask/tidy.toml", source.path))
}

fn leftovers(source: &Source) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        for word in LEFTOVERS.iter().filter(|word| has_word(line, word)) {
            wrong.push(format!("{}:{} leaves a {word}", source.path, number + 1));
        }
        for host in REGISTRIES.iter().filter(|host| line.contains(**host)) {
            wrong.push(format!("{}:{} names the registry {host}", source.path, number + 1));
        }
    }
    wrong
}

/// Whether the word stands there with no letter before or after it, where it starts or ends with one.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        (word.starts_with('.') || !is_letter(before)) && (word.ends_with(['!', '(']) || !is_letter(after))
    })
}

/// Direct dependencies that have no line of their own in ARCHITECTURE.md.
fn undescribed(manifest: &Source, guide: &str) -> Result<Vec<String>> {
    let table: toml::Table = toml::from_str(&manifest.text).with_context(|| manifest.path.clone())?;
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let names = kinds.iter().filter_map(|kind| table.get(*kind)?.as_table()).flat_map(|list| list.keys());
    Ok(names
        .filter(|name| !name.starts_with("onceward") && !guide.contains(&format!("| `{name}` |")))
        .map(|name| format!("{} depends on {name}, which has no line in ARCHITECTURE.md", manifest.path))
        .collect())
}

/// Links to files that are not there, and to headings that no file has.
fn dead_links(source: &Source, exists: &dyn Fn(&str) -> bool, read: &dyn Fn(&str) -> String) -> Vec<String> {
    let folder = Path::new(&source.path).parent().unwrap_or(Path::new(""));
    let mut wrong = Vec::new();
    for (number, target) in links(&source.text) {
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let path = if file.is_empty() { source.path.clone() } else { joined(folder, file) };
        if !exists(&path) {
            wrong.push(format!("{}:{number} links to {target}, which is not there", source.path));
        } else if !heading.is_empty()
            && tree::has_extension(&path, "md")
            && !anchors(&read(&path)).contains(&heading.into())
        {
            wrong.push(format!("{}:{number} links to {target}: no such heading", source.path));
        }
    }
    wrong
}

/// The targets of `](…)` and `src="…"` outside code blocks, with their lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    let mut in_code = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for (open, close) in [("](", ')'), ("src=\"", '"'), ("href=\"", '"')] {
            for (at, _) in line.match_indices(open) {
                let rest = &line[at + open.len()..];
                if line[..at].matches('`').count() % 2 == 0
                    && let Some(end) = rest.find(close)
                {
                    links.push((number + 1, rest[..end].trim()));
                }
            }
        }
    }
    links
}

fn joined(folder: &Path, file: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in folder.join(file).components() {
        match part {
            std::path::Component::ParentDir => {
                parts.pop();
            }
            std::path::Component::Normal(name) => parts.push(name.to_string_lossy().into_owned()),
            _ => {}
        }
    }
    parts.join("/")
}

/// Headings as a page of Markdown names them in links.
fn anchors(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            heading
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    #[test]
    fn leftovers_are_found_as_words_only() {
        let text = format!("// {}: later\nlet mas{}r = 1;\n", LEFTOVERS[0], LEFTOVERS[0]);
        assert_eq!(leftovers(&source("a.rs", &text)).len(), 1);
        assert_eq!(leftovers(&source("a.rs", &format!("see {}", REGISTRIES[0]))).len(), 1);
    }

    #[test]
    fn a_long_file_needs_a_reason_and_a_short_one_none() {
        let long = source("a.rs", &"x\n".repeat(LINES + 1));
        let reason = BTreeMap::from([("a.rs".to_owned(), "a table".to_owned())]);
        assert!(too_long(&long, &BTreeMap::new()).is_some());
        assert!(too_long(&long, &reason).is_none());
        assert!(too_long(&source("a.rs", "x"), &reason).is_some());
    }

    #[test]
    fn every_dependency_has_a_line() -> Result<()> {
        let manifest = source("crates/a/Cargo.toml", "[dependencies]\nb = \"1\"\n[dev-dependencies]\nc = \"1\"\n");
        assert!(undescribed(&manifest, "| `b` | a | x |\n| `c` | a | y |")?.is_empty());
        assert_eq!(undescribed(&manifest, "| `b` | a | x |")?.len(), 1);
        Ok(())
    }

    #[test]
    fn links_must_lead_somewhere() {
        let page = source("docs/a.md", "[b](b.md) [c](../c.md#one-two) [d](#here) `[x](y)`\n\n## Here\n");
        let read = |path: &str| if path == "c.md" { "# One, two\n".into() } else { page.text.clone() };
        assert!(dead_links(&page, &|_| true, &read).is_empty(), "{:?}", dead_links(&page, &|_| true, &read));
        assert_eq!(dead_links(&page, &|path| path != "docs/b.md", &read).len(), 1);
        assert_eq!(dead_links(&page, &|_| true, &|_| String::new()).len(), 2);
    }
}
