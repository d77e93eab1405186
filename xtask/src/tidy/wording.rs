//! Checks names, prose and commit subjects.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::shell;
use crate::tree::{self, SourceFile};

/// Pronouns that hide the actor. Split, so that this file does not match itself.
const VAGUE_WORDS: &[&str] = &[
    concat!("who", "ever"),
    concat!("some", "body"),
    concat!("no", "body"),
    concat!("any", "body"),
    concat!("every", "body"),
];

/// Words that name no concept of the vocabulary, so no type or constant may consist of one alone. Words with a meaning of
/// their own, such as `row` and `check`, are not here.
const REJECTED_NAMES: &str = "again ask at base beat beaten bell bring_up carry_over cause chance chunk clash complaint \
    deed desk dice family flight fold_back forget grant ground hand_out heart keep key kin lately later leave letter life \
    line look loss memory move net news objects old once opening over patience place play post proof question quiet recent \
    room said set_aside signal silence soon stage stand stow survey take_out trouble turn turned_away use waiter wish word";

const DECLARATIONS: [&str; 6] = ["struct", "enum", "trait", "type", "const", "static"];

const MAX_SUBJECT_CHARS: usize = 72;

/// The time of commit c9b7ef98. Subjects before it may be longer. A time instead of a commit works in a shallow clone, too.
const SUBJECTS_CHECKED_SINCE: &str = "2026-11-18T04:09:38Z";

/// Returns the lines with a vague word. `exceptions` has prefixes of paths.
pub(super) fn find_vague_words(source: &SourceFile, exceptions: &BTreeMap<String, String>) -> Vec<String> {
    if exceptions.keys().any(|prefix| source.path.starts_with(prefix)) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        let line = line.to_lowercase();
        let words = VAGUE_WORDS.iter().filter(|word| super::has_word(&line, word));
        found.extend(words.map(|word| format!("{}:{} says `{word}`: name the actor", source.path, number + 1)));
    }
    found
}

/// Returns the types and constants of a Rust file whose whole name is a rejected word.
pub(super) fn find_rejected_names(source: &SourceFile) -> Vec<String> {
    if !tree::has_extension(&source.path, "rs") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let names = words.windows(2).filter(|pair| DECLARATIONS.contains(&pair[0])).map(|pair| pair[1]);
        let rejected = names.filter(|name| REJECTED_NAMES.split_whitespace().any(|word| is_named(name, word)));
        let message = |name| format!("{}:{} `{name}` says too little: see ARCHITECTURE.md", source.path, number + 1);
        found.extend(rejected.map(message));
    }
    found
}

/// Whether a type (`SetAside`) or a constant (`SET_ASIDE`) has this word (`set_aside`) as its whole name.
fn is_named(name: &str, word: &str) -> bool {
    let is_type = name.starts_with(|c: char| c.is_ascii_uppercase()) && name.to_lowercase() == word.replace('_', "");
    is_type || name == word.to_uppercase()
}

/// Returns the subjects of commits that are too long.
pub(super) fn find_long_subjects() -> Result<Vec<String>> {
    let since = format!("--since={SUBJECTS_CHECKED_SINCE}");
    let mut log = shell::command("git");
    let log = log.current_dir(tree::root()).args(["log", "--no-merges", "--format=%h %s", &since]);
    Ok(shell::output(log)?.lines().filter_map(long_subject).collect())
}

fn long_subject(line: &str) -> Option<String> {
    let (commit, subject) = line.split_once(' ')?;
    let length = subject.chars().count();
    (length > MAX_SUBJECT_CHARS).then(|| {
        format!("commit {commit}: its subject has {length} characters; at most {MAX_SUBJECT_CHARS} are allowed")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source_file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.into(), text: text.into() }
    }

    #[test]
    fn vague_words_are_found_as_whole_words() {
        let page = source_file("docs/a.md", &format!("{} asks.\nA {}ly word\n", VAGUE_WORDS[1], VAGUE_WORDS[2]));
        assert_eq!(find_vague_words(&page, &BTreeMap::new()).len(), 1);
        let upper = source_file("docs/a.md", &VAGUE_WORDS[0].to_uppercase());
        assert_eq!(find_vague_words(&upper, &BTreeMap::new()).len(), 1);
        let exceptions = BTreeMap::from([("docs/".to_owned(), "a reason".to_owned())]);
        assert!(find_vague_words(&page, &exceptions).is_empty());
    }

    #[test]
    fn rejected_names_are_found_in_declarations_only() {
        let declared = |text: &str| find_rejected_names(&source_file("a.rs", text)).len();
        assert_eq!(declared(&"pub(crate) STRUCT Desk {".replace("STRUCT", "struct")), 1);
        assert_eq!(declared(&"STRUCT SetAside;\nSTRUCT SET_ASIDE: u8 = 1;".replace("STRUCT", "const")), 2);
        assert_eq!(declared("struct DeskLamp; let desk = Desk::new(); fn place() {} struct Row;"), 0);
        assert!(find_rejected_names(&source_file("a.md", &format!("{} Desk", DECLARATIONS[0]))).is_empty());
    }

    #[test]
    fn subject_over_the_limit_is_reported() {
        assert_eq!(long_subject(&format!("abc {}", "x".repeat(MAX_SUBJECT_CHARS))), None);
        assert!(long_subject(&format!("abc {}", "é".repeat(MAX_SUBJECT_CHARS + 1))).is_some());
    }
}
