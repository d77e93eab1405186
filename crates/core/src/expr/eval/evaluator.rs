//! Walks the tree of one evaluation and counts its steps.

use std::borrow::Cow;

use super::super::env::{EvalEnv, EvalFault, EvalStop, FaultKind};
use super::super::tree::{ActorPart, BinaryOperator, ComprehensionKind, Expr, ExprKind, PathRoot, ValuePath};
use super::operators;
use crate::bounds;
use crate::diagnostic::Span;
use crate::value::Value;

/// A value, borrowed if it is stored elsewhere. The error is boxed, because every node returns a result of this size.
pub(super) type EvalResult<'a> = Result<Cow<'a, Value>, Box<EvalStop>>;

pub(in super::super) struct Evaluator<'a> {
    pub(super) env: &'a EvalEnv<'a>,
    /// Variables of the running comprehensions, outermost first.
    pub(super) locals: Vec<Value>,
    /// Bounds the evaluation at run time in addition to the compiler's bound: records of older versions may have longer
    /// lists than the current version declares.
    steps_left: u64,
    is_lookup_key: bool,
}

#[cold]
#[expect(clippy::unnecessary_box_returns, reason = "the only constructor of the boxed fault")]
pub(super) fn fault(kind: FaultKind, span: Span) -> Box<EvalStop> {
    Box::new(EvalStop::Fault(EvalFault { kind, span }))
}

#[expect(clippy::unnecessary_wraps, reason = "returned as the result of an evaluation, which may fault")]
pub(super) fn boolean<'a>(value: bool) -> EvalResult<'a> {
    Ok(Cow::Owned(Value::Bool(value)))
}

impl<'a> Evaluator<'a> {
    pub(in super::super) fn new(env: &'a EvalEnv<'a>) -> Self {
        Self { env, locals: Vec::new(), steps_left: bounds::MAX_EXPRESSION_COST, is_lookup_key: false }
    }

    /// Returns an evaluator for the key of a lookup, or `None` inside such a key.
    pub(super) fn for_lookup_key(&self) -> Option<Self> {
        (!self.is_lookup_key).then(|| Self { is_lookup_key: true, ..Self::new(self.env) })
    }

    pub(super) fn charge_steps(&mut self, steps: usize, span: Span) -> Result<(), Box<EvalStop>> {
        match self.steps_left.checked_sub(steps as u64) {
            Some(left) => {
                self.steps_left = left;
                Ok(())
            }
            None => Err(fault(FaultKind::CostExceeded, span)),
        }
    }

    pub(in super::super) fn evaluate(&mut self, expr: &'a Expr) -> EvalResult<'a> {
        self.charge_steps(1, expr.span)?;
        match &expr.kind {
            ExprKind::Const(value) => Ok(Cow::Borrowed(value)),
            ExprKind::Read(path) => self.read_path(path, expr.span),
            ExprKind::Not(inner) => boolean(!self.evaluate_bool(inner)?),
            ExprKind::Negate(inner) => operators::negate(&*self.evaluate_non_null(inner)?, expr.span),
            ExprKind::And(left, right) => boolean(self.evaluate_bool(left)? && self.evaluate_bool(right)?),
            ExprKind::Or(left, right) => boolean(self.evaluate_bool(left)? || self.evaluate_bool(right)?),
            ExprKind::If(condition, yes, no) => {
                if self.evaluate_bool(condition)? {
                    self.evaluate(yes)
                } else {
                    self.evaluate(no)
                }
            }
            ExprKind::Binary(operator, left, right) => self.evaluate_binary(*operator, left, right, expr.span),
            ExprKind::Call(function, arguments) => self.evaluate_call(*function, arguments, expr.span),
            ExprKind::List(elements) => self.evaluate_list(elements, expr.span),
            ExprKind::Comprehension { kind: how, range, body, .. } => {
                self.evaluate_comprehension(*how, range, body, expr.span)
            }
        }
    }

    // Rare cases are not inlined, because every node of every guard pays for the stack frame of `evaluate`.
    #[inline(never)]
    fn evaluate_list(&mut self, elements: &'a [Expr], span: Span) -> EvalResult<'a> {
        self.charge_steps(elements.len(), span)?;
        let mut list = Vec::with_capacity(elements.len());
        for element in elements {
            list.push(self.evaluate_non_null(element)?.into_owned());
        }
        Ok(Cow::Owned(Value::List(list.into())))
    }

    /// Evaluates a value that must not be null.
    pub(super) fn evaluate_non_null(&mut self, expr: &'a Expr) -> EvalResult<'a> {
        let value = self.evaluate(expr)?;
        if value.is_null() { Err(fault(FaultKind::Null, expr.span)) } else { Ok(value) }
    }

    fn evaluate_bool(&mut self, expr: &'a Expr) -> Result<bool, Box<EvalStop>> {
        match *self.evaluate_non_null(expr)? {
            Value::Bool(truth) => Ok(truth),
            _ => Err(fault(FaultKind::WrongType, expr.span)),
        }
    }

    fn evaluate_binary(
        &mut self,
        operator: BinaryOperator,
        left: &'a Expr,
        right: &'a Expr,
        span: Span,
    ) -> EvalResult<'a> {
        match operator {
            BinaryOperator::Equal | BinaryOperator::NotEqual => {
                let (one, other) = (self.evaluate(left)?, self.evaluate(right)?);
                if let (Value::List(one), Value::List(other)) = (&*one, &*other) {
                    self.charge_steps(one.len().min(other.len()), span)?;
                }
                boolean((one == other) == (operator == BinaryOperator::Equal))
            }
            BinaryOperator::In => self.evaluate_in(left, right, span),
            _ => {
                let one = self.evaluate_non_null(left)?;
                let other = self.evaluate_non_null(right)?;
                if let (Value::List(one), Value::List(other)) = (&*one, &*other) {
                    self.charge_steps(one.len() + other.len(), span)?;
                }
                operators::apply_binary(operator, &one, &other, span)
            }
        }
    }

    #[inline(never)]
    fn evaluate_in(&mut self, element: &'a Expr, list: &'a Expr, span: Span) -> EvalResult<'a> {
        let element = self.evaluate_non_null(element)?;
        // The actor's roles and capabilities are not values. Comparing them in place avoids building a list for each
        // guard.
        if let (Value::Text(text), ExprKind::Read(ValuePath { root: PathRoot::Actor(part), .. })) =
            (&*element, &list.kind)
        {
            let names = match part {
                ActorPart::Roles => &self.env.actor.roles,
                ActorPart::Capabilities => &self.env.actor.capabilities,
                ActorPart::Id | ActorPart::User => return Err(fault(FaultKind::WrongType, list.span)),
            };
            self.charge_steps(names.len(), span)?;
            return boolean(names.contains(text));
        }
        let list = self.evaluate_non_null(list)?;
        let Value::List(items) = &*list else { return Err(fault(FaultKind::WrongType, span)) };
        self.charge_steps(items.len(), span)?;
        boolean(items.contains(&element))
    }

    /// Evaluates a comprehension. Stops at the first element that decides the result, and absorbs no error of the body.
    #[inline(never)]
    fn evaluate_comprehension(
        &mut self,
        kind: ComprehensionKind,
        range: &'a Expr,
        body: &'a Expr,
        span: Span,
    ) -> EvalResult<'a> {
        let list = self.evaluate_non_null(range)?;
        let Value::List(items) = &*list else { return Err(fault(FaultKind::WrongType, range.span)) };
        let mut kept = Vec::new();
        for item in items.iter() {
            self.charge_steps(1, span)?;
            self.locals.push(item.clone());
            let holds = self.evaluate_bool(body)?;
            self.locals.pop();
            match kind {
                ComprehensionKind::All if !holds => return boolean(false),
                ComprehensionKind::Exists if holds => return boolean(true),
                ComprehensionKind::Filter if holds => kept.push(item.clone()),
                _ => {}
            }
        }
        match kind {
            ComprehensionKind::All => boolean(true),
            ComprehensionKind::Exists => boolean(false),
            ComprehensionKind::Filter => Ok(Cow::Owned(Value::List(kept.into()))),
        }
    }
}
