//! One entry of the log, and the hash that ties it to the one before.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use onceward_core::decide::{
    Call, Changes, CountKey, DECIDING_VERSION, Effect, LedgerMove, Operation, Refusal, UniqueKey,
};
use onceward_core::hex;
use onceward_core::record::Token;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use super::checkpoint::Checkpoint;
use super::diff::Diff;
use crate::StoreError;
use crate::account::{AccountName, named};
use crate::api_keys::KeyChange;
use crate::batch::{Outcome, Write};

pub type Hash = [u8; 32];

/// What stands before a record's first entry, and before one that belongs to no record.
pub const NO_HASH: Hash = [0; 32];

/// One entry as it was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the log; no place is left out.
    pub seq: u64,
    /// `None` for a refusal that was audited, for a checkpoint, for a version that became current, and for a change of API keys.
    pub record: Option<RecordId>,
    /// The record's version after it.
    pub version: u64,
    pub at: Time,
    /// A [`Body`] as JSON. The hash is of this text, so it is kept as it was written.
    pub text: Arc<str>,
    /// Of all of the above but the place, and of the record's entry before.
    pub hash: Hash,
}

impl Entry {
    pub fn body(&self) -> Result<Body<'static>, StoreError> {
        serde_json::from_str(&self.text)
            .map_err(|error| StoreError::corrupt(format!("log entry {}: {error}", self.seq)))
    }

    /// What the hash must be, when this came before.
    pub fn expected_hash(&self, previous: &Hash) -> Hash {
        hash(previous, self.record, self.version, self.at, &self.text)
    }
}

fn hash(previous: &Hash, record: Option<RecordId>, version: u64, at: Time, text: &str) -> Hash {
    let mut sha = Sha256::new();
    sha.update(previous);
    sha.update(record.map_or([0; 16], |id| *id.0.as_bytes()));
    sha.update(version.to_be_bytes());
    sha.update(at.micros().to_be_bytes());
    sha.update(text.as_bytes());
    sha.finalize().into()
}

/// What an entry says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Body<'a> {
    /// In the first entry of an operation. A worker's result stands in it by its hash only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Cow<'a, Operation>>,
    /// In the first one: so many more follow.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u32,
    /// In the others: so many entries before this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub back: u32,
    /// The definitions and the version of `decide` that it was decided by; with the operation.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub catalog: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deciding: u32,
    /// The rows taken: event, and number among the event's rows.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub rows: Cow<'a, [(Arc<str>, u16)]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<Diff>,
    /// All keys and counts of the operation, in its first entry.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub uniques: Cow<'a, [(UniqueKey, Option<RecordId>)]>,
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub counts: Cow<'a, [(CountKey, i64)]>,
    /// What this record's rows moved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<Cow<'a, LedgerMove>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<EffectMark>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audit: Vec<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<RefusalMark>,
    /// Nobody's operation: what pruning took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pruned: Option<Cow<'a, Checkpoint>>,
    /// Nobody's record: a version became the current one of its lifecycle by somebody's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<Used>,
    /// Nobody's operation either: an API key that was made or revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Cow<'a, KeyChange>>,
}

/// What became current, and by whose word. When is the entry's own time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Among all that ever became current.
    pub number: u32,
    pub lifecycle: Arc<str>,
    /// The version's hash.
    pub definition: Arc<str>,
    pub by: Arc<str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// An effect by its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectMark {
    pub token: Token,
    #[serde(with = "hex::hash")]
    pub result: Hash,
}

impl EffectMark {
    pub(crate) fn of(effect: &Effect) -> Self {
        Self { token: effect.token, result: result_hash(&effect.result) }
    }
}

/// A refusal that left a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalMark {
    pub status: u16,
    pub code: Arc<str>,
    pub event: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<RecordId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub denial: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// An entry that has no place yet.
#[derive(Clone, Debug)]
pub(crate) struct NewEntry {
    pub(crate) record: Option<RecordId>,
    pub(crate) version: u64,
    pub(crate) at: Time,
    pub(crate) text: Arc<str>,
    pub(crate) hash: Hash,
    /// The named accounts that it moves something to or from.
    pub(crate) accounts: BTreeSet<AccountName>,
}

impl NewEntry {
    pub(crate) fn at(self, seq: u64) -> Entry {
        Entry { seq, record: self.record, version: self.version, at: self.at, text: self.text, hash: self.hash }
    }

    fn write(
        record: Option<RecordId>,
        version: u64,
        at: Time,
        previous: &Hash,
        body: &Body,
    ) -> Result<Self, StoreError> {
        let rejected =
            |error: &dyn std::fmt::Display| StoreError::Rejected(format!("a log entry cannot be written: {error}"));
        // Room for most: growing step by step took as long as writing.
        let mut text = Vec::with_capacity(1_024);
        serde_json::to_writer(&mut text, body).map_err(|error| rejected(&error))?;
        let text: Arc<str> = std::str::from_utf8(&text).map_err(|error| rejected(&error))?.into();
        let hash = hash(previous, record, version, at, &text);
        let accounts = named(body.moves.iter().map(AsRef::as_ref));
        Ok(Self { record, version, at, text, hash, accounts })
    }
}

/// The entry of a checkpoint; `previous` is the hash of the one before.
pub(crate) fn entry_of(checkpoint: &Checkpoint, now: Time, previous: &Hash) -> Result<NewEntry, StoreError> {
    let body = Body { pruned: Some(Cow::Borrowed(checkpoint)), ..Body::default() };
    NewEntry::write(None, 0, now, previous, &body)
}

/// The entry of a version that became current; it follows no other.
pub(crate) fn entry_of_use(used: Used, now: Time) -> Result<NewEntry, StoreError> {
    NewEntry::write(None, 0, now, &NO_HASH, &Body { used: Some(used), ..Body::default() })
}

/// The entry of a change of API keys. It stands by itself, as a refusal does.
pub(crate) fn key_entry(change: &KeyChange, now: Time) -> Result<NewEntry, StoreError> {
    let body = Body { key: Some(Cow::Borrowed(change)), ..Body::default() };
    NewEntry::write(None, 0, now, &NO_HASH, &body)
}

/// The entries of one operation. `heads` knows the hash of each record's last entry and learns the new ones.
pub(crate) fn entries_of(
    write: &Write,
    now: Time,
    catalog: u32,
    heads: &mut impl FnMut(RecordId, Option<Hash>) -> Hash,
    out: &mut Vec<NewEntry>,
) -> Result<(), StoreError> {
    let changes = match &write.outcome {
        Outcome::Changes(changes) => changes,
        Outcome::NoOp(_) => return Ok(()),
        Outcome::Refusal(refusal) => {
            if refusal.denial || refusal.audit.is_some() {
                out.push(NewEntry::write(None, 0, now, &NO_HASH, &refused(write, refusal, catalog))?);
            }
            return Ok(());
        }
    };
    let more = u32::try_from(changes.records.len().saturating_sub(1)).unwrap_or(u32::MAX);
    for (number, change) in changes.records.iter().enumerate() {
        let after = &change.after;
        let first = number == 0;
        let body = Body {
            operation: first.then(|| logged(&write.operation)),
            more: if first { more } else { 0 },
            back: u32::try_from(number).unwrap_or(u32::MAX),
            catalog: if first { catalog } else { 0 },
            deciding: if first { DECIDING_VERSION } else { 0 },
            rows: Cow::Borrowed(&change.rows),
            change: Some(Diff::between(change.before.as_deref(), after)),
            uniques: if first { Cow::Borrowed(&changes.uniques[..]) } else { Cow::default() },
            counts: if first { Cow::Borrowed(&changes.counts[..]) } else { Cow::default() },
            moves: changes.moves.iter().filter(|entry| entry.cause == after.id).map(Cow::Borrowed).collect(),
            effect: changes.effects.iter().find(|effect| effect.record == after.id).map(EffectMark::of),
            audit: audit_of(changes, after.id, first),
            ..Body::default()
        };
        let previous = heads(after.id, None);
        let entry = NewEntry::write(Some(after.id), after.version, changes.now, &previous, &body)?;
        heads(after.id, Some(entry.hash));
        out.push(entry);
    }
    Ok(())
}

/// Tags of this record's rows; those of no record that changed stand with the operation.
fn audit_of(changes: &Changes, id: RecordId, first: bool) -> Vec<Arc<str>> {
    let has_entry = |id: RecordId| changes.records.iter().any(|change| change.after.id == id);
    let own = |record: Option<RecordId>| match record {
        Some(record) if record == id => true,
        Some(record) => first && !has_entry(record),
        None => first,
    };
    changes.audit.iter().filter(|entry| own(entry.record)).map(|entry| Arc::clone(&entry.tag)).collect()
}

fn refused<'a>(write: &'a Write, refusal: &Refusal, catalog: u32) -> Body<'a> {
    Body {
        operation: Some(logged(&write.operation)),
        catalog,
        deciding: DECIDING_VERSION,
        audit: refusal.audit.iter().cloned().collect(),
        refusal: Some(RefusalMark {
            status: refusal.status,
            code: Arc::clone(&refusal.code),
            event: Arc::clone(&refusal.event),
            record: refusal.record,
            lifecycle: refusal.lifecycle.clone(),
            state: refusal.state.clone(),
            denial: refusal.denial,
        }),
        ..Body::default()
    }
}

/// The entries that an outcome would be told by after `seq`; `head` knows the hash of each record's last entry.
pub fn as_logged(
    write: &Write,
    now: Time,
    catalog: u32,
    seq: u64,
    mut head: impl FnMut(RecordId) -> Hash,
) -> Result<Vec<Entry>, StoreError> {
    let mut new = Vec::new();
    let mut heads = |id: RecordId, _: Option<Hash>| head(id);
    entries_of(write, now, catalog, &mut heads, &mut new)?;
    Ok((seq + 1..).zip(new).map(|(seq, entry)| entry.at(seq)).collect())
}

/// Whether two entries tell the same, whatever the operation's result was: the log has its hash only.
pub fn same_outcome(told: &Entry, again: &Entry) -> Result<bool, StoreError> {
    if (told.record, told.version, told.at) != (again.record, again.version, again.at) {
        return Ok(false);
    }
    let (mut told, mut again) = (told.body()?, again.body()?);
    (told.operation, again.operation) = (None, None);
    Ok(told == again)
}

/// The operation as the log keeps it: a worker's result may be large, or nobody's business.
fn logged(operation: &Operation) -> Cow<'_, Operation> {
    let Call::Commit { result, .. } = &operation.call else { return Cow::Borrowed(operation) };
    if result.is_null() {
        return Cow::Borrowed(operation);
    }
    let mark = json!({ "sha256": hex::encode(&result_hash(result)) });
    let mut hidden = operation.clone();
    if let Call::Commit { result, .. } = &mut hidden.call {
        *result = mark;
    }
    Cow::Owned(hidden)
}

/// Of the result as JSON text.
pub fn result_hash(result: &Json) -> Hash {
    Sha256::digest(result.to_string().as_bytes()).into()
}
