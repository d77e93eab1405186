//! Compiles the bounds of declared fields: `min`, `max` and `pattern`, by type.

use super::fields::DeclarationCompiler;
use crate::bounds;
use crate::diagnostic::{Diagnostic, Span};
use crate::model::{DataType, FieldBounds};
use crate::syntax::ast::{self, FieldLiteral, SourceText, WithSpan};
use crate::time::Duration;

/// Bounds of a pattern. Untrusted authors write patterns, so the compiled automaton must stay small.
const MAX_PATTERN_BYTES: usize = 1_000;
const MAX_PATTERN_AUTOMATON_BYTES: usize = 256 * 1024;

impl DeclarationCompiler<'_> {
    /// Reports bounds that do not apply to the type.
    pub(super) fn reject_inapplicable_keys(&mut self, declared: &ast::FieldDecl, ty: &DataType) -> Option<()> {
        let is_list = matches!(ty, DataType::List(_));
        let holds_enum = match ty {
            DataType::Enum(_) => true,
            DataType::List(of) => matches!(**of, DataType::Enum(_)),
            _ => false,
        };
        let takes_bounds = matches!(
            ty,
            DataType::Text | DataType::Int | DataType::Double | DataType::Duration | DataType::Json | DataType::List(_)
        );
        let is_reference = matches!(&*declared.ty.text, "ref" | "refs");
        let stray = [
            ("enum", declared.enum_values.as_ref().map(|values| values.span), holds_enum),
            ("of", declared.element_type.as_ref().map(SourceText::span), is_list && !is_reference),
            ("to", declared.ref_targets.as_ref().map(|to| to.span), is_reference),
            ("pattern", declared.pattern.as_ref().map(SourceText::span), matches!(ty, DataType::Text)),
            ("min", declared.min.as_ref().map(|min| min.span), takes_bounds),
            ("max", declared.max.as_ref().map(|max| max.span), takes_bounds),
        ];
        for (key, at, meant) in stray {
            if let Some(at) = at
                && !meant
            {
                let name = if matches!(ty, DataType::Enum(_)) { "string with `enum`" } else { &declared.ty.text };
                self.report_invalid_bound(
                    at,
                    &format!("`{key}` does not apply to the type {name}"),
                    "does not apply",
                    "remove it, or choose a type that has it",
                );
                return None;
            }
        }
        Some(())
    }

    pub(super) fn compile_bounds(&mut self, declared: &ast::FieldDecl, ty: &DataType) -> Option<FieldBounds> {
        let mut found = FieldBounds::default();
        match ty {
            DataType::Int if declared.min.is_some() || declared.max.is_some() => {
                let min = self.int_bound(declared.min.as_ref(), i64::MIN)?;
                let max = self.int_bound(declared.max.as_ref(), i64::MAX)?;
                self.require_ordered_bounds(declared, min <= max)?;
                found.int = Some((min, max));
            }
            DataType::Double if declared.min.is_some() || declared.max.is_some() => {
                let min = self.double_bound(declared.min.as_ref(), f64::MIN)?;
                let max = self.double_bound(declared.max.as_ref(), f64::MAX)?;
                self.require_ordered_bounds(declared, min <= max)?;
                found.double = Some((min, max));
            }
            DataType::Duration if declared.min.is_some() || declared.max.is_some() => {
                let (min_duration, max_duration) = (Duration::from_micros(i64::MIN), Duration::from_micros(i64::MAX));
                let min = self.duration_bound(declared.min.as_ref(), min_duration)?;
                let max = self.duration_bound(declared.max.as_ref(), max_duration)?;
                self.require_ordered_bounds(declared, min <= max)?;
                found.duration = Some((min, max));
            }
            DataType::Text => found.size = Some(self.size_bounds(declared, bounds::MAX_TEXT_CHARS)?),
            DataType::Json => found.size = Some(self.size_bounds(declared, bounds::DEFAULT_MAX_JSON_BYTES)?),
            DataType::List(of) => {
                found.size = Some(self.size_bounds(declared, bounds::DEFAULT_MAX_LIST_ITEMS)?);
                if matches!(**of, DataType::Text) {
                    let size = Some((0, bounds::MAX_TEXT_CHARS as u64));
                    found.element = Some(Box::new(FieldBounds { size, ..FieldBounds::default() }));
                }
            }
            _ => {}
        }
        if let Some(pattern) = &declared.pattern {
            found.pattern = Some(self.compile_pattern(pattern)?);
        }
        Some(found)
    }

    fn compile_pattern(&mut self, pattern: &SourceText) -> Option<regex::Regex> {
        let why = if pattern.text.len() > MAX_PATTERN_BYTES {
            format!("a pattern has at most {MAX_PATTERN_BYTES} bytes")
        } else {
            match regex::RegexBuilder::new(&pattern.text).size_limit(MAX_PATTERN_AUTOMATON_BYTES).build() {
                Ok(regex) => return Some(regex),
                Err(regex::Error::CompiledTooBig(_)) => "matching it would take too much memory".to_owned(),
                Err(error) => {
                    error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned()
                }
            }
        };
        self.diagnostics.push(
            Diagnostic::error("invalid-pattern", pattern.span(), "the pattern is not a valid regular expression")
                .label(why)
                .help("write a regular expression in a literal string, such as '^[a-z]{3,20}$'"),
        );
        None
    }

    fn int_bound(&mut self, bound: Option<&WithSpan<FieldLiteral>>, unset: i64) -> Option<i64> {
        match bound {
            None => Some(unset),
            Some(WithSpan { value: FieldLiteral::Int(int), .. }) => Some(*int),
            Some(other) => {
                self.report_invalid_bound(
                    other.span,
                    "the bound of an int must be a whole number",
                    other.value.kind(),
                    "write a whole number",
                );
                None
            }
        }
    }

    fn double_bound(&mut self, bound: Option<&WithSpan<FieldLiteral>>, unset: f64) -> Option<f64> {
        match bound {
            None => Some(unset),
            Some(WithSpan { value: FieldLiteral::Double(double), .. }) => Some(*double),
            Some(WithSpan { value: FieldLiteral::Int(int), .. }) => int.to_string().parse().ok(),
            Some(other) => {
                self.report_invalid_bound(
                    other.span,
                    "the bound of a double must be a number",
                    other.value.kind(),
                    "write a number, such as 0.5",
                );
                None
            }
        }
    }

    fn duration_bound(&mut self, bound: Option<&WithSpan<FieldLiteral>>, unset: Duration) -> Option<Duration> {
        match bound {
            None => Some(unset),
            Some(WithSpan { value: FieldLiteral::Duration(length), .. }) => Some(*length),
            Some(other) => {
                self.report_invalid_bound(
                    other.span,
                    "the bound of a duration must be a duration",
                    other.value.kind(),
                    "write a number and a unit, such as \"30s\"",
                );
                None
            }
        }
    }

    fn size_bounds(&mut self, declared: &ast::FieldDecl, unset: usize) -> Option<(u64, u64)> {
        let mut size = |bound: &Option<WithSpan<FieldLiteral>>, unset: u64| match bound {
            None => Some(unset),
            Some(WithSpan { value: FieldLiteral::Int(int), .. }) if *int >= 0 => u64::try_from(*int).ok(),
            Some(other) => {
                self.report_invalid_bound(
                    other.span,
                    "a length must be a whole number of at least 0, or a size",
                    "not a length",
                    "write a number, such as 200, or a size, such as \"8 KB\"",
                );
                None
            }
        };
        let min = size(&declared.min, 0)?;
        let max = size(&declared.max, (unset as u64).max(min))?;
        self.require_ordered_bounds(declared, min <= max)?;
        Some((min, max))
    }

    /// Reports `max` below `min` unless the bounds are ordered.
    fn require_ordered_bounds(&mut self, declared: &ast::FieldDecl, ordered: bool) -> Option<()> {
        if !ordered {
            let at = declared.max.as_ref().or(declared.min.as_ref()).map_or(declared.ty.span(), |bound| bound.span);
            self.report_invalid_bound(
                at,
                &format!("the bounds of `{}` allow no value", declared.name.text),
                "`max` is below `min`",
                "make `max` at least as large as `min`",
            );
            return None;
        }
        Some(())
    }

    pub(super) fn report_invalid_bound(&mut self, span: Span, message: &str, label: &str, help: &str) {
        self.diagnostics.push(Diagnostic::error("invalid-bound", span, message).label(label).help(help));
    }
}
