//! Splits an environment by a condition: the facts if it is true, and if it is false. An impossible branch is `None`.

use super::abstract_value::{AbstractShape, AbstractValue};
use super::env::{AbstractEnv, own_field_path};
use super::evaluator::AbstractEvaluator;
use crate::expr::{BinaryOperator, BuiltinFunction, Expr, ExprKind, PathRoot, ValuePath};

type BranchEnvs = (Option<AbstractEnv>, Option<AbstractEnv>);

impl AbstractEvaluator<'_> {
    /// Splits the facts into the cases in which `expr` is true and false. Visits each part once: linear work.
    pub(crate) fn split_env(&mut self, expr: &Expr, env: &AbstractEnv) -> BranchEnvs {
        self.steps += 1;
        match &expr.kind {
            ExprKind::Not(operand) => {
                let (yes, no) = self.split_env(operand, env);
                (no, yes)
            }
            ExprKind::And(left, right) => {
                let (left_yes, left_no) = self.split_env(left, env);
                let Some(left_yes) = left_yes else { return (None, left_no) };
                let (yes, right_no) = self.split_env(right, &left_yes);
                (yes, AbstractEnv::join_options(left_no, right_no))
            }
            ExprKind::Or(left, right) => {
                let (left_yes, left_no) = self.split_env(left, env);
                let Some(left_no) = left_no else { return (left_yes, None) };
                let (right_yes, no) = self.split_env(right, &left_no);
                (AbstractEnv::join_options(left_yes, right_yes), no)
            }
            ExprKind::If(condition, yes, no) => {
                let (on_yes, on_no) = self.split_env(condition, env);
                let (a, b) = on_yes.map_or((None, None), |env| self.split_env(yes, &env));
                let (c, d) = on_no.map_or((None, None), |env| self.split_env(no, &env));
                (AbstractEnv::join_options(a, c), AbstractEnv::join_options(b, d))
            }
            ExprKind::Binary(operator, left, right) if !super::arithmetic::is_arithmetic(*operator) => {
                self.split_comparison(*operator, left, right, env)
            }
            _ => {
                let value = self.eval_non_null(expr, env);
                let (yes, no) = match value.shape {
                    AbstractShape::Bool { can_be_true: yes, can_be_false: no } => (yes, no),
                    _ => (true, true),
                };
                let env_where = |evaluator: &mut Self, value: bool| {
                    evaluator.constrained_env(expr, &AbstractValue::bool(value, !value), env)
                };
                (yes.then(|| env_where(self, true)).flatten(), no.then(|| env_where(self, false)).flatten())
            }
        }
    }

    fn split_comparison(
        &mut self,
        operator: BinaryOperator,
        left: &Expr,
        right: &Expr,
        env: &AbstractEnv,
    ) -> BranchEnvs {
        let a = self.eval(left, env);
        let b = self.eval(right, env);
        match operator {
            BinaryOperator::Equal => self.split_equality(left, right, (&a, &b), env),
            BinaryOperator::NotEqual => {
                let (yes, no) = self.split_equality(left, right, (&a, &b), env);
                (no, yes)
            }
            BinaryOperator::In => self.split_membership(left, right, (&a, &b), env),
            operator => {
                self.require_non_null(&a, left);
                self.require_non_null(&b, right);
                let (a, b) = (a.without_null(), b.without_null());
                match operator {
                    BinaryOperator::Less => self.split_ordering((left, &a), (right, &b), true, env),
                    BinaryOperator::LessOrEqual => self.split_ordering((left, &a), (right, &b), false, env),
                    BinaryOperator::Greater => self.split_ordering((right, &b), (left, &a), true, env),
                    _ => self.split_ordering((right, &b), (left, &a), false, env),
                }
            }
        }
    }

    fn split_equality(
        &mut self,
        left: &Expr,
        right: &Expr,
        (a, b): (&AbstractValue, &AbstractValue),
        env: &AbstractEnv,
    ) -> BranchEnvs {
        let common = a.meet(b);
        let yes = if common.is_empty() {
            None
        } else {
            self.constrained_env(left, &common, env).and_then(|env| self.constrained_env(right, &common, &env))
        };
        let no = if a.is_single_value() && a == b {
            None
        } else {
            self.constrained_env(left, &a.without_value(b), env)
                .and_then(|env| self.constrained_env(right, &b.without_value(a), &env))
        };
        (yes, no)
    }

    /// Splits by `left in right`. Learns only from lists whose elements are single values.
    fn split_membership(
        &mut self,
        left: &Expr,
        right: &Expr,
        (a, b): (&AbstractValue, &AbstractValue),
        env: &AbstractEnv,
    ) -> BranchEnvs {
        self.require_non_null(a, left);
        self.require_non_null(b, right);
        let a = &a.clone().without_null();
        let AbstractShape::List { size, element } = &b.shape else { return (Some(env.clone()), Some(env.clone())) };
        if size.1 == 0 {
            return (None, Some(env.clone()));
        }
        let common = a.meet(element);
        let yes = if common.is_empty() { None } else { self.constrained_env(left, &common, env) };
        let ExprKind::List(items) = &right.kind else {
            let items = match &right.kind {
                ExprKind::Const(crate::value::Value::List(items)) => items.clone(),
                _ => return (yes, Some(env.clone())),
            };
            let remaining =
                items.iter().fold(a.clone(), |rest, item| rest.without_value(&AbstractValue::of_value(item)));
            return (yes, self.constrained_env(left, &remaining, env));
        };
        let mut remaining = a.clone();
        for item in items {
            let item = self.eval_silently(item, env);
            remaining = remaining.without_value(&item);
        }
        (yes, self.constrained_env(left, &remaining, env))
    }

    /// Splits by `less < more`, or `<=` if not strict.
    fn split_ordering(
        &mut self,
        smaller: (&Expr, &AbstractValue),
        larger: (&Expr, &AbstractValue),
        strict: bool,
        env: &AbstractEnv,
    ) -> BranchEnvs {
        let yes = self.env_where_less(smaller, larger, strict, env);
        let no = self.env_where_less(larger, smaller, !strict, env);
        (yes, no)
    }

    /// Returns the facts if `less < more`.
    fn env_where_less(
        &mut self,
        smaller: (&Expr, &AbstractValue),
        larger: (&Expr, &AbstractValue),
        strict: bool,
        env: &AbstractEnv,
    ) -> Option<AbstractEnv> {
        let min_gap = i128::from(strict);
        let (below, above) = match (&smaller.1.shape, &larger.1.shape) {
            (AbstractShape::Number(a, b), AbstractShape::Number(c, d)) => (
                AbstractShape::Number(*a, *b.min(&d.saturating_sub(min_gap))),
                AbstractShape::Number(*c.max(&a.saturating_add(min_gap)), *d),
            ),
            (AbstractShape::Double(a, b), AbstractShape::Double(c, d)) => {
                (AbstractShape::Double(*a, b.min(*d)), AbstractShape::Double(c.max(*a), *d))
            }
            (a, b) => (a.clone(), b.clone()),
        };
        let mut narrowed = self.constrained_env(smaller.0, &AbstractValue::non_null(below), env)?;
        if let (ExprKind::Read(less), ExprKind::Read(more)) = (&smaller.0.kind, &larger.0.kind) {
            narrowed.add_min_difference(more, less, min_gap);
        }
        self.constrained_env(larger.0, &AbstractValue::non_null(above), &narrowed)
    }

    /// Returns the facts if the expression has one of these values.
    pub(super) fn constrained_env(
        &mut self,
        expr: &Expr,
        value: &AbstractValue,
        env: &AbstractEnv,
    ) -> Option<AbstractEnv> {
        let mut env = env.clone();
        self.constrain(expr, value, &mut env).then_some(env)
    }

    /// Pushes the facts about a value down to the paths that it is computed from. Returns false if that is impossible.
    fn constrain(&mut self, expr: &Expr, value: &AbstractValue, env: &mut AbstractEnv) -> bool {
        self.steps += 1;
        let value = match &value.shape {
            // `meet` turns an empty range into `Never`.
            AbstractShape::Number(..) | AbstractShape::Double(..) => value.meet(value),
            _ => value.clone(),
        };
        if value.is_empty() {
            return false;
        }
        match &expr.kind {
            ExprKind::Read(path) => {
                let narrowed = self.eval_silently(expr, env).meet(&value);
                if narrowed.is_empty() {
                    return false;
                }
                self.narrow_path(path, narrowed, env);
                true
            }
            ExprKind::Binary(operator, left, right) => self.constrain_sum(*operator, left, right, &value, env),
            ExprKind::Negate(operand) => match value.shape {
                AbstractShape::Number(least, most) => {
                    self.constrain(operand, &AbstractValue::non_null(AbstractShape::Number(-most, -least)), env)
                }
                _ => true,
            },
            ExprKind::Call(BuiltinFunction::Size, arguments) => self.constrain_size(arguments, &value, env),
            ExprKind::Call(function @ (BuiltinFunction::Max | BuiltinFunction::Min), arguments) => {
                let Some((least, most)) = value.number_range().filter(|_| !value.may_be_null) else { return true };
                let part = match function {
                    BuiltinFunction::Max => AbstractShape::Number(i128::MIN / 4, most),
                    _ => AbstractShape::Number(least, i128::MAX / 4),
                };
                arguments.iter().all(|argument| {
                    let null = self.eval_silently(argument, env).may_be_null;
                    self.constrain(argument, &AbstractValue::non_null(part.clone()).or_null(null), env)
                })
            }
            ExprKind::Const(constant) => !AbstractValue::of_value(constant).meet(&value).is_empty(),
            _ => true,
        }
    }

    fn constrain_sum(
        &mut self,
        operator: BinaryOperator,
        left: &Expr,
        right: &Expr,
        value: &AbstractValue,
        env: &mut AbstractEnv,
    ) -> bool {
        let Some((least, most)) = value.number_range() else { return true };
        let (Some(a), Some(b)) =
            (self.eval_silently(left, env).number_range(), self.eval_silently(right, env).number_range())
        else {
            return true;
        };
        let (left_range, right_range) = match operator {
            BinaryOperator::Add => ((least - b.1, most - b.0), (least - a.1, most - a.0)),
            BinaryOperator::Subtract => ((least + b.0, most + b.1), (a.0 - most, a.1 - least)),
            BinaryOperator::Multiply if b.0 == b.1 && b.0 > 0 => {
                ((-((-least).div_euclid(b.0)), most.div_euclid(b.0)), b)
            }
            BinaryOperator::Multiply if a.0 == a.1 && a.0 > 0 => {
                (a, (-((-least).div_euclid(a.0)), most.div_euclid(a.0)))
            }
            _ => return true,
        };
        self.constrain(left, &AbstractValue::non_null(AbstractShape::Number(left_range.0, left_range.1)), env)
            && self.constrain(right, &AbstractValue::non_null(AbstractShape::Number(right_range.0, right_range.1)), env)
    }

    fn constrain_size(&mut self, arguments: &[Expr], value: &AbstractValue, env: &mut AbstractEnv) -> bool {
        let (Some(argument), Some((least, most))) = (arguments.first(), value.number_range()) else { return true };
        let size = (u64::try_from(least.max(0)).unwrap_or(u64::MAX), u64::try_from(most.max(0)).unwrap_or(u64::MAX));
        let shape = match self.eval_silently(argument, env).shape {
            AbstractShape::Text { .. } => AbstractShape::Text { size, allowed_values: None, pattern: None },
            AbstractShape::List { element, .. } => AbstractShape::List { size, element },
            _ => return true,
        };
        self.constrain(argument, &AbstractValue::non_null(shape), env)
    }

    /// At creation a given `take` input also narrows the field.
    fn narrow_path(&mut self, path: &ValuePath, value: AbstractValue, env: &mut AbstractEnv) {
        if let (true, PathRoot::Input(at), []) = (self.is_creation, path.root, path.steps.as_slice())
            && !value.may_be_null
            && let Some(slot) = self.inputs.get(usize::from(at)).and_then(|input| input.target_field)
            && let Some(field) = self.lifecycle.fields.get(usize::from(slot))
        {
            let own = own_field_path(&field.name, slot);
            let both = env.path_fact(own.root, &own.steps).map_or_else(|| value.clone(), |old| old.meet(&value));
            env.set_path_fact(&own, both);
        }
        env.set_path_fact(path, value);
    }
}
