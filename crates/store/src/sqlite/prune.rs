//! Pruning in SQLite. It uses no indexes of its own, so that it does not slow down saves.

use std::collections::BTreeMap;

use onceward_core::value::RecordId;
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use super::load;
use super::rows;
use super::save::SqliteWriter;
use crate::batch::IdempotencyId;
use crate::columns::{NO_WINDOW, write_parts};
use crate::error::StoreError;
use crate::prune::{
    CounterCursor, ExpiredCountersPage, ExpiredCountersQuery, ExpiredKeysPage, ExpiredKeysQuery, PrunablePage,
    PrunableQuery, PrunePlan, PruneRequest, PruneResult, PruneState, PrunedRecord, RecordWithReferrers,
};
use crate::symbols::CatalogSnapshot;
use crate::write_set::StateCountKey;

pub(super) fn prune_state(connection: &Connection) -> Result<PruneState, StoreError> {
    let mut statement = connection.prepare_cached("SELECT checkpoint, floor, head FROM prune_state")?;
    let found = statement.query_row([], |row| {
        Ok(PruneState { checkpoint_seq: row.get(0)?, last_pruned_seq: row.get(1)?, checkpoint_hash: row.get(2)? })
    });
    Ok(found?)
}

/// Scans a bounded number of records in the order of creation. An index by end time would cost every save.
pub(super) fn prunable(connection: &Connection, query: &PrunableQuery) -> Result<PrunablePage, StoreError> {
    let sql = "SELECT row, id, created_at, updated_at, finished_at FROM records \
               WHERE row > ?1 ORDER BY row LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params![query.after_row, query.limit])?;
    let cutoff = query.cutoff.micros();
    let (mut page, mut all_newer, mut scanned) = (PrunablePage::default(), true, 0);
    while let Some(row) = found.next()? {
        scanned += 1;
        page.next = Some(row.get(0)?);
        let (created, updated, finished): (i64, i64, Option<i64>) = (row.get(2)?, row.get(3)?, row.get(4)?);
        all_newer &= created > cutoff;
        if finished.is_some_and(|at| at <= cutoff) && updated <= cutoff {
            page.records.push(rows::record_id_column(row, 1)?);
        }
    }
    if all_newer || scanned < query.limit {
        page.next = None;
    }
    Ok(page)
}

pub(super) fn with_referrers(
    connection: &Connection,
    snapshot: &CatalogSnapshot,
    ids: &[RecordId],
) -> Result<Vec<RecordWithReferrers>, StoreError> {
    let mut all = Vec::with_capacity(ids.len());
    let mut links = connection.prepare_cached("SELECT link_version FROM records WHERE row = ?1")?;
    let sql = "SELECT DISTINCT r.id FROM links l JOIN records r ON r.row = l.source WHERE l.target = ?1 ORDER BY r.id";
    let mut referrers = connection.prepare_cached(sql)?;
    for id in ids {
        let Some((stored, record)) = load::load_record(connection, snapshot, *id)? else { continue };
        let mut kin = RecordWithReferrers { meta: stored, record, link_version: 0, referrers: Vec::new() };
        kin.link_version = links.query_row([kin.meta.row_id], |row| row.get(0))?;
        let mut found = referrers.query([kin.meta.row_id])?;
        while let Some(row) = found.next()? {
            kin.referrers.push(rows::record_id_column(row, 0)?);
        }
        all.push(kin);
    }
    Ok(all)
}

impl SqliteWriter {
    pub(super) fn prune(&mut self, prune: &PruneRequest) -> Result<PruneResult, StoreError> {
        let result = self.run_prune(prune);
        if !matches!(result, Ok(PruneResult::Conflict)) {
            self.invalidate_caches();
            let entries: usize = prune.plan.pruned.iter().map(|one| one.entries.len()).sum();
            self.add_written_pages(prune.plan.pruned.len() / 2 + entries / 4);
        }
        result
    }

    fn run_prune(&mut self, prune: &PruneRequest) -> Result<PruneResult, StoreError> {
        let snapshot = self.shared.current_catalog();
        // FM-2, INV-2: one transaction.
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let prune_transaction = PruneTransaction { transaction: &transaction, snapshot: &snapshot, plan: &prune.plan };
        let Some(seq) = prune_transaction.run(prune)? else { return Ok(PruneResult::Conflict) };
        transaction.commit()?;
        Ok(PruneResult::Saved(seq))
    }

    pub(super) fn delete_expired_counters(
        &mut self,
        query: &ExpiredCountersQuery,
    ) -> Result<ExpiredCountersPage, StoreError> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut page = ExpiredCountersPage::default();
        let mut expired = Vec::new();
        {
            let after = query.after.clone().unwrap_or_default();
            let sql = "SELECT lifecycle, name, parts, window_start, count FROM counts \
                       WHERE (lifecycle, name, parts, window_start) > (?1, ?2, ?3, ?4) \
                       ORDER BY lifecycle, name, parts, window_start LIMIT ?5";
            let mut statement = transaction.prepare_cached(sql)?;
            let from = params![after.lifecycle, after.name, after.parts, after.window_start, query.limit];
            let mut found = statement.query(from)?;
            let mut scanned = 0;
            while let Some(row) = found.next()? {
                scanned += 1;
                let window_start: i64 = row.get(3)?;
                let cursor =
                    CounterCursor { lifecycle: row.get(0)?, name: row.get(1)?, parts: row.get(2)?, window_start };
                if query.is_expired(row.get(4)?, (window_start != NO_WINDOW).then_some(window_start)) {
                    expired.push(cursor.clone());
                }
                page.next = Some(cursor);
            }
            if scanned < query.limit {
                page.next = None;
            }
        }
        for CounterCursor { lifecycle, name, parts, window_start } in expired {
            let sql = "DELETE FROM counts WHERE lifecycle = ?1 AND name = ?2 AND parts = ?3 AND window_start = ?4";
            let deleted = transaction.prepare_cached(sql)?.execute(params![lifecycle, name, parts, window_start])?;
            page.deleted += u64::try_from(deleted).unwrap_or(0);
        }
        transaction.commit()?;
        Ok(page)
    }

    pub(super) fn delete_expired_keys(&mut self, query: &ExpiredKeysQuery) -> Result<ExpiredKeysPage, StoreError> {
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut page = ExpiredKeysPage::default();
        let mut expired = Vec::new();
        {
            let (owner, key) = query.after.as_ref().map_or(("", ""), |name| (&name.owner, &name.idempotency_key));
            let sql = "SELECT owner, key, at FROM idempotency_keys WHERE (owner, key) > (?1, ?2) ORDER BY owner, key LIMIT ?3";
            let mut statement = transaction.prepare_cached(sql)?;
            let mut found = statement.query(params![owner, key, query.limit])?;
            let mut scanned = 0;
            while let Some(row) = found.next()? {
                scanned += 1;
                let name = IdempotencyId { owner: row.get(0)?, idempotency_key: row.get(1)? };
                if row.get::<_, i64>(2)? <= query.cutoff.micros() {
                    expired.push(name.clone());
                }
                page.next = Some(name);
            }
            if scanned < query.limit {
                page.next = None;
            }
        }
        for name in expired {
            let sql = "DELETE FROM idempotency_keys WHERE owner = ?1 AND key = ?2";
            let deleted = transaction.prepare_cached(sql)?.execute([&name.owner, &name.idempotency_key])?;
            page.deleted += u64::try_from(deleted).unwrap_or(0);
        }
        transaction.commit()?;
        Ok(page)
    }
}

/// A prune in its transaction.
struct PruneTransaction<'a> {
    transaction: &'a Transaction<'a>,
    snapshot: &'a CatalogSnapshot,
    plan: &'a PrunePlan,
}

impl PruneTransaction<'_> {
    /// Returns the seq of the checkpoint, or `None` if a loaded value has changed.
    fn run(&self, prune: &PruneRequest) -> Result<Option<u64>, StoreError> {
        for one in &self.plan.pruned {
            if !self.is_unchanged(one)? {
                return Ok(None);
            }
        }
        for one in &self.plan.pruned {
            self.delete_record(one)?;
        }
        self.delete_links()?;
        self.release_keys()?;
        self.delete_account_entries()?;
        self.release_payloads()?;
        self.update_state_counts()?;
        self.append_checkpoint(prune).map(Some)
    }

    /// Returns whether neither the record nor the links to it have changed.
    fn is_unchanged(&self, pruned: &PrunedRecord) -> Result<bool, StoreError> {
        let sql = "SELECT version, link_version FROM records WHERE row = ?1 AND id = ?2";
        let mut statement = self.transaction.prepare_cached(sql)?;
        let at = params![pruned.meta.row_id, pruned.record.id.0.as_bytes()];
        let found: Option<(u64, u64)> = statement.query_row(at, |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        Ok(found == Some((pruned.record.version, pruned.link_version)))
    }

    fn delete_record(&self, pruned: &PrunedRecord) -> Result<(), StoreError> {
        for sql in [
            "DELETE FROM records WHERE row = ?1",
            "DELETE FROM executions WHERE record = ?1",
            "DELETE FROM effects WHERE record = ?1",
            "DELETE FROM links WHERE target = ?1",
        ] {
            self.transaction.prepare_cached(sql)?.execute([pruned.meta.row_id])?;
        }
        let sql = "DELETE FROM history WHERE seq = ?1 AND record = ?2";
        let mut statement = self.transaction.prepare_cached(sql)?;
        for entry in &pruned.entries {
            if statement.execute(params![entry.seq, pruned.meta.row_id])? != 1 {
                return Err(StoreError::corrupt(format!("log entry {} to prune is missing", entry.seq)));
            }
        }
        Ok(())
    }

    /// Deletes links to remaining records and raises their link version, so that batches that read these links
    /// conflict.
    fn delete_links(&self) -> Result<(), StoreError> {
        let rows: BTreeMap<RecordId, u64> =
            self.plan.pruned.iter().map(|one| (one.record.id, one.meta.row_id)).collect();
        for (key, source) in &self.plan.removed_links {
            let Some(target) = load::find_row_id(self.transaction, key.target)? else { continue };
            let (lifecycle, field) =
                (self.snapshot.symbols.require_id(&key.lifecycle)?, self.snapshot.symbols.require_id(&key.field)?);
            let sql = "DELETE FROM links WHERE target = ?1 AND lifecycle = ?2 AND field = ?3 AND source = ?4";
            let at = params![target, lifecycle, field, rows.get(source)];
            self.transaction.prepare_cached(sql)?.execute(at)?;
            self.transaction
                .prepare_cached("UPDATE records SET link_version = link_version + 1 WHERE row = ?1")?
                .execute([target])?;
        }
        Ok(())
    }

    /// Releases the unique keys and counters that the records still held in their final states.
    fn release_keys(&self) -> Result<(), StoreError> {
        let names = &self.snapshot.symbols;
        for (key, holder) in self.plan.released_unique_keys() {
            let sql = "DELETE FROM uniques WHERE lifecycle = ?1 AND name = ?2 AND parts = ?3 AND holder = ?4";
            let (lifecycle, name) = (names.require_id(&key.lifecycle)?, names.require_id(&key.unique)?);
            let at = params![lifecycle, name, write_parts(&key.parts)?, holder.0.as_bytes()];
            self.transaction.prepare_cached(sql)?.execute(at)?;
        }
        for (key, delta) in &self.plan.checkpoint.released.counts {
            let sql = "UPDATE counts SET count = count + ?5 WHERE lifecycle = ?1 AND name = ?2 AND parts = ?3 AND window_start = ?4";
            let (lifecycle, name) = (names.require_id(&key.lifecycle)?, names.require_id(&key.limit)?);
            let at = params![lifecycle, name, write_parts(&key.parts)?, key.window_start.unwrap_or(NO_WINDOW), delta];
            self.transaction.prepare_cached(sql)?.execute(at)?;
        }
        Ok(())
    }

    /// Deletes the account index rows of pruned entries. Balances do not change.
    fn delete_account_entries(&self) -> Result<(), StoreError> {
        for (account, seq) in &self.plan.account_entries {
            let sql = "DELETE FROM account_entries WHERE asset = ?1 AND name = ?2 AND seq = ?3";
            self.transaction.prepare_cached(sql)?.execute(params![account.asset, account.name, seq])?;
        }
        Ok(())
    }

    /// Deletes payloads that no record references any more.
    fn release_payloads(&self) -> Result<(), StoreError> {
        for (sha256, records) in self.plan.payload_references() {
            let sql = "UPDATE contents SET refs = refs - ?2 WHERE sha256 = ?1";
            self.transaction.prepare_cached(sql)?.execute(params![sha256, records])?;
            let sql = "DELETE FROM contents WHERE sha256 = ?1 AND refs = 0";
            self.transaction.prepare_cached(sql)?.execute([sha256])?;
        }
        Ok(())
    }

    fn update_state_counts(&self) -> Result<(), StoreError> {
        for (StateCountKey { definition, owner, state }, delta) in self.plan.state_count_deltas() {
            let (definition, state) =
                (self.snapshot.catalog.version_number_by_hash(&definition)?, self.snapshot.symbols.require_id(&state)?);
            let sql = "UPDATE state_counts SET count = count + ?4 WHERE definition = ?1 AND owner = ?2 AND state = ?3";
            self.transaction.prepare_cached(sql)?.execute(params![definition, owner, state, delta])?;
            // Also delete zero rows of earlier states in all versions, because the remaining log no longer mentions
            // them.
            let sql = "DELETE FROM state_counts WHERE owner = ?2 AND count = 0 AND definition IN (SELECT number FROM definitions \
                       WHERE name = (SELECT name FROM definitions WHERE number = ?1))";
            self.transaction.prepare_cached(sql)?.execute(params![definition, owner])?;
        }
        Ok(())
    }

    fn append_checkpoint(&self, prune: &PruneRequest) -> Result<u64, StoreError> {
        let (entry, state) = self.plan.next_checkpoint_entry(&prune_state(self.transaction)?, prune.now)?;
        let seq: u64 = self.transaction.query_row("SELECT seq + 1 FROM log_seq", [], |row| row.get(0))?;
        let sql = "INSERT INTO history (seq, record, version, at, previous, text, hash) VALUES (?1, NULL, ?2, ?3, NULL, ?4, ?5)";
        let values = params![seq, entry.version, entry.at.micros(), &*entry.text, entry.hash];
        self.transaction.execute(sql, values)?;
        self.transaction.execute("UPDATE log_seq SET seq = ?1", [seq])?;
        let sql = "UPDATE prune_state SET checkpoint = ?1, floor = ?2, head = ?3";
        self.transaction.execute(sql, params![seq, state.last_pruned_seq, state.checkpoint_hash])?;
        Ok(seq)
    }
}
