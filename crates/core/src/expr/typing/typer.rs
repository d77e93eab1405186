//! State of typing one expression, and typing of literals, names and conditions.

use std::ops::Range;
use std::sync::Arc;

use super::super::parse::{ParsedExpr, ParsedKind};
use super::super::scope::{ExpectedType, ExprLocation, ExprScope, span_in_file};
use super::super::suggest;
use super::super::tree::{Expr, ExprKind, PathRoot, ValuePath};
use super::super::types::{is_assignable, type_name, value_type};
use super::super::{cost, null_facts};
use super::{hints, paths};
use crate::bounds;
use crate::diagnostic::Diagnostic;
use crate::model::{DataType, ValueType};
use crate::time::Duration;
use crate::value::Value;

/// A typed expression with its cost.
pub(in super::super) struct TypedExpr {
    pub expr: Expr,
    /// Maximum steps of one evaluation.
    pub cost: u64,
    /// Maximum elements of the resulting list; 0 if it is not a list.
    pub max_items: u64,
    /// Number of refs followed to read the value.
    pub hops: usize,
}

pub(super) struct ComprehensionVariable {
    pub name: Arc<str>,
    pub ty: DataType,
    pub hops: usize,
}

/// `None` if an error was reported.
pub(super) type TypingResult<T> = Option<T>;

pub(in super::super) struct ExprTyper<'a> {
    pub(super) scope: &'a ExprScope<'a>,
    location: ExprLocation,
    pub(super) locals: Vec<ComprehensionVariable>,
    /// Paths that cannot be null at the current node.
    pub(super) non_null_paths: Vec<ValuePath>,
    /// Whether an unbounded link is allowed: only as the whole target of an event action.
    pub(super) allows_unbounded_link: bool,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> ExprTyper<'a> {
    pub(in super::super) fn new(scope: &'a ExprScope<'a>, location: ExprLocation, non_null: &[ValuePath]) -> Self {
        Self {
            scope,
            location,
            locals: Vec::new(),
            non_null_paths: non_null.to_vec(),
            allows_unbounded_link: false,
            diagnostics: Vec::new(),
        }
    }

    /// Returns the number of diagnostics so far, earlier ones included.
    pub(super) fn diagnostic_count(&self) -> usize {
        self.scope.diagnostic_count + self.diagnostics.len()
    }

    /// Types the whole expression and checks it against the expected type.
    pub(in super::super) fn type_expr(
        mut self,
        node: &ParsedExpr,
        expected_type: &ExpectedType,
    ) -> Result<Expr, Vec<Diagnostic>> {
        self.allows_unbounded_link =
            matches!(expected_type, ExpectedType::Targets) && matches!(node.kind, ParsedKind::Select { .. });
        let expected = match expected_type {
            ExpectedType::Fits(want) => Some(&want.ty),
            ExpectedType::Targets | ExpectedType::Any => None,
        };
        let Some(lowered) = self.infer(node, expected) else { return Err(self.diagnostics) };
        if lowered.cost > bounds::MAX_EXPRESSION_COST {
            let message = format!(
                "one evaluation may take {} steps; at most {} are allowed",
                cost::format_cost(lowered.cost),
                bounds::MAX_EXPRESSION_COST
            );
            self.report("expression-too-costly", &node.range, message, "lower the bounds of the lists that it reads");
        }
        match expected_type {
            ExpectedType::Fits(want) => self.require_type(&lowered.expr, want, node),
            ExpectedType::Targets => self.require_ref_targets(&lowered.expr.value_type.ty, &node.range),
            ExpectedType::Any => {}
        }
        if self.diagnostics.is_empty() { Ok(lowered.expr) } else { Err(self.diagnostics) }
    }

    fn require_type(&mut self, expr: &Expr, expected: &ValueType, node: &ParsedExpr) {
        let (given, at) = (&expr.value_type, &node.range);
        if !is_assignable(&given.ty, &expected.ty) {
            let message = format!("expected {}, got {}", type_name(&expected.ty), type_name(&given.ty));
            let help = match (&given.ty, &expected.ty) {
                (DataType::Int | DataType::Double, DataType::Duration) => {
                    hints::unit_help(node, self.location.content_start.is_none())
                }
                (DataType::Int, DataType::Double) => "convert it: double(…)".to_owned(),
                (DataType::Double, DataType::Int) => "convert it: int(…)".to_owned(),
                (DataType::Text, DataType::Enum(_)) => {
                    "write one of the enum's values as a literal or a bare name".to_owned()
                }
                (_, DataType::Bool) => "compare the value with another one".to_owned(),
                (_, DataType::Text) => "convert it: string(…)".to_owned(),
                _ => "give a value of that type".to_owned(),
            };
            self.report("type-mismatch", at, message, help);
        } else if given.nullable && !expected.nullable {
            let (what, help) = hints::null_help(node, expr, &expected.ty);
            self.report("null-not-allowed", at, format!("{what}, but {} is required", type_name(&expected.ty)), help);
        }
    }

    fn require_ref_targets(&mut self, ty: &DataType, range: &Range<usize>) {
        let is_target = match ty {
            DataType::Ref(_) => true,
            DataType::List(element) => matches!(**element, DataType::Ref(_)),
            _ => false,
        };
        if !is_target {
            let message = format!("a target must be a ref or a list of refs, got {}", type_name(ty));
            self.report("type-mismatch", range, message, "name a ref field, a link, or an entry of [refs]");
        }
    }

    pub(super) fn report_error<T>(
        &mut self,
        code: &'static str,
        range: &Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> TypingResult<T> {
        self.report(code, range, message, help);
        None
    }

    fn report(
        &mut self,
        code: &'static str,
        range: &Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let diagnostic = Diagnostic::error(code, span_in_file(self.location, range), message).help(help);
        self.diagnostics.push(diagnostic);
    }

    pub(super) fn typed_expr(
        &self,
        range: &Range<usize>,
        kind: ExprKind,
        value_type: ValueType,
        cost: u64,
    ) -> TypedExpr {
        TypedExpr {
            expr: Expr { kind, value_type, span: span_in_file(self.location, range) },
            cost,
            max_items: 0,
            hops: 0,
        }
    }

    /// Types one node. `expected` only gives context for bare names and literals; the caller checks the returned type.
    pub(super) fn infer(&mut self, node: &ParsedExpr, expected: Option<&DataType>) -> TypingResult<TypedExpr> {
        let at = &node.range;
        match &node.kind {
            ParsedKind::Literal(value) => self.infer_literal(value, at, expected),
            ParsedKind::Name(name) => self.infer_name(name, at, expected),
            ParsedKind::Select { .. } => self.infer_path(node),
            ParsedKind::Not(inner) => {
                let inner = self.infer_condition(inner)?;
                let cost = cost::saturating_sum([inner.cost, 1]);
                Some(self.typed_expr(at, ExprKind::Not(Box::new(inner.expr)), value_type(DataType::Bool, false), cost))
            }
            ParsedKind::Negate(inner) => self.infer_negation(inner, at),
            ParsedKind::And(left, right) => self.infer_logical(left, right, at, true),
            ParsedKind::Or(left, right) => self.infer_logical(left, right, at, false),
            ParsedKind::If(condition, yes, no) => self.infer_conditional([condition, yes, no], at, expected),
            ParsedKind::Binary(operator, left, right) => self.infer_binary(*operator, left, right, at),
            ParsedKind::List(elements) => self.infer_list(elements, at, expected),
            ParsedKind::Call { name, name_range: name_at, target, arguments } => match target {
                Some(target) => self.infer_method(name, name_at, target, arguments, at, expected),
                None => self.infer_function(name, name_at, arguments, at),
            },
        }
    }

    fn infer_literal(
        &mut self,
        value: &Value,
        range: &Range<usize>,
        expected: Option<&DataType>,
    ) -> TypingResult<TypedExpr> {
        let mut value = value.clone();
        let ty = match (&value, expected) {
            (Value::Text(text), Some(DataType::Enum(values))) => {
                if !values.contains(text) {
                    let help =
                        suggest::suggestion_help(self.diagnostic_count(), text, values.iter().map(|value| &**value));
                    return self.report_error(
                        "unknown-value",
                        range,
                        format!("`{text}` is not one of the allowed values"),
                        help,
                    );
                }
                DataType::Enum([text.clone()].into())
            }
            (Value::Text(text), Some(DataType::Duration)) => match text.parse::<Duration>() {
                Ok(duration) => {
                    value = Value::Duration(duration);
                    DataType::Duration
                }
                Err(error) => {
                    return self.report_error(
                        "invalid-duration",
                        range,
                        error.to_string(),
                        "write a duration such as '30s' or '1h30m'",
                    );
                }
            },
            (Value::Null, _) => DataType::Null,
            (Value::Bool(_), _) => DataType::Bool,
            (Value::Int(_), _) => DataType::Int,
            (Value::Double(_), _) => DataType::Double,
            _ => DataType::Text,
        };
        let nullable = value.is_null();
        Some(self.typed_expr(range, ExprKind::Const(value), value_type(ty, nullable), 1))
    }

    /// Types a bare name: a variable, `now`, or a value of the expected enum.
    fn infer_name(
        &mut self,
        name: &Arc<str>,
        range: &Range<usize>,
        expected: Option<&DataType>,
    ) -> TypingResult<TypedExpr> {
        let values = match expected {
            Some(DataType::Enum(values)) => Some(values),
            _ => None,
        };
        let is_value = values.is_some_and(|values| values.contains(name));
        if self.is_value_name(name) {
            if is_value {
                let message = format!("`{name}` is both an enum value and another name");
                return self.report_error(
                    "ambiguous-name",
                    range,
                    message,
                    format!("write '{name}' for the enum value"),
                );
            }
            return Some(self.infer_root_value(name, range));
        }
        if is_value {
            let ty = DataType::Enum([name.clone()].into());
            return Some(self.typed_expr(range, ExprKind::Const(Value::Text(name.clone())), value_type(ty, false), 1));
        }
        if paths::is_path_root(name) || name.as_ref() == "now" {
            return self.report_bare_root(name, range);
        }
        let (message, help) = match values {
            Some(values) => (
                format!("`{name}` is not one of the allowed values"),
                suggest::suggestion_help(self.diagnostic_count(), name, values.iter().map(|value| &**value)),
            ),
            None => match self.guess_meant_name(name) {
                Some(meant) => (format!("the name `{name}` is unknown"), format!("did you mean {meant}?")),
                None => (
                    format!("the name `{name}` is unknown, and it is not compared with a state or an enum"),
                    match expected {
                        Some(DataType::Int | DataType::Double) => {
                            "write the number in digits, or record.NAME for a field".to_owned()
                        }
                        _ => format!("write '{name}' for text, record.NAME for a field"),
                    },
                ),
            },
        };
        self.report_error("unknown-name", range, message, help)
    }

    /// Returns whether a node needs context for its type: a bare name, a text literal, or an expression of them.
    pub(super) fn needs_context(&self, node: &ParsedExpr) -> bool {
        match &node.kind {
            ParsedKind::Literal(value) => matches!(value, Value::Text(_)),
            ParsedKind::Name(name) => !self.is_value_name(name),
            ParsedKind::List(elements) => elements.iter().any(|element| self.needs_context(element)),
            ParsedKind::If(_, yes, no) => self.needs_context(yes) || self.needs_context(no),
            _ => false,
        }
    }

    /// Returns whether the name is a variable or `now`.
    pub(super) fn is_value_name(&self, name: &str) -> bool {
        self.locals.iter().any(|local| *local.name == *name) || (name == "now" && self.scope.now)
    }

    /// Types a node that must be a bool.
    pub(super) fn infer_condition(&mut self, node: &ParsedExpr) -> TypingResult<TypedExpr> {
        let lowered = self.infer(node, None)?;
        if lowered.expr.value_type.ty != DataType::Bool {
            let message = format!("expected true or false, got {}", type_name(&lowered.expr.value_type.ty));
            return self.report_error("type-mismatch", &node.range, message, "compare the value with another one");
        }
        Some(lowered)
    }

    /// Runs `then` with more paths known to be non-null.
    pub(super) fn with_non_null<T>(&mut self, non_null: Vec<ValuePath>, then: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.non_null_paths.len();
        self.non_null_paths.extend(non_null);
        let result = then(self);
        self.non_null_paths.truncate(before);
        result
    }

    fn infer_logical(
        &mut self,
        left: &ParsedExpr,
        right: &ParsedExpr,
        range: &Range<usize>,
        is_and: bool,
    ) -> TypingResult<TypedExpr> {
        let left = self.infer_condition(left);
        let learned =
            left.as_ref().map(|left| null_facts::non_null_paths(&left.expr, Some(is_and))).unwrap_or_default();
        let right = self.with_non_null(learned, |typer| typer.infer_condition(right));
        let (left, right) = (left?, right?);
        let cost = cost::saturating_sum([left.cost, right.cost, 1]);
        let (left, right) = (Box::new(left.expr), Box::new(right.expr));
        let kind = if is_and { ExprKind::And(left, right) } else { ExprKind::Or(left, right) };
        Some(self.typed_expr(range, kind, value_type(DataType::Bool, false), cost))
    }

    fn infer_conditional(
        &mut self,
        [condition, yes, no]: [&ParsedExpr; 3],
        range: &Range<usize>,
        expected: Option<&DataType>,
    ) -> TypingResult<TypedExpr> {
        let condition = self.infer_condition(condition)?;
        let when = |truth| null_facts::non_null_paths(&condition.expr, Some(truth));
        let (yes, no) = if expected.is_none() && self.needs_context(yes) && !self.needs_context(no) {
            let no = self.with_non_null(when(false), |typer| typer.infer(no, None))?;
            let context = no.expr.value_type.ty.clone();
            (self.with_non_null(when(true), |typer| typer.infer(yes, Some(&context)))?, no)
        } else {
            let yes = self.with_non_null(when(true), |typer| typer.infer(yes, expected));
            let context = yes.as_ref().map(|yes| yes.expr.value_type.ty.clone());
            let no = self.with_non_null(when(false), |typer| typer.infer(no, expected.or(context.as_ref())));
            (yes?, no?)
        };
        let Some(ty) = super::super::types::join_types(&yes.expr.value_type.ty, &no.expr.value_type.ty) else {
            let message = format!(
                "one branch is {} and the other {}",
                type_name(&yes.expr.value_type.ty),
                type_name(&no.expr.value_type.ty)
            );
            return self.report_error("type-mismatch", range, message, "give both branches the same type");
        };
        let nullable = yes.expr.value_type.nullable || no.expr.value_type.nullable;
        let cost = cost::saturating_sum([condition.cost, yes.cost.max(no.cost), 1]);
        let (items, hops) = (yes.max_items.max(no.max_items), yes.hops.max(no.hops));
        let kind = ExprKind::If(Box::new(condition.expr), Box::new(yes.expr), Box::new(no.expr));
        Some(TypedExpr { max_items: items, hops, ..self.typed_expr(range, kind, value_type(ty, nullable), cost) })
    }

    pub(super) fn read_root(&self, range: &Range<usize>, root: PathRoot, value_type: ValueType) -> TypedExpr {
        let path = ValuePath { root, steps: Vec::new(), nullable_steps: Vec::new() };
        let typed = ValueType { nullable: value_type.nullable && !self.non_null_paths.contains(&path), ..value_type };
        self.typed_expr(range, ExprKind::Read(path), typed, 1)
    }
}
