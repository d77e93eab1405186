//! Numbers, texts and lists put together, and the functions.

use super::domain::{I64, Known, Shape};
use super::env::Env;
use super::judge::{Judge, limits};
use crate::bounds;
use crate::expr::{Binary, Expr, FaultKind, Function, Kind, Path, Root};
use crate::model::Type;

pub(super) const fn is_arithmetic(operator: Binary) -> bool {
    matches!(operator, Binary::Add | Binary::Subtract | Binary::Multiply | Binary::Divide | Binary::Remainder)
}

impl Judge<'_> {
    pub(super) fn arithmetic(&mut self, operator: Binary, left: &Expr, right: &Expr, expr: &Expr, env: &Env) -> Known {
        let a = self.needed(left, env);
        let b = self.needed(right, env);
        match (a.shape, b.shape) {
            (Shape::Never, _) | (_, Shape::Never) => Known::some(Shape::Never),
            (Shape::Number(a, b), Shape::Number(c, d)) => {
                let (least, most) = self.numbers(operator, (a, b), (c, d), expr);
                let before = self.findings.len();
                let mut known = self.in_range(least, most, limits(&expr.typed.ty), expr);
                if self.findings.len() > before {
                    self.blame_widest(expr, env);
                }
                if let (Binary::Subtract, Kind::Read(more), Kind::Read(less)) = (operator, &left.kind, &right.kind)
                    && let Some(apart) = env.least_difference(more, less)
                    && let Shape::Number(least, most) = known.shape
                    && apart <= most
                {
                    known = Known::some(Shape::Number(least.max(apart), most));
                }
                known
            }
            (Shape::Double(a, b), Shape::Double(c, d)) => self.doubles(operator, (a, b), (c, d), expr),
            (Shape::Text { size: a, .. }, Shape::Text { size: b, .. }) => Known::some(Shape::Text {
                size: (a.0.saturating_add(b.0), a.1.saturating_add(b.1)),
                of: None,
                pattern: None,
            }),
            (Shape::List { size: a, element: x }, Shape::List { size: b, element: y }) => Known::some(Shape::List {
                size: (a.0.saturating_add(b.0), a.1.saturating_add(b.1)),
                element: Box::new(x.join(&y)),
            }),
            _ => {
                self.note(FaultKind::Overflow, expr.at, "nothing is known of this sum".to_owned(), None);
                Known::some(Shape::of_type(&expr.typed.ty, &crate::model::Bounds::default()))
            }
        }
    }

    fn numbers(&mut self, operator: Binary, (a, b): (i128, i128), (c, d): (i128, i128), expr: &Expr) -> (i128, i128) {
        match operator {
            Binary::Add => (a.saturating_add(c), b.saturating_add(d)),
            Binary::Subtract => (a.saturating_sub(d), b.saturating_sub(c)),
            Binary::Multiply => {
                corners([a.saturating_mul(c), a.saturating_mul(d), b.saturating_mul(c), b.saturating_mul(d)])
            }
            Binary::Divide | Binary::Remainder => {
                if c <= 0 && d >= 0 {
                    self.note(FaultKind::DivisionByZero, expr.at, "the divisor may be zero".to_owned(), None);
                }
                // Zero apart, the divisor is on one side or on both; the extremes lie where it is smallest.
                let divisors: Vec<i128> = [c, d, -1, 1].into_iter().filter(|n| *n != 0 && c <= *n && *n <= d).collect();
                if divisors.is_empty() {
                    return I64;
                }
                if operator == Binary::Divide {
                    let quotients = divisors.iter().flat_map(|n| [a / n, b / n]);
                    (quotients.clone().min().unwrap_or(I64.0), quotients.max().unwrap_or(I64.1))
                } else {
                    if a <= I64.0 && divisors.contains(&-1) {
                        // The least number over -1 is no number any more, and the remainder is taken with it.
                        self.note(
                            FaultKind::Overflow,
                            expr.at,
                            "the number may be the least there is, and the divisor -1".to_owned(),
                            None,
                        );
                    }
                    let largest = divisors.iter().map(|n| n.abs()).max().unwrap_or(1) - 1;
                    (if a < 0 { (-largest).max(a) } else { 0 }, if b > 0 { largest.min(b) } else { 0 })
                }
            }
            _ => I64,
        }
    }

    fn doubles(&mut self, operator: Binary, (a, b): (f64, f64), (c, d): (f64, f64), expr: &Expr) -> Known {
        let ends = match operator {
            Binary::Add => [a + c, b + d, a + c, b + d],
            Binary::Subtract => [a - d, b - c, a - d, b - c],
            Binary::Multiply => [a * c, a * d, b * c, b * d],
            Binary::Divide if c <= 0.0 && d >= 0.0 => {
                self.note(FaultKind::DivisionByZero, expr.at, "the divisor may be zero".to_owned(), None);
                [f64::MIN, f64::MAX, 0.0, 0.0]
            }
            Binary::Divide => [a / c, a / d, b / c, b / d],
            _ => [f64::MIN, f64::MAX, 0.0, 0.0],
        };
        if ends.iter().any(|end| !end.is_finite()) {
            self.note(FaultKind::NotANumber, expr.at, "this may grow beyond what a double holds".to_owned(), None);
            return Known::some(Shape::Double(f64::MIN, f64::MAX));
        }
        let least = ends.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ends.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Known::some(Shape::Double(least, most))
    }

    /// A number that must fit; notes it where it may not, and goes on with the part that does.
    pub(super) fn in_range(&mut self, least: i128, most: i128, range: (i128, i128), expr: &Expr) -> Known {
        if least < range.0 || most > range.1 {
            let what = match expr.typed.ty {
                Type::Time => "this time may lie beyond the year 9999".to_owned(),
                Type::Duration => "this duration may be longer than can be counted".to_owned(),
                _ => format!("this may {} what an int holds", if most > range.1 { "exceed" } else { "fall below" }),
            };
            self.note(FaultKind::Overflow, expr.at, what, None);
        }
        let known = Known::some(Shape::Number(least, most)).meet(&Known::some(Shape::Number(range.0, range.1)));
        if known.is_impossible() { Known::some(Shape::Number(range.0, range.1)) } else { known }
    }

    /// Names, in the last finding, the operand that may be the largest: a bound on that one helps.
    fn blame_widest(&mut self, expr: &Expr, env: &Env) {
        let mut reads: Vec<(&Expr, &Path)> = Vec::new();
        collect(expr, &mut reads);
        let mut widest: Option<(i128, &Path)> = None;
        for (read, path) in reads.into_iter().filter(|(_, path)| path.root != Root::Now) {
            let Some((least, most)) = self.peek(read, env).number() else { continue };
            let width = least.saturating_abs().max(most.saturating_abs());
            if widest.is_none_or(|(old, _)| width > old) {
                widest = Some((width, path));
            }
        }
        let name = widest.map(|(_, path)| self.name(path));
        if let Some(finding) = self.findings.last_mut() {
            finding.path = name;
        }
    }

    pub(super) fn call(&mut self, function: Function, arguments: &[Expr], expr: &Expr, env: &Env) -> Known {
        let any = || Known::some(Shape::of_type(&expr.typed.ty, &crate::model::Bounds::default()));
        match function {
            Function::Max | Function::Min => self.extreme(function, arguments, env),
            Function::Size => match arguments.first().map(|argument| self.needed(argument, env).shape) {
                Some(Shape::Text { size, .. } | Shape::List { size, .. }) => {
                    Known::some(Shape::Number(i128::from(size.0), i128::from(size.1)))
                }
                _ => Known::some(Shape::Number(0, I64.1)),
            },
            Function::Int => self.as_int(arguments, expr, env),
            Function::Double => match arguments.first().map(|argument| self.needed(argument, env).shape) {
                #[allow(clippy::cast_precision_loss, reason = "the same rounding happens at run time")]
                Some(Shape::Number(least, most)) => Known::some(Shape::Double(least as f64, most as f64)),
                Some(shape @ Shape::Double(..)) => Known::some(shape),
                _ => any(),
            },
            Function::Text => self.as_text(arguments, env),
            Function::Backoff => self.backoff(arguments, env),
            Function::Jitter => match arguments.first().map(|argument| self.needed(argument, env).shape) {
                Some(Shape::Number(_, most)) => Known::some(Shape::Number(0, most.max(0))),
                _ => any(),
            },
            Function::StartsWith | Function::EndsWith | Function::Contains => {
                for argument in arguments {
                    self.needed(argument, env);
                }
                Known::bool(true, true)
            }
            // Literals are folded where they are compiled; what is left is a time or a duration already.
            Function::Timestamp | Function::Duration => {
                arguments.first().map_or_else(any, |argument| self.needed(argument, env))
            }
        }
    }

    /// Null-tolerant: where some operands are null, the others decide; null only where all may be.
    fn extreme(&mut self, function: Function, arguments: &[Expr], env: &Env) -> Known {
        let known: Vec<Known> = arguments.iter().map(|argument| self.eval(argument, env)).collect();
        let pick = |a: &Shape, b: &Shape| match (a, b) {
            (Shape::Number(a, b), Shape::Number(c, d)) if function == Function::Max => {
                Shape::Number(*a.max(c), *b.max(d))
            }
            (Shape::Number(a, b), Shape::Number(c, d)) => Shape::Number(*a.min(c), *b.min(d)),
            (Shape::Double(a, b), Shape::Double(c, d)) if function == Function::Max => {
                Shape::Double(a.max(*c), b.max(*d))
            }
            (Shape::Double(a, b), Shape::Double(c, d)) => Shape::Double(a.min(*c), b.min(*d)),
            (Shape::Never, shape) | (shape, Shape::Never) => shape.clone(),
            _ => Shape::Any,
        };
        known
            .into_iter()
            .reduce(|a, b| {
                let both = Known::some(pick(&a.shape, &b.shape));
                let mut result = both;
                if a.null {
                    result = result.join(&Known::some(b.shape.clone()));
                }
                if b.null {
                    result = result.join(&Known::some(a.shape.clone()));
                }
                result.or_null(a.null && b.null)
            })
            .unwrap_or(Known::only_null())
    }

    fn as_int(&mut self, arguments: &[Expr], expr: &Expr, env: &Env) -> Known {
        let Some(argument) = arguments.first() else { return Known::some(Shape::Any) };
        match (self.needed(argument, env).shape, &argument.typed.ty) {
            (Shape::Number(least, most), Type::Time | Type::Duration) => {
                Known::some(Shape::Number(least.div_euclid(1_000_000), most.div_euclid(1_000_000)))
            }
            (shape @ Shape::Number(..), _) => Known::some(shape),
            #[allow(
                clippy::cast_possible_truncation,
                reason = "a cast to i128 saturates, and that is then out of range"
            )]
            (Shape::Double(least, most), _) => self.in_range(least.trunc() as i128, most.trunc() as i128, I64, expr),
            _ => {
                self.note(FaultKind::Overflow, expr.at, "this may not be an int".to_owned(), None);
                Known::some(Shape::Number(I64.0, I64.1))
            }
        }
    }

    fn as_text(&mut self, arguments: &[Expr], env: &Env) -> Known {
        let Some(argument) = arguments.first() else { return Known::text(bounds::TEXT_CHARS as u64) };
        match self.needed(argument, env).shape {
            shape @ Shape::Text { .. } => Known::some(shape),
            Shape::Bool { .. } => Known::some(Shape::named(["true".into(), "false".into()])),
            Shape::Ref(_) => Known::some(Shape::Text { size: (36, 36), of: None, pattern: None }),
            // The longest int has 20 characters, a time in RFC 3339 at most 35.
            _ => Known::some(Shape::Text { size: (1, 64), of: None, pattern: None }),
        }
    }

    /// From nothing up to the cap.
    fn backoff(&mut self, arguments: &[Expr], env: &Env) -> Known {
        let known: Vec<Known> = arguments.iter().map(|argument| self.needed(argument, env)).collect();
        let number = |at: usize| known.get(at).and_then(Known::number);
        let cap = number(3).map_or(super::domain::LONGEST_DURATION, |(_, cap)| cap);
        Known::some(Shape::Number(0, cap.max(0)))
    }
}

/// The paths that a sum, a product or a quotient reads.
fn collect<'e>(expr: &'e Expr, reads: &mut Vec<(&'e Expr, &'e Path)>) {
    match &expr.kind {
        Kind::Read(path) => reads.push((expr, path)),
        Kind::Negate(operand) => collect(operand, reads),
        Kind::Binary(_, left, right) => {
            collect(left, reads);
            collect(right, reads);
        }
        _ => {}
    }
}

fn corners(ends: [i128; 4]) -> (i128, i128) {
    let least = ends.into_iter().min().unwrap_or(I64.0);
    (least, ends.into_iter().max().unwrap_or(I64.1))
}
