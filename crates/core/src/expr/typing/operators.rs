//! Types operators.

use std::ops::Range;

use super::super::cost;
use super::super::parse::ParsedExpr;
use super::super::tree::{BinaryOperator, ExprKind};
use super::super::types::{is_comparable, is_text, join_types, type_name, value_type};
use super::hints;
use super::typer::{ExprTyper, TypedExpr, TypingResult};
use crate::model::DataType;

impl ExprTyper<'_> {
    pub(super) fn infer_negation(&mut self, inner: &ParsedExpr, range: &Range<usize>) -> TypingResult<TypedExpr> {
        let inner = self.infer(inner, None)?;
        let ty = inner.expr.value_type.ty.clone();
        if !matches!(ty, DataType::Int | DataType::Double) {
            let message = format!("`-` needs a number, got {}", type_name(&ty));
            let help = if ty == DataType::Duration { "subtract it: now - x" } else { "remove the sign" };
            return self.report_error("type-mismatch", range, message, help);
        }
        let cost = cost::saturating_sum([inner.cost, 1]);
        Some(self.typed_expr(range, ExprKind::Negate(Box::new(inner.expr)), value_type(ty, false), cost))
    }

    pub(super) fn infer_binary(
        &mut self,
        operator: BinaryOperator,
        left: &ParsedExpr,
        right: &ParsedExpr,
        range: &Range<usize>,
    ) -> TypingResult<TypedExpr> {
        match operator {
            BinaryOperator::Equal | BinaryOperator::NotEqual => self.infer_equality(operator, left, right, range),
            BinaryOperator::In => self.infer_membership(left, right, range),
            _ => {
                let (left, right) = (self.infer(left, None), self.infer(right, None));
                let (left, right) = (left?, right?);
                let (one, other) = (&left.expr.value_type.ty, &right.expr.value_type.ty);
                let Some(ty) = result_type(operator, one, other) else {
                    return self.report_operand_mismatch(operator, one, other, range);
                };
                let items =
                    if matches!(ty, DataType::List(_)) { left.max_items.saturating_add(right.max_items) } else { 0 };
                let hops = left.hops.max(right.hops);
                let cost = cost::saturating_sum([left.cost, right.cost, items, 1]);
                let kind = ExprKind::Binary(operator, Box::new(left.expr), Box::new(right.expr));
                Some(TypedExpr { max_items: items, hops, ..self.typed_expr(range, kind, value_type(ty, false), cost) })
            }
        }
    }

    /// Types both sides. A side that needs context comes second and gets it from the other.
    fn infer_both_sides(&mut self, left: &ParsedExpr, right: &ParsedExpr) -> TypingResult<(TypedExpr, TypedExpr)> {
        if self.needs_context(left) && !self.needs_context(right) {
            let right = self.infer(right, None)?;
            let left = self.infer(left, enum_context(&right.expr.value_type.ty).as_ref())?;
            Some((left, right))
        } else {
            let left = self.infer(left, None);
            let context = left.as_ref().and_then(|left| enum_context(&left.expr.value_type.ty));
            // If the left side has an error, a bare name on the right has no context. A second error would be
            // misleading.
            let right =
                if left.is_none() && self.needs_context(right) { None } else { self.infer(right, context.as_ref()) };
            Some((left?, right?))
        }
    }

    fn infer_equality(
        &mut self,
        operator: BinaryOperator,
        left: &ParsedExpr,
        right: &ParsedExpr,
        range: &Range<usize>,
    ) -> TypingResult<TypedExpr> {
        let nodes = (left, right);
        let (left, right) = self.infer_both_sides(left, right)?;
        let (one, other) = (&left.expr.value_type, &right.expr.value_type);
        if !is_comparable(&one.ty, &other.ty) {
            let holds = |list: &DataType, element: &DataType| match list {
                DataType::List(of) => *element != DataType::Null && is_comparable(of, element),
                _ => false,
            };
            let negated = operator == BinaryOperator::NotEqual;
            let help = if holds(&one.ty, &other.ty) {
                hints::membership_help(nodes.0, nodes.1, negated)
            } else if holds(&other.ty, &one.ty) {
                hints::membership_help(nodes.1, nodes.0, negated)
            } else {
                return self.report_operand_mismatch(operator, &one.ty, &other.ty, range);
            };
            let (one, other) = (type_name(&one.ty), type_name(&other.ty));
            let message = format!("`{}` cannot combine {one} and {other}", operator_text(operator));
            return self.report_error("type-mismatch", range, message, help);
        }
        let cost = cost::saturating_sum([left.cost, right.cost, left.max_items.min(right.max_items), 1]);
        let kind = ExprKind::Binary(operator, Box::new(left.expr), Box::new(right.expr));
        Some(self.typed_expr(range, kind, value_type(DataType::Bool, false), cost))
    }

    fn infer_membership(
        &mut self,
        left: &ParsedExpr,
        right: &ParsedExpr,
        range: &Range<usize>,
    ) -> TypingResult<TypedExpr> {
        let (left, right) = if self.needs_context(left) {
            let list = self.infer(right, None)?;
            let context = match &list.expr.value_type.ty {
                DataType::List(element) => enum_context(element),
                _ => None,
            };
            (self.infer(left, context.as_ref())?, list)
        } else {
            let left = self.infer(left, None)?;
            let context = enum_context(&left.expr.value_type.ty).map(|ty| DataType::List(Box::new(ty)));
            (left, self.infer(right, context.as_ref())?)
        };
        let (one, other) = (&left.expr.value_type.ty, &right.expr.value_type.ty);
        let fits = match other {
            DataType::List(element) => *one != DataType::Null && is_comparable(one, element),
            _ => false,
        };
        if !fits {
            return self.report_operand_mismatch(BinaryOperator::In, one, other, range);
        }
        let cost = cost::saturating_sum([left.cost, right.cost, right.max_items, 1]);
        let kind = ExprKind::Binary(BinaryOperator::In, Box::new(left.expr), Box::new(right.expr));
        Some(self.typed_expr(range, kind, value_type(DataType::Bool, false), cost))
    }

    fn report_operand_mismatch<T>(
        &mut self,
        operator: BinaryOperator,
        one: &DataType,
        other: &DataType,
        range: &Range<usize>,
    ) -> TypingResult<T> {
        let sign = operator_text(operator);
        let message = format!("`{sign}` cannot combine {} and {}", type_name(one), type_name(other));
        let help = match (one, other) {
            (DataType::Int, DataType::Double) | (DataType::Double, DataType::Int) => {
                "convert one with double(…) or int(…); ints and doubles do not mix"
            }
            (DataType::Time | DataType::Duration, DataType::Text)
            | (DataType::Text, DataType::Time | DataType::Duration) => {
                "write duration('1s') or timestamp('2026-01-31T12:00:00Z')"
            }
            (DataType::Time | DataType::Duration, DataType::Int)
            | (DataType::Int, DataType::Time | DataType::Duration) => "a number has no unit: write duration('5s')",
            (DataType::Null, _) | (_, DataType::Null) => "compare null with == or !=; it has no other operators",
            (DataType::Json, _) | (_, DataType::Json) => "compare json only with null; it has no other operators",
            (DataType::Ref(_), DataType::Text) | (DataType::Text, DataType::Ref(_)) => {
                "compare refs with refs, or convert with string(…)"
            }
            (DataType::Enum(_), DataType::Enum(_))
                if operator != BinaryOperator::Equal && operator != BinaryOperator::NotEqual =>
            {
                "compare with == or !=; the values of an enum have no order"
            }
            (DataType::Enum(_) | DataType::Ref(_), DataType::Enum(_) | DataType::Ref(_)) => {
                "compare enums that share a value"
            }
            (_, other) if operator == BinaryOperator::In && !matches!(other, DataType::List(_)) => {
                "write a list after `in`"
            }
            (one, DataType::List(_)) if operator != BinaryOperator::In && !matches!(one, DataType::List(_)) => {
                "write [x] for a list of one, or search the list with `in`"
            }
            _ => "make both sides the same type",
        };
        self.report_error("type-mismatch", range, message, help)
    }
}

/// Returns the enum type that gives bare names and literals on the other side their meaning.
fn enum_context(ty: &DataType) -> Option<DataType> {
    match ty {
        DataType::Enum(_) => Some(ty.clone()),
        DataType::List(element) => Some(DataType::List(Box::new(enum_context(element)?))),
        _ => None,
    }
}

/// Returns the result type of an operator, or `None` if it does not accept these operands.
fn result_type(operator: BinaryOperator, one: &DataType, other: &DataType) -> Option<DataType> {
    let same = |ty: &DataType| one == ty && other == ty;
    Some(match operator {
        BinaryOperator::Add => match (one, other) {
            (DataType::Time, DataType::Duration) | (DataType::Duration, DataType::Time) => DataType::Time,
            (DataType::List(_), DataType::List(_)) => join_types(one, other)?,
            _ if is_text(one) && is_text(other) => DataType::Text,
            _ if same(&DataType::Int) || same(&DataType::Double) || same(&DataType::Duration) => one.clone(),
            _ => return None,
        },
        BinaryOperator::Subtract => match (one, other) {
            (DataType::Time, DataType::Time) => DataType::Duration,
            (DataType::Time, DataType::Duration) => DataType::Time,
            _ if same(&DataType::Int) || same(&DataType::Double) || same(&DataType::Duration) => one.clone(),
            _ => return None,
        },
        BinaryOperator::Multiply | BinaryOperator::Divide if same(&DataType::Int) || same(&DataType::Double) => {
            one.clone()
        }
        BinaryOperator::Remainder if same(&DataType::Int) => DataType::Int,
        BinaryOperator::Less
        | BinaryOperator::LessOrEqual
        | BinaryOperator::Greater
        | BinaryOperator::GreaterOrEqual
            if [DataType::Int, DataType::Double, DataType::Text, DataType::Time, DataType::Duration]
                .iter()
                .any(same) =>
        {
            DataType::Bool
        }
        _ => return None,
    })
}

fn operator_text(operator: BinaryOperator) -> &'static str {
    match operator {
        BinaryOperator::Add => "+",
        BinaryOperator::Subtract => "-",
        BinaryOperator::Multiply => "*",
        BinaryOperator::Divide => "/",
        BinaryOperator::Remainder => "%",
        BinaryOperator::Equal => "==",
        BinaryOperator::NotEqual => "!=",
        BinaryOperator::Less => "<",
        BinaryOperator::LessOrEqual => "<=",
        BinaryOperator::Greater => ">",
        BinaryOperator::GreaterOrEqual => ">=",
        BinaryOperator::In => "in",
    }
}
