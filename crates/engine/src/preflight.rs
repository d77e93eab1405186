//! Calls with large payloads are rehearsed before their bytes are written anywhere: what is refused whatever stands in the store leaves
//! nothing on the disk. Whoever may make nothing fills nothing. And what comes for the second time can be known before it has come.

use std::collections::BTreeMap;

use onceward_core::decide::{Call, CreateRecord, Decision, NoOpReason, Operation, ReadKey, Refusal, Snapshot, decide};
use onceward_core::model::Definitions;
use onceward_core::record::{Actor, PayloadRef};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{ReadSet, Store};

use crate::admission::SubmissionLimits;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::objects::MAX_INLINE_PAYLOAD_BYTES;
use crate::queue::Submission;
use crate::shared::Shared;

/// Takes out those that have no hope, with their places and why.
pub(crate) async fn reject_doomed<S: Store>(
    shared: &Shared<S>,
    submissions: &mut Vec<Submission>,
) -> Result<BTreeMap<usize, EngineError>, EngineError> {
    let mut rejected = BTreeMap::new();
    if !submissions.iter().any(has_large_payload) {
        return Ok(rejected);
    }
    let (store, limits) = (&shared.store, SubmissionLimits::from_config(&shared.config));
    let (catalog, now) = (store.catalog().await?, store.now().await?);
    for (index, submission) in submissions.iter().enumerate().filter(|(_, submission)| has_large_payload(submission)) {
        if let Err(error) = limits.validate(submission) {
            rejected.insert(index, error);
            continue;
        }
        if doomed_refusal(&catalog.definitions, submission, now).is_none() || is_replay(store, submission).await? {
            continue;
        }
        // Another process may have brought what it needs a moment ago.
        let newest_catalog = store.refresh_catalog().await?;
        if let Some(refusal) = doomed_refusal(&newest_catalog.definitions, submission, now) {
            rejected.insert(index, EngineError::Refused(refusal));
        }
    }
    let mut next_index = 0;
    submissions.retain(|_| {
        next_index += 1;
        !rejected.contains_key(&(next_index - 1))
    });
    Ok(rejected)
}

/// Why it is refused, whatever stands in the store.
fn doomed_refusal(definitions: &Definitions, submission: &Submission, now: Time) -> Option<Box<Refusal>> {
    let Submission { actor, call, trace, .. } = submission.clone();
    let operation = Operation { seed: 0, actor, call, check_answers: Vec::new(), trace };
    // With nothing loaded: what needs no look to be refused stays refused.
    let mut snapshot = Snapshot::default();
    let mut decision = decide(definitions, &snapshot, &operation, now);
    if let Decision::Missing(keys) = &decision
        && let [ReadKey::Record(new_record)] = keys[..]
    {
        // First it is asked whether the record is there already; who may not make it is refused in either case.
        snapshot.records.insert(new_record, None);
        decision = decide(definitions, &snapshot, &operation, now);
    }
    if let Decision::Refusal(refusal) = decision { Some(refusal) } else { None }
}

/// Whether its key was used: then it is answered as it was, though it would not be taken any more.
async fn is_replay<S: Store>(store: &S, submission: &Submission) -> Result<bool, EngineError> {
    let Some(idempotency_key) = &submission.idempotency_key else { return Ok(false) };
    Ok(store.idempotency_record(&idempotency_key.stored_id(&submission.actor)).await?.is_some())
}

/// Rounds of loading for one look: more than any lifecycle asks for.
const MAX_LOOKUP_ROUNDS: usize = 100;

impl<S: Store + 'static> Engine<S> {
    /// Whether what is about to come as a new record's payload was made a record before: the one that holds its key, where the lifecycle returns
    /// that; where it is gone, the refusal that says so. `None` says nothing: that is decided when all of it is there.
    pub async fn find_existing(&self, actor: &Actor, create: CreateRecord) -> Result<Option<RecordId>, EngineError> {
        let store = &self.shared.store;
        let (catalog, now) = (store.catalog().await?, store.now().await?);
        // One byte: whatever comes has that much.
        let create = CreateRecord { payload: Some(PayloadRef { sha256: [0; 32], bytes: 1 }), ..create };
        let call = Call::Create(create);
        let operation = Operation { seed: 0, actor: actor.clone(), call, check_answers: Vec::new(), trace: None };
        let mut read_set = ReadSet::uncached();
        for _ in 0..MAX_LOOKUP_ROUNDS {
            match decide(&catalog.definitions, read_set.snapshot(), &operation, now) {
                Decision::Missing(keys) => store.load(&mut read_set, &keys).await?,
                Decision::NoOp(no_op) if no_op.reason == NoOpReason::ExistingRecord => return Ok(Some(no_op.subject)),
                Decision::Refusal(refusal) if *refusal.code == *"gone" => return Err(EngineError::Refused(refusal)),
                _ => break,
            }
        }
        Ok(None)
    }
}

fn has_large_payload(submission: &Submission) -> bool {
    submission.payloads.iter().any(|content| content.bytes.len() > MAX_INLINE_PAYLOAD_BYTES)
}
