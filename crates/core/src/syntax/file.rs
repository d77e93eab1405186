//! Parses a whole file.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::ast::LifecycleSource;
use super::declarations::FieldStorage;
use super::toml_reader::{TomlNode, TomlReader, TomlTable};
use crate::bounds;
use crate::diagnostic::{Diagnostic, InputFile, Span};

const TOP_LEVEL_KEYS: [&str; 20] = [
    "language",
    "lifecycle",
    "about",
    "key",
    "asset",
    "outside",
    "clock",
    "payload",
    "states",
    "fields",
    "links",
    "unique",
    "limit",
    "work",
    "errors",
    "checks",
    "who",
    "access",
    "refs",
    "on",
];

/// Maximum TOML errors reported per file. Further ones mostly follow from the first.
const MAX_TOML_ERRORS: usize = 5;

/// Parses one file.
///
/// Parses as much as possible, so that one error does not hide the next. Returns `None` if nothing is usable. A
/// returned file may still have errors in `diagnostics`.
///
/// `patterns_remaining` counts down over all files, see [`TomlReader::patterns_remaining`].
pub(crate) fn parse(
    file_index: u32,
    file: &InputFile,
    patterns_remaining: &mut usize,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<LifecycleSource> {
    let start = Span::new(file_index, 0..0);
    if file.text.len() > bounds::MAX_FILE_BYTES {
        diagnostics.push(
            Diagnostic::error("file-too-large", start, format!("the file has {} bytes", file.text.len()))
                .label("too large")
                .help(format!("keep a lifecycle file below {} bytes", bounds::MAX_FILE_BYTES)),
        );
        return None;
    }
    let (document, errors) = DeTable::parse_recoverable(&file.text);
    for error in errors.iter().take(MAX_TOML_ERRORS) {
        diagnostics.push(toml_error(file_index, file, document.get_ref(), error));
    }
    if !errors.is_empty() {
        return None;
    }
    let mut reader = TomlReader { file_index, source: &file.text, pattern_count: 0, patterns_remaining, diagnostics };
    if let Some(deep) = document.get_ref().values().find_map(|node| find_too_deep(node, 1)) {
        let at = Span::new(file_index, deep);
        reader.report(
            Diagnostic::error(
                "nesting-too-deep",
                at,
                format!("tables and arrays are nested more than {} levels deep", bounds::MAX_NESTING_DEPTH),
            )
            .label("too deep")
            .help("nest fewer tables and arrays; no key needs that depth"),
        );
        return None;
    }
    let top = TomlTable { entries: document.get_ref(), span: start, what: "a lifecycle file" };
    reader.read_source(top)
}

fn toml_error(file_index: u32, file: &InputFile, document: &DeTable, error: &toml::de::Error) -> Diagnostic {
    let range = error.span().unwrap_or(0..0);
    let at = Span::new(file_index, range.clone());
    let key = file.text.get(range.clone()).unwrap_or_default().trim_matches(['"', '\'']);
    if error.message() != "duplicate key" || key.is_empty() {
        let help = if is_string_closed_early(&file.text, range.start) {
            "the string ends at the quote before; inside a string, write text in single quotes, such as 'text'"
        } else {
            "lifecycle files are TOML: strings in quotes, tables in braces or under a [header]"
        };
        return Diagnostic::error("invalid-toml", at, format!("not valid TOML: {}", error.message()))
            .label("unexpected")
            .help(help);
    }
    let line = file.text[..range.start].rfind('\n').map_or(0, |end| end + 1);
    let header = file.text[line..range.start].trim_start().starts_with('[');
    let diagnostic = Diagnostic::error("invalid-toml", at, format!("`{key}` is defined twice"))
        .label(if header { "the table already exists" } else { "the key already exists" })
        .help(if header {
            "move the keys below to the first header; transitions have double brackets, such as [[on.create]]"
        } else {
            "remove or rename one of the two"
        });
    let first = if header {
        // The second table has replaced the first in the document.
        let (before, _) = DeTable::parse_recoverable(&file.text[..line]);
        find_first_key(before.get_ref(), &file.text, key, range.start)
    } else {
        find_first_key(document, &file.text, key, range.start)
    };
    match first {
        Some(first) => diagnostic.related(Span::new(file_index, first), "the first time"),
        None => diagnostic,
    }
}

/// Returns whether a double quote just before `byte` ended a string early, as in text with double quotes inside a
/// string.
fn is_string_closed_early(source: &str, byte: usize) -> bool {
    let (Some(before), Some(rest)) = (source.get(..byte), source.get(byte..)) else { return false };
    let line = before.rsplit('\n').next().unwrap_or_default();
    let follows = rest.lines().next().unwrap_or_default();
    line.ends_with('"') && line.matches('"').count() % 2 == 0 && follows.contains('"')
}

/// Finds the first occurrence of a key that is repeated at `byte`: the nearest key of that name before it, except in
/// inline tables that end before it. The entries below a header are contiguous, so that key is in the same table.
fn find_first_key(document: &DeTable, source: &str, name: &str, byte: usize) -> Option<Range<usize>> {
    let mut found: Option<Range<usize>> = None;
    let mut pending = vec![document];
    while let Some(table) = pending.pop() {
        for (key, node) in table {
            let at = key.span();
            if *key.get_ref() == *name && at.end <= byte && found.as_ref().is_none_or(|found| found.start < at.start) {
                found = Some(at);
            }
            let nodes = match node.get_ref() {
                DeValue::Array(items) => &items[..],
                _ => std::slice::from_ref(node),
            };
            for node in nodes {
                let closed = source[node.span().start..].starts_with('{') && !node.span().contains(&byte);
                if let DeValue::Table(inner) = node.get_ref()
                    && !closed
                {
                    pending.push(inner);
                }
            }
        }
    }
    found
}

fn find_too_deep(node: &TomlNode, depth: usize) -> Option<Range<usize>> {
    if depth > bounds::MAX_NESTING_DEPTH {
        return Some(node.span());
    }
    match node.get_ref() {
        DeValue::Array(items) => items.iter().find_map(|item| find_too_deep(item, depth + 1)),
        DeValue::Table(entries) => entries.values().find_map(|item| find_too_deep(item, depth + 1)),
        _ => None,
    }
}

/// Returns whether the node holds transitions.
fn holds_transitions(node: &TomlNode) -> bool {
    let is_transition = |node: &TomlNode| matches!(node.get_ref(), DeValue::Table(table) if table.keys().any(|key| key.get_ref() == "go"));
    match node.get_ref() {
        DeValue::Array(items) => items.first().is_some_and(is_transition),
        _ => is_transition(node),
    }
}

impl TomlReader<'_> {
    /// Reports `[[reopen]]` in place of `[[on.reopen]]`.
    fn report_events_without_on(&mut self, top: TomlTable) {
        for (key, node) in top.entries {
            let name: &str = key.get_ref();
            if !TOP_LEVEL_KEYS.contains(&name) && holds_transitions(node) {
                let at = self.span(key);
                self.report(
                    Diagnostic::error(
                        "unknown-key",
                        at,
                        format!("transitions of the event `{name}` must be under `on`"),
                    )
                    .label("`on.` is missing")
                    .help(format!("write [[on.{name}]]")),
                );
            }
        }
    }

    fn read_source(&mut self, top: TomlTable) -> Option<LifecycleSource> {
        if !self.require_language(top) {
            return None;
        }
        self.report_events_without_on(top);
        self.allow_only_keys_besides(top, &TOP_LEVEL_KEYS, |name| Self::get(top, name).is_some_and(holds_transitions));
        let lifecycle = self
            .require_key(top, "lifecycle", "name it after its system, such as lifecycle = \"document.job\"")
            .and_then(|node| self.read_text(node, "`lifecycle`"))
            .filter(|name| self.validate_lifecycle_name(name))?;
        self.require_key(top, "states", "add a [states] table with at least one state");
        let clock = self.read_text_at(top, "clock");
        let operation_clock = clock.filter(|text| {
            let is_known = &*text.text == "operation";
            if !is_known {
                self.report_only_word(text.span(), "`clock`", "operation");
            }
            is_known
        });
        Some(LifecycleSource {
            lifecycle,
            about: self.read_text_at(top, "about"),
            natural_key: self.read_text_at(top, "key"),
            asset: self.read_text_at(top, "asset"),
            outside_accounts: self.read_texts_at(top, "outside").map_or_else(Vec::new, |outside| outside.value),
            operation_clock: operation_clock.map(|text| text.span()),
            payload: self.read_payload_bounds(top),
            states: self.read_states(top),
            fields: self.read_fields_at(top, "fields", "[fields]", FieldStorage::Stored).unwrap_or_default(),
            links: self.read_links(top),
            uniques: self.read_uniques(top),
            limits: self.read_limits(top),
            work: self.read_work(top),
            errors: self.read_errors(top),
            checks: self.read_checks(top),
            lookups: self.read_lookups(top),
            callers: self.read_callers(top),
            allowed_readers: self.read_access(top),
            events: self.read_events(top),
        })
    }

    fn require_language(&mut self, top: TomlTable) -> bool {
        let Some(node) = self.require_key(top, "language", "start the file with `language = 1`") else { return false };
        let Some(version) = self.read_int(node, "`language`") else { return false };
        if version != 1 {
            let at = self.span(node);
            self.report(
                Diagnostic::error(
                    "unsupported-language",
                    at,
                    format!("this version of onceward does not support language {version}"),
                )
                .label("unsupported version")
                .help("write `language = 1`, or use a newer version of onceward"),
            );
        }
        version == 1
    }
}
