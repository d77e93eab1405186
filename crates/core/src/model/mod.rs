//! The compiled form of a lifecycle: names resolved to numbers, expressions typed. What `decide` runs on, what is
//! drawn, and what a definition's hash covers.

mod data;
mod lifecycle;
mod row;

pub use data::{Bounds, Field, Type, Typed};
pub use lifecycle::{
    Access, Check, Clash, Clock, Definitions, ErrorTable, Event, EventKind, KeyPart, Lifecycle, Limit, Link,
    LinkSource, Lookup, PayloadBounds, Ready, Slot, State, StateIx, StateSet, Unique, Who, Work, WorkKey,
};
pub use row::{
    AccountRef, Amount, By, Cause, Deliver, Formula, Input, Move, Refuse, Row, Spawn, SpawnPayload, Template,
    TemplatePart, Timing,
};
