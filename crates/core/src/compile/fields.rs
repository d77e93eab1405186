//! Compiles declared fields: types and defaults.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::literal;
use crate::bounds;
use crate::diagnostic::Diagnostic;
use crate::expr;
use crate::model::{DataType, FieldDef};
use crate::suggest;
use crate::syntax::ast::{self, SourceText};

/// Type names. No field may have such a name, so that `input = { x = "name" }` is never ambiguous.
pub(super) const TYPE_NAMES: [&str; 10] =
    ["string", "int", "double", "bool", "time", "duration", "list", "json", "ref", "refs"];
const ELEMENT_TYPE_NAMES: [&str; 6] = ["string", "int", "double", "bool", "time", "duration"];
/// Fields that every record has in addition to the declared ones.
pub(super) const METADATA_FIELD_NAMES: [&str; 12] = [
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

/// Like [`suggest::suggestion_text`], but also maps type names of other languages to ours.
pub(super) fn suggest_type<'a>(
    diagnostic_count: usize,
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
        _ => return suggest::suggestion_text(diagnostic_count, name, what, known),
    };
    format!("the type is called `{ours}`")
}

/// Compiles field declarations and reports errors in them.
pub(super) struct DeclarationCompiler<'a> {
    pub(super) lifecycle_names: &'a BTreeSet<Arc<str>>,
    pub(super) diagnostics: &'a mut Vec<Diagnostic>,
}

impl DeclarationCompiler<'_> {
    /// Compiles the fields of a record. Returns `None` if one of them is invalid.
    pub(super) fn compile_record_fields(&mut self, declared: &[ast::FieldDecl]) -> Option<Vec<FieldDef>> {
        let mut all_valid = true;
        for field in declared {
            let name: &str = &field.name.text;
            let why = if METADATA_FIELD_NAMES.contains(&name) {
                "every record already has it"
            } else if TYPE_NAMES.contains(&name) || name == "enum" {
                "it is the name of a type"
            } else {
                continue;
            };
            all_valid = false;
            self.report_reserved_name(&field.name, "a field", why);
        }
        let fields: Vec<Option<FieldDef>> = declared.iter().map(|field| self.compile_field(field)).collect();
        fields.into_iter().collect::<Option<Vec<FieldDef>>>().filter(|_| all_valid)
    }

    pub(super) fn report_reserved_name(&mut self, name: &SourceText, what: &str, why: &str) {
        self.diagnostics.push(
            Diagnostic::error("reserved-name", name.span(), format!("{what} cannot be named `{}`", name.text))
                .label(why)
                .help("choose another name"),
        );
    }

    pub(super) fn compile_field(&mut self, declared: &ast::FieldDecl) -> Option<FieldDef> {
        let ty = self.compile_type(declared)?;
        let bounds = self.compile_bounds(declared, &ty)?;
        let literal = match (&declared.default, &declared.constant) {
            (Some(default), Some(constant)) => {
                self.diagnostics.push(
                    Diagnostic::error(
                        "conflicting-keys",
                        default.span,
                        "a field has either `const` or `default`, not both",
                    )
                    .label("`default`")
                    .related(constant.span, "`const`")
                    .help("remove one of them"),
                );
                return None;
            }
            (default, constant) => default.as_ref().or(constant.as_ref()),
        };
        let default = match literal {
            None => None,
            Some(literal) => match literal::literal_value(&literal.value, &ty, &bounds) {
                Ok(value) => Some(value),
                Err(why) => {
                    self.diagnostics.push(
                        Diagnostic::error(
                            "invalid-default",
                            literal.span,
                            format!("the value of `{}` {why}", declared.name.text),
                        )
                        .label("does not fit")
                        .related(declared.ty.span(), "its type")
                        .help("give a value of the field's type, within its bounds"),
                    );
                    return None;
                }
            },
        };
        Some(FieldDef {
            name: declared.name.text.clone(),
            about: declared.about.as_ref().map_or_else(|| "".into(), |about| about.text.clone()),
            ty,
            nullable: declared.optional,
            default,
            is_constant: declared.constant.is_some(),
            bounds,
            span: declared.name.span(),
        })
    }

    fn compile_type(&mut self, declared: &ast::FieldDecl) -> Option<DataType> {
        let name: &str = &declared.ty.text;
        let ty = match name {
            "json" => DataType::Json,
            "ref" => DataType::Ref(self.compile_ref_targets(declared)?),
            "refs" => DataType::List(Box::new(DataType::Ref(self.compile_ref_targets(declared)?))),
            "list" => DataType::List(Box::new(self.compile_element_type(declared)?)),
            _ if ELEMENT_TYPE_NAMES.contains(&name) => self.compile_scalar_type(name, declared)?,
            _ => {
                let mut help = suggest_type(self.diagnostics.len(), name, "types", TYPE_NAMES);
                if name == "enum" {
                    help = "write type = \"string\", enum = [\"a\", \"b\"]".into();
                }
                self.diagnostics.push(
                    Diagnostic::error("unknown-type", declared.ty.span(), format!("there is no type `{name}`"))
                        .label("not a type")
                        .help(help),
                );
                return None;
            }
        };
        self.reject_inapplicable_keys(declared, &ty)?;
        Some(ty)
    }

    /// Compiles a type of [`ELEMENT_TYPE_NAMES`], on its own or as the element of a list.
    fn compile_scalar_type(&mut self, name: &str, declared: &ast::FieldDecl) -> Option<DataType> {
        Some(match name {
            "string" => self.compile_string_type(declared)?,
            "int" => DataType::Int,
            "double" => DataType::Double,
            "bool" => DataType::Bool,
            "time" => DataType::Time,
            "duration" => DataType::Duration,
            _ => return None,
        })
    }

    fn compile_string_type(&mut self, declared: &ast::FieldDecl) -> Option<DataType> {
        let Some(values) = &declared.enum_values else { return Some(DataType::Text) };
        let mut names: Vec<Arc<str>> = Vec::new();
        for value in &values.value {
            let why = if value.text.is_empty() || value.text.len() > bounds::MAX_NAME_BYTES {
                "a value must have 1 to 100 bytes"
            } else if value.text.chars().any(char::is_control) {
                "a value must not have control characters"
            } else if names.contains(&value.text) {
                "it is listed twice"
            } else {
                names.push(value.text.clone());
                continue;
            };
            self.report_invalid_bound(
                value.span(),
                &format!("`{}` cannot be a value of `{}`", value.text, declared.name.text),
                why,
                "list each value once, such as enum = [\"new\", \"paid\"]",
            );
            return None;
        }
        if names.is_empty() {
            self.report_invalid_bound(
                values.span,
                &format!("the bounds of `{}` allow no value", declared.name.text),
                "no values",
                "list at least one value",
            );
            return None;
        }
        Some(DataType::Enum(names.into()))
    }

    fn compile_ref_targets(&mut self, declared: &ast::FieldDecl) -> Option<Arc<[Arc<str>]>> {
        let Some(to) = &declared.ref_targets else {
            self.report_missing_key(declared, "to", "name the lifecycle that it refers to, such as to = \"relay.job\"");
            return None;
        };
        let mut all_known = !to.value.is_empty();
        for target in &to.value {
            all_known &= self.require_lifecycle(target);
        }
        all_known.then(|| to.value.iter().map(|target| target.text.clone()).collect())
    }

    /// Reports an unknown lifecycle in a link's source, such as `relay.submission` in `relay.submission.job`. Runs at
    /// the declaration, so that transitions that read a broken link get no diagnostic.
    pub(super) fn require_link_lifecycle(&mut self, from: &SourceText) {
        if let Some((lifecycle, _)) = from.text.rsplit_once('.') {
            let location = expr::ExprLocation { value_span: from.part_span(0..lifecycle.len()), content_start: None };
            self.require_lifecycle(&SourceText { text: lifecycle.into(), location });
        }
    }

    /// Returns whether the lifecycle exists, and reports it if not.
    pub(super) fn require_lifecycle(&mut self, name: &SourceText) -> bool {
        let is_known = self.lifecycle_names.contains(&name.text);
        if !is_known {
            let shown = self.lifecycle_names.iter().map(|name| &**name).filter(|name| !name.starts_with("onceward."));
            let help = suggest::suggestion_text(self.diagnostics.len(), &name.text, "given lifecycles", shown);
            self.diagnostics.push(
                Diagnostic::error("unknown-lifecycle", name.span(), format!("there is no lifecycle `{}`", name.text))
                    .label("not in the given files")
                    .help(format!(
                        "{help}\nif it is in another file, give that file, too, or its directory: onceward check DIR"
                    )),
            );
        }
        is_known
    }

    fn compile_element_type(&mut self, declared: &ast::FieldDecl) -> Option<DataType> {
        let Some(of) = &declared.element_type else {
            self.report_missing_key(declared, "of", "name the type of the elements, such as of = \"string\"");
            return None;
        };
        let name: &str = &of.text;
        if ELEMENT_TYPE_NAMES.contains(&name) {
            return self.compile_scalar_type(name, declared);
        }
        let mut help = suggest_type(self.diagnostics.len(), name, "element types", ELEMENT_TYPE_NAMES);
        if name == "ref" {
            help = "write type = \"refs\", to = \"…\"".into();
        }
        self.diagnostics.push(
            Diagnostic::error("unknown-type", of.span(), format!("`{name}` cannot be the element type of a list"))
                .label("not an element type")
                .help(help),
        );
        None
    }

    fn report_missing_key(&mut self, declared: &ast::FieldDecl, key: &str, help: &str) {
        self.diagnostics.push(
            Diagnostic::error(
                "missing-key",
                declared.ty.span(),
                format!("`{}` needs the key `{key}`", declared.name.text),
            )
            .label(format!("the type needs `{key}`"))
            .help(help),
        );
    }
}
