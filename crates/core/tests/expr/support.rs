//! Three lifecycles and a few records for expression tests.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::diagnostic::{Diagnostic, Span};
use onceward_core::expr::{
    self, EvalEnv, EvalFault, EvalStop, ExpectedType, Expr, ExprLocation, ExprScope, FaultKind, LifecycleSignature,
    LifecycleSignatures, RecordSource,
};
use onceward_core::model::{
    ClockSource, DataType, ErrorTable, FieldBounds, FieldDef, Formula, Lifecycle, LinkDef, LinkSource, PayloadBounds,
    RecordLookup, StateDef, StateReadiness, ValueType,
};
use onceward_core::record::{Actor, ClassifiedFailure, Record};
use onceward_core::time::{Duration, Time};
use onceward_core::value::{RecordId, Value};

pub(crate) fn arc_names(names: &[&str]) -> Arc<[Arc<str>]> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

pub(crate) fn ref_type(names: &[&str]) -> DataType {
    DataType::Ref(arc_names(names))
}

pub(crate) fn list_type(element: DataType) -> DataType {
    DataType::List(Box::new(element))
}

pub(crate) fn test_field(name: &str, ty: DataType) -> FieldDef {
    let (name, nullable) = match name.strip_suffix('?') {
        Some(name) => (name, true),
        None => (name, false),
    };
    let size = matches!(ty, DataType::List(_)).then_some((0, 20));
    FieldDef {
        name: name.into(),
        about: "".into(),
        ty,
        nullable,
        default: None,
        is_constant: false,
        bounds: FieldBounds { size, ..FieldBounds::default() },
        span: Span::default(),
    }
}

pub(crate) struct ExprFixture {
    pub(crate) signatures: LifecycleSignatures,
    pub(crate) own_signature: LifecycleSignature,
    pub(crate) input: Vec<FieldDef>,
    pub(crate) result: Vec<FieldDef>,
    pub(crate) checks: Vec<(Arc<str>, Vec<FieldDef>)>,
    pub(crate) lookups: Vec<(Arc<str>, Arc<str>)>,
    pub(crate) links: Vec<expr::LinkScope>,
}

fn new_signature(name: &str, states: &[&str], fields: Vec<FieldDef>) -> LifecycleSignature {
    LifecycleSignature { name: name.into(), states: arc_names(states).to_vec(), fields, natural_key: None }
}

impl ExprFixture {
    pub(crate) fn new() -> Self {
        let kind = DataType::Enum(arc_names(&["payout", "refund", "now"]));
        let order = new_signature(
            "shop.order",
            &["NEW", "PAID", "SHIPPED", "FAILED"],
            vec![
                test_field("count", DataType::Int),
                test_field("budget", DataType::Int),
                test_field("rate", DataType::Double),
                test_field("note", DataType::Text),
                test_field("title?", DataType::Text),
                test_field("kind", kind.clone()),
                test_field("due?", DataType::Time),
                test_field("at", DataType::Time),
                test_field("wait", DataType::Duration),
                test_field("gap?", DataType::Duration),
                test_field("flag", DataType::Bool),
                test_field("maybe?", DataType::Bool),
                test_field("limit?", DataType::Int),
                test_field("tags", list_type(DataType::Text)),
                test_field("nums", list_type(DataType::Int)),
                test_field("kinds", list_type(kind)),
                test_field("parent?", ref_type(&["shop.order"])),
                test_field("job", ref_type(&["shop.job"])),
                test_field("support", list_type(ref_type(&["shop.job", "shop.claim"]))),
                test_field("blob?", DataType::Json),
            ],
        );
        let job = new_signature(
            "shop.job",
            &["Live", "Dead"],
            vec![
                test_field("name", DataType::Text),
                test_field("score", DataType::Double),
                test_field("boss?", ref_type(&["shop.job"])),
                test_field("both", DataType::Int),
            ],
        );
        let claim = new_signature(
            "shop.claim",
            &["Hint", "Claim", "Fact"],
            vec![test_field("both", DataType::Int), test_field("name", DataType::Int)],
        );
        let signatures =
            [order.clone(), job, claim].into_iter().map(|signature| (signature.name.clone(), signature)).collect();
        Self {
            signatures,
            own_signature: order,
            input: vec![test_field("amount", DataType::Int), test_field("until?", DataType::Time)],
            result: vec![test_field("url", DataType::Text)],
            checks: vec![("deposit".into(), vec![test_field("ok", DataType::Bool), test_field("sum", DataType::Int)])],
            lookups: vec![("me".into(), "shop.job".into())],
            links: vec![
                ("parts".into(), vec!["shop.job".into()], Some(50)),
                ("endless".into(), vec!["shop.job".into()], None),
            ],
        }
    }

    pub(crate) fn scope(&self) -> ExprScope<'_> {
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

    pub(crate) fn compile(&self, text: &str, expected: &ExpectedType) -> Result<Expr, Vec<Diagnostic>> {
        expr::compile(text, location_of(text), &self.scope(), expected)
    }
}

/// Returns the location of a quoted text at byte 100 of the third file.
pub(crate) fn location_of(text: &str) -> ExprLocation {
    ExprLocation { value_span: Span::new(2, 99..101 + text.len()), content_start: Some(100) }
}

pub(crate) fn compile_any(text: &str) -> Expr {
    ExprFixture::new().compile(text, &ExpectedType::Any).unwrap_or_else(|errors| panic!("{text}: {errors:#?}"))
}

pub(crate) fn expect_type(ty: DataType, nullable: bool) -> ExpectedType {
    ExpectedType::Fits(ValueType { ty, nullable })
}

/// Returns the code of the first diagnostic and the text that it points to.
pub(crate) fn rejection_for<'t>(text: &'t str, expected: &ExpectedType) -> (&'static str, &'t str, Diagnostic) {
    match ExprFixture::new().compile(text, expected) {
        Ok(expr) => panic!("{text} compiled: {expr:#?}"),
        Err(errors) => {
            let first = errors[0].clone();
            assert_eq!(first.span.file, 2);
            assert!(first.help.is_some(), "{text}: no help");
            let range = first.span.range();
            (first.code, &text[range.start - 100..range.end - 100], first)
        }
    }
}

pub(crate) fn rejection(text: &str) -> (&'static str, &str, Diagnostic) {
    rejection_for(text, &ExpectedType::Any)
}

pub(crate) fn record_id(number: u128) -> RecordId {
    RecordId(uuid::Uuid::from_u128(number))
}

fn build_lifecycle(signature: &LifecycleSignature, fixture: &ExprFixture) -> Arc<Lifecycle> {
    let state = |name: &Arc<str>| StateDef {
        name: name.clone(),
        about: "".into(),
        readiness: StateReadiness::NotReady,
        is_final: false,
        can_rest: false,
        is_reserved: false,
        is_kept: false,
        rules: Vec::new(),
        span: Span::default(),
    };
    let own = signature.name == fixture.own_signature.name;
    let link = |name: &Arc<str>| LinkDef {
        name: name.clone(),
        sources: vec![LinkSource { lifecycle: "shop.job".into(), field: "order".into() }],
        max: None,
        span: Span::default(),
    };
    let key = || RecordLookup {
        name: "me".into(),
        lifecycle: "shop.job".into(),
        natural_key: Formula { expr: compile_any("actor.id"), text: "actor.id".into() },
        span: Span::default(),
    };
    Arc::new(Lifecycle {
        name: signature.name.clone(),
        about: "".into(),
        hash: "".into(),
        natural_key: None,
        asset: None,
        outside_accounts: Vec::new(),
        outside_account_spans: Vec::new(),
        clock: ClockSource::Engine,
        states: signature.states.iter().map(state).collect(),
        fields: signature.fields.clone(),
        links: if own { fixture.links.iter().map(|(name, _, _)| link(name)).collect() } else { Vec::new() },
        unique_constraints: Vec::new(),
        limits: Vec::new(),
        work: None,
        errors: ErrorTable::default(),
        checks: Vec::new(),
        lookups: if own { vec![key()] } else { Vec::new() },
        caller_predicates: Vec::new(),
        allowed_readers: Vec::new(),
        payload_bounds: PayloadBounds { min_bytes: 0, max_bytes: 0 },
        events: Vec::new(),
    })
}

fn build_record(number: u128, lifecycle: &Arc<Lifecycle>, state: u8, fields: Vec<Value>) -> Record {
    assert_eq!(fields.len(), lifecycle.fields.len());
    Record {
        id: record_id(number),
        lifecycle: lifecycle.clone(),
        state,
        version: 3,
        owner: "ann".into(),
        fields,
        attempt: 2,
        created_at: Time::from_secs(10),
        updated_at: Time::from_secs(20),
        started_at: None,
        finished_at: None,
        entered_at: Time::from_secs(20),
        hold: 5,
        timers: Vec::new(),
        execution: None,
        committed_token: None,
        payload: None,
        stuck_reason: None,
        trace: None,
    }
}

pub(crate) struct RecordMap {
    pub(crate) records: HashMap<RecordId, Record>,
}

impl RecordSource for RecordMap {
    fn record(&self, id: RecordId) -> Result<&Record, EvalStop> {
        let dangling = EvalStop::Fault(EvalFault { kind: FaultKind::DanglingRef, span: Span::default() });
        self.records.get(&id).ok_or(dangling)
    }

    fn linked_records(&self, _: RecordId, link: &LinkDef) -> Result<Vec<RecordId>, EvalStop> {
        assert_eq!(&*link.name, "parts");
        Ok(vec![record_id(2), record_id(3)])
    }

    fn find_by_natural_key(&self, lifecycle: &str, key: &Value) -> Result<Option<RecordId>, EvalStop> {
        assert_eq!(lifecycle, "shop.job");
        Ok((*key == Value::text("bob")).then(|| record_id(2)))
    }
}

/// Records in which order 1 refers to jobs 2 and 3 and to claim 4.
pub(crate) struct EvalFixture {
    pub(crate) records: RecordMap,
    pub(crate) record: Record,
    pub(crate) actor: Actor,
    pub(crate) input: Vec<Value>,
    pub(crate) result: Vec<Value>,
    pub(crate) error: ClassifiedFailure,
    pub(crate) answers: Vec<Option<Arc<[Value]>>>,
}

impl EvalFixture {
    pub(crate) fn new() -> Self {
        let house = ExprFixture::new();
        let of = |name: &str| build_lifecycle(&house.signatures[name], &house);
        let job = of("shop.job");
        let reference = |number| Value::Ref(record_id(number));
        let jobs = [
            build_record(2, &job, 0, vec![Value::text("bob"), Value::Double(0.5), reference(3), Value::Int(7)]),
            build_record(3, &job, 1, vec![Value::text("cy"), Value::Double(1.5), Value::Null, Value::Int(8)]),
            build_record(4, &of("shop.claim"), 2, vec![Value::Int(9), Value::Int(1)]),
        ];
        let fields = vec![
            Value::Int(4),
            Value::Int(5),
            Value::Double(0.25),
            Value::text("héllo"),
            Value::Null,
            Value::text("payout"),
            Value::Null,
            Value::Time(Time::from_secs(50)),
            Value::Duration(Duration::from_secs(5)),
            Value::Null,
            Value::Bool(true),
            Value::Null,
            Value::Null,
            Value::List([Value::text("red"), Value::text("blue")].into()),
            Value::List([Value::Int(1), Value::Int(2), Value::Int(3)].into()),
            Value::List([Value::text("refund")].into()),
            Value::Null,
            reference(2),
            Value::List([reference(2), reference(4)].into()),
            Value::Null,
        ];
        Self {
            records: RecordMap { records: jobs.into_iter().map(|record| (record.id, record)).collect() },
            record: build_record(1, &of("shop.order"), 1, fields),
            actor: Actor::new("bob", &["user"]),
            input: vec![Value::Int(12)],
            result: vec![Value::text("http")],
            error: ClassifiedFailure {
                code: "lost".into(),
                message: "gone".into(),
                retryable: true,
                retry_after: None,
            },
            answers: vec![None],
        }
    }

    pub(crate) fn set_field(&mut self, name: &str, value: Value) {
        let index = self.record.lifecycle.field_index(name).unwrap();
        self.record.fields[usize::from(index)] = value;
    }

    pub(crate) fn eval(&self, expr: &Expr) -> Result<Value, EvalStop> {
        let env = EvalEnv {
            records: &self.records,
            record: &self.record,
            now: Time::from_secs(100),
            actor: &self.actor,
            input: &self.input,
            result: &self.result,
            error: Some(&self.error),
            answers: &self.answers,
        };
        expr::eval(expr, &env)
    }

    pub(crate) fn eval_text(&self, text: &str) -> Value {
        self.eval(&compile_any(text)).unwrap_or_else(|stop| panic!("{text}: {stop:?}"))
    }

    pub(crate) fn eval_fault(&self, text: &str) -> FaultKind {
        match self.eval(&compile_any(text)) {
            Err(EvalStop::Fault(fault)) => fault.kind,
            other => panic!("{text}: {other:?}"),
        }
    }
}
