//! Stores: where records live. A store **loads** what `decide` needs and **saves** what it says, and decides nothing.
//!
//! # The protocol
//!
//! ```text
//! base = Base::default()
//! for each operation of a batch:
//!     loop: decide(definitions, base.snapshot(), operation, now)
//!         Missing(keys)   store.load(&mut base, keys)          and again
//!         Due(records)    the same for `PipelineStatement::Due` of each     and again
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
//! Within a batch a later operation sees the earlier ones: [`ReadSet::apply`] carries each decision over, also into what is
//! loaded only afterwards.
//!
//! # What is kept
//!
//! The [`log`] is the truth: one [`Entry`] for each record that an operation changed, chained by hashes, numbered without a
//! gap in the order of commit. Everything else is a projection that [`LogReplay`] can build again. A batch is folded into what
//! it comes to (`write_set.rs`) before it is written, and all stores write from that.
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
mod any;
mod api_keys;
mod batch;
mod blocking;
mod catalog;
mod clock;
mod columns;
mod compatibility;
mod database_status;
mod error;
mod histogram;
mod history_skip_index;
mod inbox;
mod links;
pub mod log;
mod memory;
mod postgres;
mod prune;
mod query;
mod read_set;
mod record_cache;
mod replay_db;
pub mod scan;
mod schema;
mod sqlite;
mod stats;
mod store;
mod symbols;
mod value_json;
mod workers;
mod write_set;

pub use account::{AccountBalance, AccountName, AccountsQuery, StatementPage, StatementQuery};
pub use any::AnyStore;
pub use api_keys::{ApiKey, ApiKeyChange, ApiKeyEdit, ApiKeySaveResult, ApiKeySet, LoggedApiKey, ReplayedApiKey};
pub use batch::{
    Batch, DecidedOperation, IdempotencyId, IdempotencyRecord, OperationOutcome, PayloadBytes, SaveConflict, SaveResult,
};
pub use blocking::block_in_place_if_large;
pub use catalog::{Activation, Catalog, LifecycleVersion};
pub use clock::Clock;
pub use compatibility::{DiagnosticReport, short_hash};
pub use database_status::{DatabaseSetting, DatabaseStatus, MAX_COUNTED_ROWS, OverdueSummary, ReadyBacklog};
pub use error::StoreError;
pub use histogram::{BATCH_SIZE_BUCKETS, Histogram, HistogramSnapshot, LATENCY_BUCKETS_MICROS};
pub use inbox::{InboxCall, InboxRefusal, InboxReply};
pub use links::{LinkPage, LinkQuery};
pub use log::{LogEntry, LogReplay};
pub use memory::MemoryStore;
pub use postgres::{PostgresScanner, PostgresStore};
pub use prune::{
    AnsweredCallsPage, AnsweredCallsQuery, CounterCursor, ExpiredCountersPage, ExpiredCountersQuery, ExpiredKeysPage,
    ExpiredKeysQuery, PrunablePage, PrunableQuery, PruneBlocked, PrunePlan, PruneRequest, PruneResult, PruneState,
    PrunedRecord, RecordWithReferrers,
};
pub use query::{
    LeaseCandidate, LeaseQuery, ListQuery, PageLimit, RecordPage, StateCount, VersionCount, in_process_worker_name,
    priority_rank,
};
pub use read_set::{QueuePosition, ReadSet, RecordMeta};
pub use replay_db::{AppliedEntry, ApplyError, PrunedRows, RecordSummary, ReplayDatabase, ReplayTable, ReplayedRow};
pub use scan::{Scan, TableDifference};
pub use schema::SchemaStatus;
pub use sqlite::{BackupError, BackupReport, SqliteScanner, SqliteStore, backup_database};
pub use stats::{OldestReady, ReadyCount, StoreStats};
pub use store::Store;
pub use workers::{LeaseCounts, WorkerName, WorkerSighting};
