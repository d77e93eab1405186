//! The world of a simulator: its clock, its state, and how it runs an operation.

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

/// Maximum rounds of `Due` and `NeedsChecks` per operation. No lifecycle needs nearly as many, so more mean a cycle.
const MAX_DECIDE_ROUNDS: usize = 1_000;

/// Answers a check. The second argument is the payload, if the query has one.
pub(super) type CheckAnswerer = Rc<dyn Fn(&CheckQuery, Option<&[u8]>) -> Json>;

/// An operation that was run, and its decision.
#[derive(Clone, Debug)]
pub struct SimulatedOperation {
    pub operation: Operation,
    pub now: Time,
    pub decision: Decision,
}

/// A complete world in memory, with a manual clock.
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
    /// Returns an empty world on a Sunday evening.
    pub fn new(definitions: Definitions) -> Self {
        Self {
            definitions: Arc::new(definitions),
            world: Snapshot::empty_complete(),
            now: "2026-11-15T20:00:00Z".parse().expect("a valid time"),
            log: Vec::new(),
            effects: HashMap::new(),
            payloads: HashMap::new(),
            check_answerers: HashMap::new(),
            operations_run: 0,
        }
    }

    /// Sets the clock before the first operation.
    pub fn starting_at(mut self, time: &str) -> Self {
        self.now = time.parse().expect("a time, as 2026-01-31T12:00:00Z");
        self
    }

    /// Sets the answers of a check.
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

    /// Advances the clock while the engine runs: due timers fire and leases expire in order, each at its time.
    pub fn advance(&mut self, length: &str) {
        self.advance_by(length.parse().expect("a duration, as 30s"));
    }

    pub fn advance_by(&mut self, length: Duration) {
        let deadline = self.now.checked_add(length).expect("a valid time");
        while let Some((due, record)) = self.next_due().filter(|(due, _)| *due <= deadline) {
            self.now = self.now.max(due);
            self.run_operation(&Actor::engine(), Call::FireDue { record });
        }
        self.now = deadline;
    }

    /// Advances the clock while the engine is down: timers fire only at the next operation.
    pub fn advance_without_engine(&mut self, length: &str) {
        self.advance_without_engine_by(length.parse().expect("a duration, as 30s"));
    }

    pub fn advance_without_engine_by(&mut self, length: Duration) {
        self.now = self.now.checked_add(length).expect("a valid time");
    }

    /// Sets the clock back, as wrong clocks do.
    pub fn step_clock_back(&mut self, length: &str) {
        let length: Duration = length.parse().expect("a duration, as 30s");
        self.now = self.now.checked_sub(length).expect("a valid time");
    }

    /// Stores a payload under its hash.
    pub(crate) fn store_payload(&mut self, bytes: &[u8]) -> PayloadRef {
        let sha256: [u8; 32] = Sha256::digest(bytes).into();
        self.payloads.insert(sha256, bytes.into());
        PayloadRef { sha256, bytes: bytes.len() as u64 }
    }

    /// Runs an operation as the engine would: first due timers, then external checks, then the operation. Applies the
    /// changes and checks the invariants.
    pub(super) fn run_operation(&mut self, actor: &Actor, call: Call) -> Decision {
        let mut operation =
            Operation { seed: self.next_seed(), actor: actor.clone(), call, check_answers: Vec::new(), trace: None };
        for _ in 0..MAX_DECIDE_ROUNDS {
            let decision = decide(&self.definitions, &self.world, &operation, self.now);
            match &decision {
                Decision::Due { records, at } => {
                    // A due operation may wait for another due record, but never for its own.
                    assert!(
                        !matches!(operation.call, Call::FireDue { record } if records.contains(&record)),
                        "a due operation waits for itself: {operation:?}"
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
                Decision::Missing(keys) => panic!("decide misses {keys:?} in a complete world"),
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
        panic!("no decision after {MAX_DECIDE_ROUNDS} rounds: {operation:?}");
    }

    fn answer_check(&self, query: &CheckQuery) -> CheckAnswer {
        let name = (query.lifecycle.to_string(), query.check.to_string());
        let answerer = self.check_answerers.get(&name).unwrap_or_else(|| panic!("check {name:?} has no answerer"));
        let bytes = query.payload.map(|payload| {
            self.payloads.get(&payload.sha256).unwrap_or_else(|| panic!("check {name:?} needs an unknown payload"))
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

    /// Returns a deterministic seed, so that the same test gives the same ids.
    fn next_seed(&mut self) -> u128 {
        self.operations_run += 1;
        let hash = Sha256::digest(self.operations_run.to_be_bytes());
        u128::from_be_bytes(hash[..16].try_into().expect("16 of 32 bytes"))
    }

    /// Returns the next due time and its record. Of several records, the oldest comes first.
    fn next_due(&self) -> Option<(Time, RecordId)> {
        let records = self.world.records.values().flatten();
        records
            .filter_map(|record| next_due(record).map(|due| (due, record.created_at, record.id)))
            .min()
            .map(|(due, _, id)| (due, id))
    }

    pub fn lifecycle(&self, lifecycle: &str) -> &onceward_core::model::Lifecycle {
        self.definitions.get(lifecycle).unwrap_or_else(|| panic!("no lifecycle is named {lifecycle}"))
    }

    pub(crate) fn lifecycles(&self) -> impl Iterator<Item = &onceward_core::model::Lifecycle> {
        self.definitions.lifecycles.values().map(|lifecycle| &**lifecycle)
    }

    pub fn log(&self) -> &[SimulatedOperation] {
        &self.log
    }
}

/// Returns the map of a `json!({...})`.
pub(super) fn object(json: Json) -> Map<String, Json> {
    match json {
        Json::Object(map) => map,
        other => panic!("{other} is not an object"),
    }
}
