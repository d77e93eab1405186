//! The compiled form of a lifecycle: names resolved to indexes, expressions typed. `decide` runs on it, the crate
//! `onceward-draw` draws it, and a lifecycle's hash covers it.

mod data;
mod lifecycle;
mod transition;

pub use data::{DataType, FieldBounds, FieldDef, ValueType};
pub use lifecycle::{
    AllowedReader, CallerPredicate, ClockSource, ConcurrencyPolicy, CountLimit, Definitions, DuplicatePolicy,
    ErrorTable, EventDef, EventKind, ExternalCheck, FieldIndex, KeyPart, Lifecycle, LinkDef, LinkSource, PayloadBounds,
    RecordLookup, StateDef, StateIndex, StateReadiness, StateSet, UniqueConstraint, WorkPolicy,
};
pub use transition::{
    AccountRef, AccountTemplate, AllowedCaller, DeliverAction, EventAction, Formula, RefusalClause, SpawnAction,
    SpawnPayload, TemplatePart, TimerSpec, TransferAction, TransferAmount, Transition, TransitionInput,
};
