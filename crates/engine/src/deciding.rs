//! One batch decided: each operation in turn, on a base that carries what the ones before it did.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use onceward_core::decide::{Call, Changes, Decision, Key, LinkKey, Operation, Question, decide};
use onceward_core::model::Definitions;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{Base, Outcome, RequestName, Store, Write, unhurried};

use crate::error::EngineError;
use crate::once::{self, Keyed};
use crate::queue::{Answer, Reply, Request};

/// Rounds of loading in which nothing was decided, and turns of due records for one operation: more than any lifecycle can
/// ask for (`check` bounds what an operation reaches), so that a bug of ours ends.
const ROUNDS: usize = 1_000;

/// Times that a batch with refusals is decided again until all of it rests on one look. Each more means that others changed
/// what it needs meanwhile.
const AGAIN: usize = 3;

/// How deep due records may lead to due records.
const DEPTH: usize = 64;

/// Where seeds come from.
pub(crate) type Seeds = fn() -> Result<u128, EngineError>;

/// A batch as far as it can be decided without the outside.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    pub(crate) base: Base,
    pub(crate) writes: Vec<Write>,
    /// By the number of the request.
    pub(crate) replies: Vec<Option<Reply>>,
    /// Requests that must ask first: they leave the batch.
    pub(crate) asks: Vec<(usize, Vec<Question>)>,
    /// Times that the store was looked at.
    pub(crate) looks: usize,
}

impl Decided {
    /// Whether something in it is refused.
    pub(crate) fn refuses(&self) -> bool {
        self.writes.iter().any(|write| matches!(write.outcome, Outcome::Refusal(_)))
    }

    /// As it stands now.
    fn answer(&self, operation: &Operation, subject: RecordId) -> Answer {
        let record = self.base.snapshot().record(subject).cloned();
        let version = record.as_ref().map(|record| record.version);
        let live = record.as_ref().and_then(|record| record.live_execution());
        let token = live.filter(|_| matches!(operation.call, Call::Lease { .. })).map(|execution| execution.token);
        Answer {
            subject,
            version,
            token,
            record,
            spawned: Vec::new(),
            met: Vec::new(),
            already: None,
            stop: false,
            replayed: false,
        }
    }
}

/// What an earlier attempt has found out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hints {
    /// What it needed.
    pub(crate) keys: Vec<Key>,
    /// Requests that were answered before.
    pub(crate) answered: Vec<RequestName>,
}

/// Decide all requests.
pub(crate) async fn decide_all<S: Store>(
    store: &S,
    definitions: &Definitions,
    requests: &[Request],
    hints: Hints,
    now: Time,
    seeds: Seeds,
) -> Result<Decided, EngineError> {
    let answered = hints.answered.clone();
    let mut decided = decide_on(store, Base::default(), definitions, requests, hints, now, seeds).await?;
    // No save compares what a refusal rests on, so it must not rest on memory; nor on several looks, between which the batch
    // before this one may have been saved. What is needed is known by now, and looked for at once.
    for _ in 0..AGAIN {
        let in_one_look = decided.looks <= 1 && !decided.base.is_remembered();
        if in_one_look || !decided.refuses() {
            break;
        }
        let hints = Hints { keys: decided.base.keys(), answered: answered.clone() };
        decided = decide_on(store, Base::wary(), definitions, requests, hints, now, seeds).await?;
    }
    Ok(decided)
}

async fn decide_on<S: Store>(
    store: &S,
    base: Base,
    definitions: &Definitions,
    requests: &[Request],
    hints: Hints,
    now: Time,
    seeds: Seeds,
) -> Result<Decided, EngineError> {
    let Hints { keys, answered } = hints;
    let mut decided = Decided { base, replies: requests.iter().map(|_| None).collect(), ..Decided::default() };
    let mut keys: Vec<Key> =
        requests.iter().filter_map(|request| subject(&request.operation.call)).map(Key::Record).chain(keys).collect();
    let mut waiting: Vec<usize> = (0..requests.len()).collect();
    let mut looked = vec![false; requests.len()];
    let named = |at: &usize| requests[*at].keyed.as_ref().is_some_and(|keyed| answered.contains(&keyed.name));
    let mut look: Vec<usize> =
        if answered.is_empty() { Vec::new() } else { (0..requests.len()).filter(named).collect() };
    let mut idle = 0;
    loop {
        if !look.is_empty() {
            for (at, reply) in once::recall(store, definitions, requests, &look, now).await? {
                decided.replies[at] = Some(reply);
            }
            for at in look.drain(..) {
                looked[at] = true;
            }
            waiting.retain(|at| decided.replies[*at].is_none());
        }
        if waiting.is_empty() {
            return Ok(decided);
        }
        if !keys.is_empty() {
            keys.sort_unstable();
            keys.dedup();
            decided.looks += 1;
            store.load(&mut decided.base, &keys).await?;
            look_ahead(store, &mut decided.base, &keys, idle).await?;
            keys.clear();
        }
        let before = waiting.len();
        let mut turn = Turn { definitions, decided: &mut decided, looked: &looked, look: &mut look, now, seeds };
        let at_hand = turn.decided.base.snapshot().records.len();
        waiting = unhurried(at_hand, || turn.pass(requests, &waiting, &mut keys))?;
        idle = if waiting.len() < before { 0 } else { idle + 1 };
        if idle > ROUNDS {
            for at in waiting.drain(..) {
                decided.replies[at] = Some(Err(EngineError::Undecided));
            }
        }
    }
}

/// One more operation for a batch, which nobody has asked for.
pub(crate) struct More<'a> {
    pub(crate) operation: Operation,
    pub(crate) keyed: Option<&'a Keyed>,
    pub(crate) now: Time,
}

/// What came of it.
pub(crate) enum Tried {
    /// It is part of the batch.
    Done(Answer),
    /// Refused for who asks, or for how.
    Denied,
    /// Not possible now, whoever asks.
    Undone,
}

/// Refusals that say nothing against anybody else. What is there is not found only by whom it is nothing to.
const DENIALS: [u16; 3] = [403, 404, 422];

/// Decide it, with so many looks at the store: it is part of the batch only where it changes something. Where a look fails, the base may
/// be gone.
pub(crate) async fn decide_more<S: Store>(
    store: &S,
    definitions: &Definitions,
    decided: &mut Decided,
    more: More<'_>,
    looks: &mut usize,
) -> Result<Tried, EngineError> {
    let More { operation, keyed, now } = more;
    loop {
        match decide(definitions, decided.base.snapshot(), &operation, now) {
            Decision::Missing(keys) if *looks > 0 => {
                *looks -= 1;
                store.load(&mut decided.base, &keys).await?;
            }
            Decision::Changes(changes) => {
                decided.base.apply(&changes);
                let answer = decided.answer(&operation, changes.subject);
                let request = keyed.map(|keyed| keyed.with(&answer));
                decided.writes.push(Write { request, ..Write::new(operation, Outcome::Changes(changes)) });
                return Ok(Tried::Done(answer));
            }
            Decision::Refusal(refusal) if DENIALS.contains(&refusal.status) => return Ok(Tried::Denied),
            _ => return Ok(Tried::Undone),
        }
    }
}

/// Rounds without a decision before anything is loaded ahead: what most operations need is found by then.
const PATIENT: usize = 3;

/// Steps and records that are loaded ahead in one round.
const STEPS: usize = 64;
const AHEAD: usize = 2_000;

/// A chain of links shows only its next step each time it is decided. The longer it takes, the more steps are loaded ahead
/// along the links that were asked for. What is not needed after all is not compared when the batch is saved.
async fn look_ahead<S: Store>(store: &S, base: &mut Base, asked: &[Key], idle: usize) -> Result<(), EngineError> {
    let mut front: Vec<Key> = asked.to_vec();
    let steps = if idle < PATIENT { 0 } else { STEPS.min(1 << (idle - PATIENT).min(16)) };
    for _ in 0..steps {
        let mut next = Vec::new();
        for key in &front {
            let Key::Links(link) = key else { continue };
            for id in base.snapshot().links.get(link).into_iter().flatten() {
                let onward = LinkKey { target: *id, ..link.clone() };
                if !base.snapshot().links.contains_key(&onward) {
                    next.extend([Key::Record(*id), Key::Links(onward)]);
                }
            }
        }
        next.truncate(AHEAD);
        if next.is_empty() {
            break;
        }
        store.load(base, &next).await?;
        front = next;
    }
    Ok(())
}

/// Why an operation is not decided yet.
enum Pause {
    Missing(Vec<Key>),
    Ask(Vec<Question>),
    /// Its key may have been used: that comes before it is refused, or asks.
    Look,
    Failed(EngineError),
}

struct Turn<'a> {
    definitions: &'a Definitions,
    decided: &'a mut Decided,
    /// Requests whose key was looked for, and those for whose it must be.
    looked: &'a [bool],
    look: &'a mut Vec<usize>,
    now: Time,
    seeds: Seeds,
}

impl Turn<'_> {
    /// Decide what can be decided. Those that lack something wait, and what they lack is added to `keys`: loading it for all
    /// of them together costs one round, not one each.
    fn pass(
        &mut self,
        requests: &[Request],
        waiting: &[usize],
        keys: &mut Vec<Key>,
    ) -> Result<Vec<usize>, EngineError> {
        let mut still = Vec::new();
        let mut held: HashSet<u64> = HashSet::new();
        for &at in waiting {
            let request = &requests[at];
            if held.contains(&request.group) {
                // Its turn comes after one that waits. What it will need is asked for already.
                let snapshot = self.decided.base.snapshot();
                if let Decision::Missing(missing) = decide(self.definitions, snapshot, &request.operation, self.now) {
                    keys.extend(missing);
                }
                still.push(at);
                continue;
            }
            match self.one(request, self.looked[at]) {
                Ok(reply) => self.decided.replies[at] = Some(reply),
                Err(Pause::Missing(missing)) => {
                    keys.extend(missing);
                    held.insert(request.group);
                    still.push(at);
                }
                Err(Pause::Look) => {
                    self.look.push(at);
                    held.insert(request.group);
                    still.push(at);
                }
                Err(Pause::Ask(questions)) => self.decided.asks.push((at, questions)),
                Err(Pause::Failed(EngineError::Undecided)) => {
                    self.decided.replies[at] = Some(Err(EngineError::Undecided));
                }
                Err(Pause::Failed(error)) => return Err(error),
            }
        }
        Ok(still)
    }

    fn one(&mut self, request: &Request, looked: bool) -> Result<Reply, Pause> {
        let operation = &request.operation;
        let look = !looked && request.keyed.is_some();
        for _ in 0..ROUNDS {
            let decision = decide(self.definitions, self.decided.base.snapshot(), operation, self.now);
            let (outcome, reply) = match decision {
                Decision::Missing(keys) => return Err(Pause::Missing(keys)),
                Decision::Ask(_) | Decision::Refusal(_) if look => return Err(Pause::Look),
                Decision::Ask(questions) => return Err(Pause::Ask(questions)),
                Decision::Due { records, at } => {
                    self.bring_up(&records, at, 0)?;
                    continue;
                }
                Decision::Changes(changes) => {
                    self.decided.base.apply(&changes);
                    let (subject, stop) = (changes.subject, changes.stop);
                    let answer = Answer { stop, spawned: spawned(&changes), ..self.decided.answer(operation, subject) };
                    (Outcome::Changes(changes), Ok(answer))
                }
                Decision::NoOp(no_op) => {
                    let (already, met) = (Some(no_op.reason), no_op.met.clone());
                    let answer = Answer { met, already, ..self.decided.answer(operation, no_op.subject) };
                    (Outcome::NoOp(no_op), Ok(answer))
                }
                Decision::Refusal(refusal) => (Outcome::Refusal(refusal.clone()), Err(EngineError::Refused(refusal))),
            };
            // What came with a refused operation is not kept.
            let contents = if reply.is_ok() { request.contents.clone() } else { Vec::new() };
            let request = reply.as_ref().ok().zip(request.keyed.as_ref()).map(|(answer, keyed)| keyed.with(answer));
            self.decided.writes.push(Write { contents, request, ..Write::new(operation.clone(), outcome) });
            return Ok(reply);
        }
        Err(Pause::Failed(EngineError::Undecided))
    }

    /// What is due on these records comes first, each an operation of its own. It stays decided also where the operation
    /// that needed it is not taken.
    fn bring_up(&mut self, records: &[RecordId], at: Time, depth: usize) -> Result<(), Pause> {
        if depth > DEPTH {
            return Err(Pause::Failed(EngineError::Undecided));
        }
        let now = self.now.max(at);
        for &record in records {
            let seed = (self.seeds)().map_err(Pause::Failed)?;
            let operation = Operation {
                seed,
                actor: Actor::engine(),
                call: Call::Due { record },
                answers: Vec::new(),
                trace: None,
            };
            for round in 0.. {
                match decide(self.definitions, self.decided.base.snapshot(), &operation, now) {
                    Decision::Missing(keys) => return Err(Pause::Missing(keys)),
                    Decision::Due { records, at } if round < ROUNDS => self.bring_up(&records, at, depth + 1)?,
                    Decision::Changes(changes) => {
                        self.decided.base.apply(&changes);
                        self.decided.writes.push(Write::new(operation, Outcome::Changes(changes)));
                        break;
                    }
                    Decision::NoOp(_) | Decision::Refusal(_) => break,
                    // Rows that the engine fires ask nobody: `check` sees to it.
                    Decision::Due { .. } | Decision::Ask(_) => return Err(Pause::Failed(EngineError::Undecided)),
                }
            }
        }
        Ok(())
    }
}

/// Records that came into being beside the one that was asked about. Lifecycles of the engine's own are its own affair.
fn spawned(changes: &Changes) -> Vec<RecordId> {
    let made = changes.records.iter().filter(|change| change.before.is_none());
    let others = made.map(|change| &change.after).filter(|record| record.id != changes.subject);
    others.filter(|record| !record.lifecycle.name.starts_with("onceward.")).map(|record| record.id).collect()
}

/// The record that a call names, or makes under an id of the caller's: what it will need in any case.
fn subject(call: &Call) -> Option<RecordId> {
    match call {
        Call::Create(create) => create.id,
        other => other.record(),
    }
}
