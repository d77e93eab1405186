//! Stores for records and their log. A store **loads** what `decide` needs and **saves** the decisions. It makes no
//! decisions itself.
//!
//! # Protocol
//!
//! ```text
//! read_set = ReadSet::default()
//! for each operation of a batch:
//!     loop: decide(definitions, read_set.snapshot(), operation, now)
//!         Missing(keys)   store.load(&mut read_set, keys); repeat
//!         Due(records)    decide `Call::Due` for each record first; repeat
//!         Changes         read_set.apply(changes); add a DecidedOperation to the batch
//!         NoOp, Refusal   add a DecidedOperation to the batch
//! store.save(&read_set, batch)
//!     Saved               durable: send all replies
//!     Conflict            nothing was written: load read_set.loaded_keys() into a new read set, decide the batch again
//! ```
//!
//! Loading takes no locks, and a read set may be loaded in several steps at different times. That is safe because
//! `save` validates the read set inside the writing transaction: it compares **everything that any operation of the
//! batch read** with the stored values. If all values are unchanged, the batch is equivalent to one decided inside that
//! transaction. `save` compares a record by its version and its lease's expiry (a heartbeat does not raise the
//! version); a unique key, a counter, an account and the front of a queue by value; links by a version number on the
//! target record.
//!
//! Later operations of a batch see the earlier ones: [`ReadSet::apply`] applies each decision to the read set,
//! including values that are loaded later.
//!
//! # Stored data
//!
//! The [`log`] is the source of truth. It has one [`LogEntry`] for each record that an operation changed. Entries are
//! chained by hash and numbered without gaps in commit order. All other tables are projections that [`LogReplay`] can
//! rebuild. Before a save, each batch is folded into a write set (`write_set.rs`), and all stores write from that.
//!
//! Pruning deletes whole records with all of their log entries. It appends a [`Checkpoint`](log::Checkpoint) with the
//! values that the remaining entries still need (`prune/`).
//!
//! # Stores
//!
//! [`MemoryStore`] is the reference model: core's complete snapshot behind a lock. [`SqliteStore`] is the embedded
//! database. [`PostgresStore`] supports several processes. All pass the same tests (`tests/conformance/`), and random
//! operations give the same results in all (`tests/differential/`).

mod account;
mod any;
mod api_keys;
mod batch;
mod blocking;
mod catalog;
mod clock;
mod clock_guard;
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
mod webhook_secrets;
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
pub use clock_guard::{ClockHold, ClockStatus};
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
pub use webhook_secrets::{WebhookSecret, WebhookSecrets};
pub use workers::{LeaseCounts, WorkerName, WorkerSighting};
