//! Builds the texts that describe transitions in a diagram.

use std::fmt::Write as _;

use crate::text::sanitize_line;
use onceward_core::model::{
    AccountRef, AllowedCaller, EventDef, EventKind, Formula, Lifecycle, StateIndex, TimerSpec, TransferAmount,
    Transition,
};

/// What triggers an event. Each kind has its own color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TriggerKind {
    /// A caller, by name.
    Called,
    /// The engine: lease, commit, finish, fail, enter.
    Engine,
    /// A timer.
    Timer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EffectLabelKind {
    Money,
    /// Spawn, require, cascade, deliver.
    Other,
}

#[derive(Clone, Debug)]
pub(crate) struct EffectLabel {
    pub(crate) kind: EffectLabelKind,
    pub(crate) text: String,
}

/// The texts of one transition, uncut. The renderer cuts them.
#[derive(Clone, Debug)]
pub(crate) struct TransitionLabel {
    pub(crate) trigger: TriggerKind,
    /// Position among the event's transitions in this state, if they have different targets.
    pub(crate) order: Option<usize>,
    /// Name of the event, or time of the timer.
    pub(crate) head: String,
    pub(crate) caller: Option<String>,
    pub(crate) guard: Option<String>,
    /// Codes of the refusals.
    pub(crate) refusals: Option<String>,
    pub(crate) effects: Vec<EffectLabel>,
    pub(crate) rules: String,
    /// Full text of the transition.
    pub(crate) tooltip: String,
}

impl TransitionLabel {
    /// Returns the head, preceded by the position if there is one.
    pub(crate) fn numbered_head(&self) -> String {
        match self.order {
            Some(turn) => format!("{turn}. {}", self.head),
            None => self.head.clone(),
        }
    }
}

/// Caller text of an event that only another record can send.
pub(crate) const RECORD_CALLER_NAME: &str = "another record";

/// Bounds the diagram's size: without it, a file of 256 KB could become a diagram of many megabytes.
const MAX_TOOLTIP_CHARS: usize = 600;

/// Returns the label of `event.transitions[index]` in the state `from`, or at creation if `from` is `None`.
pub(crate) fn transition_label(
    lifecycle: &Lifecycle,
    event: &EventDef,
    index: usize,
    from: Option<StateIndex>,
) -> TransitionLabel {
    let row = &event.transitions[index];
    let (tone, head) = trigger_and_head(lifecycle, event, row);
    let mut label = TransitionLabel {
        trigger: tone,
        order: trial_order(event, index, from),
        head,
        caller: caller_text(lifecycle, event, row),
        guard: guard_text(event, index, from),
        refusals: refusal_text(row),
        effects: effect_labels(row),
        rules: row.rules.join(" "),
        tooltip: String::new(),
    };
    label.tooltip = tooltip_text(&label, row);
    label
}

fn trigger_and_head(lifecycle: &Lifecycle, event: &EventDef, transition: &Transition) -> (TriggerKind, String) {
    match (event.kind, &transition.timer) {
        (EventKind::Time, Some(TimerSpec::AfterEntering(delay))) => {
            (TriggerKind::Timer, format!("after {}", strip_record_prefix(delay.text.trim_matches(['\'', '"']))))
        }
        (EventKind::Time, Some(TimerSpec::AtField(slot))) => {
            let field = lifecycle.fields.get(usize::from(*slot)).map_or("?", |field| &field.name);
            (TriggerKind::Timer, format!("at {field}"))
        }
        (EventKind::Time, None) => (TriggerKind::Timer, "in time".to_owned()),
        (EventKind::Enter, _) => (TriggerKind::Engine, "on entering".to_owned()),
        (EventKind::Lease | EventKind::Commit | EventKind::Finish | EventKind::Fail, _) => {
            (TriggerKind::Engine, event.name.to_string())
        }
        (EventKind::Create | EventKind::Called, _) => (TriggerKind::Called, event.name.to_string()),
    }
}

/// Returns the position in which the engine tries the transition.
///
/// One edge or box lists its transitions in that order. Several edges do not show the order, so they need numbers.
fn trial_order(event: &EventDef, index: usize, from: Option<StateIndex>) -> Option<usize> {
    let own = &event.transitions[index];
    let is_here = |row: &&Transition| from.is_none_or(|state| row.from.contains(state)) && has_same_timer(row, own);
    let to = |row: &Transition| row.to.filter(|to| Some(*to) != from);
    let target = to(own);
    let parts = event.transitions.iter().filter(is_here).any(|row| to(row) != target);
    parts.then(|| event.transitions[..index].iter().filter(is_here).count() + 1)
}

/// Returns whether two transitions compete. Timers compete only if they have the same time; otherwise the earlier one
/// fires.
fn has_same_timer(one: &Transition, other: &Transition) -> bool {
    match (&one.timer, &other.timer) {
        (None, None) => true,
        (Some(TimerSpec::AfterEntering(one)), Some(TimerSpec::AfterEntering(other))) => one.text == other.text,
        (Some(TimerSpec::AtField(one)), Some(TimerSpec::AtField(other))) => one == other,
        _ => false,
    }
}

fn caller_text(lifecycle: &Lifecycle, event: &EventDef, transition: &Transition) -> Option<String> {
    if !matches!(event.kind, EventKind::Create | EventKind::Called) {
        return None;
    }
    if transition.by.is_empty() {
        return Some("any writer".to_owned());
    }
    let names: Vec<&str> = transition
        .by
        .iter()
        .map(|by| match by {
            AllowedCaller::Owner => "owner",
            AllowedCaller::Operator => "operator",
            AllowedCaller::Worker => "worker",
            AllowedCaller::Record => RECORD_CALLER_NAME,
            AllowedCaller::Predicate(who) => {
                lifecycle.caller_predicates.get(usize::from(*who)).map_or("?", |who| &who.name)
            }
        })
        .collect();
    Some(names.join(" or "))
}

/// Returns the guard, or "otherwise" if an earlier transition could apply instead.
fn guard_text(event: &EventDef, index: usize, from: Option<StateIndex>) -> Option<String> {
    let row = &event.transitions[index];
    if let Some(when) = &row.when {
        return Some(format!("if {}", strip_record_prefix(&when.text)));
    }
    let competes = |earlier: &Transition| {
        has_same_timer(earlier, row)
            && (earlier.when.is_some() || !earlier.require.is_empty())
            && from.is_none_or(|state| earlier.from.contains(state))
            && (earlier.by.is_empty() || row.by.is_empty() || earlier.by.iter().any(|by| row.by.contains(by)))
    };
    event.transitions[..index].iter().any(competes).then(|| "otherwise".to_owned())
}

/// Returns the refusal codes. The tooltip has the conditions.
fn refusal_text(transition: &Transition) -> Option<String> {
    let mut codes: Vec<&str> = Vec::new();
    for refuse in &transition.refuse {
        if !codes.contains(&&*refuse.code) {
            codes.push(&refuse.code);
        }
    }
    (!codes.is_empty()).then(|| format!("refused: {}", codes.join(", ")))
}

fn effect_labels(transition: &Transition) -> Vec<EffectLabel> {
    let mut out = Vec::new();
    for entry in &transition.transfers {
        let amount = match &entry.amount {
            TransferAmount::Rest => String::new(),
            TransferAmount::Computed(formula) => format!(" ({})", strip_record_prefix(&formula.text)),
        };
        let text = format!("{} → {}{amount}", account_text(&entry.from), account_text(&entry.to));
        out.push(EffectLabel { kind: EffectLabelKind::Money, text });
    }
    let other = |text: String| EffectLabel { kind: EffectLabelKind::Other, text };
    let condition_suffix = |condition: &Option<Formula>| match condition {
        Some(condition) => format!(" if {}", strip_record_prefix(&condition.text)),
        None => String::new(),
    };
    for spawn in &transition.spawn {
        out.push(other(format!("makes {}{}", spawn.lifecycle, condition_suffix(&spawn.condition))));
    }
    for cause in &transition.require {
        let (to, only) = (strip_record_prefix(&cause.targets.text), condition_suffix(&cause.condition));
        out.push(other(format!("requires {} of {to}{only}", cause.event)));
    }
    for cause in &transition.cascade {
        let (to, only) = (strip_record_prefix(&cause.targets.text), condition_suffix(&cause.condition));
        out.push(other(format!("tells {to}: {}{only}", cause.event)));
    }
    for deliver in &transition.deliver {
        let (to, only) = (strip_record_prefix(&deliver.url.text), condition_suffix(&deliver.condition));
        out.push(other(format!("delivers to {to}{only}")));
    }
    out
}

fn account_text(account: &AccountRef) -> String {
    match account {
        AccountRef::Hold => "hold".to_owned(),
        AccountRef::Named(template) => strip_prefixes(&["record.", "input."], &template.text),
    }
}

fn tooltip_text(label: &TransitionLabel, transition: &Transition) -> String {
    let mut out = label.numbered_head();
    if let Some(caller) = &label.caller {
        let _ = write!(out, " by {caller}");
    }
    if let Some(when) = &transition.when {
        let _ = write!(out, "\nif {}", sanitize_line(&when.text));
    }
    for refuse in &transition.refuse {
        let _ = write!(
            out,
            "\nrefused with {} {} if {}",
            refuse.status,
            refuse.code,
            sanitize_line(&refuse.condition.text)
        );
        if out.len() > MAX_TOOLTIP_CHARS * 4 {
            break;
        }
    }
    for effect in &label.effects {
        let _ = write!(out, "\n{}", sanitize_line(&effect.text));
        if out.len() > MAX_TOOLTIP_CHARS * 4 {
            break;
        }
    }
    if !label.rules.is_empty() {
        let _ = write!(out, "\n{}", label.rules);
    }
    if let Some((cut, _)) = out.char_indices().nth(MAX_TOOLTIP_CHARS) {
        out.truncate(cut);
        out.push('…');
    }
    out
}

/// Removes `record.` before field names: in the diagram of a record, it adds nothing.
fn strip_record_prefix(text: &str) -> String {
    strip_prefixes(&["record."], text)
}

/// Removes the prefixes from names that start with one.
fn strip_prefixes(prefixes: &[&str], text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut quote = None;
    let mut before = ' ';
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let starts_name = !(before.is_alphanumeric() || before == '_' || before == '.');
        let word = prefixes.iter().find(|word| quote.is_none() && starts_name && rest.starts_with(**word));
        if let Some(word) = word {
            rest = &rest[word.len()..];
            before = '.';
            continue;
        }
        match quote {
            None if c == '\'' || c == '"' => quote = Some(c),
            Some(open) if open == c => quote = None,
            _ => {}
        }
        out.push(c);
        before = c;
        rest = &rest[c.len_utf8()..];
    }
    out
}
