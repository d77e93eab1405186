//! Reading TOML values: each with its place, each wrong one with a message.

use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::ast::{At, Given, Literal, Text};
use crate::bounds;
use crate::diagnostic::{Diagnostic, Span};
use crate::expr::Place;
use crate::near;

pub(crate) type Node<'t> = Spanned<DeValue<'t>>;

/// A table of the file and what it is called in messages.
#[derive(Clone, Copy)]
pub(crate) struct Table<'t> {
    pub(crate) entries: &'t DeTable<'t>,
    pub(crate) at: Span,
    pub(crate) what: &'static str,
}

pub(crate) struct Reader<'a> {
    pub(crate) file: u32,
    pub(crate) source: &'a str,
    /// Patterns read so far, against `bounds::PATTERNS`.
    pub(crate) patterns: usize,
    /// Patterns until one is too many in the files given together: two more than are left of
    /// `bounds::PATTERNS_TOGETHER`, 1 when that is to be told and 0 once it was.
    pub(crate) patterns_left: &'a mut usize,
    pub(crate) out: &'a mut Vec<Diagnostic>,
}

/// What to do where there are too many of something.
fn help_for(code: &str) -> &'static str {
    match code {
        "too-many-entries" => "say it with fewer entries, or spread them over several rows",
        "too-many-fields" => "keep what belongs together in one `json` field, or split the lifecycle in two",
        _ => "split the lifecycle in two that refer to each other",
    }
}

impl Reader<'_> {
    pub(crate) fn span<T>(&self, node: &Spanned<T>) -> Span {
        Span::new(self.file, node.span())
    }

    pub(crate) fn report(&mut self, diagnostic: Diagnostic) {
        self.out.push(diagnostic);
    }

    fn placed(&self, text: &str, at: Span) -> Text {
        let raw = self.source.get(at.range()).unwrap_or_default();
        // One quote, three, or three and the line end that TOML drops; none for a bare key.
        let content = [0, 1, 3, 4, 5]
            .into_iter()
            .find(|offset| {
                raw.get(*offset..).is_some_and(|rest| rest.starts_with(text)) && raw.len() <= offset + text.len() + 3
            })
            .and_then(|offset| at.start.checked_add(u32::try_from(offset).ok()?));
        Text { text: text.into(), place: Place { whole: at, content } }
    }

    pub(crate) fn key(&self, key: &Spanned<std::borrow::Cow<'_, str>>) -> Text {
        self.placed(key.get_ref(), self.span(key))
    }

    /// Refuse every key that has no meaning here.
    pub(crate) fn only(&mut self, table: Table, allowed: &[&str]) {
        self.only_besides(table, allowed, |_| false);
    }

    /// As `only`, but for keys that were told of already.
    pub(crate) fn only_besides(&mut self, table: Table, allowed: &[&str], told: impl Fn(&str) -> bool) {
        for (key, _) in table.entries {
            let name: &str = key.get_ref();
            if !allowed.contains(&name) && !told(name) {
                let at = self.span(key);
                let help = match near::guessed(self.out.len(), name, allowed.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?\nkeys allowed here: {}", allowed.join(", ")),
                    None => format!("keys allowed here: {}", allowed.join(", ")),
                };
                self.report(
                    Diagnostic::error("unknown-key", at, format!("{} has no key `{name}`", table.what))
                        .label("not known here")
                        .help(help),
                );
            }
        }
    }

    /// Refuse `when` where a condition is called `if`; true where there was one.
    pub(crate) fn when_for_if(&mut self, table: Table) -> bool {
        let wrong = table.entries.keys().find(|key| key.get_ref() == "when");
        if let Some(key) = wrong {
            let at = self.span(key);
            self.report(
                Diagnostic::error("unknown-key", at, format!("the condition of {} is called `if`", table.what))
                    .label("only a row has a `when`")
                    .help("write `if` in its place"),
            );
        }
        wrong.is_some()
    }

    pub(crate) fn get<'t>(table: Table<'t>, key: &str) -> Option<&'t Node<'t>> {
        table.entries.iter().find(|(name, _)| *name.get_ref() == key).map(|(_, value)| value)
    }

    pub(crate) fn required<'t>(&mut self, table: Table<'t>, key: &str, help: &str) -> Option<&'t Node<'t>> {
        let found = Self::get(table, key);
        if found.is_none() {
            self.report(
                Diagnostic::error("missing-key", table.at, format!("{} needs the key `{key}`", table.what))
                    .label(format!("`{key}` is missing"))
                    .help(help),
            );
        }
        found
    }

    fn wrong_kind(&mut self, node: &Node, what: &str, wanted: &str) {
        let found = match node.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "an integer",
            DeValue::Float(_) => "a float",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        let at = self.span(node);
        self.report(
            Diagnostic::error("wrong-kind", at, format!("{what} must be {wanted}, not {found}"))
                .label(format!("this is {found}"))
                .help(format!("write {wanted}")),
        );
    }

    pub(crate) fn text(&mut self, node: &Node, what: &str) -> Option<Text> {
        if let DeValue::String(text) = node.get_ref() {
            return Some(self.placed(text, self.span(node)));
        }
        self.wrong_kind(node, what, "a string");
        None
    }

    pub(crate) fn text_at(&mut self, table: Table, key: &str) -> Option<Text> {
        let node = Self::get(table, key)?;
        self.text(node, &format!("`{key}`"))
    }

    pub(crate) fn flag(&mut self, table: Table, key: &str) -> Option<Span> {
        let node = Self::get(table, key)?;
        match node.get_ref() {
            DeValue::Boolean(true) => Some(self.span(node)),
            DeValue::Boolean(false) => None,
            _ => {
                self.wrong_kind(node, &format!("`{key}`"), "true or false");
                None
            }
        }
    }

    /// A string, or an array of strings.
    pub(crate) fn texts(&mut self, node: &Node, what: &str) -> Vec<Text> {
        match node.get_ref() {
            DeValue::String(_) => self.text(node, what).into_iter().collect(),
            DeValue::Array(items) => {
                self.bounded(items.len(), node, what);
                items
                    .iter()
                    .take(bounds::FIELDS)
                    .filter_map(|item| self.text(item, &format!("each entry of {what}")))
                    .collect()
            }
            _ => {
                self.wrong_kind(node, what, "a string or an array of strings");
                Vec::new()
            }
        }
    }

    pub(crate) fn texts_at(&mut self, table: Table, key: &str) -> Option<At<Vec<Text>>> {
        let node = Self::get(table, key)?;
        Some(At { value: self.texts(node, &format!("`{key}`")), at: self.span(node) })
    }

    pub(crate) fn table<'t>(&mut self, node: &'t Node<'t>, what: &'static str) -> Option<Table<'t>> {
        if let DeValue::Table(entries) = node.get_ref() {
            return Some(Table { entries, at: self.span(node), what });
        }
        self.wrong_kind(node, what, "a table, as { key = value }");
        None
    }

    pub(crate) fn table_at<'t>(&mut self, table: Table<'t>, key: &str, what: &'static str) -> Option<Table<'t>> {
        let node = Self::get(table, key)?;
        self.table(node, what)
    }

    /// An array of tables, each an entry of a row.
    pub(crate) fn tables_at<'t>(&mut self, table: Table<'t>, key: &str, what: &'static str) -> Vec<Table<'t>> {
        let Some(node) = Self::get(table, key) else { return Vec::new() };
        let DeValue::Array(items) = node.get_ref() else {
            self.wrong_kind(node, &format!("`{key}`"), "an array of tables, as [{ … }]");
            return Vec::new();
        };
        self.bounded(items.len(), node, &format!("`{key}`"));
        items.iter().take(bounds::ENTRIES).filter_map(|item| self.table(item, what)).collect()
    }

    fn bounded(&mut self, length: usize, node: &Node, what: &str) {
        self.at_most(length, bounds::ENTRIES, "too-many-entries", self.span(node), &format!("entries in {what}"));
    }

    /// Say so where there are more than the bound; the caller goes on with the first of them.
    pub(crate) fn at_most(&mut self, count: usize, bound: usize, code: &'static str, at: Span, what: &str) {
        if count > bound {
            self.report(
                Diagnostic::error(code, at, format!("{count} {what}; at most {bound} are allowed"))
                    .label("too many")
                    .help(help_for(code)),
            );
        }
    }

    pub(crate) fn int(&mut self, node: &Node, what: &str) -> Option<i64> {
        if let DeValue::Integer(int) = node.get_ref() {
            if let Ok(value) = i64::from_str_radix(int.as_str(), int.radix()) {
                return Some(value);
            }
            self.wrong_kind(node, what, "a number between -2^63 and 2^63 - 1");
            return None;
        }
        self.wrong_kind(node, what, "a whole number");
        None
    }

    pub(crate) fn count_at(&mut self, table: Table, key: &str) -> Option<At<u32>> {
        let node = Self::get(table, key)?;
        let value = self.int(node, &format!("`{key}`"))?;
        match u32::try_from(value) {
            Ok(value) if value > 0 => Some(At { value, at: self.span(node) }),
            _ => {
                self.wrong_kind(node, &format!("`{key}`"), "a whole number from 1 on");
                None
            }
        }
    }

    pub(crate) fn literal(&mut self, node: &Node, what: &str) -> Option<At<Literal>> {
        let at = self.span(node);
        let value = match node.get_ref() {
            DeValue::Boolean(flag) => Literal::Bool(*flag),
            DeValue::Integer(_) => Literal::Int(self.int(node, what)?),
            DeValue::Float(float) => match float.as_str().parse::<f64>() {
                Ok(value) if value.is_finite() => Literal::Double(value),
                _ => {
                    self.wrong_kind(node, what, "a finite number");
                    return None;
                }
            },
            DeValue::String(_) => Literal::Text(self.text(node, what)?),
            DeValue::Array(items) => {
                self.bounded(items.len(), node, what);
                let items = items.iter().take(bounds::ENTRIES);
                Literal::List(items.filter_map(|item| self.literal(item, what)).collect())
            }
            DeValue::Datetime(_) => {
                self.wrong_kind(node, what, "a string such as \"2026-01-31T12:00:00Z\"");
                return None;
            }
            DeValue::Table(_) => {
                self.wrong_kind(node, what, "a literal");
                return None;
            }
        };
        Some(At { value, at })
    }

    pub(crate) fn literal_at(&mut self, table: Table, key: &str) -> Option<At<Literal>> {
        let node = Self::get(table, key)?;
        self.literal(node, &format!("`{key}`"))
    }

    /// An expression: a string; a boolean or a number stands for itself.
    pub(crate) fn expression(&mut self, node: &Node, what: &str) -> Option<Text> {
        let at = self.span(node);
        let text: Arc<str> = match node.get_ref() {
            DeValue::String(_) => return self.text(node, what),
            DeValue::Boolean(flag) => if *flag { "true" } else { "false" }.into(),
            DeValue::Integer(_) => self.int(node, what)?.to_string().into(),
            DeValue::Float(_) => match self.literal(node, what)?.value {
                Literal::Double(value) => format!("{value:?}").into(),
                _ => return None,
            },
            _ => {
                self.wrong_kind(node, what, "an expression in a string, a number or a boolean");
                return None;
            }
        };
        Some(Text { text, place: Place { whole: at, content: None } })
    }

    pub(crate) fn expression_at(&mut self, table: Table, key: &str) -> Option<Text> {
        let node = Self::get(table, key)?;
        self.expression(node, &format!("`{key}`"))
    }

    /// A pattern, unless the file has had its share of them.
    pub(crate) fn pattern_at(&mut self, table: Table) -> Option<Text> {
        let pattern = self.text_at(table, "pattern")?;
        self.patterns += 1;
        if self.patterns > bounds::PATTERNS {
            // Told at the first that is too many.
            if self.patterns == bounds::PATTERNS + 1 {
                let (at, what) = (pattern.at(), "patterns in this file");
                self.at_most(self.patterns, bounds::PATTERNS, "too-many-entries", at, what);
            }
            return None;
        }
        *self.patterns_left = self.patterns_left.saturating_sub(1);
        match *self.patterns_left {
            // Told of already.
            0 => None,
            1 => {
                self.report(
                    Diagnostic::error("too-many-patterns", pattern.at(), "too many patterns in these files together")
                        .label("one more than is allowed")
                        .help(format!(
                            "files that are given together have at most {} patterns: bound the length of texts instead",
                            bounds::PATTERNS_TOGETHER
                        )),
                );
                None
            }
            _ => Some(pattern),
        }
    }

    /// `{ name = expression, … }`.
    pub(crate) fn given_at(&mut self, table: Table, key: &str, what: &'static str) -> Vec<Given> {
        let Some(inner) = self.table_at(table, key, what) else { return Vec::new() };
        self.at_most(inner.entries.len(), bounds::ENTRIES, "too-many-entries", inner.at, &format!("entries in {what}"));
        let mut given = Vec::new();
        for (name, node) in inner.entries.iter().take(bounds::ENTRIES) {
            let name = self.key(name);
            if let ("record", DeValue::Table(_)) = (&*name.text, node.get_ref()) {
                self.report(
                    Diagnostic::error("wrong-kind", name.at(), format!("{what} names fields without `record.`"))
                        .label("TOML reads this as a table")
                        .help("write the field's name alone before the `=`, as amount = \"record.amount + 1\""),
                );
                continue;
            }
            if let Some(value) = self.expression(node, &format!("`{}`", name.text)) {
                given.push(Given { name, value });
            }
        }
        given
    }
}
