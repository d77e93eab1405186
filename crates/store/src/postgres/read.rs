//! Everything that is asked besides loading.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use onceward_core::decide::Effect;
use onceward_core::record::{Execution, Record, Token};
use onceward_core::value::RecordId;
use tokio_postgres::Row;
use uuid::Uuid;

use super::Inner;
use super::pipeline::{Pipeline, arg};
use super::prune::{STANDING, read_standing};
use super::rows::{self, signed, size};
use crate::batch::{Request, RequestName};
use crate::catalog::Catalog;
use crate::columns::{has_come, weight};
use crate::error::StoreError;
use crate::log::Entry;
use crate::names::{Known, Names};
use crate::query::{Filling, ListQuery, Most, Page, StateCount, VersionCount, looked_at};
use crate::relation::{LinkPage, LinkQuery};

/// The last place of the first batch that does not end before a place.
pub(super) const BEYOND: &str = "SELECT min(last) FROM onceward.batches WHERE last >= $1";

/// Batches that are not before the place, up to the one that has the last place of the page, and of each its entries. Places are
/// dense but for what pruning took, so that is a page and a batch at most. Of long entries as many as fit, and one more: how long a
/// text is, is known without reading it.
const LOG: &str = "SELECT seq, id, version, at, text, hash FROM ( \
     SELECT b.first + (h.place & 1048575) AS seq, r.id, h.version, h.at, h.text, h.hash, \
     sum(octet_length(h.text)) OVER (ORDER BY b.first, h.place) - octet_length(h.text) AS before \
     FROM (SELECT first, batch FROM onceward.batches WHERE last > $1 \
     AND last <= coalesce((SELECT min(last) FROM onceward.batches WHERE last >= $3), $3) ORDER BY last LIMIT $2) b \
     JOIN onceward.history h ON h.place >= b.batch << 20 AND h.place < (b.batch + 1) << 20 \
     LEFT JOIN onceward.records r ON r.row = h.record \
     WHERE b.first + (h.place & 1048575) > $1 ORDER BY b.first, h.place LIMIT $2) page \
     WHERE before <= $4 ORDER BY seq";

/// Followed from the last entry, or a place that is known, back to the version, then told forward. Only to lower versions: a damaged
/// pointer must not lead round in a circle. The way back is one of numbers: texts are read of those that are told. Beside them, places
/// that were passed on the way.
const HISTORY: &str = "WITH RECURSIVE back AS ( \
     SELECT h.place, h.version, h.previous FROM onceward.records r JOIN onceward.history h ON h.place = coalesce($5::bigint, r.entry) \
     WHERE r.id = $1 AND h.version > $2 AND ($5 IS NULL OR h.record = r.row AND h.version = $6::bigint) \
     UNION ALL SELECT h.place, h.version, h.previous FROM back b JOIN onceward.history h ON h.place = b.previous \
     WHERE h.version > $2 AND h.version < b.version) \
     SELECT seq, $1, version, at, text, hash, NULL::bigint AS passed FROM ( \
     SELECT s.first + (h.place & 1048575) AS seq, h.version, h.at, h.text, h.hash, \
     sum(octet_length(h.text)) OVER (ORDER BY h.version) - octet_length(h.text) AS before \
     FROM (SELECT place FROM back ORDER BY version LIMIT $3) p JOIN onceward.history h ON h.place = p.place \
     JOIN onceward.batches s ON s.batch = h.place >> 20) page WHERE before <= $4 \
     UNION ALL SELECT NULL, NULL, version, NULL, NULL, NULL, place FROM back WHERE version % 256 = 0 \
     ORDER BY passed NULLS FIRST, version";

/// Where the column of a place that was passed stands.
const PASSED: usize = 6;

const RECORD: &str = "SELECT * FROM onceward.whole WHERE id = $1";

/// Records in order of creation, so many at a time, and of long ones as many as fit and one more; and, also where none fits, how far was
/// looked and how many that were.
const LIST: &str = "WITH near AS MATERIALIZED (SELECT row FROM onceward.records WHERE row > $1 ORDER BY row LIMIT $6) \
     SELECT w.*, (SELECT max(row) FROM near), (SELECT count(*) FROM near) FROM (SELECT 1) one LEFT JOIN ( \
     SELECT * FROM (SELECT whole.*, sum(octet_length(fields)) OVER up - octet_length(fields) AS before, \
     row_number() OVER up AS number \
     FROM near JOIN onceward.whole ON whole.row = near.row WHERE ($2::text IS NULL OR owner = $2) \
     AND ($3::bigint[] IS NULL OR (definition, state) IN (SELECT * FROM unnest($3, $4::bigint[]))) \
     WINDOW up AS (ORDER BY whole.row) ORDER BY whole.row LIMIT $5) page WHERE before <= $7 OR number = 2) w ON true ORDER BY w.row";

/// Where the columns of a record, the bytes before it and its number end.
const LOOKED: usize = 36;

/// A record's fields.
const FIELDS: usize = 6;

const TALLIES: &str = "SELECT d.name, t.state, sum(t.count)::bigint FROM onceward.tallies t \
     JOIN onceward.definitions d ON d.number = t.definition WHERE $1::text IS NULL OR t.owner = $1 GROUP BY d.name, t.state";

/// How many live by each version.
pub(super) const LIVES: &str =
    "SELECT definition, state, sum(count)::bigint FROM onceward.tallies GROUP BY definition, state";

const LAST: &str = "SELECT coalesce(max(last), 0) FROM onceward.batches";

const CONTENTS: &str = "SELECT sha256, bytes FROM onceward.contents WHERE sha256 = ANY($1)";

const CONTENT: &str = "SELECT bytes FROM onceward.contents WHERE sha256 = $1";

const REFERENCED: &str = "SELECT sha256 FROM onceward.contents WHERE sha256 = ANY($1::bytea[]) AND refs > 0";

const EFFECT: &str = "SELECT e.token, e.result FROM onceward.records r \
     JOIN onceward.effects e ON e.record = r.row WHERE r.id = $1";

/// As many as fit, and one more.
const ATTEMPTS: &str = "SELECT token, worker, holder, status, leased_at, expires_at, started_at, finished_at, abort_code, \
     abort_retryable, finish_moves, key FROM (SELECT e.*, sum(bytes) OVER (ORDER BY e.token) - bytes AS before \
     FROM onceward.records r JOIN onceward.executions e ON e.record = r.row \
     CROSS JOIN LATERAL (SELECT octet_length(worker) + octet_length(holder) + coalesce(octet_length(abort_code), 0) \
     + coalesce(octet_length(key), 0) AS bytes) b \
     WHERE r.id = $1 AND e.token > $2 ORDER BY e.token LIMIT $3) page WHERE before <= $4 ORDER BY token";

/// By each field apart, as the table is sorted.
const LINKED: &str = "SELECT l.source, s.id FROM onceward.records t CROSS JOIN unnest($2::bigint[], $3::bigint[]) k(l, f) \
     CROSS JOIN LATERAL (SELECT source FROM onceward.links WHERE target = t.row AND lifecycle = k.l AND field = k.f \
     AND source > $4 ORDER BY source LIMIT $5) l JOIN onceward.records s ON s.row = l.source WHERE t.id = $1";

const REQUESTS: &str = "SELECT k.i, r.digest, r.answer FROM unnest($1::text[], $2::text[]) WITH ORDINALITY k(owner, key, i) \
     JOIN onceward.requests r ON r.owner = k.owner AND r.key = k.key";

pub(super) async fn log(inner: &Inner, after: u64, most: Most) -> Result<Vec<Entry>, StoreError> {
    let (mut from, limit) = (signed(after), size(most.count));
    loop {
        let to = from.saturating_add(limit);
        let mut pipeline = Pipeline::default();
        // Asked first: what comes meanwhile is not passed over.
        let beyond = pipeline.add(BEYOND, vec![arg(to)]);
        let page = pipeline.add(LOG, vec![arg(from), arg(limit), arg(to), arg(size(most.bytes))]);
        // Asked last: what was taken before is known by now.
        let standing = pipeline.add(STANDING, Vec::new());
        let answers = inner.run(&pipeline).await?;
        let floor = answers[standing].first().map(read_standing).transpose()?.unwrap_or_default().floor;
        if after < floor {
            return Err(StoreError::Pruned { oldest: floor });
        }
        let beyond = answers[beyond].first().map_or(Ok(None), |row| row.try_get::<_, Option<i64>>(0))?;
        match beyond {
            // All that stood there was pruned, and there is more behind it: an empty page would say that there is not.
            Some(place) if answers[page].is_empty() && place > from && limit > 0 => from = place,
            _ => return entries(&answers[page], most),
        }
    }
}

fn entries(rows: &[Row], most: Most) -> Result<Vec<Entry>, StoreError> {
    let mut filling = Filling::new(most);
    let entries = rows.iter().map(entry);
    entries.take_while(|entry| entry.as_ref().map_or(true, |entry| filling.takes(entry.text.len()))).collect()
}

pub(super) fn entry(row: &Row) -> Result<Entry, StoreError> {
    Ok(Entry {
        seq: rows::unsigned(row, 0)?,
        record: rows::some::<Uuid>(row, 1)?.map(RecordId),
        version: rows::unsigned(row, 2)?,
        at: rows::time(row, 3)?,
        text: rows::text(row, 4)?,
        hash: rows::hash(row.try_get(5)?)?,
    })
}

pub(super) async fn history(
    inner: &Inner,
    id: RecordId,
    after_version: u64,
    most: Most,
) -> Result<Vec<Entry>, StoreError> {
    let last = after_version.saturating_add(u64::try_from(most.count).unwrap_or(u64::MAX));
    let mut anchor = inner.anchors.from(id, last);
    let found = loop {
        let (limit, bytes) = (size(most.count), size(most.bytes));
        let (version, place) = anchor.map(|(version, place)| (signed(version), signed(place))).unzip();
        let asked = vec![arg(id.0), arg(signed(after_version)), arg(limit), arg(bytes), arg(place), arg(version)];
        let mut pipeline = Pipeline::default();
        pipeline.add(HISTORY, asked);
        let mut answers = inner.run(&pipeline).await?;
        let found = answers.pop().unwrap_or_default();
        if !found.is_empty() || anchor.take().is_none() {
            break found;
        }
        inner.anchors.forget(id);
    };
    let told = found.iter().take_while(|row| matches!(row.try_get::<_, Option<i64>>(PASSED), Ok(None))).count();
    let passed = found[told..].iter().map(|row| Ok((rows::unsigned(row, 2)?, rows::unsigned(row, PASSED)?)));
    inner.anchors.keep(id, passed.collect::<Result<Vec<_>, StoreError>>()?);
    let entries = entries(&found[..told], most)?;
    for (version, entry) in (after_version + 1..).zip(&entries) {
        if entry.version != version {
            return Err(StoreError::corrupt(format!("the log entry of version {version} of {id} is missing")));
        }
    }
    Ok(entries)
}

/// All definitions that these rows name are known.
pub(super) async fn known_for(inner: &Inner, rows: &[Row]) -> Result<Arc<Known>, StoreError> {
    let newest =
        rows.iter().map(rows::definition).try_fold(0, |newest, number| number.map(|number| number.max(newest)));
    inner.known_up_to(newest?).await
}

pub(super) async fn record(inner: &Inner, id: RecordId) -> Result<Option<Arc<Record>>, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(RECORD, vec![arg(id.0)]);
    let answers = inner.run(&pipeline).await?;
    let known = known_for(inner, &answers[0]).await?;
    answers[0].first().map(|row| Ok(rows::record(row, &known.catalog)?.1)).transpose()
}

pub(super) async fn list(inner: &Inner, query: &ListQuery) -> Result<Page, StoreError> {
    let known = inner.newest().await?;
    let mut kinds = None;
    if query.lifecycle.is_some() || query.state.is_some() {
        let (mut definitions, mut states) = (Vec::new(), Vec::new());
        for (number, lifecycle) in (1_i64..).zip(known.catalog.since(0)) {
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
        kinds = Some((definitions, states));
    }
    let (definitions, states) = kinds.unzip();
    let mut pipeline = Pipeline::default();
    let limit = size(query.limit).saturating_add(1);
    let after = signed(query.after.unwrap_or(0));
    let most = size(looked_at(query.limit));
    let owner = query.owner.as_deref();
    let bytes = size(query.most().bytes);
    pipeline.add(LIST, vec![arg(after), arg(owner), arg(definitions), arg(states), arg(limit), arg(most), arg(bytes)]);
    let mut answers = inner.run(&pipeline).await?;
    let mut found = answers.pop().unwrap_or_default();
    let looked = found.first().map(|row| Ok((rows::some_unsigned(row, LOOKED)?, row.try_get::<_, i64>(LOOKED + 1)?)));
    let (end, looked) = looked.transpose().map_err(|error: StoreError| error)?.unwrap_or((None, 0));
    // Where none fits, the one row has no record in it.
    if found.first().map(|row| rows::some_unsigned(row, 0)).transpose()?.flatten().is_none() {
        found.clear();
    }
    let known = known_for(inner, &found).await?;
    let (mut page, mut filling) = (Page::default(), Filling::new(query.most()));
    let fit = found.iter().take_while(|row| filling.takes(row.try_get(FIELDS).map_or(0, str::len))).count();
    for row in &found[..fit] {
        match rows::record(row, &known.catalog) {
            Ok((_, record)) => {
                page.records.push(record);
                page.places.extend(rows::some_unsigned(row, 0)?);
            }
            // One that is damaged must not hide all others.
            Err(StoreError::Corrupt(_)) => page.unreadable += 1,
            Err(error) => return Err(error),
        }
        page.next = rows::some_unsigned(row, 0)?;
    }
    if fit == found.len() {
        page.next = end.filter(|_| looked >= most);
    }
    Ok(page)
}

pub(super) async fn counts_by_state(inner: &Inner, owner: Option<&str>) -> Result<Vec<StateCount>, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(TALLIES, vec![arg(owner)]);
    let answers = inner.run(&pipeline).await?;
    let known = inner.newest().await?;
    let mut counts = Vec::new();
    for row in &answers[0] {
        let count = StateCount {
            lifecycle: rows::text(row, 0)?,
            state: known.names.name(i64::from(rows::number(row, 1)?))?,
            count: rows::unsigned(row, 2)?,
        };
        if count.count > 0 {
            counts.push(count);
        }
    }
    counts.sort_unstable();
    Ok(counts)
}

pub(super) async fn counts_by_version(inner: &Inner) -> Result<Vec<VersionCount>, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(LIVES, Vec::new());
    let answers = inner.run(&pipeline).await?;
    let known = inner.newest().await?;
    version_counts(&answers[0], &known.catalog, &known.names)
}

/// What [`LIVES`] says.
pub(super) fn version_counts(rows: &[Row], catalog: &Catalog, names: &Names) -> Result<Vec<VersionCount>, StoreError> {
    let mut counts = Vec::new();
    for row in rows {
        let state = names.name(i64::from(rows::number(row, 1)?))?;
        let count = VersionCount::of(catalog, rows::number(row, 0)?, &state, rows::unsigned(row, 2)?);
        counts.extend(count.filter(|count| count.count > 0));
    }
    counts.sort_unstable();
    Ok(counts)
}

pub(super) async fn content(inner: &Inner, sha256: &[u8; 32]) -> Result<Option<Arc<[u8]>>, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(CONTENT, vec![arg(&sha256[..])]);
    let answers = inner.run(&pipeline).await?;
    let Some(row) = answers[0].first() else { return Ok(None) };
    let bytes: &[u8] = row.try_get(0)?;
    Ok(has_come(sha256, bytes).then(|| bytes.into()))
}

pub(super) async fn referenced(inner: &Inner, hashes: &[[u8; 32]]) -> Result<HashSet<[u8; 32]>, StoreError> {
    let hashes: Vec<&[u8]> = hashes.iter().map(|hash| &hash[..]).collect();
    let mut pipeline = Pipeline::default();
    pipeline.add(REFERENCED, vec![arg(hashes)]);
    inner.run(&pipeline).await?.iter().flatten().map(|row| rows::hash(row.try_get(0)?)).collect()
}

pub(super) async fn contents(inner: &Inner, sha256s: &[[u8; 32]]) -> Result<Vec<Option<Arc<[u8]>>>, StoreError> {
    if sha256s.is_empty() {
        return Ok(Vec::new());
    }
    let mut pipeline = Pipeline::default();
    let wanted: Vec<Vec<u8>> = sha256s.iter().map(|sha256| sha256.to_vec()).collect();
    pipeline.add(CONTENTS, vec![arg(wanted)]);
    let answers = inner.run(&pipeline).await?;
    let mut found: HashMap<Vec<u8>, Arc<[u8]>> = HashMap::new();
    for row in answers.iter().flatten() {
        found.insert(row.try_get(0)?, row.try_get::<_, &[u8]>(1)?.into());
    }
    let come = |sha256: &[u8; 32]| found.get(&sha256[..]).filter(|bytes| has_come(sha256, bytes)).cloned();
    Ok(sha256s.iter().map(come).collect())
}

pub(super) async fn last(inner: &Inner) -> Result<u64, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(LAST, Vec::new());
    let answers = inner.run(&pipeline).await?;
    answers[0].first().map_or(Ok(0), |row| rows::unsigned(row, 0))
}

pub(super) async fn effect(inner: &Inner, record: RecordId) -> Result<Option<Effect>, StoreError> {
    let mut pipeline = Pipeline::default();
    pipeline.add(EFFECT, vec![arg(record.0)]);
    let answers = inner.run(&pipeline).await?;
    let Some(row) = answers[0].first() else { return Ok(None) };
    let result = serde_json::from_str(row.try_get(1)?)
        .map_err(|error| StoreError::corrupt(format!("the result of {record}: {error}")))?;
    Ok(Some(Effect { record, token: Token(rows::unsigned(row, 0)?), result }))
}

pub(super) async fn attempts(
    inner: &Inner,
    record: RecordId,
    after: Token,
    most: Most,
) -> Result<Vec<Execution>, StoreError> {
    let mut pipeline = Pipeline::default();
    let (limit, bytes) = (size(most.count), size(most.bytes));
    pipeline.add(ATTEMPTS, vec![arg(record.0), arg(signed(after.0)), arg(limit), arg(bytes)]);
    let (answers, mut filling) = (inner.run(&pipeline).await?, Filling::new(most));
    let attempts = answers.iter().flatten().map(|row| rows::execution(row, 0));
    attempts.take_while(|attempt| attempt.as_ref().map_or(true, |attempt| filling.takes(weight(attempt)))).collect()
}

pub(super) async fn linked(inner: &Inner, query: &LinkQuery) -> Result<LinkPage, StoreError> {
    let known = inner.newest().await?;
    let number = |name: &str| known.names.number(name);
    let names = query.from.iter().filter_map(|from| Some((number(&from.lifecycle)?, number(&from.field)?)));
    let (lifecycles, fields): (Vec<i64>, Vec<i64>) = names.unzip();
    let (after, limit) = (signed(query.after.unwrap_or(0)), size(query.limit).saturating_add(1));
    let mut pipeline = Pipeline::default();
    pipeline.add(LINKED, vec![arg(query.target.0), arg(lifecycles), arg(fields), arg(after), arg(limit)]);
    let answers = inner.run(&pipeline).await?;
    let sources = answers.iter().flatten().map(|row| Ok((rows::unsigned(row, 0)?, rows::id(row, 1)?)));
    Ok(LinkPage::of(sources.collect::<Result<_, StoreError>>()?, query.limit))
}

pub(super) async fn requests(inner: &Inner, names: &[RequestName]) -> Result<Vec<Option<Request>>, StoreError> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let (owners, keys): (Vec<&str>, Vec<&str>) = names.iter().map(|name| (&*name.owner, &*name.key)).unzip();
    let mut pipeline = Pipeline::default();
    pipeline.add(REQUESTS, vec![arg(owners), arg(keys)]);
    let mut found: Vec<Option<Request>> = names.iter().map(|_| None).collect();
    for row in inner.run(&pipeline).await?.iter().flatten() {
        // They are counted from 1.
        let at = usize::try_from(row.try_get::<_, i64>(0)?).unwrap_or(0).saturating_sub(1);
        let (digest, answer) = (rows::hash(row.try_get(1)?)?, rows::text(row, 2)?);
        found[at] = Some(Request { name: names[at].clone(), digest, answer });
    }
    Ok(found)
}
