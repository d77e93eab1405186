//! Mutates the declarations of a lifecycle file.

use super::file::{LifecycleFile, TomlEntry, TomlItem, TomlValue, find_item};
use super::generator::MutantGenerator;
use super::{MutationOperator, expression};

pub(super) fn mutate_declarations(generator: &mut MutantGenerator) {
    let file = generator.file;
    mutate_settings(generator, file);
    mutate_payload(generator, file.table_entries("payload"));
    mutate_states(generator, file);
    generator.mutate_fields("fields", file.table_entries("fields"));
    for link in file.table_entries("links") {
        generator.drop_entry(MutationOperator::DropConstraint, "links", link);
        mutate_max(generator, &format!("links.{}", link.name), link.item.entries());
    }
    for unique in file.table_entries("unique") {
        generator.drop_entry(MutationOperator::DropConstraint, "unique", unique);
        mutate_constraint(generator, &format!("unique.{}", unique.name), unique.item.entries());
    }
    for limit in file.table_entries("limit") {
        generator.drop_entry(MutationOperator::DropConstraint, "limit", limit);
        mutate_constraint(generator, &format!("limit.{}", limit.name), limit.item.entries());
    }
    mutate_work(generator, file.table_entries("work"));
    mutate_errors(generator, file.table_entries("errors"));
    mutate_checks(generator, file.table_entries("checks"));
    for lookup in file.table_entries("refs") {
        generator.drop_entry(MutationOperator::DropSetting, "refs", lookup);
        if let Some(key) = find_item(lookup.item.entries(), "key") {
            generator.mutate_expression(&format!("refs.{} key", lookup.name), key);
        }
    }
    mutate_callers(generator, file);
}

fn mutate_settings(generator: &mut MutantGenerator, file: &LifecycleFile) {
    for entry in &file.root {
        match entry.name.as_str() {
            "key" => generator.drop_entry(MutationOperator::DropConstraint, "file", entry),
            "asset" | "clock" | "outside" => generator.drop_entry(MutationOperator::DropSetting, "file", entry),
            _ => {}
        }
        if entry.name == "outside" && entry.item.items().len() > 1 {
            entry
                .item
                .items()
                .iter()
                .for_each(|name| generator.drop_item(MutationOperator::DropSetting, "outside", name));
        }
    }
}

fn mutate_payload(generator: &mut MutantGenerator, entries: &[TomlEntry]) {
    for entry in entries {
        generator.drop_entry(MutationOperator::ShiftPayloadBound, "payload", entry);
        let Some(size) = entry.item.text().and_then(expression::parse_bytes) else { continue };
        for new in [size + 1, size.saturating_sub(1)] {
            let name = format!("payload {}: becomes {new} B", entry.name);
            generator.replace(MutationOperator::ShiftPayloadBound, name, &entry.item.span, format!("\"{new} B\""));
        }
    }
}

fn mutate_states(generator: &mut MutantGenerator, file: &LifecycleFile) {
    for state in file.table_entries("states") {
        let location = format!("states.{}", state.name);
        for mark in state.item.entries() {
            if matches!(mark.name.as_str(), "final" | "rest" | "ready" | "reserved") {
                generator.drop_entry(MutationOperator::UnmarkState, &location, mark);
            }
            if mark.name == "final" {
                generator.replace(
                    MutationOperator::UnmarkState,
                    format!("{location}: final becomes rest"),
                    &mark.key,
                    "rest",
                );
            }
            if mark.name == "ready" && mark.item.text().is_some() {
                generator.replace(
                    MutationOperator::UnmarkState,
                    format!("{location}: ready at once"),
                    &mark.item.span,
                    "true",
                );
            }
        }
        let new = format!("{}_X", state.name);
        generator.replace(MutationOperator::RenameState, format!("{location}: renamed here"), &state.key, &*new);
        let edits: Vec<_> = find_word(&file.text, &state.name).into_iter().map(|range| (range, new.clone())).collect();
        generator.edit(MutationOperator::RenameState, format!("{location}: renamed in the whole file"), &edits);
    }
}

/// Returns the ranges in which a name occurs as a whole word.
fn find_word(text: &str, name: &str) -> Vec<std::ops::Range<usize>> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name)
        .map(|(at, found)| at..at + found.len())
        .filter(|range| !text[..range.start].ends_with(part) && !text[range.end..].starts_with(part))
        .collect()
}

/// Mutates `max`, which is a number or an expression.
fn mutate_max(generator: &mut MutantGenerator, location: &str, parts: &[TomlEntry]) {
    for part in parts.iter().filter(|part| part.name == "max") {
        match &part.item.value {
            TomlValue::Int(_) => {
                generator.shift_number(MutationOperator::ChangeConstraint, &format!("{location} max"), &part.item);
            }
            _ => generator.mutate_expression(&format!("{location} max"), &part.item),
        }
    }
}

fn mutate_constraint(generator: &mut MutantGenerator, location: &str, parts: &[TomlEntry]) {
    mutate_max(generator, location, parts);
    for part in parts {
        let named = format!("{location} {}", part.name);
        match part.name.as_str() {
            "on" | "in" => {
                if part.name == "in" {
                    generator.drop_entry(MutationOperator::ChangeConstraint, location, part);
                }
                part.item
                    .items()
                    .iter()
                    .for_each(|item| generator.drop_item(MutationOperator::ChangeConstraint, &named, item));
            }
            "per" => {
                generator.drop_entry(MutationOperator::ChangeConstraint, location, part);
                generator.double_duration(&named, &part.item);
            }
            "clash" if part.item.text() == Some("return") => {
                generator.replace(
                    MutationOperator::ChangeRefusalCode,
                    format!("{named}: a refusal"),
                    &part.item.span,
                    "\"409 taken\"",
                );
            }
            "clash" => generator.mutate_refusal_code(&named, &part.item),
            _ => {}
        }
    }
}

fn mutate_work(generator: &mut MutantGenerator, entries: &[TomlEntry]) {
    for entry in entries {
        let location = format!("work {}", entry.name);
        match entry.name.as_str() {
            "lease" => _ = generator.double_duration(&location, &entry.item),
            "stop" | "priority" => {
                generator.drop_entry(MutationOperator::DropSetting, "work", entry);
                generator.mutate_expression(&location, &entry.item);
            }
            "result" => {
                generator.drop_entry(MutationOperator::DropSetting, "work", entry);
                generator.mutate_fields("work.result", entry.item.entries());
            }
            "key" => {
                generator.drop_entry(MutationOperator::DropSetting, "work", entry);
                for part in entry.item.entries() {
                    match &part.item.value {
                        TomlValue::Int(_) => {
                            generator.shift_number(MutationOperator::ChangeConstraint, &location, &part.item);
                        }
                        TomlValue::Bool(_) => generator.drop_entry(MutationOperator::ChangeConstraint, &location, part),
                        _ => {
                            let each = part.item.items().iter();
                            each.for_each(|item| {
                                generator.drop_item(MutationOperator::ChangeConstraint, &location, item);
                            });
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

fn mutate_errors(generator: &mut MutantGenerator, entries: &[TomlEntry]) {
    let list = |name: &str| find_item(entries, name);
    for (own, other) in [("retryable", "terminal"), ("terminal", "retryable")] {
        for code in list(own).map_or(&[][..], TomlItem::items) {
            let location = format!("errors.{own}");
            generator.drop_item(MutationOperator::MoveErrorCode, &location, code);
            let Some(first) = list(other).and_then(|list| list.items().first()) else { continue };
            let shown = generator.file.text[code.span.clone()].to_owned();
            let edits = [
                (generator.file.removal_span(&code.span), String::new()),
                (first.span.start..first.span.start, format!("{shown}, ")),
            ];
            generator.edit(MutationOperator::MoveErrorCode, format!("{location}: {shown} is {other}"), &edits);
        }
    }
}

fn mutate_checks(generator: &mut MutantGenerator, entries: &[TomlEntry]) {
    for check in entries {
        let location = format!("checks.{}", check.name);
        for part in check.item.entries() {
            match part.name.as_str() {
                "payload" => generator.drop_entry(MutationOperator::DropSetting, &location, part),
                "ask" => {
                    for argument in part.item.entries() {
                        generator.drop_entry(MutationOperator::DropSetting, &format!("{location} ask"), argument);
                        generator.mutate_expression(&format!("{location} ask {}", argument.name), &argument.item);
                    }
                }
                "answer" => generator.mutate_fields(&format!("{location}.answer"), part.item.entries()),
                _ => {}
            }
        }
    }
}

fn mutate_callers(generator: &mut MutantGenerator, file: &LifecycleFile) {
    for caller in file.table_entries("who") {
        let location = format!("who.{}", caller.name);
        let item = find_item(caller.item.entries(), "is").unwrap_or(&caller.item);
        for new in ["true", "false"] {
            generator.replace(
                MutationOperator::ChangeCaller,
                format!("{location}: {new}"),
                &item.span,
                format!("\"{new}\""),
            );
        }
        generator.mutate_expression(&location, item);
    }
    let Some(readers) = find_item(file.table_entries("access"), "read") else { return };
    for reader in readers.items() {
        generator.drop_item(MutationOperator::ChangeCaller, "access", reader);
    }
    generator.replace(MutationOperator::ChangeCaller, "access: anyone reads".into(), &readers.span, "[\"anyone\"]");
}
