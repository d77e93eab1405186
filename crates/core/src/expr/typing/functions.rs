//! Calls: the functions of the subset, and what to say of those that are not in it.

use std::ops::Range;
use std::sync::Arc;

use super::super::cost;
use super::super::parse::{Node, What};
use super::super::suggest;
use super::super::tree::{Comprehension, Function, Kind};
use super::super::types::{is_text, name_of, typed};
use super::doubts;
use super::typer::{Checked, Lowered, Typer};
use crate::counted;
use crate::model::Type;
use crate::time::{Duration, Time};
use crate::value::Value;

const FUNCTIONS: [&str; 10] =
    ["size", "int", "double", "string", "timestamp", "duration", "max", "min", "backoff", "jitter"];

const METHODS: [&str; 6] = ["startsWith", "endsWith", "contains", "all", "exists", "filter"];

impl Typer<'_> {
    pub(super) fn function(
        &mut self,
        name: &Arc<str>,
        name_at: &Range<usize>,
        arguments: &[Node],
        at: &Range<usize>,
    ) -> Checked<Lowered> {
        match (name.as_ref(), arguments) {
            ("size", [of]) => self.size(of, at),
            ("int", [of]) => self.convert(Function::Int, of, at),
            ("double", [of]) => self.convert(Function::Double, of, at),
            ("string", [of]) => self.convert(Function::Text, of, at),
            ("timestamp", [of]) => self.timestamp(of, at),
            ("duration", [of]) => self.duration(of, at),
            ("max", [_, _, ..]) => self.extreme(Function::Max, arguments, at),
            ("min", [_, _, ..]) => self.extreme(Function::Min, arguments, at),
            ("backoff", [_, _, _, _]) => self.backoff(arguments, at),
            ("jitter", [most]) => {
                let most = self.of_type(most, &Type::Duration, "jitter takes the longest jitter")?;
                Some(self.call(Function::Jitter, vec![most], Type::Duration, at))
            }
            (known, _) if FUNCTIONS.contains(&known) => {
                let usage = match known {
                    "max" | "min" => format!("write {known}(a, b)"),
                    "backoff" => "write backoff(n, '1s', 2, '5m')".to_owned(),
                    "timestamp" => "write timestamp('2026-01-31T12:00:00Z')".to_owned(),
                    "duration" | "jitter" => format!("write {known}('1s')"),
                    _ => format!("write {known}(x)"),
                };
                self.error(
                    "wrong-arguments",
                    name_at,
                    format!("`{known}` does not take {}", counted(arguments.len(), "argument", "arguments")),
                    usage,
                )
            }
            (method, _) if METHODS.contains(&method) => {
                let help = format!("write it after what it is asked of: x.{method}(…)");
                self.error("unknown-function", name_at, format!("`{method}` is not called this way"), help)
            }
            (other, _) => self.unknown(other, name_at, &FUNCTIONS),
        }
    }

    pub(super) fn method(
        &mut self,
        name: &Arc<str>,
        name_at: &Range<usize>,
        target: &Node,
        arguments: &[Node],
        at: &Range<usize>,
        expected: Option<&Type>,
    ) -> Checked<Lowered> {
        let how = match name.as_ref() {
            "all" => Comprehension::All,
            "exists" => Comprehension::Exists,
            "filter" => Comprehension::Filter,
            _ => return self.plain_method(name, name_at, target, arguments, at),
        };
        self.comprehension(how, name_at, target, arguments, at, expected)
    }

    fn plain_method(
        &mut self,
        name: &str,
        name_at: &Range<usize>,
        target: &Node,
        arguments: &[Node],
        at: &Range<usize>,
    ) -> Checked<Lowered> {
        let function = match (name, arguments) {
            ("startsWith", [_]) => Function::StartsWith,
            ("endsWith", [_]) => Function::EndsWith,
            ("contains", [_]) => Function::Contains,
            ("startsWith" | "endsWith" | "contains", _) => {
                let message = format!("`{name}` does not take {}", counted(arguments.len(), "argument", "arguments"));
                return self.error("wrong-arguments", name_at, message, format!("write x.{name}('text')"));
            }
            _ if FUNCTIONS.contains(&name) => {
                let message = format!("`{name}` is not called this way");
                return self.error("unknown-function", name_at, message, format!("write {name}(…)"));
            }
            _ => return self.unknown(name, name_at, &METHODS),
        };
        let (text, part) = (self.text(target), self.text(&arguments[0]));
        let (text, part) = (text?, part?);
        Some(self.call(function, vec![text, part], Type::Bool, at))
    }

    fn unknown<T>(&mut self, name: &str, at: &Range<usize>, known: &[&str]) -> Checked<T> {
        let reason = match name {
            // CEL has these two; whoever knows it from there is told what does the same here.
            "exists_one" | "map" => {
                let help = if name == "map" {
                    "ask of the elements themselves: list.exists(x, …), list.all(x, …) or list.filter(x, …)"
                } else {
                    "write list.exists(x, …), or size(list.filter(x, …)) == 1 where there must not be two"
                };
                return self.error("unknown-function", at, format!("no function is called `{name}`"), help);
            }
            "matches" => "no regular expressions in expressions: give the field a `pattern`",
            "now" => "write `now` without brackets",
            "not" => "write `!`",
            "has" => "every declared field is there: compare it with null",
            "getFullYear" | "getMonth" | "getDate" | "getDayOfMonth" | "getDayOfWeek" | "getDayOfYear" | "getHours"
            | "getMinutes" | "getSeconds" | "getMilliseconds" => {
                "there are no calendars and time zones here: use int(now)"
            }
            "uint" | "bytes" | "bool" | "type" | "dyn" => "only int, double and string convert",
            _ => {
                let help = suggest::help(self.told(), name, known.iter().copied());
                return self.error("unknown-function", at, format!("no function is called `{name}`"), help);
            }
        };
        self.error("not-in-subset", at, format!("`{name}` is not part of the expression language"), reason)
    }

    fn call(&self, function: Function, arguments: Vec<Lowered>, ty: Type, at: &Range<usize>) -> Lowered {
        let cost = cost::sum(arguments.iter().map(|argument| argument.cost).chain([1]));
        let arguments = arguments.into_iter().map(|argument| argument.expr).collect();
        self.lowered(at, Kind::Call(function, arguments), typed(ty, false), cost)
    }

    fn of_type(&mut self, node: &Node, want: &Type, what: &str) -> Checked<Lowered> {
        let lowered = self.infer(node, Some(want))?;
        if lowered.expr.typed.ty != *want {
            let message = format!("{what} as {}, and this is {}", name_of(want), name_of(&lowered.expr.typed.ty));
            let help = match (&lowered.expr.typed.ty, want) {
                (Type::Int | Type::Double, Type::Duration) => doubts::unit_help(node, false),
                _ => "give a value of that type".to_owned(),
            };
            return self.error("type-mismatch", &node.at, message, help);
        }
        Some(lowered)
    }

    fn text(&mut self, node: &Node) -> Checked<Lowered> {
        let lowered = self.infer(node, None)?;
        if !is_text(&lowered.expr.typed.ty) {
            let message = format!("text is wanted here, and this is {}", name_of(&lowered.expr.typed.ty));
            return self.error("type-mismatch", &node.at, message, "convert it: string(…)");
        }
        Some(lowered)
    }

    fn size(&mut self, of: &Node, at: &Range<usize>) -> Checked<Lowered> {
        let lowered = self.infer(of, None)?;
        let ty = &lowered.expr.typed.ty;
        if !is_text(ty) && !matches!(ty, Type::List(_)) {
            let message = format!("text and lists have a size, and this is {}", name_of(ty));
            return self.error("type-mismatch", &of.at, message, "name a text or a list");
        }
        Some(self.call(Function::Size, vec![lowered], Type::Int, at))
    }

    fn convert(&mut self, function: Function, of: &Node, at: &Range<usize>) -> Checked<Lowered> {
        let lowered = self.infer(of, None)?;
        let ty = &lowered.expr.typed.ty;
        let (takes, gives, known) = match function {
            Function::Int => (matches!(ty, Type::Int | Type::Double | Type::Time), Type::Int, "int, double or time"),
            Function::Double => (matches!(ty, Type::Int | Type::Double), Type::Double, "int or double"),
            _ => (
                is_text(ty) || matches!(ty, Type::Int | Type::Bool | Type::Ref(_)),
                Type::Text,
                "int, bool, string or ref",
            ),
        };
        if !takes {
            let message = format!("this cannot be converted: it is {}", name_of(ty));
            return self.error("type-mismatch", &of.at, message, format!("it converts from {known}"));
        }
        Some(self.call(function, vec![lowered], gives, at))
    }

    fn timestamp(&mut self, of: &Node, at: &Range<usize>) -> Checked<Lowered> {
        let What::Literal(Value::Text(text)) = &of.what else {
            return self.literal_wanted(of, "timestamp('2026-01-31T12:00:00Z')");
        };
        match text.parse::<Time>() {
            Ok(time) => Some(self.lowered(at, Kind::Const(Value::Time(time)), typed(Type::Time, false), 1)),
            Err(error) => self.error("bad-time", &of.at, error.to_string(), "write it as '2026-01-31T12:00:00Z'"),
        }
    }

    fn duration(&mut self, of: &Node, at: &Range<usize>) -> Checked<Lowered> {
        let What::Literal(Value::Text(text)) = &of.what else {
            return self.literal_wanted(of, "duration('1h30m')");
        };
        match text.parse::<Duration>() {
            Ok(length) => Some(self.lowered(at, Kind::Const(Value::Duration(length)), typed(Type::Duration, false), 1)),
            Err(error) => self.error("bad-duration", &of.at, error.to_string(), "write it as '30s' or '1h30m'"),
        }
    }

    fn literal_wanted<T>(&mut self, of: &Node, example: &str) -> Checked<T> {
        self.error("type-mismatch", &of.at, "only a literal can be read as a time", format!("write {example}"))
    }

    /// `max` and `min`: where one operand is null, the other; null only where all are.
    fn extreme(&mut self, function: Function, arguments: &[Node], at: &Range<usize>) -> Checked<Lowered> {
        let mut parts: Vec<Option<Lowered>> = arguments.iter().map(|_| None).collect();
        let mut met = None;
        for open in [false, true] {
            for (index, argument) in arguments.iter().enumerate() {
                if self.is_open(argument) == open {
                    let part = self.infer(argument, met.as_ref())?;
                    met = met.or_else(|| Some(part.expr.typed.ty.clone()).filter(|ty| *ty != Type::Null));
                    parts[index] = Some(part);
                }
            }
        }
        let parts: Vec<Lowered> = parts.into_iter().flatten().collect();
        let mut ty = Type::Null;
        for (part, node) in parts.iter().zip(arguments) {
            let other = &part.expr.typed.ty;
            if *other == Type::Null {
                continue;
            }
            if !matches!(other, Type::Int | Type::Double | Type::Duration | Type::Time)
                || (ty != Type::Null && ty != *other)
            {
                let message = match ty {
                    Type::Null => format!("{} has no greatest and least", name_of(other)),
                    _ => format!("this is {}, and what stands before it {}", name_of(other), name_of(&ty)),
                };
                let help = "max and min take ints, doubles, durations or times, all of one type";
                return self.error("type-mismatch", &node.at, message, help);
            }
            ty = other.clone();
        }
        let nullable = parts.iter().all(|part| part.expr.typed.nullable);
        let mut lowered = self.call(function, parts, ty, at);
        lowered.expr.typed.nullable = nullable;
        Some(lowered)
    }

    fn backoff(&mut self, arguments: &[Node], at: &Range<usize>) -> Checked<Lowered> {
        let [times, base, factor, cap] = arguments else { return None };
        let times = self.of_type(times, &Type::Int, "backoff takes the number of tries")?;
        let base = self.of_type(base, &Type::Duration, "backoff takes its first delay")?;
        if !matches!(factor.what, What::Literal(Value::Int(1..=1_000))) {
            let message = "the factor of backoff is a whole number from 1 to 1000, as a literal";
            return self.error("wrong-arguments", &factor.at, message, "write 2 to double the delay each time");
        }
        let factor = self.infer(factor, None)?;
        let cap = self.of_type(cap, &Type::Duration, "backoff takes its longest delay")?;
        Some(self.call(Function::Backoff, vec![times, base, factor, cap], Type::Duration, at))
    }
}
