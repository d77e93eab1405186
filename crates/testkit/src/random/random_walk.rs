//! Random walks through a shipped system: random operations of all kinds of callers on a [`Simulator`]. Checks the
//! simulator's invariants and those of the system after each operation.

use onceward_core::decide::{Call, Decision, FailureReport};
use onceward_core::model::{DataType, EventKind, FieldDef, StateReadiness, Transition};
use onceward_core::record::{Actor, FencingToken, Record};
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json, json};

use super::cases::theme_seeds;
use super::rng::Rng;
use super::values::random_value;
use crate::{Simulator, fill_result_template, worker};

/// Enough records to interact, few enough to reach each often.
const MAX_RECORDS: usize = 16;

/// The actors and values of a random walk.
#[derive(Clone, Default)]
pub struct RandomWalk {
    actors: Vec<Actor>,
    error_codes: Vec<String>,
    values: Vec<(String, Vec<Json>)>,
    payloads: Vec<Vec<u8>>,
}

impl RandomWalk {
    /// Returns a walk with these actors. Workers are always included.
    pub fn with_actors(actors: &[Actor]) -> Self {
        Self { actors: actors.to_vec(), ..Self::default() }
    }

    /// Sets error codes that workers report, in addition to unknown codes.
    pub fn error_codes(mut self, codes: &[&str]) -> Self {
        self.error_codes = codes.iter().map(|code| (*code).to_owned()).collect();
        self
    }

    /// Sets the values of a field, input or result field of this name; others are random. `{id}` in a text of a result
    /// stands for the job's id.
    pub fn values_for(mut self, name: &str, values: impl IntoIterator<Item = Json>) -> Self {
        self.values.push((name.to_owned(), values.into_iter().collect()));
        self
    }

    /// Sets the payloads for records that need one.
    pub fn payloads(mut self, payloads: &[&str]) -> Self {
        self.payloads = payloads.iter().map(|payload| payload.as_bytes().to_vec()).collect();
        self
    }

    /// Runs many walks from the given simulator, each with its own seed. Calls `assert_invariants` after every
    /// operation; it panics if a rule of the system is violated.
    pub fn run(
        &self,
        theme: &str,
        cases: u64,
        operations: usize,
        new_simulator: impl Fn() -> Simulator,
        assert_invariants: impl Fn(&Simulator),
    ) {
        let mut changed = 0_usize;
        for seed in theme_seeds(theme, cases) {
            let _seed = WalkSeedOnPanic { seed };
            let mut simulator = new_simulator();
            let mut rng = Rng::new(seed);
            for _ in 0..operations {
                if rng.percent(25) {
                    let max_seconds = [2, 40, 90, 600, 7_200][rng.below(5)];
                    let length = Duration::from_secs(rng.between(1, max_seconds));
                    if rng.percent(70) {
                        simulator.advance_by(length);
                    } else {
                        simulator.advance_without_engine_by(length);
                    }
                }
                let (actor, mut call) = self.random_call(&mut rng, &simulator);
                if let Call::Create(create) = &mut call {
                    let needed = simulator.lifecycle(&create.lifecycle).payload_bounds.min_bytes > 0;
                    let bytes = rng.pick(&self.payloads).filter(|_| needed);
                    create.payload = bytes.map(|bytes| simulator.store_payload(bytes));
                }
                let must_accept = is_refusal_forbidden(&simulator, &actor, &call);
                let outcome = simulator.call(&actor, call).run();
                let refused = matches!(outcome.decision, Decision::Refusal(_));
                assert!(!(must_accept && refused), "the engine must not be refused: {outcome:?}");
                changed += usize::from(matches!(outcome.decision, Decision::Changes(_)));
                for record in sorted_records(&simulator) {
                    assert!(
                        record.stuck_reason.is_none(),
                        "{} {} is stuck: {:?}",
                        record.lifecycle.name,
                        record.id,
                        record.stuck_reason
                    );
                }
                assert_invariants(&simulator);
            }
        }
        println!("{theme}: {changed} operations had an effect");
        assert!(changed > 0, "no operation had an effect");
    }

    fn random_call(&self, rng: &mut Rng, simulator: &Simulator) -> (Actor, Call) {
        let all = sorted_records(simulator);
        let random_actor = |rng: &mut Rng| match rng.below(10) {
            0 => worker("w1"),
            _ => rng.pick(&self.actors).cloned().unwrap_or_else(Actor::engine),
        };
        if all.is_empty() || all.len() < MAX_RECORDS && rng.percent(25) {
            return (random_actor(rng), self.random_create(rng, simulator, &all));
        }
        let live: Vec<&Record> = all.iter().filter(|record| record.live_execution().is_some()).copied().collect();
        let ready = |record: &&&Record| {
            record.lifecycle.states[usize::from(record.state)].readiness != StateReadiness::NotReady
        };
        let ready: Vec<&Record> = all.iter().filter(ready).copied().collect();
        if !live.is_empty() && rng.percent(40) {
            let record = live[rng.below(live.len())];
            return self.random_report(rng, simulator, record);
        }
        if !ready.is_empty() && rng.percent(45) {
            let record = ready[rng.below(ready.len())].id;
            let name = rng.pick_word(&["w1", "w2"]);
            return (worker(name), Call::Lease { record, worker: name.into(), lease: None, start: rng.percent(50) });
        }
        let record = all[rng.below(all.len())];
        (random_actor(rng), self.random_fire(rng, simulator, record, &all))
    }

    fn random_create(&self, rng: &mut Rng, simulator: &Simulator, all: &[&Record]) -> Call {
        let kinds: Vec<_> = simulator.lifecycles().filter(|kind| !kind.name.starts_with("onceward.")).collect();
        let kind = kinds[rng.below(kinds.len())];
        let rows = kind.transitions(EventKind::Create);
        let fields = rng.pick(rows).map(|row| self.random_inputs(rng, simulator, row, all)).unwrap_or_default();
        Call::Create(onceward_core::decide::CreateRecord {
            lifecycle: kind.name.clone(),
            id: None,
            owner: None,
            fields,
            payload: None,
        })
    }

    fn random_fire(&self, rng: &mut Rng, simulator: &Simulator, record: &Record, all: &[&Record]) -> Call {
        let events = record.lifecycle.events.iter().filter(|event| event.kind == EventKind::Called);
        let (fitting, other): (Vec<_>, Vec<_>) =
            events.partition(|event| event.transitions.iter().any(|row| row.from.contains(record.state)));
        let pool = if fitting.is_empty() || rng.percent(15) && !other.is_empty() { other } else { fitting };
        let Some(event) = rng.pick(&pool) else { return Call::FireDue { record: record.id } };
        let rows: Vec<&Transition> = event.transitions.iter().collect();
        let input = rng.pick(&rows).map(|row| self.random_inputs(rng, simulator, row, all)).unwrap_or_default();
        Call::Fire { record: record.id, event: event.name.clone(), input, token: None, if_version: None }
    }

    fn random_report(&self, rng: &mut Rng, simulator: &Simulator, record: &Record) -> (Actor, Call) {
        let holder = record.live_execution().map_or("w1", |execution| &*execution.holder).to_owned();
        let late = rng.percent(8);
        let (id, token) = (record.id, FencingToken(record.attempt.saturating_sub(u64::from(late))));
        let call = match rng.below(10) {
            0 => Call::Start { record: id, token },
            1 => Call::Heartbeat { record: id, token, lease: None },
            2..=4 => {
                let result = record.lifecycle.work.as_ref().and_then(|work| work.result.as_ref());
                let result = result.map_or(json!({ "free": true }), |fields| {
                    let parts = fields
                        .iter()
                        .map(|field| (field.name.to_string(), self.random_value(rng, simulator, field, &[])));
                    fill_result_template(id, &Json::Object(parts.collect()))
                });
                Call::Commit { record: id, token, result, finish: rng.percent(50) }
            }
            5 => Call::Finish { record: id, token },
            6 => Call::Yield { record: id, token },
            _ => Call::Fail { record: id, token, error: self.random_failure(rng) },
        };
        (worker(&holder), call)
    }

    fn random_failure(&self, rng: &mut Rng) -> FailureReport {
        let known = rng.pick(&self.error_codes).filter(|_| rng.percent(80));
        FailureReport {
            code: known.map_or("odd", |code| code).into(),
            message: "failed".into(),
            retryable: [None, Some(true), Some(true), Some(false)][rng.below(4)],
            retry_after: rng.percent(20).then(|| Duration::from_secs(rng.between(0, 100))),
        }
    }

    fn random_inputs(
        &self,
        rng: &mut Rng,
        simulator: &Simulator,
        transition: &Transition,
        all: &[&Record],
    ) -> Map<String, Json> {
        let mut values = Map::new();
        for input in &transition.inputs {
            let needed = !input.field.nullable && input.field.default.is_none();
            if needed || rng.percent(50) {
                values.insert(input.field.name.to_string(), self.random_value(rng, simulator, &input.field, all));
            }
        }
        values
    }

    fn random_value(&self, rng: &mut Rng, simulator: &Simulator, field: &FieldDef, all: &[&Record]) -> Json {
        if let Some((_, values)) = self.values.iter().find(|(name, _)| *name == *field.name) {
            return rng.pick(values).cloned().unwrap_or(Json::Null);
        }
        let fits = |ty: &DataType| match ty {
            DataType::Ref(to) => {
                all.iter().filter(|record| to.contains(&record.lifecycle.name)).map(|r| r.id).collect()
            }
            _ => Vec::new(),
        };
        let fitting: Vec<RecordId> = match &field.ty {
            DataType::List(element) => fits(element),
            other => fits(other),
        };
        random_value(rng, field, simulator.now(), &fitting)
    }
}

/// Returns all records in an order that does not depend on a hash map.
fn sorted_records(simulator: &Simulator) -> Vec<&Record> {
    let mut all: Vec<&Record> = simulator.all_records().collect();
    all.sort_by_key(|record| (record.created_at, record.id));
    all
}

/// Returns whether a refusal would be a bug: static analysis has proved that the holder of a lease can always end it.
fn is_refusal_forbidden(simulator: &Simulator, actor: &Actor, call: &Call) -> bool {
    let (Call::Fail { record, token, .. } | Call::Yield { record, token }) = call else { return false };
    let record = simulator.record(*record);
    let now = simulator.now();
    record.live_execution().is_some_and(|live| {
        live.token == *token && live.holder == actor.id && live.expires_at > now && record.committed_token.is_none()
    })
}

/// Prints the seed if a walk panics.
struct WalkSeedOnPanic {
    seed: u64,
}

impl Drop for WalkSeedOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("repeat with ONCEWARD_SEED={}", self.seed);
        }
    }
}
