//! Cases for comparison: a single guard, the same guard in the `cel` crate, and the least work that any engine needs to
//! change a record.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;

use cel::{Context, Program, Value as CelValue};
use onceward_core::decide::{Call, Decision, Operation, Snapshot, decide};
use onceward_core::expr::{EvalEnv, EvalStop, RecordSource, eval};
use onceward_core::model::{Definitions, EventKind, LinkDef};
use onceward_core::record::{Actor, ClassifiedFailure, Record};
use onceward_core::time::Time;
use onceward_core::value::{RecordId, Value};
use serde_json::Map;

use crate::BenchCase;

/// The guard of the second `fail` transition.
const GUARD_TEXT: &str = "!error.retryable || record.failures + 1 >= record.budget";

pub(crate) fn comparison_cases(definitions: &Definitions) -> Vec<BenchCase> {
    let job = plain_job(definitions);
    vec![guard_in_onceward(Arc::clone(&job)), guard_in_cel(), guard_in_cel_converted(), bare_update(job)]
}

/// The guard reads only its own record, so other records are never looked up.
struct NoOtherRecords;

impl RecordSource for NoOtherRecords {
    fn record(&self, id: RecordId) -> Result<&Record, EvalStop> {
        Err(EvalStop::Due(vec![id]))
    }

    fn linked_records(&self, of: RecordId, _: &LinkDef) -> Result<Vec<RecordId>, EvalStop> {
        Err(EvalStop::Due(vec![of]))
    }

    fn find_by_natural_key(&self, _: &str, _: &Value) -> Result<Option<RecordId>, EvalStop> {
        Ok(None)
    }
}

fn guard_in_onceward(record: Arc<Record>) -> BenchCase {
    let transitions = record.lifecycle.transitions(EventKind::Fail);
    let at = transitions.iter().position(|row| row.when.as_ref().is_some_and(|when| &*when.text == GUARD_TEXT));
    let at = at.unwrap_or_else(|| panic!("execution.job no longer has the guard {GUARD_TEXT}"));
    let actor = Actor::engine();
    let error = ClassifiedFailure { code: "oops".into(), message: "failed".into(), retryable: true, retry_after: None };
    BenchCase::new("guard alone, onceward", move || {
        let Some(when) = &record.lifecycle.transitions(EventKind::Fail)[at].when else { return };
        let env = EvalEnv {
            records: &NoOtherRecords,
            record: &record,
            now: Time::from_secs(0),
            actor: &actor,
            input: &[],
            result: &[],
            error: Some(&error),
            answers: &[],
        };
        let _ = black_box(eval(black_box(&when.expr), &env));
    })
}

fn guard_in_cel() -> BenchCase {
    let program = compile_guard();
    let mut context = Context::default();
    add_variables(&mut context);
    BenchCase::new("guard in cel, prepared", move || {
        let _ = black_box(black_box(&program).execute(&context));
    })
}

/// Converts the record's fields for each evaluation, as an engine on `cel` would.
fn guard_in_cel_converted() -> BenchCase {
    let program = compile_guard();
    let base = Context::default();
    BenchCase::new("the guard in cel, variables converted", move || {
        let mut context = base.new_inner_scope();
        add_variables(&mut context);
        let _ = black_box(black_box(&program).execute(&context));
    })
}

fn compile_guard() -> Program {
    Program::compile(GUARD_TEXT).unwrap_or_else(|error| panic!("cel no longer parses {GUARD_TEXT}: {error}"))
}

fn add_variables(context: &mut Context) {
    let record = HashMap::from([("failures", CelValue::from(0_i64)), ("budget", CelValue::from(3_i64))]);
    let error = HashMap::from([
        ("code", CelValue::from("oops")),
        ("message", CelValue::from("failed")),
        ("retryable", CelValue::from(true)),
    ]);
    context.add_variable_from_value("record", CelValue::from(record));
    context.add_variable_from_value("error", CelValue::from(error));
}

/// Finds a record by id, copies it, changes two fields and puts it back. This is the lower bound for changing a record
/// with these types, without rules, log or reply.
fn bare_update(record: Arc<Record>) -> BenchCase {
    let id = record.id;
    let mut world: HashMap<RecordId, Arc<Record>> = HashMap::new();
    world.insert(id, record);
    BenchCase::new("bare copy and put of a record", move || {
        let Some(found) = world.get(black_box(&id)) else { return };
        let mut changed = (**found).clone();
        changed.version += 1;
        changed.attempt += 1;
        world.insert(id, Arc::new(changed));
    })
}

fn plain_job(definitions: &Definitions) -> Arc<Record> {
    let create = onceward_core::decide::CreateRecord {
        lifecycle: "execution.job".into(),
        id: None,
        owner: None,
        fields: Map::new(),
        payload: None,
    };
    let actor = Actor::new("ann", &["producer"]);
    let operation = Operation { seed: 1, actor, call: Call::Create(create), check_answers: Vec::new(), trace: None };
    match decide(definitions, &Snapshot::empty_complete(), &operation, Time::from_secs(1_800_000_000)) {
        Decision::Changes(changes) => Arc::clone(&changes.records[0].after),
        other => panic!("unexpected decision for a plain job: {other:?}"),
    }
}
