//! Loads read keys from PostgreSQL: one statement for each kind of key, all in one round trip. A save uses the same
//! statements with less detail to validate the read set.

use std::collections::{BTreeSet, HashMap};

use onceward_core::decide::{Account, ConcurrencyKey, CounterKey, LinkKey, ReadKey, UniqueKey};
use onceward_core::record::FencingToken;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use tokio_postgres::Row;
use uuid::Uuid;

use super::pipeline::{Pipeline, param};
use super::rows::{self, indexed_key_text, ordinal_index, to_limit};
use crate::columns::NO_WINDOW;
use crate::error::StoreError;
use crate::read_set::{QueuePosition, ReadSet, RecordMeta};
use crate::symbols::{CatalogSnapshot, SymbolTable};

const SELECT_RECORDS_SQL: &str = "SELECT * FROM onceward.records_with_execution WHERE id = ANY($1::uuid[])";

/// Selects only the metadata of records.
const SELECT_RECORD_META_SQL: &str = "SELECT r.id, r.row, r.version, e.expires_at, r.head, r.entry FROM onceward.records r \
     LEFT JOIN onceward.executions e ON e.record = r.row AND e.token = r.attempt WHERE r.id = ANY($1::uuid[])";

const SELECT_UNIQUES_SQL: &str = "SELECT k.i, u.holder FROM unnest($1::bigint[], $2::bigint[], $3::text[]) WITH ORDINALITY k(l, n, p, i) \
     JOIN onceward.uniques u ON u.lifecycle = k.l AND u.name = k.n AND u.parts = k.p";

const SELECT_COUNTERS_SQL: &str = "SELECT k.i, c.count FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[]) \
     WITH ORDINALITY k(l, n, p, w, i) \
     JOIN onceward.counts c ON c.lifecycle = k.l AND c.name = k.n AND c.parts = k.p AND c.window_start = k.w";

const SELECT_ACCOUNTS_SQL: &str = "SELECT k.i, a.balance FROM unnest($1::text[], $2::text[]) WITH ORDINALITY k(a, n, i) \
     JOIN onceward.accounts a ON a.asset = k.a AND a.name = k.n";

const SELECT_LINKS_SQL: &str = "SELECT k.i, t.link_version, s.id FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) WITH ORDINALITY k(t, l, f, i) \
     JOIN onceward.records t ON t.id = k.t \
     LEFT JOIN onceward.links l ON l.target = t.row AND l.lifecycle = k.l AND l.field = k.f \
     LEFT JOIN onceward.records s ON s.row = l.source ORDER BY k.i, l.source";

/// Selects only the link version of the target.
const SELECT_LINK_VERSIONS_SQL: &str = "SELECT k.i, t.link_version, NULL::uuid FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) \
     WITH ORDINALITY k(t, l, f, i) JOIN onceward.records t ON t.id = k.t";

const SELECT_EXECUTIONS_SQL: &str = "SELECT k.i, e.token, e.worker, e.holder, e.status, e.leased_at, e.expires_at, e.started_at, \
     e.finished_at, e.abort_code, e.abort_retryable, e.finish_pending, e.key, e.abort_message, \
     e.retry_at, e.lease_duration \
     FROM unnest($1::uuid[], $2::bigint[]) WITH ORDINALITY k(r, t, i) \
     JOIN onceward.records r ON r.id = k.r JOIN onceward.executions e ON e.record = r.row AND e.token = k.t";

const SELECT_QUEUES_SQL: &str = "SELECT k.i, q.created_at, q.id FROM unnest($1::bigint[], $2::text[], $3::bigint[]) \
     WITH ORDINALITY k(l, p, depth, i) CROSS JOIN LATERAL \
     (SELECT created_at, id FROM onceward.queues WHERE lifecycle = k.l AND parts = k.p ORDER BY created_at, id LIMIT k.depth) q \
     ORDER BY k.i, q.created_at, q.id";

/// An id that no name has.
const UNKNOWN_NAME_ID: i64 = -1;

/// How much of each value to load.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadDetail {
    /// Everything, to decide on it.
    Full,
    /// Enough to detect a change.
    VersionOnly,
}

/// A load in progress, by kind of key.
#[derive(Default)]
pub(super) struct LoadRequest {
    records: Vec<RecordId>,
    uniques: Vec<UniqueKey>,
    counts: Vec<CounterKey>,
    accounts: Vec<Account>,
    links: Vec<LinkKey>,
    executions: Vec<(RecordId, FencingToken)>,
    queues: Vec<ConcurrencyKey>,
    /// Position of each kind's result in the pipeline.
    answer_indexes: [Option<usize>; 7],
}

impl LoadRequest {
    /// Adds statements for the keys that are not in the read set.
    pub(super) fn new(
        pipeline: &mut Pipeline<'_>,
        symbols: &SymbolTable,
        read_set: &ReadSet,
        keys: &[ReadKey],
        detail: LoadDetail,
    ) -> Result<Self, StoreError> {
        let mut request = Self::default();
        // The list may contain duplicates.
        let keys: BTreeSet<&ReadKey> = keys.iter().filter(|key| read_set.needs_load(key)).collect();
        for key in keys {
            match key {
                ReadKey::Record(id) => request.records.push(*id),
                ReadKey::Unique(key) => request.uniques.push(key.clone()),
                ReadKey::Counter(key) => request.counts.push(key.clone()),
                ReadKey::Account(account) => request.accounts.push(account.clone()),
                ReadKey::Links(key) => request.links.push(key.clone()),
                ReadKey::Execution(record, token) => request.executions.push((*record, *token)),
                ReadKey::ConcurrencyQueue(key) => request.queues.push(key.clone()),
            }
        }
        request.add_queries(pipeline, symbols, read_set, detail)?;
        Ok(request)
    }

    fn add_queries(
        &mut self,
        pipeline: &mut Pipeline<'_>,
        symbols: &SymbolTable,
        read_set: &ReadSet,
        detail: LoadDetail,
    ) -> Result<(), StoreError> {
        let number = |name: &str| symbols.id(name).unwrap_or(UNKNOWN_NAME_ID);
        if !self.records.is_empty() {
            let ids: Vec<Uuid> = self.records.iter().map(|id| id.0).collect();
            let sql = if detail == LoadDetail::Full { SELECT_RECORDS_SQL } else { SELECT_RECORD_META_SQL };
            self.answer_indexes[0] = Some(pipeline.add(sql, vec![param(ids)]));
        }
        if !self.uniques.is_empty() {
            let (mut lifecycles, mut unique, mut parts) = (Vec::new(), Vec::new(), Vec::new());
            for key in &self.uniques {
                lifecycles.push(number(&key.lifecycle));
                unique.push(number(&key.unique));
                parts.push(indexed_key_text(&key.parts)?.0);
            }
            self.answer_indexes[1] =
                Some(pipeline.add(SELECT_UNIQUES_SQL, vec![param(lifecycles), param(unique), param(parts)]));
        }
        if !self.counts.is_empty() {
            let (mut lifecycles, mut limits, mut parts, mut spans) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            for key in &self.counts {
                lifecycles.push(number(&key.lifecycle));
                limits.push(number(&key.limit));
                parts.push(indexed_key_text(&key.parts)?.0);
                spans.push(key.window_start.unwrap_or(NO_WINDOW));
            }
            self.answer_indexes[2] = Some(
                pipeline.add(SELECT_COUNTERS_SQL, vec![param(lifecycles), param(limits), param(parts), param(spans)]),
            );
        }
        if !self.accounts.is_empty() {
            let (mut assets, mut accounts) = (Vec::new(), Vec::new());
            for account in &self.accounts {
                // A hold is part of its record and is loaded with it.
                let (asset, name) = match account {
                    Account::Named { asset, name } => (asset.to_string(), name.to_string()),
                    Account::Hold { .. } => Default::default(),
                };
                assets.push(asset);
                accounts.push(name);
            }
            self.answer_indexes[3] = Some(pipeline.add(SELECT_ACCOUNTS_SQL, vec![param(assets), param(accounts)]));
        }
        if !self.links.is_empty() {
            let targets: Vec<Uuid> = self.links.iter().map(|key| key.target.0).collect();
            let lifecycles: Vec<i64> = self.links.iter().map(|key| number(&key.lifecycle)).collect();
            let fields: Vec<i64> = self.links.iter().map(|key| number(&key.field)).collect();
            let sql = if detail == LoadDetail::Full { SELECT_LINKS_SQL } else { SELECT_LINK_VERSIONS_SQL };
            self.answer_indexes[4] = Some(pipeline.add(sql, vec![param(targets), param(lifecycles), param(fields)]));
        }
        if !self.executions.is_empty() {
            let ids: Vec<Uuid> = self.executions.iter().map(|(id, _)| id.0).collect();
            let tokens: Vec<i64> = self.executions.iter().map(|(_, token)| rows::to_signed(token.0)).collect();
            self.answer_indexes[5] = Some(pipeline.add(SELECT_EXECUTIONS_SQL, vec![param(ids), param(tokens)]));
        }
        if !self.queues.is_empty() {
            let (mut lifecycles, mut parts, mut depths) = (Vec::new(), Vec::new(), Vec::new());
            for key in &self.queues {
                lifecycles.push(number(&key.lifecycle));
                parts.push(indexed_key_text(&key.parts)?.0);
                depths.push(to_limit(read_set.queue_depth(key)));
            }
            self.answer_indexes[6] =
                Some(pipeline.add(SELECT_QUEUES_SQL, vec![param(lifecycles), param(parts), param(depths)]));
        }
        Ok(())
    }

    /// Returns whether several statements are needed. Without a snapshot each could see a different state.
    pub(super) fn needs_snapshot(&self) -> bool {
        self.answer_indexes.iter().flatten().count() > 1
    }

    fn rows_of_kind<'r>(&self, answers: &'r [Vec<Row>], kind: usize) -> &'r [Row] {
        self.answer_indexes[kind].and_then(|at| answers.get(at)).map_or(&[], Vec::as_slice)
    }

    /// Returns the largest version number in the results.
    pub(super) fn newest_version_number(&self, answers: &[Vec<Row>]) -> Result<u32, StoreError> {
        let mut numbers = self.rows_of_kind(answers, 0).iter().map(rows::version_number);
        numbers.try_fold(0, |newest, number| Ok(newest.max(number?)))
    }

    /// Adds the results to the read set.
    pub(super) fn fill(
        &self,
        read_set: &mut ReadSet,
        answers: &[Vec<Row>],
        snapshot: &CatalogSnapshot,
        detail: LoadDetail,
    ) -> Result<(), StoreError> {
        let mut records: HashMap<RecordId, _> = HashMap::new();
        for row in self.rows_of_kind(answers, 0) {
            if detail == LoadDetail::Full {
                let (stored, record) = rows::read_record(row, &snapshot.catalog)?;
                records.insert(record.id, (stored, Some(record)));
            } else {
                records.insert(rows::record_id_column(row, 0)?, (read_record_meta(row)?, None));
            }
        }
        for id in &self.records {
            match records.remove(id) {
                Some((stored, Some(record))) => read_set.put_record(*id, Some((stored, record))),
                Some((stored, None)) => read_set.put_record_meta(*id, stored),
                None => read_set.put_record(*id, None),
            }
        }
        let mut holders = vec![None; self.uniques.len()];
        for row in self.rows_of_kind(answers, 1) {
            *answer_slot(&mut holders, row)? = Some(rows::record_id_column(row, 1)?);
        }
        for (key, holder) in self.uniques.iter().zip(holders) {
            read_set.put_unique(key.clone(), holder);
        }
        let mut counts = vec![0; self.counts.len()];
        for row in self.rows_of_kind(answers, 2) {
            *answer_slot(&mut counts, row)? = rows::unsigned_column(row, 1)?;
        }
        for (key, count) in self.counts.iter().zip(counts) {
            read_set.put_count(key.clone(), count);
        }
        let mut balances = vec![0; self.accounts.len()];
        for row in self.rows_of_kind(answers, 3) {
            *answer_slot(&mut balances, row)? = row.try_get(1)?;
        }
        for (account, balance) in self.accounts.iter().zip(balances) {
            read_set.put_account(account.clone(), balance);
        }
        let mut links = vec![(Vec::new(), 0); self.links.len()];
        for row in self.rows_of_kind(answers, 4) {
            let (linked, version) = answer_slot(&mut links, row)?;
            *version = rows::unsigned_column(row, 1)?;
            linked.extend(rows::optional_column::<Uuid>(row, 2)?.map(RecordId));
        }
        for (key, (linked, version)) in self.links.iter().zip(links) {
            read_set.put_links(key.clone(), linked, version);
        }
        let mut executions = vec![None; self.executions.len()];
        for row in self.rows_of_kind(answers, 5) {
            *answer_slot(&mut executions, row)? = Some(rows::read_execution(row, 1)?);
        }
        for ((record, token), execution) in self.executions.iter().zip(executions) {
            read_set.put_execution(*record, *token, execution);
        }
        let mut queues: Vec<Vec<QueuePosition>> = vec![Vec::new(); self.queues.len()];
        for row in self.rows_of_kind(answers, 6) {
            answer_slot(&mut queues, row)?.push((rows::time_column(row, 1)?, rows::record_id_column(row, 2)?));
        }
        for (key, first) in self.queues.iter().zip(queues) {
            read_set.put_queue(key.clone(), first);
        }
        Ok(())
    }
}

/// Returns the element that a row belongs to.
fn answer_slot<'a, T>(answers: &'a mut [T], row: &Row) -> Result<&'a mut T, StoreError> {
    let at = ordinal_index(row, 0)?;
    answers.get_mut(at).ok_or_else(|| StoreError::corrupt("the database returned a key that was not requested"))
}

fn read_record_meta(row: &Row) -> Result<RecordMeta, StoreError> {
    Ok(RecordMeta {
        row_id: rows::unsigned_column(row, 1)?,
        version: rows::unsigned_column(row, 2)?,
        expires_at: rows::optional_column::<i64>(row, 3)?.map(Time::from_micros),
        head_hash: rows::to_hash(row.try_get(4)?)?,
        head_entry_id: rows::unsigned_column(row, 5)?,
    })
}
