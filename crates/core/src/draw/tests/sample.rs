//! Lifecycles to draw: read from files without being compiled or checked (the picture shows texts only), built by
//! hand, or random.

use std::sync::Arc;

use toml::Value as Toml;

use crate::diagnostic::Span;
use crate::expr::{Expr, Kind};
use crate::model::{
    AccountRef, Amount, By, Cause, Clock, ErrorTable, Event, EventKind, Field, Formula, Lifecycle, Move, PayloadBounds,
    Ready, Row, Spawn, SpawnPayload, State, StateSet, Template, Timing, Type, Typed, Who,
};
use crate::value::Value;

pub(super) const REAL: [(&str, &str); 5] = [
    ("execution", include_str!("samples/execution.toml")),
    ("document", include_str!("samples/document.toml")),
    ("image", include_str!("samples/image.toml")),
    ("relay", include_str!("samples/relay.toml")),
    ("submission", include_str!("samples/submission.toml")),
];

pub(super) fn formula(text: &str) -> Formula {
    let typed = Typed { ty: Type::Null, nullable: true };
    let expr = Expr { kind: Kind::Const(Value::Null), typed, at: Span::default() };
    Formula { expr, text: text.into() }
}

pub(super) fn empty(name: &str, about: &str) -> Lifecycle {
    Lifecycle {
        name: name.into(),
        about: about.into(),
        hash: "".into(),
        key: None,
        asset: None,
        outside: Vec::new(),
        clock: Clock::Engine,
        states: Vec::new(),
        fields: Vec::new(),
        links: Vec::new(),
        uniques: Vec::new(),
        limits: Vec::new(),
        work: None,
        errors: ErrorTable::default(),
        checks: Vec::new(),
        lookups: Vec::new(),
        who: Vec::new(),
        access: Vec::new(),
        payload: PayloadBounds { min: 0, max: 0 },
        events: Vec::new(),
    }
}

pub(super) fn state(name: &str, about: &str) -> State {
    State {
        name: name.into(),
        about: about.into(),
        ready: Ready::No,
        is_final: false,
        rest: false,
        reserved: false,
        rules: Vec::new(),
        at: Span::default(),
    }
}

pub(super) fn row(from: StateSet, to: Option<u8>) -> Row {
    Row {
        from,
        to,
        by: Vec::new(),
        when: None,
        refuse: Vec::new(),
        inputs: Vec::new(),
        set: Vec::new(),
        moves: Vec::new(),
        spawn: Vec::new(),
        require: Vec::new(),
        cascade: Vec::new(),
        deliver: Vec::new(),
        timing: None,
        audit: None,
        rules: Vec::new(),
        checks: Vec::new(),
        at: Span::default(),
        line: 0,
    }
}

pub(super) fn event(name: &str, rows: Vec<Row>) -> Event {
    Event { name: name.into(), kind: EventKind::of(name), rows }
}

fn text<'t>(table: &'t Toml, key: &str) -> &'t str {
    table.get(key).and_then(Toml::as_str).unwrap_or("")
}

fn flag(table: &Toml, key: &str) -> bool {
    table.get(key).and_then(Toml::as_bool).unwrap_or(false)
}

fn list<'t>(table: &'t Toml, key: &str) -> impl Iterator<Item = &'t Toml> {
    table.get(key).and_then(Toml::as_array).into_iter().flatten()
}

fn entries<'t>(table: &'t Toml, key: &str) -> impl Iterator<Item = (&'t String, &'t Toml)> {
    table.get(key).and_then(Toml::as_table).into_iter().flatten()
}

/// Reads what pictures show out of a lifecycle file.
pub(super) fn read(file: &str) -> Lifecycle {
    let file = Toml::Table(file.parse().expect("a sample is TOML"));
    let mut out = empty(text(&file, "lifecycle"), text(&file, "about"));
    for (name, _) in entries(&file, "fields") {
        out.fields.push(Field {
            name: name.as_str().into(),
            about: "".into(),
            ty: Type::Text,
            nullable: true,
            default: None,
            constant: false,
            bounds: crate::model::Bounds::default(),
            at: Span::default(),
        });
    }
    for (name, told) in entries(&file, "states") {
        let mut state = state(name, text(told, "about"));
        state.is_final = flag(told, "final");
        state.rest = flag(told, "rest");
        state.reserved = flag(told, "reserved");
        state.ready = match told.get("ready") {
            Some(Toml::String(field)) => Ready::From(out.field(field).expect("a known field")),
            Some(_) => Ready::Yes,
            None => Ready::No,
        };
        out.states.push(state);
    }
    for (name, is) in entries(&file, "who") {
        let formula = formula(is.as_str().unwrap_or(""));
        out.who.push(Who { name: name.as_str().into(), formula, rules: Vec::new() });
    }
    for (name, rows) in entries(&file, "on") {
        let rows = rows.as_array().into_iter().flatten().map(|row| read_row(&out, row)).collect();
        out.events.push(event(name, rows));
    }
    out
}

fn read_row(lifecycle: &Lifecycle, told: &Toml) -> Row {
    let go = text(told, "go");
    let (from, to) = match go.split_once("->") {
        Some((from, to)) => (from, Some(lifecycle.state(to.trim()).expect("a known state"))),
        None => (go, None),
    };
    let from = from.split('|').map(str::trim).filter(|name| !name.is_empty());
    let mut row = row(from.map(|name| lifecycle.state(name).expect("a known state")).collect(), to);
    let by = told.get("by").into_iter().flat_map(|by| by.as_array().cloned().unwrap_or_else(|| vec![by.clone()]));
    row.by = by.map(|by| read_by(lifecycle, by.as_str().unwrap_or(""))).collect();
    row.when = told.get("when").and_then(Toml::as_str).map(formula);
    row.timing = match (told.get("after"), told.get("at")) {
        (Some(after), _) => after.as_str().map(|text| Timing::After(formula(text))),
        (_, Some(at)) => at.as_str().and_then(|at| lifecycle.field(at)).map(Timing::At),
        _ => None,
    };
    row.rules = text(told, "rule").split_whitespace().map(Arc::from).collect();
    for entry in list(told, "move") {
        let amount = match text(entry, "amount") {
            "rest" => Amount::Rest,
            amount => Amount::Formula(formula(amount)),
        };
        row.moves.push(money(text(entry, "from"), text(entry, "to"), amount));
    }
    for entry in list(told, "spawn") {
        row.spawn.push(Spawn {
            lifecycle: text(entry, "lifecycle").into(),
            condition: entry.get("if").map(|_| formula("")),
            fields: Vec::new(),
            owner: None,
            payload: SpawnPayload::None,
            at: Span::default(),
        });
    }
    row.require = list(told, "require").map(cause).collect();
    row.cascade = list(told, "cascade").map(cause).collect();
    row
}

fn read_by(lifecycle: &Lifecycle, name: &str) -> By {
    match name {
        "owner" => By::Owner,
        "operator" => By::Operator,
        "worker" => By::Worker,
        "record" => By::Record,
        name => {
            let at = lifecycle.who.iter().position(|who| *who.name == *name).expect("a known caller");
            By::Who(u16::try_from(at).expect("few callers"))
        }
    }
}

pub(super) fn money(from: &str, to: &str, amount: Amount) -> Move {
    let account = |name: &str| match name {
        "hold" => AccountRef::Hold,
        name => AccountRef::Named(Template { parts: Vec::new(), text: name.into() }),
    };
    Move { from: account(from), to: account(to), amount, short: None, at: Span::default() }
}

fn cause(entry: &Toml) -> Cause {
    Cause {
        condition: entry.get("if").map(|_| formula("")),
        to: formula(text(entry, "to")),
        event: text(entry, "event").into(),
        input: Vec::new(),
        at: Span::default(),
    }
}

/// Numbers from a seed, so that a failing picture can be drawn again.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % u64::try_from(below.max(1)).expect("small")).expect("small")
    }

    fn words(&mut self, most: usize) -> String {
        const WORDS: [&str; 10] =
            ["job", "<b>", "a&b", "waiting", "record.retryCount", "\"said\"", "WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW", "を待つ", "]]>", "x"];
        let count = self.next(most + 1);
        (0..count).map(|_| WORDS[self.next(WORDS.len())]).collect::<Vec<_>>().join(" ")
    }
}

/// Any shape that the types allow, sensible or not.
pub(super) fn random(seed: u64, states: usize, rows: usize) -> Lifecycle {
    const EVENTS: [&str; 12] =
        ["create", "lease", "commit", "finish", "fail", "time", "enter", "cancel", "submit", "edit", "approve", "x"];
    let mut dice = Dice(seed);
    let mut out = empty(&format!("random.{seed}"), &dice.words(20));
    for ix in 0..states {
        let mut state = state(&format!("S{ix}{}", dice.words(1)), &dice.words(12));
        match dice.next(6) {
            0 => state.ready = Ready::Yes,
            1 => state.rest = true,
            2 => state.is_final = true,
            3 => state.reserved = dice.next(3) == 0,
            _ => {}
        }
        out.states.push(state);
    }
    out.events = EVENTS.iter().map(|name| event(name, Vec::new())).collect();
    for _ in 0..rows {
        let at = dice.next(EVENTS.len());
        let mut any = || u8::try_from(dice.next(states)).expect("at most 64 states");
        let from = if at == 0 { StateSet::default() } else { [any(), any(), any()].into_iter().collect() };
        let to = Some(any());
        let mut row = row(from, if at != 0 && dice.next(4) == 0 { None } else { to });
        if dice.next(2) == 0 {
            row.when = Some(formula(&dice.words(12)));
        }
        if dice.next(3) == 0 {
            row.by = vec![By::Owner, By::Record, By::Who(9)][..=dice.next(3)].to_vec();
        }
        if at == 5 {
            row.timing = Some(if dice.next(2) == 0 { Timing::After(formula("1s")) } else { Timing::At(3) });
        }
        if dice.next(4) == 0 {
            row.moves.push(money("hold", &dice.words(3), Amount::Rest));
        }
        out.events[at].rows.push(row);
    }
    out
}
