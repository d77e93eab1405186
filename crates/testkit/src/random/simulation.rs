//! Runs random operations on a world as the engine would: first due timers, then external checks.

use std::sync::Arc;

use onceward_core::analysis::analyze;
use onceward_core::compile::compile;
use onceward_core::decide::{Call, CheckAnswer, CheckQuery, Decision, Operation, Snapshot, decide, next_due};
use onceward_core::diagnostic::{InputFile, InputFiles, Severity, render_all};
use onceward_core::model::Definitions;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use serde_json::Map;

use super::operations;
use super::property::{Property, PropertyViolation};
use super::rng::Rng;
use super::values::random_value;

/// Maximum engine operations before one call. Timers that fire each other forever end here.
const MAX_DUE_OPERATIONS: usize = 40;

/// Compiles random files, and returns whether static analysis finds them sound.
pub fn compile_definitions(files: &[(String, String)]) -> (Definitions, bool) {
    let files = InputFiles {
        files: files.iter().map(|(name, text)| InputFile { name: name.clone(), text: text.as_str().into() }).collect(),
    };
    let compiled = compile(&files);
    let Some(definitions) = compiled.definitions else {
        panic!("a random file does not compile:\n{}", render_all(&compiled.diagnostics, &files, false));
    };
    let found = analyze(&definitions);
    let is_sound = found.iter().all(|diagnostic| diagnostic.severity != Severity::Error);
    if !is_sound && std::env::var_os("ONCEWARD_EXPLAIN").is_some() {
        println!("{}", render_all(&found, &files, false));
    }
    (definitions, is_sound)
}

/// Final result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationResult {
    Changed,
    NoOp,
    Refused,
    /// Timers fire each other forever without delay.
    EndlessTimers,
}

/// Counts of operations by result.
#[derive(Clone, Copy, Debug, Default)]
pub struct OperationCounts {
    pub operations: u64,
    pub changed: u64,
    pub refused: u64,
    pub no_ops: u64,
    pub endless_timers: u64,
}

/// A decided operation, before its changes are applied.
pub struct DecisionStep<'a> {
    pub definitions: &'a Definitions,
    /// Result of static analysis of the definitions.
    pub is_sound: bool,
    pub world: &'a Snapshot,
    pub operation: &'a Operation,
    pub now: Time,
    pub decision: &'a Decision,
}

pub struct Simulation {
    pub definitions: Definitions,
    pub is_sound: bool,
    pub world: Snapshot,
    pub now: Time,
    pub rng: Rng,
    pub counts: OperationCounts,
    /// Every decided operation, with its time.
    pub log: Vec<(Operation, Time)>,
    /// In creation order, so that random picks do not depend on a hash map.
    pub records: Vec<RecordId>,
}

impl Simulation {
    pub fn new(definitions: Definitions, is_sound: bool, seed: u64) -> Self {
        Self {
            definitions,
            is_sound,
            world: Snapshot::empty_complete(),
            now: Time::from_secs(1_800_000_000),
            rng: Rng::new(seed),
            counts: OperationCounts::default(),
            log: Vec::new(),
            records: Vec::new(),
        }
    }

    /// Runs random operations and checks the properties on each.
    pub fn run_operations(
        &mut self,
        operations: usize,
        properties: &mut [Box<dyn Property>],
    ) -> Result<(), PropertyViolation> {
        for _ in 0..operations {
            if self.rng.percent(12) {
                self.advance_time(properties)?;
            }
            let operation = operations::random_operation(self);
            let clock_lag_micros = self.rng.percent(8).then(|| self.rng.between(1, 90_000_000));
            let now = clock_lag_micros.map_or(self.now, |micros| Time::from_micros(self.now.micros() - micros));
            let result = self.decide_and_apply(operation, now, properties)?;
            self.counts.operations += 1;
            match result {
                OperationResult::Changed => self.counts.changed += 1,
                OperationResult::NoOp => self.counts.no_ops += 1,
                OperationResult::Refused => self.counts.refused += 1,
                OperationResult::EndlessTimers => self.counts.endless_timers += 1,
            }
        }
        Ok(())
    }

    fn advance_time(&mut self, properties: &mut [Box<dyn Property>]) -> Result<(), PropertyViolation> {
        let max_seconds = [2, 60, 600, 7_200][self.rng.below(4)];
        let micros = self.rng.between(0, max_seconds * 1_000_000);
        self.now = Time::from_micros(self.now.micros() + micros);
        if self.rng.percent(50) {
            return Ok(());
        }
        // The scheduler fires some of the due timers. The next operation on the record fires the others.
        for id in self.records.clone() {
            let due = self.world.record(id).and_then(|record| next_due(record)).is_some_and(|due| due <= self.now);
            if due && self.rng.percent(70) {
                let due = self.due_operation(id);
                self.decide_and_apply(due, self.now, properties)?;
            }
        }
        Ok(())
    }

    /// Returns the engine's operation on a due record.
    fn due_operation(&mut self, record: RecordId) -> Operation {
        Operation {
            seed: self.rng.next_seed(),
            actor: Actor::engine(),
            call: Call::FireDue { record },
            check_answers: Vec::new(),
            trace: None,
        }
    }

    /// Decides an operation after everything that must come first, and applies its changes.
    pub fn decide_and_apply(
        &mut self,
        mut operation: Operation,
        now: Time,
        properties: &mut [Box<dyn Property>],
    ) -> Result<OperationResult, PropertyViolation> {
        let mut due_count = 0;
        loop {
            let decision = decide(&self.definitions, &self.world, &operation, now);
            self.observe_decision(&operation, now, &decision, properties)?;
            match decision {
                Decision::Due { records: ids, at } => {
                    let now = now.max(at);
                    due_count += ids.len();
                    if due_count > MAX_DUE_OPERATIONS {
                        return Ok(OperationResult::EndlessTimers);
                    }
                    for id in ids {
                        let due = self.due_operation(id);
                        let decision = decide(&self.definitions, &self.world, &due, now);
                        self.observe_decision(&due, now, &decision, properties)?;
                        self.apply_decision(due, now, decision, properties)?;
                    }
                }
                Decision::NeedsChecks(questions) => {
                    for question in questions {
                        let answer = self.answer_check(&question);
                        operation.check_answers.push(answer);
                    }
                }
                other => return self.apply_decision(operation, now, other, properties),
            }
        }
    }

    fn observe_decision(
        &self,
        operation: &Operation,
        now: Time,
        decision: &Decision,
        properties: &mut [Box<dyn Property>],
    ) -> Result<(), PropertyViolation> {
        let step = DecisionStep {
            definitions: &self.definitions,
            is_sound: self.is_sound,
            world: &self.world,
            operation,
            now,
            decision,
        };
        properties.iter_mut().try_for_each(|property| property.on_decision(&step))
    }

    fn apply_decision(
        &mut self,
        operation: Operation,
        now: Time,
        decision: Decision,
        properties: &mut [Box<dyn Property>],
    ) -> Result<OperationResult, PropertyViolation> {
        let result = match decision {
            Decision::Changes(changes) => {
                self.world.apply(&changes);
                let made = changes.records.iter().filter(|change| change.before.is_none());
                self.records.extend(made.map(|change| change.after.id));
                for property in properties {
                    property.on_applied(&self.definitions, self.is_sound, &self.world, &changes)?;
                }
                OperationResult::Changed
            }
            Decision::NoOp(_) => OperationResult::NoOp,
            Decision::Refusal(_) => OperationResult::Refused,
            // Another record is due inside a due operation. The engine processes it first, then returns to this one.
            Decision::Due { records: ids, at } => {
                let now = now.max(at);
                for id in ids {
                    let due = self.due_operation(id);
                    let decision = decide(&self.definitions, &self.world, &due, now);
                    self.observe_decision(&due, now, &decision, properties)?;
                    if !matches!(decision, Decision::Due { .. }) {
                        self.apply_decision(due, now, decision, properties)?;
                    }
                }
                return Ok(OperationResult::EndlessTimers);
            }
            Decision::Missing(keys) => {
                return Err(PropertyViolation::new(
                    "a complete world misses no key",
                    format!("{keys:?} missing for {:?}", operation.call),
                ));
            }
            // An unsound transition of the engine asks a check, which the engine does not answer.
            Decision::NeedsChecks(_) if !self.is_sound => return Ok(OperationResult::EndlessTimers),
            Decision::NeedsChecks(questions) => {
                return Err(PropertyViolation::new("engine events ask no check", format!("{questions:?}")));
            }
        };
        self.log.push((operation, now));
        Ok(result)
    }

    fn answer_check(&mut self, question: &CheckQuery) -> CheckAnswer {
        let mut answer = Map::new();
        let lifecycle = self.definitions.get(&question.lifecycle).cloned();
        let check = lifecycle.iter().flat_map(|lifecycle| &lifecycle.checks).find(|check| check.name == question.check);
        for part in check.iter().flat_map(|check| &check.answer_fields) {
            let mut value = random_value(&mut self.rng, part, self.now, &[]);
            // Mostly true, and without shapes that only test invalid answers.
            if value.is_object() || (value.is_boolean() && self.rng.percent(60)) {
                value = if matches!(part.ty, onceward_core::model::DataType::Bool) { true.into() } else { 3.into() };
            }
            answer.insert(part.name.to_string(), value);
        }
        CheckAnswer {
            lifecycle: Arc::clone(&question.lifecycle),
            check: Arc::clone(&question.check),
            arguments: question.arguments.clone(),
            payload: question.payload,
            answer,
        }
    }
}
