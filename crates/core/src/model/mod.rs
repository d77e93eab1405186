//! The compiled form of a lifecycle: names resolved to numbers, expressions typed. What `decide` runs on, what is
//! drawn, and what a definition's hash covers.

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
