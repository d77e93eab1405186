//! Parses a lifecycle file into values with their spans, so that a mutant is an edit of the text.

use std::ops::Range;

use anyhow::{Result, anyhow};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A lifecycle file of a shipped system.
pub(super) struct LifecycleFile {
    pub(super) system: String,
    /// From the root: `systems/image/job.toml`.
    pub(super) path: String,
    pub(super) text: String,
    pub(super) root: Vec<TomlEntry>,
}

pub(super) struct TomlEntry {
    pub(super) name: String,
    pub(super) key: Range<usize>,
    pub(super) item: TomlItem,
}

pub(super) struct TomlItem {
    pub(super) span: Range<usize>,
    pub(super) value: TomlValue,
}

pub(super) enum TomlValue {
    Text {
        text: String,
        /// The span between the quotes; `None` if the string contains escapes.
        content: Option<Range<usize>>,
    },
    Int(i64),
    /// The number as written in the file.
    Double(String),
    Bool(bool),
    List(Vec<TomlItem>),
    Table(Vec<TomlEntry>),
    Other,
}

impl LifecycleFile {
    pub(super) fn read(system: &str, path: &str, text: String) -> Result<Self> {
        let parsed = DeTable::parse(&text).map_err(|error| anyhow!("{path}: {error}"))?;
        let root = parse_entries(parsed.get_ref(), &text);
        Ok(Self { system: system.to_owned(), path: path.to_owned(), text, root })
    }

    pub(super) fn table_entries(&self, name: &str) -> &[TomlEntry] {
        find_item(&self.root, name).map_or(&[], TomlItem::entries)
    }

    /// Returns the events with their transitions: the `[[on.EVENT]]` tables, in order.
    pub(super) fn events(&self) -> impl Iterator<Item = (&str, Vec<&[TomlEntry]>)> {
        self.table_entries("on")
            .iter()
            .map(|event| (event.name.as_str(), event.item.items().iter().map(TomlItem::entries).collect()))
    }

    pub(super) fn states(&self) -> Vec<&str> {
        self.table_entries("states").iter().map(|state| state.name.as_str()).collect()
    }

    /// Returns the span from the transition's header up to the next header.
    pub(super) fn transition_span(&self, transition: &[TomlEntry]) -> Option<Range<usize>> {
        let within = transition.iter().map(|entry| entry.key.start).min()?;
        let start = self.text[..within].rfind("\n[[").map_or(0, |at| at + 1);
        let end = self.text[within..].find("\n[").map_or(self.text.len(), |at| within + at + 1);
        Some(start..end)
    }

    /// Returns the span to cut to remove an entry of an inline table or a list together with its comma, or a line's key
    /// and value.
    pub(super) fn removal_span(&self, range: &Range<usize>) -> Range<usize> {
        let after = &self.text[range.end..];
        let spaces = after.len() - after.trim_start_matches([' ', '\n']).len();
        if after[spaces..].starts_with(',') {
            let more = after[spaces + 1..].len() - after[spaces + 1..].trim_start_matches(' ').len();
            return range.start..range.end + spaces + 1 + more;
        }
        let before = self.text[..range.start].trim_end_matches([' ', '\n']);
        if before.ends_with(',') { before.len() - 1..range.end } else { range.clone() }
    }
}

impl TomlEntry {
    pub(super) fn span(&self) -> Range<usize> {
        self.key.start..self.item.span.end
    }
}

impl TomlItem {
    pub(super) fn entries(&self) -> &[TomlEntry] {
        if let TomlValue::Table(entries) = &self.value { entries } else { &[] }
    }

    pub(super) fn items(&self) -> &[Self] {
        if let TomlValue::List(items) = &self.value { items } else { &[] }
    }

    pub(super) fn text(&self) -> Option<&str> {
        if let TomlValue::Text { text, .. } = &self.value { Some(text) } else { None }
    }

    /// Returns the items of a list, or a single value as a list of one.
    pub(super) fn as_list(&self) -> Vec<&Self> {
        if let TomlValue::List(items) = &self.value { items.iter().collect() } else { vec![self] }
    }
}

pub(super) fn find_item<'a>(entries: &'a [TomlEntry], name: &str) -> Option<&'a TomlItem> {
    entries.iter().find(|entry| entry.name == name).map(|entry| &entry.item)
}

fn parse_entries(table: &DeTable, text: &str) -> Vec<TomlEntry> {
    table
        .iter()
        .map(|(key, value)| TomlEntry {
            name: key.get_ref().to_string(),
            key: key.span(),
            item: parse_item(value, text),
        })
        .collect()
}

fn parse_item(node: &Spanned<DeValue>, text: &str) -> TomlItem {
    let span = node.span();
    let value = match node.get_ref() {
        DeValue::String(found) => {
            let raw = text.get(span.clone()).unwrap_or_default();
            let quotes =
                [1, 3, 4].into_iter().find(|quotes| raw.get(*quotes..).is_some_and(|raw| raw.starts_with(&**found)));
            let content = quotes.map(|quotes| span.start + quotes..span.start + quotes + found.len());
            TomlValue::Text { text: found.to_string(), content }
        }
        DeValue::Integer(found) => found.as_str().parse().map_or(TomlValue::Other, TomlValue::Int),
        DeValue::Float(found) => TomlValue::Double(found.as_str().to_owned()),
        DeValue::Boolean(found) => TomlValue::Bool(*found),
        DeValue::Array(found) => TomlValue::List(found.iter().map(|node| parse_item(node, text)).collect()),
        DeValue::Table(found) => TomlValue::Table(parse_entries(found, text)),
        DeValue::Datetime(_) => TomlValue::Other,
    };
    TomlItem { span, value }
}
