//! Generates mutants: edits of a file's text, with names that stay stable while the edited location does.

use std::collections::BTreeMap;
use std::ops::Range;

use super::expression;
use super::file::{LifecycleFile, TomlEntry, TomlItem, TomlValue, find_item};
use super::{MutationOperator, declarations, transitions};

pub(super) struct LifecycleMutant {
    pub(super) system: String,
    pub(super) file: String,
    pub(super) operator: MutationOperator,
    /// The location and the change, such as `on.fail[2] when: without …`. Unique together with the file.
    pub(super) name: String,
    pub(super) text: String,
}

pub(super) struct MutantGenerator<'f> {
    pub(super) file: &'f LifecycleFile,
    enums: Vec<Vec<String>>,
    mutants: Vec<LifecycleMutant>,
}

/// Returns every mutant of a file.
pub(super) fn generate_mutants(file: &LifecycleFile) -> Vec<LifecycleMutant> {
    let mut enums = Vec::new();
    for field in file.table_entries("fields") {
        let names: Vec<String> = find_item(field.item.entries(), "enum")
            .map(|list| list.items().iter().filter_map(TomlItem::text).map(str::to_owned).collect())
            .unwrap_or_default();
        if !names.is_empty() {
            enums.push(names);
        }
    }
    enums.push(file.states().into_iter().map(str::to_owned).collect());
    let mut generator = MutantGenerator { file, enums, mutants: Vec::new() };
    declarations::mutate_declarations(&mut generator);
    transitions::mutate_transitions(&mut generator);
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for mutant in &mut generator.mutants {
        let times = seen.entry(mutant.name.clone()).or_default();
        *times += 1;
        if *times > 1 {
            mutant.name = format!("{} ({times})", mutant.name);
        }
    }
    generator.mutants
}

impl MutantGenerator<'_> {
    pub(super) fn edit(&mut self, operator: MutationOperator, name: String, edits: &[(Range<usize>, String)]) {
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
            self.mutants.push(LifecycleMutant { system, file, operator, name, text });
        }
    }

    pub(super) fn replace(
        &mut self,
        operator: MutationOperator,
        name: String,
        range: &Range<usize>,
        new: impl Into<String>,
    ) {
        self.edit(operator, name, &[(range.clone(), new.into())]);
    }

    /// Removes an entry of an inline table, or a line's key and value.
    pub(super) fn drop_entry(&mut self, operator: MutationOperator, location: &str, entry: &TomlEntry) {
        let cut = self.file.removal_span(&entry.span());
        self.edit(operator, format!("{location}: without `{}`", entry.name), &[(cut, String::new())]);
    }

    pub(super) fn drop_item(&mut self, operator: MutationOperator, location: &str, item: &TomlItem) {
        let shown = shorten(&self.file.text[item.span.clone()]);
        let cut = self.file.removal_span(&item.span);
        self.edit(operator, format!("{location}: without {shown}"), &[(cut, String::new())]);
    }

    /// Adds every mutation of an expression. A TOML number or boolean counts as one.
    pub(super) fn mutate_expression(&mut self, location: &str, item: &TomlItem) {
        match &item.value {
            TomlValue::Text { text, content: Some(content) } => {
                for change in expression::expression_changes(text, &self.enums) {
                    self.replace(change.operator, format!("{location}: {}", change.description), content, change.text);
                }
            }
            TomlValue::Int(_) | TomlValue::Double(_) => {
                self.shift_number(MutationOperator::ShiftConstant, location, item);
            }
            TomlValue::Bool(yes) => {
                self.replace(
                    MutationOperator::ChangeName,
                    format!("{location}: becomes {}", !yes),
                    &item.span,
                    (!yes).to_string(),
                );
            }
            _ => {}
        }
    }

    /// Increases and decreases a number, or a size such as `"64 KB"`.
    pub(super) fn shift_number(&mut self, operator: MutationOperator, location: &str, item: &TomlItem) {
        let (shown, new) = match &item.value {
            TomlValue::Int(number) => (number.to_string(), expression::adjacent_numbers(&number.to_string())),
            TomlValue::Double(number) => (number.clone(), expression::adjacent_numbers(number)),
            TomlValue::Text { text, .. } => {
                let Some(size) = expression::parse_bytes(text) else { return };
                (text.clone(), [size + 1, size.saturating_sub(1)].map(|size| format!("\"{size} B\"")).into())
            }
            _ => return,
        };
        for new in new {
            let name = format!("{location}: {shown} becomes {}", new.trim_matches('"'));
            self.replace(operator, name, &item.span, new);
        }
    }

    /// Changes the code and the status of `"409 code"`.
    pub(super) fn mutate_refusal_code(&mut self, location: &str, item: &TomlItem) {
        let TomlValue::Text { text, content: Some(content) } = &item.value else { return };
        let Some((status, code)) = text.split_once(' ') else { return };
        self.replace(
            MutationOperator::ChangeRefusalCode,
            format!("{location}: another code"),
            content,
            format!("{status} {code}_x"),
        );
        self.replace(
            MutationOperator::ChangeRefusalCode,
            format!("{location}: another status"),
            content,
            format!("418 {code}"),
        );
    }

    /// Mutates declared fields of a record, an input, a result or a check's reply.
    pub(super) fn mutate_fields(&mut self, location: &str, fields: &[TomlEntry]) {
        for field in fields {
            let location = format!("{location}.{}", field.name);
            let parts = match &field.item.value {
                TomlValue::Table(parts) => parts,
                TomlValue::Text { text, .. } => {
                    self.make_optional(&location, field, text);
                    continue;
                }
                _ => continue,
            };
            for part in parts {
                let named = format!("{location} {}", part.name);
                match (part.name.as_str(), &part.item.value) {
                    ("min" | "max", _) => {
                        self.drop_entry(MutationOperator::DropBound, &location, part);
                        self.shift_number(MutationOperator::ShiftBound, &named, &part.item);
                    }
                    ("pattern" | "optional", _) => self.drop_entry(MutationOperator::DropBound, &location, part),
                    ("enum", _) => part.item.items().iter().for_each(|name| {
                        self.drop_item(MutationOperator::DropBound, &named, name);
                    }),
                    ("default" | "const", _) => self.mutate_default(&named, parts, &part.item),
                    _ => {}
                }
            }
            let given = |name: &str| find_item(parts, name).is_some();
            if let (false, Some(last)) = (given("optional") || given("default") || given("const"), parts.last()) {
                let end = last.item.span.end..last.item.span.end;
                self.replace(MutationOperator::DropBound, format!("{location}: optional"), &end, ", optional = true");
            }
        }
    }

    /// Changes a default value.
    fn mutate_default(&mut self, location: &str, parts: &[TomlEntry], item: &TomlItem) {
        match &item.value {
            TomlValue::Int(_) | TomlValue::Double(_) => self.shift_number(MutationOperator::ShiftBound, location, item),
            TomlValue::Bool(yes) => {
                let name = format!("{location}: becomes {}", !yes);
                self.replace(MutationOperator::ShiftBound, name, &item.span, (!yes).to_string());
            }
            TomlValue::Text { text, content: Some(content) } => {
                let names: Vec<&str> = find_item(parts, "enum")
                    .map_or(&[][..], TomlItem::items)
                    .iter()
                    .filter_map(TomlItem::text)
                    .collect();
                let others: Vec<String> = match expression::doubled_duration(text) {
                    Some(longer) => vec![longer],
                    None if names.is_empty() => vec![format!("{text}x")],
                    None => names.into_iter().filter(|name| name != text).map(str::to_owned).collect(),
                };
                for other in others {
                    self.replace(
                        MutationOperator::ShiftBound,
                        format!("{location}: {text} becomes {other}"),
                        content,
                        other,
                    );
                }
            }
            _ => {}
        }
    }

    /// Makes a field optional. `amount = "int"` names a type, or another field whose type it takes.
    fn make_optional(&mut self, location: &str, field: &TomlEntry, named: &str) {
        let like = self.file.table_entries("fields").iter().find(|field| field.name == named);
        let mut parts = match like.map(|like| &like.item.value) {
            Some(TomlValue::Table(parts)) => parts
                .iter()
                .filter(|part| !matches!(part.name.as_str(), "optional" | "default" | "const" | "about" | "rule"))
                .map(|part| format!("{} = {}", part.name, &self.file.text[part.item.span.clone()]))
                .collect(),
            Some(TomlValue::Text { text, .. }) => vec![format!("type = \"{text}\"")],
            _ => vec![format!("type = \"{named}\"")],
        };
        parts.push("optional = true".to_owned());
        let new = format!("{{ {} }}", parts.join(", "));
        self.replace(MutationOperator::DropBound, format!("{location}: optional"), &field.item.span, new);
    }

    pub(super) fn double_duration(&mut self, location: &str, item: &TomlItem) -> bool {
        let TomlValue::Text { text, content: Some(content) } = &item.value else { return false };
        let Some(longer) = expression::doubled_duration(text) else { return false };
        self.replace(MutationOperator::DoubleDuration, format!("{location}: {text} becomes {longer}"), content, longer);
        true
    }
}

/// Shortens a text to one table cell.
pub(super) fn shorten(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= 60 { line } else { line.chars().take(57).chain("...".chars()).collect() }
}
