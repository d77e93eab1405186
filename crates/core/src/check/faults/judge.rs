//! Evaluates expressions on what is known rather than on values, and notes every way in which one may fault.

use std::sync::Arc;

use super::domain::{I64, Known, LONGEST_DURATION, Shape};
use super::env::Env;
use crate::bounds;
use crate::diagnostic::Span;
use crate::expr::{ActorPart, Comprehension, ErrorPart, Expr, FaultKind, Kind, Path, Root, Step};
use crate::model::{Definitions, Field, Input, Lifecycle, Type};

/// `now` is taken to lie between 1970 and the year 5000: a clock beyond that is broken.
const NOW: Shape = Shape::Number(0, 3_030 * 366 * 86_400 * 1_000_000);
/// Versions, attempts and other counters of the engine: no record lives to see more.
const MANY: i128 = 1_000_000_000_000_000;

/// A way in which an expression may fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) kind: FaultKind,
    pub(crate) at: Span,
    /// What is wrong with what, in the file's own words.
    pub(crate) what: String,
    /// The path that may be null, or too large, as a help may name it.
    pub(crate) path: Option<String>,
    /// It faults whenever it is evaluated.
    pub(crate) always: bool,
}

/// Looks at the expressions of one row of one lifecycle.
pub(crate) struct Judge<'a> {
    pub(crate) definitions: &'a Definitions,
    pub(crate) lifecycle: &'a Lifecycle,
    /// The row's inputs, and what is known of each.
    pub(crate) inputs: &'a [Input],
    pub(crate) given: Vec<Known>,
    /// At creation a taken input is also the field's value.
    pub(crate) creating: bool,
    pub(crate) findings: Vec<Finding>,
    /// Above zero while something is evaluated a second time, only to learn from it.
    pub(crate) muted: u32,
    /// Expressions looked at, for those who bound the work.
    pub(crate) steps: u64,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(definitions: &'a Definitions, lifecycle: &'a Lifecycle) -> Self {
        Self {
            definitions,
            lifecycle,
            inputs: &[],
            given: Vec::new(),
            creating: false,
            findings: Vec::new(),
            muted: 0,
            steps: 0,
        }
    }

    pub(super) fn note(&mut self, kind: FaultKind, at: Span, what: String, path: Option<String>) {
        if self.muted == 0 && !self.findings.iter().any(|old| old.kind == kind && old.at == at) {
            self.findings.push(Finding { kind, at, what, path, always: false });
        }
    }

    /// Notes that this may be null, or is.
    fn note_null(&mut self, known: &Known, at: Span, path: Option<String>) {
        let what = path.as_ref().map_or_else(|| "this may be null".to_owned(), |path| format!("`{path}` may be null"));
        let before = self.findings.len();
        self.note(FaultKind::Null, at, what, path);
        if let Some(finding) = self.findings.get_mut(before) {
            finding.always = known.shape.is_never();
        }
    }

    /// What the expression may come to; notes how it may fault.
    pub(crate) fn eval(&mut self, expr: &Expr, env: &Env) -> Known {
        self.steps += 1;
        match &expr.kind {
            Kind::Const(value) => Known::of_value(value),
            Kind::Read(path) => self.read(path, expr, env),
            Kind::Negate(operand) => {
                let known = self.needed(operand, env);
                match known.shape {
                    Shape::Double(least, most) => Known::some(Shape::Double(-most, -least)),
                    Shape::Number(least, most) => self.in_range(-most, -least, I64, expr),
                    shape => Known::some(shape),
                }
            }
            Kind::If(condition, yes, no) => {
                let (on_yes, on_no) = self.split(condition, env);
                let yes = on_yes.map(|env| self.eval(yes, &env));
                let no = on_no.map(|env| self.eval(no, &env));
                match (yes, no) {
                    (Some(yes), Some(no)) => yes.join(&no),
                    (Some(known), None) | (None, Some(known)) => known,
                    (None, None) => Known::some(Shape::Never),
                }
            }
            Kind::Binary(operator, left, right) if super::arithmetic::is_arithmetic(*operator) => {
                self.arithmetic(*operator, left, right, expr, env)
            }
            Kind::Not(_) | Kind::And(..) | Kind::Or(..) | Kind::Binary(..) => {
                let (yes, no) = self.split(expr, env);
                Known::bool(yes.is_some(), no.is_some())
            }
            Kind::Call(function, arguments) => self.call(*function, arguments, expr, env),
            Kind::List(items) => {
                let size = items.len() as u64;
                let known = items.iter().map(|item| self.needed(item, env)).collect::<Vec<_>>();
                let element = known.into_iter().reduce(|a, b| a.join(&b)).unwrap_or(Known::some(Shape::Never));
                Known::some(Shape::List { size: (size, size), element: Box::new(element) })
            }
            Kind::Comprehension { how, range, local, body } => self.comprehension(*how, range, *local, body, env),
        }
    }

    /// Evaluates again without noting anything.
    pub(crate) fn peek(&mut self, expr: &Expr, env: &Env) -> Known {
        self.muted += 1;
        let known = self.eval(expr, env);
        self.muted -= 1;
        known
    }

    /// An operand that may not be null.
    pub(super) fn needed(&mut self, expr: &Expr, env: &Env) -> Known {
        let known = self.eval(expr, env);
        self.not_null(&known, expr);
        known.not_null()
    }

    pub(super) fn not_null(&mut self, known: &Known, expr: &Expr) {
        if known.null {
            let path = match &expr.kind {
                Kind::Read(path) => Some(self.name(path)),
                _ => None,
            };
            self.note_null(known, expr.at, path);
        }
    }

    fn comprehension(&mut self, how: Comprehension, range: &Expr, local: u16, body: &Expr, env: &Env) -> Known {
        let list = self.needed(range, env);
        let (size, element) = match list.shape {
            Shape::List { size, element } => (size, *element),
            _ => ((0, bounds::LIST_ITEMS as u64), Known::some(Shape::Any)),
        };
        if size.1 == 0 || element.is_impossible() {
            return match how {
                Comprehension::All => Known::bool(true, false),
                Comprehension::Exists => Known::bool(false, true),
                Comprehension::Filter => Known::some(Shape::List { size: (0, 0), element: Box::new(element) }),
            };
        }
        let inside = env.with_local(local, element.clone());
        self.split(body, &inside);
        match how {
            Comprehension::Filter => Known::some(Shape::List { size: (0, size.1), element: Box::new(element) }),
            _ => Known::bool(true, true),
        }
    }

    /// What stands at a path; notes each hop that may go through null.
    fn read(&mut self, path: &Path, expr: &Expr, env: &Env) -> Known {
        let mut here = self.root(path.root, expr, env);
        if let Some(known) = env.known(path.root, &[]) {
            here = here.meet(known);
        }
        for (at, step) in path.steps.iter().enumerate() {
            let lifecycles = if at == 0 && path.root == Root::Record {
                None
            } else {
                if here.null {
                    let prefix = Path { root: path.root, steps: path.steps[..at].to_vec(), doubtful: Vec::new() };
                    let name = self.name(&prefix);
                    self.note_null(&here, expr.at, Some(name));
                }
                match here.shape {
                    Shape::Ref(lifecycles) => Some(lifecycles),
                    _ => Some(Arc::from([])),
                }
            };
            here = match lifecycles {
                None => self.own(step, env),
                Some(lifecycles) => self.theirs(step, &lifecycles),
            };
            if let Some(known) = env.known(path.root, &path.steps[..=at]) {
                here = here.meet(known);
            }
        }
        here
    }

    fn root(&mut self, root: Root, expr: &Expr, env: &Env) -> Known {
        match root {
            Root::Local(local) => env.local(local).cloned().unwrap_or(Known::some(Shape::Any).or_null(true)),
            Root::Input(at) => match self.given.get(usize::from(at)) {
                Some(known) => known.clone(),
                None => Known::of_type(&expr.typed.ty, &crate::model::Bounds::default(), true),
            },
            Root::Result(at) => {
                let fields = self.lifecycle.work.as_ref().and_then(|work| work.result.as_ref());
                declared(fields.and_then(|fields| fields.get(usize::from(at))))
            }
            Root::Answer { check, part } => {
                let check = self.lifecycle.checks.get(usize::from(check));
                declared(check.and_then(|check| check.answer.get(usize::from(part))))
            }
            Root::Error(part) => error_part(part),
            Root::Lookup(at) => {
                let Some(lookup) = self.lifecycle.lookups.get(usize::from(at)) else {
                    return Known::some(Shape::Any).or_null(true);
                };
                self.eval(&lookup.key.expr, env);
                Known::some(Shape::Ref([lookup.lifecycle.clone()].into())).or_null(true)
            }
            Root::Link(at) => {
                let link = self.lifecycle.links.get(usize::from(at));
                let lifecycles: Arc<[Arc<str>]> =
                    link.map(|link| link.from.iter().map(|from| from.lifecycle.clone()).collect()).unwrap_or_default();
                let most = link.and_then(|link| link.max).map_or(bounds::RECORDS_PER_OPERATION as u64, u64::from);
                let element = Box::new(Known::some(Shape::Ref(lifecycles)));
                Known::some(Shape::List { size: (0, most), element })
            }
            Root::Actor(part) => match part {
                ActorPart::Id => Known::text(bounds::TEXT_CHARS as u64),
                ActorPart::User => Known::bool(true, true),
                ActorPart::Roles | ActorPart::Capabilities => Known::some(Shape::List {
                    size: (0, bounds::LIST_ITEMS as u64),
                    element: Box::new(Known::text(bounds::TEXT_CHARS as u64)),
                }),
            },
            Root::Now => Known::some(NOW),
            Root::Record => Known::some(Shape::Ref([self.lifecycle.name.clone()].into())),
        }
    }

    /// A step from the row's own record.
    fn own(&self, step: &Step, env: &Env) -> Known {
        match step {
            Step::Field { slot, .. } => {
                env.facts.get(usize::from(*slot)).cloned().unwrap_or(Known::some(Shape::Any).or_null(true))
            }
            Step::Id => Known::some(Shape::Ref([self.lifecycle.name.clone()].into())),
            Step::State => states_of(self.lifecycle),
            step => metadata(step),
        }
    }

    /// A step from another record, of one of these lifecycles: only what is declared can be relied on.
    fn theirs(&self, step: &Step, lifecycles: &Arc<[Arc<str>]>) -> Known {
        let of = |lifecycle: &Lifecycle| match step {
            Step::Field { name, .. } => lifecycle.field(name).map(|slot| {
                let field = &lifecycle.fields[usize::from(slot)];
                if field.constant { constant(field) } else { Known::of_type(&field.ty, &field.bounds, field.nullable) }
            }),
            Step::State => Some(states_of(lifecycle)),
            _ => None,
        };
        match step {
            Step::Field { .. } | Step::State => lifecycles
                .iter()
                .map(|name| self.definitions.get(name).and_then(|lifecycle| of(lifecycle)))
                .map(|known| known.unwrap_or(Known::some(Shape::Any).or_null(true)))
                .reduce(|a, b| a.join(&b))
                .unwrap_or(Known::some(Shape::Any).or_null(true)),
            Step::Id => Known::some(Shape::Ref(lifecycles.clone())),
            step => metadata(step),
        }
    }
}

/// What a `const` field always is.
pub(crate) fn constant(field: &Field) -> Known {
    field.default.as_ref().map_or_else(|| Known::of_type(&field.ty, &field.bounds, field.nullable), Known::of_value)
}

fn declared(field: Option<&Field>) -> Known {
    match field {
        Some(field) => Known::of_type(&field.ty, &field.bounds, field.nullable),
        None => Known::some(Shape::Any).or_null(true),
    }
}

fn states_of(lifecycle: &Lifecycle) -> Known {
    let names = lifecycle.states.iter().filter(|state| !state.reserved).map(|state| state.name.clone());
    Known::some(Shape::named(names))
}

fn error_part(part: ErrorPart) -> Known {
    match part {
        // Whatever a worker sends is cut to this before any row sees it.
        ErrorPart::Code | ErrorPart::Message => Known::text(bounds::TEXT_CHARS as u64),
        ErrorPart::Retryable => Known::bool(true, true),
        ErrorPart::RetryAfter => Known::some(Shape::Number(0, i128::from(bounds::RETRY_AFTER.micros()))).or_null(true),
    }
}

fn metadata(step: &Step) -> Known {
    match step {
        Step::Owner => Known::text(bounds::TEXT_CHARS as u64),
        Step::Version | Step::Attempt => Known::some(Shape::Number(0, MANY)),
        Step::Hold => Known::some(Shape::Number(0, I64.1)),
        Step::CreatedAt | Step::UpdatedAt => Known::some(NOW),
        Step::StartedAt | Step::FinishedAt => Known::some(NOW).or_null(true),
        Step::Id | Step::State | Step::Field { .. } => Known::some(Shape::Any).or_null(true),
    }
}

/// The limits of what a value of the type may be at run time, where its number is counted in `i128`.
pub(crate) fn limits(ty: &Type) -> (i128, i128) {
    match ty {
        Type::Time => match Shape::of_type(&Type::Time, &crate::model::Bounds::default()) {
            Shape::Number(least, most) => (least, most),
            _ => I64,
        },
        Type::Duration => (I64.0.max(-LONGEST_DURATION * 100), I64.1.min(LONGEST_DURATION * 100)),
        _ => I64,
    }
}
