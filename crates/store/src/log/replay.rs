//! Rebuilds the complete state in memory from the log.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::decide::{Changes, RecordChange, Snapshot};
use onceward_core::model::Lifecycle;
use onceward_core::record::Record;
use onceward_core::value::RecordId;

use super::entry::{EffectRef, LogEntry, Sha256Hash, ZERO_HASH};
use crate::StoreError;

/// The state after the entries replayed so far.
#[derive(Clone, Debug)]
pub struct LogReplay {
    lifecycles: HashMap<Arc<str>, Arc<Lifecycle>>,
    pub snapshot: Snapshot,
    pub effects: HashMap<RecordId, EffectRef>,
    /// Hash of each record's last entry.
    pub heads: HashMap<RecordId, Sha256Hash>,
    /// Seq of the last entry.
    pub seq: u64,
}

/// Why an entry cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("the log has a gap: entry {found} follows entry {after}")]
    Gap { after: u64, found: u64 },
    #[error("the hash of entry {0} does not match its text and the previous entry")]
    HashMismatch(u64),
    #[error("entry {0} names an unknown lifecycle version")]
    UnknownVersion(u64),
    #[error("entry {0} does not match the record that it changes")]
    RecordMismatch(u64),
    #[error("entry {0} adds a second effect to a job")]
    SecondEffect(u64),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LogReplay {
    /// Creates an empty replay. `lifecycles` contains by hash every version that the log may name.
    pub fn new(lifecycles: HashMap<Arc<str>, Arc<Lifecycle>>) -> Self {
        Self {
            lifecycles,
            snapshot: Snapshot::empty_complete(),
            effects: HashMap::new(),
            heads: HashMap::new(),
            seq: 0,
        }
    }

    pub fn apply(&mut self, entry: &LogEntry) -> Result<(), ReplayError> {
        let seq = entry.seq;
        if seq != self.seq + 1 {
            return Err(ReplayError::Gap { after: self.seq, found: seq });
        }
        let previous = entry.record.and_then(|id| self.heads.get(&id)).unwrap_or(&ZERO_HASH);
        if entry.expected_hash(previous) != entry.hash {
            return Err(ReplayError::HashMismatch(seq));
        }
        self.seq = seq;
        let body = entry.body()?;
        let (Some(id), Some(diff)) = (entry.record, body.change) else { return Ok(()) };
        self.heads.insert(id, entry.hash);
        let before = self.snapshot.record(id).cloned();
        let start: Record = match (&before, &diff.created) {
            (Some(before), None) => (**before).clone(),
            (None, Some(created)) => {
                let lifecycle = self.lifecycles.get(&created.definition).ok_or(ReplayError::UnknownVersion(seq))?;
                created.initial_record(id, lifecycle, entry.at)
            }
            _ => return Err(ReplayError::RecordMismatch(seq)),
        };
        if entry.version != start.version + 1 {
            return Err(ReplayError::RecordMismatch(seq));
        }
        let after =
            diff.apply(start, entry.version, entry.at, &self.lifecycles).ok_or(ReplayError::RecordMismatch(seq))?;
        let executions = diff.execution.map(|execution| (id, execution)).into_iter().collect();
        if let Some(effect) = body.effect
            && self.effects.insert(id, effect).is_some()
        {
            return Err(ReplayError::SecondEffect(seq));
        }
        self.snapshot.apply(&Changes {
            now: entry.at,
            records: vec![RecordChange { before, after: Arc::new(after), transitions: body.transitions.into_owned() }],
            unique_claims: body.uniques.into_owned(),
            counter_deltas: body.counts.into_owned(),
            transfers: body.transfers.into_iter().map(std::borrow::Cow::into_owned).collect(),
            executions,
            effects: Vec::new(),
            payloads: Vec::new(),
            audit_entries: Vec::new(),
            heartbeat: None,
            stop_requested: false,
            subject: id,
            read_keys: Vec::new(),
        });
        Ok(())
    }
}
