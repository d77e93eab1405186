//! Calls that carry a key: carried out once, however often they are sent.
//!
//! What was answered is saved with the operation, in its transaction. Nobody looks for a key beforehand: that it was used is
//! found out by the save, which then writes nothing. Only where a call would be refused, or would ask the outside, is its key
//! looked for first: it may have been carried out already, and for that very reason not be taken again.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward_core::decide::{Call, NoOpReason};
use onceward_core::model::Definitions;
use onceward_core::record::{Actor, FencingToken, Record};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{IdempotencyId, Store, StoreError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::EngineError;
use crate::queries;
use crate::queue::{PendingReply, QueuedOperation, Receipt, Reply};

/// Characters of a key.
const MAX_IDEMPOTENCY_KEY_CHARS: usize = 255;

/// A caller's key for a call. Keys are the caller's own: another one's same key is another key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub(crate) text: Arc<str>,
    pub(crate) request_digest: [u8; 32],
    /// Made by the engine, which may use characters that callers may not.
    pub(crate) is_internal: bool,
}

impl IdempotencyKey {
    /// A key, and a digest of what was asked: the same key with another digest is a mistake, and told as one.
    pub fn new(key: &str, digest: [u8; 32]) -> Self {
        Self { text: key.into(), request_digest: digest, is_internal: false }
    }

    /// For a call as the engine sees it. Who knows more of what was asked, its text perhaps, makes a digest of that.
    pub fn for_call(key: &str, call: &Call) -> Self {
        // Text and numbers under names: nothing in it cannot be written as JSON.
        let call_json = serde_json::to_vec(call).unwrap_or_default();
        Self::new(key, Sha256::digest(&call_json).into())
    }

    /// The same key, where more was asked than the call says.
    #[must_use]
    pub fn with_context(self, context: &str) -> Self {
        let digest = Sha256::new().chain_update(self.request_digest).chain_update(context).finalize();
        Self { request_digest: digest.into(), ..self }
    }

    /// Under which it is kept.
    pub(crate) fn stored_id(&self, actor: &Actor) -> IdempotencyId {
        IdempotencyId { owner: Arc::clone(&actor.id), idempotency_key: Arc::clone(&self.text) }
    }

    /// A key has from 1 to 255 characters. Control characters are the engine's own.
    pub(crate) fn validate(&self) -> Result<(), EngineError> {
        let is_valid_length = !self.text.is_empty() && self.text.chars().count() <= MAX_IDEMPOTENCY_KEY_CHARS;
        let is_valid = is_valid_length && !self.text.chars().any(char::is_control);
        if is_valid || self.is_internal { Ok(()) } else { Err(EngineError::InvalidIdempotencyKey) }
    }
}

/// Keyed calls that are on their way.
#[derive(Debug, Default)]
pub(crate) struct InFlightKeys(Mutex<HashMap<IdempotencyId, InFlightCall>>);

#[derive(Debug)]
struct InFlightCall {
    request_digest: [u8; 32],
    /// Who asked first, where others may follow.
    actor: Option<Actor>,
    /// The same call again, meanwhile.
    followers: Vec<PendingReply>,
}

/// A key that is on its way until this is dropped.
#[derive(Debug)]
pub(crate) struct KeyReservation {
    pub(crate) id: IdempotencyId,
    pub(crate) request_digest: [u8; 32],
    in_flight: Arc<InFlightKeys>,
    /// Answered: the key is no longer ours, and may be another's already.
    is_released: bool,
}

impl InFlightKeys {
    fn lock_calls(&self) -> MutexGuard<'_, HashMap<IdempotencyId, InFlightCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begin, or give the follower back as one that waits for the first of its key. `None`: it will be answered.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        actor: &Actor,
        key: &IdempotencyKey,
        follower: PendingReply,
    ) -> Option<(KeyReservation, PendingReply)> {
        let id = key.stored_id(actor);
        match self.lock_calls().entry(id.clone()) {
            Entry::Occupied(mut first) if first.get().request_digest == key.request_digest => {
                // One owner's keys may have other roles: what is refused to one of them is not yet refused to the other.
                if first.get().actor.as_ref() == Some(actor) {
                    first.get_mut().followers.push(follower);
                } else {
                    follower.send(Err(EngineError::IdempotencyKeyInUse));
                }
                None
            }
            Entry::Occupied(_) => {
                follower.send(Err(EngineError::IdempotencyKeyReused));
                None
            }
            Entry::Vacant(free) => {
                free.insert(InFlightCall {
                    request_digest: key.request_digest,
                    actor: Some(actor.clone()),
                    followers: Vec::new(),
                });
                Some((
                    KeyReservation {
                        id,
                        request_digest: key.request_digest,
                        in_flight: Arc::clone(self),
                        is_released: false,
                    },
                    follower,
                ))
            }
        }
    }

    /// Begin where there is nobody to follow: one at a time.
    pub(crate) fn reserve_exclusive(
        self: &Arc<Self>,
        id: IdempotencyId,
        request_digest: [u8; 32],
    ) -> Result<KeyReservation, EngineError> {
        match self.lock_calls().entry(id.clone()) {
            Entry::Occupied(first) if first.get().request_digest == request_digest => {
                Err(EngineError::IdempotencyKeyInUse)
            }
            Entry::Occupied(_) => Err(EngineError::IdempotencyKeyReused),
            Entry::Vacant(free) => {
                free.insert(InFlightCall { request_digest, actor: None, followers: Vec::new() });
                Ok(KeyReservation { id, request_digest, in_flight: Arc::clone(self), is_released: false })
            }
        }
    }
}

impl KeyReservation {
    /// It is answered: so are those that asked the same meanwhile. How many.
    pub(crate) fn complete(mut self, reply: &Reply) -> u64 {
        self.is_released = true;
        let call = self.in_flight.lock_calls().remove(&self.id);
        let mut replied = 0;
        for follower in call.into_iter().flat_map(|asked| asked.followers) {
            follower.send(reply.clone().map(|answer| Receipt { replayed: true, ..answer }));
            replied += 1;
        }
        replied
    }

    /// What is saved with the operation.
    pub(crate) fn idempotency_record(&self, receipt: &Receipt) -> onceward_store::IdempotencyRecord {
        let stored = StoredReply {
            subject: receipt.subject,
            version: receipt.version,
            token: receipt.token,
            spawned: receipt.spawned.clone(),
            existing: receipt.existing.clone(),
            no_op: receipt.no_op,
            stop_requested: receipt.stop_requested,
        };
        // Ids, numbers and flags: it can be written, and is short.
        let text = serde_json::to_string(&stored).unwrap_or_default();
        onceward_store::IdempotencyRecord {
            id: self.id.clone(),
            request_digest: self.request_digest,
            reply: text.into(),
        }
    }
}

impl Drop for KeyReservation {
    fn drop(&mut self) {
        if !self.is_released {
            self.in_flight.lock_calls().remove(&self.id);
        }
    }
}

/// An answer as it is kept. The record itself is not: whoever asks again gets it as it stands then.
#[derive(Debug, Serialize, Deserialize)]
struct StoredReply {
    subject: RecordId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<FencingToken>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    spawned: Vec<RecordId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    existing: Vec<RecordId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    no_op: Option<NoOpReason>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stop_requested: bool,
}

/// What was answered to the keys of these requests before, all looked for at once: by the request's place. Those that were not used
/// are left out.
pub(crate) async fn replay_stored<S: Store>(
    store: &S,
    definitions: &Definitions,
    requests: &[QueuedOperation],
    indexes: &[usize],
    now: Time,
) -> Result<Vec<(usize, Reply)>, EngineError> {
    let reserved = indexes.iter().filter_map(|at| Some((*at, requests[*at].key_reservation.as_ref()?)));
    let (at, keyed): (Vec<usize>, Vec<&KeyReservation>) = reserved.unzip();
    let ids: Vec<IdempotencyId> = keyed.iter().map(|keyed| keyed.id.clone()).collect();
    let mut replies = Vec::new();
    for ((at, keyed), found) in at.into_iter().zip(keyed).zip(store.idempotency_records(&ids).await?) {
        let Some(found) = found else { continue };
        let actor = &requests[at].operation.actor;
        replies.push((at, restore_reply(store, definitions, actor, &found, &keyed.request_digest, now).await?));
    }
    Ok(replies)
}

/// What was answered to a key before, as its owner may see it now.
pub(crate) async fn restore_reply<S: Store>(
    store: &S,
    definitions: &Definitions,
    actor: &Actor,
    stored: &onceward_store::IdempotencyRecord,
    request_digest: &[u8; 32],
    now: Time,
) -> Result<Reply, EngineError> {
    if stored.request_digest != *request_digest {
        return Ok(Err(EngineError::IdempotencyKeyReused));
    }
    let reply: StoredReply = serde_json::from_str(&stored.reply).map_err(|error| {
        StoreError::Corrupt(format!("the answer to the key `{}`: {error}", stored.id.idempotency_key))
    })?;
    let mut record = store.record(reply.subject).await?;
    if let Some(found) = &record
        && !holds_live_lease(found, actor, now)
        && !queries::can_read_without_firing(store, definitions, actor, found, now).await?
    {
        record = None;
    }
    let StoredReply { subject, version, token, spawned, existing, no_op, stop_requested } = reply;
    Ok(Ok(Receipt { subject, version, token, record, spawned, existing, no_op, stop_requested, replayed: true }))
}

/// A worker is told how its job stands as long as it is its job: what the record becomes after the lease is not for everybody who
/// once had it.
fn holds_live_lease(record: &Record, actor: &Actor, now: Time) -> bool {
    record.live_execution().is_some_and(|execution| execution.holder == actor.id && now < execution.expires_at)
}
