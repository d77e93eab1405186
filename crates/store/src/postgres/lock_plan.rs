//! Locks and validates the read set of a batch. Missing rows are claimed by inserting them, existing rows are locked,
//! all in one fixed order. Then the store reads the values again and compares them.
//!
//! Claims come first. A save that waits for a claim holds only claims, and a save that holds locks never waits for a
//! claim. Within each table, both follow the order of its key. So two saves never deadlock.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use onceward_core::decide::{Account, ConcurrencyKey, CounterKey, ReadKey, UniqueKey};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use tokio_postgres::Row;
use uuid::Uuid;

use super::definitions;
use super::load::{LoadDetail, LoadRequest};
use super::pipeline::{Pipeline, param};
use super::pool::BEGIN_WRITE_SQL;
use super::rows::{self, indexed_key_text, to_limit};
use crate::batch::{IdempotencyId, IdempotencyRecord, SaveConflict};
use crate::columns::NO_WINDOW;
use crate::error::StoreError;
use crate::query::running_counter_key;
use crate::read_set::{ReadSet, RecordMeta};
use crate::symbols::CatalogSnapshot;
use crate::write_set::WriteSet;

const CLAIM_UNIQUES_SQL: &str = "INSERT INTO onceward.uniques (lifecycle, name, parts, holder, full_parts) \
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::uuid[], $5::text[]) \
     ON CONFLICT DO NOTHING RETURNING lifecycle, name, parts";

const CLAIM_IDEMPOTENCY_KEYS_SQL: &str = "INSERT INTO onceward.idempotency_keys (owner, key, digest, reply, at) \
     SELECT k.*, $5 FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[]) k \
     ON CONFLICT DO NOTHING RETURNING owner, key";

/// A zero counter can be pruned until it is locked. In that case the save starts again.
pub(super) const CLAIM_COUNTERS_SQL: &str = "INSERT INTO onceward.counts (lifecycle, name, parts, window_start, full_parts, count) \
     SELECT k.*, 0 FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::text[]) k ON CONFLICT DO NOTHING";

const CLAIM_ACCOUNTS_SQL: &str = "INSERT INTO onceward.accounts (asset, name, outside, balance) \
     SELECT k.*, false, 0 FROM unnest($1::text[], $2::text[]) k ON CONFLICT DO NOTHING \
     RETURNING asset, name";

pub(super) const LOCK_UNIQUES_SQL: &str = "SELECT FROM unnest($1::bigint[], $2::bigint[], $3::text[]) k(l, n, p) \
     JOIN onceward.uniques u ON u.lifecycle = k.l AND u.name = k.n AND u.parts = k.p \
     ORDER BY u.lifecycle, u.name, u.parts FOR UPDATE OF u";

pub(super) const LOCK_COUNTERS_SQL: &str = "SELECT FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[]) k(l, n, p, w) \
     JOIN onceward.counts c ON c.lifecycle = k.l AND c.name = k.n AND c.parts = k.p AND c.window_start = k.w \
     ORDER BY c.lifecycle, c.name, c.parts, c.window_start FOR UPDATE OF c";

const LOCK_ACCOUNTS_SQL: &str = "SELECT FROM unnest($1::text[], $2::text[]) k(a, n) \
     JOIN onceward.accounts a ON a.asset = k.a AND a.name = k.n ORDER BY a.asset, a.name FOR UPDATE OF a";

/// Returns the metadata as of the time when the lock was granted, so no second read is needed.
const LOCK_RECORDS_BY_ID_SQL: &str = "SELECT id, row, version, head, entry FROM onceward.records \
     WHERE id = ANY($1::uuid[]) ORDER BY row FOR NO KEY UPDATE";

/// Like [`LOCK_RECORDS_BY_ID_SQL`], but for records that were all loaded: the index on the row id returns them in lock
/// order.
const LOCK_RECORDS_BY_ROW_SQL: &str = "SELECT id, row, version, head, entry FROM onceward.records \
     WHERE row = ANY($1::bigint[]) ORDER BY row FOR NO KEY UPDATE";

/// A heartbeat changes the lease expiry without raising the version, but it locks the record. So this query must run
/// after the locks are held.
const SELECT_LEASE_ENDS_SQL: &str = "SELECT e.record, e.expires_at FROM (SELECT unnest($1::bigint[]) AS r, unnest($2::bigint[]) AS t) \
     k JOIN onceward.executions e ON e.record = k.r AND e.token = k.t";

/// Returns a number for the batch and a row id for each new record. Sequences are not transactional: no number is used
/// twice, but some are lost.
const NEXT_NUMBERS_SQL: &str = "SELECT nextval('onceward.batch_numbers'), \
     ARRAY(SELECT nextval('onceward.record_rows') FROM generate_series(1, $1::bigint))";

/// A key as stored in an index.
type IndexedKey = (i64, i64, String, Option<String>);

/// Everything that a batch claims and locks.
pub(super) struct LockPlan<'a> {
    read_set: &'a ReadSet,
    write_set: &'a WriteSet<'a>,
    /// Concurrency keys whose lanes must be rebalanced.
    pub(super) touched_keys: BTreeSet<ConcurrencyKey>,
    /// Records whose metadata must equal the read set. The lock statement returns it.
    validated_records: Vec<RecordId>,
    /// Other keys whose values must equal the read set, except claimed ones.
    validated_keys: Vec<ReadKey>,
    /// Unique keys that were free, with their new holders. A key that was only read is claimed with a nil holder, so
    /// that no other save takes it meanwhile, and released at the end.
    claimed_uniques: BTreeMap<IndexedKey, (UniqueKey, Uuid)>,
    idempotency_records: Vec<&'a IdempotencyRecord>,
    locked_uniques: BTreeSet<(i64, i64, String)>,
    counters: BTreeSet<(IndexedKey, i64)>,
    accounts: BTreeSet<(String, String)>,
    locked_records: BTreeSet<RecordId>,
    /// Records that this batch creates. Ids of these that were loaded as free are in `expected_absent`.
    new_ids: HashSet<RecordId>,
    pub(super) expected_absent: Vec<ReadKey>,
}

/// Result of the first round trip.
pub(super) struct LockResult {
    pub(super) conflict: SaveConflict,
    pub(super) batch_number: i64,
    /// Row ids of new records and of link targets.
    pub(super) row_ids: HashMap<RecordId, i64>,
    /// Accounts that were claimed but have no transfer; deleted at the end.
    pub(super) unused_accounts: Vec<(String, String)>,
}

impl<'a> LockPlan<'a> {
    pub(super) fn build(
        read_set: &'a ReadSet,
        write_set: &'a WriteSet<'a>,
        snapshot: &CatalogSnapshot,
    ) -> Result<Self, StoreError> {
        let mut plan = Self {
            read_set,
            write_set,
            touched_keys: touched_concurrency_keys(write_set),
            validated_records: Vec::new(),
            validated_keys: Vec::new(),
            claimed_uniques: BTreeMap::new(),
            idempotency_records: Vec::new(),
            locked_uniques: BTreeSet::new(),
            counters: BTreeSet::new(),
            accounts: BTreeSet::new(),
            locked_records: BTreeSet::new(),
            new_ids: write_set
                .records
                .iter()
                .filter(|record| record.before.is_none())
                .map(|record| record.after.id)
                .collect(),
            expected_absent: Vec::new(),
        };
        for (key, holder) in write_set.uniques.iter().filter(|(key, _)| read_set.was_unique_key_free(key)) {
            let (lifecycle, name) =
                (snapshot.symbols.require_id(&key.lifecycle)?, snapshot.symbols.require_id(&key.unique)?);
            let (parts, whole) = indexed_key_text(&key.parts)?;
            let holder = holder.map_or(Uuid::nil(), |holder| holder.0);
            plan.claimed_uniques.insert((lifecycle, name, parts, whole), ((*key).clone(), holder));
        }
        for key in write_set.keys_to_validate(read_set) {
            plan.add_read_key(key, snapshot)?;
        }
        for key in write_set.counts.keys() {
            plan.add_counter(key, snapshot)?;
        }
        for key in plan.touched_keys.clone() {
            plan.add_counter(&running_counter_key(&key), snapshot)?;
        }
        for account in write_set.accounts.keys() {
            plan.add_account(account, snapshot);
        }
        let links = write_set
            .records
            .iter()
            .flat_map(crate::write_set::RecordWrite::changed_links)
            .map(|(link, _)| link.target);
        plan.locked_records.extend(links);
        // Without duplicates, in lock order. Duplicates within the batch are already known.
        let mut requests: BTreeMap<&IdempotencyId, &IdempotencyRecord> = BTreeMap::new();
        requests.extend(write_set.idempotency_records.iter().map(|request| (&request.id, *request)));
        plan.idempotency_records = requests.into_values().collect();
        Ok(plan)
    }

    fn add_read_key(&mut self, key: ReadKey, snapshot: &CatalogSnapshot) -> Result<(), StoreError> {
        match &key {
            // A missing record cannot be locked. If this batch creates it, the primary key detects a conflict.
            ReadKey::Record(id) if self.read_set.record_meta(*id).is_none() => {
                if self.new_ids.contains(id) && self.read_set.has_observed(&key) {
                    self.expected_absent.push(key);
                    return Ok(());
                }
            }
            ReadKey::Record(id) => {
                self.locked_records.insert(*id);
                self.validated_records.push(*id);
                return Ok(());
            }
            ReadKey::Links(link) => {
                self.locked_records.insert(link.target);
            }
            ReadKey::Unique(unique) => {
                let names = (snapshot.symbols.id(&unique.lifecycle), snapshot.symbols.id(&unique.unique));
                if let (Some(lifecycle), Some(name)) = names {
                    let (parts, whole) = indexed_key_text(&unique.parts)?;
                    if self.read_set.was_unique_key_free(unique) {
                        let claim = (unique.clone(), Uuid::nil());
                        self.claimed_uniques.entry((lifecycle, name, parts, whole)).or_insert(claim);
                        return Ok(());
                    }
                    self.locked_uniques.insert((lifecycle, name, parts));
                }
            }
            ReadKey::Counter(count) => self.add_counter(count, snapshot)?,
            ReadKey::Account(account) => self.add_account(account, snapshot),
            ReadKey::ConcurrencyQueue(queue) => self.add_counter(&running_counter_key(queue), snapshot)?,
            ReadKey::Execution(..) => {}
        }
        self.validated_keys.push(key);
        Ok(())
    }

    fn add_counter(&mut self, key: &CounterKey, snapshot: &CatalogSnapshot) -> Result<(), StoreError> {
        let names = (snapshot.symbols.id(&key.lifecycle), snapshot.symbols.id(&key.limit));
        if let (Some(lifecycle), Some(name)) = names {
            let (parts, whole) = indexed_key_text(&key.parts)?;
            self.counters.insert(((lifecycle, name, parts, whole), key.window_start.unwrap_or(NO_WINDOW)));
        }
        Ok(())
    }

    /// Outside accounts have no minimum balance, so their balance is never compared. It is only added to, at the end of
    /// the save.
    fn add_account(&mut self, account: &Account, snapshot: &CatalogSnapshot) {
        if let Account::Named { asset, name } = account
            && !snapshot.catalog.definitions.is_outside_account(asset, name)
        {
            self.accounts.insert((asset.to_string(), name.to_string()));
        }
    }

    /// Returns the unique keys that were claimed without a holder and must be released.
    pub(super) fn temporary_claims(&self) -> impl Iterator<Item = (i64, i64, &str)> {
        let unowned = self.claimed_uniques.iter().filter(|(_, (_, holder))| holder.is_nil());
        unowned.map(|((lifecycle, name, parts, _), _)| (*lifecycle, *name, parts.as_str()))
    }

    /// Builds all statements before the first write. Omits those without any keys.
    pub(super) fn build_pipeline<'p>(
        &'p self,
        snapshot: &CatalogSnapshot,
        now: i64,
    ) -> Result<LockPipeline<'p>, StoreError> {
        let mut pipeline = Pipeline::default();
        pipeline.add_plain(BEGIN_WRITE_SQL);
        let mut locks = LockPipeline {
            pipeline,
            claims: None,
            requests: None,
            counts: None,
            accounts: None,
            records: None,
            leases: None,
            numbers_index: 0,
            newest_revision: None,
            probe: None,
        };
        self.add_claims(&mut locks, now);
        self.add_locks(&mut locks);
        locks.numbers_index = locks.pipeline.add(NEXT_NUMBERS_SQL, vec![param(to_limit(self.new_ids.len()))]);
        if !self.new_ids.is_empty() {
            locks.newest_revision = Some(locks.pipeline.add(definitions::SELECT_NEWEST_REVISION_SQL, Vec::new()));
        }
        let probe = self.read_set.new_probe();
        let load_request = LoadRequest::new(
            &mut locks.pipeline,
            &snapshot.symbols,
            &probe,
            &self.validated_keys,
            LoadDetail::VersionOnly,
        )?;
        locks.probe = Some((probe, load_request));
        Ok(locks)
    }

    fn add_claims<'p>(&'p self, locks: &mut LockPipeline<'p>, now: i64) {
        let pipeline = &mut locks.pipeline;
        if !self.claimed_uniques.is_empty() {
            let keys = self.claimed_uniques.keys();
            let lifecycles: Vec<i64> = keys.clone().map(|key| key.0).collect();
            let names: Vec<i64> = keys.clone().map(|key| key.1).collect();
            let parts: Vec<&str> = keys.clone().map(|key| &*key.2).collect();
            let wholes: Vec<Option<&str>> = keys.map(|key| key.3.as_deref()).collect();
            let holders: Vec<Uuid> = self.claimed_uniques.values().map(|(_, holder)| *holder).collect();
            let parameters = vec![param(lifecycles), param(names), param(parts), param(holders), param(wholes)];
            locks.claims = Some(pipeline.add(CLAIM_UNIQUES_SQL, parameters));
        }
        if !self.idempotency_records.is_empty() {
            let owners: Vec<&str> = self.idempotency_records.iter().map(|request| &*request.id.owner).collect();
            let keys: Vec<&str> = self.idempotency_records.iter().map(|request| &*request.id.idempotency_key).collect();
            let digests: Vec<&[u8]> =
                self.idempotency_records.iter().map(|request| &request.request_digest[..]).collect();
            let answers: Vec<&str> = self.idempotency_records.iter().map(|request| &*request.reply).collect();
            let parameters = vec![param(owners), param(keys), param(digests), param(answers), param(now)];
            locks.requests = Some(pipeline.add(CLAIM_IDEMPOTENCY_KEYS_SQL, parameters));
        }
        if !self.counters.is_empty() {
            let (lifecycles, names, parts, spans) = self.counter_columns();
            let wholes: Vec<Option<&str>> = self.counters.iter().map(|(key, _)| key.3.as_deref()).collect();
            let parameters = vec![param(lifecycles), param(names), param(parts), param(spans), param(wholes)];
            pipeline.add(CLAIM_COUNTERS_SQL, parameters);
        }
        if !self.accounts.is_empty() {
            let (assets, names) = self.account_columns();
            locks.accounts = Some(pipeline.add(CLAIM_ACCOUNTS_SQL, vec![param(assets), param(names)]));
        }
    }

    fn add_locks<'p>(&'p self, locks: &mut LockPipeline<'p>) {
        let pipeline = &mut locks.pipeline;
        if !self.locked_uniques.is_empty() {
            let keys = self.locked_uniques.iter();
            let lifecycles: Vec<i64> = keys.clone().map(|key| key.0).collect();
            let names: Vec<i64> = keys.clone().map(|key| key.1).collect();
            let parts: Vec<&str> = keys.map(|key| &*key.2).collect();
            pipeline.add(LOCK_UNIQUES_SQL, vec![param(lifecycles), param(names), param(parts)]);
        }
        if !self.counters.is_empty() {
            let (lifecycles, names, parts, spans) = self.counter_columns();
            locks.counts = Some(
                pipeline.add(LOCK_COUNTERS_SQL, vec![param(lifecycles), param(names), param(parts), param(spans)]),
            );
        }
        if !self.accounts.is_empty() {
            let (assets, names) = self.account_columns();
            pipeline.add(LOCK_ACCOUNTS_SQL, vec![param(assets), param(names)]);
        }
        if !self.locked_records.is_empty() {
            let stored = |id: &RecordId| self.read_set.record_meta(*id).map(|stored| rows::to_signed(stored.row_id));
            // Always one statement, so that locks are taken in one order.
            locks.records = Some(match self.locked_records.iter().map(stored).collect::<Option<Vec<i64>>>() {
                Some(rows) => pipeline.add(LOCK_RECORDS_BY_ROW_SQL, vec![param(rows)]),
                None => pipeline.add(
                    LOCK_RECORDS_BY_ID_SQL,
                    vec![param(self.locked_records.iter().map(|id| id.0).collect::<Vec<Uuid>>())],
                ),
            });
        }
        let (mut rows, mut tokens) = (Vec::new(), Vec::new());
        for id in &self.validated_records {
            let newest = self.read_set.original_record(*id).and_then(|record| record.execution.as_ref());
            if let Some((stored, newest)) = self.read_set.record_meta(*id).zip(newest) {
                rows.push(rows::to_signed(stored.row_id));
                tokens.push(rows::to_signed(newest.token.0));
            }
        }
        if !rows.is_empty() {
            locks.leases = Some(pipeline.add(SELECT_LEASE_ENDS_SQL, vec![param(rows), param(tokens)]));
        }
    }

    /// Returns lifecycles, limits, key texts and window starts of the counters, one column each.
    fn counter_columns(&self) -> (Vec<i64>, Vec<i64>, Vec<&str>, Vec<i64>) {
        let keys = self.counters.iter();
        (
            keys.clone().map(|(key, _)| key.0).collect(),
            keys.clone().map(|(key, _)| key.1).collect(),
            keys.clone().map(|(key, _)| &*key.2).collect(),
            keys.map(|(_, window_start)| *window_start).collect(),
        )
    }

    fn account_columns(&self) -> (Vec<&str>, Vec<&str>) {
        self.accounts.iter().map(|(asset, name)| (&**asset, &**name)).unzip()
    }

    /// Returns whether a counter was pruned between its claim and its lock.
    pub(super) fn lost_counter(&self, locks: &LockPipeline<'_>, answers: &[Vec<Row>]) -> bool {
        locks.counts.is_some_and(|at| answers[at].len() < self.counters.len())
    }

    /// Evaluates the results of the pipeline.
    pub(super) fn read_result(
        &self,
        locks: LockPipeline<'_>,
        answers: &[Vec<Row>],
        snapshot: &CatalogSnapshot,
    ) -> Result<LockResult, StoreError> {
        let LockPipeline { claims, requests, accounts, records, leases, numbers_index: numbers, probe, .. } = locks;
        let mut conflict =
            SaveConflict { changed_keys: Vec::new(), answered_ids: self.write_set.duplicate_ids.clone() };
        if let Some((mut fresh, asking)) = probe {
            asking.fill(&mut fresh, answers, snapshot, LoadDetail::VersionOnly)?;
            conflict.changed_keys = self.read_set.changed_keys(&fresh);
        }
        let locked = read_locked_meta(records.map_or(&[], |at| &answers[at]), leases.map_or(&[], |at| &answers[at]))?;
        let changed = self.validated_records.iter().filter(|id| locked.get(id) != self.read_set.record_meta(**id));
        conflict.changed_keys.extend(changed.map(|id| ReadKey::Record(*id)));
        if let Some(at) = claims {
            let mut ours = HashSet::new();
            for row in &answers[at] {
                ours.insert((
                    i64::from(rows::u32_column(row, 0)?),
                    i64::from(rows::u32_column(row, 1)?),
                    rows::text_column(row, 2)?,
                ));
            }
            for ((lifecycle, name, parts, _), (key, _)) in &self.claimed_uniques {
                if !ours.contains(&(*lifecycle, *name, Arc::from(&**parts))) {
                    conflict.changed_keys.push(ReadKey::Unique(key.clone()));
                }
            }
        }
        if let Some(at) = requests {
            let mut ours = HashSet::new();
            for row in &answers[at] {
                ours.insert(IdempotencyId {
                    owner: rows::text_column(row, 0)?,
                    idempotency_key: rows::text_column(row, 1)?,
                });
            }
            let lost = self.write_set.idempotency_records.iter().filter(|request| !ours.contains(&request.id));
            conflict.answered_ids.extend(lost.map(|request| request.id.clone()));
        }
        let mut unused_accounts = Vec::new();
        for row in accounts.iter().flat_map(|at| &answers[*at]) {
            let account = Account::Named { asset: rows::text_column(row, 0)?, name: rows::text_column(row, 1)? };
            if !self.write_set.accounts.contains_key(&account) {
                unused_accounts.push((row.try_get(0)?, row.try_get(1)?));
            }
        }
        conflict.changed_keys.sort_unstable();
        let mut row_ids: HashMap<RecordId, i64> = HashMap::new();
        let others = locked.iter().filter(|(id, _)| self.read_set.record_meta(**id).is_none());
        row_ids.extend(others.map(|(id, stored)| (*id, rows::to_signed(stored.row_id))));
        let row = answers[numbers]
            .first()
            .ok_or_else(|| StoreError::corrupt("the database assigned no number to the batch"))?;
        let new = self.write_set.records.iter().filter(|record| record.before.is_none()).map(|record| record.after.id);
        row_ids.extend(new.zip(row.try_get::<_, Vec<i64>>(1)?));
        Ok(LockResult { conflict, batch_number: row.try_get(0)?, row_ids, unused_accounts })
    }
}

/// The statements of the first round trip, and the positions of their results.
pub(super) struct LockPipeline<'a> {
    pub(super) pipeline: Pipeline<'a>,
    claims: Option<usize>,
    requests: Option<usize>,
    counts: Option<usize>,
    accounts: Option<usize>,
    records: Option<usize>,
    leases: Option<usize>,
    numbers_index: usize,
    newest_revision: Option<usize>,
    probe: Option<(ReadSet, LoadRequest)>,
}

impl LockPipeline<'_> {
    /// Returns whether another process activated versions after the batch was decided. New records must use the current
    /// versions, and the batch may have read nothing that would reveal the change.
    pub(super) fn is_catalog_outdated(&self, answers: &[Vec<Row>], catalog_revision: u32) -> Result<bool, StoreError> {
        let newest =
            self.newest_revision.and_then(|at| answers[at].first()).map_or(Ok(0), |row| rows::u32_column(row, 0))?;
        Ok(newest > catalog_revision)
    }
}

/// Returns the metadata of the locked records.
fn read_locked_meta(locked: &[Row], leases: &[Row]) -> Result<HashMap<RecordId, RecordMeta>, StoreError> {
    let mut expires_at_by_row: HashMap<u64, Time> = HashMap::with_capacity(leases.len());
    for row in leases {
        expires_at_by_row.insert(rows::unsigned_column(row, 0)?, rows::time_column(row, 1)?);
    }
    let mut metas = HashMap::with_capacity(locked.len());
    for row in locked {
        let number = rows::unsigned_column(row, 1)?;
        let stored = RecordMeta {
            row_id: number,
            version: rows::unsigned_column(row, 2)?,
            expires_at: expires_at_by_row.get(&number).copied(),
            head_hash: rows::to_hash(row.try_get(3)?)?,
            head_entry_id: rows::unsigned_column(row, 4)?,
        };
        metas.insert(rows::record_id_column(row, 0)?, stored);
    }
    Ok(metas)
}

/// Returns the concurrency keys of jobs that were added, removed, started or ended.
fn touched_concurrency_keys(write_set: &WriteSet) -> BTreeSet<ConcurrencyKey> {
    let mut keys = BTreeSet::new();
    for record in &write_set.records {
        let (old, new) = record.queue_change();
        if old != new {
            keys.extend([old, new].into_iter().flatten());
        }
        let (old, new) = record.readiness_change();
        if old != new || record.is_version_migrated() {
            keys.extend([old, new].into_iter().flatten().filter_map(|waiting| waiting.concurrency_key));
        }
    }
    for key in write_set.counts.keys() {
        let concurrency_key = ConcurrencyKey { lifecycle: Arc::clone(&key.lifecycle), parts: key.parts.clone() };
        if **key == running_counter_key(&concurrency_key) {
            keys.insert(concurrency_key);
        }
    }
    keys
}
