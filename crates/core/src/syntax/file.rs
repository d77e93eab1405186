//! A whole file.

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
pub(crate) fn parse(index: u32, file: &File, out: &mut Vec<Diagnostic>) -> Option<Source> {
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
        let range = error.span().unwrap_or(0..0);
        out.push(
            Diagnostic::error("invalid-toml", Span::new(index, range), format!("not valid TOML: {}", error.message()))
                .label("here")
                .help("lifecycle files are TOML: strings in quotes, tables in braces or under a [header]"),
        );
    }
    if !errors.is_empty() {
        return None;
    }
    let mut reader = Reader { file: index, source: &file.text, patterns: 0, out };
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

fn too_deep(node: &Node, depth: usize) -> Option<std::ops::Range<usize>> {
    if depth > bounds::NESTING {
        return Some(node.span());
    }
    match node.get_ref() {
        DeValue::Array(items) => items.iter().find_map(|item| too_deep(item, depth + 1)),
        DeValue::Table(entries) => entries.values().find_map(|item| too_deep(item, depth + 1)),
        _ => None,
    }
}

impl Reader<'_> {
    fn source_of(&mut self, top: Table) -> Option<Source> {
        if !self.language(top) {
            return None;
        }
        self.only(top, &TOP_KEYS);
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
