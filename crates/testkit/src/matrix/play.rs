//! Playing every trial in every scene for every caller.

use std::fmt::Write as _;

use onceward_core::decide::{Call, Decision, ErrorReport, next_due};
use onceward_core::model::EventKind;
use onceward_core::record::{Actor, Token};
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json};

use super::cast::{Caller, Cast, Trial};
use super::puppet::{PUPPET, PUPPETEER, needs, puppet};
use crate::{Stage, brought, operator, systems, user, worker};

/// The scene before a record is there.
const NOTHING: &str = "nothing";

/// What one caller's trial came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    /// The record is now in this state, and was changed (perhaps only where it stands).
    Moves(String),
    /// Already so.
    Same,
    Refused(String),
    /// There is nothing to try: nobody holds a lease, nothing is due.
    None,
}

pub(super) struct Line {
    pub(super) scene: String,
    pub(super) trial: String,
    pub(super) cells: Vec<(String, Cell)>,
}

struct Scene {
    name: String,
    stage: Stage,
    cast: Cast,
}

pub struct Matrix {
    pub(super) system: String,
    pub(super) lifecycle: String,
    stage: Stage,
    callers: Vec<Caller>,
    scenes: Vec<Scene>,
    trials: Vec<Trial>,
    create: Map<String, Json>,
    payload: Option<Vec<u8>>,
    /// Whether what another record makes must point at a record that is there.
    points: bool,
    /// Who moves the puppet: nobody whom any rule knows, and perhaps somebody with the user's authority.
    puppeteers: Vec<Caller>,
}

impl Matrix {
    /// The matrix of a shipped lifecycle. Alice owns its records. `spawned` is what another record gives when it makes
    /// one: names and expressions.
    pub fn new(system: &str, lifecycle: &str, spawned: &[(&str, &str)], dress: impl FnOnce(Stage) -> Stage) -> Self {
        let definitions = systems::load(system);
        let own = definitions.get(lifecycle).unwrap_or_else(|| panic!("{system} has no {lifecycle}"));
        let events: Vec<String> = own
            .events
            .iter()
            .filter(|event| event.kind == EventKind::Called)
            .map(|event| event.name.to_string())
            .collect();
        let text = puppet(own, &events, spawned);
        let stage = dress(Stage::new(systems::load_with(system, &[("puppet.toml", &text)])));
        let callers = vec![
            Caller { name: "owner", actor: user("alice") },
            Caller { name: "operator", actor: operator("olga") },
            Caller { name: "stranger", actor: user("mallory") },
            Caller { name: "viewer", actor: Actor::new("alice", &["viewer"]) },
            Caller { name: "worker", actor: worker("w1") },
            Caller { name: "another worker", actor: worker("w2") },
        ];
        let trials = events.into_iter().map(|event| Trial::Fire { event, input: Map::new() }).collect();
        Self {
            system: system.to_owned(),
            lifecycle: lifecycle.to_owned(),
            stage,
            callers,
            scenes: Vec::new(),
            trials,
            create: Map::new(),
            payload: None,
            points: spawned.iter().any(|(_, expression)| expression.contains("record.target")),
            puppeteers: vec![Caller { name: "record", actor: user(PUPPETEER) }],
        }
    }

    /// Also what another record sends when somebody with the user's authority began it.
    pub fn with_users_record(mut self) -> Self {
        self.puppeteers.push(Caller { name: "user's record", actor: Actor { user: true, ..user(PUPPETEER) } });
        self
    }

    /// A further kind of caller, one that the lifecycle's `[who]` names.
    pub fn caller(mut self, name: &'static str, actor: Actor) -> Self {
        self.callers.push(Caller { name, actor });
        self
    }

    pub fn owner_is(mut self, actor: Actor) -> Self {
        self.callers[0].actor = actor;
        self
    }

    /// What a caller gives to make one.
    pub fn given(mut self, fields: Map<String, Json>, payload: Option<&[u8]>) -> Self {
        self.create = fields;
        self.payload = payload.map(<[u8]>::to_vec);
        self
    }

    pub fn trial(mut self, trial: Trial) -> Self {
        self.trials.push(trial);
        self
    }

    /// The trials of a lifecycle that workers work on. `{id}` in a text of the result stands for the job's id.
    pub fn works(mut self, result: &Json, codes: &[&str]) -> Self {
        self.trials.extend([Trial::Lease, Trial::Start, Trial::Heartbeat]);
        self.trials.push(Trial::Commit { result: result.clone(), finish: false });
        self.trials.push(Trial::Commit { result: result.clone(), finish: true });
        self.trials.push(Trial::Finish);
        self.trials.extend(codes.iter().map(|code| Trial::Fail { code: (*code).to_owned(), retryable: None }));
        self.trials.extend([Trial::Yield, Trial::Lost]);
        self
    }

    /// A record in a state, brought there by real operations. The name is the state, or `STATE: what is special`.
    pub fn scene<C: Into<Cast>>(mut self, name: &str, build: impl FnOnce(&mut Stage) -> C) -> Self {
        let mut stage = self.stage.clone();
        let cast = build(&mut stage).into();
        let promised = name.split(':').next().unwrap_or(name);
        assert_eq!(stage.state(cast.record), promised, "the scene {name:?} does not lead there");
        self.scenes.push(Scene { name: name.to_owned(), stage, cast });
        self
    }

    pub(super) fn lines(&self) -> Vec<Line> {
        for state in &self.stage.definition(&self.lifecycle).states {
            let shown = self.scenes.iter().any(|scene| scene.name.split(':').next() == Some(&state.name));
            assert!(shown || state.reserved, "no scene shows {}", state.name);
        }
        let mut lines = vec![self.creation()];
        for scene in &self.scenes {
            for trial in self.trials.iter().chain([&Trial::Wait]) {
                let cells = self.cells(scene, trial);
                lines.push(Line { scene: scene.name.clone(), trial: trial.name(), cells });
            }
        }
        lines
    }

    fn creation(&self) -> Line {
        let mut cells = Vec::new();
        for caller in &self.callers {
            let mut stage = self.stage.clone();
            let mut attempt = stage.create(&self.lifecycle, &caller.actor).with_all(Json::Object(self.create.clone()));
            if let Some(bytes) = &self.payload {
                attempt = attempt.payload(bytes);
            }
            let outcome = attempt.outcome();
            cells.push((caller.name.to_owned(), cell_of(&outcome.decision, &stage, None)));
        }
        // A real record to point to, where the new one must point at something.
        let (mut stage, target) = match self.scenes.first().filter(|_| self.points) {
            Some(scene) => (scene.stage.clone(), Some(scene.cast.record)),
            None => (self.stage.clone(), None),
        };
        let puppet = self.puppet(&mut stage, target);
        let outcome = stage.fire(puppet, "make_one", &user(PUPPETEER)).outcome();
        let cell = match cell_of(&outcome.decision, &stage, None) {
            Cell::Moves(_) => Cell::Moves(made(&outcome.decision, &self.lifecycle)),
            other => other,
        };
        cells.push(("record".to_owned(), cell));
        Line { scene: NOTHING.to_owned(), trial: "create".to_owned(), cells }
    }

    fn puppet(&self, stage: &mut Stage, target: Option<RecordId>) -> RecordId {
        let mut attempt = stage.create(PUPPET, &operator("olga")).owner(PUPPETEER);
        if let Some(bytes) = &self.payload {
            attempt = attempt.payload(bytes);
        }
        match target {
            Some(target) => attempt.with("target", target.to_string()).ok(),
            None => attempt.ok(),
        }
    }

    fn cells(&self, scene: &Scene, trial: &Trial) -> Vec<(String, Cell)> {
        let record = scene.cast.record;
        let own = Token(scene.stage.record(record).attempt);
        let play = |actor: &Actor, call: Call| {
            let mut stage = scene.stage.clone();
            let outcome = stage.attempt(actor, call).outcome();
            cell_of(&outcome.decision, &stage, Some(record))
        };
        let by_all = |call: &dyn Fn() -> Call| -> Vec<(String, Cell)> {
            self.callers.iter().map(|caller| (caller.name.to_owned(), play(&caller.actor, call()))).collect()
        };
        // What carries a token is tried with the right one by everybody, and by a worker with another.
        let worked = |call: &dyn Fn(Token) -> Call| {
            let mut cells = by_all(&|| call(own));
            cells.push(("other token".to_owned(), play(&worker("w1"), call(Token(own.0 + 1)))));
            cells
        };
        match trial {
            Trial::Fire { event, input } => {
                let mut cells: Vec<_> = self
                    .callers
                    .iter()
                    .map(|caller| {
                        let token =
                            scene.cast.lease.as_ref().filter(|_| caller.name == "worker").map(|lease| lease.token);
                        let (event, input) = (event.as_str().into(), input.clone());
                        let call = Call::Fire { record, event, input, token, if_version: None };
                        (caller.name.to_owned(), play(&caller.actor, call))
                    })
                    .collect();
                // With nothing in hand, or with what the event cannot do without.
                let needs = needs(self.stage.definition(&self.lifecycle), event);
                if input.len() == needs.len() && needs.iter().all(|field| input.contains_key(&*field.name)) {
                    for puppeteer in &self.puppeteers {
                        let mut stage = scene.stage.clone();
                        let puppet = self.puppet(&mut stage, Some(record));
                        let sent = stage.fire(puppet, &format!("send_{event}"), &puppeteer.actor);
                        let outcome = sent.with_all(Json::Object(input.clone())).outcome();
                        cells.push((puppeteer.name.to_owned(), cell_of(&outcome.decision, &stage, Some(record))));
                    }
                }
                cells
            }
            Trial::Lease => by_all(&|| Call::Lease { record, worker: "w1".into(), lease: None, start: false }),
            Trial::Start => worked(&|token| Call::Start { record, token }),
            Trial::Heartbeat => worked(&|token| Call::Heartbeat { record, token, lease: None }),
            Trial::Commit { result, finish } => {
                worked(&|token| Call::Commit { record, token, result: brought(record, result), finish: *finish })
            }
            Trial::Finish => worked(&|token| Call::Finish { record, token }),
            Trial::Fail { code, retryable } => worked(&|token| {
                let (code, message) = (code.as_str().into(), "it failed".into());
                let error = ErrorReport { code, message, retryable: *retryable, retry_after: None };
                Call::Fail { record, token, error }
            }),
            Trial::Yield => worked(&|token| Call::Yield { record, token }),
            Trial::Lost => vec![("engine".to_owned(), play(&Actor::engine(), Call::Lost { record, token: own }))],
            Trial::Wait => vec![("engine".to_owned(), wait(scene))],
        }
    }
}

/// Until the record's own next timer or lease end, and what the engine then does.
fn wait(scene: &Scene) -> Cell {
    let mut stage = scene.stage.clone();
    let record = stage.record(scene.cast.record);
    let Some(due) = next_due(&record) else { return Cell::None };
    if let Some(length) = due.since(stage.now()) {
        stage.doze_for(length.max(onceward_core::time::Duration::ZERO));
    }
    let outcome = stage.attempt(&Actor::engine(), Call::Due { record: record.id }).outcome();
    cell_of(&outcome.decision, &stage, Some(record.id))
}

fn cell_of(decision: &Decision, stage: &Stage, about: Option<RecordId>) -> Cell {
    match decision {
        Decision::Changes(changes) => Cell::Moves(stage.state(about.unwrap_or(changes.subject))),
        Decision::NoOp(_) => Cell::Same,
        Decision::Refusal(refusal) => Cell::Refused(format!("{} {}", refusal.status, refusal.code)),
        other => panic!("no answer: {other:?}"),
    }
}

/// The state of the one that the puppet made.
fn made(decision: &Decision, lifecycle: &str) -> String {
    let Decision::Changes(changes) = decision else { return String::new() };
    let new =
        changes.records.iter().find(|change| change.before.is_none() && *change.after.lifecycle.name == *lifecycle);
    new.map_or_else(|| "nothing".to_owned(), |change| change.after.state_name().to_string())
}

/// The matrix as the text that is reviewed: callers to whom the same happens stand together.
pub(super) fn text(lifecycle: &str, lines: &[Line]) -> String {
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
            let told = match cell {
                Cell::Moves(to) if to == state => "stays".to_owned(),
                Cell::Moves(to) => format!("-> {to}"),
                Cell::Same => "same".to_owned(),
                Cell::Refused(code) => code.clone(),
                Cell::None => "nothing is due".to_owned(),
            };
            match groups.iter_mut().find(|(other, _)| *other == told) {
                Some((_, callers)) => callers.push(caller),
                None => groups.push((told, vec![caller])),
            }
        }
        let cells: Vec<_> = groups.iter().map(|(told, callers)| format!("{}: {told}", callers.join(", "))).collect();
        let _ = writeln!(text, "  {:<24} {}", line.trial, cells.join(" | "));
    }
    text
}
