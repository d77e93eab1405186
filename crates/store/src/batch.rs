//! What is saved together: operations with what was decided on each.

use std::sync::Arc;

use onceward_core::decide::{Changes, Key, NoOp, Operation, Refusal};
use onceward_core::record::Payload;
use onceward_core::time::Time;
use sha2::{Digest as _, Sha256};

/// Operations that become durable in one transaction, in this order, all of them or none.
#[derive(Clone, Debug)]
pub struct Batch {
    pub writes: Vec<Write>,
    /// When the batch was decided.
    pub now: Time,
    /// Under which definitions: [`Catalog::number`](crate::Catalog::number).
    pub catalog: u32,
}

/// One operation and its answer.
#[derive(Clone, Debug)]
pub struct Write {
    pub operation: Operation,
    pub outcome: Outcome,
    /// What came with the operation and is known by its hash from now on.
    pub contents: Vec<Content>,
    pub request: Option<Request>,
}

impl Write {
    pub fn new(operation: Operation, outcome: Outcome) -> Self {
        Self { operation, outcome, contents: Vec::new(), request: None }
    }

    /// What must not have changed since it was loaded.
    pub(crate) fn reads(&self) -> &[Key] {
        match &self.outcome {
            Outcome::Changes(changes) => &changes.reads,
            Outcome::NoOp(no_op) => &no_op.reads,
            Outcome::Refusal(_) => &[],
        }
    }
}

/// What `decide` said in the end.
#[derive(Clone, Debug)]
pub enum Outcome {
    Changes(Box<Changes>),
    /// Writes nothing but its request; that it holds is checked like anything else.
    NoOp(NoOp),
    /// Writes a log entry of its own where it is audited or a denial, and nothing else.
    Refusal(Box<Refusal>),
}

/// Bytes under their hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub payload: Payload,
    pub bytes: Arc<[u8]>,
}

impl Content {
    pub fn of(bytes: impl Into<Arc<[u8]>>) -> Self {
        let bytes = bytes.into();
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Self { payload: Payload { sha256: Sha256::digest(&bytes).into(), bytes: length }, bytes }
    }
}

/// A caller's key for an operation that must happen once however often it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub name: RequestName,
    /// Of what was asked: the same key with another one is a mistake of the caller's.
    pub digest: [u8; 32],
    /// What to answer when it comes again; the store does not look into it.
    pub answer: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestName {
    pub owner: Arc<str>,
    pub key: Arc<str>,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Save {
    /// Durable, with the log entries from `first` to `last`; where it wrote none, `last` is one less than `first`.
    Saved { first: u64, last: u64 },
    /// Nothing was written, because these have changed since they were loaded: load again, decide again.
    Conflict(Conflict),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflict {
    pub keys: Vec<Key>,
    /// Requests that are answered already.
    pub requests: Vec<RequestName>,
}

impl Conflict {
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.requests.is_empty()
    }
}
