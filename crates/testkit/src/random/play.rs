//! Playing random operations on a world, as the engine would: what is due first, what is asked answered.

use std::sync::Arc;

use onceward_core::check::check;
use onceward_core::compile::compile;
use onceward_core::decide::{Answer, Call, Decision, Operation, Question, Snapshot, decide, next_due};
use onceward_core::diagnostic::{File, Files, Severity, render_all};
use onceward_core::model::Definitions;
use onceward_core::record::Actor;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use serde_json::Map;

use super::calls;
use super::chance::Chance;
use super::property::{Broken, Property};
use super::values::plausible;

/// Operations of the engine's own that one call may wait for. Timers that fire each other for ever end here.
const DUE_FIRST: usize = 40;

/// Random files to definitions, and whether the checker calls them sound.
pub fn definitions(files: &[(String, String)]) -> (Definitions, bool) {
    let files = Files {
        files: files.iter().map(|(name, text)| File { name: name.clone(), text: text.as_str().into() }).collect(),
    };
    let compiled = compile(&files);
    let Some(definitions) = compiled.definitions else {
        panic!("a random file does not compile:\n{}", render_all(&compiled.diagnostics, &files, false));
    };
    let found = check(&definitions);
    let sound = found.iter().all(|diagnostic| diagnostic.severity != Severity::Error);
    if !sound && std::env::var_os("ONCEWARD_EXPLAIN").is_some() {
        println!("{}", render_all(&found, &files, false));
    }
    (definitions, sound)
}

/// How an operation was answered in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    Changed,
    NoOp,
    Refused,
    /// Timers that fire each other without an end, now.
    Endless,
}

/// How often what was answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub operations: u64,
    pub taken: u64,
    pub refused: u64,
    pub no_ops: u64,
    pub endless: u64,
}

/// One answered operation, before its changes are applied.
pub struct Step<'a> {
    pub definitions: &'a Definitions,
    /// What the checker says of the definitions.
    pub sound: bool,
    pub world: &'a Snapshot,
    pub operation: &'a Operation,
    pub now: Time,
    pub decision: &'a Decision,
}

pub struct Play {
    pub definitions: Definitions,
    pub sound: bool,
    pub world: Snapshot,
    pub now: Time,
    pub chance: Chance,
    pub tally: Tally,
    /// Every operation that was answered, with its time.
    pub log: Vec<(Operation, Time)>,
    /// In the order they were made, so that picking one does not depend on a hash map.
    pub records: Vec<RecordId>,
}

impl Play {
    pub fn new(definitions: Definitions, sound: bool, seed: u64) -> Self {
        Self {
            definitions,
            sound,
            world: Snapshot::world(),
            now: Time::from_secs(1_800_000_000),
            chance: Chance::new(seed),
            tally: Tally::default(),
            log: Vec::new(),
            records: Vec::new(),
        }
    }

    /// Some random operations, each held against the properties.
    pub fn play(&mut self, operations: usize, properties: &mut [Box<dyn Property>]) -> Result<(), Broken> {
        for _ in 0..operations {
            if self.chance.yes(12) {
                self.let_time_pass(properties)?;
            }
            let operation = calls::operation(self);
            let late = self.chance.yes(8).then(|| self.chance.between(1, 90_000_000));
            let now = late.map_or(self.now, |micros| Time::from_micros(self.now.micros() - micros));
            let said = self.settle(operation, now, properties)?;
            self.tally.operations += 1;
            match said {
                Said::Changed => self.tally.taken += 1,
                Said::NoOp => self.tally.no_ops += 1,
                Said::Refused => self.tally.refused += 1,
                Said::Endless => self.tally.endless += 1,
            }
        }
        Ok(())
    }

    fn let_time_pass(&mut self, properties: &mut [Box<dyn Property>]) -> Result<(), Broken> {
        let most = [2, 60, 600, 7_200][self.chance.below(4)];
        let micros = self.chance.between(0, most * 1_000_000);
        self.now = Time::from_micros(self.now.micros() + micros);
        if self.chance.yes(50) {
            return Ok(());
        }
        // The engine's own round, for some of them: the rest is met by whoever asks next.
        for id in self.records.clone() {
            let due = self.world.record(id).and_then(|record| next_due(record)).is_some_and(|due| due <= self.now);
            if due && self.chance.yes(70) {
                let due = self.due(id);
                self.settle(due, self.now, properties)?;
            }
        }
        Ok(())
    }

    /// The engine's operation on a record that is due.
    fn due(&mut self, record: RecordId) -> Operation {
        Operation {
            seed: self.chance.seed(),
            actor: Actor::engine(),
            call: Call::Due { record },
            answers: Vec::new(),
            trace: None,
        }
    }

    /// Decide, with all that has to come first, and apply the answer.
    pub fn settle(
        &mut self,
        mut operation: Operation,
        now: Time,
        properties: &mut [Box<dyn Property>],
    ) -> Result<Said, Broken> {
        let mut first = 0;
        loop {
            let decision = decide(&self.definitions, &self.world, &operation, now);
            self.look(&operation, now, &decision, properties)?;
            match decision {
                Decision::Due { records: ids, at } => {
                    let now = now.max(at);
                    first += ids.len();
                    if first > DUE_FIRST {
                        return Ok(Said::Endless);
                    }
                    for id in ids {
                        let due = self.due(id);
                        let decision = decide(&self.definitions, &self.world, &due, now);
                        self.look(&due, now, &decision, properties)?;
                        self.conclude(due, now, decision, properties)?;
                    }
                }
                Decision::Ask(questions) => {
                    for question in questions {
                        let answer = self.answer(&question);
                        operation.answers.push(answer);
                    }
                }
                other => return self.conclude(operation, now, other, properties),
            }
        }
    }

    fn look(
        &self,
        operation: &Operation,
        now: Time,
        decision: &Decision,
        properties: &mut [Box<dyn Property>],
    ) -> Result<(), Broken> {
        let step =
            Step { definitions: &self.definitions, sound: self.sound, world: &self.world, operation, now, decision };
        properties.iter_mut().try_for_each(|property| property.before(&step))
    }

    fn conclude(
        &mut self,
        operation: Operation,
        now: Time,
        decision: Decision,
        properties: &mut [Box<dyn Property>],
    ) -> Result<Said, Broken> {
        let said = match decision {
            Decision::Changes(changes) => {
                self.world.apply(&changes);
                let made = changes.records.iter().filter(|change| change.before.is_none());
                self.records.extend(made.map(|change| change.after.id));
                for property in properties {
                    property.after(&self.definitions, self.sound, &self.world, &changes)?;
                }
                Said::Changed
            }
            Decision::NoOp(_) => Said::NoOp,
            Decision::Refusal(_) => Said::Refused,
            // Another record is due inside a due one's operation: it comes first, and the engine comes back to this.
            Decision::Due { records: ids, at } => {
                let now = now.max(at);
                for id in ids {
                    let due = self.due(id);
                    let decision = decide(&self.definitions, &self.world, &due, now);
                    self.look(&due, now, &decision, properties)?;
                    if !matches!(decision, Decision::Due { .. }) {
                        self.conclude(due, now, decision, properties)?;
                    }
                }
                return Ok(Said::Endless);
            }
            Decision::Missing(keys) => {
                return Err(Broken::new(
                    "a whole world lacks nothing",
                    format!("{keys:?} missing for {:?}", operation.call),
                ));
            }
            // A careless row of the engine's asks the outside, and the engine does not answer.
            Decision::Ask(_) if !self.sound => return Ok(Said::Endless),
            Decision::Ask(questions) => {
                return Err(Broken::new("the engine's own events ask nobody", format!("{questions:?}")));
            }
        };
        self.log.push((operation, now));
        Ok(said)
    }

    fn answer(&mut self, question: &Question) -> Answer {
        let mut answer = Map::new();
        let lifecycle = self.definitions.get(&question.lifecycle).cloned();
        let check = lifecycle.iter().flat_map(|lifecycle| &lifecycle.checks).find(|check| check.name == question.check);
        for part in check.iter().flat_map(|check| &check.answer) {
            let mut value = plausible(&mut self.chance, part, self.now, &[]);
            // A yes more often than not, and no shape that only tests bad answers.
            if value.is_object() || (value.is_boolean() && self.chance.yes(60)) {
                value = if matches!(part.ty, onceward_core::model::Type::Bool) { true.into() } else { 3.into() };
            }
            answer.insert(part.name.to_string(), value);
        }
        Answer {
            lifecycle: Arc::clone(&question.lifecycle),
            check: Arc::clone(&question.check),
            arguments: question.arguments.clone(),
            payload: question.payload,
            answer,
        }
    }
}
