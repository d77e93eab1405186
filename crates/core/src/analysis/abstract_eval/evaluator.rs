//! Evaluates expressions on abstract values and collects every possible fault.

use std::sync::Arc;

use super::abstract_value::{AbstractShape, AbstractValue, I64_RANGE, MAX_DURATION_MICROS};
use super::env::AbstractEnv;
use crate::bounds;
use crate::diagnostic::Span;
use crate::expr::{ActorPart, ComprehensionKind, ErrorPart, Expr, ExprKind, FaultKind, PathRoot, PathStep, ValuePath};
use crate::model::{DataType, Definitions, FieldDef, Lifecycle, TransitionInput};

/// `now` is assumed to lie between 1970 and about the year 5000: any other clock is broken.
const NOW_RANGE: AbstractShape = AbstractShape::Number(0, 3_030 * 366 * 86_400 * 1_000_000);
/// Upper bound of versions, attempts and other counters of the engine, which no record can reach.
const MAX_ENGINE_COUNTER: i128 = 1_000_000_000_000_000;

/// A possible fault of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FaultFinding {
    pub(crate) kind: FaultKind,
    pub(crate) span: Span,
    /// The problem, in the terms of the file.
    pub(crate) message: String,
    /// The path that may be null or too large, for the help text.
    pub(crate) path: Option<String>,
    /// The expression faults whenever it is evaluated.
    pub(crate) is_certain: bool,
}

/// Evaluates the expressions of one transition.
pub(crate) struct AbstractEvaluator<'a> {
    pub(crate) definitions: &'a Definitions,
    pub(crate) lifecycle: &'a Lifecycle,
    /// The transition's inputs, and the facts about each.
    pub(crate) inputs: &'a [TransitionInput],
    pub(crate) input_values: Vec<AbstractValue>,
    /// At creation a taken input is also the field's value.
    pub(crate) is_creation: bool,
    pub(crate) findings: Vec<FaultFinding>,
    /// Above zero, findings are not collected.
    pub(crate) muted: u32,
    /// Expressions evaluated, to bound the work.
    pub(crate) steps: u64,
}

impl<'a> AbstractEvaluator<'a> {
    pub(crate) fn new(definitions: &'a Definitions, lifecycle: &'a Lifecycle) -> Self {
        Self {
            definitions,
            lifecycle,
            inputs: &[],
            input_values: Vec::new(),
            is_creation: false,
            findings: Vec::new(),
            muted: 0,
            steps: 0,
        }
    }

    pub(super) fn note_fault(&mut self, kind: FaultKind, span: Span, message: String, path: Option<String>) {
        if self.muted == 0 && !self.findings.iter().any(|old| old.kind == kind && old.span == span) {
            self.findings.push(FaultFinding { kind, span, message, path, is_certain: false });
        }
    }

    /// Collects a finding that the value may be null, or is.
    fn note_null_fault(&mut self, value: &AbstractValue, span: Span, path: Option<String>) {
        let message =
            path.as_ref().map_or_else(|| "the value may be null".to_owned(), |path| format!("`{path}` may be null"));
        let before = self.findings.len();
        self.note_fault(FaultKind::Null, span, message, path);
        if let Some(finding) = self.findings.get_mut(before) {
            finding.is_certain = value.shape.is_never();
        }
    }

    /// Returns the possible values of the expression and collects possible faults.
    pub(crate) fn eval(&mut self, expr: &Expr, env: &AbstractEnv) -> AbstractValue {
        self.steps += 1;
        match &expr.kind {
            ExprKind::Const(value) => AbstractValue::of_value(value),
            ExprKind::Read(path) => self.eval_path(path, expr, env),
            ExprKind::Negate(operand) => {
                let value = self.eval_non_null(operand, env);
                match value.shape {
                    AbstractShape::Double(least, most) => AbstractValue::non_null(AbstractShape::Double(-most, -least)),
                    AbstractShape::Number(least, most) => self.clamp_to_range(-most, -least, I64_RANGE, expr),
                    shape => AbstractValue::non_null(shape),
                }
            }
            ExprKind::If(condition, yes, no) => {
                let (on_yes, on_no) = self.split_env(condition, env);
                let yes = on_yes.map(|env| self.eval(yes, &env));
                let no = on_no.map(|env| self.eval(no, &env));
                match (yes, no) {
                    (Some(yes), Some(no)) => yes.join(&no),
                    (Some(value), None) | (None, Some(value)) => value,
                    (None, None) => AbstractValue::non_null(AbstractShape::Never),
                }
            }
            ExprKind::Binary(operator, left, right) if super::arithmetic::is_arithmetic(*operator) => {
                self.eval_arithmetic(*operator, left, right, expr, env)
            }
            ExprKind::Not(_) | ExprKind::And(..) | ExprKind::Or(..) | ExprKind::Binary(..) => {
                let (yes, no) = self.split_env(expr, env);
                AbstractValue::bool(yes.is_some(), no.is_some())
            }
            ExprKind::Call(function, arguments) => self.eval_call(*function, arguments, expr, env),
            ExprKind::List(items) => {
                let size = items.len() as u64;
                let elements = items.iter().map(|item| self.eval_non_null(item, env)).collect::<Vec<_>>();
                let element = elements
                    .into_iter()
                    .reduce(|a, b| a.join(&b))
                    .unwrap_or(AbstractValue::non_null(AbstractShape::Never));
                AbstractValue::non_null(AbstractShape::List { size: (size, size), element: Box::new(element) })
            }
            ExprKind::Comprehension { kind: how, range, local, body } => {
                self.eval_comprehension(*how, range, *local, body, env)
            }
        }
    }

    /// Evaluates without collecting findings.
    pub(crate) fn eval_silently(&mut self, expr: &Expr, env: &AbstractEnv) -> AbstractValue {
        self.muted += 1;
        let value = self.eval(expr, env);
        self.muted -= 1;
        value
    }

    /// Evaluates an operand that must not be null.
    pub(super) fn eval_non_null(&mut self, expr: &Expr, env: &AbstractEnv) -> AbstractValue {
        let value = self.eval(expr, env);
        self.require_non_null(&value, expr);
        value.without_null()
    }

    pub(super) fn require_non_null(&mut self, value: &AbstractValue, expr: &Expr) {
        if value.may_be_null {
            let path = match &expr.kind {
                ExprKind::Read(path) => Some(self.path_name(path)),
                _ => None,
            };
            self.note_null_fault(value, expr.span, path);
        }
    }

    fn eval_comprehension(
        &mut self,
        how: ComprehensionKind,
        range: &Expr,
        local: u16,
        body: &Expr,
        env: &AbstractEnv,
    ) -> AbstractValue {
        let list = self.eval_non_null(range, env);
        let (size, element) = match list.shape {
            AbstractShape::List { size, element } => (size, *element),
            _ => ((0, bounds::DEFAULT_MAX_LIST_ITEMS as u64), AbstractValue::non_null(AbstractShape::Any)),
        };
        if size.1 == 0 || element.is_empty() {
            return match how {
                ComprehensionKind::All => AbstractValue::bool(true, false),
                ComprehensionKind::Exists => AbstractValue::bool(false, true),
                ComprehensionKind::Filter => {
                    AbstractValue::non_null(AbstractShape::List { size: (0, 0), element: Box::new(element) })
                }
            };
        }
        let inner_env = env.with_local(local, element.clone());
        self.split_env(body, &inner_env);
        match how {
            ComprehensionKind::Filter => {
                AbstractValue::non_null(AbstractShape::List { size: (0, size.1), element: Box::new(element) })
            }
            _ => AbstractValue::bool(true, true),
        }
    }

    /// Evaluates a path and collects each hop that may go through null.
    fn eval_path(&mut self, path: &ValuePath, expr: &Expr, env: &AbstractEnv) -> AbstractValue {
        let mut current = self.eval_root(path.root, expr, env);
        if let Some(value) = env.path_fact(path.root, &[]) {
            current = current.meet(value);
        }
        for (index, step) in path.steps.iter().enumerate() {
            let lifecycles = if index == 0 && path.root == PathRoot::Record {
                None
            } else {
                if current.may_be_null {
                    let prefix =
                        ValuePath { root: path.root, steps: path.steps[..index].to_vec(), nullable_steps: Vec::new() };
                    let name = self.path_name(&prefix);
                    self.note_null_fault(&current, expr.span, Some(name));
                }
                match current.shape {
                    AbstractShape::Ref(lifecycles) => Some(lifecycles),
                    _ => Some(Arc::from([])),
                }
            };
            current = match lifecycles {
                None => self.eval_own_step(step, env),
                Some(lifecycles) => self.eval_other_step(step, &lifecycles),
            };
            if let Some(value) = env.path_fact(path.root, &path.steps[..=index]) {
                current = current.meet(value);
            }
        }
        current
    }

    fn eval_root(&mut self, root: PathRoot, expr: &Expr, env: &AbstractEnv) -> AbstractValue {
        match root {
            PathRoot::Local(local) => {
                env.local_value(local).cloned().unwrap_or(AbstractValue::non_null(AbstractShape::Any).or_null(true))
            }
            PathRoot::Input(index) => match self.input_values.get(usize::from(index)) {
                Some(value) => value.clone(),
                None => AbstractValue::of_type(&expr.value_type.ty, &crate::model::FieldBounds::default(), true),
            },
            PathRoot::Result(index) => {
                let fields = self.lifecycle.work.as_ref().and_then(|work| work.result.as_ref());
                declared_value(fields.and_then(|fields| fields.get(usize::from(index))))
            }
            PathRoot::Answer { check, part } => {
                let check = self.lifecycle.checks.get(usize::from(check));
                declared_value(check.and_then(|check| check.answer_fields.get(usize::from(part))))
            }
            PathRoot::Error(part) => error_part_value(part),
            PathRoot::Lookup(index) => {
                let Some(lookup) = self.lifecycle.lookups.get(usize::from(index)) else {
                    return AbstractValue::non_null(AbstractShape::Any).or_null(true);
                };
                self.eval(&lookup.natural_key.expr, env);
                AbstractValue::non_null(AbstractShape::Ref([lookup.lifecycle.clone()].into())).or_null(true)
            }
            PathRoot::Link(index) => {
                let link = self.lifecycle.links.get(usize::from(index));
                let lifecycles: Arc<[Arc<str>]> = link
                    .map(|link| link.sources.iter().map(|from| from.lifecycle.clone()).collect())
                    .unwrap_or_default();
                let max_items =
                    link.and_then(|link| link.max).map_or(bounds::MAX_RECORDS_PER_OPERATION as u64, u64::from);
                let element = Box::new(AbstractValue::non_null(AbstractShape::Ref(lifecycles)));
                AbstractValue::non_null(AbstractShape::List { size: (0, max_items), element })
            }
            PathRoot::Actor(part) => match part {
                ActorPart::Id => AbstractValue::text_up_to(bounds::MAX_TEXT_CHARS as u64),
                ActorPart::User => AbstractValue::bool(true, true),
                ActorPart::Roles | ActorPart::Capabilities => AbstractValue::non_null(AbstractShape::List {
                    size: (0, bounds::DEFAULT_MAX_LIST_ITEMS as u64),
                    element: Box::new(AbstractValue::text_up_to(bounds::MAX_TEXT_CHARS as u64)),
                }),
            },
            PathRoot::Now => AbstractValue::non_null(NOW_RANGE),
            PathRoot::Record => AbstractValue::non_null(AbstractShape::Ref([self.lifecycle.name.clone()].into())),
        }
    }

    /// Evaluates a step from the transition's own record.
    fn eval_own_step(&self, step: &PathStep, env: &AbstractEnv) -> AbstractValue {
        match step {
            PathStep::Field { index: slot, .. } => env
                .field_facts
                .get(usize::from(*slot))
                .cloned()
                .unwrap_or(AbstractValue::non_null(AbstractShape::Any).or_null(true)),
            PathStep::Id => AbstractValue::non_null(AbstractShape::Ref([self.lifecycle.name.clone()].into())),
            PathStep::State => state_names_value(self.lifecycle),
            step => metadata_value(step),
        }
    }

    /// Evaluates a step from another record of one of these lifecycles, of which only the declarations are known.
    fn eval_other_step(&self, step: &PathStep, lifecycles: &Arc<[Arc<str>]>) -> AbstractValue {
        let value_in = |lifecycle: &Lifecycle| match step {
            PathStep::Field { name, .. } => lifecycle.field_index(name).map(|slot| {
                let field = &lifecycle.fields[usize::from(slot)];
                if field.is_constant {
                    constant_value(field)
                } else {
                    AbstractValue::of_type(&field.ty, &field.bounds, field.nullable)
                }
            }),
            PathStep::State => Some(state_names_value(lifecycle)),
            _ => None,
        };
        match step {
            PathStep::Field { .. } | PathStep::State => lifecycles
                .iter()
                .map(|name| self.definitions.get(name).and_then(|lifecycle| value_in(lifecycle)))
                .map(|value| value.unwrap_or(AbstractValue::non_null(AbstractShape::Any).or_null(true)))
                .reduce(|a, b| a.join(&b))
                .unwrap_or(AbstractValue::non_null(AbstractShape::Any).or_null(true)),
            PathStep::Id => AbstractValue::non_null(AbstractShape::Ref(lifecycles.clone())),
            step => metadata_value(step),
        }
    }
}

/// Returns the value of a `const` field.
pub(crate) fn constant_value(field: &FieldDef) -> AbstractValue {
    field
        .default
        .as_ref()
        .map_or_else(|| AbstractValue::of_type(&field.ty, &field.bounds, field.nullable), AbstractValue::of_value)
}

fn declared_value(field: Option<&FieldDef>) -> AbstractValue {
    match field {
        Some(field) => AbstractValue::of_type(&field.ty, &field.bounds, field.nullable),
        None => AbstractValue::non_null(AbstractShape::Any).or_null(true),
    }
}

fn state_names_value(lifecycle: &Lifecycle) -> AbstractValue {
    let names = lifecycle.states.iter().filter(|state| !state.is_reserved).map(|state| state.name.clone());
    AbstractValue::non_null(AbstractShape::one_of(names))
}

fn error_part_value(part: ErrorPart) -> AbstractValue {
    match part {
        // The engine cuts a worker's texts to this length.
        ErrorPart::Code | ErrorPart::Message => AbstractValue::text_up_to(bounds::MAX_TEXT_CHARS as u64),
        ErrorPart::Retryable => AbstractValue::bool(true, true),
        ErrorPart::RetryAfter => {
            AbstractValue::non_null(AbstractShape::Number(0, i128::from(bounds::MAX_RETRY_AFTER.micros())))
                .or_null(true)
        }
    }
}

fn metadata_value(step: &PathStep) -> AbstractValue {
    match step {
        PathStep::Owner => AbstractValue::text_up_to(bounds::MAX_TEXT_CHARS as u64),
        PathStep::Version | PathStep::Attempt => AbstractValue::non_null(AbstractShape::Number(0, MAX_ENGINE_COUNTER)),
        PathStep::Hold => AbstractValue::non_null(AbstractShape::Number(0, I64_RANGE.1)),
        PathStep::CreatedAt | PathStep::UpdatedAt => AbstractValue::non_null(NOW_RANGE),
        PathStep::StartedAt | PathStep::FinishedAt => AbstractValue::non_null(NOW_RANGE).or_null(true),
        PathStep::Id | PathStep::State | PathStep::Field { .. } => {
            AbstractValue::non_null(AbstractShape::Any).or_null(true)
        }
    }
}

/// Returns the range of a type at run time, for numbers computed in `i128`.
pub(crate) fn runtime_range(ty: &DataType) -> (i128, i128) {
    match ty {
        DataType::Time => match AbstractShape::of_type(&DataType::Time, &crate::model::FieldBounds::default()) {
            AbstractShape::Number(least, most) => (least, most),
            _ => I64_RANGE,
        },
        DataType::Duration => (I64_RANGE.0.max(-MAX_DURATION_MICROS * 100), I64_RANGE.1.min(MAX_DURATION_MICROS * 100)),
        _ => I64_RANGE,
    }
}
