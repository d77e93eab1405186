//! Looking through the reference model. It keeps no `entries`, `ready`, `lanes`, `later`, `timers` or `tallies`: it works them
//! out when asked.

use onceward_core::decide::CountKey;
use onceward_core::hex;
use onceward_core::value::RecordId;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use super::MemoryStore;
use super::kept::Kept as World;
use crate::StoreError;
use crate::account::AccountName;
use crate::api_keys::{ApiKey, KnownKey};
use crate::log::EffectMark;
use crate::prune::Standing;
use crate::scan::{
    At, Beside, Columns, Cursor, Kept, Known, Learned, LogPage, LogRow, Scan, ScanPage, Spot, Table, execution_columns,
    expected, joined, key_columns, key_of_count, key_of_unique, number,
};

const TABLES: &[Table] = &[
    Table::Pruned,
    Table::Records,
    Table::Executions,
    Table::Effects,
    Table::Uniques,
    Table::Counts,
    Table::Accounts,
    Table::Links,
    Table::Queues,
    Table::Contents,
    Table::ApiKeys,
    Table::KeyChanges,
];

impl Scan for MemoryStore {
    fn tables(&self) -> &'static [Table] {
        TABLES
    }

    async fn learn(&self) -> Result<Learned, StoreError> {
        Ok(Learned { catalog: self.kept().catalog.clone(), is_whole: true, differences: Vec::new() })
    }

    async fn scan_log(&self, after: i64, limit: usize) -> Result<LogPage, StoreError> {
        let kept = self.kept();
        let after = u64::try_from(after).unwrap_or(0);
        let rows = kept.log.iter().filter(|entry| entry.seq > after).take(limit).map(|entry| LogRow {
            seq: i64::try_from(entry.seq).unwrap_or(i64::MAX),
            record: entry.record,
            nobody: None,
            version: i64::try_from(entry.version).unwrap_or(i64::MAX),
            at: entry.at.micros(),
            batch_end: None,
            previous: None,
            text: entry.text.clone(),
            hash: entry.hash,
        });
        Ok(LogPage { seq: kept.last(), rows: rows.collect() })
    }

    async fn scan(&self, table: Table, after: Option<Cursor>, limit: usize) -> Result<ScanPage, StoreError> {
        let kept = self.kept();
        let from = match after.as_ref().map(|cursor| &cursor.0[..]) {
            Some([Spot::Int(from)]) => usize::try_from(*from).unwrap_or(usize::MAX),
            _ => 0,
        };
        // A model for tests: it may sort everything for each page.
        let mut rows = kept.rows_of(table);
        rows.sort_by_cached_key(|row| row.at.to_string());
        let end = from.saturating_add(limit);
        let next = (end < rows.len()).then(|| Cursor(vec![Spot::Int(i64::try_from(end).unwrap_or(i64::MAX))]));
        Ok(ScanPage { seq: kept.last(), rows: rows.into_iter().skip(from).take(limit).collect(), next })
    }

    async fn result(&self, record: RecordId) -> Result<Option<Json>, StoreError> {
        Ok(self.kept().effects.get(&record).map(|effect| effect.result.clone()))
    }
}

impl World {
    fn known(&self, id: RecordId) -> Option<Known> {
        let (record, beside) = (self.world.record(id)?, self.beside.get(&id)?);
        Some(Known {
            row: beside.row,
            record: record.clone(),
            head: beside.head,
            entry: beside.entry,
            effect: self.effects.get(&id).map(EffectMark::of),
            linked: 0,
            raised: beside.links,
            ledger: 0,
            lost: false,
            vouched: true,
        })
    }

    fn rows_of(&self, table: Table) -> Vec<Kept> {
        let world = &self.world;
        match table {
            Table::Records | Table::Effects | Table::Queues => {
                let known = self.rows.values().filter_map(|id| self.known(*id));
                let row = |known: Known| {
                    let mut columns = expected(table, &known, &self.catalog, Beside::Nothing)?;
                    if table == Table::Records {
                        columns.push(("links", number(known.raised)));
                    }
                    if table == Table::Queues && !self.stands_in_queue(&known) {
                        return None;
                    }
                    Some(Kept::new(At::Record(known.record.id), columns))
                };
                known.filter_map(row).collect()
            }
            Table::Executions => {
                let kept = world.executions.iter().filter_map(|((id, token), execution)| {
                    let token = i64::try_from(token.0).unwrap_or(i64::MAX);
                    Some(Kept::new(At::Execution(*id, token), execution_columns(execution.as_ref()?)))
                });
                kept.collect()
            }
            Table::Uniques => {
                let held = world.uniques.iter().filter_map(|(key, holder)| {
                    let holder = holder.as_ref()?.to_string();
                    Some(Kept::new(At::Key(key_of_unique(key)), vec![("holder", Some(holder.into()))]))
                });
                held.collect()
            }
            Table::Counts => {
                let row = |(key, count): (&CountKey, &u64)| {
                    Kept::new(At::Key(key_of_count(key)), vec![("count", number(count))])
                };
                world.counts.iter().map(row).collect()
            }
            Table::Accounts => self.account_rows(),
            Table::Links => {
                let links = world.links.iter().flat_map(|(key, linked)| {
                    linked.iter().map(|source| {
                        let name = joined(&[&key.lifecycle, &key.field]);
                        Kept::new(At::Link { target: key.target, name, source: *source }, Vec::new())
                    })
                });
                links.collect()
            }
            Table::Contents => {
                let mut refs: std::collections::BTreeMap<[u8; 32], u64> =
                    self.contents.keys().map(|sha256| (*sha256, 0)).collect();
                for payload in world.records.values().flatten().filter_map(|record| record.payload) {
                    *refs.entry(payload.sha256).or_default() += 1;
                }
                let row = |(sha256, refs): ([u8; 32], u64)| {
                    let bytes = self.contents.get(&sha256).map_or(&[][..], |bytes| bytes);
                    let digest = hex::encode(&Sha256::digest(bytes));
                    let columns = vec![("bytes", Some(digest.into())), ("refs", number(refs))];
                    Kept::new(At::Key(hex::encode(&sha256)), columns)
                };
                refs.into_iter().map(row).collect()
            }
            Table::Pruned => {
                let Standing { checkpoint, head, floor } = self.pruned;
                let head = Some(hex::encode(&head).into());
                let columns = vec![
                    ("one", number(1)),
                    ("checkpoint", number(checkpoint)),
                    ("floor", number(floor)),
                    ("head", head),
                ];
                vec![Kept::new(At::Key("1".to_owned()), columns)]
            }
            Table::ApiKeys => {
                let row = |key: &ApiKey| Kept::new(At::Key(key.id.to_string()), key_columns(&KnownKey::of(key)));
                self.keys.keys.iter().map(row).collect()
            }
            Table::KeyChanges => {
                let columns = vec![("one", number(1)), ("changes", number(self.keys.changes))];
                vec![Kept::new(At::Key("1".to_owned()), columns)]
            }
            Table::Entries
            | Table::Ready
            | Table::Lanes
            | Table::Later
            | Table::Timers
            | Table::Tallies
            | Table::Counter => Vec::new(),
        }
    }

    fn stands_in_queue(&self, known: &Known) -> bool {
        let place = (known.record.created_at, known.record.id);
        self.world.queues.values().any(|queue| queue.contains(&place))
    }

    fn account_rows(&self) -> Vec<Kept> {
        let row = |(account, balance): (AccountName, i64)| {
            let outside = self.catalog.ever_outside(&account.asset, &account.name);
            let columns: Columns = vec![("outside", number(u8::from(outside))), ("balance", number(balance))];
            Kept::new(At::Key(joined(&[&account.asset, &account.name])), columns)
        };
        self.balances().into_iter().map(row).collect()
    }
}
