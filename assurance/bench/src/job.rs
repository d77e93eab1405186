//! Benchmark cases for `decide` on a plain job: create, lease, commit with finish, and fail with retry.

use std::hint::black_box;
use std::sync::Arc;

use onceward_core::decide::{Call, Changes, CreateRecord, Decision, FailureReport, Operation, Snapshot, decide};
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::model::Definitions;
use onceward_core::record::{Actor, FencingToken};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json};

use crate::BenchCase;

/// Other records in the complete snapshot. Kept small, because callgrind also runs their creation.
const NEIGHBOR_RECORDS: u128 = 200;

const NOW: Time = Time::from_secs(1_800_000_000);

/// Loads the shipped file, so that the benchmark measures what users run.
pub(crate) fn load_definitions() -> Arc<Definitions> {
    let text = include_str!("../../../systems/execution/job.toml");
    let files =
        InputFiles { files: vec![InputFile { name: "systems/execution/job.toml".to_owned(), text: text.into() }] };
    let loaded = onceward_core::load_definitions(&files)
        .unwrap_or_else(|found| panic!("execution.job is not sound: {found:#?}"));
    Arc::new(loaded.definitions)
}

/// Returns each step twice: in a complete snapshot of a few hundred jobs, and in a partial one with only its own
/// record.
pub(crate) fn job_cases(definitions: &Arc<Definitions>) -> Vec<BenchCase> {
    let mut world = Snapshot::empty_complete();
    for number in 0..NEIGHBOR_RECORDS {
        decide_and_apply(definitions, &mut world, &create(number << 64));
    }
    let id = decide_and_apply(definitions, &mut world, &create(u128::from(u64::MAX))).subject;
    let mut steps = vec![("create", world.clone(), create(u128::MAX >> 1), None)];
    steps.push(("lease and start", world.clone(), lease(id), Some(id)));
    decide_and_apply(definitions, &mut world, &lease(id));
    steps.push(("commit with finish", world.clone(), commit(id), Some(id)));
    steps.push(("guarded fail", world, fail(id), Some(id)));

    let mut cases = Vec::new();
    for (name, complete, operation, id) in steps {
        let partial_snapshot = load_partial(definitions, &complete, &operation, id);
        for (how, snapshot) in [("complete", complete), ("partial", partial_snapshot)] {
            expect_changes(&decide(definitions, &snapshot, &operation, NOW));
            let (definitions, operation) = (Arc::clone(definitions), operation.clone());
            cases.push(BenchCase::new(format!("{name}, {how} snapshot"), move || {
                black_box(decide(black_box(&definitions), &snapshot, black_box(&operation), NOW));
            }));
        }
    }
    cases
}

/// Builds the snapshot that a store would load: the record, and whatever else `decide` reports as missing.
fn load_partial(definitions: &Definitions, world: &Snapshot, operation: &Operation, id: Option<RecordId>) -> Snapshot {
    let mut snapshot = Snapshot::default();
    if let Some(id) = id {
        snapshot.records.insert(id, world.records[&id].clone());
    }
    if let Decision::Missing(keys) = decide(definitions, &snapshot, operation, NOW) {
        for key in keys {
            let onceward_core::decide::ReadKey::Record(id) = key else { panic!("a plain job needs only records") };
            snapshot.records.insert(id, None);
        }
    }
    snapshot
}

fn decide_and_apply(definitions: &Definitions, world: &mut Snapshot, operation: &Operation) -> Changes {
    let changes = expect_changes(&decide(definitions, world, operation, NOW));
    world.apply(&changes);
    changes
}

fn expect_changes(decision: &Decision) -> Changes {
    match decision {
        Decision::Changes(changes) => (**changes).clone(),
        other => panic!("unexpected decision for a plain job: {other:?}"),
    }
}

fn operation(seed: u128, actor: Actor, call: Call) -> Operation {
    Operation { seed, actor, call, check_answers: Vec::new(), trace: None }
}

fn create(seed: u128) -> Operation {
    let mut fields = Map::new();
    fields.insert("budget".to_owned(), Json::from(3));
    let call = CreateRecord { lifecycle: "execution.job".into(), id: None, owner: None, fields, payload: None };
    operation(seed, Actor::new("ann", &["producer"]), Call::Create(call))
}

fn worker_operation(call: Call) -> Operation {
    operation(7, Actor::new("worker-1", &["worker"]), call)
}

fn lease(record: RecordId) -> Operation {
    worker_operation(Call::Lease { record, worker: "worker-1".into(), lease: None, start: true })
}

fn commit(record: RecordId) -> Operation {
    let result = serde_json::json!({ "rows": 12_000, "checksum": "9f86d081884c7d65" });
    worker_operation(Call::Commit { record, token: FencingToken(1), result, finish: true })
}

/// Two guards are false, so the third transition fires, which schedules a retry with backoff and jitter.
fn fail(record: RecordId) -> Operation {
    let error = FailureReport {
        code: "upstream_timeout".into(),
        message: "the upstream did not answer within 10 s".into(),
        retryable: Some(true),
        retry_after: None,
    };
    worker_operation(Call::Fail { record, token: FencingToken(1), error })
}
