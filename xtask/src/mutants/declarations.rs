//! Breaking what stands above the rows.

use super::file::{Entry, File, Item, Value, find};
use super::maker::Maker;
use super::{Operator, expression};

pub(super) fn all(maker: &mut Maker) {
    let file = maker.file;
    settings(maker, file);
    payload(maker, file.table("payload"));
    states(maker, file);
    maker.fields("fields", file.table("fields"));
    for link in file.table("links") {
        maker.drop_entry(Operator::DropKey, "links", link);
        bounded(maker, &format!("links.{}", link.name), link.item.entries());
    }
    for unique in file.table("unique") {
        maker.drop_entry(Operator::DropKey, "unique", unique);
        key(maker, &format!("unique.{}", unique.name), unique.item.entries());
    }
    for limit in file.table("limit") {
        maker.drop_entry(Operator::DropKey, "limit", limit);
        key(maker, &format!("limit.{}", limit.name), limit.item.entries());
    }
    work(maker, file.table("work"));
    errors(maker, file.table("errors"));
    checks(maker, file.table("checks"));
    for lookup in file.table("refs") {
        maker.drop_entry(Operator::Settings, "refs", lookup);
        if let Some(key) = find(lookup.item.entries(), "key") {
            maker.expression(&format!("refs.{} key", lookup.name), key);
        }
    }
    callers(maker, file);
}

fn settings(maker: &mut Maker, file: &File) {
    for entry in &file.root {
        match entry.name.as_str() {
            "key" => maker.drop_entry(Operator::DropKey, "file", entry),
            "asset" | "clock" | "outside" => maker.drop_entry(Operator::Settings, "file", entry),
            _ => {}
        }
        if entry.name == "outside" && entry.item.items().len() > 1 {
            entry.item.items().iter().for_each(|name| maker.drop_item(Operator::Settings, "outside", name));
        }
    }
}

fn payload(maker: &mut Maker, entries: &[Entry]) {
    for entry in entries {
        maker.drop_entry(Operator::Payload, "payload", entry);
        let Some(size) = entry.item.text().and_then(expression::bytes) else { continue };
        for new in [size + 1, size.saturating_sub(1)] {
            let name = format!("payload {}: becomes {new} B", entry.name);
            maker.replace(Operator::Payload, name, &entry.item.span, format!("\"{new} B\""));
        }
    }
}

fn states(maker: &mut Maker, file: &File) {
    for state in file.table("states") {
        let place = format!("states.{}", state.name);
        for mark in state.item.entries() {
            if matches!(mark.name.as_str(), "final" | "rest" | "ready" | "reserved") {
                maker.drop_entry(Operator::StateMarks, &place, mark);
            }
            if mark.name == "final" {
                maker.replace(Operator::StateMarks, format!("{place}: final becomes rest"), &mark.key, "rest");
            }
            if mark.name == "ready" && mark.item.text().is_some() {
                maker.replace(Operator::StateMarks, format!("{place}: ready at once"), &mark.item.span, "true");
            }
        }
        let new = format!("{}_X", state.name);
        maker.replace(Operator::RenameState, format!("{place}: renamed here"), &state.key, &*new);
        let edits: Vec<_> = words(&file.text, &state.name).into_iter().map(|range| (range, new.clone())).collect();
        maker.edit(Operator::RenameState, format!("{place}: renamed in the whole file"), &edits);
    }
}

/// Where a name stands as a word of its own.
fn words(text: &str, name: &str) -> Vec<std::ops::Range<usize>> {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name)
        .map(|(at, found)| at..at + found.len())
        .filter(|range| !text[..range.start].ends_with(part) && !text[range.end..].starts_with(part))
        .collect()
}

/// `max`, a number or an expression.
fn bounded(maker: &mut Maker, place: &str, parts: &[Entry]) {
    for part in parts.iter().filter(|part| part.name == "max") {
        match &part.item.value {
            Value::Int(_) => maker.shifted(Operator::ChangeKey, &format!("{place} max"), &part.item),
            _ => maker.expression(&format!("{place} max"), &part.item),
        }
    }
}

fn key(maker: &mut Maker, place: &str, parts: &[Entry]) {
    bounded(maker, place, parts);
    for part in parts {
        let named = format!("{place} {}", part.name);
        match part.name.as_str() {
            "on" | "in" => {
                if part.name == "in" {
                    maker.drop_entry(Operator::ChangeKey, place, part);
                }
                part.item.items().iter().for_each(|item| maker.drop_item(Operator::ChangeKey, &named, item));
            }
            "per" => {
                maker.drop_entry(Operator::ChangeKey, place, part);
                maker.duration(&named, &part.item);
            }
            "clash" if part.item.text() == Some("return") => {
                maker.replace(Operator::ChangeAnswer, format!("{named}: a refusal"), &part.item.span, "\"409 taken\"");
            }
            "clash" => maker.answer(&named, &part.item),
            _ => {}
        }
    }
}

fn work(maker: &mut Maker, entries: &[Entry]) {
    for entry in entries {
        let place = format!("work {}", entry.name);
        match entry.name.as_str() {
            "lease" => _ = maker.duration(&place, &entry.item),
            "stop" | "priority" => {
                maker.drop_entry(Operator::Settings, "work", entry);
                maker.expression(&place, &entry.item);
            }
            "result" => {
                maker.drop_entry(Operator::Settings, "work", entry);
                maker.fields("work.result", entry.item.entries());
            }
            "key" => {
                maker.drop_entry(Operator::Settings, "work", entry);
                for part in entry.item.entries() {
                    match &part.item.value {
                        Value::Int(_) => maker.shifted(Operator::ChangeKey, &place, &part.item),
                        Value::Bool(_) => maker.drop_entry(Operator::ChangeKey, &place, part),
                        _ => {
                            let each = part.item.items().iter();
                            each.for_each(|item| maker.drop_item(Operator::ChangeKey, &place, item));
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

fn errors(maker: &mut Maker, entries: &[Entry]) {
    let list = |name: &str| find(entries, name);
    for (own, other) in [("retryable", "terminal"), ("terminal", "retryable")] {
        for code in list(own).map_or(&[][..], Item::items) {
            let place = format!("errors.{own}");
            maker.drop_item(Operator::Errors, &place, code);
            let Some(first) = list(other).and_then(|list| list.items().first()) else { continue };
            let shown = maker.file.text[code.span.clone()].to_owned();
            let edits = [
                (maker.file.cut(&code.span), String::new()),
                (first.span.start..first.span.start, format!("{shown}, ")),
            ];
            maker.edit(Operator::Errors, format!("{place}: {shown} is {other}"), &edits);
        }
    }
}

fn checks(maker: &mut Maker, entries: &[Entry]) {
    for check in entries {
        let place = format!("checks.{}", check.name);
        for part in check.item.entries() {
            match part.name.as_str() {
                "payload" => maker.drop_entry(Operator::Settings, &place, part),
                "ask" => {
                    for asked in part.item.entries() {
                        maker.drop_entry(Operator::Settings, &format!("{place} ask"), asked);
                        maker.expression(&format!("{place} ask {}", asked.name), &asked.item);
                    }
                }
                "answer" => maker.fields(&format!("{place}.answer"), part.item.entries()),
                _ => {}
            }
        }
    }
}

fn callers(maker: &mut Maker, file: &File) {
    for who in file.table("who") {
        let place = format!("who.{}", who.name);
        let item = find(who.item.entries(), "is").unwrap_or(&who.item);
        for new in ["true", "false"] {
            maker.replace(Operator::Callers, format!("{place}: {new}"), &item.span, format!("\"{new}\""));
        }
        maker.expression(&place, item);
    }
    let Some(readers) = find(file.table("access"), "read") else { return };
    for reader in readers.items() {
        maker.drop_item(Operator::Callers, "access", reader);
    }
    maker.replace(Operator::Callers, "access: anyone reads".into(), &readers.span, "[\"anyone\"]");
}
