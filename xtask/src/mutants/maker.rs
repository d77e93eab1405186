//! Making mutants: edits of a file's text, each with a name that stays the same as long as the place does.

use std::collections::BTreeMap;
use std::ops::Range;

use super::expression;
use super::file::{Entry, File, Item, Value, find};
use super::{Operator, declarations, rows};

pub(super) struct Mutant {
    pub(super) system: String,
    pub(super) file: String,
    pub(super) operator: Operator,
    /// What was changed where: `on.fail[2] when: without …`. With the file, its name.
    pub(super) name: String,
    pub(super) text: String,
}

pub(super) struct Maker<'f> {
    pub(super) file: &'f File,
    enums: Vec<Vec<String>>,
    out: Vec<Mutant>,
}

/// Every mutant of a file.
pub(super) fn mutants(file: &File) -> Vec<Mutant> {
    let mut enums = Vec::new();
    for field in file.table("fields") {
        let names: Vec<String> = find(field.item.entries(), "enum")
            .map(|list| list.items().iter().filter_map(Item::text).map(str::to_owned).collect())
            .unwrap_or_default();
        if !names.is_empty() {
            enums.push(names);
        }
    }
    enums.push(file.states().into_iter().map(str::to_owned).collect());
    let mut maker = Maker { file, enums, out: Vec::new() };
    declarations::all(&mut maker);
    rows::all(&mut maker);
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for mutant in &mut maker.out {
        let times = seen.entry(mutant.name.clone()).or_default();
        *times += 1;
        if *times > 1 {
            mutant.name = format!("{} ({times})", mutant.name);
        }
    }
    maker.out
}

impl Maker<'_> {
    pub(super) fn edit(&mut self, operator: Operator, name: String, edits: &[(Range<usize>, String)]) {
        let mut edits = edits.to_vec();
        edits.sort_by_key(|(range, _)| range.start);
        let mut text = String::new();
        let mut at = 0;
        for (range, new) in edits {
            text.push_str(&self.file.text[at..range.start]);
            text.push_str(&new);
            at = range.end;
        }
        text.push_str(&self.file.text[at..]);
        if text != self.file.text {
            let (system, file) = (self.file.system.clone(), self.file.path.clone());
            self.out.push(Mutant { system, file, operator, name, text });
        }
    }

    pub(super) fn replace(&mut self, operator: Operator, name: String, range: &Range<usize>, new: impl Into<String>) {
        self.edit(operator, name, &[(range.clone(), new.into())]);
    }

    /// An entry of an inline table, or a line's key and value, goes.
    pub(super) fn drop_entry(&mut self, operator: Operator, place: &str, entry: &Entry) {
        let cut = self.file.cut(&entry.span());
        self.edit(operator, format!("{place}: without `{}`", entry.name), &[(cut, String::new())]);
    }

    pub(super) fn drop_item(&mut self, operator: Operator, place: &str, item: &Item) {
        let shown = short(&self.file.text[item.span.clone()]);
        let cut = self.file.cut(&item.span);
        self.edit(operator, format!("{place}: without {shown}"), &[(cut, String::new())]);
    }

    /// Every change to an expression; a TOML number or boolean is one too.
    pub(super) fn expression(&mut self, place: &str, item: &Item) {
        match &item.value {
            Value::Text { text, content: Some(content) } => {
                for change in expression::changes(text, &self.enums) {
                    self.replace(change.operator, format!("{place}: {}", change.what), content, change.text);
                }
            }
            Value::Int(number) => self.shifted(Operator::ShiftConstant, place, item, *number),
            Value::Bool(yes) => {
                self.replace(
                    Operator::ChangeName,
                    format!("{place}: becomes {}", !yes),
                    &item.span,
                    (!yes).to_string(),
                );
            }
            _ => {}
        }
    }

    pub(super) fn shifted(&mut self, operator: Operator, place: &str, item: &Item, number: i64) {
        for new in [number + 1, number - 1] {
            self.replace(operator, format!("{place}: {number} becomes {new}"), &item.span, new.to_string());
        }
    }

    /// `"409 code"`: another code, another status.
    pub(super) fn answer(&mut self, place: &str, item: &Item) {
        let Value::Text { text, content: Some(content) } = &item.value else { return };
        let Some((status, code)) = text.split_once(' ') else { return };
        self.replace(Operator::ChangeAnswer, format!("{place}: another code"), content, format!("{status} {code}_x"));
        self.replace(Operator::ChangeAnswer, format!("{place}: another status"), content, format!("418 {code}"));
    }

    /// Declared values: fields of a record, an input, a result, an answer.
    pub(super) fn fields(&mut self, place: &str, fields: &[Entry]) {
        for field in fields {
            let place = format!("{place}.{}", field.name);
            let Value::Table(parts) = &field.item.value else { continue };
            for part in parts {
                match (part.name.as_str(), &part.item.value) {
                    ("min" | "max", value) => {
                        self.drop_entry(Operator::DropBound, &place, part);
                        if let Value::Int(number) = value {
                            self.shifted(Operator::ShiftBound, &format!("{place} {}", part.name), &part.item, *number);
                        }
                    }
                    ("pattern" | "optional", _) => self.drop_entry(Operator::DropBound, &place, part),
                    ("enum", _) => part.item.items().iter().for_each(|name| {
                        self.drop_item(Operator::DropBound, &format!("{place} enum"), name);
                    }),
                    ("default" | "const", Value::Int(number)) => {
                        self.shifted(Operator::ShiftBound, &format!("{place} {}", part.name), &part.item, *number);
                    }
                    ("default" | "const", Value::Bool(yes)) => {
                        let name = format!("{place} {}: becomes {}", part.name, !yes);
                        self.replace(Operator::ShiftBound, name, &part.item.span, (!yes).to_string());
                    }
                    _ => {}
                }
            }
            let given = |name: &str| find(parts, name).is_some();
            if let (false, Some(last)) = (given("optional") || given("default") || given("const"), parts.last()) {
                let end = last.item.span.end..last.item.span.end;
                self.replace(Operator::DropBound, format!("{place}: optional"), &end, ", optional = true");
            }
        }
    }

    pub(super) fn duration(&mut self, place: &str, item: &Item) -> bool {
        let Value::Text { text, content: Some(content) } = &item.value else { return false };
        let Some(longer) = expression::longer(text) else { return false };
        self.replace(Operator::Durations, format!("{place}: {text} becomes {longer}"), content, longer);
        true
    }
}

/// Fit for one line of a table.
pub(super) fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= 60 { line } else { line.chars().take(57).chain("...".chars()).collect() }
}
