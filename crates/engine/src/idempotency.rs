//! Idempotency keys: a call with a key takes effect once, however often it is sent.
//!
//! The reply is saved in the transaction of its operation. The engine does not look a key up first: the save finds a
//! used key and writes nothing. Only if a call would be refused or would run checks, its key is looked up before,
//! because the call may have succeeded already. So is the key of a call that meets another request with its key in
//! flight: the stored reply may be its own.

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

use crate::engine::Engine;
use crate::error::EngineError;
use crate::queries;
use crate::submission::json_size::estimated_json_bytes;
use crate::submission::queue::{PendingReply, QueuedOperation, Receipt, Reply};

/// Bounds the records that one batch of replayed replies loads.
const MAX_REPLAYED_BYTES: usize = 1 << 20;

/// Bounds the stored key.
const MAX_IDEMPOTENCY_KEY_CHARS: usize = 255;

/// A caller's idempotency key with a digest of the request. Keys of different callers are independent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub(crate) text: Arc<str>,
    pub(crate) request_digest: [u8; 32],
    /// Made by the engine, which may use control characters.
    pub(crate) is_internal: bool,
}

impl IdempotencyKey {
    /// Creates a key with a digest of the request. The same key with another digest is an error.
    pub fn new(key: &str, digest: [u8; 32]) -> Self {
        Self { text: key.into(), request_digest: digest, is_internal: false }
    }

    /// Creates a key with the digest of the call. A caller that has more, such as the request's text, should pass a
    /// digest of that to [`new`](Self::new).
    pub fn for_call(key: &str, call: &Call) -> Self {
        // A call always serializes to JSON.
        let call_json = serde_json::to_vec(call).unwrap_or_default();
        Self::new(key, Sha256::digest(&call_json).into())
    }

    /// Adds to the digest what the call does not contain.
    #[must_use]
    pub fn with_context(self, context: &str) -> Self {
        let digest = Sha256::new().chain_update(self.request_digest).chain_update(context).finalize();
        Self { request_digest: digest.into(), ..self }
    }

    /// Returns the id under which the reply is stored.
    pub(crate) fn stored_id(&self, actor: &Actor) -> IdempotencyId {
        IdempotencyId { owner: Arc::clone(&actor.id), idempotency_key: Arc::clone(&self.text) }
    }

    /// Requires 1 to 255 characters without control characters, which are reserved for the engine.
    pub(crate) fn validate(&self) -> Result<(), EngineError> {
        let is_valid_length = !self.text.is_empty() && self.text.chars().count() <= MAX_IDEMPOTENCY_KEY_CHARS;
        let is_valid = is_valid_length && !self.text.chars().any(char::is_control);
        if is_valid || self.is_internal { Ok(()) } else { Err(EngineError::InvalidIdempotencyKey) }
    }
}

/// Idempotency keys of calls in flight.
#[derive(Debug, Default)]
pub(crate) struct InFlightKeys(Mutex<HashMap<IdempotencyId, InFlightCall>>);

#[derive(Debug)]
struct InFlightCall {
    request_digest: [u8; 32],
    /// The first caller, if others may follow.
    actor: Option<Actor>,
    /// Repeated calls that wait for the first one's reply.
    followers: Vec<PendingReply>,
}

/// An in-flight key, released on drop.
#[derive(Debug)]
pub(crate) struct KeyReservation {
    pub(crate) id: IdempotencyId,
    pub(crate) request_digest: [u8; 32],
    in_flight: Arc<InFlightKeys>,
    /// Whether the reply was sent. Then `drop` must not remove the key: another call may have reserved it.
    is_released: bool,
}

impl InFlightKeys {
    fn lock_calls(&self) -> MutexGuard<'_, HashMap<IdempotencyId, InFlightCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves the key and returns the caller's reply channel. Returns `None` if the call will be answered otherwise:
    /// with an error, or with the reply of the first call.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        actor: &Actor,
        key: &IdempotencyKey,
        follower: PendingReply,
    ) -> Option<(KeyReservation, PendingReply)> {
        let id = key.stored_id(actor);
        match self.lock_calls().entry(id.clone()) {
            Entry::Occupied(mut first) if first.get().request_digest == key.request_digest => {
                // API keys of one owner may have different roles, so a refusal of one does not apply to the other.
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

    /// Returns whether a call with one of these keys is in flight.
    pub(crate) fn contains_any(&self, ids: &[IdempotencyId]) -> bool {
        let calls = self.lock_calls();
        ids.iter().any(|id| calls.contains_key(id))
    }

    /// Reserves a key that allows no followers.
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
    /// Sends the reply to all followers; returns how many.
    pub(crate) fn complete(mut self, reply: &Reply) -> u64 {
        self.is_released = true;
        let call = self.in_flight.lock_calls().remove(&self.id);
        let mut replied = 0;
        for follower in call.into_iter().flat_map(|call| call.followers) {
            follower.send(reply.clone().map(|receipt| Receipt { replayed: true, ..receipt }));
            replied += 1;
        }
        replied
    }

    /// Returns the row that is saved with the operation.
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
        // Ids, numbers and flags always serialize.
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

/// A stored reply. It does not contain the record: a replayed reply shows the current one.
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

/// Looks up the stored replies of these requests in one query. Returns them with the requests' indexes; unused keys are
/// left out.
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
    let (mut replies, mut record_bytes) = (Vec::new(), 0_usize);
    for ((at, keyed), found) in at.into_iter().zip(keyed).zip(store.idempotency_records(&ids).await?) {
        let Some(found) = found else { continue };
        let actor = &requests[at].operation.actor;
        let mut reply = restore_reply(store, definitions, actor, &found, &keyed.request_digest, now).await?;
        if let Ok(receipt) = &mut reply {
            // The caller loads the others, if it wants them.
            record_bytes += receipt.record.as_deref().map_or(0, estimated_json_bytes);
            receipt.record.take_if(|_| record_bytes > MAX_REPLAYED_BYTES);
        }
        replies.push((at, reply));
    }
    Ok(replies)
}

/// Restores a stored reply, with the record only if the actor may see it now. Fires nothing: without the record, the
/// actor may see it after a due timer was fired.
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
        StoreError::Corrupt(format!(
            "cannot parse the stored reply of idempotency key `{}`: {error}",
            stored.id.idempotency_key
        ))
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

impl<S: Store + 'static> Engine<S> {
    /// Completes the replies of calls with idempotency keys, by the callers in the same order. Looks up the keys that
    /// another request in flight has, and adds records to replayed replies, up to the size of a page.
    pub(crate) async fn complete_replies(&self, callers: Vec<Option<(Actor, IdempotencyKey)>>, replies: &mut [Reply]) {
        let mut record_bytes = 0_usize;
        for (caller, reply) in callers.into_iter().zip(replies) {
            let Some((actor, key)) = caller else { continue };
            if matches!(reply, Err(EngineError::IdempotencyKeyReused)) {
                *reply = self.look_up_reply(&actor, &key).await;
            }
            let Ok(receipt) = reply else { continue };
            if receipt.replayed && receipt.record.is_none() && record_bytes <= self.shared.config.max_page_bytes {
                match self.get(&actor, receipt.subject).await {
                    Ok(record) => receipt.record = record,
                    Err(error) => *reply = Err(error),
                }
            }
            let record = reply.as_ref().ok().and_then(|receipt| receipt.record.as_deref());
            record_bytes = record_bytes.saturating_add(record.map_or(0, estimated_json_bytes));
        }
    }

    /// Returns the stored reply of a key, if it is the reply of this request.
    async fn look_up_reply(&self, actor: &Actor, key: &IdempotencyKey) -> Reply {
        let store = &self.shared.store;
        let Some(stored) = store.idempotency_record(&key.stored_id(actor)).await? else {
            return Err(EngineError::IdempotencyKeyReused);
        };
        let (catalog, now) = (store.catalog().await?, store.now().await?);
        restore_reply(store, &catalog.definitions, actor, &stored, &key.request_digest, now).await?
    }
}

/// Returns whether the actor holds the lease. A worker sees its job only while it holds the lease.
fn holds_live_lease(record: &Record, actor: &Actor, now: Time) -> bool {
    record.live_execution().is_some_and(|execution| execution.holder == actor.id && now < execution.expires_at)
}
