//! Inbox calls: calls that a user's own SQL transaction inserted into the database for the engine.

use std::sync::Arc;

use onceward_core::decide::Call;
use onceward_core::record::Actor;
use onceward_core::value::RecordId;

/// A call with an idempotency key, which makes the engine execute it once.
#[derive(Clone, Debug)]
pub struct InboxCall {
    /// Row id in the inbox table.
    pub id: i64,
    pub actor: Actor,
    pub idempotency_key: Arc<str>,
    pub call: Call,
}

/// The result of an inbox call.
#[derive(Clone, Debug)]
pub struct InboxReply {
    pub call_id: i64,
    /// The record that the call changed, or the refusal.
    pub outcome: Result<RecordId, InboxRefusal>,
}

/// Why an inbox call was refused, for its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxRefusal {
    pub status: u16,
    pub code: String,
    pub reason: String,
}
