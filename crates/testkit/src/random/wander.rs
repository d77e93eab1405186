//! A shipped system, wandered through: random operations of all its kinds of callers on a [`Stage`], whose own invariants
//! are looked at after each, and beside them what must hold of this system.

use onceward_core::decide::{Call, Decision, ErrorReport};
use onceward_core::model::{EventKind, Field, Ready, Row, Type};
use onceward_core::record::{Actor, Record, Token};
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json, json};

use super::chance::Chance;
use super::run::seeds;
use super::values::plausible;
use crate::{Stage, brought, worker};

/// Enough that records meet, few enough that each is seen often.
const RECORDS: usize = 16;

/// Who and what a system is wandered through with.
#[derive(Clone, Default)]
pub struct Wander {
    people: Vec<Actor>,
    codes: Vec<String>,
    values: Vec<(String, Vec<Json>)>,
    payloads: Vec<Vec<u8>>,
}

impl Wander {
    /// With these people; workers are there anyway.
    pub fn with(people: &[Actor]) -> Self {
        Self { people: people.to_vec(), ..Self::default() }
    }

    /// Errors that workers report, beside codes that no file knows.
    pub fn codes(mut self, codes: &[&str]) -> Self {
        self.codes = codes.iter().map(|code| (*code).to_owned()).collect();
        self
    }

    /// Values for a field, an input or a part of a result of this name; for others chance finds some. `{id}` in a text of a result stands for
    /// the job's id.
    pub fn value(mut self, name: &str, values: impl IntoIterator<Item = Json>) -> Self {
        self.values.push((name.to_owned(), values.into_iter().collect()));
        self
    }

    /// What records that need a payload are made with, one of these.
    pub fn payloads(mut self, payloads: &[&str]) -> Self {
        self.payloads = payloads.iter().map(|payload| payload.as_bytes().to_vec()).collect();
        self
    }

    /// Wander from the given stage, many times, each from its own seed; `holds` panics where the system's own rules are
    /// broken, and is asked after every operation.
    pub fn run(&self, theme: &str, cases: u64, operations: usize, stage: impl Fn() -> Stage, holds: impl Fn(&Stage)) {
        let mut taken = 0_usize;
        for seed in seeds(theme, cases) {
            let _seed = Told { seed };
            let mut stage = stage();
            let mut chance = Chance::new(seed);
            for _ in 0..operations {
                if chance.yes(25) {
                    let most = [2, 40, 90, 600, 7_200][chance.below(5)];
                    let length = Duration::from_secs(chance.between(1, most));
                    if chance.yes(70) { stage.pass_for(length) } else { stage.doze_for(length) }
                }
                let (actor, mut call) = self.call(&mut chance, &stage);
                if let Call::Create(create) = &mut call {
                    let needed = stage.definition(&create.lifecycle).payload.min > 0;
                    let bytes = chance.pick(&self.payloads).filter(|_| needed);
                    create.payload = bytes.map(|bytes| stage.keep(bytes));
                }
                let must = must_be_taken(&stage, &actor, &call);
                let outcome = stage.attempt(&actor, call).outcome();
                let refused = matches!(outcome.decision, Decision::Refusal(_));
                assert!(!(must && refused), "the engine must not be refused: {outcome:?}");
                taken += usize::from(matches!(outcome.decision, Decision::Changes(_)));
                for record in records(&stage) {
                    assert!(
                        record.stuck.is_none(),
                        "{} {} is stuck: {:?}",
                        record.lifecycle.name,
                        record.id,
                        record.stuck
                    );
                }
                holds(&stage);
            }
        }
        println!("{theme}: {taken} operations changed something");
        assert!(taken > 0, "nothing ever happened");
    }

    fn call(&self, chance: &mut Chance, stage: &Stage) -> (Actor, Call) {
        let all = records(stage);
        let somebody = |chance: &mut Chance| match chance.below(10) {
            0 => worker("w1"),
            _ => chance.pick(&self.people).cloned().unwrap_or_else(Actor::engine),
        };
        if all.is_empty() || all.len() < RECORDS && chance.yes(25) {
            return (somebody(chance), self.create(chance, stage, &all));
        }
        let live: Vec<&Record> = all.iter().filter(|record| record.live_execution().is_some()).copied().collect();
        let ready = |record: &&&Record| record.lifecycle.states[usize::from(record.state)].ready != Ready::No;
        let ready: Vec<&Record> = all.iter().filter(ready).copied().collect();
        if !live.is_empty() && chance.yes(40) {
            let record = live[chance.below(live.len())];
            return self.report(chance, stage, record);
        }
        if !ready.is_empty() && chance.yes(45) {
            let record = ready[chance.below(ready.len())].id;
            let name = chance.word(&["w1", "w2"]);
            return (worker(name), Call::Lease { record, worker: name.into(), lease: None, start: chance.yes(50) });
        }
        let record = all[chance.below(all.len())];
        (somebody(chance), self.fire(chance, stage, record, &all))
    }

    fn create(&self, chance: &mut Chance, stage: &Stage, all: &[&Record]) -> Call {
        let kinds: Vec<_> = stage.definitions().filter(|kind| !kind.name.starts_with("onceward.")).collect();
        let kind = kinds[chance.below(kinds.len())];
        let rows = kind.rows(EventKind::Create);
        let fields = chance.pick(rows).map(|row| self.inputs(chance, stage, row, all)).unwrap_or_default();
        Call::Create(onceward_core::decide::Create {
            lifecycle: kind.name.clone(),
            id: None,
            owner: None,
            fields,
            payload: None,
        })
    }

    fn fire(&self, chance: &mut Chance, stage: &Stage, record: &Record, all: &[&Record]) -> Call {
        let events = record.lifecycle.events.iter().filter(|event| event.kind == EventKind::Called);
        let (fitting, other): (Vec<_>, Vec<_>) =
            events.partition(|event| event.rows.iter().any(|row| row.from.contains(record.state)));
        let pool = if fitting.is_empty() || chance.yes(15) && !other.is_empty() { other } else { fitting };
        let Some(event) = chance.pick(&pool) else { return Call::Due { record: record.id } };
        let rows: Vec<&Row> = event.rows.iter().collect();
        let input = chance.pick(&rows).map(|row| self.inputs(chance, stage, row, all)).unwrap_or_default();
        Call::Fire { record: record.id, event: event.name.clone(), input, token: None, if_version: None }
    }

    fn report(&self, chance: &mut Chance, stage: &Stage, record: &Record) -> (Actor, Call) {
        let holder = record.live_execution().map_or("w1", |execution| &*execution.holder).to_owned();
        let late = chance.yes(8);
        let (id, token) = (record.id, Token(record.attempt.saturating_sub(u64::from(late))));
        let call = match chance.below(10) {
            0 => Call::Start { record: id, token },
            1 => Call::Heartbeat { record: id, token, lease: None },
            2..=4 => {
                let result = record.lifecycle.work.as_ref().and_then(|work| work.result.as_ref());
                let result = result.map_or(json!({ "free": true }), |fields| {
                    let parts =
                        fields.iter().map(|field| (field.name.to_string(), self.plausible(chance, stage, field, &[])));
                    brought(id, &Json::Object(parts.collect()))
                });
                Call::Commit { record: id, token, result, finish: chance.yes(50) }
            }
            5 => Call::Finish { record: id, token },
            6 => Call::Yield { record: id, token },
            _ => Call::Fail { record: id, token, error: self.error(chance) },
        };
        (worker(&holder), call)
    }

    fn error(&self, chance: &mut Chance) -> ErrorReport {
        let known = chance.pick(&self.codes).filter(|_| chance.yes(80));
        ErrorReport {
            code: known.map_or("odd", |code| code).into(),
            message: "it broke".into(),
            retryable: [None, Some(true), Some(true), Some(false)][chance.below(4)],
            retry_after: chance.yes(20).then(|| Duration::from_secs(chance.between(0, 100))),
        }
    }

    fn inputs(&self, chance: &mut Chance, stage: &Stage, row: &Row, all: &[&Record]) -> Map<String, Json> {
        let mut given = Map::new();
        for input in &row.inputs {
            let needed = !input.field.nullable && input.field.default.is_none();
            if needed || chance.yes(50) {
                given.insert(input.field.name.to_string(), self.plausible(chance, stage, &input.field, all));
            }
        }
        given
    }

    fn plausible(&self, chance: &mut Chance, stage: &Stage, field: &Field, all: &[&Record]) -> Json {
        if let Some((_, values)) = self.values.iter().find(|(name, _)| *name == *field.name) {
            return chance.pick(values).cloned().unwrap_or(Json::Null);
        }
        let fits = |ty: &Type| match ty {
            Type::Ref(to) => all.iter().filter(|record| to.contains(&record.lifecycle.name)).map(|r| r.id).collect(),
            _ => Vec::new(),
        };
        let fitting: Vec<RecordId> = match &field.ty {
            Type::List(element) => fits(element),
            other => fits(other),
        };
        plausible(chance, field, stage.now(), &fitting)
    }
}

/// All records, in an order that does not depend on a hash map.
fn records(stage: &Stage) -> Vec<&Record> {
    let mut all: Vec<&Record> = stage.everything().collect();
    all.sort_by_key(|record| (record.created_at, record.id));
    all
}

/// The end of a lease, told by the worker that holds it, is never refused: the checker has proved it.
fn must_be_taken(stage: &Stage, actor: &Actor, call: &Call) -> bool {
    let (Call::Fail { record, token, .. } | Call::Yield { record, token }) = call else { return false };
    let record = stage.record(*record);
    let now = stage.now();
    record.live_execution().is_some_and(|live| {
        live.token == *token && live.holder == actor.id && live.expires_at > now && record.committed.is_none()
    })
}

/// Says which seed it was when a play dies.
struct Told {
    seed: u64,
}

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("play it again with ONCEWARD_SEED={}", self.seed);
        }
    }
}
