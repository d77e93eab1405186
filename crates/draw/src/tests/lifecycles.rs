//! Lifecycles to draw: compiled from files, built by hand, or random.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use onceward_core::compile::compile;
use onceward_core::diagnostic::{InputFile, InputFiles, Span};
use onceward_core::expr::{Expr, ExprKind};
use onceward_core::model::{
    AccountRef, AccountTemplate, AllowedCaller, ClockSource, DataType, ErrorTable, EventDef, EventKind, Formula,
    Lifecycle, PayloadBounds, StateDef, StateReadiness, StateSet, TimerSpec, TransferAction, TransferAmount,
    Transition, ValueType,
};
use onceward_core::value::Value;

/// Loads every lifecycle of the five systems. `directory` has one subdirectory per system.
pub(super) fn load_systems(directory: &Path) -> Vec<Arc<Lifecycle>> {
    let mut out = Vec::new();
    for system in sorted_children(directory).into_iter().filter(|path| path.is_dir()) {
        let files = sorted_children(&system).into_iter().filter(|path| path.extension().is_some_and(|it| it == "toml"));
        let files = files.filter(|path| path.file_name().is_some_and(|name| name != "Cargo.toml"));
        let files = files.map(|path| InputFile {
            name: path.display().to_string(),
            text: std::fs::read_to_string(&path).expect("a readable file").into(),
        });
        let compiled = compile(&InputFiles { files: files.collect() });
        let definitions = compiled.definitions.unwrap_or_else(|| panic!("{:#?}", compiled.diagnostics));
        out.extend(definitions.lifecycles.into_values());
    }
    out.sort_by(|a, b| a.name.cmp(&b.name));
    // Every system includes the built-in lifecycles.
    out.dedup_by(|a, b| a.name == b.name);
    out
}

fn sorted_children(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

pub(super) fn shipped_lifecycles() -> Vec<Arc<Lifecycle>> {
    static SHIPPED_LIFECYCLES: LazyLock<Vec<Arc<Lifecycle>>> =
        LazyLock::new(|| load_systems(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems")));
    SHIPPED_LIFECYCLES.clone()
}

pub(super) fn shipped_lifecycle(name: &str) -> Arc<Lifecycle> {
    shipped_lifecycles().into_iter().find(|lifecycle| *lifecycle.name == *name).expect("a known lifecycle")
}

pub(super) fn null_formula(text: &str) -> Formula {
    let typed = ValueType { ty: DataType::Null, nullable: true };
    let expr = Expr { kind: ExprKind::Const(Value::Null), value_type: typed, span: Span::default() };
    Formula { expr, text: text.into() }
}

pub(super) fn empty_lifecycle(name: &str, about: &str) -> Lifecycle {
    Lifecycle {
        name: name.into(),
        about: about.into(),
        hash: "".into(),
        natural_key: None,
        asset: None,
        outside_accounts: Vec::new(),
        outside_account_spans: Vec::new(),
        clock: ClockSource::Engine,
        states: Vec::new(),
        fields: Vec::new(),
        links: Vec::new(),
        unique_constraints: Vec::new(),
        limits: Vec::new(),
        work: None,
        errors: ErrorTable::default(),
        checks: Vec::new(),
        lookups: Vec::new(),
        caller_predicates: Vec::new(),
        allowed_readers: Vec::new(),
        payload_bounds: PayloadBounds { min_bytes: 0, max_bytes: 0 },
        events: Vec::new(),
    }
}

pub(super) fn plain_state(name: &str, about: &str) -> StateDef {
    StateDef {
        name: name.into(),
        about: about.into(),
        readiness: StateReadiness::NotReady,
        is_final: false,
        can_rest: false,
        is_reserved: false,
        is_kept: false,
        rules: Vec::new(),
        span: Span::default(),
    }
}

pub(super) fn transition(from: StateSet, to: Option<u8>) -> Transition {
    Transition {
        from,
        to,
        by: Vec::new(),
        when: None,
        refuse: Vec::new(),
        inputs: Vec::new(),
        set: Vec::new(),
        transfers: Vec::new(),
        spawn: Vec::new(),
        require: Vec::new(),
        cascade: Vec::new(),
        deliver: Vec::new(),
        timer: None,
        forever_span: None,
        audit: None,
        rules: Vec::new(),
        checks: Vec::new(),
        span: Span::default(),
        header_line: 0,
    }
}

pub(super) fn event_with(name: &str, rows: Vec<Transition>) -> EventDef {
    EventDef { name: name.into(), kind: EventKind::from_name(name), transitions: rows }
}

pub(super) fn transfer(from: &str, to: &str, amount: TransferAmount) -> TransferAction {
    let account = |name: &str| match name {
        "hold" => AccountRef::Hold,
        name => AccountRef::Named(AccountTemplate { parts: Vec::new(), text: name.into() }),
    };
    TransferAction { from: account(from), to: account(to), amount, shortage_refusal: None, span: Span::default() }
}

/// Deterministic random numbers, so that a failing diagram can be reproduced.
pub(super) struct TestRng(pub(super) u64);

impl TestRng {
    pub(super) fn next_below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % u64::try_from(below.max(1)).expect("small")).expect("small")
    }

    fn random_words(&mut self, max_words: usize) -> String {
        const SAMPLE_WORDS: [&str; 10] = [
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
        let count = self.next_below(max_words + 1);
        (0..count).map(|_| SAMPLE_WORDS[self.next_below(SAMPLE_WORDS.len())]).collect::<Vec<_>>().join(" ")
    }
}

/// Returns any lifecycle that the types allow, whether it makes sense or not.
pub(super) fn random_lifecycle(seed: u64, states: usize, transitions: usize) -> Lifecycle {
    const EVENT_NAMES: [&str; 12] =
        ["create", "lease", "commit", "finish", "fail", "time", "enter", "cancel", "submit", "edit", "approve", "x"];
    let mut rng = TestRng(seed);
    let mut out = empty_lifecycle(&format!("random.{seed}"), &rng.random_words(20));
    for ix in 0..states {
        let mut state = plain_state(&format!("S{ix}{}", rng.random_words(1)), &rng.random_words(12));
        match rng.next_below(6) {
            0 => state.readiness = StateReadiness::Immediate,
            1 => state.can_rest = true,
            2 => state.is_final = true,
            3 => state.is_reserved = rng.next_below(3) == 0,
            _ => {}
        }
        out.states.push(state);
    }
    out.events = EVENT_NAMES.iter().map(|name| event_with(name, Vec::new())).collect();
    for _ in 0..transitions {
        let at = rng.next_below(EVENT_NAMES.len());
        let mut any = || u8::try_from(rng.next_below(states)).expect("at most 64 states");
        let from = if at == 0 { StateSet::default() } else { [any(), any(), any()].into_iter().collect() };
        let to = Some(any());
        let mut row = transition(from, if at != 0 && rng.next_below(4) == 0 { None } else { to });
        if rng.next_below(2) == 0 {
            row.when = Some(null_formula(&rng.random_words(12)));
        }
        if rng.next_below(3) == 0 {
            row.by = vec![AllowedCaller::Owner, AllowedCaller::Record, AllowedCaller::Predicate(9)]
                [..=rng.next_below(3)]
                .to_vec();
        }
        if at == 5 {
            row.timer = Some(if rng.next_below(2) == 0 {
                TimerSpec::AfterEntering(null_formula("1s"))
            } else {
                TimerSpec::AtField(3)
            });
        }
        if rng.next_below(4) == 0 {
            row.transfers.push(transfer("hold", &rng.random_words(3), TransferAmount::Rest));
        }
        out.events[at].transitions.push(row);
    }
    out
}
