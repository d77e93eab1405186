//! Abstract arithmetic, text and list operations, and built-in functions.

use super::abstract_value::{AbstractShape, AbstractValue, I64_RANGE};
use super::env::AbstractEnv;
use super::evaluator::{AbstractEvaluator, runtime_range};
use crate::bounds;
use crate::expr::{BinaryOperator, BuiltinFunction, Expr, ExprKind, FaultKind, PathRoot, ValuePath};
use crate::model::DataType;

pub(super) const fn is_arithmetic(operator: BinaryOperator) -> bool {
    matches!(
        operator,
        BinaryOperator::Add
            | BinaryOperator::Subtract
            | BinaryOperator::Multiply
            | BinaryOperator::Divide
            | BinaryOperator::Remainder
    )
}

impl AbstractEvaluator<'_> {
    pub(super) fn eval_arithmetic(
        &mut self,
        operator: BinaryOperator,
        left: &Expr,
        right: &Expr,
        expr: &Expr,
        env: &AbstractEnv,
    ) -> AbstractValue {
        let a = self.eval_non_null(left, env);
        let b = self.eval_non_null(right, env);
        match (a.shape, b.shape) {
            (AbstractShape::Never, _) | (_, AbstractShape::Never) => AbstractValue::non_null(AbstractShape::Never),
            (AbstractShape::Number(a, b), AbstractShape::Number(c, d)) => {
                let (least, most) = self.integer_range(operator, (a, b), (c, d), expr);
                let before = self.findings.len();
                let mut value = self.clamp_to_range(least, most, runtime_range(&expr.value_type.ty), expr);
                if self.findings.len() > before {
                    self.name_widest_operand(expr, env);
                }
                if let (BinaryOperator::Subtract, ExprKind::Read(more), ExprKind::Read(less)) =
                    (operator, &left.kind, &right.kind)
                    && let Some(min_difference) = env.min_difference(more, less)
                    && let AbstractShape::Number(least, most) = value.shape
                    && min_difference <= most
                {
                    value = AbstractValue::non_null(AbstractShape::Number(least.max(min_difference), most));
                }
                value
            }
            (AbstractShape::Double(a, b), AbstractShape::Double(c, d)) => {
                self.double_range(operator, (a, b), (c, d), expr)
            }
            (AbstractShape::Text { size: a, .. }, AbstractShape::Text { size: b, .. }) => {
                AbstractValue::non_null(AbstractShape::Text {
                    size: (a.0.saturating_add(b.0), a.1.saturating_add(b.1)),
                    allowed_values: None,
                    pattern: None,
                })
            }
            (AbstractShape::List { size: a, element: x }, AbstractShape::List { size: b, element: y }) => {
                AbstractValue::non_null(AbstractShape::List {
                    size: (a.0.saturating_add(b.0), a.1.saturating_add(b.1)),
                    element: Box::new(x.join(&y)),
                })
            }
            _ => {
                self.note_fault(FaultKind::Overflow, expr.span, "the sum has no known bounds".to_owned(), None);
                AbstractValue::non_null(AbstractShape::of_type(
                    &expr.value_type.ty,
                    &crate::model::FieldBounds::default(),
                ))
            }
        }
    }

    fn integer_range(
        &mut self,
        operator: BinaryOperator,
        (a, b): (i128, i128),
        (c, d): (i128, i128),
        expr: &Expr,
    ) -> (i128, i128) {
        match operator {
            BinaryOperator::Add => (a.saturating_add(c), b.saturating_add(d)),
            BinaryOperator::Subtract => (a.saturating_sub(d), b.saturating_sub(c)),
            BinaryOperator::Multiply => {
                min_max([a.saturating_mul(c), a.saturating_mul(d), b.saturating_mul(c), b.saturating_mul(d)])
            }
            BinaryOperator::Divide | BinaryOperator::Remainder => {
                if c <= 0 && d >= 0 {
                    self.note_fault(FaultKind::DivisionByZero, expr.span, "the divisor may be zero".to_owned(), None);
                }
                // Apart from zero, the divisor is positive, negative or both. The extremes are at its smallest
                // magnitudes.
                let divisors: Vec<i128> = [c, d, -1, 1].into_iter().filter(|n| *n != 0 && c <= *n && *n <= d).collect();
                if divisors.is_empty() {
                    return I64_RANGE;
                }
                if operator == BinaryOperator::Divide {
                    let quotients = divisors.iter().flat_map(|n| [a / n, b / n]);
                    (quotients.clone().min().unwrap_or(I64_RANGE.0), quotients.max().unwrap_or(I64_RANGE.1))
                } else {
                    if a <= I64_RANGE.0 && divisors.contains(&-1) {
                        // The minimum int divided by -1 overflows. The remainder is evaluated the same way.
                        self.note_fault(
                            FaultKind::Overflow,
                            expr.span,
                            "the dividend may be the smallest int and the divisor -1".to_owned(),
                            None,
                        );
                    }
                    let largest = divisors.iter().map(|n| n.abs()).max().unwrap_or(1) - 1;
                    (if a < 0 { (-largest).max(a) } else { 0 }, if b > 0 { largest.min(b) } else { 0 })
                }
            }
            _ => I64_RANGE,
        }
    }

    fn double_range(
        &mut self,
        operator: BinaryOperator,
        (a, b): (f64, f64),
        (c, d): (f64, f64),
        expr: &Expr,
    ) -> AbstractValue {
        let corners = match operator {
            BinaryOperator::Add => [a + c, b + d, a + c, b + d],
            BinaryOperator::Subtract => [a - d, b - c, a - d, b - c],
            BinaryOperator::Multiply => [a * c, a * d, b * c, b * d],
            BinaryOperator::Divide if c <= 0.0 && d >= 0.0 => {
                self.note_fault(FaultKind::DivisionByZero, expr.span, "the divisor may be zero".to_owned(), None);
                [f64::MIN, f64::MAX, 0.0, 0.0]
            }
            BinaryOperator::Divide => [a / c, a / d, b / c, b / d],
            _ => [f64::MIN, f64::MAX, 0.0, 0.0],
        };
        if corners.iter().any(|end| !end.is_finite()) {
            self.note_fault(
                FaultKind::NotANumber,
                expr.span,
                "the result may exceed the range of a double".to_owned(),
                None,
            );
            return AbstractValue::non_null(AbstractShape::Double(f64::MIN, f64::MAX));
        }
        let least = corners.iter().copied().fold(f64::INFINITY, f64::min);
        let most = corners.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        AbstractValue::non_null(AbstractShape::Double(least, most))
    }

    /// Clamps a number to a range, and notes a fault if it may lie outside.
    pub(super) fn clamp_to_range(
        &mut self,
        least: i128,
        most: i128,
        range: (i128, i128),
        expr: &Expr,
    ) -> AbstractValue {
        if least < range.0 || most > range.1 {
            let message = match expr.value_type.ty {
                DataType::Time => "the time may be after the year 9999".to_owned(),
                DataType::Duration => "the duration may exceed the range of a duration".to_owned(),
                _ => format!(
                    "the result may {} the range of an int",
                    if most > range.1 { "exceed" } else { "fall below" }
                ),
            };
            self.note_fault(FaultKind::Overflow, expr.span, message, None);
        }
        let value = AbstractValue::non_null(AbstractShape::Number(least, most))
            .meet(&AbstractValue::non_null(AbstractShape::Number(range.0, range.1)));
        if value.is_empty() { AbstractValue::non_null(AbstractShape::Number(range.0, range.1)) } else { value }
    }

    /// Adds the operand that may be largest to the last finding, since a bound on it helps.
    fn name_widest_operand(&mut self, expr: &Expr, env: &AbstractEnv) {
        let mut reads: Vec<(&Expr, &ValuePath)> = Vec::new();
        collect_reads(expr, &mut reads);
        let mut widest: Option<(i128, &ValuePath)> = None;
        for (read, path) in reads.into_iter().filter(|(_, path)| path.root != PathRoot::Now) {
            let Some((least, most)) = self.eval_silently(read, env).number_range() else { continue };
            let width = least.saturating_abs().max(most.saturating_abs());
            if widest.is_none_or(|(old, _)| width > old) {
                widest = Some((width, path));
            }
        }
        let name = widest.map(|(_, path)| self.path_name(path));
        if let Some(finding) = self.findings.last_mut() {
            finding.path = name;
        }
    }

    pub(super) fn eval_call(
        &mut self,
        function: BuiltinFunction,
        arguments: &[Expr],
        expr: &Expr,
        env: &AbstractEnv,
    ) -> AbstractValue {
        let any_of_type = || {
            AbstractValue::non_null(AbstractShape::of_type(&expr.value_type.ty, &crate::model::FieldBounds::default()))
        };
        match function {
            BuiltinFunction::Max | BuiltinFunction::Min => self.eval_min_max(function, arguments, env),
            BuiltinFunction::Size => match arguments.first().map(|argument| self.eval_non_null(argument, env).shape) {
                Some(AbstractShape::Text { size, .. } | AbstractShape::List { size, .. }) => {
                    AbstractValue::non_null(AbstractShape::Number(i128::from(size.0), i128::from(size.1)))
                }
                _ => AbstractValue::non_null(AbstractShape::Number(0, I64_RANGE.1)),
            },
            BuiltinFunction::Int => self.eval_int_conversion(arguments, expr, env),
            BuiltinFunction::Double => {
                match arguments.first().map(|argument| self.eval_non_null(argument, env).shape) {
                    #[allow(clippy::cast_precision_loss, reason = "the same rounding happens at run time")]
                    Some(AbstractShape::Number(least, most)) => {
                        AbstractValue::non_null(AbstractShape::Double(least as f64, most as f64))
                    }
                    Some(shape @ AbstractShape::Double(..)) => AbstractValue::non_null(shape),
                    _ => any_of_type(),
                }
            }
            BuiltinFunction::Text => self.eval_text_conversion(arguments, env),
            BuiltinFunction::Backoff => self.eval_backoff(arguments, env),
            BuiltinFunction::Jitter => {
                match arguments.first().map(|argument| self.eval_non_null(argument, env).shape) {
                    Some(AbstractShape::Number(_, most)) => {
                        AbstractValue::non_null(AbstractShape::Number(0, most.max(0)))
                    }
                    _ => any_of_type(),
                }
            }
            BuiltinFunction::StartsWith | BuiltinFunction::EndsWith | BuiltinFunction::Contains => {
                for argument in arguments {
                    self.eval_non_null(argument, env);
                }
                AbstractValue::bool(true, true)
            }
            // Literals are folded at compile time, so the argument already is a time or a duration.
            BuiltinFunction::Timestamp | BuiltinFunction::Duration => {
                arguments.first().map_or_else(any_of_type, |argument| self.eval_non_null(argument, env))
            }
        }
    }

    /// Ignores null operands. The result is null only if all operands may be.
    fn eval_min_max(&mut self, function: BuiltinFunction, arguments: &[Expr], env: &AbstractEnv) -> AbstractValue {
        let values: Vec<AbstractValue> = arguments.iter().map(|argument| self.eval(argument, env)).collect();
        let combine = |a: &AbstractShape, b: &AbstractShape| match (a, b) {
            (AbstractShape::Number(a, b), AbstractShape::Number(c, d)) if function == BuiltinFunction::Max => {
                AbstractShape::Number(*a.max(c), *b.max(d))
            }
            (AbstractShape::Number(a, b), AbstractShape::Number(c, d)) => AbstractShape::Number(*a.min(c), *b.min(d)),
            (AbstractShape::Double(a, b), AbstractShape::Double(c, d)) if function == BuiltinFunction::Max => {
                AbstractShape::Double(a.max(*c), b.max(*d))
            }
            (AbstractShape::Double(a, b), AbstractShape::Double(c, d)) => AbstractShape::Double(a.min(*c), b.min(*d)),
            (AbstractShape::Never, shape) | (shape, AbstractShape::Never) => shape.clone(),
            _ => AbstractShape::Any,
        };
        values
            .into_iter()
            .reduce(|a, b| {
                let combined = AbstractValue::non_null(combine(&a.shape, &b.shape));
                let mut result = combined;
                if a.may_be_null {
                    result = result.join(&AbstractValue::non_null(b.shape.clone()));
                }
                if b.may_be_null {
                    result = result.join(&AbstractValue::non_null(a.shape.clone()));
                }
                result.or_null(a.may_be_null && b.may_be_null)
            })
            .unwrap_or(AbstractValue::only_null())
    }

    fn eval_int_conversion(&mut self, arguments: &[Expr], expr: &Expr, env: &AbstractEnv) -> AbstractValue {
        let Some(argument) = arguments.first() else { return AbstractValue::non_null(AbstractShape::Any) };
        match (self.eval_non_null(argument, env).shape, &argument.value_type.ty) {
            (AbstractShape::Number(least, most), DataType::Time | DataType::Duration) => {
                AbstractValue::non_null(AbstractShape::Number(least.div_euclid(1_000_000), most.div_euclid(1_000_000)))
            }
            (shape @ AbstractShape::Number(..), _) => AbstractValue::non_null(shape),
            #[allow(
                clippy::cast_possible_truncation,
                reason = "a cast to i128 saturates, and that is then out of range"
            )]
            (AbstractShape::Double(least, most), _) => {
                self.clamp_to_range(least.trunc() as i128, most.trunc() as i128, I64_RANGE, expr)
            }
            _ => {
                self.note_fault(FaultKind::Overflow, expr.span, "the value may not fit an int".to_owned(), None);
                AbstractValue::non_null(AbstractShape::Number(I64_RANGE.0, I64_RANGE.1))
            }
        }
    }

    fn eval_text_conversion(&mut self, arguments: &[Expr], env: &AbstractEnv) -> AbstractValue {
        let Some(argument) = arguments.first() else { return AbstractValue::text_up_to(bounds::MAX_TEXT_CHARS as u64) };
        match self.eval_non_null(argument, env).shape {
            shape @ AbstractShape::Text { .. } => AbstractValue::non_null(shape),
            AbstractShape::Bool { .. } => {
                AbstractValue::non_null(AbstractShape::one_of(["true".into(), "false".into()]))
            }
            AbstractShape::Ref(_) => {
                AbstractValue::non_null(AbstractShape::Text { size: (36, 36), allowed_values: None, pattern: None })
            }
            // An int has at most 20 characters, an RFC 3339 time at most 35.
            _ => AbstractValue::non_null(AbstractShape::Text { size: (1, 64), allowed_values: None, pattern: None }),
        }
    }

    /// Returns the range from zero to the cap.
    fn eval_backoff(&mut self, arguments: &[Expr], env: &AbstractEnv) -> AbstractValue {
        let values: Vec<AbstractValue> = arguments.iter().map(|argument| self.eval_non_null(argument, env)).collect();
        let number = |index: usize| values.get(index).and_then(AbstractValue::number_range);
        let cap = number(3).map_or(super::abstract_value::MAX_DURATION_MICROS, |(_, cap)| cap);
        AbstractValue::non_null(AbstractShape::Number(0, cap.max(0)))
    }
}

/// Collects the paths that a sum, a product or a quotient reads.
fn collect_reads<'e>(expr: &'e Expr, reads: &mut Vec<(&'e Expr, &'e ValuePath)>) {
    match &expr.kind {
        ExprKind::Read(path) => reads.push((expr, path)),
        ExprKind::Negate(operand) => collect_reads(operand, reads),
        ExprKind::Binary(_, left, right) => {
            collect_reads(left, reads);
            collect_reads(right, reads);
        }
        _ => {}
    }
}

fn min_max(corners: [i128; 4]) -> (i128, i128) {
    let least = corners.into_iter().min().unwrap_or(I64_RANGE.0);
    (least, corners.into_iter().max().unwrap_or(I64_RANGE.1))
}
