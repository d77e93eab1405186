//! Scans all tables of a store page by page while an engine writes.
//!
//! A page is one short read transaction. It includes the last seq at that time, so that the caller can replay the log
//! exactly that far and compare, even if the database keeps changing. Values are returned as stored, as text, so that a
//! damaged value can be shown and is not an error.

mod catalog_rows;
mod difference;
mod expected_columns;
mod rows;

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use onceward_core::value::RecordId;
use serde_json::Value as Json;

use crate::StoreError;
use crate::catalog::Catalog;
use crate::log::Sha256Hash;

pub(crate) use catalog_rows::{StoredActivation, StoredCatalogRows, StoredDefinition, compare_with_files};
pub use difference::{DifferenceKind, TableDifference};
pub use expected_columns::{
    ReplayedRecord, api_key_columns, effect_columns, execution_columns, expected_columns, expects_row,
};
pub(crate) use expected_columns::{counter_key_text, join_key_parts, number_cell, unique_key_text};
pub(crate) use rows::RowCells;

/// A projection: a table that can be rebuilt from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProjectionTable {
    Records,
    Executions,
    Effects,
    Uniques,
    Counts,
    Accounts,
    /// Index of the log entries with transfers on each account.
    AccountEntries,
    Links,
    Queues,
    Ready,
    Lanes,
    /// Read before `Ready` and `Lanes`, because a delayed job can move there at any time.
    Delayed,
    Timers,
    StateCounts,
    Contents,
    LogSeq,
    /// One row: how far the log is pruned.
    PruneState,
    ApiKeys,
    /// One row: the number of changes of the API keys.
    ApiKeysRevision,
}

impl ProjectionTable {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Records => "records",
            Self::Executions => "executions",
            Self::Effects => "effects",
            Self::Uniques => "uniques",
            Self::Counts => "counts",
            Self::Accounts => "accounts",
            Self::AccountEntries => "account_entries",
            Self::Links => "links",
            Self::Queues => "queues",
            Self::Ready => "ready",
            Self::Lanes => "lanes",
            Self::Delayed => "delayed",
            Self::Timers => "timers",
            Self::StateCounts => "state_counts",
            Self::Contents => "contents",
            Self::LogSeq => "log_seq",
            Self::PruneState => "prune_state",
            Self::ApiKeys => "api_keys",
            Self::ApiKeysRevision => "api_keys_revision",
        }
    }
}

impl fmt::Display for ProjectionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A value as stored; `None` for NULL.
pub type CellText = Option<Cow<'static, str>>;

/// Values by column name.
pub type ColumnCells = Vec<(&'static str, CellText)>;

/// What a row belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RowSubject {
    Record(RecordId),
    Execution(RecordId, i64),
    /// A link from `source` to `target`.
    Link {
        target: RecordId,
        /// Lifecycle and field of the source.
        name: String,
        source: RecordId,
    },
    /// A row with a key of its own, as text.
    Key(String),
    /// A row that references a record that does not exist.
    MissingRecord(String),
}

impl fmt::Display for RowSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(id) => write!(f, "{id}"),
            Self::Execution(id, token) => write!(f, "{id} attempt {token}"),
            Self::Link { target, name, source } => write!(f, "{target} {} {source}", name.replace(KEY_SEPARATOR, ".")),
            Self::Key(key) | Self::MissingRecord(key) => f.write_str(&key.replace(KEY_SEPARATOR, " ")),
        }
    }
}

/// Separates the parts of a key. It occurs in no name and in no JSON text.
pub const KEY_SEPARATOR: char = '\u{1f}';

/// A row as stored.
#[derive(Clone, Debug)]
pub struct StoredRow {
    pub subject: RowSubject,
    pub columns: ColumnCells,
    /// Values of other tables at the same time that cannot be derived from the log.
    pub context: RowContext,
}

impl StoredRow {
    pub(crate) const fn new(at: RowSubject, columns: ColumnCells) -> Self {
        Self { subject: at, columns, context: RowContext::Empty }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowContext {
    Empty,
    /// For a timer: when the newest lease expires. Heartbeats change that without a log entry.
    LeaseEnd(Option<i64>),
    /// For a ready job with a concurrency key: whether its lane row is marked as front.
    LaneFront(bool),
    /// For a delayed job: whether it is also in the ready table or in a lane.
    AlsoReady(bool),
    /// For a lane row: whether it is marked as front, whether the job is ready, and if it is not at the front, how many
    /// front rows come before it, up to [`MAX_COUNTED_JOBS_AHEAD`].
    LanePosition {
        front: i64,
        is_ready: bool,
        jobs_ahead: u64,
    },
}

/// Bounds the cost of counting. Larger positions need not be told apart.
pub const MAX_COUNTED_JOBS_AHEAD: u64 = 1_000;

/// Position at which a page ended, in the store's own order.
#[derive(Clone, Debug, PartialEq)]
pub struct ScanCursor(pub(crate) Vec<CursorValue>);

/// One column of a cursor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CursorValue {
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

#[derive(Clone, Debug)]
pub struct ScanPage {
    /// Last seq when the page was read.
    pub seq: u64,
    pub rows: Vec<StoredRow>,
    /// `None` on the last page.
    pub next: Option<ScanCursor>,
}

/// A log entry as stored, valid or not.
#[derive(Clone, Debug)]
pub struct StoredLogRow {
    pub seq: i64,
    /// `None` for an audited refusal, a checkpoint, an activation and a change of API keys.
    pub record: Option<RecordId>,
    /// Row id of a record that does not exist.
    pub missing_row_id: Option<i64>,
    pub version: i64,
    pub at: i64,
    /// Last seq of its batch, if the store keeps batches.
    pub batch_end: Option<i64>,
    /// Seq of the record's previous entry, if the store keeps it.
    pub previous_seq: Option<Option<i64>>,
    pub text: Arc<str>,
    pub hash: Sha256Hash,
}

#[derive(Clone, Debug)]
pub struct StoredLogPage {
    /// Last seq when the page was read.
    pub seq: u64,
    pub rows: Vec<StoredLogRow>,
}

/// The stored catalog and its defects.
#[derive(Clone, Debug)]
pub struct CatalogScan {
    pub catalog: Arc<Catalog>,
    /// Whether the catalog contains every version that was ever added, under its number.
    pub is_complete: bool,
    pub differences: Vec<TableDifference>,
}

/// A store that can be scanned. A scan never writes and holds no transaction open between calls.
pub trait Scan: Send + Sync {
    /// Returns the projections of the store, in scan order. Omits `Delayed`, which is read with `Ready` and with
    /// `Lanes`.
    fn tables(&self) -> &'static [ProjectionTable];

    /// Returns the current catalog, compared with the files it came from.
    fn scan_catalog(&self) -> impl Future<Output = Result<CatalogScan, StoreError>> + Send;

    /// Returns the log after a seq, in order. The caller must detect gaps.
    fn scan_log(&self, after_seq: i64, limit: usize) -> impl Future<Output = Result<StoredLogPage, StoreError>> + Send;

    /// Returns the rows of a table after a cursor, in an order that does not change when values of a row change.
    fn scan(
        &self,
        table: ProjectionTable,
        after: Option<ScanCursor>,
        limit: usize,
    ) -> impl Future<Output = Result<ScanPage, StoreError>> + Send;

    /// Returns the worker's result in a job's effect, if it is readable. The log has only its hash.
    fn effect_result(&self, record: RecordId) -> impl Future<Output = Result<Option<Json>, StoreError>> + Send;
}
