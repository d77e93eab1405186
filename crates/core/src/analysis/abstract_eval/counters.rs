//! Counters: int fields that change only in small steps and so never overflow.

use super::abstract_value::{AbstractShape, AbstractValue, I64_RANGE};
use super::evaluator::constant_value;
use crate::analysis::reachability::transitions_of;
use crate::expr::{BinaryOperator, Expr, ExprKind, PathRoot, PathStep, ValuePath};
use crate::model::{DataType, FieldDef, FieldIndex, Lifecycle};
use crate::value::Value;

/// Largest step of a counter. Small enough that no counter reaches [`UNREACHABLE_COUNT`].
const MAX_COUNTER_STEP: i128 = 1_000_000;
/// Ten maximal steps below the largest int. A counter needs some 10^13 operations on one record to get there.
const UNREACHABLE_COUNT: i128 = I64_RANGE.1 - 10 * MAX_COUNTER_STEP;

pub(crate) struct CounterFields {
    is_counter_field: Vec<bool>,
}

impl CounterFields {
    pub(crate) fn new(lifecycle: &Lifecycle) -> Self {
        let mut is_counter_field: Vec<bool> =
            lifecycle.fields.iter().map(|field| field.ty == DataType::Int && !field.is_constant).collect();
        for (_, transition) in transitions_of(lifecycle) {
            for slot in transition.inputs.iter().filter_map(|input| input.target_field) {
                if let Some(flag) = is_counter_field.get_mut(usize::from(slot)) {
                    *flag = false;
                }
            }
            for (slot, formula) in &transition.set {
                if let Some(flag) = is_counter_field.get_mut(usize::from(*slot)) {
                    *flag &= !matches!(counter_change(&formula.expr, *slot), CounterChange::Other);
                }
            }
        }
        Self { is_counter_field }
    }

    /// Returns the values that the declaration allows, and for counters, those they can reach.
    pub(crate) fn declared_value(&self, field: &FieldDef, field_index: FieldIndex) -> AbstractValue {
        if field.is_constant {
            return constant_value(field);
        }
        let value = AbstractValue::of_type(&field.ty, &field.bounds, field.nullable);
        match (self.is_counter(field_index), value.number_range()) {
            (true, Some((least, most))) => AbstractValue {
                may_be_null: value.may_be_null,
                shape: AbstractShape::Number(least.max(-UNREACHABLE_COUNT), most.min(UNREACHABLE_COUNT)),
            },
            _ => value,
        }
    }

    pub(crate) fn is_counter(&self, field_index: FieldIndex) -> bool {
        self.is_counter_field.get(usize::from(field_index)).copied().unwrap_or(false)
    }

    /// Whether a number is so large that no counter reaches it.
    pub(crate) fn is_unreachable(number: i128) -> bool {
        number >= UNREACHABLE_COUNT
    }
}

/// Change of a field by a `set`.
enum CounterChange {
    /// Sets a constant.
    Reset,
    /// Adds at least this.
    Add(i128),
    Other,
}

fn counter_change(expr: &Expr, field_index: FieldIndex) -> CounterChange {
    match &expr.kind {
        ExprKind::Const(Value::Int(value)) if i128::from(*value).abs() <= I64_RANGE.1 / 2 => CounterChange::Reset,
        ExprKind::Const(Value::Null) => CounterChange::Reset,
        ExprKind::Read(path) if is_own_field(path, field_index) => CounterChange::Add(0),
        ExprKind::Binary(operator @ (BinaryOperator::Add | BinaryOperator::Subtract), left, right) => {
            let (own_path, amount) = match (&left.kind, &right.kind) {
                (ExprKind::Read(path), ExprKind::Const(Value::Int(by))) => (path, *by),
                (ExprKind::Const(Value::Int(by)), ExprKind::Read(path)) if *operator == BinaryOperator::Add => {
                    (path, *by)
                }
                _ => return CounterChange::Other,
            };
            let by = if *operator == BinaryOperator::Add { i128::from(amount) } else { -i128::from(amount) };
            if is_own_field(own_path, field_index) && by.abs() <= MAX_COUNTER_STEP {
                CounterChange::Add(by)
            } else {
                CounterChange::Other
            }
        }
        ExprKind::If(_, yes, no) => match (counter_change(yes, field_index), counter_change(no, field_index)) {
            (CounterChange::Add(yes), CounterChange::Add(no)) => CounterChange::Add(yes.min(no)),
            (CounterChange::Other, _) | (_, CounterChange::Other) => CounterChange::Other,
            _ => CounterChange::Reset,
        },
        _ => CounterChange::Other,
    }
}

/// Returns the minimum that this `set` adds to the field, if it surely adds to it.
pub(crate) fn min_growth(expr: &Expr, field_index: FieldIndex) -> Option<i128> {
    match counter_change(expr, field_index) {
        CounterChange::Add(by) => Some(by),
        CounterChange::Reset | CounterChange::Other => None,
    }
}

fn is_own_field(path: &ValuePath, field_index: FieldIndex) -> bool {
    path.root == PathRoot::Record
        && matches!(path.steps.as_slice(), [PathStep::Field { index: own, .. }] if *own == field_index)
}
