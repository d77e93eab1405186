//! Runs every trial in every scene for every caller.

use std::fmt::Write as _;

use onceward_core::decide::{Call, Decision, FailureReport, next_due};
use onceward_core::model::EventKind;
use onceward_core::record::{Actor, FencingToken};
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json};

use super::driver_record::{DRIVER_LIFECYCLE, DRIVER_OWNER, driver_lifecycle, required_inputs};
use super::participants::{MatrixCaller, MatrixTrial, SceneSubject};
use crate::{Simulator, fill_result_template, operator, systems, user, worker};

/// The scene without a record.
const NO_RECORD_SCENE: &str = "nothing";

/// Outcome of one caller's trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CellOutcome {
    /// The record changed and is now in this state, which may be the same as before.
    Changed(String),
    /// Nothing changed.
    Unchanged,
    Refused(String),
    /// The record has no timer or lease that can become due.
    NothingDue,
}

pub(super) struct MatrixLine {
    pub(super) scene: String,
    pub(super) trial: String,
    pub(super) cells: Vec<(String, CellOutcome)>,
}

struct MatrixScene {
    name: String,
    simulator: Simulator,
    subject: SceneSubject,
}

pub struct LifecycleMatrix {
    pub(super) system: String,
    pub(super) lifecycle: String,
    simulator: Simulator,
    callers: Vec<MatrixCaller>,
    scenes: Vec<MatrixScene>,
    trials: Vec<MatrixTrial>,
    create_fields: Map<String, Json>,
    payload: Option<Vec<u8>>,
    /// Whether a spawned record must refer to an existing record.
    spawn_needs_target: bool,
    /// Owners of the driver record: one that no rule of the lifecycle names, and optionally one with user authority.
    drivers: Vec<MatrixCaller>,
}

impl LifecycleMatrix {
    /// Returns the matrix of a shipped lifecycle. Alice owns its records. `spawned` has the names and expressions of
    /// the fields that another record gives in a spawn.
    pub fn new(
        system: &str,
        lifecycle: &str,
        spawned: &[(&str, &str)],
        configure: impl FnOnce(Simulator) -> Simulator,
    ) -> Self {
        let definitions = systems::load_system(system);
        let lifecycle_model = definitions.get(lifecycle).unwrap_or_else(|| panic!("{system} has no {lifecycle}"));
        let events: Vec<String> = lifecycle_model
            .events
            .iter()
            .filter(|event| event.kind == EventKind::Called)
            .map(|event| event.name.to_string())
            .collect();
        let text = driver_lifecycle(lifecycle_model, &events, spawned);
        let simulator = configure(Simulator::new(systems::load_with_files(system, &[("puppet.toml", &text)])));
        let callers = vec![
            MatrixCaller { name: "owner", actor: user("alice") },
            MatrixCaller { name: "operator", actor: operator("olga") },
            MatrixCaller { name: "stranger", actor: user("mallory") },
            MatrixCaller { name: "viewer", actor: Actor::new("alice", &["viewer"]) },
            MatrixCaller { name: "worker", actor: worker("w1") },
            MatrixCaller { name: "another worker", actor: worker("w2") },
        ];
        let trials = events.into_iter().map(|event| MatrixTrial::Fire { event, input: Map::new() }).collect();
        Self {
            system: system.to_owned(),
            lifecycle: lifecycle.to_owned(),
            simulator,
            callers,
            scenes: Vec::new(),
            trials,
            create_fields: Map::new(),
            payload: None,
            spawn_needs_target: spawned.iter().any(|(_, expression)| expression.contains("record.target")),
            drivers: vec![MatrixCaller { name: "record", actor: user(DRIVER_OWNER) }],
        }
    }

    /// Also tries events from a record whose operation was started with user authority.
    pub fn with_user_authority_record(mut self) -> Self {
        self.drivers.push(MatrixCaller { name: "user's record", actor: Actor { user: true, ..user(DRIVER_OWNER) } });
        self
    }

    /// Adds a kind of caller from the lifecycle's `[who]`.
    pub fn with_caller(mut self, name: &'static str, actor: Actor) -> Self {
        self.callers.push(MatrixCaller { name, actor });
        self
    }

    pub fn with_owner(mut self, actor: Actor) -> Self {
        self.callers[0].actor = actor;
        self
    }

    /// Sets the fields and the payload of a creation.
    pub fn with_create_input(mut self, fields: Map<String, Json>, payload: Option<&[u8]>) -> Self {
        self.create_fields = fields;
        self.payload = payload.map(<[u8]>::to_vec);
        self
    }

    pub fn with_trial(mut self, trial: MatrixTrial) -> Self {
        self.trials.push(trial);
        self
    }

    /// Adds the trials of workers. `{id}` in a text of the result stands for the job's id.
    pub fn with_work_trials(mut self, result: &Json, codes: &[&str]) -> Self {
        self.trials.extend([MatrixTrial::Lease, MatrixTrial::Start, MatrixTrial::Heartbeat]);
        self.trials.push(MatrixTrial::Commit { result: result.clone(), finish: false });
        self.trials.push(MatrixTrial::Commit { result: result.clone(), finish: true });
        self.trials.push(MatrixTrial::Finish);
        self.trials.extend(codes.iter().map(|code| MatrixTrial::Fail { code: (*code).to_owned(), retryable: None }));
        self.trials.extend([MatrixTrial::Yield, MatrixTrial::LoseLease]);
        self
    }

    /// Adds a record in a state, built by real operations. The name is the state, or `STATE: special condition`.
    pub fn with_scene<C: Into<SceneSubject>>(mut self, name: &str, build: impl FnOnce(&mut Simulator) -> C) -> Self {
        let mut simulator = self.simulator.clone();
        let subject = build(&mut simulator).into();
        let expected_state = name.split(':').next().unwrap_or(name);
        assert_eq!(simulator.state(subject.record), expected_state, "scene {name:?} has another state");
        self.scenes.push(MatrixScene { name: name.to_owned(), simulator, subject });
        self
    }

    pub(super) fn run(&self) -> Vec<MatrixLine> {
        for state in &self.simulator.lifecycle(&self.lifecycle).states {
            let shown = self.scenes.iter().any(|scene| scene.name.split(':').next() == Some(&state.name));
            assert!(shown || state.is_reserved, "no scene has state {}", state.name);
        }
        let mut lines = vec![self.run_creation()];
        for scene in &self.scenes {
            for trial in self.trials.iter().chain([&MatrixTrial::WaitUntilDue]) {
                let cells = self.run_trial(scene, trial);
                lines.push(MatrixLine { scene: scene.name.clone(), trial: trial.name(), cells });
            }
        }
        lines
    }

    fn run_creation(&self) -> MatrixLine {
        let mut cells = Vec::new();
        for caller in &self.callers {
            let mut simulator = self.simulator.clone();
            let mut attempt =
                simulator.create(&self.lifecycle, &caller.actor).with_all(Json::Object(self.create_fields.clone()));
            if let Some(bytes) = &self.payload {
                attempt = attempt.payload(bytes);
            }
            let outcome = attempt.run();
            cells.push((caller.name.to_owned(), outcome_of(&outcome.decision, &simulator, None)));
        }
        // If the new record must refer to an existing one, use the record of the first scene.
        let (mut simulator, target) = match self.scenes.first().filter(|_| self.spawn_needs_target) {
            Some(scene) => (scene.simulator.clone(), Some(scene.subject.record)),
            None => (self.simulator.clone(), None),
        };
        let driver = self.create_driver(&mut simulator, target);
        let outcome = simulator.fire(driver, "make_one", &user(DRIVER_OWNER)).run();
        let cell = match outcome_of(&outcome.decision, &simulator, None) {
            CellOutcome::Changed(_) => CellOutcome::Changed(spawned_state(&outcome.decision, &self.lifecycle)),
            other => other,
        };
        cells.push(("record".to_owned(), cell));
        MatrixLine { scene: NO_RECORD_SCENE.to_owned(), trial: "create".to_owned(), cells }
    }

    fn create_driver(&self, simulator: &mut Simulator, target: Option<RecordId>) -> RecordId {
        let mut attempt = simulator.create(DRIVER_LIFECYCLE, &operator("olga")).owner(DRIVER_OWNER);
        if let Some(bytes) = &self.payload {
            attempt = attempt.payload(bytes);
        }
        match target {
            Some(target) => attempt.with("target", target.to_string()).expect_ok(),
            None => attempt.expect_ok(),
        }
    }

    fn run_trial(&self, scene: &MatrixScene, trial: &MatrixTrial) -> Vec<(String, CellOutcome)> {
        let record = scene.subject.record;
        let own_token = FencingToken(scene.simulator.record(record).attempt);
        let run_call = |actor: &Actor, call: Call| {
            let mut simulator = scene.simulator.clone();
            let outcome = simulator.call(actor, call).run();
            outcome_of(&outcome.decision, &simulator, Some(record))
        };
        let by_all = |call: &dyn Fn() -> Call| -> Vec<(String, CellOutcome)> {
            self.callers.iter().map(|caller| (caller.name.to_owned(), run_call(&caller.actor, call()))).collect()
        };
        // Every caller tries a call with the correct token, and a worker tries it with another token.
        let by_token_holders = |call: &dyn Fn(FencingToken) -> Call| {
            let mut cells = by_all(&|| call(own_token));
            cells.push(("other token".to_owned(), run_call(&worker("w1"), call(FencingToken(own_token.0 + 1)))));
            cells
        };
        match trial {
            MatrixTrial::Fire { event, input } => {
                let mut cells: Vec<_> = self
                    .callers
                    .iter()
                    .map(|caller| {
                        let token =
                            scene.subject.lease.as_ref().filter(|_| caller.name == "worker").map(|lease| lease.token);
                        let (event, input) = (event.as_str().into(), input.clone());
                        let call = Call::Fire { record, event, input, token, if_version: None };
                        (caller.name.to_owned(), run_call(&caller.actor, call))
                    })
                    .collect();
                // A driver record can send only the required inputs.
                let needs = required_inputs(self.simulator.lifecycle(&self.lifecycle), event);
                if input.len() == needs.len() && needs.iter().all(|field| input.contains_key(&*field.name)) {
                    for driver_caller in &self.drivers {
                        let mut simulator = scene.simulator.clone();
                        let driver = self.create_driver(&mut simulator, Some(record));
                        let sent = simulator.fire(driver, &format!("send_{event}"), &driver_caller.actor);
                        let outcome = sent.with_all(Json::Object(input.clone())).run();
                        cells.push((
                            driver_caller.name.to_owned(),
                            outcome_of(&outcome.decision, &simulator, Some(record)),
                        ));
                    }
                }
                cells
            }
            MatrixTrial::Lease => by_all(&|| Call::Lease { record, worker: "w1".into(), lease: None, start: false }),
            MatrixTrial::Start => by_token_holders(&|token| Call::Start { record, token }),
            MatrixTrial::Heartbeat => by_token_holders(&|token| Call::Heartbeat { record, token, lease: None }),
            MatrixTrial::Commit { result, finish } => by_token_holders(&|token| Call::Commit {
                record,
                token,
                result: fill_result_template(record, result),
                finish: *finish,
            }),
            MatrixTrial::Finish => by_token_holders(&|token| Call::Finish { record, token }),
            MatrixTrial::Fail { code, retryable } => by_token_holders(&|token| {
                let (code, message) = (code.as_str().into(), "failed".into());
                let error = FailureReport { code, message, retryable: *retryable, retry_after: None };
                Call::Fail { record, token, error }
            }),
            MatrixTrial::Yield => by_token_holders(&|token| Call::Yield { record, token }),
            MatrixTrial::LoseLease => {
                vec![("engine".to_owned(), run_call(&Actor::engine(), Call::LoseLease { record, token: own_token }))]
            }
            MatrixTrial::WaitUntilDue => vec![("engine".to_owned(), wait_until_due(scene))],
        }
    }
}

/// Advances to the record's next timer or lease expiry, and returns the outcome.
fn wait_until_due(scene: &MatrixScene) -> CellOutcome {
    let mut simulator = scene.simulator.clone();
    let record = simulator.record(scene.subject.record);
    let Some(due) = next_due(&record) else { return CellOutcome::NothingDue };
    if let Some(length) = due.duration_since(simulator.now()) {
        simulator.advance_without_engine_by(length.max(onceward_core::time::Duration::ZERO));
    }
    let outcome = simulator.call(&Actor::engine(), Call::FireDue { record: record.id }).run();
    outcome_of(&outcome.decision, &simulator, Some(record.id))
}

fn outcome_of(decision: &Decision, simulator: &Simulator, record: Option<RecordId>) -> CellOutcome {
    match decision {
        Decision::Changes(changes) => CellOutcome::Changed(simulator.state(record.unwrap_or(changes.subject))),
        Decision::NoOp(_) => CellOutcome::Unchanged,
        Decision::Refusal(refusal) => CellOutcome::Refused(format!("{} {}", refusal.status, refusal.code)),
        other => panic!("no outcome: {other:?}"),
    }
}

/// Returns the state of the record that the driver spawned.
fn spawned_state(decision: &Decision, lifecycle: &str) -> String {
    let Decision::Changes(changes) = decision else { return String::new() };
    let new =
        changes.records.iter().find(|change| change.before.is_none() && *change.after.lifecycle.name == *lifecycle);
    new.map_or_else(|| "nothing".to_owned(), |change| change.after.state_name().to_string())
}

/// Renders the matrix as the reviewed text. Callers with the same outcome share a line.
pub(super) fn render(lifecycle: &str, lines: &[MatrixLine]) -> String {
    let mut text = format!(
        "{lifecycle}: what every event does in every state, for every caller.\n\
         `-> S` moves to S, `stays` changes it where it is, `same` changes nothing, a number is a refusal.\n"
    );
    let mut scene = "";
    for line in lines {
        if line.scene != scene {
            scene = &line.scene;
            let _ = write!(text, "\n{scene}\n");
        }
        let state = scene.split(':').next().unwrap_or(scene);
        let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
        for (caller, cell) in &line.cells {
            let label = match cell {
                CellOutcome::Changed(to) if to == state => "stays".to_owned(),
                CellOutcome::Changed(to) => format!("-> {to}"),
                CellOutcome::Unchanged => "same".to_owned(),
                CellOutcome::Refused(code) => code.clone(),
                CellOutcome::NothingDue => "nothing is due".to_owned(),
            };
            match groups.iter_mut().find(|(other, _)| *other == label) {
                Some((_, callers)) => callers.push(caller),
                None => groups.push((label, vec![caller])),
            }
        }
        let cells: Vec<_> = groups.iter().map(|(label, callers)| format!("{}: {label}", callers.join(", "))).collect();
        let _ = writeln!(text, "  {:<24} {}", line.trial, cells.join(" | "));
    }
    text
}
