//! Reads TOML values with their spans, and reports invalid ones.

use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::ast::{FieldLiteral, NamedExpr, SourceText, WithSpan};
use crate::bounds;
use crate::diagnostic::{Diagnostic, Span};
use crate::expr::ExprLocation;
use crate::suggest;

pub(crate) type TomlNode<'t> = Spanned<DeValue<'t>>;

/// A table of the file, and its name in messages.
#[derive(Clone, Copy)]
pub(crate) struct TomlTable<'t> {
    pub(crate) entries: &'t DeTable<'t>,
    pub(crate) span: Span,
    pub(crate) what: &'static str,
}

pub(crate) struct TomlReader<'a> {
    pub(crate) file_index: u32,
    pub(crate) source: &'a str,
    /// Patterns read so far, at most `bounds::MAX_PATTERNS_PER_FILE`.
    pub(crate) pattern_count: usize,
    /// Patterns that remain for all files together, plus 2. At 1, the reader reports `too-many-patterns`; at 0, it has
    /// reported it. See `bounds::MAX_PATTERNS_TOTAL`.
    pub(crate) patterns_remaining: &'a mut usize,
    pub(crate) diagnostics: &'a mut Vec<Diagnostic>,
}

/// Returns the help for a code that reports too many entries.
fn help_for_excess(code: &str) -> &'static str {
    match code {
        "too-many-entries" => "use fewer entries, or split them over several transitions",
        "too-many-fields" => "combine fields in one `json` field, or split the lifecycle into two",
        _ => "split the lifecycle into two that refer to each other",
    }
}

impl TomlReader<'_> {
    pub(crate) fn span<T>(&self, node: &Spanned<T>) -> Span {
        Span::new(self.file_index, node.span())
    }

    pub(crate) fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    fn locate_text(&self, text: &str, span: Span) -> SourceText {
        let raw = self.source.get(span.range()).unwrap_or_default();
        // Offset of the content: 0 for a bare key, 1 or 3 for quotes, up to 2 more for the newline that TOML trims.
        let content = [0, 1, 3, 4, 5]
            .into_iter()
            .find(|offset| {
                raw.get(*offset..).is_some_and(|rest| rest.starts_with(text)) && raw.len() <= offset + text.len() + 3
            })
            .and_then(|offset| span.start.checked_add(u32::try_from(offset).ok()?));
        SourceText { text: text.into(), location: ExprLocation { value_span: span, content_start: content } }
    }

    pub(crate) fn key(&self, key: &Spanned<std::borrow::Cow<'_, str>>) -> SourceText {
        self.locate_text(key.get_ref(), self.span(key))
    }

    /// Reports every key that is not allowed.
    pub(crate) fn allow_only_keys(&mut self, table: TomlTable, allowed: &[&str]) {
        self.allow_only_keys_besides(table, allowed, |_| false);
    }

    /// Like [`Self::allow_only_keys`], but skips keys that are already reported.
    pub(crate) fn allow_only_keys_besides(
        &mut self,
        table: TomlTable,
        allowed: &[&str],
        is_reported: impl Fn(&str) -> bool,
    ) {
        for (key, _) in table.entries {
            let name: &str = key.get_ref();
            if !allowed.contains(&name) && !is_reported(name) {
                let at = self.span(key);
                let help = match suggest::suggest_name(self.diagnostics.len(), name, allowed.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?\nallowed keys: {}", allowed.join(", ")),
                    None => format!("allowed keys: {}", allowed.join(", ")),
                };
                self.report(
                    Diagnostic::error("unknown-key", at, format!("{} has no key `{name}`", table.what))
                        .label("unknown")
                        .help(help),
                );
            }
        }
    }

    /// Reports `when` in an entry whose condition is called `if`. Returns whether there was one.
    pub(crate) fn reject_when_key(&mut self, table: TomlTable) -> bool {
        let wrong = table.entries.keys().find(|key| key.get_ref() == "when");
        if let Some(key) = wrong {
            let at = self.span(key);
            self.report(
                Diagnostic::error("unknown-key", at, format!("the condition of {} is called `if`", table.what))
                    .label("only a transition has a `when`")
                    .help("write `if` instead"),
            );
        }
        wrong.is_some()
    }

    pub(crate) fn get<'t>(table: TomlTable<'t>, key: &str) -> Option<&'t TomlNode<'t>> {
        table.entries.iter().find(|(name, _)| *name.get_ref() == key).map(|(_, value)| value)
    }

    pub(crate) fn require_key<'t>(&mut self, table: TomlTable<'t>, key: &str, help: &str) -> Option<&'t TomlNode<'t>> {
        let found = Self::get(table, key);
        if found.is_none() {
            self.report(
                Diagnostic::error("missing-key", table.span, format!("{} needs the key `{key}`", table.what))
                    .label(format!("`{key}` is missing"))
                    .help(help),
            );
        }
        found
    }

    fn report_wrong_kind(&mut self, node: &TomlNode, what: &str, expected: &str) {
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
            Diagnostic::error("wrong-kind", at, format!("{what} must be {expected}, not {found}"))
                .label(found.to_string())
                .help(format!("write {expected}")),
        );
    }

    pub(crate) fn read_text(&mut self, node: &TomlNode, what: &str) -> Option<SourceText> {
        if let DeValue::String(text) = node.get_ref() {
            return Some(self.locate_text(text, self.span(node)));
        }
        self.report_wrong_kind(node, what, "a string");
        None
    }

    pub(crate) fn read_text_at(&mut self, table: TomlTable, key: &str) -> Option<SourceText> {
        let node = Self::get(table, key)?;
        self.read_text(node, &format!("`{key}`"))
    }

    pub(crate) fn read_flag_at(&mut self, table: TomlTable, key: &str) -> Option<Span> {
        let node = Self::get(table, key)?;
        match node.get_ref() {
            DeValue::Boolean(true) => Some(self.span(node)),
            DeValue::Boolean(false) => None,
            _ => {
                self.report_wrong_kind(node, &format!("`{key}`"), "true or false");
                None
            }
        }
    }

    /// Reads a string or an array of strings.
    pub(crate) fn read_texts(&mut self, node: &TomlNode, what: &str) -> Vec<SourceText> {
        match node.get_ref() {
            DeValue::String(_) => self.read_text(node, what).into_iter().collect(),
            DeValue::Array(items) => {
                self.limit_entries(items.len(), node, what);
                items
                    .iter()
                    .take(bounds::MAX_FIELDS)
                    .filter_map(|item| self.read_text(item, &format!("each entry of {what}")))
                    .collect()
            }
            _ => {
                self.report_wrong_kind(node, what, "a string or an array of strings");
                Vec::new()
            }
        }
    }

    pub(crate) fn read_texts_at(&mut self, table: TomlTable, key: &str) -> Option<WithSpan<Vec<SourceText>>> {
        let node = Self::get(table, key)?;
        Some(WithSpan { value: self.read_texts(node, &format!("`{key}`")), span: self.span(node) })
    }

    pub(crate) fn read_table<'t>(&mut self, node: &'t TomlNode<'t>, what: &'static str) -> Option<TomlTable<'t>> {
        if let DeValue::Table(entries) = node.get_ref() {
            return Some(TomlTable { entries, span: self.span(node), what });
        }
        self.report_wrong_kind(node, what, "a table, as { key = value }");
        None
    }

    pub(crate) fn read_table_at<'t>(
        &mut self,
        table: TomlTable<'t>,
        key: &str,
        what: &'static str,
    ) -> Option<TomlTable<'t>> {
        let node = Self::get(table, key)?;
        self.read_table(node, what)
    }

    /// Reads an array of tables, each an entry of a transition.
    pub(crate) fn read_tables_at<'t>(
        &mut self,
        table: TomlTable<'t>,
        key: &str,
        what: &'static str,
    ) -> Vec<TomlTable<'t>> {
        let Some(node) = Self::get(table, key) else { return Vec::new() };
        let DeValue::Array(items) = node.get_ref() else {
            self.report_wrong_kind(node, &format!("`{key}`"), "an array of tables, as [{ … }]");
            return Vec::new();
        };
        self.limit_entries(items.len(), node, &format!("`{key}`"));
        items.iter().take(bounds::MAX_TRANSITION_ENTRIES).filter_map(|item| self.read_table(item, what)).collect()
    }

    fn limit_entries(&mut self, length: usize, node: &TomlNode, what: &str) {
        self.limit_count(
            length,
            bounds::MAX_TRANSITION_ENTRIES,
            "too-many-entries",
            self.span(node),
            &format!("entries in {what}"),
        );
    }

    /// Reports a count above the maximum. The caller continues with the first entries.
    pub(crate) fn limit_count(&mut self, count: usize, max: usize, code: &'static str, span: Span, what: &str) {
        if count > max {
            self.report(
                Diagnostic::error(code, span, format!("{count} {what}; at most {max} are allowed"))
                    .label("too many")
                    .help(help_for_excess(code)),
            );
        }
    }

    pub(crate) fn read_int(&mut self, node: &TomlNode, what: &str) -> Option<i64> {
        if let DeValue::Integer(int) = node.get_ref() {
            if let Ok(value) = i64::from_str_radix(int.as_str(), int.radix()) {
                return Some(value);
            }
            self.report_wrong_kind(node, what, "a number between -2^63 and 2^63 - 1");
            return None;
        }
        self.report_wrong_kind(node, what, "a whole number");
        None
    }

    pub(crate) fn read_count_at(&mut self, table: TomlTable, key: &str) -> Option<WithSpan<u32>> {
        let node = Self::get(table, key)?;
        let value = self.read_int(node, &format!("`{key}`"))?;
        match u32::try_from(value) {
            Ok(value) if value > 0 => Some(WithSpan { value, span: self.span(node) }),
            _ => {
                self.report_wrong_kind(node, &format!("`{key}`"), "a whole number of at least 1");
                None
            }
        }
    }

    pub(crate) fn read_literal(&mut self, node: &TomlNode, what: &str) -> Option<WithSpan<FieldLiteral>> {
        let at = self.span(node);
        let value = match node.get_ref() {
            DeValue::Boolean(flag) => FieldLiteral::Bool(*flag),
            DeValue::Integer(_) => FieldLiteral::Int(self.read_int(node, what)?),
            DeValue::Float(float) => match float.as_str().parse::<f64>() {
                Ok(value) if value.is_finite() => FieldLiteral::Double(value),
                _ => {
                    self.report_wrong_kind(node, what, "a finite number");
                    return None;
                }
            },
            DeValue::String(_) => FieldLiteral::Text(self.read_text(node, what)?),
            DeValue::Array(items) => {
                self.limit_entries(items.len(), node, what);
                let items = items.iter().take(bounds::MAX_TRANSITION_ENTRIES);
                FieldLiteral::List(items.filter_map(|item| self.read_literal(item, what)).collect())
            }
            DeValue::Datetime(_) => {
                self.report_wrong_kind(node, what, "a string such as \"2026-01-31T12:00:00Z\"");
                return None;
            }
            DeValue::Table(_) => {
                self.report_wrong_kind(node, what, "a literal");
                return None;
            }
        };
        Some(WithSpan { value, span: at })
    }

    pub(crate) fn read_literal_at(&mut self, table: TomlTable, key: &str) -> Option<WithSpan<FieldLiteral>> {
        let node = Self::get(table, key)?;
        self.read_literal(node, &format!("`{key}`"))
    }

    /// Reads an expression: a string, or a boolean or number as a literal.
    pub(crate) fn read_expression(&mut self, node: &TomlNode, what: &str) -> Option<SourceText> {
        let at = self.span(node);
        let text: Arc<str> = match node.get_ref() {
            DeValue::String(_) => return self.read_text(node, what),
            DeValue::Boolean(flag) => if *flag { "true" } else { "false" }.into(),
            DeValue::Integer(_) => self.read_int(node, what)?.to_string().into(),
            DeValue::Float(_) => match self.read_literal(node, what)?.value {
                FieldLiteral::Double(value) => format!("{value:?}").into(),
                _ => return None,
            },
            _ => {
                self.report_wrong_kind(node, what, "an expression in a string, a number or a boolean");
                return None;
            }
        };
        Some(SourceText { text, location: ExprLocation { value_span: at, content_start: None } })
    }

    pub(crate) fn read_expression_at(&mut self, table: TomlTable, key: &str) -> Option<SourceText> {
        let node = Self::get(table, key)?;
        self.read_expression(node, &format!("`{key}`"))
    }

    /// Reads a pattern, unless the file has too many.
    pub(crate) fn read_pattern_at(&mut self, table: TomlTable) -> Option<SourceText> {
        let pattern = self.read_text_at(table, "pattern")?;
        self.pattern_count += 1;
        if self.pattern_count > bounds::MAX_PATTERNS_PER_FILE {
            // Reported once, at the first pattern above the limit.
            if self.pattern_count == bounds::MAX_PATTERNS_PER_FILE + 1 {
                let (at, what) = (pattern.span(), "patterns in this file");
                self.limit_count(self.pattern_count, bounds::MAX_PATTERNS_PER_FILE, "too-many-entries", at, what);
            }
            return None;
        }
        *self.patterns_remaining = self.patterns_remaining.saturating_sub(1);
        match *self.patterns_remaining {
            // Already reported.
            0 => None,
            1 => {
                self.report(
                    Diagnostic::error(
                        "too-many-patterns",
                        pattern.span(),
                        "too many patterns in all given files together",
                    )
                    .label("exceeds the maximum")
                    .help(format!(
                        "use at most {} patterns in all given files; bound the length of texts instead",
                        bounds::MAX_PATTERNS_TOTAL
                    )),
                );
                None
            }
            _ => Some(pattern),
        }
    }

    /// Reads `{ name = expression, … }`.
    pub(crate) fn read_named_exprs_at(&mut self, table: TomlTable, key: &str, what: &'static str) -> Vec<NamedExpr> {
        let Some(inner) = self.read_table_at(table, key, what) else { return Vec::new() };
        self.limit_count(
            inner.entries.len(),
            bounds::MAX_TRANSITION_ENTRIES,
            "too-many-entries",
            inner.span,
            &format!("entries in {what}"),
        );
        let mut exprs = Vec::new();
        for (name, node) in inner.entries.iter().take(bounds::MAX_TRANSITION_ENTRIES) {
            let name = self.key(name);
            if let ("record", DeValue::Table(_)) = (&*name.text, node.get_ref()) {
                self.report(
                    Diagnostic::error("wrong-kind", name.span(), format!("{what} must name fields without `record.`"))
                        .label("TOML reads it as a table")
                        .help("write only the field's name before the `=`, such as amount = \"record.amount + 1\""),
                );
                continue;
            }
            if let Some(value) = self.read_expression(node, &format!("`{}`", name.text)) {
                exprs.push(NamedExpr { name, value });
            }
        }
        exprs
    }
}
