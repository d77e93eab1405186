//! A row of a table, as a database gave it, told in the words that all stores share. Every value is text: a blob and an id in
//! hex, a truth as 0 or 1. The columns that a page is ordered by come first.

use onceward_core::value::RecordId;
use uuid::Uuid;

use super::{At, Beside, Cell, Columns, Kept, Table, joined, number};
use crate::StoreError;
use crate::columns::NO_WINDOW;
use crate::names::Names;

/// One row.
pub(crate) struct Cells<'a> {
    pub(crate) values: Vec<Cell>,
    pub(crate) names: &'a Names,
    /// Records are numbered without a hole in the order of their creation.
    pub(crate) dense: bool,
}

impl Cells<'_> {
    pub(crate) fn kept(&self, table: Table) -> Result<Kept, StoreError> {
        Ok(match table {
            Table::Counter => Kept::new(At::Key(self.shown(0)), self.columns(&["one", "seq"], 0)),
            Table::Pruned => {
                Kept::new(At::Key(self.shown(0)), self.columns(&["one", "checkpoint", "floor", "head"], 0))
            }
            Table::Records => {
                let mut all = if self.dense { self.columns(&["row"], 0) } else { Columns::new() };
                all.extend(self.columns(RECORD, 2));
                Kept::new(self.about(1, 0), all)
            }
            Table::Executions => {
                let at = match self.about(2, 0) {
                    At::Record(id) => At::Execution(id, self.number(1)?),
                    other => other,
                };
                Kept::new(at, self.columns(EXECUTION, 3))
            }
            Table::Effects => Kept::new(self.about(1, 0), self.columns(&["token", "result"], 2)),
            Table::Uniques => {
                let key = joined(&[&self.name(0)?, &self.name(1)?, &self.shown(3)]);
                Kept::new(At::Key(key), vec![("holder", self.id_cell(4))])
            }
            Table::Counts => {
                let window = match self.number(3)? {
                    NO_WINDOW => String::new(),
                    window => window.to_string(),
                };
                let key = joined(&[&self.name(0)?, &self.name(1)?, &self.shown(4), &window]);
                Kept::new(At::Key(key), self.columns(&["count"], 5))
            }
            Table::Accounts => {
                let key = joined(&[&self.shown(0), &self.shown(1)]);
                Kept::new(At::Key(key), self.columns(&["outside", "balance"], 2))
            }
            Table::Entries => {
                let key = joined(&[&self.shown(0), &self.shown(1), &self.shown(2)]);
                Kept::new(At::Key(key), Columns::new())
            }
            Table::Links => {
                let (lifecycle, field) = (self.name(1)?, self.name(2)?);
                let at = match (self.about(4, 0), self.about(5, 3)) {
                    (At::Record(target), At::Record(source)) => {
                        At::Link { target, name: joined(&[&lifecycle, &field]), source }
                    }
                    (target, source) => At::Nobody(format!("{target} {lifecycle}.{field} {source}")),
                };
                Kept::new(at, Columns::new())
            }
            Table::Queues => {
                let mut all = self.lifecycle(0)?;
                all.extend(self.columns(&["parts", "created_at"], 1));
                Kept::new(self.about(4, 3), all)
            }
            Table::Ready => {
                let mut all = self.lifecycle(0)?;
                all.extend(self.columns(&["rank"], 1));
                all.extend(self.columns(&["ready_at", "definition", "key"], 4));
                let beside =
                    if self.values[6].is_some() { Beside::Front(self.number(7)? == 1) } else { Beside::Nothing };
                Kept { at: self.about(3, 2), columns: all, beside }
            }
            Table::Lanes => {
                let mut all = self.lifecycle(0)?;
                all.extend(self.columns(&["key"], 1));
                all.extend(self.columns(&["rank"], 3));
                all.extend(self.columns(&["ready_at", "definition"], 6));
                let better = u64::try_from(self.number(9)?).unwrap_or(0);
                let beside = Beside::Lane { front: self.number(2)?, ready: self.number(8)? == 1, better };
                Kept { at: self.about(5, 4), columns: all, beside }
            }
            Table::Later => {
                let mut all = self.lifecycle(3)?;
                all.extend(self.columns(&["rank", "definition", "key"], 4));
                all.extend(self.columns(&["ready_at"], 0));
                Kept { at: self.about(2, 1), columns: all, beside: Beside::Twice(self.number(7)? == 1) }
            }
            Table::Timers => {
                let ends = self.values[3].as_ref().map(|_| self.number(3)).transpose()?;
                Kept { at: self.about(2, 1), columns: self.columns(&["due"], 0), beside: Beside::Lease(ends) }
            }
            Table::Tallies => {
                let key = joined(&[&self.shown(4), &self.shown(0), &self.shown(1), &self.name(2)?]);
                Kept::new(At::Key(key), self.columns(&["count"], 3))
            }
            Table::Contents => Kept::new(At::Key(self.shown(0)), self.columns(&["bytes", "refs"], 1)),
            Table::ApiKeys => Kept::new(At::Key(self.shown(0)), self.columns(API_KEY, 1)),
            Table::KeyChanges => Kept::new(At::Key(self.shown(0)), self.columns(&["one", "changes"], 0)),
        })
    }

    /// Columns from one place on, under these names.
    fn columns(&self, names: &[&'static str], from: usize) -> Columns {
        names.iter().copied().zip(self.values[from..].iter().cloned()).collect()
    }

    fn lifecycle(&self, at: usize) -> Result<Columns, StoreError> {
        Ok(vec![("lifecycle", Some(self.name(at)?.into()))])
    }

    fn shown(&self, at: usize) -> String {
        self.values[at].as_deref().unwrap_or_default().to_owned()
    }

    fn number(&self, at: usize) -> Result<i64, StoreError> {
        self.shown(at).parse().map_err(|_| StoreError::corrupt(format!("{:?} is no number", self.values[at])))
    }

    fn name(&self, at: usize) -> Result<String, StoreError> {
        let number = self.number(at)?;
        Ok(self.names.name(number).map_or_else(|_| format!("#{number}"), |name| name.to_string()))
    }

    fn id(&self, at: usize) -> Option<RecordId> {
        self.values[at].as_deref().and_then(|text| Uuid::parse_str(text).ok()).map(RecordId)
    }

    /// The record whose id stands at `id`; else what stands at `row`.
    fn about(&self, id: usize, row: usize) -> At {
        self.id(id).map_or_else(|| At::Nobody(format!("row {}", self.shown(row))), At::Record)
    }

    fn id_cell(&self, at: usize) -> Cell {
        self.id(at).map_or_else(|| self.values[at].clone(), |id| number(id))
    }
}

const RECORD: &[&str] = &[
    "definition",
    "state",
    "version",
    "owner",
    "fields",
    "attempt",
    "created_at",
    "updated_at",
    "started_at",
    "finished_at",
    "entered_at",
    "hold",
    "timers",
    "committed",
    "payload",
    "payload_bytes",
    "stuck",
    "head",
    "entry",
    "links",
    "trace",
];

const EXECUTION: &[&str] = &[
    "worker",
    "holder",
    "status",
    "leased_at",
    "expires_at",
    "started_at",
    "finished_at",
    "abort_code",
    "abort_retryable",
    "finish_moves",
    "key",
];

const API_KEY: &[&str] = &["hash", "owner", "roles", "lifecycles", "name", "created_at", "expires_at", "revoked_at"];
