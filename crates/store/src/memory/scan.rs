//! Scans of the reference model. It computes the queue, timer, count and account-entry tables on demand.

use onceward_core::decide::CounterKey;
use onceward_core::hex;
use onceward_core::value::RecordId;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use super::MemoryStore;
use super::state::MemoryState as World;
use crate::StoreError;
use crate::account::AccountName;
use crate::api_keys::{ApiKey, ReplayedApiKey};
use crate::log::EffectRef;
use crate::prune::PruneState;
use crate::scan::{
    CatalogScan, ColumnCells, CursorValue, ProjectionTable, ReplayedRecord, RowContext, RowSubject, Scan, ScanCursor,
    ScanPage, StoredLogPage, StoredLogRow, StoredRow, api_key_columns, counter_key_text, execution_columns,
    expected_columns, join_key_parts, number_cell, unique_key_text,
};

const MEMORY_TABLES: &[ProjectionTable] = &[
    ProjectionTable::PruneState,
    ProjectionTable::Records,
    ProjectionTable::Executions,
    ProjectionTable::Effects,
    ProjectionTable::Uniques,
    ProjectionTable::Counts,
    ProjectionTable::Accounts,
    ProjectionTable::Links,
    ProjectionTable::Queues,
    ProjectionTable::Contents,
    ProjectionTable::ApiKeys,
    ProjectionTable::ApiKeysRevision,
];

impl Scan for MemoryStore {
    fn tables(&self) -> &'static [ProjectionTable] {
        MEMORY_TABLES
    }

    async fn scan_catalog(&self) -> Result<CatalogScan, StoreError> {
        Ok(CatalogScan { catalog: self.lock_state().catalog.clone(), is_complete: true, differences: Vec::new() })
    }

    async fn scan_log(&self, after: i64, limit: usize) -> Result<StoredLogPage, StoreError> {
        let state = self.lock_state();
        let after = u64::try_from(after).unwrap_or(0);
        let rows = state.log.iter().filter(|entry| entry.seq > after).take(limit).map(|entry| StoredLogRow {
            seq: i64::try_from(entry.seq).unwrap_or(i64::MAX),
            record: entry.record,
            missing_row_id: None,
            version: i64::try_from(entry.version).unwrap_or(i64::MAX),
            at: entry.at.micros(),
            batch_end: None,
            previous_seq: None,
            text: entry.text.clone(),
            hash: entry.hash,
        });
        Ok(StoredLogPage { seq: state.last_seq(), rows: rows.collect() })
    }

    async fn scan(
        &self,
        table: ProjectionTable,
        after: Option<ScanCursor>,
        limit: usize,
    ) -> Result<ScanPage, StoreError> {
        let state = self.lock_state();
        let from = match after.as_ref().map(|cursor| &cursor.0[..]) {
            Some([CursorValue::Int(from)]) => usize::try_from(*from).unwrap_or(usize::MAX),
            _ => 0,
        };
        // Sorting everything for each page is fast enough for tests.
        let mut rows = state.stored_rows(table);
        rows.sort_by_cached_key(|row| row.subject.to_string());
        let end = from.saturating_add(limit);
        let next =
            (end < rows.len()).then(|| ScanCursor(vec![CursorValue::Int(i64::try_from(end).unwrap_or(i64::MAX))]));
        Ok(ScanPage { seq: state.last_seq(), rows: rows.into_iter().skip(from).take(limit).collect(), next })
    }

    async fn effect_result(&self, record: RecordId) -> Result<Option<Json>, StoreError> {
        Ok(self.lock_state().effects.get(&record).map(|effect| effect.result.clone()))
    }
}

impl World {
    fn replayed_record(&self, id: RecordId) -> Option<ReplayedRecord> {
        let (record, beside) = (self.snapshot.record(id)?, self.record_meta.get(&id)?);
        Some(ReplayedRecord {
            row_id: beside.row_id,
            record: record.clone(),
            head_hash: beside.head_hash,
            head_seq: beside.head_seq,
            effect: self.effects.get(&id).map(EffectRef::from_effect),
            incoming_links: 0,
            link_version: beside.link_version,
            ledger_balance: 0,
            is_log_damaged: false,
            has_verified_entry: true,
        })
    }

    fn stored_rows(&self, table: ProjectionTable) -> Vec<StoredRow> {
        let world = &self.snapshot;
        match table {
            ProjectionTable::Records | ProjectionTable::Effects | ProjectionTable::Queues => {
                let replayed = self.ids_by_row.values().filter_map(|id| self.replayed_record(*id));
                let row = |replayed: ReplayedRecord| {
                    let mut columns = expected_columns(table, &replayed, &self.catalog, RowContext::Empty)?;
                    if table == ProjectionTable::Records {
                        columns.push(("link_version", number_cell(replayed.link_version)));
                    }
                    if table == ProjectionTable::Queues && !self.is_queued(&replayed) {
                        return None;
                    }
                    Some(StoredRow::new(RowSubject::Record(replayed.record.id), columns))
                };
                replayed.filter_map(row).collect()
            }
            ProjectionTable::Executions => {
                let executions = world.executions.iter().filter_map(|((id, token), execution)| {
                    let token = i64::try_from(token.0).unwrap_or(i64::MAX);
                    Some(StoredRow::new(RowSubject::Execution(*id, token), execution_columns(execution.as_ref()?)))
                });
                executions.collect()
            }
            ProjectionTable::Uniques => {
                let held = world.unique_holders.iter().filter_map(|(key, holder)| {
                    let holder = holder.as_ref()?.to_string();
                    Some(StoredRow::new(RowSubject::Key(unique_key_text(key)), vec![("holder", Some(holder.into()))]))
                });
                held.collect()
            }
            ProjectionTable::Counts => {
                let row = |(key, count): (&CounterKey, &u64)| {
                    StoredRow::new(RowSubject::Key(counter_key_text(key)), vec![("count", number_cell(count))])
                };
                world.counters.iter().map(row).collect()
            }
            ProjectionTable::Accounts => self.account_rows(),
            ProjectionTable::Links => {
                let links = world.links.iter().flat_map(|(key, linked)| {
                    linked.iter().map(|source| {
                        let name = join_key_parts(&[&key.lifecycle, &key.field]);
                        StoredRow::new(RowSubject::Link { target: key.target, name, source: *source }, Vec::new())
                    })
                });
                links.collect()
            }
            ProjectionTable::Contents => {
                let mut refs: std::collections::BTreeMap<[u8; 32], u64> =
                    self.payloads.keys().map(|sha256| (*sha256, 0)).collect();
                for payload in world.records.values().flatten().filter_map(|record| record.payload) {
                    *refs.entry(payload.sha256).or_default() += 1;
                }
                let row = |(sha256, refs): ([u8; 32], u64)| {
                    let bytes = self.payloads.get(&sha256).map_or(&[][..], |bytes| bytes);
                    let digest = hex::encode(&Sha256::digest(bytes));
                    let columns = vec![("bytes", Some(digest.into())), ("refs", number_cell(refs))];
                    StoredRow::new(RowSubject::Key(hex::encode(&sha256)), columns)
                };
                refs.into_iter().map(row).collect()
            }
            ProjectionTable::PruneState => {
                let PruneState { checkpoint_seq: checkpoint, checkpoint_hash: head, last_pruned_seq: floor } =
                    self.prune_state;
                let head = Some(hex::encode(&head).into());
                let columns = vec![
                    ("one", number_cell(1)),
                    ("checkpoint", number_cell(checkpoint)),
                    ("floor", number_cell(floor)),
                    ("head", head),
                ];
                vec![StoredRow::new(RowSubject::Key("1".to_owned()), columns)]
            }
            ProjectionTable::ApiKeys => {
                let row = |key: &ApiKey| {
                    StoredRow::new(
                        RowSubject::Key(key.id.to_string()),
                        api_key_columns(&ReplayedApiKey::from_stored(key)),
                    )
                };
                self.api_keys.keys.iter().map(row).collect()
            }
            ProjectionTable::ApiKeysRevision => {
                let columns = vec![("one", number_cell(1)), ("revision", number_cell(self.api_keys.revision))];
                vec![StoredRow::new(RowSubject::Key("1".to_owned()), columns)]
            }
            ProjectionTable::AccountEntries
            | ProjectionTable::Ready
            | ProjectionTable::Lanes
            | ProjectionTable::Delayed
            | ProjectionTable::Timers
            | ProjectionTable::StateCounts
            | ProjectionTable::LogSeq => Vec::new(),
        }
    }

    fn is_queued(&self, replayed: &ReplayedRecord) -> bool {
        let position = (replayed.record.created_at, replayed.record.id);
        self.snapshot.concurrency_queues.values().any(|queue| queue.contains(&position))
    }

    fn account_rows(&self) -> Vec<StoredRow> {
        let row = |(account, balance): (AccountName, i64)| {
            let outside = self.catalog.is_outside_account(&account.asset, &account.name);
            let columns: ColumnCells =
                vec![("outside", number_cell(u8::from(outside))), ("balance", number_cell(balance))];
            StoredRow::new(RowSubject::Key(join_key_parts(&[&account.asset, &account.name])), columns)
        };
        self.balances().into_iter().map(row).collect()
    }
}
