//! What each operator takes and gives.

use std::ops::Range;

use super::super::cost;
use super::super::parse::Node;
use super::super::tree::{Binary, Kind};
use super::super::types::{comparable, is_text, join, name_of, typed};
use super::doubts;
use super::typer::{Checked, Lowered, Typer};
use crate::model::Type;

impl Typer<'_> {
    pub(super) fn negate(&mut self, inner: &Node, at: &Range<usize>) -> Checked<Lowered> {
        let inner = self.infer(inner, None)?;
        let ty = inner.expr.typed.ty.clone();
        if !matches!(ty, Type::Int | Type::Double) {
            let message = format!("`-` takes a number, and this is {}", name_of(&ty));
            let help = if ty == Type::Duration { "subtract it: now - x" } else { "remove the sign" };
            return self.error("type-mismatch", at, message, help);
        }
        let cost = cost::sum([inner.cost, 1]);
        Some(self.lowered(at, Kind::Negate(Box::new(inner.expr)), typed(ty, false), cost))
    }

    pub(super) fn binary(
        &mut self,
        operator: Binary,
        left: &Node,
        right: &Node,
        at: &Range<usize>,
    ) -> Checked<Lowered> {
        match operator {
            Binary::Equal | Binary::NotEqual => self.equality(operator, left, right, at),
            Binary::In => self.membership(left, right, at),
            _ => {
                let (left, right) = (self.infer(left, None), self.infer(right, None));
                let (left, right) = (left?, right?);
                let (one, other) = (&left.expr.typed.ty, &right.expr.typed.ty);
                let Some(ty) = result(operator, one, other) else {
                    return self.misfit(operator, one, other, at);
                };
                let items = if matches!(ty, Type::List(_)) { left.items.saturating_add(right.items) } else { 0 };
                let hops = left.hops.max(right.hops);
                let cost = cost::sum([left.cost, right.cost, items, 1]);
                let kind = Kind::Binary(operator, Box::new(left.expr), Box::new(right.expr));
                Some(Lowered { items, hops, ..self.lowered(at, kind, typed(ty, false), cost) })
            }
        }
    }

    /// Both sides, the one that is understood by what it meets after the other.
    fn meeting(&mut self, left: &Node, right: &Node) -> Checked<(Lowered, Lowered)> {
        if self.is_open(left) && !self.is_open(right) {
            let right = self.infer(right, None)?;
            let left = self.infer(left, closed_list(&right.expr.typed.ty).as_ref())?;
            Some((left, right))
        } else {
            let left = self.infer(left, None);
            let met = left.as_ref().and_then(|left| closed_list(&left.expr.typed.ty));
            // A bare name means nothing without what it meets: it is not to blame as well.
            let right = if left.is_none() && self.is_open(right) { None } else { self.infer(right, met.as_ref()) };
            Some((left?, right?))
        }
    }

    fn equality(&mut self, operator: Binary, left: &Node, right: &Node, at: &Range<usize>) -> Checked<Lowered> {
        let nodes = (left, right);
        let (left, right) = self.meeting(left, right)?;
        let (one, other) = (&left.expr.typed, &right.expr.typed);
        if !comparable(&one.ty, &other.ty) {
            let holds = |list: &Type, element: &Type| match list {
                Type::List(of) => *element != Type::Null && comparable(of, element),
                _ => false,
            };
            let negated = operator == Binary::NotEqual;
            let help = if holds(&one.ty, &other.ty) {
                doubts::look_into(nodes.0, nodes.1, negated)
            } else if holds(&other.ty, &one.ty) {
                doubts::look_into(nodes.1, nodes.0, negated)
            } else {
                return self.misfit(operator, &one.ty, &other.ty, at);
            };
            let (one, other) = (name_of(&one.ty), name_of(&other.ty));
            let message = format!("`{}` does not go between {one} and {other}", sign(operator));
            return self.error("type-mismatch", at, message, help);
        }
        let cost = cost::sum([left.cost, right.cost, left.items.min(right.items), 1]);
        let kind = Kind::Binary(operator, Box::new(left.expr), Box::new(right.expr));
        Some(self.lowered(at, kind, typed(Type::Bool, false), cost))
    }

    fn membership(&mut self, left: &Node, right: &Node, at: &Range<usize>) -> Checked<Lowered> {
        let (left, right) = if self.is_open(left) {
            let list = self.infer(right, None)?;
            let met = match &list.expr.typed.ty {
                Type::List(element) => closed_list(element),
                _ => None,
            };
            (self.infer(left, met.as_ref())?, list)
        } else {
            let left = self.infer(left, None)?;
            let met = closed_list(&left.expr.typed.ty).map(|ty| Type::List(Box::new(ty)));
            (left, self.infer(right, met.as_ref())?)
        };
        let (one, other) = (&left.expr.typed.ty, &right.expr.typed.ty);
        let fits = match other {
            Type::List(element) => *one != Type::Null && comparable(one, element),
            _ => false,
        };
        if !fits {
            return self.misfit(Binary::In, one, other, at);
        }
        let cost = cost::sum([left.cost, right.cost, right.items, 1]);
        let kind = Kind::Binary(Binary::In, Box::new(left.expr), Box::new(right.expr));
        Some(self.lowered(at, kind, typed(Type::Bool, false), cost))
    }

    fn misfit<T>(&mut self, operator: Binary, one: &Type, other: &Type, at: &Range<usize>) -> Checked<T> {
        let sign = sign(operator);
        let message = format!("`{sign}` does not go between {} and {}", name_of(one), name_of(other));
        let help = match (one, other) {
            (Type::Int, Type::Double) | (Type::Double, Type::Int) => {
                "ints and doubles do not mix: convert one with double(…) or int(…)"
            }
            (Type::Time | Type::Duration, Type::Text) | (Type::Text, Type::Time | Type::Duration) => {
                "write duration('1s') or timestamp('2026-01-31T12:00:00Z')"
            }
            (Type::Time | Type::Duration, Type::Int) | (Type::Int, Type::Time | Type::Duration) => {
                "a number has no unit: write duration('5s')"
            }
            (Type::Null, _) | (_, Type::Null) => "null can only be compared, with == and !=",
            (Type::Json, _) | (_, Type::Json) => "json can only be passed on, or compared with null",
            (Type::Ref(_), Type::Text) | (Type::Text, Type::Ref(_)) => {
                "compare refs with refs, or convert with string(…)"
            }
            (Type::Enum(_), Type::Enum(_)) if operator != Binary::Equal && operator != Binary::NotEqual => {
                "the values of a closed list have no order"
            }
            (Type::Enum(_) | Type::Ref(_), Type::Enum(_) | Type::Ref(_)) => "they have no value in common",
            (_, other) if operator == Binary::In && !matches!(other, Type::List(_)) => "`in` looks into a list",
            (one, Type::List(_)) if operator != Binary::In && !matches!(one, Type::List(_)) => {
                "write [x] for a list of one, or look into the list with `in`"
            }
            _ => "both sides must be of types that go together",
        };
        self.error("type-mismatch", at, message, help)
    }
}

/// What bare names and literals on the other side are understood by; where text meets text there is nothing to know.
fn closed_list(ty: &Type) -> Option<Type> {
    match ty {
        Type::Enum(_) => Some(ty.clone()),
        Type::List(element) => Some(Type::List(Box::new(closed_list(element)?))),
        _ => None,
    }
}

/// The type an operator gives, where it takes these.
fn result(operator: Binary, one: &Type, other: &Type) -> Option<Type> {
    let same = |ty: &Type| one == ty && other == ty;
    Some(match operator {
        Binary::Add => match (one, other) {
            (Type::Time, Type::Duration) | (Type::Duration, Type::Time) => Type::Time,
            (Type::List(_), Type::List(_)) => join(one, other)?,
            _ if is_text(one) && is_text(other) => Type::Text,
            _ if same(&Type::Int) || same(&Type::Double) || same(&Type::Duration) => one.clone(),
            _ => return None,
        },
        Binary::Subtract => match (one, other) {
            (Type::Time, Type::Time) => Type::Duration,
            (Type::Time, Type::Duration) => Type::Time,
            _ if same(&Type::Int) || same(&Type::Double) || same(&Type::Duration) => one.clone(),
            _ => return None,
        },
        Binary::Multiply | Binary::Divide if same(&Type::Int) || same(&Type::Double) => one.clone(),
        Binary::Remainder if same(&Type::Int) => Type::Int,
        Binary::Less | Binary::LessOrEqual | Binary::Greater | Binary::GreaterOrEqual
            if [Type::Int, Type::Double, Type::Text, Type::Time, Type::Duration].iter().any(same) =>
        {
            Type::Bool
        }
        _ => return None,
    })
}

/// How an operator is written.
fn sign(operator: Binary) -> &'static str {
    match operator {
        Binary::Add => "+",
        Binary::Subtract => "-",
        Binary::Multiply => "*",
        Binary::Divide => "/",
        Binary::Remainder => "%",
        Binary::Equal => "==",
        Binary::NotEqual => "!=",
        Binary::Less => "<",
        Binary::LessOrEqual => "<=",
        Binary::Greater => ">",
        Binary::GreaterOrEqual => ">=",
        Binary::In => "in",
    }
}
