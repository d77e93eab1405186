//! Counters: ints that only ever take small steps, and so never reach the end of what an int holds.

use super::domain::{I64, Known, Shape};
use super::judge::constant;
use crate::check::survey::rows;
use crate::expr::{Binary, Expr, Kind, Path, Root, Step};
use crate::model::{Field, Lifecycle, Slot, Type};
use crate::value::Value;

/// The longest step of a counter.
const STEP: i128 = 1_000_000;
/// Ten steps of a million short of what an int holds: it would take some 10^13 operations on one record to get there.
const FAR: i128 = I64.1 - 10 * STEP;

pub(crate) struct Counters {
    counts: Vec<bool>,
}

impl Counters {
    pub(crate) fn new(lifecycle: &Lifecycle) -> Self {
        let mut counts: Vec<bool> =
            lifecycle.fields.iter().map(|field| field.ty == Type::Int && !field.constant).collect();
        for (_, row) in rows(lifecycle) {
            for slot in row.inputs.iter().filter_map(|input| input.take) {
                if let Some(counts) = counts.get_mut(usize::from(slot)) {
                    *counts = false;
                }
            }
            for (slot, formula) in &row.set {
                if let Some(counts) = counts.get_mut(usize::from(*slot)) {
                    *counts &= !matches!(step(&formula.expr, *slot), Change::Other);
                }
            }
        }
        Self { counts }
    }

    /// What the field may be by its declaration, and by being a counter.
    pub(crate) fn declared(&self, field: &Field, slot: Slot) -> Known {
        if field.constant {
            return constant(field);
        }
        let known = Known::of_type(&field.ty, &field.bounds, field.nullable);
        match (self.is_counter(slot), known.number()) {
            (true, Some((least, most))) => {
                Known { null: known.null, shape: Shape::Number(least.max(-FAR), most.min(FAR)) }
            }
            _ => known,
        }
    }

    pub(crate) fn is_counter(&self, slot: Slot) -> bool {
        self.counts.get(usize::from(slot)).copied().unwrap_or(false)
    }

    /// Whether a number is one that only the end of counting sets.
    pub(crate) fn is_far(number: i128) -> bool {
        number >= FAR
    }
}

/// What a `set` does to the field's own value.
enum Change {
    /// Starts over from a constant.
    Anew,
    /// Adds at least this.
    By(i128),
    Other,
}

fn step(expr: &Expr, slot: Slot) -> Change {
    match &expr.kind {
        Kind::Const(Value::Int(value)) if i128::from(*value).abs() <= I64.1 / 2 => Change::Anew,
        Kind::Const(Value::Null) => Change::Anew,
        Kind::Read(path) if is_own(path, slot) => Change::By(0),
        Kind::Binary(operator @ (Binary::Add | Binary::Subtract), left, right) => {
            let (own, by) = match (&left.kind, &right.kind) {
                (Kind::Read(path), Kind::Const(Value::Int(by))) => (path, *by),
                (Kind::Const(Value::Int(by)), Kind::Read(path)) if *operator == Binary::Add => (path, *by),
                _ => return Change::Other,
            };
            let by = if *operator == Binary::Add { i128::from(by) } else { -i128::from(by) };
            if is_own(own, slot) && by.abs() <= STEP { Change::By(by) } else { Change::Other }
        }
        Kind::If(_, yes, no) => match (step(yes, slot), step(no, slot)) {
            (Change::By(yes), Change::By(no)) => Change::By(yes.min(no)),
            (Change::Other, _) | (_, Change::Other) => Change::Other,
            _ => Change::Anew,
        },
        _ => Change::Other,
    }
}

/// The least by which this `set` makes the field grow, where it surely adds to it.
pub(crate) fn growth(expr: &Expr, slot: Slot) -> Option<i128> {
    match step(expr, slot) {
        Change::By(by) => Some(by),
        Change::Anew | Change::Other => None,
    }
}

fn is_own(path: &Path, slot: Slot) -> bool {
    path.root == Root::Record && matches!(path.steps.as_slice(), [Step::Field { slot: own, .. }] if *own == slot)
}
