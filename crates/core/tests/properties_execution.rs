//! Properties of the execution system: the state of a job follows from its executions.

use std::collections::BTreeMap;

use onceward_core::decide::{Call, CreateRecord, FailureReport, Operation, Snapshot};
use onceward_core::projection::project_job_state;
use onceward_core::record::{Actor, Execution, ExecutionStatus, FencingToken, Record};
use onceward_core::time::{Duration, Time};
use onceward_core::value::{RecordId, Value};
use onceward_testkit::random::{Rng, Simulation, theme_seeds};
use onceward_testkit::systems;
use serde_json::{Map, json};

const CASE_COUNT: u64 = 30;
const OPERATIONS_PER_CASE: usize = 500;

/// EXE-3: `projection::project_job_state` is written independently of `decide`. It derives the state from the
/// executions with their outcomes and the budget, after every operation.
#[test]
fn stored_state_equals_state_derived_from_executions() {
    let definitions = systems::load_system("execution");
    let mut branch_counts: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in theme_seeds("execution", CASE_COUNT) {
        let mut simulation = Simulation::new(definitions.clone(), true, seed);
        let mut rng = Rng::new(seed);
        // Workers mostly yield, mostly fail, or mostly commit.
        let habit = [WorkerBehavior::Yields, WorkerBehavior::Fails, WorkerBehavior::Commits][rng.below(3)];
        for _ in 0..OPERATIONS_PER_CASE {
            // A yielding worker is quick; otherwise its lease would expire first.
            let pause = if habit == WorkerBehavior::Yields { 3_000_000 } else { 40_000_000 };
            simulation.now = Time::from_micros(simulation.now.micros() + rng.between(0, pause));
            let operation = random_operation(&mut rng, &simulation, habit);
            let now =
                if rng.percent(3) { Time::from_micros(simulation.now.micros() - 30_000_000) } else { simulation.now };
            if let Err(broken) = simulation.decide_and_apply(operation, now, &mut []) {
                panic!("seed {seed}: {broken:?}");
            }
            for record in simulation.world.records.values().flatten() {
                let executions = executions_of(&simulation.world, record);
                let Some(Value::Int(budget)) = record.field("budget") else { panic!("a job has a budget") };
                let derived = project_job_state(*budget, &executions);
                let kept = record.state_name();
                assert_eq!(
                    derived.name(),
                    &**kept,
                    "seed {seed}: stored {kept}, derived {derived:?} from {executions:#?}"
                );
                *branch_counts.entry(job_branch(*budget, &executions)).or_default() += 1;
            }
        }
    }
    println!("EXE-3, ways reached: {branch_counts:?}");
    if std::env::var_os("ONCEWARD_SEED").is_none() {
        for way in JOB_BRANCHES {
            assert!(branch_counts.contains_key(way), "no job reached {way}, only {branch_counts:?}");
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WorkerBehavior {
    Yields,
    Fails,
    Commits,
}

const JOB_BRANCHES: [&str; 10] = [
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

/// Returns the branch that a job took, by its last execution.
fn job_branch(budget: i64, executions: &[Execution]) -> &'static str {
    let Some(last) = executions.last() else { return JOB_BRANCHES[0] };
    let yields = executions.iter().filter(|e| e.aborted.as_ref().is_some_and(|a| *a.code == *"yielded")).count();
    match last.status {
        ExecutionStatus::Leased => JOB_BRANCHES[4],
        ExecutionStatus::InProgress => JOB_BRANCHES[5],
        ExecutionStatus::Committed => JOB_BRANCHES[6],
        ExecutionStatus::Done => JOB_BRANCHES[7],
        ExecutionStatus::Aborted => {
            let failed = project_job_state(budget, executions).name() == "FAILED";
            let abort = last.aborted.as_ref().expect("an aborted execution has a code");
            match (failed, &*abort.code) {
                (true, _) if !abort.retryable => JOB_BRANCHES[8],
                (true, _) => JOB_BRANCHES[9],
                (false, "yielded") if yields > 100 => JOB_BRANCHES[3],
                (false, "yielded") => JOB_BRANCHES[1],
                (false, _) => JOB_BRANCHES[2],
            }
        }
    }
}

fn executions_of(world: &Snapshot, record: &Record) -> Vec<Execution> {
    (1..=record.attempt)
        .map(|token| {
            world.executions.get(&(record.id, FencingToken(token))).cloned().flatten().expect("every lease is recorded")
        })
        .collect()
}

fn random_operation(rng: &mut Rng, simulation: &Simulation, behavior: WorkerBehavior) -> Operation {
    let call = random_call(rng, simulation, behavior);
    let actor = match &call {
        Call::Create(_) => Actor::new("ann", &["producer"]),
        Call::LoseLease { .. } | Call::FireDue { .. } => Actor::engine(),
        _ => Actor::new("w", &["worker"]),
    };
    Operation { seed: rng.next_seed(), actor, call, check_answers: Vec::new(), trace: None }
}

fn random_call(rng: &mut Rng, simulation: &Simulation, behavior: WorkerBehavior) -> Call {
    let max_records = if behavior == WorkerBehavior::Yields { 1 } else { 8 };
    let open: Vec<RecordId> = simulation
        .records
        .iter()
        .filter(|id| simulation.world.record(**id).is_some_and(|record| !record.is_final()))
        .copied()
        .collect();
    if open.is_empty() || (simulation.records.len() < max_records && rng.percent(20)) {
        let budget = if behavior == WorkerBehavior::Yields { rng.between(20, 60) } else { rng.between(1, 6) };
        let mut fields = Map::new();
        fields.insert("budget".to_owned(), json!(budget));
        return Call::Create(CreateRecord {
            lifecycle: "execution.job".into(),
            id: None,
            owner: None,
            fields,
            payload: None,
        });
    }
    let from = if rng.percent(90) { &open } else { &simulation.records };
    let record = *rng.pick(from).expect("the run has a record");
    let found = simulation.world.record(record).expect("the record exists");
    let token = FencingToken(if rng.percent(90) { found.attempt } else { rng.next_u64() % (found.attempt + 2) });
    let Some(live) = found.live_execution() else {
        return Call::Lease { record, worker: "w".into(), lease: None, start: rng.percent(50) };
    };
    if live.status == ExecutionStatus::Committed {
        return if rng.percent(60) { Call::Finish { record, token } } else { Call::FireDue { record } };
    }
    let (give_back, fails) = match behavior {
        WorkerBehavior::Yields => (88, 6),
        WorkerBehavior::Fails => (10, 70),
        WorkerBehavior::Commits => (10, 20),
    };
    match rng.below(100) {
        0..=2 => Call::Heartbeat { record, token, lease: None },
        3..=4 => Call::Start { record, token },
        5..=7 => Call::LoseLease { record, token },
        roll if roll < 8 + give_back => Call::Yield { record, token },
        roll if roll < 8 + give_back + fails => Call::Fail { record, token, error: random_failure(rng, behavior) },
        _ => Call::Commit { record, token, result: json!({ "done": true }), finish: rng.percent(50) },
    }
}

fn random_failure(rng: &mut Rng, behavior: WorkerBehavior) -> FailureReport {
    let terminal = behavior != WorkerBehavior::Yields && rng.percent(20);
    FailureReport {
        code: rng.pick_word(&["boom", "lost", "timeout", "yielded"]).into(),
        message: "it broke".into(),
        retryable: Some(!terminal),
        retry_after: rng.percent(20).then(|| Duration::from_secs(rng.between(0, 100))),
    }
}
