//! Compiled lifecycles, and sets of lifecycles that refer to each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use super::data::FieldDef;
use super::transition::{AllowedCaller, Formula, Transition};
use crate::diagnostic::Span;
use crate::expr::{ActorPart, BinaryOperator, ExprKind, PathRoot, ValuePath, walk};
use crate::suggest;
use crate::time::Duration;
use crate::value::Value;

/// Index of a state in its lifecycle.
pub type StateIndex = u8;
/// Index of a field in its lifecycle.
pub type FieldIndex = u16;

/// A set of states of one lifecycle, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct StateSet(pub u64);

impl StateSet {
    pub const fn contains(self, state: StateIndex) -> bool {
        self.0 >> state & 1 == 1
    }

    pub const fn with(self, state: StateIndex) -> Self {
        Self(self.0 | 1 << state)
    }

    pub fn iter(self) -> impl Iterator<Item = StateIndex> {
        (0..64).filter(move |state| self.contains(*state))
    }
}

impl FromIterator<StateIndex> for StateSet {
    fn from_iter<I: IntoIterator<Item = StateIndex>>(states: I) -> Self {
        states.into_iter().fold(Self::default(), Self::with)
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Lifecycle {
    pub name: Arc<str>,
    #[serde(skip)]
    pub about: Arc<str>,
    /// SHA-256 of the compiled form, in hex. Identifies the version of the lifecycle.
    #[serde(skip)]
    pub hash: Arc<str>,
    /// Field of the natural key. `unique_constraints` contains it too, as the permanent constraint `key`.
    pub natural_key: Option<FieldIndex>,
    pub asset: Option<Arc<str>>,
    /// Accounts that represent the outside world and may have negative balances.
    pub outside_accounts: Vec<Arc<str>>,
    /// Spans of their declarations.
    #[serde(skip)]
    pub outside_account_spans: Vec<Span>,
    pub clock: ClockSource,
    pub states: Vec<StateDef>,
    pub fields: Vec<FieldDef>,
    pub links: Vec<LinkDef>,
    pub unique_constraints: Vec<UniqueConstraint>,
    pub limits: Vec<CountLimit>,
    pub work: Option<WorkPolicy>,
    pub errors: ErrorTable,
    pub checks: Vec<ExternalCheck>,
    /// `[refs]`.
    pub lookups: Vec<RecordLookup>,
    pub caller_predicates: Vec<CallerPredicate>,
    /// `[access]`: callers that may read.
    pub allowed_readers: Vec<AllowedReader>,
    pub payload_bounds: PayloadBounds,
    /// In file order of their first transitions.
    pub events: Vec<EventDef>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ClockSource {
    /// The engine's clock.
    Engine,
    /// The clock of the operation, in a fold over a signed log. No timers, no leases.
    Operation,
}

#[derive(Clone, Debug, Serialize)]
#[allow(clippy::struct_excessive_bools, reason = "each is a key of the file")]
pub struct StateDef {
    pub name: Arc<str>,
    #[serde(skip)]
    pub about: Arc<str>,
    pub readiness: StateReadiness,
    pub is_final: bool,
    pub can_rest: bool,
    pub is_reserved: bool,
    /// `keep`: retention never deletes a record in this state. Outside the version hash, so that adding it protects
    /// existing records.
    #[serde(skip)]
    pub is_kept: bool,
    #[serde(skip)]
    pub rules: Vec<Arc<str>>,
    #[serde(skip)]
    pub span: Span,
}

/// Whether workers may lease a record in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum StateReadiness {
    NotReady,
    Immediate,
    /// From the time in this field on; immediately if it is null.
    FromField(FieldIndex),
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
    /// Fired by name: by a caller, a worker or another record.
    Called,
}

impl EventKind {
    pub fn from_name(name: &str) -> Self {
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
pub struct EventDef {
    pub name: Arc<str>,
    pub kind: EventKind,
    /// Tried in order.
    pub transitions: Vec<Transition>,
}

/// A named set of records that refer to this one.
#[derive(Clone, Debug, Serialize)]
pub struct LinkDef {
    pub name: Arc<str>,
    pub sources: Vec<LinkSource>,
    /// Required if expressions read the link.
    pub max: Option<u32>,
    #[serde(skip)]
    pub span: Span,
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
    Field(FieldIndex),
}

#[derive(Clone, Debug, Serialize)]
pub struct UniqueConstraint {
    pub name: Arc<str>,
    pub on: Vec<KeyPart>,
    /// States in which the key is claimed; `None`: permanently.
    pub in_states: Option<StateSet>,
    pub on_duplicate: DuplicatePolicy,
    #[serde(skip)]
    pub rules: Vec<Arc<str>>,
    #[serde(skip)]
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum DuplicatePolicy {
    /// Reply with the record that holds the key.
    ReturnExisting,
    Refuse {
        status: u16,
        code: Arc<str>,
    },
}

#[derive(Clone, Debug, Serialize)]
pub struct CountLimit {
    pub name: Arc<str>,
    pub on: Vec<KeyPart>,
    /// Counts records that are now in these states; `None`: all records ever created.
    pub in_states: Option<StateSet>,
    /// Counts creations in fixed, epoch-aligned windows of this length.
    pub window: Option<Duration>,
    pub max: Formula,
    pub status: u16,
    pub code: Arc<str>,
    #[serde(skip)]
    pub rules: Vec<Arc<str>>,
    #[serde(skip)]
    pub span: Span,
}

#[derive(Clone, Debug, Serialize)]
pub struct WorkPolicy {
    pub lease_duration: Duration,
    /// Fields of a commit's result. `None`: any JSON, stored with the effect and not readable by expressions.
    pub result: Option<Vec<FieldDef>>,
    /// If true, the heartbeat's reply asks the worker to stop.
    pub stop_condition: Option<Formula>,
    /// Higher goes first; 0 if absent.
    pub priority: Option<Formula>,
    pub concurrency: Option<ConcurrencyPolicy>,
    #[serde(skip)]
    pub rules: Vec<Arc<str>>,
    #[serde(skip)]
    pub span: Span,
}

#[derive(Clone, Debug, Serialize)]
pub struct ConcurrencyPolicy {
    /// If a part is null, the job has no concurrency key.
    pub on: Vec<KeyPart>,
    /// Most running jobs per key.
    pub limit: Option<u32>,
    /// A job is not leasable while an older job of its key is unfinished.
    pub ordered: bool,
}

/// Failure codes that the lifecycle classifies. For all other codes, the worker's report decides.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ErrorTable {
    pub retryable: Vec<Arc<str>>,
    pub terminal: Vec<Arc<str>>,
    #[serde(skip)]
    pub rules: Vec<Arc<str>>,
}

/// A declared check against an outside service (`[checks]`).
#[derive(Clone, Debug, Serialize)]
pub struct ExternalCheck {
    pub name: Arc<str>,
    /// The query carries the record's payload.
    pub sends_payload: bool,
    pub arguments: Vec<(Arc<str>, Formula)>,
    pub answer_fields: Vec<FieldDef>,
    #[serde(skip)]
    pub rules: Vec<Arc<str>>,
    #[serde(skip)]
    pub span: Span,
}

/// An entry of `[refs]`: finds a record by its natural key.
#[derive(Clone, Debug, Serialize)]
pub struct RecordLookup {
    pub name: Arc<str>,
    pub lifecycle: Arc<str>,
    pub natural_key: Formula,
    #[serde(skip)]
    pub span: Span,
}

#[derive(Clone, Debug, Serialize)]
pub struct CallerPredicate {
    pub name: Arc<str>,
    pub condition: Formula,
    #[serde(skip)]
    pub rules: Vec<Arc<str>>,
    #[serde(skip)]
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum AllowedReader {
    Anyone,
    Caller(AllowedCaller),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PayloadBounds {
    /// At least 1 makes the payload mandatory.
    pub min_bytes: u64,
    pub max_bytes: u64,
}

impl Lifecycle {
    pub fn state_index(&self, name: &str) -> Option<StateIndex> {
        self.states.iter().position(|state| *state.name == *name).and_then(|index| u8::try_from(index).ok())
    }

    pub fn field_index(&self, name: &str) -> Option<FieldIndex> {
        self.fields.iter().position(|field| *field.name == *name).and_then(|index| u16::try_from(index).ok())
    }

    pub fn event(&self, name: &str) -> Option<&EventDef> {
        self.events.iter().find(|event| *event.name == *name)
    }

    /// Returns the roles that the lifecycle tests, as in `'moderator' in actor.roles`: in `[who]`, guards, refusals or
    /// `set`.
    pub fn referenced_roles(&self) -> BTreeSet<Arc<str>> {
        let mut roles = BTreeSet::new();
        let mut formulas: Vec<&Formula> = self.caller_predicates.iter().map(|who| &who.condition).collect();
        for transition in self.events.iter().flat_map(|event| &event.transitions) {
            formulas.extend(&transition.when);
            formulas.extend(transition.refuse.iter().map(|refuse| &refuse.condition));
            formulas.extend(transition.set.iter().map(|(_, formula)| formula));
        }
        for formula in formulas {
            walk(&formula.expr, &mut |part| {
                if let ExprKind::Binary(BinaryOperator::In, role, list) = &part.kind
                    && let ExprKind::Const(Value::Text(role)) = &role.kind
                    && let ExprKind::Read(ValuePath { root: PathRoot::Actor(ActorPart::Roles), .. }) = &list.kind
                {
                    roles.insert(Arc::clone(role));
                }
            });
        }
        roles
    }

    /// Returns the transitions of one of the engine's own events.
    pub fn transitions(&self, kind: EventKind) -> &[Transition] {
        self.events.iter().find(|event| event.kind == kind).map_or(&[], |event| &event.transitions)
    }
}

/// A set of lifecycles that may refer to each other: the current version of each, by name.
#[derive(Clone, Debug, Default)]
pub struct Definitions {
    pub lifecycles: BTreeMap<Arc<str>, Arc<Lifecycle>>,
    /// All versions by hash, current or not, if there are several. Targets of version migrations.
    pub versions: BTreeMap<Arc<str>, Arc<Lifecycle>>,
}

impl Definitions {
    pub fn get(&self, name: &str) -> Option<&Arc<Lifecycle>> {
        self.lifecycles.get(name)
    }

    /// Returns the error message for an unknown lifecycle name.
    pub fn unknown_lifecycle_message(&self, name: &str) -> String {
        let known = self.lifecycles.keys().map(|known| &**known).filter(|known| !known.starts_with("onceward."));
        format!("there is no lifecycle `{name}`; {}", suggest::suggestion_text(0, name, "known lifecycles", known))
    }

    /// Finds a version by its hash, current or not.
    pub fn find_version(&self, hash: &str) -> Option<&Arc<Lifecycle>> {
        self.versions.get(hash).or_else(|| self.lifecycles.values().find(|lifecycle| *lifecycle.hash == *hash))
    }

    /// Whether the account may have a negative balance: some lifecycle of its asset declares it as `outside`.
    pub fn is_outside_account(&self, asset: &str, account: &str) -> bool {
        self.lifecycles.values().any(|lifecycle| {
            lifecycle.asset.as_deref() == Some(asset)
                && lifecycle.outside_accounts.iter().any(|name| **name == *account)
        })
    }
}
