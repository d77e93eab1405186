//! Types function calls, and suggests replacements for functions outside the subset.

use std::ops::Range;
use std::sync::Arc;

use super::super::cost;
use super::super::parse::{ParsedExpr, ParsedKind};
use super::super::suggest;
use super::super::tree::{BuiltinFunction, ComprehensionKind, ExprKind};
use super::super::types::{is_text, type_name, value_type};
use super::hints;
use super::typer::{ExprTyper, TypedExpr, TypingResult};
use crate::model::DataType;
use crate::plural::count_noun;
use crate::time::{Duration, Time};
use crate::value::Value;

const FUNCTION_NAMES: [&str; 10] =
    ["size", "int", "double", "string", "timestamp", "duration", "max", "min", "backoff", "jitter"];

const METHOD_NAMES: [&str; 6] = ["startsWith", "endsWith", "contains", "all", "exists", "filter"];

impl ExprTyper<'_> {
    pub(super) fn infer_function(
        &mut self,
        name: &Arc<str>,
        name_range: &Range<usize>,
        arguments: &[ParsedExpr],
        range: &Range<usize>,
    ) -> TypingResult<TypedExpr> {
        match (name.as_ref(), arguments) {
            ("size", [of]) => self.infer_size(of, range),
            ("int", [of]) => self.infer_conversion(BuiltinFunction::Int, of, range),
            ("double", [of]) => self.infer_conversion(BuiltinFunction::Double, of, range),
            ("string", [of]) => self.infer_conversion(BuiltinFunction::Text, of, range),
            ("timestamp", [of]) => self.infer_timestamp(of, range),
            ("duration", [of]) => self.infer_duration(of, range),
            ("max", [_, _, ..]) => self.infer_extreme(BuiltinFunction::Max, arguments, range),
            ("min", [_, _, ..]) => self.infer_extreme(BuiltinFunction::Min, arguments, range),
            ("backoff", [_, _, _, _]) => self.infer_backoff(arguments, range),
            ("jitter", [max_jitter]) => {
                let max_jitter = self.infer_of_type(max_jitter, &DataType::Duration, "jitter takes its maximum")?;
                Some(self.typed_call(BuiltinFunction::Jitter, vec![max_jitter], DataType::Duration, range))
            }
            (known, _) if FUNCTION_NAMES.contains(&known) => {
                let usage = match known {
                    "max" | "min" => format!("write {known}(a, b)"),
                    "backoff" => "write backoff(n, '1s', 2, '5m')".to_owned(),
                    "timestamp" => "write timestamp('2026-01-31T12:00:00Z')".to_owned(),
                    "duration" | "jitter" => format!("write {known}('1s')"),
                    _ => format!("write {known}(x)"),
                };
                self.report_error(
                    "wrong-arguments",
                    name_range,
                    format!("`{known}` does not accept {}", count_noun(arguments.len(), "argument", "arguments")),
                    usage,
                )
            }
            (method, _) if METHOD_NAMES.contains(&method) => {
                let help = format!("write it as a method: x.{method}(…)");
                self.report_error("unknown-function", name_range, format!("`{method}` is a method"), help)
            }
            (other, _) => self.report_unknown_function(other, name_range, &FUNCTION_NAMES),
        }
    }

    pub(super) fn infer_method(
        &mut self,
        name: &Arc<str>,
        name_range: &Range<usize>,
        target: &ParsedExpr,
        arguments: &[ParsedExpr],
        range: &Range<usize>,
        expected: Option<&DataType>,
    ) -> TypingResult<TypedExpr> {
        let kind = match name.as_ref() {
            "all" => ComprehensionKind::All,
            "exists" => ComprehensionKind::Exists,
            "filter" => ComprehensionKind::Filter,
            _ => return self.infer_text_method(name, name_range, target, arguments, range),
        };
        self.infer_comprehension(kind, name_range, target, arguments, range, expected)
    }

    fn infer_text_method(
        &mut self,
        name: &str,
        name_range: &Range<usize>,
        target: &ParsedExpr,
        arguments: &[ParsedExpr],
        range: &Range<usize>,
    ) -> TypingResult<TypedExpr> {
        let function = match (name, arguments) {
            ("startsWith", [_]) => BuiltinFunction::StartsWith,
            ("endsWith", [_]) => BuiltinFunction::EndsWith,
            ("contains", [_]) => BuiltinFunction::Contains,
            ("startsWith" | "endsWith" | "contains", _) => {
                let message =
                    format!("`{name}` does not accept {}", count_noun(arguments.len(), "argument", "arguments"));
                return self.report_error("wrong-arguments", name_range, message, format!("write x.{name}('text')"));
            }
            _ if FUNCTION_NAMES.contains(&name) => {
                let message = format!("`{name}` is a function");
                return self.report_error("unknown-function", name_range, message, format!("write {name}(…)"));
            }
            _ => return self.report_unknown_function(name, name_range, &METHOD_NAMES),
        };
        let (text, part) = (self.infer_text(target), self.infer_text(&arguments[0]));
        let (text, part) = (text?, part?);
        Some(self.typed_call(function, vec![text, part], DataType::Bool, range))
    }

    fn report_unknown_function<T>(&mut self, name: &str, range: &Range<usize>, known: &[&str]) -> TypingResult<T> {
        let reason = match name {
            // CEL has these two functions. The help names the equivalent in the subset.
            "exists_one" | "map" => {
                let help = if name == "map" {
                    "test the elements: list.exists(x, …), list.all(x, …) or list.filter(x, …)"
                } else {
                    "write list.exists(x, …), or size(list.filter(x, …)) == 1 for exactly one"
                };
                return self.report_error("unknown-function", range, format!("there is no function `{name}`"), help);
            }
            "matches" => "give the field a `pattern`; expressions have no regular expressions",
            "now" => "write `now` without brackets",
            "not" => "write `!`",
            "has" => "compare the field with null; every declared field exists",
            "getFullYear" | "getMonth" | "getDate" | "getDayOfMonth" | "getDayOfWeek" | "getDayOfYear" | "getHours"
            | "getMinutes" | "getSeconds" | "getMilliseconds" => {
                "use int(now); expressions have no calendars and time zones"
            }
            "uint" | "bytes" | "bool" | "type" | "dyn" => "convert with int, double or string",
            _ => {
                let help = suggest::suggestion_help(self.diagnostic_count(), name, known.iter().copied());
                return self.report_error("unknown-function", range, format!("there is no function `{name}`"), help);
            }
        };
        self.report_error("not-in-subset", range, format!("`{name}` is not part of the expression language"), reason)
    }

    fn typed_call(
        &self,
        function: BuiltinFunction,
        arguments: Vec<TypedExpr>,
        ty: DataType,
        range: &Range<usize>,
    ) -> TypedExpr {
        let cost = cost::saturating_sum(arguments.iter().map(|argument| argument.cost).chain([1]));
        let arguments = arguments.into_iter().map(|argument| argument.expr).collect();
        self.typed_expr(range, ExprKind::Call(function, arguments), value_type(ty, false), cost)
    }

    fn infer_of_type(&mut self, node: &ParsedExpr, expected: &DataType, what: &str) -> TypingResult<TypedExpr> {
        let lowered = self.infer(node, Some(expected))?;
        if lowered.expr.value_type.ty != *expected {
            let message = format!("{what} as {}, not {}", type_name(expected), type_name(&lowered.expr.value_type.ty));
            let help = match (&lowered.expr.value_type.ty, expected) {
                (DataType::Int | DataType::Double, DataType::Duration) => hints::unit_help(node, false),
                _ => "give a value of that type".to_owned(),
            };
            return self.report_error("type-mismatch", &node.range, message, help);
        }
        Some(lowered)
    }

    fn infer_text(&mut self, node: &ParsedExpr) -> TypingResult<TypedExpr> {
        let lowered = self.infer(node, None)?;
        if !is_text(&lowered.expr.value_type.ty) {
            let message = format!("expected text, got {}", type_name(&lowered.expr.value_type.ty));
            return self.report_error("type-mismatch", &node.range, message, "convert it: string(…)");
        }
        Some(lowered)
    }

    fn infer_size(&mut self, of: &ParsedExpr, range: &Range<usize>) -> TypingResult<TypedExpr> {
        let lowered = self.infer(of, None)?;
        let ty = &lowered.expr.value_type.ty;
        if !is_text(ty) && !matches!(ty, DataType::List(_)) {
            let message = format!("only text and lists have a size, got {}", type_name(ty));
            return self.report_error("type-mismatch", &of.range, message, "give a text or a list");
        }
        Some(self.typed_call(BuiltinFunction::Size, vec![lowered], DataType::Int, range))
    }

    fn infer_conversion(
        &mut self,
        function: BuiltinFunction,
        of: &ParsedExpr,
        range: &Range<usize>,
    ) -> TypingResult<TypedExpr> {
        let lowered = self.infer(of, None)?;
        let ty = &lowered.expr.value_type.ty;
        let (is_convertible, result_type, known) = match function {
            BuiltinFunction::Int => {
                (matches!(ty, DataType::Int | DataType::Double | DataType::Time), DataType::Int, "int, double or time")
            }
            BuiltinFunction::Double => {
                (matches!(ty, DataType::Int | DataType::Double), DataType::Double, "int or double")
            }
            _ => (
                is_text(ty) || matches!(ty, DataType::Int | DataType::Bool | DataType::Ref(_)),
                DataType::Text,
                "int, bool, string or ref",
            ),
        };
        if !is_convertible {
            let message = format!("{} cannot be converted", type_name(ty));
            return self.report_error("type-mismatch", &of.range, message, format!("give {known}"));
        }
        Some(self.typed_call(function, vec![lowered], result_type, range))
    }

    fn infer_timestamp(&mut self, of: &ParsedExpr, range: &Range<usize>) -> TypingResult<TypedExpr> {
        let ParsedKind::Literal(Value::Text(text)) = &of.kind else {
            return self.require_literal(of, "timestamp('2026-01-31T12:00:00Z')");
        };
        match text.parse::<Time>() {
            Ok(time) => {
                Some(self.typed_expr(range, ExprKind::Const(Value::Time(time)), value_type(DataType::Time, false), 1))
            }
            Err(error) => self.report_error(
                "invalid-time",
                &of.range,
                error.to_string(),
                "write a time such as '2026-01-31T12:00:00Z'",
            ),
        }
    }

    fn infer_duration(&mut self, of: &ParsedExpr, range: &Range<usize>) -> TypingResult<TypedExpr> {
        let ParsedKind::Literal(Value::Text(text)) = &of.kind else {
            return self.require_literal(of, "duration('1h30m')");
        };
        match text.parse::<Duration>() {
            Ok(length) => Some(self.typed_expr(
                range,
                ExprKind::Const(Value::Duration(length)),
                value_type(DataType::Duration, false),
                1,
            )),
            Err(error) => self.report_error(
                "invalid-duration",
                &of.range,
                error.to_string(),
                "write a duration such as '30s' or '1h30m'",
            ),
        }
    }

    fn require_literal<T>(&mut self, of: &ParsedExpr, example: &str) -> TypingResult<T> {
        self.report_error("type-mismatch", &of.range, "expected a literal", format!("write {example}"))
    }

    /// Types `max` and `min`. The result is nullable only if all operands are.
    fn infer_extreme(
        &mut self,
        function: BuiltinFunction,
        arguments: &[ParsedExpr],
        range: &Range<usize>,
    ) -> TypingResult<TypedExpr> {
        let mut parts: Vec<Option<TypedExpr>> = arguments.iter().map(|_| None).collect();
        let mut context = None;
        for needs_context in [false, true] {
            for (index, argument) in arguments.iter().enumerate() {
                if self.needs_context(argument) == needs_context {
                    let part = self.infer(argument, context.as_ref())?;
                    context =
                        context.or_else(|| Some(part.expr.value_type.ty.clone()).filter(|ty| *ty != DataType::Null));
                    parts[index] = Some(part);
                }
            }
        }
        let parts: Vec<TypedExpr> = parts.into_iter().flatten().collect();
        let mut ty = DataType::Null;
        for (part, node) in parts.iter().zip(arguments) {
            let other = &part.expr.value_type.ty;
            if *other == DataType::Null {
                continue;
            }
            if !matches!(other, DataType::Int | DataType::Double | DataType::Duration | DataType::Time)
                || (ty != DataType::Null && ty != *other)
            {
                let message = match ty {
                    DataType::Null => format!("{} cannot be ordered", type_name(other)),
                    _ => format!("the argument is {}, and an earlier one is {}", type_name(other), type_name(&ty)),
                };
                let help = "give max and min ints, doubles, durations or times, all of one type";
                return self.report_error("type-mismatch", &node.range, message, help);
            }
            ty = other.clone();
        }
        let nullable = parts.iter().all(|part| part.expr.value_type.nullable);
        let mut lowered = self.typed_call(function, parts, ty, range);
        lowered.expr.value_type.nullable = nullable;
        Some(lowered)
    }

    fn infer_backoff(&mut self, arguments: &[ParsedExpr], range: &Range<usize>) -> TypingResult<TypedExpr> {
        let [attempts, base, factor, cap] = arguments else { return None };
        let attempts = self.infer_of_type(attempts, &DataType::Int, "backoff takes the number of attempts")?;
        let base = self.infer_of_type(base, &DataType::Duration, "backoff takes its first delay")?;
        if !matches!(factor.kind, ParsedKind::Literal(Value::Int(1..=1_000))) {
            let message = "the factor of backoff must be a literal whole number from 1 to 1000";
            return self.report_error(
                "wrong-arguments",
                &factor.range,
                message,
                "write 2 to double the delay each time",
            );
        }
        let factor = self.infer(factor, None)?;
        let cap = self.infer_of_type(cap, &DataType::Duration, "backoff takes its maximum delay")?;
        Some(self.typed_call(BuiltinFunction::Backoff, vec![attempts, base, factor, cap], DataType::Duration, range))
    }
}
