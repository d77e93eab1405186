//! Mutates the transitions of a lifecycle file.

use super::MutationOperator;
use super::file::{LifecycleFile, TomlEntry, TomlItem, TomlValue, find_item};
use super::generator::MutantGenerator;

/// Callers that `by` may name without a declaration.
const BUILTIN_CALLERS: [&str; 4] = ["owner", "operator", "worker", "record"];

pub(super) fn mutate_transitions(generator: &mut MutantGenerator) {
    let file = generator.file;
    for (event, rows) in file.events() {
        for (at, row) in rows.iter().enumerate() {
            let location = if rows.len() == 1 { format!("on.{event}") } else { format!("on.{event}[{}]", at + 1) };
            let Some(block) = file.transition_span(row) else { continue };
            generator.replace(MutationOperator::DropTransition, format!("{location}: gone"), &block, "");
            if let Some(next) = rows.get(at + 1).and_then(|next| file.transition_span(next)) {
                let (own, other) =
                    (with_trailing_newline(&file.text[block.clone()]), with_trailing_newline(&file.text[next.clone()]));
                let edits = [(block, other), (next, own)];
                generator.edit(MutationOperator::SwapTransitions, format!("{location}: after the next"), &edits);
            }
            self::mutate_transition(generator, file, &location, row);
        }
    }
}

/// Ends a block with an empty line. The last block of a file may lack one, but needs it elsewhere.
fn with_trailing_newline(block: &str) -> String {
    format!("{}\n\n", block.trim_end())
}

fn mutate_transition(generator: &mut MutantGenerator, file: &LifecycleFile, location: &str, row: &[TomlEntry]) {
    for entry in row {
        let named = format!("{location} {}", entry.name);
        match entry.name.as_str() {
            "go" => mutate_go(generator, file, location, &entry.item),
            "by" => mutate_by(generator, file, location, entry),
            "when" => {
                generator.drop_entry(MutationOperator::DropGuard, location, entry);
                negate_guard(generator, &named, &entry.item);
                generator.mutate_expression(&named, &entry.item);
            }
            "refuse" => mutate_refusals(generator, &named, &entry.item),
            "take" => entry
                .item
                .items()
                .iter()
                .for_each(|name| generator.drop_item(MutationOperator::DropInput, &named, name)),
            "input" => {
                entry
                    .item
                    .entries()
                    .iter()
                    .for_each(|input| generator.drop_entry(MutationOperator::DropInput, &named, input));
                generator.mutate_fields(&named, entry.item.entries());
            }
            "set" => {
                for set in entry.item.entries() {
                    generator.drop_entry(MutationOperator::DropSet, &named, set);
                    generator.mutate_expression(&format!("{named} {}", set.name), &set.item);
                }
            }
            "move" => mutate_transfers(generator, &named, &entry.item),
            "spawn" | "require" | "cascade" | "deliver" => mutate_actions(generator, location, entry),
            "after" => {
                generator.drop_entry(MutationOperator::DropSetting, location, entry);
                if !generator.double_duration(&named, &entry.item) {
                    generator.mutate_expression(&named, &entry.item);
                }
            }
            "at" => generator.drop_entry(MutationOperator::DropSetting, location, entry),
            "audit" => mutate_audit(generator, location, entry),
            _ => {}
        }
    }
}

fn mutate_audit(generator: &mut MutantGenerator, location: &str, entry: &TomlEntry) {
    generator.drop_entry(MutationOperator::DropAudit, location, entry);
    generator.replace(
        MutationOperator::DropAudit,
        format!("{location} audit: another"),
        &entry.item.span,
        "\"ANOTHER\"",
    );
}

fn negate_guard(generator: &mut MutantGenerator, location: &str, item: &TomlItem) {
    if let TomlValue::Text { text, content: Some(content) } = &item.value {
        generator.replace(
            MutationOperator::NegateGuard,
            format!("{location}: the opposite"),
            content,
            format!("!({text})"),
        );
    }
}

fn mutate_go(generator: &mut MutantGenerator, file: &LifecycleFile, location: &str, item: &TomlItem) {
    let TomlValue::Text { text, content: Some(content) } = &item.value else { return };
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
            generator.replace(
                MutationOperator::RetargetTransition,
                format!("{location}: to {state}"),
                content,
                written(&from, Some(state)),
            );
        }
        if from.is_empty() {
            continue;
        }
        if !from.contains(&state) {
            let more: Vec<&str> = from.iter().copied().chain([state]).collect();
            generator.replace(
                MutationOperator::ChangeFromStates,
                format!("{location}: also from {state}"),
                content,
                written(&more, to),
            );
        } else if from.len() > 1 {
            let fewer: Vec<&str> = from.iter().copied().filter(|other| *other != state).collect();
            generator.replace(
                MutationOperator::ChangeFromStates,
                format!("{location}: not from {state}"),
                content,
                written(&fewer, to),
            );
        }
    }
    if to.is_some() && !from.is_empty() {
        generator.replace(
            MutationOperator::RetargetTransition,
            format!("{location}: stays"),
            content,
            written(&from, None),
        );
    }
}

fn mutate_by(generator: &mut MutantGenerator, file: &LifecycleFile, location: &str, entry: &TomlEntry) {
    generator.drop_entry(MutationOperator::WidenBy, location, entry);
    let own: Vec<&str> = entry.item.as_list().into_iter().filter_map(TomlItem::text).collect();
    let quoted =
        |names: &[&str]| format!("[{}]", names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", "));
    let known = BUILTIN_CALLERS.into_iter().chain(file.table_entries("who").iter().map(|who| who.name.as_str()));
    for (at, name) in own.iter().enumerate().filter(|_| own.len() > 1) {
        let rest: Vec<&str> = own.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, name)| *name).collect();
        generator.replace(
            MutationOperator::SwapBy,
            format!("{location} by: without {name}"),
            &entry.item.span,
            quoted(&rest),
        );
    }
    for other in known.filter(|other| !own.contains(other)) {
        let more: Vec<&str> = own.iter().copied().chain([other]).collect();
        generator.replace(
            MutationOperator::SwapBy,
            format!("{location} by: also {other}"),
            &entry.item.span,
            quoted(&more),
        );
        for at in 0..own.len() {
            let mut swapped = own.clone();
            swapped[at] = other;
            let name = format!("{location} by: {other} for {}", own[at]);
            generator.replace(MutationOperator::SwapBy, name, &entry.item.span, quoted(&swapped));
        }
    }
}

fn mutate_refusals(generator: &mut MutantGenerator, location: &str, list: &TomlItem) {
    for (at, refusal) in list.items().iter().enumerate() {
        let location = format!("{location}[{}]", at + 1);
        generator.drop_item(MutationOperator::DropRefusal, &location, refusal);
        for part in refusal.entries() {
            match part.name.as_str() {
                "if" => {
                    negate_guard(generator, &location, &part.item);
                    generator.mutate_expression(&format!("{location} if"), &part.item);
                }
                "as" => generator.mutate_refusal_code(&location, &part.item),
                "audit" => mutate_audit(generator, &location, part),
                _ => {}
            }
        }
    }
}

fn mutate_transfers(generator: &mut MutantGenerator, location: &str, list: &TomlItem) {
    for (at, transfer) in list.items().iter().enumerate() {
        let location = format!("{location}[{}]", at + 1);
        let location = location.as_str();
        generator.drop_item(MutationOperator::DropTransfer, location, transfer);
        let part = |name: &str| find_item(transfer.entries(), name);
        let (Some(from), Some(to), Some(amount)) = (part("from"), part("to"), part("amount")) else { continue };
        let text = &generator.file.text;
        let turned = [
            (from.span.clone(), text[to.span.clone()].to_owned()),
            (to.span.clone(), text[from.span.clone()].to_owned()),
        ];
        generator.edit(MutationOperator::ChangeTransfer, format!("{location}: the other way"), &turned);
        for (name, account) in [("from", from), ("to", to)] {
            let named = format!("{location} {name}: another account");
            generator.replace(MutationOperator::ChangeTransfer, named, &account.span, "\"elsewhere\"");
            if account.text() != Some("hold") {
                generator.replace(
                    MutationOperator::ChangeTransfer,
                    format!("{location} {name}: the hold"),
                    &account.span,
                    "\"hold\"",
                );
            }
        }
        match &amount.value {
            TomlValue::Text { text, .. } if text == "rest" => {
                generator.replace(
                    MutationOperator::ChangeTransfer,
                    format!("{location}: 1 for rest"),
                    &amount.span,
                    "\"1\"",
                );
            }
            TomlValue::Text { text, content: Some(content) } => {
                let name = format!("{location}: one more");
                generator.replace(MutationOperator::ChangeTransfer, name, content, format!("({text}) + 1"));
                generator.mutate_expression(&format!("{location} amount"), amount);
            }
            _ => generator.mutate_expression(&format!("{location} amount"), amount),
        }
        for entry in transfer.entries().iter().filter(|entry| entry.name == "short") {
            generator.drop_entry(MutationOperator::ChangeRefusalCode, location, entry);
            generator.mutate_refusal_code(&format!("{location} short"), &entry.item);
        }
    }
}

fn mutate_actions(generator: &mut MutantGenerator, location: &str, list: &TomlEntry) {
    let named = format!("{location} {}", list.name);
    for (at, action) in list.item.items().iter().enumerate() {
        let location = format!("{named}[{}]", at + 1);
        generator.drop_item(MutationOperator::DropAction, &location, action);
        for part in action.entries() {
            let inner = format!("{location} {}", part.name);
            match part.name.as_str() {
                "if" => {
                    generator.drop_entry(MutationOperator::ChangeAction, &location, part);
                    if let TomlValue::Text { text, content: Some(content) } = &part.item.value {
                        let name = format!("{inner}: the opposite");
                        generator.replace(MutationOperator::ChangeAction, name, content, format!("!({text})"));
                    }
                    generator.mutate_expression(&inner, &part.item);
                }
                "fields" | "input" | "body" => {
                    for given in part.item.entries() {
                        generator.drop_entry(MutationOperator::ChangeAction, &inner, given);
                        generator.mutate_expression(&format!("{inner} {}", given.name), &given.item);
                    }
                }
                "owner" | "payload" => generator.drop_entry(MutationOperator::ChangeAction, &location, part),
                "to" => generator.mutate_expression(&inner, &part.item),
                _ => {}
            }
        }
    }
    for (own, other) in [("require", "cascade"), ("cascade", "require")] {
        if list.name == own {
            generator.replace(MutationOperator::ChangeAction, format!("{named}: {other}"), &list.key, other);
        }
    }
}
