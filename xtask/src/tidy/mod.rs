//! Checks formal rules of the repository, such as file lengths, leftovers, dead links and wording.

mod wording;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::tree::{self, SourceFile};

/// The longest file that a new reader can grasp. xtask/tidy.toml lists exceptions with their reasons.
const MAX_FILE_LINES: usize = 500;

/// Written by cargo or by an xtask command.
const GENERATED_FILES: &[&str] = &["Cargo.lock", "docs/generated/rules.md", "assurance/fuzz/Cargo.lock"];

/// Split, so that this file does not match itself.
const LEFTOVER_MARKERS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("db", "g!("),
];

/// Package registries. A file must not name one, so that a mirror works as well.
const REGISTRY_HOSTS: &[&str] = &[
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("npmjs", ".org"),
    concat!("npmjs", ".com"),
    concat!("deb.debian", ".org"),
    concat!("static.rust-lang", ".org"),
];

pub(crate) fn run() -> Result<()> {
    let sources = tree::sources(|path| !GENERATED_FILES.contains(&path))?;
    let reasons: BTreeMap<String, BTreeMap<String, String>> =
        toml::from_str(&std::fs::read_to_string(tree::root().join("xtask/tidy.toml"))?).context("xtask/tidy.toml")?;
    let long_file_reasons = reasons.get("long").cloned().unwrap_or_default();
    let word_exceptions = reasons.get("vague_words").cloned().unwrap_or_default();
    let mut problems = wording::find_long_subjects()?;
    for source in &sources {
        problems.extend(find_leftovers(source));
        problems.extend(wording::find_vague_words(source, &word_exceptions));
        problems.extend(wording::find_rejected_names(source));
        problems.extend(line_count_problem(source, &long_file_reasons));
        if tree::has_extension(&source.path, "md") {
            problems.extend(find_dead_links(source, &|path| tree::root().join(path).exists(), &|path| {
                std::fs::read_to_string(tree::root().join(path)).unwrap_or_default()
            }));
        }
    }
    let guide = sources.iter().find(|source| source.path == "ARCHITECTURE.md").map_or("", |source| &source.text);
    for manifest in sources.iter().filter(|source| source.path.ends_with("Cargo.toml")) {
        problems.extend(undocumented_dependencies(manifest, guide)?);
    }
    for path in long_file_reasons.keys().filter(|path| !sources.iter().any(|source| source.path == **path)) {
        problems.push(format!("xtask/tidy.toml gives a reason for {path}, which does not exist"));
    }
    if problems.is_empty() {
        return Ok(());
    }
    bail!("tidy found problems:\n  {}", problems.join("\n  "))
}

fn line_count_problem(source: &SourceFile, reasons: &BTreeMap<String, String>) -> Option<String> {
    let is_limited =
        ["rs", "toml", "md", "html", "css", "js"].iter().any(|kind| tree::has_extension(&source.path, kind));
    let lines = source.text.lines().count();
    let has_reason = reasons.contains_key(&source.path);
    if is_limited && lines > MAX_FILE_LINES && !has_reason {
        return Some(format!("{} has {lines} lines, more than {MAX_FILE_LINES}: split it", source.path));
    }
    (has_reason && lines <= MAX_FILE_LINES)
        .then(|| format!("{} is short enough: remove it from xtask/tidy.toml", source.path))
}

fn find_leftovers(source: &SourceFile) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        for word in LEFTOVER_MARKERS.iter().filter(|word| has_word(line, word)) {
            wrong.push(format!("{}:{} contains the marker {word}", source.path, number + 1));
        }
        for host in REGISTRY_HOSTS.iter().filter(|host| line.contains(**host)) {
            wrong.push(format!("{}:{} contains the registry {host}", source.path, number + 1));
        }
    }
    wrong
}

/// Returns whether a line contains the word, with no letter directly before or after it.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        (word.starts_with('.') || !is_letter(before)) && (word.ends_with(['!', '(']) || !is_letter(after))
    })
}

/// Returns direct dependencies without a line in ARCHITECTURE.md.
fn undocumented_dependencies(manifest: &SourceFile, guide: &str) -> Result<Vec<String>> {
    let table: toml::Table = toml::from_str(&manifest.text).with_context(|| manifest.path.clone())?;
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let names = kinds.iter().filter_map(|kind| table.get(*kind)?.as_table()).flat_map(|list| list.keys());
    Ok(names
        .filter(|name| !name.starts_with("onceward") && !guide.contains(&format!("| `{name}` |")))
        .map(|name| format!("{} depends on {name}, which ARCHITECTURE.md does not list", manifest.path))
        .collect())
}

/// Returns links to missing files and to missing headings.
fn find_dead_links(source: &SourceFile, exists: &dyn Fn(&str) -> bool, read: &dyn Fn(&str) -> String) -> Vec<String> {
    let folder = Path::new(&source.path).parent().unwrap_or(Path::new(""));
    let mut wrong = Vec::new();
    for (number, target) in find_links(&source.text) {
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let path = if file.is_empty() { source.path.clone() } else { join_path(folder, file) };
        if !exists(&path) {
            wrong.push(format!("{}:{number} links to {target}, which does not exist", source.path));
        } else if !heading.is_empty()
            && tree::has_extension(&path, "md")
            && !heading_anchors(&read(&path)).contains(&heading.into())
        {
            wrong.push(format!("{}:{number} links to {target}: no such heading", source.path));
        }
    }
    wrong
}

/// Returns the targets of `](…)` and `src="…"` outside of code blocks, with their lines.
fn find_links(text: &str) -> Vec<(usize, &str)> {
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

fn join_path(folder: &Path, file: &str) -> String {
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

/// Returns the anchors that Markdown derives from headings.
fn heading_anchors(text: &str) -> Vec<String> {
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

    fn source_file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.into(), text: text.into() }
    }

    #[test]
    fn leftover_markers_match_whole_words_only() {
        let text = format!("// {}: later\nlet mas{}r = 1;\n", LEFTOVER_MARKERS[0], LEFTOVER_MARKERS[0]);
        assert_eq!(find_leftovers(&source_file("a.rs", &text)).len(), 1);
        assert_eq!(find_leftovers(&source_file("a.rs", &format!("see {}", REGISTRY_HOSTS[0]))).len(), 1);
    }

    #[test]
    fn long_file_needs_reason_and_short_file_rejects_one() {
        let long = source_file("a.rs", &"x\n".repeat(MAX_FILE_LINES + 1));
        let reason = BTreeMap::from([("a.rs".to_owned(), "a table".to_owned())]);
        assert!(line_count_problem(&long, &BTreeMap::new()).is_some());
        assert!(line_count_problem(&long, &reason).is_none());
        assert!(line_count_problem(&source_file("a.rs", "x"), &reason).is_some());
    }

    #[test]
    fn dependency_without_architecture_entry_is_reported() -> Result<()> {
        let manifest = source_file("crates/a/Cargo.toml", "[dependencies]\nb = \"1\"\n[dev-dependencies]\nc = \"1\"\n");
        assert!(undocumented_dependencies(&manifest, "| `b` | a | x |\n| `c` | a | y |")?.is_empty());
        assert_eq!(undocumented_dependencies(&manifest, "| `b` | a | x |")?.len(), 1);
        Ok(())
    }

    #[test]
    fn dead_links_are_reported() {
        let page = source_file("docs/a.md", "[b](b.md) [c](../c.md#one-two) [d](#here) `[x](y)`\n\n## Here\n");
        let read = |path: &str| if path == "c.md" { "# One, two\n".into() } else { page.text.clone() };
        assert!(find_dead_links(&page, &|_| true, &read).is_empty(), "{:?}", find_dead_links(&page, &|_| true, &read));
        assert_eq!(find_dead_links(&page, &|path| path != "docs/b.md", &read).len(), 1);
        assert_eq!(find_dead_links(&page, &|_| true, &|_| String::new()).len(), 2);
    }
}
