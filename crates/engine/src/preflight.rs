//! Decides calls with large payloads before their bytes are stored: if a call is refused whatever the store contains,
//! nothing is written. Also finds an existing record before the upload.

use std::collections::BTreeMap;

use onceward_core::decide::{Call, CreateRecord, Decision, NoOpReason, Operation, Refusal};
use onceward_core::model::Definitions;
use onceward_core::record::{Actor, PayloadRef};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{ReadSet, Store};

use crate::decision::retry_policy::MAX_LOAD_ROUNDS;
use crate::decision::{decide_without_data, load_until_decided};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::objects::MAX_INLINE_PAYLOAD_BYTES;
use crate::shared::Shared;
use crate::submission::limits::SubmissionLimits;
use crate::submission::queue::Submission;

/// Removes doomed submissions; returns their errors by index.
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
        // Another process may just have uploaded the lifecycle.
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

/// Returns the refusal that does not depend on stored data.
fn doomed_refusal(definitions: &Definitions, submission: &Submission, now: Time) -> Option<Box<Refusal>> {
    let Submission { actor, call, trace, .. } = submission.clone();
    let operation = Operation { seed: 0, actor, call, check_answers: Vec::new(), trace };
    let decision = decide_without_data(definitions, &operation, now);
    if let Decision::Refusal(refusal) = decision { Some(refusal) } else { None }
}

/// Returns whether the idempotency key was used: then the stored reply is returned, even if the call would be refused
/// now.
async fn is_replay<S: Store>(store: &S, submission: &Submission) -> Result<bool, EngineError> {
    let Some(idempotency_key) = &submission.idempotency_key else { return Ok(false) };
    Ok(store.idempotency_record(&idempotency_key.stored_id(&submission.actor)).await?.is_some())
}

impl<S: Store + 'static> Engine<S> {
    /// Returns the record that already holds the unique key, if the lifecycle returns existing records. If that record
    /// was pruned, returns the `gone` refusal. `None` decides nothing: the create call does, after the upload.
    pub async fn find_existing(&self, actor: &Actor, create: CreateRecord) -> Result<Option<RecordId>, EngineError> {
        let store = &self.shared.store;
        let (catalog, now) = (store.catalog().await?, store.now().await?);
        // Every payload has at least one byte.
        let create = CreateRecord { payload: Some(PayloadRef { sha256: [0; 32], bytes: 1 }), ..create };
        let call = Call::Create(create);
        let operation = Operation { seed: 0, actor: actor.clone(), call, check_answers: Vec::new(), trace: None };
        let mut read_set = ReadSet::uncached();
        let mut loads = MAX_LOAD_ROUNDS;
        match load_until_decided(store, &catalog.definitions, &mut read_set, &operation, now, &mut loads).await? {
            Some(Decision::NoOp(no_op)) if no_op.reason == NoOpReason::ExistingRecord => Ok(Some(no_op.subject)),
            Some(Decision::Refusal(refusal)) if *refusal.code == *"gone" => Err(EngineError::Refused(refusal)),
            _ => Ok(None),
        }
    }
}

fn has_large_payload(submission: &Submission) -> bool {
    submission.payloads.iter().any(|content| content.bytes.len() > MAX_INLINE_PAYLOAD_BYTES)
}
