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
use onceward_core::record::{Actor, Record, Token};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{RequestName, Store, StoreError};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::EngineError;
use crate::queue::{Answer, Follower, Reply, Request};
use crate::reading;

/// Characters of a key.
const KEY_CHARS: usize = 255;

/// A caller's key for a call. Keys are the caller's own: another one's same key is another key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Once {
    pub(crate) key: Arc<str>,
    pub(crate) digest: [u8; 32],
    /// Made by the engine, which may use characters that callers may not.
    pub(crate) own: bool,
}

impl Once {
    /// A key, and a digest of what was asked: the same key with another digest is a mistake, and told as one.
    pub fn new(key: &str, digest: [u8; 32]) -> Self {
        Self { key: key.into(), digest, own: false }
    }

    /// For a call as the engine sees it. Who knows more of what was asked, its text perhaps, makes a digest of that.
    pub fn of(key: &str, call: &Call) -> Self {
        // Text and numbers under names: nothing in it cannot be written as JSON.
        let text = serde_json::to_vec(call).unwrap_or_default();
        Self::new(key, Sha256::digest(&text).into())
    }

    /// The same key, where more was asked than the call says.
    #[must_use]
    pub fn with(self, more: &str) -> Self {
        let digest = Sha256::new().chain_update(self.digest).chain_update(more).finalize();
        Self { digest: digest.into(), ..self }
    }

    /// Under which it is kept.
    pub(crate) fn name(&self, actor: &Actor) -> RequestName {
        RequestName { owner: Arc::clone(&actor.id), key: Arc::clone(&self.key) }
    }

    /// A key has from 1 to 255 characters. Control characters are the engine's own.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        let fits = !self.key.is_empty() && self.key.chars().count() <= KEY_CHARS;
        let fits = fits && !self.key.chars().any(char::is_control);
        if fits || self.own { Ok(()) } else { Err(EngineError::BadKey) }
    }
}

/// Keyed calls that are on their way.
#[derive(Debug, Default)]
pub(crate) struct Running(Mutex<HashMap<RequestName, Asked>>);

#[derive(Debug)]
struct Asked {
    digest: [u8; 32],
    /// Who asked first, where others may follow.
    actor: Option<Actor>,
    /// The same call again, meanwhile.
    followers: Vec<Follower>,
}

/// A key that is on its way until this is dropped.
#[derive(Debug)]
pub(crate) struct Keyed {
    pub(crate) name: RequestName,
    pub(crate) digest: [u8; 32],
    running: Arc<Running>,
    /// Answered: the key is no longer ours, and may be another's already.
    ended: bool,
}

impl Running {
    fn asked(&self) -> MutexGuard<'_, HashMap<RequestName, Asked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begin, or give the follower back as one that waits for the first of its key. `None`: it will be answered.
    pub(crate) fn begin(self: &Arc<Self>, actor: &Actor, once: &Once, follower: Follower) -> Option<(Keyed, Follower)> {
        let name = once.name(actor);
        match self.asked().entry(name.clone()) {
            Entry::Occupied(mut first) if first.get().digest == once.digest => {
                // One owner's keys may have other roles: what is refused to one of them is not yet refused to the other.
                if first.get().actor.as_ref() == Some(actor) {
                    first.get_mut().followers.push(follower);
                } else {
                    follower.answer(Err(EngineError::KeyRunning));
                }
                None
            }
            Entry::Occupied(_) => {
                follower.answer(Err(EngineError::KeyReused));
                None
            }
            Entry::Vacant(free) => {
                free.insert(Asked { digest: once.digest, actor: Some(actor.clone()), followers: Vec::new() });
                Some((Keyed { name, digest: once.digest, running: Arc::clone(self), ended: false }, follower))
            }
        }
    }

    /// Begin where there is nobody to follow: one at a time.
    pub(crate) fn begin_alone(self: &Arc<Self>, name: RequestName, digest: [u8; 32]) -> Result<Keyed, EngineError> {
        match self.asked().entry(name.clone()) {
            Entry::Occupied(first) if first.get().digest == digest => Err(EngineError::KeyRunning),
            Entry::Occupied(_) => Err(EngineError::KeyReused),
            Entry::Vacant(free) => {
                free.insert(Asked { digest, actor: None, followers: Vec::new() });
                Ok(Keyed { name, digest, running: Arc::clone(self), ended: false })
            }
        }
    }
}

impl Keyed {
    /// It is answered: so are those that asked the same meanwhile. How many.
    pub(crate) fn answered(mut self, reply: &Reply) -> u64 {
        self.ended = true;
        let asked = self.running.asked().remove(&self.name);
        let mut answered = 0;
        for follower in asked.into_iter().flat_map(|asked| asked.followers) {
            follower.answer(reply.clone().map(|answer| Answer { replayed: true, ..answer }));
            answered += 1;
        }
        answered
    }

    /// What is saved with the operation.
    pub(crate) fn with(&self, answer: &Answer) -> onceward_store::Request {
        let kept = Kept {
            subject: answer.subject,
            version: answer.version,
            token: answer.token,
            spawned: answer.spawned.clone(),
            met: answer.met.clone(),
            already: answer.already,
            stop: answer.stop,
        };
        // Ids, numbers and flags: it can be written, and is short.
        let text = serde_json::to_string(&kept).unwrap_or_default();
        onceward_store::Request { name: self.name.clone(), digest: self.digest, answer: text.into() }
    }
}

impl Drop for Keyed {
    fn drop(&mut self) {
        if !self.ended {
            self.running.asked().remove(&self.name);
        }
    }
}

/// An answer as it is kept. The record itself is not: whoever asks again gets it as it stands then.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    subject: RecordId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<Token>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    spawned: Vec<RecordId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    met: Vec<RecordId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    already: Option<NoOpReason>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stop: bool,
}

/// What was answered to the keys of these requests before, all looked for at once: by the request's place. Those that were not used
/// are left out.
pub(crate) async fn recall<S: Store>(
    store: &S,
    definitions: &Definitions,
    requests: &[Request],
    at: &[usize],
    now: Time,
) -> Result<Vec<(usize, Reply)>, EngineError> {
    let keyed = at.iter().filter_map(|at| Some((*at, requests[*at].keyed.as_ref()?)));
    let (at, keyed): (Vec<usize>, Vec<&Keyed>) = keyed.unzip();
    let names: Vec<RequestName> = keyed.iter().map(|keyed| keyed.name.clone()).collect();
    let mut replies = Vec::new();
    for ((at, keyed), found) in at.into_iter().zip(keyed).zip(store.requests(&names).await?) {
        let Some(found) = found else { continue };
        let actor = &requests[at].operation.actor;
        replies.push((at, answered(store, definitions, actor, &found, &keyed.digest, now).await?));
    }
    Ok(replies)
}

/// What was answered to a key before, as its owner may see it now.
pub(crate) async fn answered<S: Store>(
    store: &S,
    definitions: &Definitions,
    actor: &Actor,
    request: &onceward_store::Request,
    digest: &[u8; 32],
    now: Time,
) -> Result<Reply, EngineError> {
    if request.digest != *digest {
        return Ok(Err(EngineError::KeyReused));
    }
    let kept: Kept = serde_json::from_str(&request.answer)
        .map_err(|error| StoreError::Corrupt(format!("the answer to the key `{}`: {error}", request.name.key)))?;
    let mut record = store.record(kept.subject).await?;
    if let Some(found) = &record
        && !works_on(found, actor, now)
        && !reading::at_a_glance(store, definitions, actor, found, now).await?
    {
        record = None;
    }
    let Kept { subject, version, token, spawned, met, already, stop } = kept;
    Ok(Ok(Answer { subject, version, token, record, spawned, met, already, stop, replayed: true }))
}

/// A worker is told how its job stands as long as it is its job: what the record becomes after the lease is not for everybody who
/// once had it.
fn works_on(record: &Record, actor: &Actor, now: Time) -> bool {
    record.live_execution().is_some_and(|execution| execution.holder == actor.id && now < execution.expires_at)
}
