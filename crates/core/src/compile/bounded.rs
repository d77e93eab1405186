//! Bounds of declared fields: what `min`, `max` and `pattern` mean for each type.

use super::declared::Declarer;
use crate::bounds;
use crate::diagnostic::{Diagnostic, Span};
use crate::model::{Bounds, Type};
use crate::syntax::ast::{self, At, Literal, Text};
use crate::time::Duration;

/// A pattern is compiled once, but its automaton must stay small.
const PATTERN_BYTES: usize = 1_000;
const PATTERN_AUTOMATON_BYTES: usize = 256 * 1024;

impl Declarer<'_> {
    /// Keys that mean nothing for the type are slips.
    pub(super) fn only_where_meant(&mut self, declared: &ast::Field, ty: &Type) -> Option<()> {
        let is_list = matches!(ty, Type::List(_));
        let holds_enum = match ty {
            Type::Enum(_) => true,
            Type::List(of) => matches!(**of, Type::Enum(_)),
            _ => false,
        };
        let bounded = matches!(ty, Type::Text | Type::Int | Type::Double | Type::Duration | Type::Json | Type::List(_));
        let points = matches!(&*declared.ty.text, "ref" | "refs");
        let stray = [
            ("enum", declared.values.as_ref().map(|values| values.at), holds_enum),
            ("of", declared.of.as_ref().map(Text::at), is_list && !points),
            ("to", declared.to.as_ref().map(|to| to.at), points),
            ("pattern", declared.pattern.as_ref().map(Text::at), matches!(ty, Type::Text)),
            ("min", declared.min.as_ref().map(|min| min.at), bounded),
            ("max", declared.max.as_ref().map(|max| max.at), bounded),
        ];
        for (key, at, meant) in stray {
            if let Some(at) = at
                && !meant
            {
                let name = if matches!(ty, Type::Enum(_)) { "string with `enum`" } else { &declared.ty.text };
                self.invalid_bound(
                    at,
                    &format!("`{key}` means nothing for the type {name}"),
                    "without meaning here",
                    "take it out, or choose the type it belongs to",
                );
                return None;
            }
        }
        Some(())
    }

    pub(super) fn bounds(&mut self, declared: &ast::Field, ty: &Type) -> Option<Bounds> {
        let mut found = Bounds::default();
        match ty {
            Type::Int if declared.min.is_some() || declared.max.is_some() => {
                let min = self.int_bound(declared.min.as_ref(), i64::MIN)?;
                let max = self.int_bound(declared.max.as_ref(), i64::MAX)?;
                self.in_order(declared, min <= max)?;
                found.int = Some((min, max));
            }
            Type::Double if declared.min.is_some() || declared.max.is_some() => {
                let min = self.double_bound(declared.min.as_ref(), f64::MIN)?;
                let max = self.double_bound(declared.max.as_ref(), f64::MAX)?;
                self.in_order(declared, min <= max)?;
                found.double = Some((min, max));
            }
            Type::Duration if declared.min.is_some() || declared.max.is_some() => {
                let (least, most) = (Duration::from_micros(i64::MIN), Duration::from_micros(i64::MAX));
                let min = self.duration_bound(declared.min.as_ref(), least)?;
                let max = self.duration_bound(declared.max.as_ref(), most)?;
                self.in_order(declared, min <= max)?;
                found.duration = Some((min, max));
            }
            Type::Text => found.size = Some(self.sizes(declared, bounds::TEXT_CHARS)?),
            Type::Json => found.size = Some(self.sizes(declared, bounds::JSON_BYTES)?),
            Type::List(of) => {
                found.size = Some(self.sizes(declared, bounds::LIST_ITEMS)?);
                if matches!(**of, Type::Text) {
                    let size = Some((0, bounds::TEXT_CHARS as u64));
                    found.element = Some(Box::new(Bounds { size, ..Bounds::default() }));
                }
            }
            _ => {}
        }
        if let Some(pattern) = &declared.pattern {
            found.pattern = Some(self.pattern(pattern)?);
        }
        Some(found)
    }

    fn pattern(&mut self, pattern: &Text) -> Option<regex::Regex> {
        let why = if pattern.text.len() > PATTERN_BYTES {
            format!("a pattern has at most {PATTERN_BYTES} bytes")
        } else {
            match regex::RegexBuilder::new(&pattern.text).size_limit(PATTERN_AUTOMATON_BYTES).build() {
                Ok(regex) => return Some(regex),
                Err(regex::Error::CompiledTooBig(_)) => "it would take too much memory to match".to_owned(),
                Err(error) => {
                    error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
                }
            }
        };
        self.out.push(
            Diagnostic::error("invalid-pattern", pattern.at(), "the pattern cannot be used")
                .label(why)
                .help("write a regular expression in a literal string, as '^[a-z]{3,20}$'"),
        );
        None
    }

    fn int_bound(&mut self, bound: Option<&At<Literal>>, unset: i64) -> Option<i64> {
        match bound {
            None => Some(unset),
            Some(At { value: Literal::Int(int), .. }) => Some(*int),
            Some(other) => {
                self.invalid_bound(
                    other.at,
                    "the bound of an int must be a whole number",
                    other.value.kind(),
                    "write a whole number",
                );
                None
            }
        }
    }

    fn double_bound(&mut self, bound: Option<&At<Literal>>, unset: f64) -> Option<f64> {
        match bound {
            None => Some(unset),
            Some(At { value: Literal::Double(double), .. }) => Some(*double),
            Some(At { value: Literal::Int(int), .. }) => int.to_string().parse().ok(),
            Some(other) => {
                self.invalid_bound(
                    other.at,
                    "the bound of a double must be a number",
                    other.value.kind(),
                    "write a number, as 0.5",
                );
                None
            }
        }
    }

    fn duration_bound(&mut self, bound: Option<&At<Literal>>, unset: Duration) -> Option<Duration> {
        match bound {
            None => Some(unset),
            Some(At { value: Literal::Duration(length), .. }) => Some(*length),
            Some(other) => {
                self.invalid_bound(
                    other.at,
                    "the bound of a duration must be a duration",
                    other.value.kind(),
                    "write a number and a unit, as \"30s\"",
                );
                None
            }
        }
    }

    fn sizes(&mut self, declared: &ast::Field, unset: usize) -> Option<(u64, u64)> {
        let mut size = |bound: &Option<At<Literal>>, unset: u64| match bound {
            None => Some(unset),
            Some(At { value: Literal::Int(int), .. }) if *int >= 0 => u64::try_from(*int).ok(),
            Some(other) => {
                self.invalid_bound(
                    other.at,
                    "a length must be a whole number from 0 on, or a size",
                    "not a length",
                    "write a number, as 200, or a size, as \"8 KB\"",
                );
                None
            }
        };
        let min = size(&declared.min, 0)?;
        let max = size(&declared.max, (unset as u64).max(min))?;
        self.in_order(declared, min <= max)?;
        Some((min, max))
    }

    fn in_order(&mut self, declared: &ast::Field, ordered: bool) -> Option<()> {
        if !ordered {
            let at = declared.max.as_ref().or(declared.min.as_ref()).map_or(declared.ty.at(), |bound| bound.at);
            self.invalid_bound(
                at,
                &format!("`{}` could have no value at all", declared.name.text),
                "`max` is below `min`",
                "make `max` at least as large as `min`",
            );
            return None;
        }
        Some(())
    }

    pub(super) fn invalid_bound(&mut self, at: Span, message: &str, label: &str, help: &str) {
        self.out.push(Diagnostic::error("invalid-bound", at, message).label(label).help(help));
    }
}
