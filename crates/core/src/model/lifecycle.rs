//! A whole lifecycle, and the set of lifecycles that know each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use super::data::Field;
use super::row::{By, Formula, Row};
use crate::diagnostic::Span;
use crate::expr::{ActorPart, Binary, Kind, Path, Root, walk};
use crate::near;
use crate::time::Duration;
use crate::value::Value;

/// Number of a state within its lifecycle.
pub type StateIx = u8;
/// Number of a field within its lifecycle.
pub type Slot = u16;

/// A set of states of one lifecycle: one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct StateSet(pub u64);

impl StateSet {
    pub const fn contains(self, state: StateIx) -> bool {
        self.0 >> state & 1 == 1
    }

    pub const fn with(self, state: StateIx) -> Self {
        Self(self.0 | 1 << state)
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = StateIx> {
        (0..64).filter(move |state| self.contains(*state))
    }
}

impl FromIterator<StateIx> for StateSet {
    fn from_iter<I: IntoIterator<Item = StateIx>>(states: I) -> Self {
        states.into_iter().fold(Self::default(), Self::with)
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Lifecycle {
    pub name: Arc<str>,
    #[serde(skip)]
    pub about: Arc<str>,
    /// SHA-256 of the compiled form, in hex; what a record's version of its lifecycle is known by.
    #[serde(skip)]
    pub hash: Arc<str>,
    /// The field that is its natural key. Also stands as the permanent unique `key` in `uniques`.
    pub key: Option<Slot>,
    pub asset: Option<Arc<str>>,
    /// Accounts that stand for the world and may go below zero.
    pub outside: Vec<Arc<str>>,
    /// Where each of them is declared.
    #[serde(skip)]
    pub outside_at: Vec<Span>,
    pub clock: Clock,
    pub states: Vec<State>,
    pub fields: Vec<Field>,
    pub links: Vec<Link>,
    pub uniques: Vec<Unique>,
    pub limits: Vec<Limit>,
    pub work: Option<Work>,
    pub errors: ErrorTable,
    pub checks: Vec<Check>,
    /// `[refs]`.
    pub lookups: Vec<Lookup>,
    pub who: Vec<Who>,
    /// `[access]`: who may read.
    pub access: Vec<Access>,
    pub payload: PayloadBounds,
    /// In file order of their first rows.
    pub events: Vec<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Clock {
    /// The engine's.
    Engine,
    /// The operation's own: a fold over a signed log. No timers, no leases.
    Operation,
}

#[derive(Clone, Debug, Serialize)]
pub struct State {
    pub name: Arc<str>,
    #[serde(skip)]
    pub about: Arc<str>,
    pub ready: Ready,
    pub is_final: bool,
    pub rest: bool,
    pub reserved: bool,
    #[serde(skip)]
    pub rules: Vec<Arc<str>>,
    #[serde(skip)]
    pub at: Span,
}

/// Whether workers may lease a record in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Ready {
    No,
    Yes,
    /// From the time in this field on; at once where it is null.
    From(Slot),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum EventKind {
    Create,
    Lease,
    Commit,
    Finish,
    Fail,
    Time,
    Enter,
    /// By name: by a caller, a worker or another record.
    Called,
}

impl EventKind {
    pub fn of(name: &str) -> Self {
        match name {
            "create" => Self::Create,
            "lease" => Self::Lease,
            "commit" => Self::Commit,
            "finish" => Self::Finish,
            "fail" => Self::Fail,
            "time" => Self::Time,
            "enter" => Self::Enter,
            _ => Self::Called,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Event {
    pub name: Arc<str>,
    pub kind: EventKind,
    /// Tried in order.
    pub rows: Vec<Row>,
}

/// A named set of records that point here.
#[derive(Clone, Debug, Serialize)]
pub struct Link {
    pub name: Arc<str>,
    pub from: Vec<LinkSource>,
    /// Needed where expressions read the link.
    pub max: Option<u32>,
    #[serde(skip)]
    pub at: Span,
}

/// The `ref` or `refs` field at the other end of a link.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct LinkSource {
    pub lifecycle: Arc<str>,
    pub field: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum KeyPart {
    Owner,
    Field(Slot),
}

#[derive(Clone, Debug, Serialize)]
pub struct Unique {
    pub name: Arc<str>,
    pub on: Vec<KeyPart>,
    /// Only among these states; `None`: for ever.
    pub within: Option<StateSet>,
    pub clash: Clash,
    #[serde(skip)]
    pub rules: Vec<Arc<str>>,
    #[serde(skip)]
    pub at: Span,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Clash {
    /// Answer with the record that holds the key.
    Return,
    Refuse {
        status: u16,
        code: Arc<str>,
    },
}

#[derive(Clone, Debug, Serialize)]
pub struct Limit {
    pub name: Arc<str>,
    pub on: Vec<KeyPart>,
    /// Count the records now in these states; `None`: all ever made.
    pub within: Option<StateSet>,
    /// Count creations in fixed, epoch-aligned windows of this length.
    pub per: Option<Duration>,
    pub max: Formula,
    pub status: u16,
    pub code: Arc<str>,
    #[serde(skip)]
    pub rules: Vec<Arc<str>>,
    #[serde(skip)]
    pub at: Span,
}

#[derive(Clone, Debug, Serialize)]
pub struct Work {
    pub lease: Duration,
    /// What a commit brings; `None`: anything, kept with the effect and read by no expression.
    pub result: Option<Vec<Field>>,
    /// Asks the worker to stop, in the heartbeat's answer.
    pub stop: Option<Formula>,
    /// Larger goes first; 0 where absent.
    pub priority: Option<Formula>,
    pub key: Option<WorkKey>,
    #[serde(skip)]
    pub rules: Vec<Arc<str>>,
    #[serde(skip)]
    pub at: Span,
}

#[derive(Clone, Debug, Serialize)]
pub struct WorkKey {
    /// A null part means no key.
    pub on: Vec<KeyPart>,
    /// At most so many running per key.
    pub limit: Option<u32>,
    /// Not leasable while an older job of its key is unfinished.
    pub ordered: bool,
}

/// Which error codes the lifecycle classes itself; a worker's word counts for the rest.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ErrorTable {
    pub retryable: Vec<Arc<str>>,
    pub terminal: Vec<Arc<str>>,
    #[serde(skip)]
    pub rules: Vec<Arc<str>>,
}

/// A question to the outside.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    pub name: Arc<str>,
    /// The record's payload goes with the question.
    pub payload: bool,
    pub ask: Vec<(Arc<str>, Formula)>,
    pub answer: Vec<Field>,
    #[serde(skip)]
    pub rules: Vec<Arc<str>>,
    #[serde(skip)]
    pub at: Span,
}

/// `[refs]`: a record found by its natural key.
#[derive(Clone, Debug, Serialize)]
pub struct Lookup {
    pub name: Arc<str>,
    pub lifecycle: Arc<str>,
    pub key: Formula,
    #[serde(skip)]
    pub at: Span,
}

#[derive(Clone, Debug, Serialize)]
pub struct Who {
    pub name: Arc<str>,
    pub formula: Formula,
    #[serde(skip)]
    pub rules: Vec<Arc<str>>,
    #[serde(skip)]
    pub at: Span,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Access {
    Anyone,
    By(By),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PayloadBounds {
    /// At least one byte means that a payload must come.
    pub min: u64,
    pub max: u64,
}

impl Lifecycle {
    pub fn state(&self, name: &str) -> Option<StateIx> {
        self.states.iter().position(|state| *state.name == *name).and_then(|at| u8::try_from(at).ok())
    }

    pub fn field(&self, name: &str) -> Option<Slot> {
        self.fields.iter().position(|field| *field.name == *name).and_then(|at| u16::try_from(at).ok())
    }

    pub fn event(&self, name: &str) -> Option<&Event> {
        self.events.iter().find(|event| *event.name == *name)
    }

    /// The roles that it asks for, as in `'moderator' in actor.roles`: in its `[who]`, or in what its rows set.
    pub fn roles(&self) -> BTreeSet<Arc<str>> {
        let mut roles = BTreeSet::new();
        let mut formulas: Vec<&Formula> = self.who.iter().map(|who| &who.formula).collect();
        for row in self.events.iter().flat_map(|event| &event.rows) {
            formulas.extend(&row.when);
            formulas.extend(row.refuse.iter().map(|refuse| &refuse.condition));
            formulas.extend(row.set.iter().map(|(_, formula)| formula));
        }
        for formula in formulas {
            walk(&formula.expr, &mut |part| {
                if let Kind::Binary(Binary::In, role, list) = &part.kind
                    && let Kind::Const(Value::Text(role)) = &role.kind
                    && let Kind::Read(Path { root: Root::Actor(ActorPart::Roles), .. }) = &list.kind
                {
                    roles.insert(Arc::clone(role));
                }
            });
        }
        roles
    }

    /// The rows of one of the engine's own events.
    pub fn rows(&self, kind: EventKind) -> &[Row] {
        self.events.iter().find(|event| event.kind == kind).map_or(&[], |event| &event.rows)
    }
}

/// The lifecycles that know each other, by name: the current version of each.
#[derive(Clone, Debug, Default)]
pub struct Definitions {
    pub lifecycles: BTreeMap<Arc<str>, Arc<Lifecycle>>,
    /// Every version by its hash, current or not, where there are several: what a record may be moved to.
    pub versions: BTreeMap<Arc<str>, Arc<Lifecycle>>,
}

impl Definitions {
    pub fn get(&self, name: &str) -> Option<&Arc<Lifecycle>> {
        self.lifecycles.get(name)
    }

    /// What somebody is told who named a lifecycle that is not among these.
    pub fn no_lifecycle(&self, name: &str) -> String {
        let known = self.lifecycles.keys().map(|known| &**known).filter(|known| !known.starts_with("onceward."));
        format!("there is no lifecycle `{name}`; {}", near::advice(0, name, "lifecycles", known))
    }

    /// A version by its hash, current or not.
    pub fn version(&self, hash: &str) -> Option<&Arc<Lifecycle>> {
        self.versions.get(hash).or_else(|| self.lifecycles.values().find(|lifecycle| *lifecycle.hash == *hash))
    }

    /// Whether an account may go below zero: some lifecycle of its asset says that it stands for the world.
    pub fn is_outside(&self, asset: &str, account: &str) -> bool {
        self.lifecycles.values().any(|lifecycle| {
            lifecycle.asset.as_deref() == Some(asset) && lifecycle.outside.iter().any(|name| **name == *account)
        })
    }
}
