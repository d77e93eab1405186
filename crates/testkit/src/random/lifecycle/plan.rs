//! What a random lifecycle consists of, before any row is written.

use crate::random::Chance;

/// What the generator is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Taste {
    /// How many files out of a hundred are written carelessly: rows that may fault, be refused or lead nowhere.
    pub wild: u64,
    /// `jitter` hashes the record's id, which a test that compares two ids cannot have.
    pub jitter: bool,
}

impl Default for Taste {
    fn default() -> Self {
        Self { wild: 35, jitter: true }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Rest,
    Timed,
    Ready,
    Leased,
    Final,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Behind the commit: no way leads back to a ready state.
    pub(super) late: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each says whether one field is declared")]
pub(super) struct Fields {
    pub(super) bounded: bool,
    pub(super) flag: bool,
    pub(super) colour: bool,
    pub(super) maybe: bool,
    pub(super) moment: bool,
    pub(super) word: bool,
    pub(super) note: bool,
    pub(super) delay: bool,
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is one decision of the author")]
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) index: usize,
    pub(super) states: Vec<State>,
    pub(super) fields: Fields,
    pub(super) work: bool,
    /// `[work] result` is typed.
    pub(super) result: bool,
    pub(super) money: bool,
    pub(super) keyed: bool,
    pub(super) unique: Option<Unique>,
    pub(super) limit: Option<Limit>,
    pub(super) check: bool,
    /// Points to a lifecycle of this number (`other`), which calls the way back `kids`.
    pub(super) other: Option<usize>,
    /// A list of refs (`many`), to this lifecycle.
    pub(super) many: Option<usize>,
    /// A lookup by natural key (`refs.me`), of this lifecycle.
    pub(super) lookup: Option<usize>,
    pub(super) events: Vec<String>,
    /// Creation cannot be refused, so that engine-fired rows may spawn it.
    pub(super) tame: bool,
    pub(super) ready_from: bool,
    pub(super) payload: bool,
    pub(super) open: bool,
    /// Chance in a hundred that a part of a row is written carelessly.
    pub(super) careless: u64,
    pub(super) jitter: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Unique {
    pub(super) returns: bool,
    pub(super) within: bool,
    pub(super) by_owner: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Within,
    Per,
    Ever,
}

impl Plan {
    pub(super) fn of(&self, kind: Kind) -> Vec<&State> {
        self.states.iter().filter(|state| state.kind == kind).collect()
    }

    pub(super) fn living(&self) -> Vec<&State> {
        self.states.iter().filter(|state| state.kind != Kind::Final).collect()
    }
}

const NAMES: [&str; 3] = ["rnd.a", "rnd.b", "rnd.c"];

pub(super) fn plans(chance: &mut Chance, taste: Taste) -> Vec<Plan> {
    let count = 1 + chance.below(NAMES.len());
    let careless = if chance.yes(taste.wild) { 8 } else { 0 };
    let mut plans: Vec<Plan> = Vec::with_capacity(count);
    for (index, name) in NAMES.iter().take(count).enumerate() {
        plans.push(plan(chance, name, index, count, careless, taste.jitter));
    }
    let keyed: Vec<usize> = plans.iter().filter(|plan| plan.keyed).map(|plan| plan.index).collect();
    for plan in &mut plans {
        plan.lookup = keyed.first().copied().filter(|_| chance.yes(40));
    }
    plans
}

fn plan(chance: &mut Chance, name: &str, index: usize, count: usize, careless: u64, jitter: bool) -> Plan {
    let tiny = chance.yes(20);
    let work = chance.yes(70);
    let tame = index > 0 && chance.yes(70);
    let moment = chance.yes(60);
    Plan {
        name: name.to_owned(),
        index,
        states: states(chance, work, tiny),
        fields: Fields {
            bounded: chance.yes(70),
            flag: chance.yes(70),
            colour: chance.yes(60),
            maybe: chance.yes(60),
            moment,
            word: chance.yes(70),
            note: chance.yes(50),
            delay: chance.yes(40),
        },
        work,
        result: chance.yes(60),
        money: chance.yes(50),
        keyed: !tame && chance.yes(25),
        unique: (!tame && chance.yes(50)).then(|| Unique {
            returns: chance.yes(50),
            within: chance.yes(60),
            by_owner: chance.yes(50),
        }),
        limit: (!tame && chance.yes(45)).then(|| match chance.below(3) {
            0 => Limit::Per,
            1 => Limit::Ever,
            _ => Limit::Within,
        }),
        check: chance.yes(30),
        other: (count > 1 || chance.yes(30)).then(|| chance.below(count)),
        many: chance.yes(20).then(|| chance.below(count)),
        lookup: None,
        events: (0..if tiny { 1 } else { 1 + chance.below(4) }).map(|number| format!("ev{number}")).collect(),
        tame,
        ready_from: moment && chance.yes(40),
        payload: index == 0 && chance.yes(15),
        open: chance.yes(65),
        careless,
        jitter,
    }
}

fn states(chance: &mut Chance, work: bool, tiny: bool) -> Vec<State> {
    let mut states = Vec::new();
    let mut add = |name: String, kind, late| states.push(State { name, kind, late });
    let some = |chance: &mut Chance, most: usize| if tiny { 0 } else { chance.below(most + 1) };
    for number in 0..some(chance, 2) {
        add(format!("rest{number}"), Kind::Rest, false);
    }
    if work {
        add("queued".to_owned(), Kind::Ready, false);
        add("running".to_owned(), Kind::Leased, false);
        if !tiny && chance.yes(30) {
            add("running1".to_owned(), Kind::Leased, false);
        }
    }
    for number in 0..some(chance, 2) {
        add(format!("wait{number}"), Kind::Timed, false);
    }
    if !work && tiny {
        add("rest0".to_owned(), Kind::Rest, false);
    }
    for number in 0..some(chance, 2) {
        add(format!("late{number}"), if chance.yes(50) { Kind::Rest } else { Kind::Timed }, true);
    }
    for number in 0..=chance.below(if tiny { 1 } else { 3 }) {
        add(format!("END{number}"), Kind::Final, true);
    }
    states
}
