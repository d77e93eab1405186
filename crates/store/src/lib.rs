//! Stores: where records live. A store **loads** what `decide` needs and **saves** what it says, and decides nothing.
//!
//! # The protocol
//!
//! ```text
//! base = Base::default()
//! for each operation of a batch:
//!     loop: decide(definitions, base.snapshot(), operation, now)
//!         Missing(keys)   store.load(&mut base, keys)          and again
//!         Due(records)    the same for `Call::Due` of each     and again
//!         Changes         base.apply(changes), keep as a Write
//!         NoOp, Refusal   keep as a Write
//! store.save(&base, batch)
//!     Saved               durable: answer everybody
//!     Conflict            nothing was written: a new base, load base.keys(), decide the whole batch again
//! ```
//!
//! Loading takes no locks, and a base may be loaded piece by piece, at different times. That is safe because `save`
//! compares **everything that any operation of the batch read** with what the base was told, in the transaction that
//! writes: if all of it still holds, it holds together, and the batch is as good as decided at that very moment.
//! A record is compared by its version and its lease's expiry (a heartbeat raises no version); a unique key, a count, an
//! account and the front of a queue by their values; links by a version on the record that they point to.
//!
//! Within a batch a later operation sees the earlier ones: [`Base::apply`] carries each decision over, also into what is
//! loaded only afterwards.
//!
//! # What is kept
//!
//! The [`log`] is the truth: one [`Entry`] for each record that an operation changed, chained by hashes, numbered without a
//! gap in the order of commit. Everything else is a projection that [`Replay`] can build again. A batch is folded into what
//! it comes to (`net.rs`) before it is written, and all stores write from that.
//!
//! Pruning takes whole records with all of their entries out of the log, and leaves a [`Checkpoint`](log::Checkpoint) in it that
//! carries forward what the rest still needs (`prune/`).
//!
//! # Stores
//!
//! [`MemoryStore`] is the reference model: core's own complete world behind a lock. [`SqliteStore`] is the embedded
//! database, [`PostgresStore`] the one for many processes. They pass the same tests (`tests/conformance.rs`), and random play gives the same answers in all
//! (`tests/differential.rs`).

mod account;
mod anchors;
mod any;
mod api_keys;
mod base;
mod batch;
mod catalog;
mod clock;
mod columns;
mod error;
mod fit;
mod glance;
mod histogram;
mod inbox;
pub mod log;
mod look;
mod memory;
mod names;
mod net;
mod plain;
mod postgres;
mod prune;
mod query;
mod recent;
mod relation;
pub mod scan;
mod schema;
mod scratch;
mod sqlite;
mod store;
mod unhurried;
mod workers;

pub use account::{AccountName, AccountsQuery, Balance, Statement, StatementQuery};
pub use any::AnyStore;
pub use api_keys::{ApiKey, KeptKeys, KeyChange, KeyEdit, KeySave, KeyTold, KnownKey};
pub use base::{Base, Place, Stored};
pub use batch::{Batch, Conflict, Content, Outcome, Request, RequestName, Save, Write};
pub use catalog::{Catalog, Turn, Version};
pub use clock::Clock;
pub use error::StoreError;
pub use fit::{Findings, short};
pub use glance::{Glance, Oldest, Ready};
pub use histogram::{Distribution, Histogram, SIZES, TIMES};
pub use inbox::{Letter, LetterAnswer, Refused};
pub use log::{Entry, Replay};
pub use look::{COUNTED, Look, Overdue, Setting, Waiting};
pub use memory::MemoryStore;
pub use postgres::{PostgresStore, PostgresView};
pub use prune::{
    Carry, CountPlace, Forgotten, ForgottenCounts, ForgottenLetters, Kin, OldCounts, OldLetters, OldPage, OldQuery,
    OldRequests, Prune, PruneSave, Standing, Taken, Unsound,
};
pub use query::{Candidate, LeaseQuery, ListQuery, Most, Page, StateCount, VersionCount, own_worker, rank};
pub use relation::{LinkPage, LinkQuery};
pub use scan::{Difference, Scan};
pub use schema::Schema;
pub use scratch::{Applied, Brief, Keyed, Kind, Removed, Scratch, Unfit};
pub use sqlite::{Backup, BackupError, SqliteStore, SqliteView, back_up};
pub use store::Store;
pub use unhurried::unhurried;
pub use workers::{Holding, WorkerName, WorkerSeen};
