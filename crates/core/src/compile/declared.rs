//! Declared fields: types and defaults.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::literal;
use crate::bounds;
use crate::diagnostic::Diagnostic;
use crate::expr;
use crate::model::{Field, Type};
use crate::near;
use crate::syntax::ast::{self, Text};

/// Type names; also names that no field may have, so that `input = { x = "name" }` is never ambiguous.
pub(super) const TYPES: [&str; 10] =
    ["string", "int", "double", "bool", "time", "duration", "list", "json", "ref", "refs"];
const ELEMENT_TYPES: [&str; 6] = ["string", "int", "double", "bool", "time", "duration"];
/// What every record has besides its fields.
pub(super) const METADATA: [&str; 12] = [
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

/// As `near::advice`, for people who come with the names of another language.
pub(super) fn type_advice<'a>(
    told: usize,
    name: &str,
    what: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    let ours = match name.to_ascii_lowercase().as_str() {
        "text" | "str" | "varchar" | "uuid" => "string",
        "integer" | "number" | "long" | "i64" | "int64" => "int",
        "float" | "f64" | "decimal" => "double",
        "boolean" => "bool",
        "datetime" | "timestamp" | "date" => "time",
        "interval" | "timedelta" => "duration",
        "array" => "list",
        "object" | "map" | "table" => "json",
        _ => return near::advice(told, name, what, known),
    };
    format!("it is called `{ours}` here")
}

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
            "json" => Type::Json,
            "ref" => Type::Ref(self.targets(declared)?),
            "refs" => Type::List(Box::new(Type::Ref(self.targets(declared)?))),
            "list" => Type::List(Box::new(self.element(declared)?)),
            _ if ELEMENT_TYPES.contains(&name) => self.plain(name, declared)?,
            _ => {
                let mut help = type_advice(self.out.len(), name, "types", TYPES);
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

    /// What may stand alone or in a list: one of `ELEMENT_TYPES`.
    fn plain(&mut self, name: &str, declared: &ast::Field) -> Option<Type> {
        Some(match name {
            "string" => self.text_or_enum(declared)?,
            "int" => Type::Int,
            "double" => Type::Double,
            "bool" => Type::Bool,
            "time" => Type::Time,
            "duration" => Type::Duration,
            _ => return None,
        })
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
        let name: &str = &of.text;
        if ELEMENT_TYPES.contains(&name) {
            return self.plain(name, declared);
        }
        let mut help = type_advice(self.out.len(), name, "types a list may hold", ELEMENT_TYPES);
        if name == "ref" {
            help = "write type = \"refs\", to = \"…\"".into();
        }
        self.out.push(
            Diagnostic::error("unknown-type", of.at(), format!("a list cannot hold `{name}`"))
                .label("not a type a list may hold")
                .help(help),
        );
        None
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
}
