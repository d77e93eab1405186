//! Log entries and their hash chain.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use onceward_core::decide::{
    Call, Changes, CounterKey, DECIDE_VERSION, Effect, Operation, Refusal, Transfer, UniqueKey,
};
use onceward_core::hex;
use onceward_core::record::FencingToken;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

use super::checkpoint::Checkpoint;
use super::diff::RecordDiff;
use crate::StoreError;
use crate::account::{AccountName, named_accounts};
use crate::api_keys::ApiKeyChange;
use crate::batch::{DecidedOperation, OperationOutcome};

pub type Sha256Hash = [u8; 32];

/// The previous hash of a record's first entry, and of an entry without a record.
pub const ZERO_HASH: Sha256Hash = [0; 32];

/// A saved log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Position in the log; seqs have no gaps.
    pub seq: u64,
    /// `None` for an audited refusal, a checkpoint, an activation and a change of API keys.
    pub record: Option<RecordId>,
    /// The record's version after the change.
    pub version: u64,
    pub at: Time,
    /// A [`LogEntryBody`] as JSON. It is stored as written, because the hash covers this text.
    pub text: Arc<str>,
    /// Covers all fields above except `seq`, and the hash of the record's previous entry.
    pub hash: Sha256Hash,
}

impl LogEntry {
    pub fn body(&self) -> Result<LogEntryBody<'static>, StoreError> {
        serde_json::from_str(&self.text)
            .map_err(|error| StoreError::corrupt(format!("log entry {} is unreadable: {error}", self.seq)))
    }

    /// Returns the hash that this entry must have after an entry with the hash `previous`.
    pub fn expected_hash(&self, previous: &Sha256Hash) -> Sha256Hash {
        entry_hash(previous, self.record, self.version, self.at, &self.text)
    }
}

fn entry_hash(previous: &Sha256Hash, record: Option<RecordId>, version: u64, at: Time, text: &str) -> Sha256Hash {
    let mut sha = Sha256::new();
    sha.update(previous);
    sha.update(record.map_or([0; 16], |id| *id.0.as_bytes()));
    sha.update(version.to_be_bytes());
    sha.update(at.micros().to_be_bytes());
    sha.update(text.as_bytes());
    sha.finalize().into()
}

/// The content of a log entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogEntryBody<'a> {
    /// Only in the first entry of an operation. A worker's result is replaced by its hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Cow<'a, Operation>>,
    /// In the operation's first entry: how many more entries follow.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u32,
    /// In the other entries: distance to the operation's first entry.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub back: u32,
    /// The catalog revision and the version of `decide`, in the entry with the operation.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub catalog: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub decide_version: u32,
    /// The transitions taken: the event, and the index among the event's transitions.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub transitions: Cow<'a, [(Arc<str>, u16)]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<RecordDiff>,
    /// All changes of unique keys and counters of the operation, in its first entry.
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub uniques: Cow<'a, [(UniqueKey, Option<RecordId>)]>,
    #[serde(default, skip_serializing_if = "<[_]>::is_empty")]
    pub counts: Cow<'a, [(CounterKey, i64)]>,
    /// Transfers by the transitions of this record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transfers: Vec<Cow<'a, Transfer>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<EffectRef>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audit: Vec<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<LoggedRefusal>,
    /// Set if the entry is a checkpoint; such an entry has no operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Cow<'a, Checkpoint>>,
    /// Set if the entry is an explicit activation; such an entry has no record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activated: Option<VersionActivated>,
    /// Set if the entry is a change of API keys; such an entry has no operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_change: Option<Cow<'a, ApiKeyChange>>,
}

/// An explicit activation of a version. Its time is the time of the entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionActivated {
    /// The catalog revision that the activation created.
    pub revision: u32,
    pub lifecycle: Arc<str>,
    /// Hash of the version.
    pub definition: Arc<str>,
    pub by: Arc<str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires the signature")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// An effect, with its result replaced by a hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectRef {
    pub token: FencingToken,
    #[serde(with = "hex::hash")]
    pub result: Sha256Hash,
}

impl EffectRef {
    pub(crate) fn from_effect(effect: &Effect) -> Self {
        Self { token: effect.token, result: result_hash(&effect.result) }
    }
}

/// A logged refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedRefusal {
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires the signature")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// An entry without a seq yet.
#[derive(Clone, Debug)]
pub(crate) struct NewLogEntry {
    pub(crate) record: Option<RecordId>,
    pub(crate) version: u64,
    pub(crate) at: Time,
    pub(crate) text: Arc<str>,
    pub(crate) hash: Sha256Hash,
    /// The named accounts that its transfers touch.
    pub(crate) accounts: BTreeSet<AccountName>,
}

impl NewLogEntry {
    pub(crate) fn with_seq(self, seq: u64) -> LogEntry {
        LogEntry { seq, record: self.record, version: self.version, at: self.at, text: self.text, hash: self.hash }
    }

    fn encode(
        record: Option<RecordId>,
        version: u64,
        at: Time,
        previous: &Sha256Hash,
        body: &LogEntryBody,
    ) -> Result<Self, StoreError> {
        let rejected =
            |error: &dyn std::fmt::Display| StoreError::Rejected(format!("a log entry cannot be serialized: {error}"));
        // Fits most entries. Growing the buffer step by step took as long as writing it.
        let mut text = Vec::with_capacity(1_024);
        serde_json::to_writer(&mut text, body).map_err(|error| rejected(&error))?;
        let text: Arc<str> = std::str::from_utf8(&text).map_err(|error| rejected(&error))?.into();
        let hash = entry_hash(previous, record, version, at, &text);
        let accounts = named_accounts(body.transfers.iter().map(AsRef::as_ref));
        Ok(Self { record, version, at, text, hash, accounts })
    }
}

/// Encodes a checkpoint; `previous` is the hash of the previous checkpoint.
pub(crate) fn checkpoint_entry(
    checkpoint: &Checkpoint,
    now: Time,
    previous: &Sha256Hash,
) -> Result<NewLogEntry, StoreError> {
    let body = LogEntryBody { checkpoint: Some(Cow::Borrowed(checkpoint)), ..LogEntryBody::default() };
    NewLogEntry::encode(None, 0, now, previous, &body)
}

/// Encodes an explicit activation. Such an entry has no predecessor.
pub(crate) fn activation_entry(activated: VersionActivated, now: Time) -> Result<NewLogEntry, StoreError> {
    NewLogEntry::encode(
        None,
        0,
        now,
        &ZERO_HASH,
        &LogEntryBody { activated: Some(activated), ..LogEntryBody::default() },
    )
}

/// Encodes a change of API keys. Such an entry has no predecessor.
pub(crate) fn api_key_entry(change: &ApiKeyChange, now: Time) -> Result<NewLogEntry, StoreError> {
    let body = LogEntryBody { api_key_change: Some(Cow::Borrowed(change)), ..LogEntryBody::default() };
    NewLogEntry::encode(None, 0, now, &ZERO_HASH, &body)
}

/// Encodes the entries of one operation. `heads` returns the hash of a record's last entry, and stores the new hash if
/// given one.
pub(crate) fn operation_entries(
    decided: &DecidedOperation,
    decided_at: Time,
    catalog_revision: u32,
    heads: &mut impl FnMut(RecordId, Option<Sha256Hash>) -> Sha256Hash,
    out: &mut Vec<NewLogEntry>,
) -> Result<(), StoreError> {
    let changes = match &decided.outcome {
        OperationOutcome::Changes(changes) => changes,
        OperationOutcome::NoOp(_) => return Ok(()),
        OperationOutcome::Refusal(refusal) => {
            if refusal.is_denial || refusal.audit.is_some() {
                out.push(NewLogEntry::encode(
                    None,
                    0,
                    decided_at,
                    &ZERO_HASH,
                    &refusal_body(decided, refusal, catalog_revision),
                )?);
            }
            return Ok(());
        }
    };
    let more = u32::try_from(changes.records.len().saturating_sub(1)).unwrap_or(u32::MAX);
    for (number, change) in changes.records.iter().enumerate() {
        let after = &change.after;
        let is_first = number == 0;
        let body = LogEntryBody {
            operation: is_first.then(|| redact_result(&decided.operation)),
            more: if is_first { more } else { 0 },
            back: u32::try_from(number).unwrap_or(u32::MAX),
            catalog: if is_first { catalog_revision } else { 0 },
            decide_version: if is_first { DECIDE_VERSION } else { 0 },
            transitions: Cow::Borrowed(&change.transitions),
            change: Some(RecordDiff::compute(change.before.as_deref(), after)),
            uniques: if is_first { Cow::Borrowed(&changes.unique_claims[..]) } else { Cow::default() },
            counts: if is_first { Cow::Borrowed(&changes.counter_deltas[..]) } else { Cow::default() },
            transfers: changes
                .transfers
                .iter()
                .filter(|entry| entry.caused_by == after.id)
                .map(Cow::Borrowed)
                .collect(),
            effect: changes.effects.iter().find(|effect| effect.record == after.id).map(EffectRef::from_effect),
            audit: audit_tags(changes, after.id, is_first),
            ..LogEntryBody::default()
        };
        let previous = heads(after.id, None);
        let entry = NewLogEntry::encode(Some(after.id), after.version, changes.now, &previous, &body)?;
        heads(after.id, Some(entry.hash));
        out.push(entry);
    }
    Ok(())
}

/// Returns the audit tags for this record's entry. The first entry also contains tags of records without an entry.
fn audit_tags(changes: &Changes, id: RecordId, is_first: bool) -> Vec<Arc<str>> {
    let has_entry = |id: RecordId| changes.records.iter().any(|change| change.after.id == id);
    let own = |record: Option<RecordId>| match record {
        Some(record) if record == id => true,
        Some(record) => is_first && !has_entry(record),
        None => is_first,
    };
    changes.audit_entries.iter().filter(|entry| own(entry.record)).map(|entry| Arc::clone(&entry.tag)).collect()
}

fn refusal_body<'a>(decided: &'a DecidedOperation, refusal: &Refusal, catalog_revision: u32) -> LogEntryBody<'a> {
    LogEntryBody {
        operation: Some(redact_result(&decided.operation)),
        catalog: catalog_revision,
        decide_version: DECIDE_VERSION,
        audit: refusal.audit.iter().cloned().collect(),
        refusal: Some(LoggedRefusal {
            status: refusal.status,
            code: Arc::clone(&refusal.code),
            event: Arc::clone(&refusal.event),
            record: refusal.record,
            lifecycle: refusal.lifecycle.clone(),
            state: refusal.state.clone(),
            denial: refusal.is_denial,
        }),
        ..LogEntryBody::default()
    }
}

/// Returns the entries that an outcome should have after `seq`. `head` returns the hash of a record's last entry.
pub fn expected_entries(
    decided: &DecidedOperation,
    decided_at: Time,
    catalog_revision: u32,
    seq: u64,
    mut head: impl FnMut(RecordId) -> Sha256Hash,
) -> Result<Vec<LogEntry>, StoreError> {
    let mut new = Vec::new();
    let mut heads = |id: RecordId, _: Option<Sha256Hash>| head(id);
    operation_entries(decided, decided_at, catalog_revision, &mut heads, &mut new)?;
    Ok((seq + 1..).zip(new).map(|(seq, entry)| entry.with_seq(seq)).collect())
}

/// Compares two entries except for the operation: in the log, its result is replaced by a hash.
pub fn has_same_outcome(stored: &LogEntry, redecided: &LogEntry) -> Result<bool, StoreError> {
    if (stored.record, stored.version, stored.at) != (redecided.record, redecided.version, redecided.at) {
        return Ok(false);
    }
    let (mut stored_body, mut redecided_body) = (stored.body()?, redecided.body()?);
    (stored_body.operation, redecided_body.operation) = (None, None);
    Ok(stored_body == redecided_body)
}

/// Replaces a worker's result by its hash, because the result can be large or confidential.
fn redact_result(operation: &Operation) -> Cow<'_, Operation> {
    let Call::Commit { result, .. } = &operation.call else { return Cow::Borrowed(operation) };
    if result.is_null() {
        return Cow::Borrowed(operation);
    }
    let result_ref = json!({ "sha256": hex::encode(&result_hash(result)) });
    let mut redacted = operation.clone();
    if let Call::Commit { result, .. } = &mut redacted.call {
        *result = result_ref;
    }
    Cow::Owned(redacted)
}

/// Hashes a result as JSON text.
pub fn result_hash(result: &Json) -> Sha256Hash {
    Sha256::digest(result.to_string().as_bytes()).into()
}
