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
            Value::Int(_) | Value::Double(_) => self.shifted(Operator::ShiftConstant, place, item),
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

    /// A number, or a size such as `"64 KB"`, is a little more and a little less.
    pub(super) fn shifted(&mut self, operator: Operator, place: &str, item: &Item) {
        let (shown, new) = match &item.value {
            Value::Int(number) => (number.to_string(), expression::beside(&number.to_string())),
            Value::Double(number) => (number.clone(), expression::beside(number)),
            Value::Text { text, .. } => {
                let Some(size) = expression::bytes(text) else { return };
                (text.clone(), [size + 1, size.saturating_sub(1)].map(|size| format!("\"{size} B\"")).into())
            }
            _ => return,
        };
        for new in new {
            let name = format!("{place}: {shown} becomes {}", new.trim_matches('"'));
            self.replace(operator, name, &item.span, new);
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
            let parts = match &field.item.value {
                Value::Table(parts) => parts,
                Value::Text { text, .. } => {
                    self.spelled_out(&place, field, text);
                    continue;
                }
                _ => continue,
            };
            for part in parts {
                let named = format!("{place} {}", part.name);
                match (part.name.as_str(), &part.item.value) {
                    ("min" | "max", _) => {
                        self.drop_entry(Operator::DropBound, &place, part);
                        self.shifted(Operator::ShiftBound, &named, &part.item);
                    }
                    ("pattern" | "optional", _) => self.drop_entry(Operator::DropBound, &place, part),
                    ("enum", _) => part.item.items().iter().for_each(|name| {
                        self.drop_item(Operator::DropBound, &named, name);
                    }),
                    ("default" | "const", _) => self.default(&named, parts, &part.item),
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

    /// What stands where nobody says anything is something else.
    fn default(&mut self, place: &str, parts: &[Entry], item: &Item) {
        match &item.value {
            Value::Int(_) | Value::Double(_) => self.shifted(Operator::ShiftBound, place, item),
            Value::Bool(yes) => {
                let name = format!("{place}: becomes {}", !yes);
                self.replace(Operator::ShiftBound, name, &item.span, (!yes).to_string());
            }
            Value::Text { text, content: Some(content) } => {
                let names: Vec<&str> =
                    find(parts, "enum").map_or(&[][..], Item::items).iter().filter_map(Item::text).collect();
                let others: Vec<String> = match expression::longer(text) {
                    Some(longer) => vec![longer],
                    None if names.is_empty() => vec![format!("{text}x")],
                    None => names.into_iter().filter(|name| name != text).map(str::to_owned).collect(),
                };
                for other in others {
                    self.replace(Operator::ShiftBound, format!("{place}: {text} becomes {other}"), content, other);
                }
            }
            _ => {}
        }
    }

    /// `amount = "int"`, or the name of a field in place of the type: the same, but it may be left out.
    fn spelled_out(&mut self, place: &str, field: &Entry, named: &str) {
        let like = self.file.table("fields").iter().find(|field| field.name == named);
        let mut parts = match like.map(|like| &like.item.value) {
            Some(Value::Table(parts)) => parts
                .iter()
                .filter(|part| !matches!(part.name.as_str(), "optional" | "default" | "const" | "about" | "rule"))
                .map(|part| format!("{} = {}", part.name, &self.file.text[part.item.span.clone()]))
                .collect(),
            Some(Value::Text { text, .. }) => vec![format!("type = \"{text}\"")],
            _ => vec![format!("type = \"{named}\"")],
        };
        parts.push("optional = true".to_owned());
        let new = format!("{{ {} }}", parts.join(", "));
        self.replace(Operator::DropBound, format!("{place}: optional"), &field.item.span, new);
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
