//! Three lifecycles and a few records to try expressions on.

use std::collections::HashMap;
use std::sync::Arc;

use onceward_core::diagnostic::{Diagnostic, Span};
use onceward_core::expr::{self, Env, Expr, Fault, FaultKind, Place, Scope, Signature, Signatures, Stop, Want, World};
use onceward_core::model::{
    Bounds, Clock, ErrorTable, Field, Formula, Lifecycle, Link, LinkSource, Lookup, PayloadBounds, Ready, State, Type,
    Typed,
};
use onceward_core::record::{Actor, Record, WorkError};
use onceward_core::time::{Duration, Time};
use onceward_core::value::{RecordId, Value};

pub(crate) fn arcs(names: &[&str]) -> Arc<[Arc<str>]> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

pub(crate) fn refs(names: &[&str]) -> Type {
    Type::Ref(arcs(names))
}

pub(crate) fn list(element: Type) -> Type {
    Type::List(Box::new(element))
}

pub(crate) fn field(name: &str, ty: Type) -> Field {
    let (name, nullable) = match name.strip_suffix('?') {
        Some(name) => (name, true),
        None => (name, false),
    };
    let size = matches!(ty, Type::List(_)).then_some((0, 20));
    Field {
        name: name.into(),
        about: "".into(),
        ty,
        nullable,
        default: None,
        constant: false,
        bounds: Bounds { size, ..Bounds::default() },
        at: Span::default(),
    }
}

pub(crate) struct House {
    pub(crate) signatures: Signatures,
    pub(crate) own: Signature,
    pub(crate) input: Vec<Field>,
    pub(crate) result: Vec<Field>,
    pub(crate) checks: Vec<(Arc<str>, Vec<Field>)>,
    pub(crate) lookups: Vec<(Arc<str>, Arc<str>)>,
    pub(crate) links: Vec<expr::LinkScope>,
}

fn signature(name: &str, states: &[&str], fields: Vec<Field>) -> Signature {
    Signature { name: name.into(), states: arcs(states).to_vec(), fields, key: None }
}

impl House {
    pub(crate) fn new() -> Self {
        let kind = Type::Enum(arcs(&["payout", "refund", "now"]));
        let order = signature(
            "shop.order",
            &["NEW", "PAID", "SHIPPED", "FAILED"],
            vec![
                field("count", Type::Int),
                field("budget", Type::Int),
                field("rate", Type::Double),
                field("note", Type::Text),
                field("title?", Type::Text),
                field("kind", kind.clone()),
                field("due?", Type::Time),
                field("at", Type::Time),
                field("wait", Type::Duration),
                field("gap?", Type::Duration),
                field("flag", Type::Bool),
                field("maybe?", Type::Bool),
                field("limit?", Type::Int),
                field("tags", list(Type::Text)),
                field("nums", list(Type::Int)),
                field("kinds", list(kind)),
                field("parent?", refs(&["shop.order"])),
                field("job", refs(&["shop.job"])),
                field("support", list(refs(&["shop.job", "shop.claim"]))),
                field("blob?", Type::Json),
            ],
        );
        let job = signature(
            "shop.job",
            &["Live", "Dead"],
            vec![
                field("name", Type::Text),
                field("score", Type::Double),
                field("boss?", refs(&["shop.job"])),
                field("both", Type::Int),
            ],
        );
        let claim = signature(
            "shop.claim",
            &["Hint", "Claim", "Fact"],
            vec![field("both", Type::Int), field("name", Type::Int)],
        );
        let signatures =
            [order.clone(), job, claim].into_iter().map(|signature| (signature.name.clone(), signature)).collect();
        Self {
            signatures,
            own: order,
            input: vec![field("amount", Type::Int), field("until?", Type::Time)],
            result: vec![field("url", Type::Text)],
            checks: vec![("deposit".into(), vec![field("ok", Type::Bool), field("sum", Type::Int)])],
            lookups: vec![("me".into(), "shop.job".into())],
            links: vec![
                ("parts".into(), vec!["shop.job".into()], Some(50)),
                ("endless".into(), vec!["shop.job".into()], None),
            ],
        }
    }

    pub(crate) fn scope(&self) -> Scope<'_> {
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

    pub(crate) fn compile(&self, text: &str, want: &Want) -> Result<Expr, Vec<Diagnostic>> {
        expr::compile(text, place(text), &self.scope(), want)
    }
}

/// As if the text stood in quotes at byte 100 of the third file.
pub(crate) fn place(text: &str) -> Place {
    Place { whole: Span::new(2, 99..101 + text.len()), content: Some(100) }
}

pub(crate) fn compiled(text: &str) -> Expr {
    House::new().compile(text, &Want::Any).unwrap_or_else(|errors| panic!("{text}: {errors:#?}"))
}

pub(crate) fn fits(ty: Type, nullable: bool) -> Want {
    Want::Fits(Typed { ty, nullable })
}

/// The code of the first diagnostic and the text it points at.
pub(crate) fn refused_as<'t>(text: &'t str, want: &Want) -> (&'static str, &'t str, Diagnostic) {
    match House::new().compile(text, want) {
        Ok(expr) => panic!("{text} was taken: {expr:#?}"),
        Err(errors) => {
            let first = errors[0].clone();
            assert_eq!(first.at.file, 2);
            assert!(first.help.is_some(), "{text}: no help");
            let range = first.at.range();
            (first.code, &text[range.start - 100..range.end - 100], first)
        }
    }
}

pub(crate) fn refused(text: &str) -> (&'static str, &str, Diagnostic) {
    refused_as(text, &Want::Any)
}

pub(crate) fn id(number: u128) -> RecordId {
    RecordId(uuid::Uuid::from_u128(number))
}

fn lifecycle(signature: &Signature, house: &House) -> Arc<Lifecycle> {
    let state = |name: &Arc<str>| State {
        name: name.clone(),
        about: "".into(),
        ready: Ready::No,
        is_final: false,
        rest: false,
        reserved: false,
        rules: Vec::new(),
        at: Span::default(),
    };
    let own = signature.name == house.own.name;
    let link = |name: &Arc<str>| Link {
        name: name.clone(),
        from: vec![LinkSource { lifecycle: "shop.job".into(), field: "order".into() }],
        max: None,
        at: Span::default(),
    };
    let key = || Lookup {
        name: "me".into(),
        lifecycle: "shop.job".into(),
        key: Formula { expr: compiled("actor.id"), text: "actor.id".into() },
        at: Span::default(),
    };
    Arc::new(Lifecycle {
        name: signature.name.clone(),
        about: "".into(),
        hash: "".into(),
        key: None,
        asset: None,
        outside: Vec::new(),
        outside_at: Vec::new(),
        clock: Clock::Engine,
        states: signature.states.iter().map(state).collect(),
        fields: signature.fields.clone(),
        links: if own { house.links.iter().map(|(name, _, _)| link(name)).collect() } else { Vec::new() },
        uniques: Vec::new(),
        limits: Vec::new(),
        work: None,
        errors: ErrorTable::default(),
        checks: Vec::new(),
        lookups: if own { vec![key()] } else { Vec::new() },
        who: Vec::new(),
        access: Vec::new(),
        payload: PayloadBounds { min: 0, max: 0 },
        events: Vec::new(),
    })
}

fn record(number: u128, lifecycle: &Arc<Lifecycle>, state: u8, fields: Vec<Value>) -> Record {
    assert_eq!(fields.len(), lifecycle.fields.len());
    Record {
        id: id(number),
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
        committed: None,
        payload: None,
        stuck: None,
        trace: None,
    }
}

pub(crate) struct Shelf {
    pub(crate) records: HashMap<RecordId, Record>,
}

impl World for Shelf {
    fn record(&self, id: RecordId) -> Result<&Record, Stop> {
        let dangling = Stop::Fault(Fault { kind: FaultKind::Dangling, at: Span::default() });
        self.records.get(&id).ok_or(dangling)
    }

    fn linked(&self, _: RecordId, link: &Link) -> Result<Vec<RecordId>, Stop> {
        assert_eq!(&*link.name, "parts");
        Ok(vec![id(2), id(3)])
    }

    fn by_key(&self, lifecycle: &str, key: &Value) -> Result<Option<RecordId>, Stop> {
        assert_eq!(lifecycle, "shop.job");
        Ok((*key == Value::text("bob")).then(|| id(2)))
    }
}

/// A world in which the order 1 points to the jobs 2 and 3 and the claim 4.
pub(crate) struct Scene {
    pub(crate) shelf: Shelf,
    pub(crate) record: Record,
    pub(crate) actor: Actor,
    pub(crate) input: Vec<Value>,
    pub(crate) result: Vec<Value>,
    pub(crate) error: WorkError,
    pub(crate) answers: Vec<Option<Arc<[Value]>>>,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let house = House::new();
        let of = |name: &str| lifecycle(&house.signatures[name], &house);
        let job = of("shop.job");
        let reference = |number| Value::Ref(id(number));
        let jobs = [
            record(2, &job, 0, vec![Value::text("bob"), Value::Double(0.5), reference(3), Value::Int(7)]),
            record(3, &job, 1, vec![Value::text("cy"), Value::Double(1.5), Value::Null, Value::Int(8)]),
            record(4, &of("shop.claim"), 2, vec![Value::Int(9), Value::Int(1)]),
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
            shelf: Shelf { records: jobs.into_iter().map(|record| (record.id, record)).collect() },
            record: record(1, &of("shop.order"), 1, fields),
            actor: Actor::new("bob", &["user"]),
            input: vec![Value::Int(12)],
            result: vec![Value::text("http")],
            error: WorkError { code: "lost".into(), message: "gone".into(), retryable: true, retry_after: None },
            answers: vec![None],
        }
    }

    pub(crate) fn set(&mut self, name: &str, value: Value) {
        let slot = self.record.lifecycle.field(name).unwrap();
        self.record.fields[usize::from(slot)] = value;
    }

    pub(crate) fn eval(&self, expr: &Expr) -> Result<Value, Stop> {
        let env = Env {
            world: &self.shelf,
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

    pub(crate) fn value(&self, text: &str) -> Value {
        self.eval(&compiled(text)).unwrap_or_else(|stop| panic!("{text}: {stop:?}"))
    }

    pub(crate) fn fault(&self, text: &str) -> FaultKind {
        match self.eval(&compiled(text)) {
            Err(Stop::Fault(fault)) => fault.kind,
            other => panic!("{text}: {other:?}"),
        }
    }
}
