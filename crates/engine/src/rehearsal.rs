//! Calls with large payloads are rehearsed before their bytes are written anywhere: what is refused whatever stands in the store leaves
//! nothing on the disk. Whoever may make nothing fills nothing. And what comes for the second time can be known before it has come.

use std::collections::BTreeMap;

use onceward_core::decide::{Call, Create, Decision, Key, NoOpReason, Operation, Refusal, Snapshot, decide};
use onceward_core::model::Definitions;
use onceward_core::record::{Actor, Payload};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{Base, Store};

use crate::admission::Bounds;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::objects::LARGE;
use crate::queue::Submission;
use crate::shared::Shared;

/// Takes out those that have no hope, with their places and why.
pub(crate) async fn hopeless<S: Store>(
    shared: &Shared<S>,
    submissions: &mut Vec<Submission>,
) -> Result<BTreeMap<usize, EngineError>, EngineError> {
    let mut found = BTreeMap::new();
    if !submissions.iter().any(is_large) {
        return Ok(found);
    }
    let (store, bounds) = (&shared.store, Bounds::of(&shared.config));
    let (at_hand, now) = (store.definitions().await?, store.now().await?);
    for (at, submission) in submissions.iter().enumerate().filter(|(_, submission)| is_large(submission)) {
        if let Err(error) = bounds.check(submission) {
            found.insert(at, error);
            continue;
        }
        if refused(&at_hand.definitions, submission, now).is_none() || was_carried_out(store, submission).await? {
            continue;
        }
        // Another process may have brought what it needs a moment ago.
        let newest = store.newest_definitions().await?;
        if let Some(refusal) = refused(&newest.definitions, submission, now) {
            found.insert(at, EngineError::Refused(refusal));
        }
    }
    let mut at = 0;
    submissions.retain(|_| {
        at += 1;
        !found.contains_key(&(at - 1))
    });
    Ok(found)
}

/// Why it is refused, whatever stands in the store.
fn refused(definitions: &Definitions, submission: &Submission, now: Time) -> Option<Box<Refusal>> {
    let Submission { actor, call, trace, .. } = submission.clone();
    let operation = Operation { seed: 0, actor, call, answers: Vec::new(), trace };
    // With nothing loaded: what needs no look to be refused stays refused.
    let mut known = Snapshot::default();
    let mut decision = decide(definitions, &known, &operation, now);
    if let Decision::Missing(keys) = &decision
        && let [Key::Record(newborn)] = keys[..]
    {
        // First it is asked whether the record is there already; who may not make it is refused in either case.
        known.records.insert(newborn, None);
        decision = decide(definitions, &known, &operation, now);
    }
    if let Decision::Refusal(refusal) = decision { Some(refusal) } else { None }
}

/// Whether its key was used: then it is answered as it was, though it would not be taken any more.
async fn was_carried_out<S: Store>(store: &S, submission: &Submission) -> Result<bool, EngineError> {
    let Some(once) = &submission.once else { return Ok(false) };
    Ok(store.request(&once.name(&submission.actor)).await?.is_some())
}

/// Rounds of loading for one look: more than any lifecycle asks for.
const ROUNDS: usize = 100;

impl<S: Store + 'static> Engine<S> {
    /// Whether what is about to come as a new record's payload was made a record before: the one that holds its key, where the lifecycle returns
    /// that; where it is gone, the refusal that says so. `None` says nothing: that is decided when all of it is there.
    pub async fn made_before(&self, actor: &Actor, create: Create) -> Result<Option<RecordId>, EngineError> {
        let store = &self.shared.store;
        let (catalog, now) = (store.definitions().await?, store.now().await?);
        // One byte: whatever comes has that much.
        let create = Create { payload: Some(Payload { sha256: [0; 32], bytes: 1 }), ..create };
        let call = Call::Create(create);
        let operation = Operation { seed: 0, actor: actor.clone(), call, answers: Vec::new(), trace: None };
        let mut base = Base::wary();
        for _ in 0..ROUNDS {
            match decide(&catalog.definitions, base.snapshot(), &operation, now) {
                Decision::Missing(keys) => store.load(&mut base, &keys).await?,
                Decision::NoOp(no_op) if no_op.reason == NoOpReason::Holder => return Ok(Some(no_op.subject)),
                Decision::Refusal(refusal) if *refusal.code == *"gone" => return Err(EngineError::Refused(refusal)),
                _ => break,
            }
        }
        Ok(None)
    }
}

fn is_large(submission: &Submission) -> bool {
    submission.contents.iter().any(|content| content.bytes.len() > LARGE)
}
