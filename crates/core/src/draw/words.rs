//! What a row says, in words short enough for a picture.

use std::fmt::Write as _;

use super::text::clean;
use crate::model::{AccountRef, Amount, By, Event, EventKind, Formula, Lifecycle, Row, StateIx, Timing};

/// Who sets an event off; each is drawn in its own colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// By name, by a caller.
    Called,
    /// By the engine: lease, commit, finish, fail, enter.
    Engine,
    /// By the clock.
    Timer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EffectKind {
    Money,
    /// Spawn, require, cascade, deliver.
    Other,
}

#[derive(Clone, Debug)]
pub(super) struct Effect {
    pub(super) kind: EffectKind,
    pub(super) text: String,
}

/// One row as it is said in a picture. The texts are whole; who draws them cuts them.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) tone: Tone,
    /// Its place among the event's rows in this state, where they lead to different places.
    pub(super) turn: Option<usize>,
    /// The event, or the timer.
    pub(super) head: String,
    pub(super) caller: Option<String>,
    pub(super) guard: Option<String>,
    /// The codes of its refusals.
    pub(super) refusals: Option<String>,
    pub(super) effects: Vec<Effect>,
    pub(super) rules: String,
    /// Everything, for the tooltip.
    pub(super) full: String,
}

impl Said {
    /// The head, with its turn before it.
    pub(super) fn turned(&self) -> String {
        match self.turn {
            Some(turn) => format!("{turn}. {}", self.head),
            None => self.head.clone(),
        }
    }
}

/// A caller that is none.
pub(super) const ANOTHER_RECORD: &str = "another record";

/// Tooltips are cut here: a file of 256 KB must not become a picture of many megabytes.
const FULL_CHARS: usize = 600;

/// What `event.rows[at]` says in the state `from` (`None`: at creation).
pub(super) fn said(lifecycle: &Lifecycle, event: &Event, at: usize, from: Option<StateIx>) -> Said {
    let row = &event.rows[at];
    let (tone, head) = head(lifecycle, event, row);
    let mut said = Said {
        tone,
        turn: turn(event, at, from),
        head,
        caller: caller(lifecycle, event, row),
        guard: guard(event, at, from),
        refusals: refusals(row),
        effects: effects(row),
        rules: row.rules.join(" "),
        full: String::new(),
    };
    said.full = full(&said, row);
    said
}

fn head(lifecycle: &Lifecycle, event: &Event, row: &Row) -> (Tone, String) {
    match (event.kind, &row.timing) {
        (EventKind::Time, Some(Timing::After(delay))) => {
            (Tone::Timer, format!("after {}", without_record(delay.text.trim_matches(['\'', '"']))))
        }
        (EventKind::Time, Some(Timing::At(slot))) => {
            let field = lifecycle.fields.get(usize::from(*slot)).map_or("?", |field| &field.name);
            (Tone::Timer, format!("at {field}"))
        }
        (EventKind::Time, None) => (Tone::Timer, "in time".to_owned()),
        (EventKind::Enter, _) => (Tone::Engine, "on entering".to_owned()),
        (EventKind::Lease | EventKind::Commit | EventKind::Finish | EventKind::Fail, _) => {
            (Tone::Engine, event.name.to_string())
        }
        (EventKind::Create | EventKind::Called, _) => (Tone::Called, event.name.to_string()),
    }
}

/// Rows of one event are tried in order. On one arrow or in one box they stand in that order; where they are on several,
/// nobody could see it.
fn turn(event: &Event, at: usize, from: Option<StateIx>) -> Option<usize> {
    let own = &event.rows[at];
    let is_here = |row: &&Row| from.is_none_or(|state| row.from.contains(state)) && same_time(row, own);
    let to = |row: &Row| row.to.filter(|to| Some(*to) != from);
    let target = to(own);
    let parts = event.rows.iter().filter(is_here).any(|row| to(row) != target);
    parts.then(|| event.rows[..at].iter().filter(is_here).count() + 1)
}

/// Timers compete with those of the same time only: otherwise the first that is due is taken. Rows without one do so always.
fn same_time(one: &Row, other: &Row) -> bool {
    match (&one.timing, &other.timing) {
        (None, None) => true,
        (Some(Timing::After(one)), Some(Timing::After(other))) => one.text == other.text,
        (Some(Timing::At(one)), Some(Timing::At(other))) => one == other,
        _ => false,
    }
}

fn caller(lifecycle: &Lifecycle, event: &Event, row: &Row) -> Option<String> {
    if !matches!(event.kind, EventKind::Create | EventKind::Called) {
        return None;
    }
    if row.by.is_empty() {
        return Some("any writer".to_owned());
    }
    let names: Vec<&str> = row
        .by
        .iter()
        .map(|by| match by {
            By::Owner => "owner",
            By::Operator => "operator",
            By::Worker => "worker",
            By::Record => ANOTHER_RECORD,
            By::Who(who) => lifecycle.who.get(usize::from(*who)).map_or("?", |who| &who.name),
        })
        .collect();
    Some(names.join(" or "))
}

/// The guard; or "otherwise", where rows tried before this one could have been taken instead.
fn guard(event: &Event, at: usize, from: Option<StateIx>) -> Option<String> {
    let row = &event.rows[at];
    if let Some(when) = &row.when {
        return Some(format!("if {}", without_record(&when.text)));
    }
    let competes = |earlier: &Row| {
        same_time(earlier, row)
            && (earlier.when.is_some() || !earlier.require.is_empty())
            && from.is_none_or(|state| earlier.from.contains(state))
            && (earlier.by.is_empty() || row.by.is_empty() || earlier.by.iter().any(|by| row.by.contains(by)))
    };
    event.rows[..at].iter().any(competes).then(|| "otherwise".to_owned())
}

/// What the row may answer instead of doing anything; when, the tooltip tells.
fn refusals(row: &Row) -> Option<String> {
    let mut codes: Vec<&str> = Vec::new();
    for refuse in &row.refuse {
        if !codes.contains(&&*refuse.code) {
            codes.push(&refuse.code);
        }
    }
    (!codes.is_empty()).then(|| format!("refused: {}", codes.join(", ")))
}

fn effects(row: &Row) -> Vec<Effect> {
    let mut out = Vec::new();
    for entry in &row.moves {
        let amount = match &entry.amount {
            Amount::Rest => String::new(),
            Amount::Formula(formula) => format!(" ({})", without_record(&formula.text)),
        };
        let text = format!("{} → {}{amount}", account(&entry.from), account(&entry.to));
        out.push(Effect { kind: EffectKind::Money, text });
    }
    let other = |text: String| Effect { kind: EffectKind::Other, text };
    let only = |condition: &Option<Formula>| match condition {
        Some(condition) => format!(" if {}", without_record(&condition.text)),
        None => String::new(),
    };
    for spawn in &row.spawn {
        out.push(other(format!("makes {}{}", spawn.lifecycle, only(&spawn.condition))));
    }
    for cause in &row.require {
        let (to, only) = (without_record(&cause.to.text), only(&cause.condition));
        out.push(other(format!("requires {} of {to}{only}", cause.event)));
    }
    for cause in &row.cascade {
        let (to, only) = (without_record(&cause.to.text), only(&cause.condition));
        out.push(other(format!("tells {to}: {}{only}", cause.event)));
    }
    for deliver in &row.deliver {
        let (to, only) = (without_record(&deliver.to.text), only(&deliver.condition));
        out.push(other(format!("delivers to {to}{only}")));
    }
    out
}

fn account(account: &AccountRef) -> String {
    match account {
        AccountRef::Hold => "hold".to_owned(),
        AccountRef::Named(template) => without(&["record.", "input."], &template.text),
    }
}

fn full(said: &Said, row: &Row) -> String {
    let mut out = said.turned();
    if let Some(caller) = &said.caller {
        let _ = write!(out, " by {caller}");
    }
    if let Some(when) = &row.when {
        let _ = write!(out, "\nif {}", clean(&when.text));
    }
    for refuse in &row.refuse {
        let _ = write!(out, "\nrefused with {} {} if {}", refuse.status, refuse.code, clean(&refuse.condition.text));
        if out.len() > FULL_CHARS * 4 {
            break;
        }
    }
    for effect in &said.effects {
        let _ = write!(out, "\n{}", clean(&effect.text));
        if out.len() > FULL_CHARS * 4 {
            break;
        }
    }
    if !said.rules.is_empty() {
        let _ = write!(out, "\n{}", said.rules);
    }
    if let Some((cut, _)) = out.char_indices().nth(FULL_CHARS) {
        out.truncate(cut);
        out.push('…');
    }
    out
}

/// The text without `record.` before a field: in the picture of a record it goes without saying.
fn without_record(text: &str) -> String {
    without(&["record."], text)
}

/// The text without these words where a name begins with one.
fn without(words: &[&str], text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut quote = None;
    let mut before = ' ';
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let starts_name = !(before.is_alphanumeric() || before == '_' || before == '.');
        let word = words.iter().find(|word| quote.is_none() && starts_name && rest.starts_with(**word));
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
