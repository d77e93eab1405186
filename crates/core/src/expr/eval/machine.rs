//! One evaluation: the tree walked, with the variables of comprehensions on a stack and every step counted.

use std::borrow::Cow;

use super::super::env::{Env, Fault, FaultKind, Stop};
use super::super::tree::{ActorPart, Binary, Comprehension, Expr, Kind, Path, Root};
use super::operators;
use crate::bounds;
use crate::diagnostic::Span;
use crate::value::Value;

/// Borrowed where the value already lies somewhere. What stops an evaluation is boxed, because every node hands back
/// something of this size.
pub(super) type Got<'a> = Result<Cow<'a, Value>, Box<Stop>>;

pub(in super::super) struct Machine<'a> {
    pub(super) env: &'a Env<'a>,
    /// The variables of the comprehensions that are running, outermost first.
    pub(super) locals: Vec<Value>,
    /// A second bound besides the one that was checked: lists of older versions may be longer than declared now.
    steps_left: u64,
    /// Whether this evaluates the key of a lookup.
    for_a_key: bool,
}

#[cold]
#[expect(clippy::unnecessary_box_returns, reason = "the one maker of what `Got` carries")]
pub(super) fn fault(kind: FaultKind, at: Span) -> Box<Stop> {
    Box::new(Stop::Fault(Fault { kind, at }))
}

#[expect(clippy::unnecessary_wraps, reason = "it stands where an evaluation ends, which may fault")]
pub(super) fn boolean<'a>(value: bool) -> Got<'a> {
    Ok(Cow::Owned(Value::Bool(value)))
}

impl<'a> Machine<'a> {
    pub(in super::super) fn new(env: &'a Env<'a>) -> Self {
        Self { env, locals: Vec::new(), steps_left: bounds::EXPRESSION_COST, for_a_key: false }
    }

    /// A machine for the key of a lookup; none inside another.
    pub(super) fn inner(&self) -> Option<Self> {
        (!self.for_a_key).then(|| Self { for_a_key: true, ..Self::new(self.env) })
    }

    pub(super) fn spend(&mut self, steps: usize, at: Span) -> Result<(), Box<Stop>> {
        match self.steps_left.checked_sub(steps as u64) {
            Some(left) => {
                self.steps_left = left;
                Ok(())
            }
            None => Err(fault(FaultKind::TooCostly, at)),
        }
    }

    pub(in super::super) fn run(&mut self, expr: &'a Expr) -> Got<'a> {
        self.spend(1, expr.at)?;
        match &expr.kind {
            Kind::Const(value) => Ok(Cow::Borrowed(value)),
            Kind::Read(path) => self.read(path, expr.at),
            Kind::Not(inner) => boolean(!self.truth(inner)?),
            Kind::Negate(inner) => operators::negate(&*self.operand(inner)?, expr.at),
            Kind::And(left, right) => boolean(self.truth(left)? && self.truth(right)?),
            Kind::Or(left, right) => boolean(self.truth(left)? || self.truth(right)?),
            Kind::If(condition, yes, no) => {
                if self.truth(condition)? {
                    self.run(yes)
                } else {
                    self.run(no)
                }
            }
            Kind::Binary(operator, left, right) => self.binary(*operator, left, right, expr.at),
            Kind::Call(function, arguments) => self.call(*function, arguments, expr.at),
            Kind::List(elements) => self.list(elements, expr.at),
            Kind::Comprehension { how, range, body, .. } => self.comprehension(*how, range, body, expr.at),
        }
    }

    // What is rare stands apart and stays out of `run`, whose frame every node of every guard pays for.
    #[inline(never)]
    fn list(&mut self, elements: &'a [Expr], at: Span) -> Got<'a> {
        self.spend(elements.len(), at)?;
        let mut list = Vec::with_capacity(elements.len());
        for element in elements {
            list.push(self.operand(element)?.into_owned());
        }
        Ok(Cow::Owned(Value::List(list.into())))
    }

    /// A value that must not be null.
    pub(super) fn operand(&mut self, expr: &'a Expr) -> Got<'a> {
        let value = self.run(expr)?;
        if value.is_null() { Err(fault(FaultKind::Null, expr.at)) } else { Ok(value) }
    }

    fn truth(&mut self, expr: &'a Expr) -> Result<bool, Box<Stop>> {
        match *self.operand(expr)? {
            Value::Bool(truth) => Ok(truth),
            _ => Err(fault(FaultKind::WrongType, expr.at)),
        }
    }

    fn binary(&mut self, operator: Binary, left: &'a Expr, right: &'a Expr, at: Span) -> Got<'a> {
        match operator {
            Binary::Equal | Binary::NotEqual => {
                let (one, other) = (self.run(left)?, self.run(right)?);
                if let (Value::List(one), Value::List(other)) = (&*one, &*other) {
                    self.spend(one.len().min(other.len()), at)?;
                }
                boolean((one == other) == (operator == Binary::Equal))
            }
            Binary::In => self.contains(left, right, at),
            _ => {
                let one = self.operand(left)?;
                let other = self.operand(right)?;
                if let (Value::List(one), Value::List(other)) = (&*one, &*other) {
                    self.spend(one.len() + other.len(), at)?;
                }
                operators::binary(operator, &one, &other, at)
            }
        }
    }

    #[inline(never)]
    fn contains(&mut self, element: &'a Expr, list: &'a Expr, at: Span) -> Got<'a> {
        let element = self.operand(element)?;
        // The actor's names are no values; making a list of them for each guard would be waste.
        if let (Value::Text(text), Kind::Read(Path { root: Root::Actor(part), .. })) = (&*element, &list.kind) {
            let names = match part {
                ActorPart::Roles => &self.env.actor.roles,
                ActorPart::Capabilities => &self.env.actor.capabilities,
                ActorPart::Id | ActorPart::User => return Err(fault(FaultKind::WrongType, list.at)),
            };
            self.spend(names.len(), at)?;
            return boolean(names.contains(text));
        }
        let list = self.operand(list)?;
        let Value::List(items) = &*list else { return Err(fault(FaultKind::WrongType, at)) };
        self.spend(items.len(), at)?;
        boolean(items.contains(&element))
    }

    /// No error of the body is absorbed, but what has been decided is not looked at further.
    #[inline(never)]
    fn comprehension(&mut self, how: Comprehension, range: &'a Expr, body: &'a Expr, at: Span) -> Got<'a> {
        let list = self.operand(range)?;
        let Value::List(items) = &*list else { return Err(fault(FaultKind::WrongType, range.at)) };
        let mut kept = Vec::new();
        for item in items.iter() {
            self.spend(1, at)?;
            self.locals.push(item.clone());
            let holds = self.truth(body)?;
            self.locals.pop();
            match how {
                Comprehension::All if !holds => return boolean(false),
                Comprehension::Exists if holds => return boolean(true),
                Comprehension::Filter if holds => kept.push(item.clone()),
                _ => {}
            }
        }
        match how {
            Comprehension::All => boolean(true),
            Comprehension::Exists => boolean(false),
            Comprehension::Filter => Ok(Cow::Owned(Value::List(kept.into()))),
        }
    }
}
