//! What is saved together: operations with what was decided on each.

use std::sync::Arc;

use onceward_core::decide::{Changes, NoOp, Operation, ReadKey, Refusal};
use onceward_core::record::PayloadRef;
use onceward_core::time::Time;
use sha2::{Digest as _, Sha256};

/// Operations that become durable in one transaction, in this order, all of them or none.
#[derive(Clone, Debug)]
pub struct Batch {
    pub operations: Vec<DecidedOperation>,
    /// When the batch was decided.
    pub decided_at: Time,
    /// Under which definitions: [`Catalog::number`](crate::Catalog::number).
    pub catalog_revision: u32,
}

/// One operation and its answer.
#[derive(Clone, Debug)]
pub struct DecidedOperation {
    pub operation: Operation,
    pub outcome: OperationOutcome,
    /// What came with the operation and is known by its hash from now on.
    pub payloads: Vec<PayloadBytes>,
    pub idempotency: Option<IdempotencyRecord>,
}

impl DecidedOperation {
    pub fn new(operation: Operation, outcome: OperationOutcome) -> Self {
        Self { operation, outcome, payloads: Vec::new(), idempotency: None }
    }

    /// What must not have changed since it was loaded.
    pub(crate) fn read_keys(&self) -> &[ReadKey] {
        match &self.outcome {
            OperationOutcome::Changes(changes) => &changes.read_keys,
            OperationOutcome::NoOp(no_op) => &no_op.read_keys,
            OperationOutcome::Refusal(_) => &[],
        }
    }
}

/// What `decide` said in the end.
#[derive(Clone, Debug)]
pub enum OperationOutcome {
    Changes(Box<Changes>),
    /// Writes nothing but its request; that it holds is checked like anything else.
    NoOp(NoOp),
    /// Writes a log entry of its own where it is audited or a denial, and nothing else.
    Refusal(Box<Refusal>),
}

/// Bytes under their hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadBytes {
    pub payload: PayloadRef,
    pub bytes: Arc<[u8]>,
}

impl PayloadBytes {
    pub fn from_bytes(bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes = bytes.into();
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Self { payload: PayloadRef { sha256: Sha256::digest(&bytes).into(), bytes: length }, bytes }
    }
}

/// A caller's key for an operation that must happen once however often it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyRecord {
    pub id: IdempotencyId,
    /// Of what was asked: the same key with another one is a mistake of the caller's.
    pub request_digest: [u8; 32],
    /// What to answer when it comes again; the store does not look into it.
    pub reply: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdempotencyId {
    pub owner: Arc<str>,
    pub idempotency_key: Arc<str>,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaveResult {
    /// Durable, with the log entries from `first` to `last`; where it wrote none, `last` is one less than `first`.
    Saved { first_seq: u64, last_seq: u64 },
    /// Nothing was written, because these have changed since they were loaded: load again, decide again.
    Conflict(SaveConflict),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaveConflict {
    pub changed_keys: Vec<ReadKey>,
    /// Requests that are answered already.
    pub answered_ids: Vec<IdempotencyId>,
}

impl SaveConflict {
    pub fn is_empty(&self) -> bool {
        self.changed_keys.is_empty() && self.answered_ids.is_empty()
    }
}
