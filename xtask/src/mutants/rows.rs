//! Breaking rows.

use super::Operator;
use super::file::{Entry, File, Item, Value, find};
use super::maker::Maker;

/// Who may be named without being declared.
const NAMES: [&str; 4] = ["owner", "operator", "worker", "record"];

pub(super) fn all(maker: &mut Maker) {
    let file = maker.file;
    for (event, rows) in file.events() {
        for (at, row) in rows.iter().enumerate() {
            let place = if rows.len() == 1 { format!("on.{event}") } else { format!("on.{event}[{}]", at + 1) };
            let Some(block) = file.block(row) else { continue };
            maker.replace(Operator::DropRow, format!("{place}: gone"), &block, "");
            if let Some(next) = rows.get(at + 1).and_then(|next| file.block(next)) {
                let (own, other) = (ended(&file.text[block.clone()]), ended(&file.text[next.clone()]));
                let edits = [(block, other), (next, own)];
                maker.edit(Operator::SwapRows, format!("{place}: after the next"), &edits);
            }
            self::row(maker, file, &place, row);
        }
    }
}

/// The last block of a file may lack the line's end that a block in the middle needs.
fn ended(block: &str) -> String {
    format!("{}\n\n", block.trim_end())
}

fn row(maker: &mut Maker, file: &File, place: &str, row: &[Entry]) {
    for entry in row {
        let named = format!("{place} {}", entry.name);
        match entry.name.as_str() {
            "go" => go(maker, file, place, &entry.item),
            "by" => by(maker, file, place, entry),
            "when" => {
                maker.drop_entry(Operator::DropGuard, place, entry);
                negated(maker, &named, &entry.item);
                maker.expression(&named, &entry.item);
            }
            "refuse" => refuse(maker, &named, &entry.item),
            "take" => entry.item.items().iter().for_each(|name| maker.drop_item(Operator::DropInput, &named, name)),
            "input" => {
                entry.item.entries().iter().for_each(|input| maker.drop_entry(Operator::DropInput, &named, input));
                maker.fields(&named, entry.item.entries());
            }
            "set" => {
                for set in entry.item.entries() {
                    maker.drop_entry(Operator::DropSet, &named, set);
                    maker.expression(&format!("{named} {}", set.name), &set.item);
                }
            }
            "move" => moves(maker, &named, &entry.item),
            "spawn" | "require" | "cascade" | "deliver" => causes(maker, place, entry),
            "after" => {
                maker.drop_entry(Operator::Settings, place, entry);
                if !maker.duration(&named, &entry.item) {
                    maker.expression(&named, &entry.item);
                }
            }
            "at" => maker.drop_entry(Operator::Settings, place, entry),
            "audit" => audit(maker, place, entry),
            _ => {}
        }
    }
}

fn audit(maker: &mut Maker, place: &str, entry: &Entry) {
    maker.drop_entry(Operator::Audit, place, entry);
    maker.replace(Operator::Audit, format!("{place} audit: another"), &entry.item.span, "\"ANOTHER\"");
}

fn negated(maker: &mut Maker, place: &str, item: &Item) {
    if let Value::Text { text, content: Some(content) } = &item.value {
        maker.replace(Operator::NegateGuard, format!("{place}: the opposite"), content, format!("!({text})"));
    }
}

fn go(maker: &mut Maker, file: &File, place: &str, item: &Item) {
    let Value::Text { text, content: Some(content) } = &item.value else { return };
    let (from, to) = match text.split_once("->") {
        Some((from, to)) => (from.trim(), Some(to.trim())),
        None => (text.trim(), None),
    };
    let from: Vec<&str> = from.split('|').map(str::trim).filter(|state| !state.is_empty()).collect();
    let written = |from: &[&str], to: Option<&str>| match to {
        Some(to) => format!("{} -> {to}", from.join(" | ")).trim().to_owned(),
        None => from.join(" | "),
    };
    for state in file.states() {
        if to != Some(state) {
            maker.replace(Operator::Retarget, format!("{place}: to {state}"), content, written(&from, Some(state)));
        }
        if from.is_empty() {
            continue;
        }
        if !from.contains(&state) {
            let more: Vec<&str> = from.iter().copied().chain([state]).collect();
            maker.replace(Operator::FromStates, format!("{place}: also from {state}"), content, written(&more, to));
        } else if from.len() > 1 {
            let fewer: Vec<&str> = from.iter().copied().filter(|other| *other != state).collect();
            maker.replace(Operator::FromStates, format!("{place}: not from {state}"), content, written(&fewer, to));
        }
    }
    if to.is_some() && !from.is_empty() {
        maker.replace(Operator::Retarget, format!("{place}: stays"), content, written(&from, None));
    }
}

fn by(maker: &mut Maker, file: &File, place: &str, entry: &Entry) {
    maker.drop_entry(Operator::WidenBy, place, entry);
    let own: Vec<&str> = entry.item.several().into_iter().filter_map(Item::text).collect();
    let quoted =
        |names: &[&str]| format!("[{}]", names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", "));
    let known = NAMES.into_iter().chain(file.table("who").iter().map(|who| who.name.as_str()));
    for (at, name) in own.iter().enumerate().filter(|_| own.len() > 1) {
        let rest: Vec<&str> = own.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, name)| *name).collect();
        maker.replace(Operator::SwapBy, format!("{place} by: without {name}"), &entry.item.span, quoted(&rest));
    }
    for other in known.filter(|other| !own.contains(other)) {
        let more: Vec<&str> = own.iter().copied().chain([other]).collect();
        maker.replace(Operator::SwapBy, format!("{place} by: also {other}"), &entry.item.span, quoted(&more));
        for at in 0..own.len() {
            let mut swapped = own.clone();
            swapped[at] = other;
            let name = format!("{place} by: {other} for {}", own[at]);
            maker.replace(Operator::SwapBy, name, &entry.item.span, quoted(&swapped));
        }
    }
}

fn refuse(maker: &mut Maker, place: &str, list: &Item) {
    for (at, refusal) in list.items().iter().enumerate() {
        let place = format!("{place}[{}]", at + 1);
        maker.drop_item(Operator::DropRefusal, &place, refusal);
        for part in refusal.entries() {
            match part.name.as_str() {
                "if" => {
                    negated(maker, &place, &part.item);
                    maker.expression(&format!("{place} if"), &part.item);
                }
                "as" => maker.answer(&place, &part.item),
                "audit" => audit(maker, &place, part),
                _ => {}
            }
        }
    }
}

fn moves(maker: &mut Maker, place: &str, list: &Item) {
    for (at, moved) in list.items().iter().enumerate() {
        let place = format!("{place}[{}]", at + 1);
        let place = place.as_str();
        maker.drop_item(Operator::DropMove, place, moved);
        let part = |name: &str| find(moved.entries(), name);
        let (Some(from), Some(to), Some(amount)) = (part("from"), part("to"), part("amount")) else { continue };
        let text = &maker.file.text;
        let turned = [
            (from.span.clone(), text[to.span.clone()].to_owned()),
            (to.span.clone(), text[from.span.clone()].to_owned()),
        ];
        maker.edit(Operator::ChangeMove, format!("{place}: the other way"), &turned);
        for (name, account) in [("from", from), ("to", to)] {
            let named = format!("{place} {name}: another account");
            maker.replace(Operator::ChangeMove, named, &account.span, "\"elsewhere\"");
            if account.text() != Some("hold") {
                maker.replace(Operator::ChangeMove, format!("{place} {name}: the hold"), &account.span, "\"hold\"");
            }
        }
        match &amount.value {
            Value::Text { text, .. } if text == "rest" => {
                maker.replace(Operator::ChangeMove, format!("{place}: 1 for rest"), &amount.span, "\"1\"");
            }
            Value::Text { text, content: Some(content) } => {
                let name = format!("{place}: one more");
                maker.replace(Operator::ChangeMove, name, content, format!("({text}) + 1"));
                maker.expression(&format!("{place} amount"), amount);
            }
            _ => maker.expression(&format!("{place} amount"), amount),
        }
        for entry in moved.entries().iter().filter(|entry| entry.name == "short") {
            maker.drop_entry(Operator::ChangeAnswer, place, entry);
            maker.answer(&format!("{place} short"), &entry.item);
        }
    }
}

fn causes(maker: &mut Maker, place: &str, list: &Entry) {
    let named = format!("{place} {}", list.name);
    for (at, cause) in list.item.items().iter().enumerate() {
        let place = format!("{named}[{}]", at + 1);
        maker.drop_item(Operator::DropCause, &place, cause);
        for part in cause.entries() {
            let inner = format!("{place} {}", part.name);
            match part.name.as_str() {
                "if" => {
                    maker.drop_entry(Operator::ChangeCause, &place, part);
                    if let Value::Text { text, content: Some(content) } = &part.item.value {
                        let name = format!("{inner}: the opposite");
                        maker.replace(Operator::ChangeCause, name, content, format!("!({text})"));
                    }
                    maker.expression(&inner, &part.item);
                }
                "fields" | "input" | "body" => {
                    for given in part.item.entries() {
                        maker.drop_entry(Operator::ChangeCause, &inner, given);
                        maker.expression(&format!("{inner} {}", given.name), &given.item);
                    }
                }
                "owner" | "payload" => maker.drop_entry(Operator::ChangeCause, &place, part),
                "to" => maker.expression(&inner, &part.item),
                _ => {}
            }
        }
    }
    for (own, other) in [("require", "cascade"), ("cascade", "require")] {
        if list.name == own {
            maker.replace(Operator::ChangeCause, format!("{named}: {other}"), &list.key, other);
        }
    }
}
