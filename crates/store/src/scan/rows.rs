//! Converts database rows to the common form of all stores. Every value is text: blobs and ids in hex, booleans as 0 or
//! 1. The columns that order a page come first.

use onceward_core::value::RecordId;
use uuid::Uuid;

use super::{CellText, ColumnCells, ProjectionTable, RowContext, RowSubject, StoredRow, join_key_parts, number_cell};
use crate::StoreError;
use crate::columns::NO_WINDOW;
use crate::symbols::SymbolTable;

pub(crate) struct RowCells<'a> {
    pub(crate) values: Vec<CellText>,
    pub(crate) symbols: &'a SymbolTable,
    /// Whether row ids of records have no gaps.
    pub(crate) has_dense_row_ids: bool,
}

impl RowCells<'_> {
    #[expect(clippy::too_many_lines, reason = "one match arm per table")]
    pub(crate) fn to_stored_row(&self, table: ProjectionTable) -> Result<StoredRow, StoreError> {
        Ok(match table {
            ProjectionTable::LogSeq => {
                StoredRow::new(RowSubject::Key(self.cell_text(0)), self.named_cells(&["one", "seq"], 0))
            }
            ProjectionTable::PruneState => StoredRow::new(
                RowSubject::Key(self.cell_text(0)),
                self.named_cells(&["one", "checkpoint", "floor", "head"], 0),
            ),
            ProjectionTable::Records => {
                let mut all = if self.has_dense_row_ids { self.named_cells(&["row"], 0) } else { ColumnCells::new() };
                all.extend(self.named_cells(RECORD_COLUMNS, 2));
                StoredRow::new(self.record_subject(1, 0), all)
            }
            ProjectionTable::Executions => {
                let at = match self.record_subject(2, 0) {
                    RowSubject::Record(id) => RowSubject::Execution(id, self.parse_number(1)?),
                    other => other,
                };
                StoredRow::new(at, self.named_cells(EXECUTION_COLUMNS, 3))
            }
            ProjectionTable::Effects => {
                StoredRow::new(self.record_subject(1, 0), self.named_cells(&["token", "result"], 2))
            }
            ProjectionTable::Uniques => {
                let key = join_key_parts(&[&self.symbol_name(0)?, &self.symbol_name(1)?, &self.cell_text(3)]);
                StoredRow::new(RowSubject::Key(key), vec![("holder", self.record_id_cell(4))])
            }
            ProjectionTable::Counts => {
                let window = match self.parse_number(3)? {
                    NO_WINDOW => String::new(),
                    window => window.to_string(),
                };
                let key = join_key_parts(&[&self.symbol_name(0)?, &self.symbol_name(1)?, &self.cell_text(4), &window]);
                StoredRow::new(RowSubject::Key(key), self.named_cells(&["count"], 5))
            }
            ProjectionTable::Accounts => {
                let key = join_key_parts(&[&self.cell_text(0), &self.cell_text(1)]);
                StoredRow::new(RowSubject::Key(key), self.named_cells(&["outside", "balance"], 2))
            }
            ProjectionTable::AccountEntries => {
                let key = join_key_parts(&[&self.cell_text(0), &self.cell_text(1), &self.cell_text(2)]);
                StoredRow::new(RowSubject::Key(key), ColumnCells::new())
            }
            ProjectionTable::Links => {
                let (lifecycle, field) = (self.symbol_name(1)?, self.symbol_name(2)?);
                let at = match (self.record_subject(4, 0), self.record_subject(5, 3)) {
                    (RowSubject::Record(target), RowSubject::Record(source)) => {
                        RowSubject::Link { target, name: join_key_parts(&[&lifecycle, &field]), source }
                    }
                    (target, source) => RowSubject::MissingRecord(format!("{target} {lifecycle}.{field} {source}")),
                };
                StoredRow::new(at, ColumnCells::new())
            }
            ProjectionTable::Queues => {
                let mut all = self.lifecycle_cell(0)?;
                all.extend(self.named_cells(&["parts", "created_at"], 1));
                StoredRow::new(self.record_subject(4, 3), all)
            }
            ProjectionTable::Ready => {
                let mut all = self.lifecycle_cell(0)?;
                all.extend(self.named_cells(&["rank"], 1));
                all.extend(self.named_cells(&["ready_at", "definition", "key"], 4));
                let context = if self.values[6].is_some() {
                    RowContext::LaneFront(self.parse_number(7)? == 1)
                } else {
                    RowContext::Empty
                };
                StoredRow { subject: self.record_subject(3, 2), columns: all, context }
            }
            ProjectionTable::Lanes => {
                let mut all = self.lifecycle_cell(0)?;
                all.extend(self.named_cells(&["key"], 1));
                all.extend(self.named_cells(&["rank"], 3));
                all.extend(self.named_cells(&["ready_at", "definition"], 6));
                let better = u64::try_from(self.parse_number(9)?).unwrap_or(0);
                let beside = RowContext::LanePosition {
                    front: self.parse_number(2)?,
                    is_ready: self.parse_number(8)? == 1,
                    jobs_ahead: better,
                };
                StoredRow { subject: self.record_subject(5, 4), columns: all, context: beside }
            }
            ProjectionTable::Delayed => {
                let mut all = self.lifecycle_cell(3)?;
                all.extend(self.named_cells(&["rank", "definition", "key"], 4));
                all.extend(self.named_cells(&["ready_at"], 0));
                StoredRow {
                    subject: self.record_subject(2, 1),
                    columns: all,
                    context: RowContext::AlsoReady(self.parse_number(7)? == 1),
                }
            }
            ProjectionTable::Timers => {
                let ends = self.values[3].as_ref().map(|_| self.parse_number(3)).transpose()?;
                StoredRow {
                    subject: self.record_subject(2, 1),
                    columns: self.named_cells(&["due_at"], 0),
                    context: RowContext::LeaseEnd(ends),
                }
            }
            ProjectionTable::StateCounts => {
                let key = join_key_parts(&[
                    &self.cell_text(4),
                    &self.cell_text(0),
                    &self.cell_text(1),
                    &self.symbol_name(2)?,
                ]);
                StoredRow::new(RowSubject::Key(key), self.named_cells(&["count"], 3))
            }
            ProjectionTable::Contents => {
                StoredRow::new(RowSubject::Key(self.cell_text(0)), self.named_cells(&["bytes", "refs"], 1))
            }
            ProjectionTable::ApiKeys => {
                StoredRow::new(RowSubject::Key(self.cell_text(0)), self.named_cells(API_KEY_COLUMNS, 1))
            }
            ProjectionTable::ApiKeysRevision => {
                StoredRow::new(RowSubject::Key(self.cell_text(0)), self.named_cells(&["one", "revision"], 0))
            }
        })
    }

    /// Names the columns that start at `first_index`.
    fn named_cells(&self, names: &[&'static str], first_index: usize) -> ColumnCells {
        names.iter().copied().zip(self.values[first_index..].iter().cloned()).collect()
    }

    fn lifecycle_cell(&self, index: usize) -> Result<ColumnCells, StoreError> {
        Ok(vec![("lifecycle", Some(self.symbol_name(index)?.into()))])
    }

    fn cell_text(&self, index: usize) -> String {
        self.values[index].as_deref().unwrap_or_default().to_owned()
    }

    fn parse_number(&self, index: usize) -> Result<i64, StoreError> {
        self.cell_text(index).parse().map_err(|_| {
            StoreError::corrupt(format!("a column that should be a number has the value {:?}", self.values[index]))
        })
    }

    fn symbol_name(&self, index: usize) -> Result<String, StoreError> {
        let number = self.parse_number(index)?;
        Ok(self.symbols.name(number).map_or_else(|_| format!("#{number}"), |name| name.to_string()))
    }

    fn record_id(&self, index: usize) -> Option<RecordId> {
        self.values[index].as_deref().and_then(|text| Uuid::parse_str(text).ok()).map(RecordId)
    }

    /// Returns the record whose id is at `id_index`, or a missing record with the row at `row_index`.
    fn record_subject(&self, id_index: usize, row_index: usize) -> RowSubject {
        self.record_id(id_index)
            .map_or_else(|| RowSubject::MissingRecord(format!("row {}", self.cell_text(row_index))), RowSubject::Record)
    }

    fn record_id_cell(&self, index: usize) -> CellText {
        self.record_id(index).map_or_else(|| self.values[index].clone(), |id| number_cell(id))
    }
}

const RECORD_COLUMNS: &[&str] = &[
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
    "link_version",
    "trace",
];

const EXECUTION_COLUMNS: &[&str] = &[
    "worker",
    "holder",
    "status",
    "leased_at",
    "expires_at",
    "started_at",
    "finished_at",
    "abort_code",
    "abort_retryable",
    "finish_pending",
    "key",
    "abort_message",
    "retry_at",
    "lease_duration",
];

const API_KEY_COLUMNS: &[&str] =
    &["hash", "owner", "roles", "lifecycles", "name", "created_at", "expires_at", "revoked_at"];
