//! Looking through everything that a store keeps, page by page, beside an engine that writes.
//!
//! A page is one short read transaction. It says how far the log went in that very moment, so that whoever compares it with
//! the log can go exactly as far: a database that never stops changing still compares exactly. Values come as text, as they
//! are kept: a damaged one is to be shown, not to be an error.

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

/// A projection: all that a store keeps besides the log and what the log rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProjectionTable {
    Records,
    Executions,
    Effects,
    Uniques,
    Counts,
    Accounts,
    /// Which entries of the log moved something on which account.
    AccountEntries,
    Links,
    Queues,
    Ready,
    Lanes,
    /// Read before `Ready` and `Lanes`: whoever stands here may stand there a moment later.
    Delayed,
    Timers,
    StateCounts,
    Contents,
    LogSeq,
    /// How far the store is pruned: one row.
    PruneState,
    ApiKeys,
    /// How often the API keys were changed: one row.
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
            Self::AccountEntries => "entries",
            Self::Links => "links",
            Self::Queues => "queues",
            Self::Ready => "ready",
            Self::Lanes => "lanes",
            Self::Delayed => "later",
            Self::Timers => "timers",
            Self::StateCounts => "tallies",
            Self::Contents => "contents",
            Self::LogSeq => "counter",
            Self::PruneState => "pruned",
            Self::ApiKeys => "api_keys",
            Self::ApiKeysRevision => "key_changes",
        }
    }
}

impl fmt::Display for ProjectionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A value as it is kept; `None` for nothing.
pub type CellText = Option<Cow<'static, str>>;

/// Values by the names of their columns.
pub type ColumnCells = Vec<(&'static str, CellText)>;

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RowSubject {
    Record(RecordId),
    Execution(RecordId, i64),
    /// `source` points to `target`.
    Link {
        target: RecordId,
        /// The source's lifecycle and its field.
        name: String,
        source: RecordId,
    },
    /// Anything with a key of its own, as text.
    Key(String),
    /// It names a record that is not there.
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

/// Stands between the parts of a key: no name has it, and no JSON text.
pub const KEY_SEPARATOR: char = '\u{1f}';

/// One row as it is kept.
#[derive(Clone, Debug)]
pub struct StoredRow {
    pub subject: RowSubject,
    pub columns: ColumnCells,
    /// What another table says about it in the same moment, and the log does not.
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
    /// Of a row of `timers`: when the newest lease ends. Heartbeats move it and leave no entry.
    LeaseEnd(Option<i64>),
    /// Of a row of `ready` with a work key: whether its lane says that it stands in front.
    LaneFront(bool),
    /// Of a row of `later`: whether the job stands in `ready` or in a lane too.
    AlsoReady(bool),
    /// Of a row of `lanes`: whether it stands in front, whether it is in `ready`, and where it does not stand in front how many
    /// stand there before it; [`MANY`] for that many or more.
    LanePosition {
        front: i64,
        is_ready: bool,
        jobs_ahead: u64,
    },
}

/// Nobody counts further.
pub const MAX_COUNTED_JOBS_AHEAD: u64 = 1_000;

/// Where a page ended, in the store's own order.
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
    /// The last place in the log when the page was read.
    pub seq: u64,
    pub rows: Vec<StoredRow>,
    /// `None` on the last page.
    pub next: Option<ScanCursor>,
}

/// An entry of the log as it is kept, right or wrong.
#[derive(Clone, Debug)]
pub struct StoredLogRow {
    pub seq: i64,
    /// `None` for a refusal that was audited, for a checkpoint, and for a change of API keys.
    pub record: Option<RecordId>,
    /// The number of a record that is not there.
    pub missing_row_id: Option<i64>,
    pub version: i64,
    pub at: i64,
    /// The last place of its batch, where the store keeps batches.
    pub batch_end: Option<i64>,
    /// The place of the record's entry before, where the store keeps one.
    pub previous_seq: Option<Option<i64>>,
    pub text: Arc<str>,
    pub hash: Sha256Hash,
}

#[derive(Clone, Debug)]
pub struct StoredLogPage {
    /// The last place in the log when the page was read.
    pub seq: u64,
    pub rows: Vec<StoredLogRow>,
}

/// What the store knows of lifecycles, and what is wrong with it.
#[derive(Clone, Debug)]
pub struct CatalogScan {
    pub catalog: Arc<Catalog>,
    /// Every version that was ever given is in the catalog, under its number.
    pub is_complete: bool,
    pub differences: Vec<TableDifference>,
}

/// A store that can be looked through. It never writes, and keeps no transaction open from one call to the next.
pub trait Scan: Send + Sync {
    /// The projections that it keeps, in the order in which to look at them. `Delayed` is not among them: it is read with `Ready`
    /// and with `Lanes`.
    fn tables(&self) -> &'static [ProjectionTable];

    /// Lifecycles as they are now, held against the files that they came from.
    fn scan_catalog(&self) -> impl Future<Output = Result<CatalogScan, StoreError>> + Send;

    /// The log after a place, in order; gaps are for the caller to notice.
    fn scan_log(&self, after_seq: i64, limit: usize) -> impl Future<Output = Result<StoredLogPage, StoreError>> + Send;

    /// The rows of a table after a place, in an order of the store's own that no change of a row's values disturbs.
    fn scan(
        &self,
        table: ProjectionTable,
        after: Option<ScanCursor>,
        limit: usize,
    ) -> impl Future<Output = Result<ScanPage, StoreError>> + Send;

    /// What the job's effect keeps of the worker's result, where it can be read: the log has its hash only.
    fn effect_result(&self, record: RecordId) -> impl Future<Output = Result<Option<Json>, StoreError>> + Send;
}
