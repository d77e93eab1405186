//! What a set of operations comes to, the plain way: sort it, judge it, fold it from the start. Written apart from the fold in
//! core, with no images, no index and no care for cost.

use std::collections::BTreeMap;

use onceward_core::decide::{Answer, Decision, NoOpReason, Operation, Snapshot, decide};
use onceward_core::decide::{Call, Create};
use onceward_core::fold::{Applied, Grant, LogCall, LogOperation, OperationId, Outside, Reason, Standing, Wait};
use onceward_core::model::Definitions;
use onceward_core::record::Actor;
use onceward_core::value::Value;
use sha2::{Digest, Sha256};

/// The state and what became of each operation.
pub struct Opinion {
    pub world: Snapshot,
    pub applied: BTreeMap<OperationId, Applied>,
}

/// Duplicates count once; the last standing of each counts.
pub fn fold_plainly(definitions: &Definitions, set: &[(LogOperation, Standing)], outside: &dyn Outside) -> Opinion {
    let unique: BTreeMap<OperationId, &(LogOperation, Standing)> = set.iter().map(|both| (both.0.id, both)).collect();
    let mut sorted: Vec<&(LogOperation, Standing)> = unique.into_values().collect();
    sorted.sort_by_key(|(operation, _)| {
        (operation.moment.wall, operation.moment.logical, operation.author.clone(), operation.id)
    });
    let plain = Plain { definitions, sorted: &sorted, outside };
    let mut opinion = Opinion { world: Snapshot::world(), applied: BTreeMap::new() };
    // Claims that meet at one moment, found when the first of them has its turn.
    let mut tied: BTreeMap<OperationId, OperationId> = BTreeMap::new();
    let mut weighed: Vec<OperationId> = Vec::new();
    for (operation, _) in &sorted {
        let verdict = match plain.beforehand(operation, &opinion.applied) {
            Err(verdict) => verdict,
            Ok(grant) => {
                if !weighed.contains(&operation.id) {
                    let rivals = plain.rivals(operation, &opinion.applied);
                    weighed.extend(rivals.iter().map(|rival| rival.id));
                    tied.extend(plain.tie(&rivals, &opinion));
                }
                match tied.get(&operation.id) {
                    Some(with) => Applied::Refused(Reason::Tie { with: *with }),
                    None => plain.apply(operation, &grant, &mut opinion.world),
                }
            }
        };
        opinion.applied.insert(operation.id, verdict);
    }
    opinion
}

struct Plain<'a> {
    definitions: &'a Definitions,
    sorted: &'a [&'a (LogOperation, Standing)],
    outside: &'a dyn Outside,
}

impl Plain<'_> {
    /// Whether the lifecycle is asked at all, and with what rights.
    fn beforehand(&self, operation: &LogOperation, applied: &BTreeMap<OperationId, Applied>) -> Result<Grant, Applied> {
        let same_clock = |other: &&&(LogOperation, Standing)| {
            other.0.author == operation.author && other.0.moment == operation.moment && other.0.id != operation.id
        };
        if self.sorted.iter().any(|other| same_clock(&other)) {
            return Err(Applied::Refused(Reason::ClockReused));
        }
        let mut waits = Vec::new();
        for id in &operation.after {
            match self.sorted.iter().find(|(other, _)| other.id == *id) {
                None => waits.push(Wait::Absent(*id)),
                Some((other, _)) if other.moment >= operation.moment => {
                    return Err(Applied::Refused(Reason::NotAfter(*id)));
                }
                Some(_) => match &applied[id] {
                    Applied::Changed | Applied::Nothing(_) => {}
                    Applied::Refused(Reason::ClockReused | Reason::NotAfter(_) | Reason::Hopeless(_)) => {
                        return Err(Applied::Refused(Reason::Hopeless(*id)));
                    }
                    _ => waits.push(Wait::Unapplied(*id)),
                },
            }
        }
        if let Some(first) = waits.first() {
            return Err(Applied::Waiting(first.clone()));
        }
        let standing = self.sorted.iter().find(|(other, _)| other.id == operation.id).map(|(_, standing)| standing);
        match standing.expect("every operation has a standing") {
            Standing::Held(grant) => Ok(grant.clone()),
            Standing::Suspended { why } => Err(Applied::Held { why: why.clone() }),
            Standing::Withdrawn { why } => Err(Applied::Refused(Reason::NoAuthority { why: why.clone() })),
        }
    }

    /// The operations of the same moment, record and event that may be decided, itself among them.
    fn rivals(&self, operation: &LogOperation, applied: &BTreeMap<OperationId, Applied>) -> Vec<&LogOperation> {
        let target = |other: &LogOperation| match &other.call {
            LogCall::Fire { record, event, .. } => Some((*record, event.clone())),
            LogCall::Create { .. } => None,
        };
        let wanted = target(operation);
        let all = self.sorted.iter().map(|(other, _)| other);
        all.filter(|other| other.moment == operation.moment && wanted.is_some() && target(other) == wanted)
            .filter(|other| self.beforehand(other, applied).is_ok())
            .collect()
    }

    fn tie(&self, rivals: &[&LogOperation], opinion: &Opinion) -> Vec<(OperationId, OperationId)> {
        let grant = |operation: &LogOperation| self.beforehand(operation, &opinion.applied).ok();
        let mut claims = Vec::new();
        for rival in rivals {
            let mut alone = opinion.world.clone();
            let (Some(granted), LogCall::Fire { record, .. }) = (grant(rival), &rival.call) else { continue };
            self.apply(rival, &granted, &mut alone);
            let named = |world: &Snapshot| -> Vec<bool> {
                let fields = world.record(*record).map(|found| found.fields.clone()).unwrap_or_default();
                fields.iter().map(|value| *value == Value::text(&*rival.author)).collect()
            };
            if named(&alone).iter().zip(named(&opinion.world)).any(|(after, before)| *after && !before) {
                claims.push((*rival, granted));
            }
        }
        let mut together = opinion.world.clone();
        let mut refused = false;
        for (rival, granted) in &claims {
            let verdict = self.apply(rival, granted, &mut together);
            refused |= !matches!(verdict, Applied::Changed | Applied::Nothing(_));
        }
        if claims.len() < 2 || !refused {
            return Vec::new();
        }
        let met = |at: usize| claims[usize::from(at == 0)].0.id;
        claims.iter().enumerate().map(|(at, (loser, _))| (loser.id, met(at))).collect()
    }

    fn apply(&self, operation: &LogOperation, grant: &Grant, world: &mut Snapshot) -> Applied {
        let call = match operation.call.clone() {
            LogCall::Create { lifecycle, id, fields, payload } => {
                Call::Create(Create { lifecycle, id, owner: None, fields, payload })
            }
            LogCall::Fire { record, event, input } => {
                Call::Fire { record, event, input, token: None, if_version: None }
            }
        };
        let hash = Sha256::digest([b"onceward fold\n".as_slice(), &operation.id.0].concat());
        let mut asked = Operation {
            seed: u128::from_be_bytes(hash[..16].try_into().expect("sixteen of thirty-two bytes")),
            actor: Actor {
                id: operation.author.clone(),
                roles: grant.roles.clone(),
                capabilities: grant.capabilities.clone(),
                user: grant.user,
            },
            call,
            answers: Vec::new(),
            trace: None,
        };
        loop {
            match decide(self.definitions, world, &asked, operation.moment.wall) {
                Decision::Changes(changes) => {
                    assert_eq!(changes.now, operation.moment.wall, "time runs backwards in a fold");
                    world.apply(&changes);
                    return Applied::Changed;
                }
                Decision::NoOp(nothing) => {
                    assert_ne!(nothing.reason, NoOpReason::Repeated, "there are no workers in a fold");
                    return Applied::Nothing(nothing.reason);
                }
                Decision::Refusal(refusal) => return Applied::Refused(Reason::Decided(refusal)),
                Decision::Ask(questions) => {
                    for question in questions {
                        let Some(answer) = self.outside.answer(operation, &question) else {
                            let (lifecycle, check) = (question.lifecycle, question.check);
                            return Applied::Waiting(Wait::Unanswered { lifecycle, check });
                        };
                        asked.answers.push(Answer {
                            lifecycle: question.lifecycle,
                            check: question.check,
                            arguments: question.arguments,
                            payload: question.payload,
                            answer,
                        });
                    }
                }
                other => panic!("a fold has no timers and its world is whole, yet: {other:?}"),
            }
        }
    }
}
