//! Calls with large payloads are rehearsed before their bytes are written anywhere: what is refused whatever stands in the store leaves
//! nothing on the disk. Whoever may make nothing fills nothing.

use std::collections::BTreeMap;

use onceward_core::decide::{Decision, Operation, Snapshot, decide};
use onceward_store::Store;

use crate::admission::Bounds;
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
    let (catalog, now) = (shared.store.definitions().await?, shared.store.now().await?);
    let bounds = Bounds::of(&shared.config);
    for (at, submission) in submissions.iter().enumerate().filter(|(_, submission)| is_large(submission)) {
        if let Err(error) = bounds.check(submission) {
            found.insert(at, error);
            continue;
        }
        let Submission { actor, call, trace, .. } = submission.clone();
        let operation = Operation { seed: 0, actor, call, answers: Vec::new(), trace };
        // With nothing loaded: what needs no look to be refused stays refused.
        if let Decision::Refusal(refusal) = decide(&catalog.definitions, &Snapshot::default(), &operation, now) {
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

fn is_large(submission: &Submission) -> bool {
    submission.contents.iter().any(|content| content.bytes.len() > LARGE)
}
