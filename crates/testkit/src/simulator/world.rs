//! The world itself: its clock, what it holds, and how an operation is carried out in it.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use onceward_core::decide::{Call, CheckAnswer, CheckQuery, Decision, Effect, Operation, Snapshot, decide, next_due};
use onceward_core::model::Definitions;
use onceward_core::record::{Actor, PayloadRef};
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

use super::invariants;

/// Rounds of `Due` and `Ask` that one operation may take: far more than any lifecycle here needs, so that going beyond
/// it means going in a circle.
const MAX_DECIDE_ROUNDS: usize = 1_000;

/// Answers a check: the question, and the payload's bytes where the question carries one.
pub(super) type CheckAnswerer = Rc<dyn Fn(&CheckQuery, Option<&[u8]>) -> Json>;

/// One operation that was played, and what came of it.
#[derive(Clone, Debug)]
pub struct SimulatedOperation {
    pub operation: Operation,
    pub now: Time,
    pub decision: Decision,
}

/// A world in memory that knows everything, with a clock that moves only when told to.
#[derive(Clone)]
pub struct Simulator {
    pub(super) definitions: Arc<Definitions>,
    pub(super) world: Snapshot,
    pub(super) now: Time,
    pub(super) log: Vec<SimulatedOperation>,
    pub(super) effects: HashMap<RecordId, Vec<Effect>>,
    pub(super) payloads: HashMap<[u8; 32], Arc<[u8]>>,
    pub(super) check_answerers: HashMap<(String, String), CheckAnswerer>,
    operations_run: u64,
}

impl Simulator {
    /// An empty world, some time on a Sunday evening.
    pub fn new(definitions: Definitions) -> Self {
        Self {
            definitions: Arc::new(definitions),
            world: Snapshot::empty_complete(),
            now: "2026-11-15T20:00:00Z".parse().expect("a time as we write them"),
            log: Vec::new(),
            effects: HashMap::new(),
            payloads: HashMap::new(),
            check_answerers: HashMap::new(),
            operations_run: 0,
        }
    }

    /// Set the clock before the play begins.
    pub fn starting_at(mut self, time: &str) -> Self {
        self.now = time.parse().expect("a time, as 2026-01-31T12:00:00Z");
        self
    }

    /// Who answers a check of a lifecycle.
    pub fn on_check(
        mut self,
        lifecycle: &str,
        check: &str,
        answer: impl Fn(&CheckQuery, Option<&[u8]>) -> Json + 'static,
    ) -> Self {
        self.check_answerers.insert((lifecycle.to_owned(), check.to_owned()), Rc::new(answer));
        self
    }

    pub fn now(&self) -> Time {
        self.now
    }

    /// Time passes and the engine is awake: timers and ended leases are dealt with, each at its own time, in order.
    pub fn advance(&mut self, length: &str) {
        self.advance_by(length.parse().expect("a duration, as 30s"));
    }

    pub fn advance_by(&mut self, length: Duration) {
        let deadline = self.now.checked_add(length).expect("a time that can be written");
        while let Some((due, record)) = self.next_due().filter(|(due, _)| *due <= deadline) {
            self.now = self.now.max(due);
            self.run_operation(&Actor::engine(), Call::FireDue { record });
        }
        self.now = deadline;
    }

    /// Time passes while the engine sleeps: nothing happens, until somebody asks.
    pub fn advance_without_engine(&mut self, length: &str) {
        self.advance_without_engine_by(length.parse().expect("a duration, as 30s"));
    }

    pub fn advance_without_engine_by(&mut self, length: Duration) {
        self.now = self.now.checked_add(length).expect("a time that can be written");
    }

    /// The clock steps back, as bad clocks do.
    pub fn step_clock_back(&mut self, length: &str) {
        let length: Duration = length.parse().expect("a duration, as 30s");
        self.now = self.now.checked_sub(length).expect("a time that can be written");
    }

    /// Keep content and know it by its hash.
    pub(crate) fn store_payload(&mut self, bytes: &[u8]) -> PayloadRef {
        let sha256: [u8; 32] = Sha256::digest(bytes).into();
        self.payloads.insert(sha256, bytes.into());
        PayloadRef { sha256, bytes: bytes.len() as u64 }
    }

    /// Carry out one operation as the engine would: what is due first, then the outside's answers, then the thing
    /// itself. What it changes is applied, and the invariants are looked at.
    pub(super) fn run_operation(&mut self, actor: &Actor, call: Call) -> Decision {
        let mut operation =
            Operation { seed: self.next_seed(), actor: actor.clone(), call, check_answers: Vec::new(), trace: None };
        for _ in 0..MAX_DECIDE_ROUNDS {
            let decision = decide(&self.definitions, &self.world, &operation, self.now);
            match &decision {
                Decision::Due { records, at } => {
                    // One that is due may have to wait for another that is: after a long sleep, not for itself.
                    assert!(
                        !matches!(operation.call, Call::FireDue { record } if records.contains(&record)),
                        "what is due asks for itself: {operation:?}"
                    );
                    let clock = self.now;
                    self.now = clock.max(*at);
                    for record in records.clone() {
                        self.run_operation(&Actor::engine(), Call::FireDue { record });
                    }
                    self.now = clock;
                    continue;
                }
                Decision::NeedsChecks(questions) => {
                    let answers: Vec<_> = questions.iter().map(|question| self.answer_check(question)).collect();
                    operation.check_answers.extend(answers);
                    continue;
                }
                Decision::Missing(keys) => panic!("a world that is complete misses nothing, yet decide wants {keys:?}"),
                Decision::Changes(_) | Decision::NoOp(_) | Decision::Refusal(_) => {}
            }
            invariants::assert_deterministic(&decision, &decide(&self.definitions, &self.world, &operation, self.now));
            if let Decision::Changes(changes) = &decision {
                invariants::assert_before_apply(&self.world, &self.effects, changes);
                self.world.apply(changes);
                for effect in &changes.effects {
                    self.effects.entry(effect.record).or_default().push(effect.clone());
                }
                for new in &changes.payloads {
                    self.payloads.insert(new.payload.sha256, new.bytes.as_bytes().into());
                }
                invariants::assert_after_apply(&self.definitions, &self.world, changes);
            }
            self.log.push(SimulatedOperation { operation, now: self.now, decision: decision.clone() });
            return decision;
        }
        panic!("{MAX_DECIDE_ROUNDS} rounds and no decision: {operation:?}");
    }

    fn answer_check(&self, query: &CheckQuery) -> CheckAnswer {
        let name = (query.lifecycle.to_string(), query.check.to_string());
        let answerer = self.check_answerers.get(&name).unwrap_or_else(|| panic!("nobody answers the check {name:?}"));
        let bytes = query.payload.map(|payload| {
            self.payloads.get(&payload.sha256).unwrap_or_else(|| panic!("{name:?} asks of a payload nobody has seen"))
        });
        let Json::Object(answer) = answerer(query, bytes.map(|bytes| &**bytes)) else {
            panic!("the answer of {name:?} is not an object")
        };
        CheckAnswer {
            lifecycle: Arc::clone(&query.lifecycle),
            check: Arc::clone(&query.check),
            arguments: query.arguments.clone(),
            payload: query.payload,
            answer,
        }
    }

    /// The same play gives the same ids; a UUIDv7's time is no concern of a seed.
    fn next_seed(&mut self) -> u128 {
        self.operations_run += 1;
        let hash = Sha256::digest(self.operations_run.to_be_bytes());
        u128::from_be_bytes(hash[..16].try_into().expect("sixteen of thirty-two bytes"))
    }

    /// What the engine would have to do next, and when: the earliest, and of those the oldest record.
    fn next_due(&self) -> Option<(Time, RecordId)> {
        let records = self.world.records.values().flatten();
        records
            .filter_map(|record| next_due(record).map(|due| (due, record.created_at, record.id)))
            .min()
            .map(|(due, _, id)| (due, id))
    }

    pub fn lifecycle(&self, lifecycle: &str) -> &onceward_core::model::Lifecycle {
        self.definitions.get(lifecycle).unwrap_or_else(|| panic!("no lifecycle is called {lifecycle}"))
    }

    pub(crate) fn lifecycles(&self) -> impl Iterator<Item = &onceward_core::model::Lifecycle> {
        self.definitions.lifecycles.values().map(|lifecycle| &**lifecycle)
    }

    pub fn log(&self) -> &[SimulatedOperation] {
        &self.log
    }
}

/// `json!({...})` as the map that calls carry.
pub(super) fn object(json: Json) -> Map<String, Json> {
    match json {
        Json::Object(map) => map,
        other => panic!("{other} is not an object"),
    }
}
