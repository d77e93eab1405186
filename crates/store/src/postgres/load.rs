//! Loading what `decide` needs: one statement for each kind of key, all of them in one round trip. A save asks the same
//! questions again, with less in the answers, to see whether they still hold.

use std::collections::{BTreeSet, HashMap};

use onceward_core::decide::{Account, CountKey, Key, LinkKey, QueueKey, UniqueKey};
use onceward_core::record::Token;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use tokio_postgres::Row;
use uuid::Uuid;

use super::pipeline::{Pipeline, arg};
use super::rows::{self, asked, key_text, size};
use crate::base::{Base, Place, Stored};
use crate::columns::NO_WINDOW;
use crate::error::StoreError;
use crate::names::{Known, Names};

const RECORDS: &str = "SELECT * FROM onceward.whole WHERE id = ANY($1::uuid[])";

/// How records stand, without what is in them.
const STANDING: &str = "SELECT r.id, r.row, r.version, e.expires_at, r.head, r.entry FROM onceward.records r \
     LEFT JOIN onceward.executions e ON e.record = r.row AND e.token = r.attempt WHERE r.id = ANY($1::uuid[])";

const UNIQUES: &str = "SELECT k.i, u.holder FROM unnest($1::bigint[], $2::bigint[], $3::text[]) WITH ORDINALITY k(l, n, p, i) \
     JOIN onceward.uniques u ON u.lifecycle = k.l AND u.name = k.n AND u.parts = k.p";

const COUNTS: &str = "SELECT k.i, c.count FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[]) \
     WITH ORDINALITY k(l, n, p, w, i) \
     JOIN onceward.counts c ON c.lifecycle = k.l AND c.name = k.n AND c.parts = k.p AND c.span = k.w";

const ACCOUNTS: &str = "SELECT k.i, a.balance FROM unnest($1::text[], $2::text[]) WITH ORDINALITY k(a, n, i) \
     JOIN onceward.accounts a ON a.asset = k.a AND a.name = k.n";

const LINKS: &str = "SELECT k.i, t.links, s.id FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) WITH ORDINALITY k(t, l, f, i) \
     JOIN onceward.records t ON t.id = k.t \
     LEFT JOIN onceward.links l ON l.target = t.row AND l.lifecycle = k.l AND l.field = k.f \
     LEFT JOIN onceward.records s ON s.row = l.source ORDER BY k.i, l.source";

/// Whether a link came or went, without saying which.
const LINK_VERSIONS: &str = "SELECT k.i, t.links, NULL::uuid FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) \
     WITH ORDINALITY k(t, l, f, i) JOIN onceward.records t ON t.id = k.t";

const EXECUTIONS: &str = "SELECT k.i, e.token, e.worker, e.holder, e.status, e.leased_at, e.expires_at, e.started_at, \
     e.finished_at, e.abort_code, e.abort_retryable, e.finish_moves, e.key \
     FROM unnest($1::uuid[], $2::bigint[]) WITH ORDINALITY k(r, t, i) \
     JOIN onceward.records r ON r.id = k.r JOIN onceward.executions e ON e.record = r.row AND e.token = k.t";

const QUEUES: &str = "SELECT k.i, q.created_at, q.id FROM unnest($1::bigint[], $2::text[], $3::bigint[]) \
     WITH ORDINALITY k(l, p, depth, i) CROSS JOIN LATERAL \
     (SELECT created_at, id FROM onceward.queues WHERE lifecycle = k.l AND parts = k.p ORDER BY created_at, id LIMIT k.depth) q \
     ORDER BY k.i, q.created_at, q.id";

/// A number that no name has.
const NOBODY: i64 = -1;

/// How much is wanted of each key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// All that there is, to decide on.
    Whole,
    /// Enough to see whether it has changed.
    Standing,
}

/// Questions on their way, by kind of key.
#[derive(Default)]
pub(super) struct Asking {
    records: Vec<RecordId>,
    uniques: Vec<UniqueKey>,
    counts: Vec<CountKey>,
    accounts: Vec<Account>,
    links: Vec<LinkKey>,
    executions: Vec<(RecordId, Token)>,
    queues: Vec<QueueKey>,
    /// Where each kind's answer stands in the pipeline.
    places: [Option<usize>; 7],
}

impl Asking {
    /// Ask for those of the keys that the base does not have.
    pub(super) fn new(
        pipeline: &mut Pipeline<'_>,
        names: &Names,
        base: &Base,
        keys: &[Key],
        wish: Wish,
    ) -> Result<Self, StoreError> {
        let mut asking = Self::default();
        // Whoever asks may name one twice.
        let keys: BTreeSet<&Key> = keys.iter().filter(|key| base.lacks(key)).collect();
        for key in keys {
            match key {
                Key::Record(id) => asking.records.push(*id),
                Key::Unique(key) => asking.uniques.push(key.clone()),
                Key::Count(key) => asking.counts.push(key.clone()),
                Key::Account(account) => asking.accounts.push(account.clone()),
                Key::Links(key) => asking.links.push(key.clone()),
                Key::Execution(record, token) => asking.executions.push((*record, *token)),
                Key::Queue(key) => asking.queues.push(key.clone()),
            }
        }
        asking.send(pipeline, names, base, wish)?;
        Ok(asking)
    }

    fn send(&mut self, pipeline: &mut Pipeline<'_>, names: &Names, base: &Base, wish: Wish) -> Result<(), StoreError> {
        let number = |name: &str| names.number(name).unwrap_or(NOBODY);
        if !self.records.is_empty() {
            let ids: Vec<Uuid> = self.records.iter().map(|id| id.0).collect();
            let sql = if wish == Wish::Whole { RECORDS } else { STANDING };
            self.places[0] = Some(pipeline.add(sql, vec![arg(ids)]));
        }
        if !self.uniques.is_empty() {
            let (mut lifecycles, mut unique, mut parts) = (Vec::new(), Vec::new(), Vec::new());
            for key in &self.uniques {
                lifecycles.push(number(&key.lifecycle));
                unique.push(number(&key.unique));
                parts.push(key_text(&key.parts)?.0);
            }
            self.places[1] = Some(pipeline.add(UNIQUES, vec![arg(lifecycles), arg(unique), arg(parts)]));
        }
        if !self.counts.is_empty() {
            let (mut lifecycles, mut limits, mut parts, mut spans) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            for key in &self.counts {
                lifecycles.push(number(&key.lifecycle));
                limits.push(number(&key.limit));
                parts.push(key_text(&key.parts)?.0);
                spans.push(key.window.unwrap_or(NO_WINDOW));
            }
            self.places[2] = Some(pipeline.add(COUNTS, vec![arg(lifecycles), arg(limits), arg(parts), arg(spans)]));
        }
        if !self.accounts.is_empty() {
            let (mut assets, mut accounts) = (Vec::new(), Vec::new());
            for account in &self.accounts {
                // A hold is its record's own and never asked for: it comes with the record.
                let (asset, name) = match account {
                    Account::Named { asset, name } => (asset.to_string(), name.to_string()),
                    Account::Hold { .. } => Default::default(),
                };
                assets.push(asset);
                accounts.push(name);
            }
            self.places[3] = Some(pipeline.add(ACCOUNTS, vec![arg(assets), arg(accounts)]));
        }
        if !self.links.is_empty() {
            let targets: Vec<Uuid> = self.links.iter().map(|key| key.target.0).collect();
            let lifecycles: Vec<i64> = self.links.iter().map(|key| number(&key.lifecycle)).collect();
            let fields: Vec<i64> = self.links.iter().map(|key| number(&key.field)).collect();
            let sql = if wish == Wish::Whole { LINKS } else { LINK_VERSIONS };
            self.places[4] = Some(pipeline.add(sql, vec![arg(targets), arg(lifecycles), arg(fields)]));
        }
        if !self.executions.is_empty() {
            let ids: Vec<Uuid> = self.executions.iter().map(|(id, _)| id.0).collect();
            let tokens: Vec<i64> = self.executions.iter().map(|(_, token)| rows::signed(token.0)).collect();
            self.places[5] = Some(pipeline.add(EXECUTIONS, vec![arg(ids), arg(tokens)]));
        }
        if !self.queues.is_empty() {
            let (mut lifecycles, mut parts, mut depths) = (Vec::new(), Vec::new(), Vec::new());
            for key in &self.queues {
                lifecycles.push(number(&key.lifecycle));
                parts.push(key_text(&key.parts)?.0);
                depths.push(size(base.queue_depth(key)));
            }
            self.places[6] = Some(pipeline.add(QUEUES, vec![arg(lifecycles), arg(parts), arg(depths)]));
        }
        Ok(())
    }

    /// Whether more than one statement is needed, each of which would see what others have done meanwhile.
    pub(super) fn is_mixed(&self) -> bool {
        self.places.iter().flatten().count() > 1
    }

    fn answer<'r>(&self, answers: &'r [Vec<Row>], kind: usize) -> &'r [Row] {
        self.places[kind].and_then(|at| answers.get(at)).map_or(&[], Vec::as_slice)
    }

    /// The largest number of a definition that the answers name.
    pub(super) fn newest_definition(&self, answers: &[Vec<Row>]) -> Result<u32, StoreError> {
        let mut numbers = self.answer(answers, 0).iter().map(rows::definition);
        numbers.try_fold(0, |newest, number| Ok(newest.max(number?)))
    }

    /// Tell the base all that was answered.
    pub(super) fn put(
        &self,
        base: &mut Base,
        answers: &[Vec<Row>],
        known: &Known,
        wish: Wish,
    ) -> Result<(), StoreError> {
        let mut records: HashMap<RecordId, _> = HashMap::new();
        for row in self.answer(answers, 0) {
            if wish == Wish::Whole {
                let (stored, record) = rows::record(row, &known.catalog)?;
                records.insert(record.id, (stored, Some(record)));
            } else {
                records.insert(rows::id(row, 0)?, (standing(row)?, None));
            }
        }
        for id in &self.records {
            match records.remove(id) {
                Some((stored, Some(record))) => base.put_record(*id, Some((stored, record))),
                Some((stored, None)) => base.put_standing(*id, stored),
                None => base.put_record(*id, None),
            }
        }
        let mut holders = vec![None; self.uniques.len()];
        for row in self.answer(answers, 1) {
            *place(&mut holders, row)? = Some(rows::id(row, 1)?);
        }
        for (key, holder) in self.uniques.iter().zip(holders) {
            base.put_unique(key.clone(), holder);
        }
        let mut counts = vec![0; self.counts.len()];
        for row in self.answer(answers, 2) {
            *place(&mut counts, row)? = rows::unsigned(row, 1)?;
        }
        for (key, count) in self.counts.iter().zip(counts) {
            base.put_count(key.clone(), count);
        }
        let mut balances = vec![0; self.accounts.len()];
        for row in self.answer(answers, 3) {
            *place(&mut balances, row)? = row.try_get(1)?;
        }
        for (account, balance) in self.accounts.iter().zip(balances) {
            base.put_account(account.clone(), balance);
        }
        let mut links = vec![(Vec::new(), 0); self.links.len()];
        for row in self.answer(answers, 4) {
            let (linked, version) = place(&mut links, row)?;
            *version = rows::unsigned(row, 1)?;
            linked.extend(rows::some::<Uuid>(row, 2)?.map(RecordId));
        }
        for (key, (linked, version)) in self.links.iter().zip(links) {
            base.put_links(key.clone(), linked, version);
        }
        let mut executions = vec![None; self.executions.len()];
        for row in self.answer(answers, 5) {
            *place(&mut executions, row)? = Some(rows::execution(row, 1)?);
        }
        for ((record, token), execution) in self.executions.iter().zip(executions) {
            base.put_execution(*record, *token, execution);
        }
        let mut queues: Vec<Vec<Place>> = vec![Vec::new(); self.queues.len()];
        for row in self.answer(answers, 6) {
            place(&mut queues, row)?.push((rows::time(row, 1)?, rows::id(row, 2)?));
        }
        for (key, first) in self.queues.iter().zip(queues) {
            base.put_queue(key.clone(), first);
        }
        Ok(())
    }
}

/// The place of the answer that a row belongs to.
fn place<'a, T>(answers: &'a mut [T], row: &Row) -> Result<&'a mut T, StoreError> {
    let at = asked(row, 0)?;
    answers.get_mut(at).ok_or_else(|| StoreError::corrupt("an answer to something that was not asked"))
}

fn standing(row: &Row) -> Result<Stored, StoreError> {
    Ok(Stored {
        row: rows::unsigned(row, 1)?,
        version: rows::unsigned(row, 2)?,
        expires_at: rows::some::<i64>(row, 3)?.map(Time::from_micros),
        head: rows::hash(row.try_get(4)?)?,
        entry: rows::unsigned(row, 5)?,
    })
}
