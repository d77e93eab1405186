//! Batches: operations that are saved in one transaction, each with its decision.

use std::sync::Arc;

use onceward_core::decide::{Changes, NoOp, Operation, ReadKey, Refusal};
use onceward_core::record::PayloadRef;
use onceward_core::time::Time;
use sha2::{Digest as _, Sha256};

/// Operations that are saved in one transaction, in this order. Either all become durable or none.
#[derive(Clone, Debug)]
pub struct Batch {
    pub operations: Vec<DecidedOperation>,
    pub decided_at: Time,
    /// [`Catalog::revision`](crate::Catalog::revision) under which the batch was decided.
    pub catalog_revision: u32,
}

/// An operation and its decision.
#[derive(Clone, Debug)]
pub struct DecidedOperation {
    pub operation: Operation,
    pub outcome: OperationOutcome,
    /// Bytes that the caller sent with the operation.
    pub payloads: Vec<PayloadBytes>,
    pub idempotency: Option<IdempotencyRecord>,
}

impl DecidedOperation {
    pub fn new(operation: Operation, outcome: OperationOutcome) -> Self {
        Self { operation, outcome, payloads: Vec::new(), idempotency: None }
    }

    /// Returns the keys whose values must be unchanged since they were loaded.
    pub(crate) fn read_keys(&self) -> &[ReadKey] {
        match &self.outcome {
            OperationOutcome::Changes(changes) => &changes.read_keys,
            OperationOutcome::NoOp(no_op) => &no_op.read_keys,
            OperationOutcome::Refusal(_) => &[],
        }
    }
}

/// The final decision on an operation.
#[derive(Clone, Debug)]
pub enum OperationOutcome {
    Changes(Box<Changes>),
    /// Writes only the idempotency record. Its read keys are validated like those of a change.
    NoOp(NoOp),
    /// Writes one log entry if the refusal is audited or a denial, otherwise nothing.
    Refusal(Box<Refusal>),
}

/// Payload bytes with their hash and length.
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

/// A caller's idempotency key with the reply to repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyRecord {
    pub id: IdempotencyId,
    /// Digest of the request. If the caller reuses the key with another digest, the engine refuses the call.
    pub request_digest: [u8; 32],
    /// The stored reply; opaque to the store.
    pub reply: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdempotencyId {
    pub owner: Arc<str>,
    pub idempotency_key: Arc<str>,
}

/// Result of saving a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaveResult {
    /// The batch is durable and wrote log entries `first_seq` to `last_seq`. If it wrote none,
    /// `last_seq` is `first_seq - 1`.
    Saved { first_seq: u64, last_seq: u64 },
    /// Nothing was written, because loaded values have changed. The caller must load and decide again.
    Conflict(SaveConflict),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SaveConflict {
    pub changed_keys: Vec<ReadKey>,
    /// Idempotency keys that already have a stored reply.
    pub answered_ids: Vec<IdempotencyId>,
}

impl SaveConflict {
    pub fn is_empty(&self) -> bool {
        self.changed_keys.is_empty() && self.answered_ids.is_empty()
    }
}
