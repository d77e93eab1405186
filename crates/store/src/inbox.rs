//! Letters: calls that a user's own transaction left in the database for the engine.

use std::sync::Arc;

use onceward_core::decide::Call;
use onceward_core::record::Actor;
use onceward_core::value::RecordId;

/// A call under a key, by which it is carried out once.
#[derive(Clone, Debug)]
pub struct InboxCall {
    /// The store's number for it.
    pub id: i64,
    pub actor: Actor,
    pub idempotency_key: Arc<str>,
    pub call: Call,
}

/// What became of a letter.
#[derive(Clone, Debug)]
pub struct InboxReply {
    pub call_id: i64,
    /// The record that the call was about, or the refusal.
    pub outcome: Result<RecordId, InboxRefusal>,
}

/// Why a letter was not carried out, for whoever sent it to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxRefusal {
    pub status: u16,
    pub code: String,
    pub reason: String,
}
