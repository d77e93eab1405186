//! Declared fields: types, bounds, defaults.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::literal;
use crate::bounds;
use crate::diagnostic::{Diagnostic, Span};
use crate::expr;
use crate::model::{Bounds, Field, Type};
use crate::near;
use crate::syntax::ast::{self, At, Literal, Text};

/// Type names; also names that no field may have, so that `input = { x = "name" }` is never ambiguous.
pub(super) const TYPES: [&str; 10] =
    ["string", "int", "double", "bool", "time", "duration", "list", "json", "ref", "refs"];
const ELEMENT_TYPES: [&str; 6] = ["string", "int", "double", "bool", "time", "duration"];
/// What every record has besides its fields.
const METADATA: [&str; 12] = [
    "id",
    "state",
    "owner",
    "version",
    "attempt",
    "hold",
    "created_at",
    "updated_at",
    "started_at",
    "finished_at",
    "lifecycle",
    "payload",
];
/// A pattern is compiled once, but its automaton must stay small.
const PATTERN_BYTES: usize = 1_000;
const PATTERN_AUTOMATON_BYTES: usize = 256 * 1024;

/// What declarations are read against.
pub(super) struct Declarer<'a> {
    pub(super) lifecycles: &'a BTreeSet<Arc<str>>,
    pub(super) out: &'a mut Vec<Diagnostic>,
}

impl Declarer<'_> {
    /// The fields of a record. All of them, or `None` where one is wrong.
    pub(super) fn record_fields(&mut self, declared: &[ast::Field]) -> Option<Vec<Field>> {
        let mut good = true;
        for field in declared {
            let name: &str = &field.name.text;
            let why = if METADATA.contains(&name) {
                "every record has it already"
            } else if TYPES.contains(&name) || name == "enum" {
                "it is the name of a type"
            } else {
                continue;
            };
            good = false;
            self.reserved_name(&field.name, "a field", why);
        }
        let fields: Vec<Option<Field>> = declared.iter().map(|field| self.field(field)).collect();
        fields.into_iter().collect::<Option<Vec<Field>>>().filter(|_| good)
    }

    pub(super) fn reserved_name(&mut self, name: &Text, what: &str, why: &str) {
        self.out.push(
            Diagnostic::error("reserved-name", name.at(), format!("{what} cannot be called `{}`", name.text))
                .label(why)
                .help("choose another name"),
        );
    }

    pub(super) fn field(&mut self, declared: &ast::Field) -> Option<Field> {
        let ty = self.ty(declared)?;
        let bounds = self.bounds(declared, &ty)?;
        let literal = match (&declared.default, &declared.constant) {
            (Some(default), Some(constant)) => {
                self.out.push(
                    Diagnostic::error("conflicting-keys", default.at, "a field is either `const` or has a `default`")
                        .label("`default` here")
                        .also(constant.at, "`const` here")
                        .help("keep one of them"),
                );
                return None;
            }
            (default, constant) => default.as_ref().or(constant.as_ref()),
        };
        let default = match literal {
            None => None,
            Some(literal) => match literal::value(&literal.value, &ty, &bounds) {
                Ok(value) => Some(value),
                Err(why) => {
                    self.out.push(
                        Diagnostic::error(
                            "invalid-default",
                            literal.at,
                            format!("the value of `{}` {why}", declared.name.text),
                        )
                        .label("does not fit")
                        .also(declared.ty.at(), "its type")
                        .help("give a value of the field's type, within its bounds"),
                    );
                    return None;
                }
            },
        };
        Some(Field {
            name: declared.name.text.clone(),
            about: declared.about.as_ref().map_or_else(|| "".into(), |about| about.text.clone()),
            ty,
            nullable: declared.optional,
            default,
            constant: declared.constant.is_some(),
            bounds,
            at: declared.name.at(),
        })
    }

    fn ty(&mut self, declared: &ast::Field) -> Option<Type> {
        let name: &str = &declared.ty.text;
        let ty = match name {
            "string" => self.text_or_enum(declared)?,
            "int" => Type::Int,
            "double" => Type::Double,
            "bool" => Type::Bool,
            "time" => Type::Time,
            "duration" => Type::Duration,
            "json" => Type::Json,
            "ref" => Type::Ref(self.targets(declared)?),
            "refs" => Type::List(Box::new(Type::Ref(self.targets(declared)?))),
            "list" => Type::List(Box::new(self.element(declared)?)),
            _ => {
                let mut help = near::advice(self.out.len(), name, "types", TYPES);
                if name == "enum" {
                    help = "write type = \"string\", enum = [\"a\", \"b\"]".into();
                }
                self.out.push(
                    Diagnostic::error("unknown-type", declared.ty.at(), format!("there is no type `{name}`"))
                        .label("not a type")
                        .help(help),
                );
                return None;
            }
        };
        self.only_where_meant(declared, &ty)?;
        Some(ty)
    }

    fn text_or_enum(&mut self, declared: &ast::Field) -> Option<Type> {
        let Some(values) = &declared.values else { return Some(Type::Text) };
        let mut names: Vec<Arc<str>> = Vec::new();
        for value in &values.value {
            let why = if value.text.is_empty() || value.text.len() > bounds::NAME_BYTES {
                "a value has 1 to 100 bytes"
            } else if value.text.chars().any(char::is_control) {
                "a value has no control characters"
            } else if names.contains(&value.text) {
                "it stands here twice"
            } else {
                names.push(value.text.clone());
                continue;
            };
            self.invalid_bound(
                value.at(),
                &format!("`{}` cannot be a value of `{}`", value.text, declared.name.text),
                why,
                "list each value once, as enum = [\"new\", \"paid\"]",
            );
            return None;
        }
        if names.is_empty() {
            self.invalid_bound(
                values.at,
                &format!("`{}` could have no value at all", declared.name.text),
                "no values",
                "list at least one value",
            );
            return None;
        }
        Some(Type::Enum(names.into()))
    }

    fn targets(&mut self, declared: &ast::Field) -> Option<Arc<[Arc<str>]>> {
        let Some(to) = &declared.to else {
            self.missing(declared, "to", "name the lifecycle it points to, as to = \"relay.job\"");
            return None;
        };
        let mut good = !to.value.is_empty();
        for target in &to.value {
            good &= self.lifecycle(target);
        }
        good.then(|| to.value.iter().map(|target| target.text.clone()).collect())
    }

    /// The lifecycle of a link's source, `relay.submission` of `relay.submission.job`. Asked here and not where links are
    /// followed, so that no row that reads a broken link is blamed for it.
    pub(super) fn link_lifecycle(&mut self, from: &Text) {
        if let Some((lifecycle, _)) = from.text.rsplit_once('.') {
            let place = expr::Place { whole: from.part(0..lifecycle.len()), content: None };
            self.lifecycle(&Text { text: lifecycle.into(), place });
        }
    }

    /// Whether a lifecycle of that name is known; says so where not.
    pub(super) fn lifecycle(&mut self, name: &Text) -> bool {
        let known = self.lifecycles.contains(&name.text);
        if !known {
            let shown = self.lifecycles.iter().map(|name| &**name).filter(|name| !name.starts_with("onceward."));
            let help = near::advice(self.out.len(), &name.text, "lifecycles given", shown);
            self.out.push(
                Diagnostic::error("unknown-lifecycle", name.at(), format!("there is no lifecycle `{}`", name.text))
                    .label("not among the files given")
                    .help(format!(
                        "{help}\nif it is in another file, give that file too, or the folder: onceward check DIR"
                    )),
            );
        }
        known
    }

    fn element(&mut self, declared: &ast::Field) -> Option<Type> {
        let Some(of) = &declared.of else {
            self.missing(declared, "of", "say what the list holds, as of = \"string\"");
            return None;
        };
        Some(match &*of.text {
            "string" => self.text_or_enum(declared)?,
            "int" => Type::Int,
            "double" => Type::Double,
            "bool" => Type::Bool,
            "time" => Type::Time,
            "duration" => Type::Duration,
            other => {
                let mut help = near::advice(self.out.len(), other, "types a list may hold", ELEMENT_TYPES);
                if other == "ref" {
                    help = "write type = \"refs\", to = \"…\"".into();
                }
                self.out.push(
                    Diagnostic::error("unknown-type", of.at(), format!("a list cannot hold `{other}`"))
                        .label("not a type a list may hold")
                        .help(help),
                );
                return None;
            }
        })
    }

    fn missing(&mut self, declared: &ast::Field, key: &str, help: &str) {
        self.out.push(
            Diagnostic::error(
                "missing-key",
                declared.ty.at(),
                format!("`{}` needs the key `{key}`", declared.name.text),
            )
            .label(format!("this type needs `{key}`"))
            .help(help),
        );
    }

    /// Keys that mean nothing for the type are slips.
    fn only_where_meant(&mut self, declared: &ast::Field, ty: &Type) -> Option<()> {
        let is_list = matches!(ty, Type::List(_));
        let holds_enum = match ty {
            Type::Enum(_) => true,
            Type::List(of) => matches!(**of, Type::Enum(_)),
            _ => false,
        };
        let bounded = matches!(ty, Type::Text | Type::Int | Type::Double | Type::Json | Type::List(_));
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

    fn bounds(&mut self, declared: &ast::Field, ty: &Type) -> Option<Bounds> {
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

    fn invalid_bound(&mut self, at: Span, message: &str, label: &str, help: &str) {
        self.out.push(Diagnostic::error("invalid-bound", at, message).label(label).help(help));
    }
}
