//! A whole file.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::ast::Source;
use super::declarations::Kept;
use super::read::{Node, Reader, Table};
use crate::bounds;
use crate::diagnostic::{Diagnostic, File, Span};

const TOP_KEYS: [&str; 20] = [
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

/// Syntax errors of one file that are worth reading; the rest mostly follow from the first ones.
const TOML_ERRORS: usize = 5;

/// Read one file. What can be read is, so that one slip does not hide the next; `None` where there is nothing to go
/// on. Whether the file may be used is for the diagnostics to say.
///
/// `patterns` counts down over all files given together, see `Reader::patterns_left`.
pub(crate) fn parse(index: u32, file: &File, patterns: &mut usize, out: &mut Vec<Diagnostic>) -> Option<Source> {
    let start = Span::new(index, 0..0);
    if file.text.len() > bounds::FILE_BYTES {
        out.push(
            Diagnostic::error("file-too-large", start, format!("the file has {} bytes", file.text.len()))
                .label("too large to be read")
                .help(format!("a lifecycle file has at most {} bytes", bounds::FILE_BYTES)),
        );
        return None;
    }
    let (document, errors) = DeTable::parse_recoverable(&file.text);
    for error in errors.iter().take(TOML_ERRORS) {
        out.push(not_toml(index, file, document.get_ref(), error));
    }
    if !errors.is_empty() {
        return None;
    }
    let mut reader = Reader { file: index, source: &file.text, patterns: 0, patterns_left: patterns, out };
    if let Some(deep) = document.get_ref().values().find_map(|node| too_deep(node, 1)) {
        let at = Span::new(index, deep);
        reader.report(
            Diagnostic::error(
                "nesting-too-deep",
                at,
                format!("more than {} tables and arrays inside each other", bounds::NESTING),
            )
            .label("too deep")
            .help("no part of a lifecycle file needs that"),
        );
        return None;
    }
    let top = Table { entries: document.get_ref(), at: start, what: "a lifecycle file" };
    reader.source_of(top)
}

fn not_toml(index: u32, file: &File, document: &DeTable, error: &toml::de::Error) -> Diagnostic {
    let range = error.span().unwrap_or(0..0);
    let at = Span::new(index, range.clone());
    let key = file.text.get(range.clone()).unwrap_or_default().trim_matches(['"', '\'']);
    if error.message() != "duplicate key" || key.is_empty() {
        let help = if closes_early(&file.text, range.start) {
            "the string ends at the quote before this; inside it, write text in single quotes, as 'text'"
        } else {
            "lifecycle files are TOML: strings in quotes, tables in braces or under a [header]"
        };
        return Diagnostic::error("invalid-toml", at, format!("not valid TOML: {}", error.message()))
            .label("here")
            .help(help);
    }
    let line = file.text[..range.start].rfind('\n').map_or(0, |end| end + 1);
    let header = file.text[line..range.start].trim_start().starts_with('[');
    let diagnostic = Diagnostic::error("invalid-toml", at, format!("`{key}` stands here a second time"))
        .label(if header { "this table is there already" } else { "this key is there already" })
        .help(if header {
            "put what stands here under the first header; rows have double brackets, as [[on.create]]"
        } else {
            "keep one of the two, or give one another name"
        });
    let first = if header {
        // The second table has taken the place of the first.
        let (before, _) = DeTable::parse_recoverable(&file.text[..line]);
        first_time(before.get_ref(), &file.text, key, range.start)
    } else {
        first_time(document, &file.text, key, range.start)
    };
    match first {
        Some(first) => diagnostic.also(Span::new(index, first), "the first time"),
        None => diagnostic,
    }
}

/// Whether what stands at `byte` comes right after a double quote that ends a string, with another quote to come: somebody
/// wrote text in double quotes inside a string.
fn closes_early(source: &str, byte: usize) -> bool {
    let (Some(before), Some(rest)) = (source.get(..byte), source.get(byte..)) else { return false };
    let line = before.rsplit('\n').next().unwrap_or_default();
    let follows = rest.lines().next().unwrap_or_default();
    line.ends_with('"') && line.matches('"').count() % 2 == 0 && follows.contains('"')
}

/// Where a key that stands a second time at `byte` stood first: the nearest of its name before it, leaving out inline
/// tables that are closed by then. What stands under a header is contiguous, so that one is of the same table.
fn first_time(document: &DeTable, source: &str, name: &str, byte: usize) -> Option<Range<usize>> {
    let mut found: Option<Range<usize>> = None;
    let mut open = vec![document];
    while let Some(table) = open.pop() {
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
                    open.push(inner);
                }
            }
        }
    }
    found
}

fn too_deep(node: &Node, depth: usize) -> Option<Range<usize>> {
    if depth > bounds::NESTING {
        return Some(node.span());
    }
    match node.get_ref() {
        DeValue::Array(items) => items.iter().find_map(|item| too_deep(item, depth + 1)),
        DeValue::Table(entries) => entries.values().find_map(|item| too_deep(item, depth + 1)),
        _ => None,
    }
}

/// Whether this is what stands under an event.
fn holds_rows(node: &Node) -> bool {
    let is_row =
        |node: &Node| matches!(node.get_ref(), DeValue::Table(row) if row.keys().any(|key| key.get_ref() == "go"));
    match node.get_ref() {
        DeValue::Array(items) => items.first().is_some_and(is_row),
        _ => is_row(node),
    }
}

impl Reader<'_> {
    /// `[[reopen]]` for `[[on.reopen]]`.
    fn events_without_on(&mut self, top: Table) {
        for (key, node) in top.entries {
            let name: &str = key.get_ref();
            if !TOP_KEYS.contains(&name) && holds_rows(node) {
                let at = self.span(key);
                self.report(
                    Diagnostic::error("unknown-key", at, format!("rows of the event `{name}` stand under `on`"))
                        .label("`on.` is missing")
                        .help(format!("write [[on.{name}]]")),
                );
            }
        }
    }

    fn source_of(&mut self, top: Table) -> Option<Source> {
        if !self.language(top) {
            return None;
        }
        self.events_without_on(top);
        self.only_besides(top, &TOP_KEYS, |name| Self::get(top, name).is_some_and(holds_rows));
        let lifecycle = self
            .required(top, "lifecycle", "name it after its system, as lifecycle = \"document.job\"")
            .and_then(|node| self.text(node, "`lifecycle`"))
            .filter(|name| self.lifecycle_name(name))?;
        self.required(top, "states", "add a [states] table with at least one state");
        let clock = self.text_at(top, "clock");
        let operation_clock = clock.filter(|text| {
            let known = &*text.text == "operation";
            if !known {
                self.only_word(text.at(), "`clock`", "operation");
            }
            known
        });
        Some(Source {
            lifecycle,
            about: self.text_at(top, "about"),
            key: self.text_at(top, "key"),
            asset: self.text_at(top, "asset"),
            outside: self.texts_at(top, "outside").map_or_else(Vec::new, |outside| outside.value),
            operation_clock: operation_clock.map(|text| text.at()),
            payload: self.payload_of(top),
            states: self.states_of(top),
            fields: self.fields_at(top, "fields", "[fields]", Kept::InRecord).unwrap_or_default(),
            links: self.links_of(top),
            uniques: self.uniques_of(top),
            limits: self.limits_of(top),
            work: self.work_of(top),
            errors: self.errors_of(top),
            checks: self.checks_of(top),
            lookups: self.lookups_of(top),
            who: self.who_of(top),
            access: self.access_of(top),
            events: self.events_of(top),
        })
    }

    fn language(&mut self, top: Table) -> bool {
        let Some(node) = self.required(top, "language", "start the file with `language = 1`") else { return false };
        let Some(version) = self.int(node, "`language`") else { return false };
        if version != 1 {
            let at = self.span(node);
            self.report(
                Diagnostic::error("unsupported-language", at, format!("this program does not know language {version}"))
                    .label("unknown version of the language")
                    .help("it knows `language = 1`; a newer program may know more"),
            );
        }
        version == 1
    }
}
