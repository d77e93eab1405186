//! Bytes as an expression among names of every type.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use onceward_core::decide::{Call, Create, Decision, Operation, Snapshot, decide};
use onceward_core::diagnostic::Span;
use onceward_core::expr::{self, Env, Fault, FaultKind, Place, Scope, Signature, Signatures, Stop, Want, World};
use onceward_core::model::{EventKind, Field, Lifecycle, Link, Type, Typed};
use onceward_core::record::{Actor, Record, WorkError};
use onceward_core::time::{Duration, Time};
use onceward_core::value::{RecordId, Value};
use serde_json::json;

use crate::systems;

/// Everything an expression can name.
const THING: &str = include_str!("thing.toml");

struct Ground {
    signatures: Signatures,
    own: Signature,
    input: Vec<Field>,
    result: Vec<Field>,
    checks: Vec<(Arc<str>, Vec<Field>)>,
    lookups: Vec<(Arc<str>, Arc<str>)>,
    links: Vec<expr::LinkScope>,
    records: HashMap<RecordId, Arc<Record>>,
    first: Arc<Record>,
    inputs: Vec<Value>,
    results: Vec<Value>,
    answers: Vec<Option<Arc<[Value]>>>,
}

static GROUND: LazyLock<Ground> = LazyLock::new(ground);

pub(super) fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let ground = &*GROUND;
    let place = Place { whole: Span::new(0, 0..text.len()), content: Some(0) };
    let truth = Want::Fits(Typed { ty: Type::Bool, nullable: false });
    for want in [Want::Any, truth, Want::Targets] {
        match expr::compile(&text, place, &ground.scope(), &want) {
            Err(found) => assert!(!found.is_empty(), "refused without a word"),
            Ok(tree) => {
                let _ = (expr::checks_read(&tree), expr::paths_read(&tree), expr::null_risks(&tree, &[]));
                ground.evaluate(&tree);
            }
        }
    }
}

impl Ground {
    fn scope(&self) -> Scope<'_> {
        Scope {
            signatures: &self.signatures,
            own: &self.own,
            input: Some(&self.input),
            result: Some(&self.result),
            error: true,
            checks: &self.checks,
            lookups: &self.lookups,
            links: &self.links,
            actor: true,
            now: true,
            told: 0,
        }
    }

    fn evaluate(&self, tree: &expr::Expr) {
        let actor = Actor::new("ann", &["producer", "pro"]);
        let error = WorkError {
            code: "timeout".into(),
            message: "it took too long".into(),
            retryable: true,
            retry_after: Some(Duration::from_secs(3)),
        };
        let env = Env {
            world: self,
            record: &self.first,
            now: Time::from_secs(1_800_000_000),
            actor: &actor,
            input: &self.inputs,
            result: &self.results,
            error: Some(&error),
            answers: &self.answers,
        };
        match expr::eval(tree, &env) {
            Ok(value) => assert!(fits(&tree.typed, &value), "{:?} was promised, {value:?} came", tree.typed),
            // Everything is loaded and answered here, and what was typed keeps its types.
            Err(Stop::Fault(Fault { kind, .. })) => {
                assert!(!matches!(kind, FaultKind::WrongType | FaultKind::TooCostly | FaultKind::Dangling), "{kind:?}");
            }
            Err(other) => panic!("nothing is missing here, yet {other:?}"),
        }
    }
}

fn fits(typed: &Typed, value: &Value) -> bool {
    match (&typed.ty, value) {
        (_, Value::Null) => typed.nullable || typed.ty == Type::Null,
        (Type::Bool, Value::Bool(_))
        | (Type::Int, Value::Int(_))
        | (Type::Text | Type::Enum(_), Value::Text(_))
        | (Type::Time, Value::Time(_))
        | (Type::Duration, Value::Duration(_))
        | (Type::Json, Value::Json(_))
        | (Type::Ref(_), Value::Ref(_)) => true,
        (Type::Double, Value::Double(number)) => number.is_finite(),
        (Type::List(element), Value::List(items)) => {
            items.iter().all(|item| fits(&Typed { ty: (**element).clone(), nullable: false }, item))
        }
        _ => false,
    }
}

impl World for Ground {
    fn record(&self, id: RecordId) -> Result<&Record, Stop> {
        let dangling = Stop::Fault(Fault { kind: FaultKind::Dangling, at: Span::default() });
        self.records.get(&id).map(|record| &**record).ok_or(dangling)
    }

    fn linked(&self, _: RecordId, _: &Link) -> Result<Vec<RecordId>, Stop> {
        let mut ids: Vec<_> = self.records.keys().copied().collect();
        ids.sort_unstable();
        Ok(ids)
    }

    fn by_key(&self, _: &str, key: &Value) -> Result<Option<RecordId>, Stop> {
        Ok((*key == Value::text("first")).then_some(self.first.id))
    }
}

fn ground() -> Ground {
    let definitions = systems::load_text(&[("thing.toml", THING)]);
    let mut world = Snapshot::world();
    let mut make = |seed: u128, fields: serde_json::Value| {
        let serde_json::Value::Object(fields) = fields else { panic!("an object") };
        let call =
            Call::Create(Create { lifecycle: "fuzz.thing".into(), id: None, owner: None, fields, payload: None });
        let actor = Actor::new("ann", &["producer"]);
        let operation = Operation { seed: seed << 66, actor, call, answers: Vec::new(), trace: None };
        let decision = decide(&definitions, &world, &operation, Time::from_secs(1_700_000_000));
        let Decision::Changes(changes) = decision else { panic!("a thing cannot be made: {decision:?}") };
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
    let first = RecordId(first.parse().expect("an id as we wrote it"));
    let first = Arc::clone(world.record(first).expect("the record just made"));
    let lifecycle = Arc::clone(&first.lifecycle);
    let own = signature(&lifecycle);
    let inputs_of = |kind: EventKind| {
        let rows = lifecycle.rows(kind);
        rows.iter().flat_map(|row| &row.inputs).map(|input| input.field.clone()).collect::<Vec<_>>()
    };
    let called = lifecycle.events.iter().find(|event| event.kind == EventKind::Called).expect("an event by name");
    let input: Vec<Field> = called.rows[0].inputs.iter().map(|input| input.field.clone()).collect();
    assert!(inputs_of(EventKind::Create).len() > 5, "the thing takes what it is made of");
    Ground {
        signatures: definitions.lifecycles.values().map(|each| (Arc::clone(&each.name), signature(each))).collect(),
        own,
        inputs: vec![Value::Int(7), Value::Null],
        input,
        result: lifecycle.work.as_ref().and_then(|work| work.result.clone()).expect("a typed result"),
        results: vec![Value::text("https://example.test/x"), Value::Int(12)],
        checks: lifecycle.checks.iter().map(|check| (Arc::clone(&check.name), check.answer.clone())).collect(),
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
                let from = link.from.iter().map(|source| Arc::clone(&source.lifecycle)).collect();
                (Arc::clone(&link.name), from, link.max)
            })
            .collect(),
        records: world.records.iter().filter_map(|(id, record)| Some((*id, record.clone()?))).collect(),
        first,
    }
}

fn signature(lifecycle: &Lifecycle) -> Signature {
    Signature {
        name: Arc::clone(&lifecycle.name),
        states: lifecycle.states.iter().map(|state| Arc::clone(&state.name)).collect(),
        fields: lifecycle.fields.clone(),
        key: lifecycle.key.map(|slot| Arc::clone(&lifecycle.fields[usize::from(slot)].name)),
    }
}
