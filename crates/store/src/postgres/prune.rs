//! Pruning in PostgreSQL. One process prunes at a time: it locks the prune state row, and others skip a locked row. All
//! rows to delete are locked in the order of every save: unique keys, counters, records.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use onceward_core::value::RecordId;
use tokio_postgres::Row;
use uuid::Uuid;

use super::lock_plan::{LOCK_COUNTERS_SQL, LOCK_UNIQUES_SQL};
use super::pipeline::{Pipeline, SqlParameter, param};
use super::pool::{BEGIN_WRITE_SQL, OpenTransaction};
use super::rows::{self, indexed_key_text, to_limit, to_signed};
use super::write::{APPEND_BATCH_SQL, INSERT_HISTORY_SQL, LOCK_LOG_END_SQL, LOWER_STATE_COUNTS_SQL};
use super::{CatalogSnapshot, PostgresInner};
use crate::batch::IdempotencyId;
use crate::columns::NO_WINDOW;
use crate::error::StoreError;
use crate::log::NewLogEntry;
use crate::prune::{
    ExpiredKeysPage, ExpiredKeysQuery, PrunablePage, PrunableQuery, PrunePlan, PruneRequest, PruneResult, PruneState,
    RecordWithReferrers,
};
use crate::write_set::StateCountKey;

pub(super) const SELECT_PRUNE_STATE_SQL: &str = "SELECT checkpoint, floor, head FROM onceward.prune_state";

/// Scans a bounded number of records in the order of creation. An index by end time would cost every save.
const SELECT_PRUNABLE_SQL: &str = "SELECT row, id, created_at, updated_at, finished_at FROM onceward.records \
     WHERE row > $1 ORDER BY row LIMIT $2";

const SELECT_RECORDS_SQL: &str = "SELECT * FROM onceward.records_with_execution WHERE id = ANY($1::uuid[])";

const SELECT_REFERRERS_SQL: &str = "SELECT r.id, r.link_version, ARRAY(SELECT DISTINCT s.id FROM onceward.links l \
     JOIN onceward.records s ON s.row = l.source WHERE l.target = r.row ORDER BY s.id) \
     FROM onceward.records r WHERE r.id = ANY($1::uuid[])";

const LOCK_PRUNE_STATE_SQL: &str = "SELECT checkpoint, floor, head FROM onceward.prune_state FOR UPDATE SKIP LOCKED";

/// A locked row means that another process is pruning.
const CLAIM_PRUNE_TURN_SQL: &str = "UPDATE onceward.prune_state SET last_run_at = n.now FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now) n \
     WHERE one = (SELECT one FROM onceward.prune_state WHERE last_run_at <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $1 \
     OR last_run_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + $1 \
     FOR UPDATE SKIP LOCKED) RETURNING one";

const LOCK_RECORDS_SQL: &str = "SELECT FROM onceward.records WHERE id = ANY($1::uuid[]) ORDER BY row FOR UPDATE";

/// Must run after the records are locked.
const SELECT_LOCKED_RECORDS_SQL: &str =
    "SELECT id, row, version, link_version FROM onceward.records WHERE id = ANY($1::uuid[])";

/// Selects the ids of all entries of records, following each history backwards.
const SELECT_ENTRY_IDS_SQL: &str = "WITH RECURSIVE back AS ( \
     SELECT h.entry_id, h.previous, h.record FROM onceward.records r JOIN onceward.history h ON h.entry_id = r.entry AND h.record = r.row \
     WHERE r.id = ANY($1::uuid[]) \
     UNION ALL SELECT h.entry_id, h.previous, h.record FROM back b JOIN onceward.history h ON h.entry_id = b.previous \
     WHERE h.entry_id < b.entry_id AND h.record = b.record) SELECT entry_id FROM back";

pub(super) const NEXT_BATCH_NUMBER_SQL: &str = "SELECT nextval('onceward.batch_numbers')";

const DELETE_HISTORY_SQL: &str = "DELETE FROM onceward.history WHERE entry_id = ANY($1::bigint[])";

const DELETE_BATCHES_SQL: &str = "DELETE FROM onceward.batches b WHERE b.batch = ANY($1::bigint[]) AND NOT EXISTS ( \
     SELECT FROM onceward.history h WHERE h.entry_id >= b.batch << 20 AND h.entry_id < (b.batch + 1) << 20)";

const DELETE_RECORDS_SQL: [&str; 4] = [
    "DELETE FROM onceward.executions WHERE record = ANY($1::bigint[])",
    "DELETE FROM onceward.effects WHERE record = ANY($1::bigint[])",
    "DELETE FROM onceward.links WHERE target = ANY($1::bigint[])",
    "DELETE FROM onceward.records WHERE row = ANY($1::bigint[])",
];

/// Locked in the order of every save. A save that writes the same payload meanwhile waits, and inserts it again if it
/// was deleted.
const LOCK_CONTENTS_SQL: &str =
    "SELECT FROM onceward.contents WHERE sha256 = ANY($1::bytea[]) ORDER BY sha256 FOR UPDATE";

const LOWER_CONTENT_REFS_SQL: &str = "UPDATE onceward.contents c SET refs = c.refs - k.n FROM unnest($1::bytea[], $2::bigint[]) k(h, n) \
     WHERE c.sha256 = k.h";

const DELETE_CONTENTS_SQL: &str = "DELETE FROM onceward.contents WHERE sha256 = ANY($1::bytea[]) AND refs = 0";

/// Deletes account index rows. Balances do not change.
const DELETE_ACCOUNT_ENTRIES_SQL: &str = "DELETE FROM onceward.account_entries e USING unnest($1::text[], $2::text[], $3::bigint[]) k(a, n, s) \
     WHERE e.asset = k.a AND e.name = k.n AND e.seq = k.s";

const DELETE_LINKS_SQL: &str = "DELETE FROM onceward.links l USING unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) \
     k(t, l, f, s) WHERE l.target = k.t AND l.lifecycle = k.l AND l.field = k.f AND l.source = k.s";

const RAISE_LINK_VERSIONS_SQL: &str = "UPDATE onceward.records r SET link_version = r.link_version + k.n \
     FROM (SELECT t, count(*) AS n FROM unnest($1::bigint[]) t GROUP BY t) k WHERE r.row = k.t";

const DELETE_UNIQUES_SQL: &str = "DELETE FROM onceward.uniques u USING unnest($1::bigint[], $2::bigint[], $3::text[], $4::uuid[]) \
     k(l, n, p, h) WHERE u.lifecycle = k.l AND u.name = k.n AND u.parts = k.p AND u.holder = k.h";

const UPDATE_COUNTERS_SQL: &str = "UPDATE onceward.counts c SET count = c.count + k.d \
     FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[]) k(l, n, p, w, d) \
     WHERE c.lifecycle = k.l AND c.name = k.n AND c.parts = k.p AND c.window_start = k.w";

/// Runs after the checkpoint was appended, when its seq is final.
const UPDATE_PRUNE_STATE_SQL: &str =
    "UPDATE onceward.prune_state SET checkpoint = (SELECT max(last) FROM onceward.batches), floor = $1, head = $2";

/// Also deletes zero rows of earlier states, because the remaining log no longer mentions them.
const DELETE_ZERO_STATE_COUNTS_SQL: &str = "DELETE FROM onceward.state_counts t USING unnest($1::bigint[], $2::text[]) k(d, o), \
     onceward.definitions own, onceward.definitions every WHERE own.number = k.d AND every.name = own.name \
     AND t.definition = every.number AND t.owner = k.o AND t.count = 0";

const DELETE_EXPIRED_KEYS_SQL: &str = "WITH looked AS (SELECT owner, key, at FROM onceward.idempotency_keys WHERE (owner, key) > ($1, $2) \
     ORDER BY owner, key LIMIT $3), \
     gone AS (DELETE FROM onceward.idempotency_keys r USING looked l WHERE r.owner = l.owner AND r.key = l.key AND l.at <= $4 RETURNING 1), \
     last AS (SELECT owner, key FROM looked ORDER BY owner DESC, key DESC LIMIT 1) \
     SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM looked), owner, key FROM last";

pub(super) fn read_prune_state(row: &Row) -> Result<PruneState, StoreError> {
    let (checkpoint, floor) = (rows::unsigned_column(row, 0)?, rows::unsigned_column(row, 1)?);
    Ok(PruneState {
        checkpoint_seq: checkpoint,
        last_pruned_seq: floor,
        checkpoint_hash: rows::to_hash(row.try_get(2)?)?,
    })
}

/// Returns true and stores the time, if no process has looked for prunable records for `min_interval`.
pub(super) async fn claim_prune_turn(inner: &PostgresInner, min_interval: Duration) -> Result<bool, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(CLAIM_PRUNE_TURN_SQL, vec![param(i64::try_from(min_interval.as_micros()).unwrap_or(i64::MAX))]);
    let answers = pipeline.run(&inner.pool.get().await?.with_background_timeout()).await?;
    Ok(!answers[0].is_empty())
}

pub(super) async fn prune_state(inner: &PostgresInner) -> Result<PruneState, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(SELECT_PRUNE_STATE_SQL, Vec::new());
    let answers = inner.run_pipeline(&pipeline).await?;
    answers[0].first().map_or_else(|| Err(StoreError::corrupt("`prune_state` has no row")), read_prune_state)
}

pub(super) async fn prunable(inner: &PostgresInner, query: &PrunableQuery) -> Result<PrunablePage, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(SELECT_PRUNABLE_SQL, vec![param(to_signed(query.after_row)), param(to_limit(query.limit))]);
    let answers = inner.run_pipeline(&pipeline).await?;
    let cutoff = query.cutoff.micros();
    let (mut page, mut all_newer) = (PrunablePage::default(), true);
    for row in &answers[0] {
        page.next = Some(rows::unsigned_column(row, 0)?);
        all_newer &= row.try_get::<_, i64>(2)? > cutoff;
        let (updated, finished): (i64, Option<i64>) = (row.try_get(3)?, row.try_get(4)?);
        if finished.is_some_and(|at| at <= cutoff) && updated <= cutoff {
            page.records.push(rows::record_id_column(row, 1)?);
        }
    }
    if all_newer || answers[0].len() < query.limit {
        page.next = None;
    }
    Ok(page)
}

pub(super) async fn with_referrers(
    inner: &PostgresInner,
    ids: &[RecordId],
) -> Result<Vec<RecordWithReferrers>, StoreError> {
    let uuids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let mut pipeline = Pipeline::default();
    pipeline.add(SELECT_RECORDS_SQL, vec![param(uuids.clone())]);
    pipeline.add(SELECT_REFERRERS_SQL, vec![param(uuids)]);
    let answers = inner.run_pipeline(&pipeline).await?;
    let snapshot = super::read::catalog_for_rows(inner, &answers[0]).await?;
    let mut referrers = HashMap::new();
    for row in &answers[1] {
        let found: Vec<Uuid> = row.try_get(2)?;
        let found: Vec<RecordId> = found.into_iter().map(RecordId).collect();
        referrers.insert(rows::record_id_column(row, 0)?, (rows::unsigned_column(row, 1)?, found));
    }
    let mut found = HashMap::new();
    for row in &answers[0] {
        let (stored, record) = rows::read_record(row, &snapshot.catalog)?;
        if let Some((links, sources)) = referrers.remove(&record.id) {
            found.insert(
                record.id,
                RecordWithReferrers { meta: stored, record, link_version: links, referrers: sources },
            );
        }
    }
    Ok(ids.iter().filter_map(|id| found.remove(id)).collect())
}

pub(super) async fn delete_expired_keys(
    inner: &PostgresInner,
    query: &ExpiredKeysQuery,
) -> Result<ExpiredKeysPage, StoreError> {
    let (owner, key) = query.after.as_ref().map_or(("", ""), |name| (&*name.owner, &*name.idempotency_key));
    let mut pipeline = Pipeline::default();
    pipeline.add(
        DELETE_EXPIRED_KEYS_SQL,
        vec![param(owner), param(key), param(to_limit(query.limit)), param(query.cutoff.micros())],
    );
    let answers = inner.run_pipeline(&pipeline).await?;
    let Some(row) = answers[0].first() else { return Ok(ExpiredKeysPage::default()) };
    let last = IdempotencyId { owner: rows::text_column(row, 2)?, idempotency_key: rows::text_column(row, 3)? };
    let next = (row.try_get::<_, i64>(1)? >= to_limit(query.limit)).then_some(last);
    Ok(ExpiredKeysPage { deleted: rows::unsigned_column(row, 0)?, next })
}

pub(super) async fn prune(inner: Arc<PostgresInner>, prune: Arc<PruneRequest>) -> Result<PruneResult, StoreError> {
    let snapshot = inner.newest_catalog().await?;
    let transaction = OpenTransaction::new(inner.pool.get().await?.with_background_timeout());
    let prune_transaction = PruneTransaction { snapshot: &snapshot, plan: &prune.plan };
    let result = prune_transaction.run(&transaction, &prune).await;
    // Whatever the result, pruned records must not stay in the cache.
    inner.record_cache.clear();
    match result {
        Ok(Some(seq)) => {
            transaction.release();
            inner.notify_channel.notify();
            Ok(PruneResult::Saved(seq))
        }
        Ok(None) | Err(StoreError::Busy) => {
            transaction.rollback().await;
            Ok(PruneResult::Conflict)
        }
        Err(error) => {
            transaction.rollback().await;
            Err(error)
        }
    }
}

/// Returns the columns of an entry without a record that is alone in its batch.
pub(super) fn lone_entry_parameters(batch: i64, entry: &NewLogEntry) -> Vec<SqlParameter<'_>> {
    vec![
        param(vec![batch << 20]),
        param(vec![None::<i64>]),
        param(vec![to_signed(entry.version)]),
        param(vec![entry.at.micros()]),
        param(vec![None::<i64>]),
        param(vec![&*entry.text]),
        param(vec![&entry.hash[..]]),
    ]
}

/// A prune in its transaction.
struct PruneTransaction<'a> {
    snapshot: &'a CatalogSnapshot,
    plan: &'a PrunePlan,
}

/// Result of the first round trip.
struct PruneLocks {
    state: PruneState,
    row_ids: HashMap<RecordId, i64>,
    entry_ids: Vec<i64>,
    batch_number: i64,
}

/// Columns of keys: lifecycle, name, parts.
type KeyColumns = (Vec<i64>, Vec<i64>, Vec<String>);

impl PruneTransaction<'_> {
    async fn run(&self, transaction: &OpenTransaction, prune: &PruneRequest) -> Result<Option<u64>, StoreError> {
        let Some(locks) = self.lock_all(transaction).await? else { return Ok(None) };
        let (entry, new_state) = self.plan.next_checkpoint_entry(&locks.state, prune.now)?;
        let mut pipeline = Pipeline::default();
        self.add_deletes(&mut pipeline, &locks)?;
        self.add_releases(&mut pipeline)?;
        pipeline.add(INSERT_HISTORY_SQL, lone_entry_parameters(locks.batch_number, &entry));
        pipeline.add(LOCK_LOG_END_SQL, Vec::new());
        let appended = pipeline.add(APPEND_BATCH_SQL, vec![param(1_i64), param(locks.batch_number)]);
        // Only after the append, because the last batch may be among them, and its seqs must not be assigned again.
        let batches: BTreeSet<i64> = locks.entry_ids.iter().map(|entry_id| entry_id >> 20).collect();
        pipeline.add(DELETE_BATCHES_SQL, vec![param(batches.into_iter().collect::<Vec<_>>())]);
        pipeline.add(
            UPDATE_PRUNE_STATE_SQL,
            vec![param(to_signed(new_state.last_pruned_seq)), param(new_state.checkpoint_hash.to_vec())],
        );
        self.add_state_count_updates(&mut pipeline)?;
        pipeline.add_plain("COMMIT");
        let answers = pipeline.run(transaction.client()?).await?;
        let row = answers.get(appended).and_then(|rows| rows.first());
        Ok(Some(rows::unsigned_column(row.ok_or_else(|| StoreError::corrupt("`log_seq` has no row"))?, 1)?))
    }

    /// Locks everything to write in the order of every save. Returns `None` if a loaded value has changed.
    async fn lock_all(&self, transaction: &OpenTransaction) -> Result<Option<PruneLocks>, StoreError> {
        let pruned_ids: Vec<Uuid> = self.plan.pruned.iter().map(|one| one.record.id.0).collect();
        let targets = self.plan.removed_links.iter().map(|(key, _)| key.target.0);
        let all: BTreeSet<Uuid> = pruned_ids.iter().copied().chain(targets).collect();
        let all: Vec<Uuid> = all.into_iter().collect();
        let mut pipeline = Pipeline::default();
        pipeline.add_plain(BEGIN_WRITE_SQL);
        let state_index = pipeline.add(LOCK_PRUNE_STATE_SQL, Vec::new());
        let (lifecycles, names, parts) = self.unique_key_columns()?;
        if !parts.is_empty() {
            pipeline.add(LOCK_UNIQUES_SQL, vec![param(lifecycles), param(names), param(parts)]);
        }
        let ((lifecycles, names, parts), spans) = self.counter_key_columns()?;
        if !parts.is_empty() {
            pipeline.add(LOCK_COUNTERS_SQL, vec![param(lifecycles), param(names), param(parts), param(spans)]);
        }
        pipeline.add(LOCK_RECORDS_SQL, vec![param(all.clone())]);
        let locked_index = pipeline.add(SELECT_LOCKED_RECORDS_SQL, vec![param(all)]);
        let entry_ids = pipeline.add(SELECT_ENTRY_IDS_SQL, vec![param(pruned_ids)]);
        let number = pipeline.add(NEXT_BATCH_NUMBER_SQL, Vec::new());
        let answers = pipeline.run(transaction.client()?).await?;
        let Some(row) = answers[state_index].first() else { return Ok(None) };
        let prune_state = read_prune_state(row)?;
        let mut found = HashMap::new();
        for row in &answers[locked_index] {
            found.insert(
                rows::record_id_column(row, 0)?,
                (row.try_get(1)?, rows::unsigned_column(row, 2)?, rows::unsigned_column(row, 3)?),
            );
        }
        for one in &self.plan.pruned {
            let expected = (to_signed(one.meta.row_id), one.record.version, one.link_version);
            if found.get(&one.record.id) != Some(&expected) {
                return Ok(None);
            }
        }
        let entry_ids: Vec<i64> = answers[entry_ids].iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        if u64::try_from(entry_ids.len()).ok() != Some(self.plan.checkpoint.seqs.count()) {
            return Err(StoreError::corrupt("log entries of the records to prune are missing"));
        }
        let batch = answers[number]
            .first()
            .ok_or_else(|| StoreError::corrupt("the database assigned no number to the batch"))?;
        let batch = batch.try_get(0)?;
        let rows = found.into_iter().map(|(id, (row, ..))| (id, row)).collect();
        Ok(Some(PruneLocks { state: prune_state, row_ids: rows, entry_ids, batch_number: batch }))
    }

    fn add_deletes(&self, pipeline: &mut Pipeline<'_>, locks: &PruneLocks) -> Result<(), StoreError> {
        let pruned_rows: Vec<i64> = self.plan.pruned.iter().map(|one| to_signed(one.meta.row_id)).collect();
        pipeline.add(DELETE_HISTORY_SQL, vec![param(locks.entry_ids.clone())]);
        let (mut targets, mut lifecycles, mut fields, mut sources) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (key, source) in &self.plan.removed_links {
            let (Some(target), Some(source)) = (locks.row_ids.get(&key.target), locks.row_ids.get(source)) else {
                continue;
            };
            targets.push(*target);
            lifecycles.push(self.snapshot.symbols.require_id(&key.lifecycle)?);
            fields.push(self.snapshot.symbols.require_id(&key.field)?);
            sources.push(*source);
        }
        if !targets.is_empty() {
            pipeline
                .add(DELETE_LINKS_SQL, vec![param(targets.clone()), param(lifecycles), param(fields), param(sources)]);
            pipeline.add(RAISE_LINK_VERSIONS_SQL, vec![param(targets)]);
        }
        for sql in DELETE_RECORDS_SQL {
            pipeline.add(sql, vec![param(pruned_rows.clone())]);
        }
        let account_entries = &self.plan.account_entries;
        if !account_entries.is_empty() {
            let assets: Vec<String> = account_entries.iter().map(|(account, _)| account.asset.to_string()).collect();
            let names: Vec<String> = account_entries.iter().map(|(account, _)| account.name.to_string()).collect();
            let numbers: Vec<i64> = account_entries.iter().map(|(_, seq)| to_signed(*seq)).collect();
            pipeline.add(DELETE_ACCOUNT_ENTRIES_SQL, vec![param(assets), param(names), param(numbers)]);
        }
        let payload_references = self.plan.payload_references();
        if !payload_references.is_empty() {
            let hashes: Vec<Vec<u8>> = payload_references.keys().map(|hash| hash.to_vec()).collect();
            let records: Vec<i64> = payload_references.into_values().collect();
            pipeline.add(LOCK_CONTENTS_SQL, vec![param(hashes.clone())]);
            pipeline.add(LOWER_CONTENT_REFS_SQL, vec![param(hashes.clone()), param(records)]);
            pipeline.add(DELETE_CONTENTS_SQL, vec![param(hashes)]);
        }
        Ok(())
    }

    fn unique_key_columns(&self) -> Result<KeyColumns, StoreError> {
        let (mut lifecycles, mut names, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        for key in &self.plan.checkpoint.released.uniques {
            lifecycles.push(self.snapshot.symbols.require_id(&key.lifecycle)?);
            names.push(self.snapshot.symbols.require_id(&key.unique)?);
            parts.push(indexed_key_text(&key.parts)?.0);
        }
        Ok((lifecycles, names, parts))
    }

    /// Returns keys and window starts of the counters that the prune releases, one column each.
    fn counter_key_columns(&self) -> Result<(KeyColumns, Vec<i64>), StoreError> {
        let (mut lifecycles, mut names, mut parts, mut spans) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (key, _) in &self.plan.checkpoint.released.counts {
            lifecycles.push(self.snapshot.symbols.require_id(&key.lifecycle)?);
            names.push(self.snapshot.symbols.require_id(&key.limit)?);
            parts.push(indexed_key_text(&key.parts)?.0);
            spans.push(key.window_start.unwrap_or(NO_WINDOW));
        }
        Ok(((lifecycles, names, parts), spans))
    }

    /// Releases the unique keys and counters that the records still held in their final states.
    fn add_releases(&self, pipeline: &mut Pipeline<'_>) -> Result<(), StoreError> {
        let (lifecycles, names, parts) = self.unique_key_columns()?;
        if !parts.is_empty() {
            let holders: Vec<Uuid> = self.plan.released_unique_keys().map(|(_, holder)| holder.0).collect();
            pipeline.add(DELETE_UNIQUES_SQL, vec![param(lifecycles), param(names), param(parts), param(holders)]);
        }
        let ((lifecycles, names, parts), spans) = self.counter_key_columns()?;
        if !parts.is_empty() {
            let deltas: Vec<i64> = self.plan.checkpoint.released.counts.iter().map(|(_, delta)| *delta).collect();
            pipeline.add(
                UPDATE_COUNTERS_SQL,
                vec![param(lifecycles), param(names), param(parts), param(spans), param(deltas)],
            );
        }
        Ok(())
    }

    fn add_state_count_updates(&self, pipeline: &mut Pipeline<'_>) -> Result<(), StoreError> {
        let state_counts = self.plan.state_count_deltas();
        let all = to_limit(state_counts.len());
        let (mut definitions, mut owners, mut states, mut deltas) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (StateCountKey { definition, owner, state }, delta) in state_counts {
            definitions.push(i64::from(self.snapshot.catalog.version_number_by_hash(&definition)?));
            owners.push(owner.to_string());
            states.push(self.snapshot.symbols.require_id(&state)?);
            deltas.push(delta);
        }
        let none = vec![param(definitions.clone()), param(owners.clone())];
        pipeline.add(
            LOWER_STATE_COUNTS_SQL,
            vec![param(definitions), param(owners), param(states), param(deltas), param(all)],
        );
        pipeline.add(DELETE_ZERO_STATE_COUNTS_SQL, none);
        Ok(())
    }
}
