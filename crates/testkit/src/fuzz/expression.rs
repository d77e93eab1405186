//! Fuzzes expressions with names of every type in scope.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use onceward_core::decide::{Call, CreateRecord, Decision, Operation, Snapshot, decide};
use onceward_core::diagnostic::Span;
use onceward_core::expr::{
    self, EvalEnv, EvalFault, EvalStop, ExpectedType, ExprLocation, ExprScope, FaultKind, LifecycleSignature,
    LifecycleSignatures, RecordSource,
};
use onceward_core::model::{DataType, EventKind, FieldDef, Lifecycle, LinkDef, ValueType};
use onceward_core::record::{Actor, ClassifiedFailure, Record};
use onceward_core::time::{Duration, Time};
use onceward_core::value::{RecordId, Value};
use serde_json::json;

use crate::systems;

/// A lifecycle with everything that an expression can name.
const THING_LIFECYCLE: &str = include_str!("thing.toml");

struct ExpressionFixture {
    signatures: LifecycleSignatures,
    own_signature: LifecycleSignature,
    input: Vec<FieldDef>,
    result: Vec<FieldDef>,
    checks: Vec<(Arc<str>, Vec<FieldDef>)>,
    lookups: Vec<(Arc<str>, Arc<str>)>,
    links: Vec<expr::LinkScope>,
    records: HashMap<RecordId, Arc<Record>>,
    subject: Arc<Record>,
    inputs: Vec<Value>,
    results: Vec<Value>,
    answers: Vec<Option<Arc<[Value]>>>,
}

static FIXTURE: LazyLock<ExpressionFixture> = LazyLock::new(build_fixture);

pub(super) fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let fixture = &*FIXTURE;
    let place = ExprLocation { value_span: Span::new(0, 0..text.len()), content_start: Some(0) };
    let truth = ExpectedType::Fits(ValueType { ty: DataType::Bool, nullable: false });
    for want in [ExpectedType::Any, truth, ExpectedType::Targets] {
        match expr::compile(&text, place, &fixture.scope(), &want) {
            Err(found) => assert!(!found.is_empty(), "refused without a message"),
            Ok(tree) => {
                let _ = (expr::referenced_checks(&tree), expr::referenced_paths(&tree), expr::null_risks(&tree, &[]));
                fixture.evaluate(&tree);
            }
        }
    }
}

impl ExpressionFixture {
    fn scope(&self) -> ExprScope<'_> {
        ExprScope {
            signatures: &self.signatures,
            own_signature: &self.own_signature,
            input: Some(&self.input),
            result: Some(&self.result),
            error: true,
            checks: &self.checks,
            lookups: &self.lookups,
            links: &self.links,
            actor: true,
            now: true,
            diagnostic_count: 0,
        }
    }

    fn evaluate(&self, tree: &expr::Expr) {
        let actor = Actor::new("ann", &["producer", "pro"]);
        let error = ClassifiedFailure {
            code: "timeout".into(),
            message: "the evaluation took too long".into(),
            retryable: true,
            retry_after: Some(Duration::from_secs(3)),
        };
        let env = EvalEnv {
            records: self,
            record: &self.subject,
            now: Time::from_secs(1_800_000_000),
            actor: &actor,
            input: &self.inputs,
            result: &self.results,
            error: Some(&error),
            answers: &self.answers,
        };
        match expr::eval(tree, &env) {
            Ok(value) => {
                assert!(value_has_type(&tree.value_type, &value), "expected {:?}, got {value:?}", tree.value_type);
            }
            // Everything is loaded and answered, and typed values keep their types. These faults are therefore
            // impossible.
            Err(EvalStop::Fault(EvalFault { kind, .. })) => {
                assert!(
                    !matches!(kind, FaultKind::WrongType | FaultKind::CostExceeded | FaultKind::DanglingRef),
                    "{kind:?}"
                );
            }
            Err(other) => panic!("everything is loaded, but: {other:?}"),
        }
    }
}

fn value_has_type(typed: &ValueType, value: &Value) -> bool {
    match (&typed.ty, value) {
        (_, Value::Null) => typed.nullable || typed.ty == DataType::Null,
        (DataType::Bool, Value::Bool(_))
        | (DataType::Int, Value::Int(_))
        | (DataType::Text | DataType::Enum(_), Value::Text(_))
        | (DataType::Time, Value::Time(_))
        | (DataType::Duration, Value::Duration(_))
        | (DataType::Json, Value::Json(_))
        | (DataType::Ref(_), Value::Ref(_)) => true,
        (DataType::Double, Value::Double(number)) => number.is_finite(),
        (DataType::List(element), Value::List(items)) => {
            items.iter().all(|item| value_has_type(&ValueType { ty: (**element).clone(), nullable: false }, item))
        }
        _ => false,
    }
}

impl RecordSource for ExpressionFixture {
    fn record(&self, id: RecordId) -> Result<&Record, EvalStop> {
        let dangling = EvalStop::Fault(EvalFault { kind: FaultKind::DanglingRef, span: Span::default() });
        self.records.get(&id).map(|record| &**record).ok_or(dangling)
    }

    fn linked_records(&self, _: RecordId, _: &LinkDef) -> Result<Vec<RecordId>, EvalStop> {
        let mut ids: Vec<_> = self.records.keys().copied().collect();
        ids.sort_unstable();
        Ok(ids)
    }

    fn find_by_natural_key(&self, _: &str, key: &Value) -> Result<Option<RecordId>, EvalStop> {
        Ok((*key == Value::text("first")).then_some(self.subject.id))
    }
}

fn build_fixture() -> ExpressionFixture {
    let definitions = systems::load_texts(&[("thing.toml", THING_LIFECYCLE)]);
    let mut world = Snapshot::empty_complete();
    let mut make = |seed: u128, fields: serde_json::Value| {
        let serde_json::Value::Object(fields) = fields else { panic!("a JSON object") };
        let call =
            Call::Create(CreateRecord { lifecycle: "fuzz.thing".into(), id: None, owner: None, fields, payload: None });
        let actor = Actor::new("ann", &["producer"]);
        let operation = Operation { seed: seed << 66, actor, call, check_answers: Vec::new(), trace: None };
        let decision = decide(&definitions, &world, &operation, Time::from_secs(1_700_000_000));
        let Decision::Changes(changes) = decision else { panic!("the test record cannot be created: {decision:?}") };
        world.apply(&changes);
        changes.subject.to_string()
    };
    let second = make(1, json!({ "name": "second", "kind": "red" }));
    let first = make(
        2,
        json!({
            "name": "first", "count": 3, "maybeCount": null, "rate": 0.5, "flag": true, "at": "2026-01-31T12:00:00Z",
            "wait": "90s", "kind": "red", "tags": ["a", "b", "long one"], "numbers": [1, 2, 3],
            "blob": { "deep": [1, 2] }, "other": second, "others": [second],
        }),
    );
    let first = RecordId(first.parse().expect("a valid id"));
    let first = Arc::clone(world.record(first).expect("the created record"));
    let lifecycle = Arc::clone(&first.lifecycle);
    let own = signature(&lifecycle);
    let inputs_of = |kind: EventKind| {
        let rows = lifecycle.transitions(kind);
        rows.iter().flat_map(|row| &row.inputs).map(|input| input.field.clone()).collect::<Vec<_>>()
    };
    let called = lifecycle.events.iter().find(|event| event.kind == EventKind::Called).expect("a declared event");
    let input: Vec<FieldDef> = called.transitions[0].inputs.iter().map(|input| input.field.clone()).collect();
    assert!(inputs_of(EventKind::Create).len() > 5, "valid fields");
    ExpressionFixture {
        signatures: definitions.lifecycles.values().map(|each| (Arc::clone(&each.name), signature(each))).collect(),
        own_signature: own,
        inputs: vec![Value::Int(7), Value::Null],
        input,
        result: lifecycle.work.as_ref().and_then(|work| work.result.clone()).expect("a typed result"),
        results: vec![Value::text("https://example.test/x"), Value::Int(12)],
        checks: lifecycle.checks.iter().map(|check| (Arc::clone(&check.name), check.answer_fields.clone())).collect(),
        answers: vec![Some(Arc::new([Value::Bool(true), Value::Int(5)]))],
        lookups: lifecycle
            .lookups
            .iter()
            .map(|lookup| (Arc::clone(&lookup.name), Arc::clone(&lookup.lifecycle)))
            .collect(),
        links: lifecycle
            .links
            .iter()
            .map(|link| {
                let from = link.sources.iter().map(|source| Arc::clone(&source.lifecycle)).collect();
                (Arc::clone(&link.name), from, link.max)
            })
            .collect(),
        records: world.records.iter().filter_map(|(id, record)| Some((*id, record.clone()?))).collect(),
        subject: first,
    }
}

fn signature(lifecycle: &Lifecycle) -> LifecycleSignature {
    LifecycleSignature {
        name: Arc::clone(&lifecycle.name),
        states: lifecycle.states.iter().map(|state| Arc::clone(&state.name)).collect(),
        fields: lifecycle.fields.clone(),
        natural_key: lifecycle.natural_key.map(|slot| Arc::clone(&lifecycle.fields[usize::from(slot)].name)),
    }
}
