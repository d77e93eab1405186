//! Looking through everything that a store keeps, page by page, beside an engine that writes.
//!
//! A page is one short read transaction. It says how far the log went in that very moment, so that whoever compares it with
//! the log can go exactly as far: a database that never stops changing still compares exactly. Values come as text, as they
//! are kept: a damaged one is to be shown, not to be an error.

mod definitions;
mod difference;
mod expected;
mod rows;

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use onceward_core::value::RecordId;
use serde_json::Value as Json;

use crate::StoreError;
use crate::catalog::Catalog;
use crate::log::Hash;

pub(crate) use definitions::{KeptDefinition, KeptDefinitions, KeptTurn, held_against_files};
pub use difference::{Difference, What};
pub use expected::{Known, effect_columns, execution_columns, expected, key_columns, stands};
pub(crate) use expected::{joined, key_of_count, key_of_unique, number};
pub(crate) use rows::Cells;

/// A projection: all that a store keeps besides the log and what the log rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    Records,
    Executions,
    Effects,
    Uniques,
    Counts,
    Accounts,
    /// Which entries of the log moved something on which account.
    Entries,
    Links,
    Queues,
    Ready,
    Lanes,
    /// Read before `Ready` and `Lanes`: whoever stands here may stand there a moment later.
    Later,
    Timers,
    Tallies,
    Contents,
    Counter,
    /// How far the store is pruned: one row.
    Pruned,
    ApiKeys,
    /// How often the API keys were changed: one row.
    KeyChanges,
}

impl Table {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Records => "records",
            Self::Executions => "executions",
            Self::Effects => "effects",
            Self::Uniques => "uniques",
            Self::Counts => "counts",
            Self::Accounts => "accounts",
            Self::Entries => "entries",
            Self::Links => "links",
            Self::Queues => "queues",
            Self::Ready => "ready",
            Self::Lanes => "lanes",
            Self::Later => "later",
            Self::Timers => "timers",
            Self::Tallies => "tallies",
            Self::Contents => "contents",
            Self::Counter => "counter",
            Self::Pruned => "pruned",
            Self::ApiKeys => "api_keys",
            Self::KeyChanges => "key_changes",
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A value as it is kept; `None` for nothing.
pub type Cell = Option<Cow<'static, str>>;

/// Values by the names of their columns.
pub type Columns = Vec<(&'static str, Cell)>;

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum At {
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
    Nobody(String),
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(id) => write!(f, "{id}"),
            Self::Execution(id, token) => write!(f, "{id} attempt {token}"),
            Self::Link { target, name, source } => write!(f, "{target} {} {source}", name.replace(SEPARATOR, ".")),
            Self::Key(key) | Self::Nobody(key) => f.write_str(&key.replace(SEPARATOR, " ")),
        }
    }
}

/// Stands between the parts of a key: no name has it, and no JSON text.
pub const SEPARATOR: char = '\u{1f}';

/// One row as it is kept.
#[derive(Clone, Debug)]
pub struct Kept {
    pub at: At,
    pub columns: Columns,
    /// What another table says about it in the same moment, and the log does not.
    pub beside: Beside,
}

impl Kept {
    pub(crate) const fn new(at: At, columns: Columns) -> Self {
        Self { at, columns, beside: Beside::Nothing }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    Nothing,
    /// Of a row of `timers`: when the newest lease ends. Heartbeats move it and leave no entry.
    Lease(Option<i64>),
    /// Of a row of `ready` with a work key: whether its lane says that it stands in front.
    Front(bool),
    /// Of a row of `later`: whether the job stands in `ready` or in a lane too.
    Twice(bool),
    /// Of a row of `lanes`: whether it stands in front, whether it is in `ready`, and where it does not stand in front how many
    /// stand there before it; [`MANY`] for that many or more.
    Lane {
        front: i64,
        ready: bool,
        better: u64,
    },
}

/// Nobody counts further.
pub const MANY: u64 = 1_000;

/// Where a page ended, in the store's own order.
#[derive(Clone, Debug, PartialEq)]
pub struct Cursor(pub(crate) Vec<Spot>);

/// One column of a cursor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Spot {
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

#[derive(Clone, Debug)]
pub struct ScanPage {
    /// The last place in the log when the page was read.
    pub seq: u64,
    pub rows: Vec<Kept>,
    /// `None` on the last page.
    pub next: Option<Cursor>,
}

/// An entry of the log as it is kept, right or wrong.
#[derive(Clone, Debug)]
pub struct LogRow {
    pub seq: i64,
    /// `None` for a refusal that was audited, for a checkpoint, and for a change of API keys.
    pub record: Option<RecordId>,
    /// The number of a record that is not there.
    pub nobody: Option<i64>,
    pub version: i64,
    pub at: i64,
    /// The last place of its batch, where the store keeps batches.
    pub batch_end: Option<i64>,
    /// The place of the record's entry before, where the store keeps one.
    pub previous: Option<Option<i64>>,
    pub text: Arc<str>,
    pub hash: Hash,
}

#[derive(Clone, Debug)]
pub struct LogPage {
    /// The last place in the log when the page was read.
    pub seq: u64,
    pub rows: Vec<LogRow>,
}

/// What the store knows of lifecycles, and what is wrong with it.
#[derive(Clone, Debug)]
pub struct Learned {
    pub catalog: Arc<Catalog>,
    /// Every version that was ever given is in the catalog, under its number.
    pub is_whole: bool,
    pub differences: Vec<Difference>,
}

/// A store that can be looked through. It never writes, and keeps no transaction open from one call to the next.
pub trait Scan: Send + Sync {
    /// The projections that it keeps, in the order in which to look at them. `Later` is not among them: it is read with `Ready`
    /// and with `Lanes`.
    fn tables(&self) -> &'static [Table];

    /// Lifecycles as they are now, held against the files that they came from.
    fn learn(&self) -> impl Future<Output = Result<Learned, StoreError>> + Send;

    /// The log after a place, in order; gaps are for the caller to notice.
    fn scan_log(&self, after: i64, limit: usize) -> impl Future<Output = Result<LogPage, StoreError>> + Send;

    /// The rows of a table after a place, in an order of the store's own that no change of a row's values disturbs.
    fn scan(
        &self,
        table: Table,
        after: Option<Cursor>,
        limit: usize,
    ) -> impl Future<Output = Result<ScanPage, StoreError>> + Send;

    /// What the job's effect keeps of the worker's result, where it can be read: the log has its hash only.
    fn result(&self, record: RecordId) -> impl Future<Output = Result<Option<Json>, StoreError>> + Send;
}
