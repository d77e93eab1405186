//! The execution system: a job's state follows from its executions.

use std::collections::BTreeMap;

use onceward_core::decide::{Call, Create, ErrorReport, Operation, Snapshot};
use onceward_core::project::job_state;
use onceward_core::record::{Actor, Execution, ExecutionStatus, Record, Token};
use onceward_core::time::{Duration, Time};
use onceward_core::value::{RecordId, Value};
use onceward_testkit::random::{Chance, Play, seeds};
use onceward_testkit::systems;
use serde_json::{Map, json};

const CASES: u64 = 30;
const OPERATIONS: usize = 500;

/// EXE-3: `project::job_state`, written apart from `decide`, derives from the executions with their outcomes and the
/// budget the very state that `decide` keeps, after every operation.
#[test]
fn the_state_that_decide_keeps_is_the_one_that_follows_from_the_executions() {
    let definitions = systems::load("execution");
    let mut reached: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in seeds("execution", CASES) {
        let mut play = Play::new(definitions.clone(), true, seed);
        let mut chance = Chance::new(seed);
        // Some workers give back nearly always, some fail often, some do their work.
        let habit = [Habit::Yields, Habit::Fails, Habit::Works][chance.below(3)];
        for _ in 0..OPERATIONS {
            // Whoever gives back is quick, or the lease would be lost in its place.
            let pause = if habit == Habit::Yields { 3_000_000 } else { 40_000_000 };
            play.now = Time::from_micros(play.now.micros() + chance.between(0, pause));
            let operation = operation(&mut chance, &play, habit);
            let now = if chance.yes(3) { Time::from_micros(play.now.micros() - 30_000_000) } else { play.now };
            if let Err(broken) = play.settle(operation, now, &mut []) {
                panic!("seed {seed}: {broken:?}");
            }
            for record in play.world.records.values().flatten() {
                let executions = executions(&play.world, record);
                let Some(Value::Int(budget)) = record.field("budget") else { panic!("a job has a budget") };
                let derived = job_state(*budget, &executions);
                let kept = record.state_name();
                assert_eq!(
                    derived.name(),
                    &**kept,
                    "seed {seed}: kept {kept}, derived {derived:?} from {executions:#?}"
                );
                *reached.entry(branch(*budget, &executions)).or_default() += 1;
            }
        }
    }
    println!("EXE-3, ways reached: {reached:?}");
    if std::env::var_os("ONCEWARD_SEED").is_none() {
        for way in WAYS {
            assert!(reached.contains_key(way), "no job came to: {way}; only {reached:?}");
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Habit {
    Yields,
    Fails,
    Works,
}

const WAYS: [&str; 10] = [
    "pending, never leased",
    "pending after free yields",
    "pending after failures",
    "pending after a yield that counted",
    "running, leased",
    "running, in progress",
    "running, committed",
    "succeeded",
    "failed by a terminal error",
    "failed with its budget spent",
];

/// Which way a job has come, by the last of its executions.
fn branch(budget: i64, executions: &[Execution]) -> &'static str {
    let Some(last) = executions.last() else { return WAYS[0] };
    let yields = executions.iter().filter(|e| e.aborted.as_ref().is_some_and(|a| *a.code == *"yielded")).count();
    match last.status {
        ExecutionStatus::Leased => WAYS[4],
        ExecutionStatus::InProgress => WAYS[5],
        ExecutionStatus::Committed => WAYS[6],
        ExecutionStatus::Done => WAYS[7],
        ExecutionStatus::Aborted => {
            let failed = job_state(budget, executions).name() == "FAILED";
            let abort = last.aborted.as_ref().expect("an aborted execution says why");
            match (failed, &*abort.code) {
                (true, _) if !abort.retryable => WAYS[8],
                (true, _) => WAYS[9],
                (false, "yielded") if yields > 100 => WAYS[3],
                (false, "yielded") => WAYS[1],
                (false, _) => WAYS[2],
            }
        }
    }
}

fn executions(world: &Snapshot, record: &Record) -> Vec<Execution> {
    (1..=record.attempt)
        .map(|token| world.executions.get(&(record.id, Token(token))).cloned().flatten().expect("every lease is kept"))
        .collect()
}

fn operation(chance: &mut Chance, play: &Play, habit: Habit) -> Operation {
    let call = call(chance, play, habit);
    let actor = match &call {
        Call::Create(_) => Actor::new("ann", &["producer"]),
        Call::Lost { .. } | Call::Due { .. } => Actor::engine(),
        _ => Actor::new("w", &["worker"]),
    };
    Operation { seed: chance.seed(), actor, call, answers: Vec::new(), trace: None }
}

fn call(chance: &mut Chance, play: &Play, habit: Habit) -> Call {
    let most = if habit == Habit::Yields { 1 } else { 8 };
    let open: Vec<RecordId> = play
        .records
        .iter()
        .filter(|id| play.world.record(**id).is_some_and(|record| !record.is_final()))
        .copied()
        .collect();
    if open.is_empty() || (play.records.len() < most && chance.yes(20)) {
        let budget = if habit == Habit::Yields { chance.between(20, 60) } else { chance.between(1, 6) };
        let mut fields = Map::new();
        fields.insert("budget".to_owned(), json!(budget));
        return Call::Create(Create {
            lifecycle: "execution.job".into(),
            id: None,
            owner: None,
            fields,
            payload: None,
        });
    }
    let from = if chance.yes(90) { &open } else { &play.records };
    let record = *chance.pick(from).expect("there is a record");
    let found = play.world.record(record).expect("it is in the world");
    let token = Token(if chance.yes(90) { found.attempt } else { chance.next() % (found.attempt + 2) });
    let Some(live) = found.live_execution() else {
        return Call::Lease { record, worker: "w".into(), lease: None, start: chance.yes(50) };
    };
    if live.status == ExecutionStatus::Committed {
        return if chance.yes(60) { Call::Finish { record, token } } else { Call::Due { record } };
    }
    let (give_back, fails) = match habit {
        Habit::Yields => (88, 6),
        Habit::Fails => (10, 70),
        Habit::Works => (10, 20),
    };
    match chance.below(100) {
        0..=2 => Call::Heartbeat { record, token, lease: None },
        3..=4 => Call::Start { record, token },
        5..=7 => Call::Lost { record, token },
        roll if roll < 8 + give_back => Call::Yield { record, token },
        roll if roll < 8 + give_back + fails => Call::Fail { record, token, error: error(chance, habit) },
        _ => Call::Commit { record, token, result: json!({ "done": true }), finish: chance.yes(50) },
    }
}

fn error(chance: &mut Chance, habit: Habit) -> ErrorReport {
    let terminal = habit != Habit::Yields && chance.yes(20);
    ErrorReport {
        code: chance.word(&["boom", "lost", "timeout", "yielded"]).into(),
        message: "it broke".into(),
        retryable: Some(!terminal),
        retry_after: chance.yes(20).then(|| Duration::from_secs(chance.between(0, 100))),
    }
}
