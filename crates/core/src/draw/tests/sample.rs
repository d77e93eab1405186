//! Lifecycles to draw: compiled from files, built by hand, or random.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use crate::compile::compile;
use crate::diagnostic::{File, Files, Span};
use crate::expr::{Expr, Kind};
use crate::model::{
    AccountRef, Amount, By, Clock, ErrorTable, Event, EventKind, Formula, Lifecycle, Move, PayloadBounds, Ready, Row,
    State, StateSet, Template, Timing, Type, Typed,
};
use crate::value::Value;

/// Every lifecycle of the five systems, from the directory that holds one directory for each.
pub(super) fn systems(directory: &Path) -> Vec<Arc<Lifecycle>> {
    let mut out = Vec::new();
    for system in children(directory).into_iter().filter(|path| path.is_dir()) {
        let files = children(&system).into_iter().filter(|path| path.extension().is_some_and(|it| it == "toml"));
        let files = files.filter(|path| path.file_name().is_some_and(|name| name != "Cargo.toml"));
        let files = files.map(|path| File {
            name: path.display().to_string(),
            text: std::fs::read_to_string(&path).expect("a readable file").into(),
        });
        let compiled = compile(&Files { files: files.collect() });
        let definitions = compiled.definitions.unwrap_or_else(|| panic!("{:#?}", compiled.diagnostics));
        out.extend(definitions.lifecycles.into_values());
    }
    out.sort_by(|a, b| a.name.cmp(&b.name));
    // The built-in ones come with each system.
    out.dedup_by(|a, b| a.name == b.name);
    out
}

fn children(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

pub(super) fn shipped() -> Vec<Arc<Lifecycle>> {
    static ONCE: LazyLock<Vec<Arc<Lifecycle>>> =
        LazyLock::new(|| systems(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems")));
    ONCE.clone()
}

pub(super) fn one(name: &str) -> Arc<Lifecycle> {
    shipped().into_iter().find(|lifecycle| *lifecycle.name == *name).expect("a known lifecycle")
}

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
        outside_at: Vec::new(),
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
        forever: None,
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

pub(super) fn money(from: &str, to: &str, amount: Amount) -> Move {
    let account = |name: &str| match name {
        "hold" => AccountRef::Hold,
        name => AccountRef::Named(Template { parts: Vec::new(), text: name.into() }),
    };
    Move { from: account(from), to: account(to), amount, short: None, at: Span::default() }
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
        const WORDS: [&str; 10] = [
            "job",
            "<b>",
            "a&b",
            "waiting",
            "record.retryCount",
            "\"said\"",
            "WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW",
            "を待つ",
            "]]>",
            "x",
        ];
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
