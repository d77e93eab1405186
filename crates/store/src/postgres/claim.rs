//! The ground that a batch stands on: what is free is claimed, what is there is locked, all in one order that every save
//! keeps; then the store is asked once more what it said before.
//!
//! Claims come first. Whoever waits for a claim holds nothing but claims, and whoever holds locks waits for no claim; within
//! each table both go by its key. So no two saves wait for each other.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use onceward_core::decide::{Account, CountKey, Key, QueueKey, UniqueKey};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connect::BEGIN;
use super::definitions;
use super::load::{Asking, Wish};
use super::pipeline::{Pipeline, arg};
use super::rows::{self, key_text, size};
use crate::base::{Base, Stored};
use crate::batch::{Conflict, Request, RequestName};
use crate::columns::NO_WINDOW;
use crate::error::StoreError;
use crate::names::Known;
use crate::net::Net;
use crate::query::running;

const CLAIM_UNIQUES: &str = "INSERT INTO onceward.uniques (lifecycle, name, parts, holder, whole) \
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::uuid[], $5::text[]) \
     ON CONFLICT DO NOTHING RETURNING lifecycle, name, parts";

const CLAIM_REQUESTS: &str = "INSERT INTO onceward.requests (owner, key, digest, answer, at) \
     SELECT k.*, $5 FROM unnest($1::text[], $2::text[], $3::bytea[], $4::text[]) k \
     ON CONFLICT DO NOTHING RETURNING owner, key";

/// Where nobody counts the row may be pruned at any time until it is locked: then the save begins again.
pub(super) const CLAIM_COUNTS: &str = "INSERT INTO onceward.counts (lifecycle, name, parts, span, whole, count) \
     SELECT k.*, 0 FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::text[]) k ON CONFLICT DO NOTHING";

const CLAIM_ACCOUNTS: &str = "INSERT INTO onceward.accounts (asset, name, outside, balance) \
     SELECT k.*, false, 0 FROM unnest($1::text[], $2::text[]) k ON CONFLICT DO NOTHING \
     RETURNING asset, name";

pub(super) const LOCK_UNIQUES: &str = "SELECT FROM unnest($1::bigint[], $2::bigint[], $3::text[]) k(l, n, p) \
     JOIN onceward.uniques u ON u.lifecycle = k.l AND u.name = k.n AND u.parts = k.p \
     ORDER BY u.lifecycle, u.name, u.parts FOR UPDATE OF u";

pub(super) const LOCK_COUNTS: &str = "SELECT FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[]) k(l, n, p, w) \
     JOIN onceward.counts c ON c.lifecycle = k.l AND c.name = k.n AND c.parts = k.p AND c.span = k.w \
     ORDER BY c.lifecycle, c.name, c.parts, c.span FOR UPDATE OF c";

const LOCK_ACCOUNTS: &str = "SELECT FROM unnest($1::text[], $2::text[]) k(a, n) \
     JOIN onceward.accounts a ON a.asset = k.a AND a.name = k.n ORDER BY a.asset, a.name FOR UPDATE OF a";

/// A locked row is answered as it is once it is locked, so this says how records stand, too.
const LOCK_RECORDS: &str = "SELECT id, row, version, head, entry FROM onceward.records \
     WHERE id = ANY($1::uuid[]) ORDER BY row FOR NO KEY UPDATE";

/// The same where all numbers are known, as they are of what was loaded: the index gives them in their order.
const LOCK_ROWS: &str = "SELECT id, row, version, head, entry FROM onceward.records \
     WHERE row = ANY($1::bigint[]) ORDER BY row FOR NO KEY UPDATE";

/// A heartbeat moves the end of a lease, raises no version, and locks the record: asked after the locks are held.
const LEASES: &str = "SELECT e.record, e.expires_at FROM (SELECT unnest($1::bigint[]) AS r, unnest($2::bigint[]) AS t) \
     k JOIN onceward.executions e ON e.record = k.r AND e.token = k.t";

/// The batch's own number, and one for each new record. Sequences stand outside of transactions: a number is never given
/// twice, and some are lost.
const NUMBERS: &str = "SELECT nextval('onceward.batch_numbers'), \
     ARRAY(SELECT nextval('onceward.record_rows') FROM generate_series(1, $1::bigint))";

/// A key as it stands in an index.
type Indexed = (i64, i64, String, Option<String>);

/// All that a batch claims and locks.
pub(super) struct Ground<'a> {
    base: &'a Base,
    net: &'a Net<'a>,
    /// Work keys whose lanes must be looked at.
    pub(super) touched: BTreeSet<QueueKey>,
    /// Records that must stand as the base was told: their locks say how they do.
    standing: Vec<RecordId>,
    /// What else must be as the base was told, but for what is claimed.
    compared: Vec<Key>,
    /// Keys that were free, and who holds them from now on. One that was only read is claimed for nobody, so that nobody else
    /// does meanwhile, and let go of at the end.
    uniques: BTreeMap<Indexed, (UniqueKey, Uuid)>,
    requests: Vec<&'a Request>,
    locked_uniques: BTreeSet<(i64, i64, String)>,
    counts: BTreeSet<(Indexed, i64)>,
    accounts: BTreeSet<(String, String)>,
    records: BTreeSet<RecordId>,
    /// Records that this batch makes, and those of their ids that somebody looked for before, when they were free.
    new: HashSet<RecordId>,
    pub(super) asked_for: Vec<Key>,
}

/// What the first round trip said.
pub(super) struct Stood {
    pub(super) conflict: Conflict,
    pub(super) batch: i64,
    /// The numbers of new records, and of those that links point to.
    pub(super) rows: HashMap<RecordId, i64>,
    /// Accounts that were claimed and that nothing moves: to be let go of.
    pub(super) unmoved: Vec<(String, String)>,
}

impl<'a> Ground<'a> {
    pub(super) fn of(base: &'a Base, net: &'a Net<'a>, known: &Known) -> Result<Self, StoreError> {
        let mut ground = Self {
            base,
            net,
            touched: touched(net),
            standing: Vec::new(),
            compared: Vec::new(),
            uniques: BTreeMap::new(),
            requests: Vec::new(),
            locked_uniques: BTreeSet::new(),
            counts: BTreeSet::new(),
            accounts: BTreeSet::new(),
            records: BTreeSet::new(),
            new: net.records.iter().filter(|record| record.before.is_none()).map(|record| record.after.id).collect(),
            asked_for: Vec::new(),
        };
        for (key, holder) in net.uniques.iter().filter(|(key, _)| base.was_free(key)) {
            let (lifecycle, name) = (known.names.known(&key.lifecycle)?, known.names.known(&key.unique)?);
            let (parts, whole) = key_text(&key.parts)?;
            let holder = holder.map_or(Uuid::nil(), |holder| holder.0);
            ground.uniques.insert((lifecycle, name, parts, whole), ((*key).clone(), holder));
        }
        for key in net.compared(base) {
            ground.rest_on(key, known)?;
        }
        for key in net.counts.keys() {
            ground.count(key, known)?;
        }
        for key in ground.touched.clone() {
            ground.count(&running(&key), known)?;
        }
        for account in net.accounts.keys() {
            ground.account(account, known);
        }
        let links = net.records.iter().flat_map(crate::net::NetRecord::links).map(|(link, _)| link.target);
        ground.records.extend(links);
        // Each once, in order; that one stands twice in the batch itself is known already.
        let mut requests: BTreeMap<&RequestName, &Request> = BTreeMap::new();
        requests.extend(net.requests.iter().map(|request| (&request.name, *request)));
        ground.requests = requests.into_values().collect();
        Ok(ground)
    }

    fn rest_on(&mut self, key: Key, known: &Known) -> Result<(), StoreError> {
        match &key {
            // That there is none cannot be locked. Where this batch makes it, its own key says whether it is still free.
            Key::Record(id) if self.base.stored(*id).is_none() => {
                if self.new.contains(id) && self.base.was_told(&key) {
                    self.asked_for.push(key);
                    return Ok(());
                }
            }
            Key::Record(id) => {
                self.records.insert(*id);
                self.standing.push(*id);
                return Ok(());
            }
            Key::Links(link) => {
                self.records.insert(link.target);
            }
            Key::Unique(unique) => {
                let names = (known.names.number(&unique.lifecycle), known.names.number(&unique.unique));
                if let (Some(lifecycle), Some(name)) = names {
                    let (parts, whole) = key_text(&unique.parts)?;
                    if self.base.was_free(unique) {
                        let claim = (unique.clone(), Uuid::nil());
                        self.uniques.entry((lifecycle, name, parts, whole)).or_insert(claim);
                        return Ok(());
                    }
                    self.locked_uniques.insert((lifecycle, name, parts));
                }
            }
            Key::Count(count) => self.count(count, known)?,
            Key::Account(account) => self.account(account, known),
            Key::Queue(queue) => self.count(&running(queue), known)?,
            Key::Execution(..) => {}
        }
        self.compared.push(key);
        Ok(())
    }

    fn count(&mut self, key: &CountKey, known: &Known) -> Result<(), StoreError> {
        let names = (known.names.number(&key.lifecycle), known.names.number(&key.limit));
        if let (Some(lifecycle), Some(name)) = names {
            let (parts, whole) = key_text(&key.parts)?;
            self.counts.insert(((lifecycle, name, parts, whole), key.window.unwrap_or(NO_WINDOW)));
        }
        Ok(())
    }

    /// One that stands for the world outside never runs short: nobody compares it, so it is only added to, at the very end.
    fn account(&mut self, account: &Account, known: &Known) {
        if let Account::Named { asset, name } = account
            && !known.catalog.definitions.is_outside(asset, name)
        {
            self.accounts.insert((asset.to_string(), name.to_string()));
        }
    }

    /// Keys that are claimed for nobody: to be let go of.
    pub(super) fn for_nobody(&self) -> impl Iterator<Item = (i64, i64, &str)> {
        let nobody = self.uniques.iter().filter(|(_, (_, holder))| holder.is_nil());
        nobody.map(|((lifecycle, name, parts, _), _)| (*lifecycle, *name, parts.as_str()))
    }

    /// Everything up to the first write; asks nothing that has no answer.
    pub(super) fn ask<'p>(&'p self, known: &Known, now: i64) -> Result<Asked<'p>, StoreError> {
        let mut pipeline = Pipeline::default();
        pipeline.plain(BEGIN);
        let mut asked = Asked {
            pipeline,
            claims: None,
            requests: None,
            counts: None,
            accounts: None,
            records: None,
            leases: None,
            numbers: 0,
            newest: None,
            probe: None,
        };
        self.claim(&mut asked, now);
        self.lock(&mut asked);
        asked.numbers = asked.pipeline.add(NUMBERS, vec![arg(size(self.new.len()))]);
        if !self.new.is_empty() {
            asked.newest = Some(asked.pipeline.add(definitions::NEWEST, Vec::new()));
        }
        let probe = self.base.probe();
        let asking = Asking::new(&mut asked.pipeline, &known.names, &probe, &self.compared, Wish::Standing)?;
        asked.probe = Some((probe, asking));
        Ok(asked)
    }

    fn claim<'p>(&'p self, asked: &mut Asked<'p>, now: i64) {
        let pipeline = &mut asked.pipeline;
        if !self.uniques.is_empty() {
            let keys = self.uniques.keys();
            let lifecycles: Vec<i64> = keys.clone().map(|key| key.0).collect();
            let names: Vec<i64> = keys.clone().map(|key| key.1).collect();
            let parts: Vec<&str> = keys.clone().map(|key| &*key.2).collect();
            let wholes: Vec<Option<&str>> = keys.map(|key| key.3.as_deref()).collect();
            let holders: Vec<Uuid> = self.uniques.values().map(|(_, holder)| *holder).collect();
            let parameters = vec![arg(lifecycles), arg(names), arg(parts), arg(holders), arg(wholes)];
            asked.claims = Some(pipeline.add(CLAIM_UNIQUES, parameters));
        }
        if !self.requests.is_empty() {
            let owners: Vec<&str> = self.requests.iter().map(|request| &*request.name.owner).collect();
            let keys: Vec<&str> = self.requests.iter().map(|request| &*request.name.key).collect();
            let digests: Vec<&[u8]> = self.requests.iter().map(|request| &request.digest[..]).collect();
            let answers: Vec<&str> = self.requests.iter().map(|request| &*request.answer).collect();
            let parameters = vec![arg(owners), arg(keys), arg(digests), arg(answers), arg(now)];
            asked.requests = Some(pipeline.add(CLAIM_REQUESTS, parameters));
        }
        if !self.counts.is_empty() {
            let (lifecycles, names, parts, spans) = self.count_columns();
            let wholes: Vec<Option<&str>> = self.counts.iter().map(|(key, _)| key.3.as_deref()).collect();
            let parameters = vec![arg(lifecycles), arg(names), arg(parts), arg(spans), arg(wholes)];
            pipeline.add(CLAIM_COUNTS, parameters);
        }
        if !self.accounts.is_empty() {
            let (assets, names) = self.account_columns();
            asked.accounts = Some(pipeline.add(CLAIM_ACCOUNTS, vec![arg(assets), arg(names)]));
        }
    }

    fn lock<'p>(&'p self, asked: &mut Asked<'p>) {
        let pipeline = &mut asked.pipeline;
        if !self.locked_uniques.is_empty() {
            let keys = self.locked_uniques.iter();
            let lifecycles: Vec<i64> = keys.clone().map(|key| key.0).collect();
            let names: Vec<i64> = keys.clone().map(|key| key.1).collect();
            let parts: Vec<&str> = keys.map(|key| &*key.2).collect();
            pipeline.add(LOCK_UNIQUES, vec![arg(lifecycles), arg(names), arg(parts)]);
        }
        if !self.counts.is_empty() {
            let (lifecycles, names, parts, spans) = self.count_columns();
            asked.counts = Some(pipeline.add(LOCK_COUNTS, vec![arg(lifecycles), arg(names), arg(parts), arg(spans)]));
        }
        if !self.accounts.is_empty() {
            let (assets, names) = self.account_columns();
            pipeline.add(LOCK_ACCOUNTS, vec![arg(assets), arg(names)]);
        }
        if !self.records.is_empty() {
            let stored = |id: &RecordId| self.base.stored(*id).map(|stored| rows::signed(stored.row));
            // One statement in either case: locks are taken in one order.
            asked.records = Some(match self.records.iter().map(stored).collect::<Option<Vec<i64>>>() {
                Some(rows) => pipeline.add(LOCK_ROWS, vec![arg(rows)]),
                None => {
                    pipeline.add(LOCK_RECORDS, vec![arg(self.records.iter().map(|id| id.0).collect::<Vec<Uuid>>())])
                }
            });
        }
        let (mut rows, mut tokens) = (Vec::new(), Vec::new());
        for id in &self.standing {
            let newest = self.base.original(*id).and_then(|record| record.execution.as_ref());
            if let Some((stored, newest)) = self.base.stored(*id).zip(newest) {
                rows.push(rows::signed(stored.row));
                tokens.push(rows::signed(newest.token.0));
            }
        }
        if !rows.is_empty() {
            asked.leases = Some(pipeline.add(LEASES, vec![arg(rows), arg(tokens)]));
        }
    }

    fn count_columns(&self) -> (Vec<i64>, Vec<i64>, Vec<&str>, Vec<i64>) {
        let keys = self.counts.iter();
        (
            keys.clone().map(|(key, _)| key.0).collect(),
            keys.clone().map(|(key, _)| key.1).collect(),
            keys.clone().map(|(key, _)| &*key.2).collect(),
            keys.map(|(_, span)| *span).collect(),
        )
    }

    fn account_columns(&self) -> (Vec<&str>, Vec<&str>) {
        self.accounts.iter().map(|(asset, name)| (&**asset, &**name)).unzip()
    }

    /// Whether a count was pruned between its claim and its lock.
    pub(super) fn lost_a_count(&self, asked: &Asked<'_>, answers: &[Vec<Row>]) -> bool {
        asked.counts.is_some_and(|at| answers[at].len() < self.counts.len())
    }

    /// What became of it.
    pub(super) fn stood(&self, asked: Asked<'_>, answers: &[Vec<Row>], known: &Known) -> Result<Stood, StoreError> {
        let Asked { claims, requests, accounts, records, leases, numbers, probe, .. } = asked;
        let mut conflict = Conflict { keys: Vec::new(), requests: self.net.repeated.clone() };
        if let Some((mut fresh, asking)) = probe {
            asking.put(&mut fresh, answers, known, Wish::Standing)?;
            conflict.keys = self.base.changed_in(&fresh);
        }
        let locked = standing(records.map_or(&[], |at| &answers[at]), leases.map_or(&[], |at| &answers[at]))?;
        let moved = self.standing.iter().filter(|id| locked.get(id) != self.base.stored(**id));
        conflict.keys.extend(moved.map(|id| Key::Record(*id)));
        if let Some(at) = claims {
            let mut ours = HashSet::new();
            for row in &answers[at] {
                ours.insert((i64::from(rows::number(row, 0)?), i64::from(rows::number(row, 1)?), rows::text(row, 2)?));
            }
            for ((lifecycle, name, parts, _), (key, _)) in &self.uniques {
                if !ours.contains(&(*lifecycle, *name, Arc::from(&**parts))) {
                    conflict.keys.push(Key::Unique(key.clone()));
                }
            }
        }
        if let Some(at) = requests {
            let mut ours = HashSet::new();
            for row in &answers[at] {
                ours.insert(RequestName { owner: rows::text(row, 0)?, key: rows::text(row, 1)? });
            }
            let lost = self.net.requests.iter().filter(|request| !ours.contains(&request.name));
            conflict.requests.extend(lost.map(|request| request.name.clone()));
        }
        let mut unmoved = Vec::new();
        for row in accounts.iter().flat_map(|at| &answers[*at]) {
            let account = Account::Named { asset: rows::text(row, 0)?, name: rows::text(row, 1)? };
            if !self.net.accounts.contains_key(&account) {
                unmoved.push((row.try_get(0)?, row.try_get(1)?));
            }
        }
        conflict.keys.sort_unstable();
        let mut found: HashMap<RecordId, i64> = HashMap::new();
        let others = locked.iter().filter(|(id, _)| self.base.stored(**id).is_none());
        found.extend(others.map(|(id, stored)| (*id, rows::signed(stored.row))));
        let row = answers[numbers].first().ok_or_else(|| StoreError::corrupt("a batch without a number"))?;
        let new = self.net.records.iter().filter(|record| record.before.is_none()).map(|record| record.after.id);
        found.extend(new.zip(row.try_get::<_, Vec<i64>>(1)?));
        Ok(Stood { conflict, batch: row.try_get(0)?, rows: found, unmoved })
    }
}

/// A round trip's questions, and where their answers stand.
pub(super) struct Asked<'a> {
    pub(super) pipeline: Pipeline<'a>,
    claims: Option<usize>,
    requests: Option<usize>,
    counts: Option<usize>,
    accounts: Option<usize>,
    records: Option<usize>,
    leases: Option<usize>,
    numbers: usize,
    newest: Option<usize>,
    probe: Option<(Base, Asking)>,
}

impl Asked<'_> {
    /// Whether others have brought lifecycles that the batch has not heard of. A new record need not be looked for, so nothing may have told
    /// of them before; and it is made by what is current.
    pub(super) fn is_outdated(&self, answers: &[Vec<Row>], catalog: u32) -> Result<bool, StoreError> {
        let newest = self.newest.and_then(|at| answers[at].first()).map_or(Ok(0), |row| rows::number(row, 0))?;
        Ok(newest > catalog)
    }
}

/// How the records that were locked stand.
fn standing(locked: &[Row], leases: &[Row]) -> Result<HashMap<RecordId, Stored>, StoreError> {
    let mut ends: HashMap<u64, Time> = HashMap::with_capacity(leases.len());
    for row in leases {
        ends.insert(rows::unsigned(row, 0)?, rows::time(row, 1)?);
    }
    let mut standing = HashMap::with_capacity(locked.len());
    for row in locked {
        let number = rows::unsigned(row, 1)?;
        let stored = Stored {
            row: number,
            version: rows::unsigned(row, 2)?,
            expires_at: ends.get(&number).copied(),
            head: rows::hash(row.try_get(3)?)?,
            entry: rows::unsigned(row, 4)?,
        };
        standing.insert(rows::id(row, 0)?, stored);
    }
    Ok(standing)
}

/// Work keys of which somebody came, left, began or ended.
fn touched(net: &Net) -> BTreeSet<QueueKey> {
    let mut touched = BTreeSet::new();
    for record in &net.records {
        let (old, new) = record.queue();
        if old != new {
            touched.extend([old, new].into_iter().flatten());
        }
        let (old, new) = record.waiting();
        if old != new || record.is_moved() {
            touched.extend([old, new].into_iter().flatten().filter_map(|waiting| waiting.key));
        }
    }
    for key in net.counts.keys() {
        let of = QueueKey { lifecycle: Arc::clone(&key.lifecycle), parts: key.parts.clone() };
        if **key == running(&of) {
            touched.insert(of);
        }
    }
    touched
}
