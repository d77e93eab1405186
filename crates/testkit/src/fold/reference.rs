//! Reference implementation of the fold: sorts the set and folds it from the start.
//!
//! Written independently of the fold in core, without images, indexes or regard for cost.

use std::collections::BTreeMap;

use onceward_core::decide::{Call, CreateRecord};
use onceward_core::decide::{CheckAnswer, Decision, NoOpReason, Operation, Snapshot, decide};
use onceward_core::fold::{
    ApplyStatus, Authority, AuthorityGrant, CheckResolver, FoldRefusalReason, LogCall, LogOperation, OperationId,
    WaitReason,
};
use onceward_core::model::Definitions;
use onceward_core::record::Actor;
use onceward_core::value::Value;
use sha2::{Digest, Sha256};

/// The state, and the status of each operation.
pub struct ReferenceFold {
    pub world: Snapshot,
    pub statuses: BTreeMap<OperationId, ApplyStatus>,
}

/// Folds a set of operations. Duplicates count once, with their last authority.
pub fn reference_fold(
    definitions: &Definitions,
    set: &[(LogOperation, Authority)],
    resolver: &dyn CheckResolver,
) -> ReferenceFold {
    let unique: BTreeMap<OperationId, &(LogOperation, Authority)> = set.iter().map(|both| (both.0.id, both)).collect();
    let mut sorted: Vec<&(LogOperation, Authority)> = unique.into_values().collect();
    sorted.sort_by_key(|(operation, _)| {
        (operation.timestamp.wall_time, operation.timestamp.logical_counter, operation.author.clone(), operation.id)
    });
    let folder = ReferenceFolder { definitions, sorted: &sorted, resolver };
    let mut reference = ReferenceFold { world: Snapshot::empty_complete(), statuses: BTreeMap::new() };
    // Simultaneous claims, found when the first of them is decided.
    let mut ties: BTreeMap<OperationId, OperationId> = BTreeMap::new();
    let mut contended: Vec<OperationId> = Vec::new();
    for (operation, _) in &sorted {
        let status = match folder.eligibility(operation, &reference.statuses) {
            Err(verdict) => verdict,
            Ok(grant) => {
                if !contended.contains(&operation.id) {
                    let rivals = folder.contenders(operation, &reference.statuses);
                    contended.extend(rivals.iter().map(|rival| rival.id));
                    ties.extend(folder.find_ties(&rivals, &reference));
                }
                match ties.get(&operation.id) {
                    Some(with) => ApplyStatus::Refused(FoldRefusalReason::Contended { with: *with }),
                    None => folder.apply(operation, &grant, &mut reference.world),
                }
            }
        };
        reference.statuses.insert(operation.id, status);
    }
    reference
}

struct ReferenceFolder<'a> {
    definitions: &'a Definitions,
    sorted: &'a [&'a (LogOperation, Authority)],
    resolver: &'a dyn CheckResolver,
}

impl ReferenceFolder<'_> {
    /// Returns whether the operation is decided at all, and with which authority.
    fn eligibility(
        &self,
        operation: &LogOperation,
        statuses: &BTreeMap<OperationId, ApplyStatus>,
    ) -> Result<AuthorityGrant, ApplyStatus> {
        let same_clock = |other: &&&(LogOperation, Authority)| {
            other.0.author == operation.author && other.0.timestamp == operation.timestamp && other.0.id != operation.id
        };
        if self.sorted.iter().any(|other| same_clock(&other)) {
            return Err(ApplyStatus::Refused(FoldRefusalReason::ClockReused));
        }
        let mut waits = Vec::new();
        for id in &operation.dependencies {
            match self.sorted.iter().find(|(other, _)| other.id == *id) {
                None => waits.push(WaitReason::DependencyAbsent(*id)),
                Some((other, _)) if other.timestamp >= operation.timestamp => {
                    return Err(ApplyStatus::Refused(FoldRefusalReason::DependencyNotEarlier(*id)));
                }
                Some(_) => match &statuses[id] {
                    ApplyStatus::Changed | ApplyStatus::NoOp(_) => {}
                    ApplyStatus::Refused(
                        FoldRefusalReason::ClockReused
                        | FoldRefusalReason::DependencyNotEarlier(_)
                        | FoldRefusalReason::DependencyRefused(_),
                    ) => {
                        return Err(ApplyStatus::Refused(FoldRefusalReason::DependencyRefused(*id)));
                    }
                    _ => waits.push(WaitReason::DependencyUnapplied(*id)),
                },
            }
        }
        if let Some(first) = waits.first() {
            return Err(ApplyStatus::Waiting(first.clone()));
        }
        let standing = self.sorted.iter().find(|(other, _)| other.id == operation.id).map(|(_, standing)| standing);
        match standing.expect("every operation has an authority") {
            Authority::Held(grant) => Ok(grant.clone()),
            Authority::Suspended { reason: why } => Err(ApplyStatus::AuthorSuspended { reason: why.clone() }),
            Authority::Withdrawn { reason: why } => {
                Err(ApplyStatus::Refused(FoldRefusalReason::NoAuthority { reason: why.clone() }))
            }
        }
    }

    /// Returns the operations with the same timestamp, record and event that may be decided, including this one.
    fn contenders(
        &self,
        operation: &LogOperation,
        statuses: &BTreeMap<OperationId, ApplyStatus>,
    ) -> Vec<&LogOperation> {
        let target = |other: &LogOperation| match &other.call {
            LogCall::Fire { record, event, .. } => Some((*record, event.clone())),
            LogCall::Create { .. } => None,
        };
        let wanted = target(operation);
        let all = self.sorted.iter().map(|(other, _)| other);
        all.filter(|other| other.timestamp == operation.timestamp && wanted.is_some() && target(other) == wanted)
            .filter(|other| self.eligibility(other, statuses).is_ok())
            .collect()
    }

    fn find_ties(&self, contenders: &[&LogOperation], reference: &ReferenceFold) -> Vec<(OperationId, OperationId)> {
        let grant = |operation: &LogOperation| self.eligibility(operation, &reference.statuses).ok();
        let mut claims = Vec::new();
        for rival in contenders {
            let mut alone = reference.world.clone();
            let (Some(granted), LogCall::Fire { record, .. }) = (grant(rival), &rival.call) else { continue };
            self.apply(rival, &granted, &mut alone);
            let named = |world: &Snapshot| -> Vec<bool> {
                let fields = world.record(*record).map(|found| found.fields.clone()).unwrap_or_default();
                fields.iter().map(|value| *value == Value::text(&*rival.author)).collect()
            };
            if named(&alone).iter().zip(named(&reference.world)).any(|(after, before)| *after && !before) {
                claims.push((*rival, granted));
            }
        }
        let mut together = reference.world.clone();
        let mut refused = false;
        for (rival, granted) in &claims {
            let status = self.apply(rival, granted, &mut together);
            refused |= !matches!(status, ApplyStatus::Changed | ApplyStatus::NoOp(_));
        }
        if claims.len() < 2 || !refused {
            return Vec::new();
        }
        let met = |at: usize| claims[usize::from(at == 0)].0.id;
        claims.iter().enumerate().map(|(at, (loser, _))| (loser.id, met(at))).collect()
    }

    fn apply(&self, operation: &LogOperation, grant: &AuthorityGrant, world: &mut Snapshot) -> ApplyStatus {
        let call = match operation.call.clone() {
            LogCall::Create { lifecycle, id, fields, payload } => {
                Call::Create(CreateRecord { lifecycle, id, owner: None, fields, payload })
            }
            LogCall::Fire { record, event, input } => {
                Call::Fire { record, event, input, token: None, if_version: None }
            }
        };
        let hash = Sha256::digest([b"onceward fold\n".as_slice(), &operation.id.0].concat());
        let mut attempted = Operation {
            seed: u128::from_be_bytes(hash[..16].try_into().expect("16 of 32 bytes")),
            actor: Actor {
                id: operation.author.clone(),
                roles: grant.roles.clone(),
                capabilities: grant.capabilities.clone(),
                user: grant.user,
            },
            call,
            check_answers: Vec::new(),
            trace: None,
        };
        loop {
            match decide(self.definitions, world, &attempted, operation.timestamp.wall_time) {
                Decision::Changes(changes) => {
                    assert_eq!(changes.now, operation.timestamp.wall_time, "time goes back in a fold");
                    world.apply(&changes);
                    return ApplyStatus::Changed;
                }
                Decision::NoOp(nothing) => {
                    assert_ne!(nothing.reason, NoOpReason::Repeated, "a fold has no workers");
                    return ApplyStatus::NoOp(nothing.reason);
                }
                Decision::Refusal(refusal) => {
                    return ApplyStatus::Refused(FoldRefusalReason::RefusedByLifecycle(refusal));
                }
                Decision::NeedsChecks(questions) => {
                    for question in questions {
                        let Some(answer) = self.resolver.resolve(operation, &question) else {
                            let (lifecycle, check) = (question.lifecycle, question.check);
                            return ApplyStatus::Waiting(WaitReason::CheckUnanswered { lifecycle, check });
                        };
                        attempted.check_answers.push(CheckAnswer {
                            lifecycle: question.lifecycle,
                            check: question.check,
                            arguments: question.arguments,
                            payload: question.payload,
                            answer,
                        });
                    }
                }
                other => panic!("a fold has no timers and a complete snapshot, but: {other:?}"),
            }
        }
    }
}
