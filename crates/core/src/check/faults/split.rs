//! Follows a condition both ways: what is known where it is true, and where it is false. A way that cannot be is `None`.

use super::domain::{Known, Shape};
use super::env::{Env, own_field};
use super::judge::Judge;
use crate::expr::{Binary, Expr, Function, Kind, Path, Root};

type Ways = (Option<Env>, Option<Env>);

impl Judge<'_> {
    /// Each part is looked at once, so the work grows with the expression and no faster.
    pub(crate) fn split(&mut self, expr: &Expr, env: &Env) -> Ways {
        self.steps += 1;
        match &expr.kind {
            Kind::Not(operand) => {
                let (yes, no) = self.split(operand, env);
                (no, yes)
            }
            Kind::And(left, right) => {
                let (left_yes, left_no) = self.split(left, env);
                let Some(left_yes) = left_yes else { return (None, left_no) };
                let (yes, right_no) = self.split(right, &left_yes);
                (yes, Env::join_maybe(left_no, right_no))
            }
            Kind::Or(left, right) => {
                let (left_yes, left_no) = self.split(left, env);
                let Some(left_no) = left_no else { return (left_yes, None) };
                let (right_yes, no) = self.split(right, &left_no);
                (Env::join_maybe(left_yes, right_yes), no)
            }
            Kind::If(condition, yes, no) => {
                let (on_yes, on_no) = self.split(condition, env);
                let (a, b) = on_yes.map_or((None, None), |env| self.split(yes, &env));
                let (c, d) = on_no.map_or((None, None), |env| self.split(no, &env));
                (Env::join_maybe(a, c), Env::join_maybe(b, d))
            }
            Kind::Binary(operator, left, right) if !super::arithmetic::is_arithmetic(*operator) => {
                self.compare(*operator, left, right, env)
            }
            _ => {
                let known = self.needed(expr, env);
                let (yes, no) = match known.shape {
                    Shape::Bool { yes, no } => (yes, no),
                    _ => (true, true),
                };
                let on = |judge: &mut Self, value: bool| judge.constrained(expr, &Known::bool(value, !value), env);
                (yes.then(|| on(self, true)).flatten(), no.then(|| on(self, false)).flatten())
            }
        }
    }

    fn compare(&mut self, operator: Binary, left: &Expr, right: &Expr, env: &Env) -> Ways {
        let a = self.eval(left, env);
        let b = self.eval(right, env);
        match operator {
            Binary::Equal => self.equal(left, right, (&a, &b), env),
            Binary::NotEqual => {
                let (yes, no) = self.equal(left, right, (&a, &b), env);
                (no, yes)
            }
            Binary::In => self.within(left, right, (&a, &b), env),
            operator => {
                self.not_null(&a, left);
                self.not_null(&b, right);
                let (a, b) = (a.not_null(), b.not_null());
                match operator {
                    Binary::Less => self.ordered((left, &a), (right, &b), true, env),
                    Binary::LessOrEqual => self.ordered((left, &a), (right, &b), false, env),
                    Binary::Greater => self.ordered((right, &b), (left, &a), true, env),
                    _ => self.ordered((right, &b), (left, &a), false, env),
                }
            }
        }
    }

    fn equal(&mut self, left: &Expr, right: &Expr, (a, b): (&Known, &Known), env: &Env) -> Ways {
        let both = a.meet(b);
        let yes = if both.is_impossible() {
            None
        } else {
            self.constrained(left, &both, env).and_then(|env| self.constrained(right, &both, &env))
        };
        let no = if a.is_single() && a == b {
            None
        } else {
            self.constrained(left, &a.without(b), env).and_then(|env| self.constrained(right, &b.without(a), &env))
        };
        (yes, no)
    }

    /// `left in right`; nothing is learned from a list whose elements are not all single values.
    fn within(&mut self, left: &Expr, right: &Expr, (a, b): (&Known, &Known), env: &Env) -> Ways {
        self.not_null(a, left);
        self.not_null(b, right);
        let a = &a.clone().not_null();
        let Shape::List { size, element } = &b.shape else { return (Some(env.clone()), Some(env.clone())) };
        if size.1 == 0 {
            return (None, Some(env.clone()));
        }
        let both = a.meet(element);
        let yes = if both.is_impossible() { None } else { self.constrained(left, &both, env) };
        let Kind::List(items) = &right.kind else {
            let items = match &right.kind {
                Kind::Const(crate::value::Value::List(items)) => items.clone(),
                _ => return (yes, Some(env.clone())),
            };
            let rest = items.iter().fold(a.clone(), |rest, item| rest.without(&Known::of_value(item)));
            return (yes, self.constrained(left, &rest, env));
        };
        let mut rest = a.clone();
        for item in items {
            let item = self.peek(item, env);
            rest = rest.without(&item);
        }
        (yes, self.constrained(left, &rest, env))
    }

    /// `less < more` (or `<=` where not strict), both ways.
    fn ordered(&mut self, less: (&Expr, &Known), more: (&Expr, &Known), strict: bool, env: &Env) -> Ways {
        let yes = self.order(less, more, strict, env);
        let no = self.order(more, less, !strict, env);
        (yes, no)
    }

    /// What holds where `less < more`.
    fn order(&mut self, less: (&Expr, &Known), more: (&Expr, &Known), strict: bool, env: &Env) -> Option<Env> {
        let gap = i128::from(strict);
        let (below, above) = match (&less.1.shape, &more.1.shape) {
            (Shape::Number(a, b), Shape::Number(c, d)) => {
                (Shape::Number(*a, *b.min(&d.saturating_sub(gap))), Shape::Number(*c.max(&a.saturating_add(gap)), *d))
            }
            (Shape::Double(a, b), Shape::Double(c, d)) => (Shape::Double(*a, b.min(*d)), Shape::Double(c.max(*a), *d)),
            (a, b) => (a.clone(), b.clone()),
        };
        let mut learned = self.constrained(less.0, &Known::some(below), env)?;
        if let (Kind::Read(less), Kind::Read(more)) = (&less.0.kind, &more.0.kind) {
            learned.learn_above(more, less, gap);
        }
        self.constrained(more.0, &Known::some(above), &learned)
    }

    /// Where the expression's value is among these.
    pub(super) fn constrained(&mut self, expr: &Expr, value: &Known, env: &Env) -> Option<Env> {
        let mut env = env.clone();
        self.constrain(expr, value, &mut env).then_some(env)
    }

    /// Pushes what is known of a value down to the paths it is made of. False: it cannot be.
    fn constrain(&mut self, expr: &Expr, value: &Known, env: &mut Env) -> bool {
        self.steps += 1;
        let value = match &value.shape {
            // An empty range says that no value is left.
            Shape::Number(..) | Shape::Double(..) => value.meet(value),
            _ => value.clone(),
        };
        if value.is_impossible() {
            return false;
        }
        match &expr.kind {
            Kind::Read(path) => {
                let now = self.peek(expr, env).meet(&value);
                if now.is_impossible() {
                    return false;
                }
                self.learn(path, now, env);
                true
            }
            Kind::Binary(operator, left, right) => self.constrain_sum(*operator, left, right, &value, env),
            Kind::Negate(operand) => match value.shape {
                Shape::Number(least, most) => self.constrain(operand, &Known::some(Shape::Number(-most, -least)), env),
                _ => true,
            },
            Kind::Call(Function::Size, arguments) => self.constrain_size(arguments, &value, env),
            Kind::Call(function @ (Function::Max | Function::Min), arguments) => {
                let Some((least, most)) = value.number().filter(|_| !value.null) else { return true };
                let part = match function {
                    Function::Max => Shape::Number(i128::MIN / 4, most),
                    _ => Shape::Number(least, i128::MAX / 4),
                };
                arguments.iter().all(|argument| {
                    let null = self.peek(argument, env).null;
                    self.constrain(argument, &Known::some(part.clone()).or_null(null), env)
                })
            }
            Kind::Const(constant) => !Known::of_value(constant).meet(&value).is_impossible(),
            _ => true,
        }
    }

    fn constrain_sum(&mut self, operator: Binary, left: &Expr, right: &Expr, value: &Known, env: &mut Env) -> bool {
        let Some((least, most)) = value.number() else { return true };
        let (Some(a), Some(b)) = (self.peek(left, env).number(), self.peek(right, env).number()) else { return true };
        let (for_left, for_right) = match operator {
            Binary::Add => ((least - b.1, most - b.0), (least - a.1, most - a.0)),
            Binary::Subtract => ((least + b.0, most + b.1), (a.0 - most, a.1 - least)),
            Binary::Multiply if b.0 == b.1 && b.0 > 0 => ((-((-least).div_euclid(b.0)), most.div_euclid(b.0)), b),
            Binary::Multiply if a.0 == a.1 && a.0 > 0 => (a, (-((-least).div_euclid(a.0)), most.div_euclid(a.0))),
            _ => return true,
        };
        self.constrain(left, &Known::some(Shape::Number(for_left.0, for_left.1)), env)
            && self.constrain(right, &Known::some(Shape::Number(for_right.0, for_right.1)), env)
    }

    fn constrain_size(&mut self, arguments: &[Expr], value: &Known, env: &mut Env) -> bool {
        let (Some(argument), Some((least, most))) = (arguments.first(), value.number()) else { return true };
        let size = (u64::try_from(least.max(0)).unwrap_or(u64::MAX), u64::try_from(most.max(0)).unwrap_or(u64::MAX));
        let shape = match self.peek(argument, env).shape {
            Shape::Text { .. } => Shape::Text { size, of: None, pattern: None },
            Shape::List { element, .. } => Shape::List { size, element },
            _ => return true,
        };
        self.constrain(argument, &Known::some(shape), env)
    }

    /// At creation a taken input that was given is the field's value too.
    fn learn(&mut self, path: &Path, known: Known, env: &mut Env) {
        if let (true, Root::Input(at), []) = (self.creating, path.root, path.steps.as_slice())
            && !known.null
            && let Some(slot) = self.inputs.get(usize::from(at)).and_then(|input| input.take)
            && let Some(field) = self.lifecycle.fields.get(usize::from(slot))
        {
            let own = own_field(&field.name, slot);
            let both = env.known(own.root, &own.steps).map_or_else(|| known.clone(), |old| old.meet(&known));
            env.learn(&own, both);
        }
        env.learn(path, known);
    }
}
