//! Queries of the PostgreSQL store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use onceward_core::decide::Effect;
use onceward_core::record::{Execution, FencingToken, Record};
use onceward_core::value::RecordId;
use tokio_postgres::Row;
use uuid::Uuid;

use super::PostgresInner;
use super::pipeline::{Pipeline, param};
use super::prune::{SELECT_PRUNE_STATE_SQL, read_prune_state};
use super::rows::{self, to_limit, to_signed};
use crate::batch::{IdempotencyId, IdempotencyRecord};
use crate::catalog::Catalog;
use crate::columns::{execution_text_bytes, is_payload_present};
use crate::error::StoreError;
use crate::links::{LinkPage, LinkQuery};
use crate::log::LogEntry;
use crate::query::{ListQuery, PageBudget, PageLimit, RecordPage, StateCount, VersionCount, max_scanned_records};
use crate::symbols::{CatalogSnapshot, SymbolTable};

/// Selects the last seq of the first batch that ends at or after a seq.
pub(super) const NEXT_BATCH_END_SQL: &str = "SELECT min(last) FROM onceward.batches WHERE last >= $1";

/// Selects the batches of a page and their entries. Seqs are dense except for pruned ones, so it reads one page and one
/// batch at most. Stops one entry after the byte limit; PostgreSQL knows the length of a text without reading it.
const SELECT_LOG_SQL: &str = "SELECT seq, id, version, at, text, hash FROM ( \
     SELECT b.first + (h.entry_id & 1048575) AS seq, r.id, h.version, h.at, h.text, h.hash, \
     sum(octet_length(h.text)) OVER (ORDER BY b.first, h.entry_id) - octet_length(h.text) AS before \
     FROM (SELECT first, batch FROM onceward.batches WHERE last > $1 \
     AND last <= coalesce((SELECT min(last) FROM onceward.batches WHERE last >= $3), $3) ORDER BY last LIMIT $2) b \
     JOIN onceward.history h ON h.entry_id >= b.batch << 20 AND h.entry_id < (b.batch + 1) << 20 \
     LEFT JOIN onceward.records r ON r.row = h.record \
     WHERE b.first + (h.entry_id & 1048575) > $1 ORDER BY b.first, h.entry_id LIMIT $2) page \
     WHERE before <= $4 ORDER BY seq";

/// Walks from the last entry, or from a position of the skip index, back to the version, then returns entries forward.
/// Follows only lower versions, so that a damaged link cannot cause an endless loop. The walk back reads only numbers;
/// texts are read only for returned entries. Also returns positions for the skip index.
const SELECT_HISTORY_SQL: &str = "WITH RECURSIVE back AS ( \
     SELECT h.entry_id, h.version, h.previous FROM onceward.records r JOIN onceward.history h ON h.entry_id = coalesce($5::bigint, r.entry) \
     WHERE r.id = $1 AND h.version > $2 AND ($5 IS NULL OR h.record = r.row AND h.version = $6::bigint) \
     UNION ALL SELECT h.entry_id, h.version, h.previous FROM back b JOIN onceward.history h ON h.entry_id = b.previous \
     WHERE h.version > $2 AND h.version < b.version) \
     SELECT seq, $1, version, at, text, hash, NULL::bigint AS passed FROM ( \
     SELECT s.first + (h.entry_id & 1048575) AS seq, h.version, h.at, h.text, h.hash, \
     sum(octet_length(h.text)) OVER (ORDER BY h.version) - octet_length(h.text) AS before \
     FROM (SELECT entry_id FROM back ORDER BY version LIMIT $3) p JOIN onceward.history h ON h.entry_id = p.entry_id \
     JOIN onceward.batches s ON s.batch = h.entry_id >> 20) page WHERE before <= $4 \
     UNION ALL SELECT NULL, NULL, version, NULL, NULL, NULL, entry_id FROM back WHERE version % 256 = 0 \
     ORDER BY passed NULLS FIRST, version";

/// Index of the column with a position passed on the walk.
const PASSED_COLUMN: usize = 6;

const SELECT_RECORD_SQL: &str = "SELECT * FROM onceward.records_with_execution WHERE id = $1";

/// Selects a bounded number of records in the order of creation, up to one record beyond the byte limit. Also returns
/// how far and how many rows were scanned, even if none matches.
const LIST_RECORDS_SQL: &str = "WITH near AS MATERIALIZED (SELECT row FROM onceward.records WHERE row > $1 ORDER BY row LIMIT $6) \
     SELECT w.*, (SELECT max(row) FROM near), (SELECT count(*) FROM near) FROM (SELECT 1) one LEFT JOIN ( \
     SELECT * FROM (SELECT r.*, sum(octet_length(fields)) OVER up - octet_length(fields) AS before, \
     row_number() OVER up AS number \
     FROM near JOIN onceward.records_with_execution r ON r.row = near.row WHERE ($2::text IS NULL OR owner = $2) \
     AND ($3::bigint[] IS NULL OR (definition, state) IN (SELECT * FROM unnest($3, $4::bigint[]))) \
     WINDOW up AS (ORDER BY r.row) ORDER BY r.row LIMIT $5) page WHERE before <= $7 OR number = 2) w ON true ORDER BY w.row";

/// Index of the first column after the record, its byte sum and its number.
const SCAN_END_COLUMN: usize = rows::VIEW_COLUMNS + 2;

/// Index of a record's fields.
const FIELDS_COLUMN: usize = 6;

const SELECT_STATE_COUNTS_SQL: &str = "SELECT d.name, t.state, sum(t.count)::bigint FROM onceward.state_counts t \
     JOIN onceward.definitions d ON d.number = t.definition WHERE $1::text IS NULL OR t.owner = $1 GROUP BY d.name, t.state";

/// Counts the records of each version by state.
pub(super) const SELECT_VERSION_COUNTS_SQL: &str =
    "SELECT definition, state, sum(count)::bigint FROM onceward.state_counts GROUP BY definition, state";

const SELECT_LAST_SEQ_SQL: &str = "SELECT coalesce(max(last), 0) FROM onceward.batches";

const SELECT_PAYLOADS_SQL: &str = "SELECT sha256, bytes FROM onceward.contents WHERE sha256 = ANY($1)";

const SELECT_PAYLOAD_SQL: &str = "SELECT bytes FROM onceward.contents WHERE sha256 = $1";

const SELECT_REFERENCED_SQL: &str = "SELECT sha256 FROM onceward.contents WHERE sha256 = ANY($1::bytea[]) AND refs > 0";

const SELECT_EFFECT_SQL: &str = "SELECT e.token, e.result FROM onceward.records r \
     JOIN onceward.effects e ON e.record = r.row WHERE r.id = $1";

/// Stops one execution after the byte limit.
const SELECT_EXECUTIONS_SQL: &str = "SELECT token, worker, holder, status, leased_at, expires_at, started_at, finished_at, abort_code, \
     abort_retryable, finish_pending, key, abort_message, retry_at, lease_duration FROM (SELECT e.*, sum(bytes) OVER (ORDER BY e.token) - bytes AS before \
     FROM onceward.records r JOIN onceward.executions e ON e.record = r.row \
     CROSS JOIN LATERAL (SELECT octet_length(worker) + octet_length(holder) + coalesce(octet_length(abort_code), 0) \
     + coalesce(octet_length(key), 0) + coalesce(octet_length(abort_message), 0) AS bytes) b \
     WHERE r.id = $1 AND e.token > $2 ORDER BY e.token LIMIT $3) page WHERE before <= $4 ORDER BY token";

/// Queries each field separately, in the order of the primary key.
const SELECT_LINKED_SQL: &str = "SELECT l.source, s.id FROM onceward.records t CROSS JOIN unnest($2::bigint[], $3::bigint[]) k(l, f) \
     CROSS JOIN LATERAL (SELECT source FROM onceward.links WHERE target = t.row AND lifecycle = k.l AND field = k.f \
     AND source > $4 ORDER BY source LIMIT $5) l JOIN onceward.records s ON s.row = l.source WHERE t.id = $1";

const SELECT_IDEMPOTENCY_KEYS_SQL: &str = "SELECT k.i, r.digest, r.reply FROM unnest($1::text[], $2::text[]) WITH ORDINALITY k(owner, key, i) \
     JOIN onceward.idempotency_keys r ON r.owner = k.owner AND r.key = k.key";

pub(super) async fn log(
    inner: &PostgresInner,
    after_seq: u64,
    page_limit: PageLimit,
) -> Result<Vec<LogEntry>, StoreError> {
    let (mut from, limit) = (to_signed(after_seq), to_limit(page_limit.max_items));
    loop {
        let to = from.saturating_add(limit);
        let mut pipeline = Pipeline::default();
        // First, so that batches appended meanwhile are not skipped.
        let beyond = pipeline.add(NEXT_BATCH_END_SQL, vec![param(to)]);
        let page = pipeline
            .add(SELECT_LOG_SQL, vec![param(from), param(limit), param(to), param(to_limit(page_limit.max_bytes))]);
        // Last, so that it includes everything that was pruned before the page was read.
        let state_index = pipeline.add(SELECT_PRUNE_STATE_SQL, Vec::new());
        let answers = inner.run_pipeline(&pipeline).await?;
        let floor = answers[state_index].first().map(read_prune_state).transpose()?.unwrap_or_default().last_pruned_seq;
        if after_seq < floor {
            return Err(StoreError::LogPruned { oldest: floor });
        }
        let beyond = answers[beyond].first().map_or(Ok(None), |row| row.try_get::<_, Option<i64>>(0))?;
        match beyond {
            // All entries of this range were pruned, but more follow. An empty page would mean the end of the log.
            Some(next_seq) if answers[page].is_empty() && next_seq > from && limit > 0 => from = next_seq,
            _ => return read_entries(&answers[page], page_limit),
        }
    }
}

fn read_entries(rows: &[Row], page_limit: PageLimit) -> Result<Vec<LogEntry>, StoreError> {
    let mut budget = PageBudget::new(page_limit);
    let entries = rows.iter().map(read_entry);
    entries.take_while(|entry| entry.as_ref().map_or(true, |entry| budget.try_take(entry.text.len()))).collect()
}

pub(super) fn read_entry(row: &Row) -> Result<LogEntry, StoreError> {
    Ok(LogEntry {
        seq: rows::unsigned_column(row, 0)?,
        record: rows::optional_column::<Uuid>(row, 1)?.map(RecordId),
        version: rows::unsigned_column(row, 2)?,
        at: rows::time_column(row, 3)?,
        text: rows::text_column(row, 4)?,
        hash: rows::to_hash(row.try_get(5)?)?,
    })
}

pub(super) async fn history(
    inner: &PostgresInner,
    id: RecordId,
    after_version: u64,
    page_limit: PageLimit,
) -> Result<Vec<LogEntry>, StoreError> {
    let last = after_version.saturating_add(u64::try_from(page_limit.max_items).unwrap_or(u64::MAX));
    let mut anchor = inner.history_index.nearest_position(id, last);
    let found = loop {
        let (limit, bytes) = (to_limit(page_limit.max_items), to_limit(page_limit.max_bytes));
        let (version, entry_id) = anchor.map(|(version, entry_id)| (to_signed(version), to_signed(entry_id))).unzip();
        let parameters = vec![
            param(id.0),
            param(to_signed(after_version)),
            param(limit),
            param(bytes),
            param(entry_id),
            param(version),
        ];
        let mut pipeline = Pipeline::default();
        pipeline.add(SELECT_HISTORY_SQL, parameters);
        let mut answers = inner.run_pipeline(&pipeline).await?;
        let found = answers.pop().unwrap_or_default();
        if !found.is_empty() || anchor.take().is_none() {
            break found;
        }
        inner.history_index.remove(id);
    };
    let entry_count =
        found.iter().take_while(|row| matches!(row.try_get::<_, Option<i64>>(PASSED_COLUMN), Ok(None))).count();
    let passed = found[entry_count..]
        .iter()
        .map(|row| Ok((rows::unsigned_column(row, 2)?, rows::unsigned_column(row, PASSED_COLUMN)?)));
    inner.history_index.insert(id, passed.collect::<Result<Vec<_>, StoreError>>()?);
    let entries = read_entries(&found[..entry_count], page_limit)?;
    for (version, entry) in (after_version + 1..).zip(&entries) {
        if entry.version != version {
            return Err(StoreError::corrupt(format!("the log entry of version {version} of {id} is missing")));
        }
    }
    Ok(entries)
}

/// Returns a catalog that contains all versions in these rows.
pub(super) async fn catalog_for_rows(inner: &PostgresInner, rows: &[Row]) -> Result<Arc<CatalogSnapshot>, StoreError> {
    let newest =
        rows.iter().map(rows::version_number).try_fold(0, |newest, number| number.map(|number| number.max(newest)));
    inner.catalog_with_version(newest?).await
}

pub(super) async fn record(inner: &PostgresInner, id: RecordId) -> Result<Option<Arc<Record>>, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(SELECT_RECORD_SQL, vec![param(id.0)]);
    let answers = inner.run_pipeline(&pipeline).await?;
    let snapshot = catalog_for_rows(inner, &answers[0]).await?;
    answers[0].first().map(|row| Ok(rows::read_record(row, &snapshot.catalog)?.1)).transpose()
}

pub(super) async fn list(inner: &PostgresInner, query: &ListQuery) -> Result<RecordPage, StoreError> {
    let snapshot = inner.newest_catalog().await?;
    let mut states_by_version = None;
    if query.lifecycle.is_some() || query.state.is_some() {
        let (mut definitions, mut states) = (Vec::new(), Vec::new());
        for (number, lifecycle) in (1_i64..).zip(snapshot.catalog.versions_since(0)) {
            if query.lifecycle.as_ref().is_some_and(|name| *name != lifecycle.name) {
                continue;
            }
            for (state, own) in (0_i64..).zip(&lifecycle.states) {
                if query.state.as_ref().is_none_or(|name| *name == own.name) {
                    definitions.push(number);
                    states.push(state);
                }
            }
        }
        states_by_version = Some((definitions, states));
    }
    let (definitions, states) = states_by_version.unzip();
    let mut pipeline = Pipeline::default();
    let limit = to_limit(query.limit).saturating_add(1);
    let after = to_signed(query.after.unwrap_or(0));
    let max_scanned = to_limit(max_scanned_records(query.limit));
    let owner = query.owner.as_deref();
    let bytes = to_limit(query.page_limit().max_bytes);
    pipeline.add(
        LIST_RECORDS_SQL,
        vec![
            param(after),
            param(owner),
            param(definitions),
            param(states),
            param(limit),
            param(max_scanned),
            param(bytes),
        ],
    );
    let mut answers = inner.run_pipeline(&pipeline).await?;
    let mut found = answers.pop().unwrap_or_default();
    let scanned = found.first().map(|row| {
        Ok((rows::optional_unsigned_column(row, SCAN_END_COLUMN)?, row.try_get::<_, i64>(SCAN_END_COLUMN + 1)?))
    });
    let (end, scanned_count) = scanned.transpose().map_err(|error: StoreError| error)?.unwrap_or((None, 0));
    // If no record matches, the only row contains no record.
    if found.first().map(|row| rows::optional_unsigned_column(row, 0)).transpose()?.flatten().is_none() {
        found.clear();
    }
    let snapshot = catalog_for_rows(inner, &found).await?;
    let (mut page, mut budget) = (RecordPage::default(), PageBudget::new(query.page_limit()));
    let fitting =
        found.iter().take_while(|row| budget.try_take(row.try_get(FIELDS_COLUMN).map_or(0, str::len))).count();
    for row in &found[..fitting] {
        match rows::read_record(row, &snapshot.catalog) {
            Ok((_, record)) => {
                page.records.push(record);
                page.row_ids.extend(rows::optional_unsigned_column(row, 0)?);
            }
            // Skip a damaged record, so that the others remain visible.
            Err(StoreError::Corrupt(_)) => page.unreadable += 1,
            Err(error) => return Err(error),
        }
        page.next = rows::optional_unsigned_column(row, 0)?;
    }
    if fitting == found.len() {
        page.next = end.filter(|_| scanned_count >= max_scanned);
    }
    Ok(page)
}

pub(super) async fn counts_by_state(inner: &PostgresInner, owner: Option<&str>) -> Result<Vec<StateCount>, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(SELECT_STATE_COUNTS_SQL, vec![param(owner)]);
    let answers = inner.run_pipeline(&pipeline).await?;
    let snapshot = inner.newest_catalog().await?;
    let mut counts = Vec::new();
    for row in &answers[0] {
        let count = StateCount {
            lifecycle: rows::text_column(row, 0)?,
            state: snapshot.symbols.name(i64::from(rows::u32_column(row, 1)?))?,
            count: rows::unsigned_column(row, 2)?,
        };
        if count.count > 0 {
            counts.push(count);
        }
    }
    counts.sort_unstable();
    Ok(counts)
}

pub(super) async fn counts_by_version(inner: &PostgresInner) -> Result<Vec<VersionCount>, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(SELECT_VERSION_COUNTS_SQL, Vec::new());
    let answers = inner.run_pipeline(&pipeline).await?;
    let snapshot = inner.newest_catalog().await?;
    version_counts(&answers[0], &snapshot.catalog, &snapshot.symbols)
}

/// Reads the rows of [`SELECT_VERSION_COUNTS_SQL`].
pub(super) fn version_counts(
    rows: &[Row],
    catalog: &Catalog,
    symbols: &SymbolTable,
) -> Result<Vec<VersionCount>, StoreError> {
    let mut counts = Vec::new();
    for row in rows {
        let state = symbols.name(i64::from(rows::u32_column(row, 1)?))?;
        let count = VersionCount::resolve(catalog, rows::u32_column(row, 0)?, &state, rows::unsigned_column(row, 2)?);
        counts.extend(count.filter(|count| count.count > 0));
    }
    counts.sort_unstable();
    Ok(counts)
}

pub(super) async fn payload(inner: &PostgresInner, sha256: &[u8; 32]) -> Result<Option<Arc<[u8]>>, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(SELECT_PAYLOAD_SQL, vec![param(&sha256[..])]);
    let answers = inner.run_pipeline(&pipeline).await?;
    let Some(row) = answers[0].first() else { return Ok(None) };
    let bytes: &[u8] = row.try_get(0)?;
    Ok(is_payload_present(sha256, bytes).then(|| bytes.into()))
}

pub(super) async fn referenced_payloads(
    inner: &PostgresInner,
    hashes: &[[u8; 32]],
) -> Result<HashSet<[u8; 32]>, StoreError> {
    let hashes: Vec<&[u8]> = hashes.iter().map(|hash| &hash[..]).collect();
    let mut pipeline = Pipeline::default();
    pipeline.add(SELECT_REFERENCED_SQL, vec![param(hashes)]);
    inner.run_pipeline(&pipeline).await?.iter().flatten().map(|row| rows::to_hash(row.try_get(0)?)).collect()
}

pub(super) async fn payloads(
    inner: &PostgresInner,
    sha256s: &[[u8; 32]],
) -> Result<Vec<Option<Arc<[u8]>>>, StoreError> {
    if sha256s.is_empty() {
        return Ok(Vec::new());
    }
    let mut pipeline = Pipeline::default();
    let wanted: Vec<Vec<u8>> = sha256s.iter().map(|sha256| sha256.to_vec()).collect();
    pipeline.add(SELECT_PAYLOADS_SQL, vec![param(wanted)]);
    let answers = inner.run_pipeline(&pipeline).await?;
    let mut found: HashMap<Vec<u8>, Arc<[u8]>> = HashMap::new();
    for row in answers.iter().flatten() {
        found.insert(row.try_get(0)?, row.try_get::<_, &[u8]>(1)?.into());
    }
    let find_present =
        |sha256: &[u8; 32]| found.get(&sha256[..]).filter(|bytes| is_payload_present(sha256, bytes)).cloned();
    Ok(sha256s.iter().map(find_present).collect())
}

pub(super) async fn last_seq(inner: &PostgresInner) -> Result<u64, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(SELECT_LAST_SEQ_SQL, Vec::new());
    let answers = inner.run_pipeline(&pipeline).await?;
    answers[0].first().map_or(Ok(0), |row| rows::unsigned_column(row, 0))
}

pub(super) async fn effect(inner: &PostgresInner, record: RecordId) -> Result<Option<Effect>, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(SELECT_EFFECT_SQL, vec![param(record.0)]);
    let answers = inner.run_pipeline(&pipeline).await?;
    let Some(row) = answers[0].first() else { return Ok(None) };
    let result = serde_json::from_str(row.try_get(1)?)
        .map_err(|error| StoreError::corrupt(format!("the result of {record} is unreadable: {error}")))?;
    Ok(Some(Effect { record, token: FencingToken(rows::unsigned_column(row, 0)?), result }))
}

pub(super) async fn executions_page(
    inner: &PostgresInner,
    record: RecordId,
    after_token: FencingToken,
    page_limit: PageLimit,
) -> Result<Vec<Execution>, StoreError> {
    let mut pipeline = Pipeline::default();
    let (limit, bytes) = (to_limit(page_limit.max_items), to_limit(page_limit.max_bytes));
    pipeline
        .add(SELECT_EXECUTIONS_SQL, vec![param(record.0), param(to_signed(after_token.0)), param(limit), param(bytes)]);
    let (answers, mut budget) = (inner.run_pipeline(&pipeline).await?, PageBudget::new(page_limit));
    let attempts = answers.iter().flatten().map(|row| rows::read_execution(row, 0));
    attempts
        .take_while(|attempt| attempt.as_ref().map_or(true, |attempt| budget.try_take(execution_text_bytes(attempt))))
        .collect()
}

pub(super) async fn linked_records(inner: &PostgresInner, query: &LinkQuery) -> Result<LinkPage, StoreError> {
    let snapshot = inner.newest_catalog().await?;
    let number = |name: &str| snapshot.symbols.id(name);
    let names = query.from.iter().filter_map(|from| Some((number(&from.lifecycle)?, number(&from.field)?)));
    let (lifecycles, fields): (Vec<i64>, Vec<i64>) = names.unzip();
    let (after, limit) = (to_signed(query.after.unwrap_or(0)), to_limit(query.limit).saturating_add(1));
    let mut pipeline = Pipeline::default();
    pipeline.add(
        SELECT_LINKED_SQL,
        vec![param(query.target.0), param(lifecycles), param(fields), param(after), param(limit)],
    );
    let answers = inner.run_pipeline(&pipeline).await?;
    let sources =
        answers.iter().flatten().map(|row| Ok((rows::unsigned_column(row, 0)?, rows::record_id_column(row, 1)?)));
    Ok(LinkPage::from_found(sources.collect::<Result<_, StoreError>>()?, query.limit))
}

pub(super) async fn idempotency_records(
    inner: &PostgresInner,
    ids: &[IdempotencyId],
) -> Result<Vec<Option<IdempotencyRecord>>, StoreError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let (owners, keys): (Vec<&str>, Vec<&str>) = ids.iter().map(|name| (&*name.owner, &*name.idempotency_key)).unzip();
    let mut pipeline = Pipeline::default();
    pipeline.add(SELECT_IDEMPOTENCY_KEYS_SQL, vec![param(owners), param(keys)]);
    let mut found: Vec<Option<IdempotencyRecord>> = ids.iter().map(|_| None).collect();
    for row in inner.run_pipeline(&pipeline).await?.iter().flatten() {
        // Ordinals start at 1.
        let at = usize::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0).saturating_sub(1);
        let (digest, reply) = (rows::to_hash(row.try_get(1)?)?, rows::text_column(row, 2)?);
        found[at] = Some(IdempotencyRecord { id: ids[at].clone(), request_digest: digest, reply });
    }
    Ok(found)
}
