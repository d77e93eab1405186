//! A lifecycle file as a tree of values, each with its place in the text, so that a mutant is an edit of the text.

use std::ops::Range;

use anyhow::{Result, anyhow};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One file of a shipped system.
pub(super) struct File {
    pub(super) system: String,
    /// From the root: `systems/image/job.toml`.
    pub(super) path: String,
    pub(super) text: String,
    pub(super) root: Vec<Entry>,
}

pub(super) struct Entry {
    pub(super) name: String,
    pub(super) key: Range<usize>,
    pub(super) item: Item,
}

pub(super) struct Item {
    pub(super) span: Range<usize>,
    pub(super) value: Value,
}

pub(super) enum Value {
    Text {
        text: String,
        /// What stands between the quotes; none where escapes hide it.
        content: Option<Range<usize>>,
    },
    Int(i64),
    /// As it stands there.
    Double(String),
    Bool(bool),
    List(Vec<Item>),
    Table(Vec<Entry>),
    Other,
}

impl File {
    pub(super) fn read(system: &str, path: &str, text: String) -> Result<Self> {
        let parsed = DeTable::parse(&text).map_err(|error| anyhow!("{path}: {error}"))?;
        let root = entries(parsed.get_ref(), &text);
        Ok(Self { system: system.to_owned(), path: path.to_owned(), text, root })
    }

    pub(super) fn table(&self, name: &str) -> &[Entry] {
        find(&self.root, name).map_or(&[], Item::entries)
    }

    /// Rows of an event, in order: each `[[on.EVENT]]` table.
    pub(super) fn events(&self) -> impl Iterator<Item = (&str, Vec<&[Entry]>)> {
        self.table("on")
            .iter()
            .map(|event| (event.name.as_str(), event.item.items().iter().map(Item::entries).collect()))
    }

    pub(super) fn states(&self) -> Vec<&str> {
        self.table("states").iter().map(|state| state.name.as_str()).collect()
    }

    /// From the row's header up to the next header.
    pub(super) fn block(&self, row: &[Entry]) -> Option<Range<usize>> {
        let within = row.iter().map(|entry| entry.key.start).min()?;
        let start = self.text[..within].rfind("\n[[").map_or(0, |at| at + 1);
        let end = self.text[within..].find("\n[").map_or(self.text.len(), |at| within + at + 1);
        Some(start..end)
    }

    /// What to cut so that an entry of an inline table or a list goes, with its comma; or a line's key and value.
    pub(super) fn cut(&self, range: &Range<usize>) -> Range<usize> {
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

impl Entry {
    pub(super) fn span(&self) -> Range<usize> {
        self.key.start..self.item.span.end
    }
}

impl Item {
    pub(super) fn entries(&self) -> &[Entry] {
        if let Value::Table(entries) = &self.value { entries } else { &[] }
    }

    pub(super) fn items(&self) -> &[Self] {
        if let Value::List(items) = &self.value { items } else { &[] }
    }

    pub(super) fn text(&self) -> Option<&str> {
        if let Value::Text { text, .. } = &self.value { Some(text) } else { None }
    }

    /// A list, or the one thing that stands for it.
    pub(super) fn several(&self) -> Vec<&Self> {
        if let Value::List(items) = &self.value { items.iter().collect() } else { vec![self] }
    }
}

pub(super) fn find<'a>(entries: &'a [Entry], name: &str) -> Option<&'a Item> {
    entries.iter().find(|entry| entry.name == name).map(|entry| &entry.item)
}

fn entries(table: &DeTable, text: &str) -> Vec<Entry> {
    table
        .iter()
        .map(|(key, value)| Entry { name: key.get_ref().to_string(), key: key.span(), item: item(value, text) })
        .collect()
}

fn item(node: &Spanned<DeValue>, text: &str) -> Item {
    let span = node.span();
    let value = match node.get_ref() {
        DeValue::String(found) => {
            let raw = text.get(span.clone()).unwrap_or_default();
            let quotes =
                [1, 3, 4].into_iter().find(|quotes| raw.get(*quotes..).is_some_and(|raw| raw.starts_with(&**found)));
            let content = quotes.map(|quotes| span.start + quotes..span.start + quotes + found.len());
            Value::Text { text: found.to_string(), content }
        }
        DeValue::Integer(found) => found.as_str().parse().map_or(Value::Other, Value::Int),
        DeValue::Float(found) => Value::Double(found.as_str().to_owned()),
        DeValue::Boolean(found) => Value::Bool(*found),
        DeValue::Array(found) => Value::List(found.iter().map(|node| item(node, text)).collect()),
        DeValue::Table(found) => Value::Table(entries(found, text)),
        DeValue::Datetime(_) => Value::Other,
    };
    Item { span, value }
}
