//! Builds help texts for frequent mistakes: a field without `record.`, a number without a unit, a nullable value.

use super::super::parse::{ParsedExpr, ParsedKind};
use super::super::suggest;
use super::super::tree::{BuiltinFunction, Expr, ExprKind};
use super::typer::ExprTyper;
use crate::model::DataType;
use crate::value::Value;

impl ExprTyper<'_> {
    /// Returns the probable meaning of a bare name: an input or field of that name, or the closest name.
    pub(super) fn guess_meant_name(&self, name: &str) -> Option<String> {
        let inputs = || self.scope.input.unwrap_or_default().iter().map(|field| &*field.name);
        let record_names =
            || self.scope.own_signature.fields.iter().map(|field| &*field.name).chain(super::paths::METADATA_NAMES);
        let input = || format!("`input.{name}`");
        let record = || format!("`record.{name}`");
        match (inputs().any(|known| known == name), record_names().any(|known| known == name)) {
            (true, true) => return Some(format!("{} or {}", input(), record())),
            (true, false) => return Some(input()),
            (false, true) => return Some(record()),
            (false, false) => {}
        }
        let near = |known: Option<&str>, root: &str| known.map(|known| format!("`{root}{known}`"));
        near(suggest::suggest_name(self.diagnostic_count(), name, self.visible_root_names()), "")
            .or_else(|| near(suggest::suggest_name(self.diagnostic_count(), name, inputs()), "input."))
            .or_else(|| near(suggest::suggest_name(self.diagnostic_count(), name, record_names()), "record."))
    }
}

/// Returns the help for a number in place of a duration. `is_unquoted`: the file has it without quotes.
pub(super) fn unit_help(node: &ParsedExpr, is_unquoted: bool) -> String {
    match &node.kind {
        ParsedKind::Literal(Value::Int(number)) if *number >= 0 => {
            let quote = if is_unquoted { "\"" } else { "" };
            format!("a number has no unit: write {quote}'{number}s'{quote} for seconds")
        }
        _ => "a number has no unit: write a literal such as '30s', or read a field of type duration".to_owned(),
    }
}

/// Returns what may be null in an expression, and the help for it.
pub(super) fn null_help(node: &ParsedExpr, expr: &Expr, expected: &DataType) -> (String, String) {
    let Some(part) = find_nullable_part(node, expr) else {
        return ("the value may be null".to_owned(), "replace null: x == null ? … : x".to_owned());
    };
    if std::ptr::eq(part, node) && matches!(node.kind, ParsedKind::Literal(_)) {
        return ("the value is null".to_owned(), "give a value, or declare the field `optional`".to_owned());
    }
    let Some(path) = path_text(part) else {
        let help = "give a value in every branch, or declare the field `optional`".to_owned();
        return ("one branch is null".to_owned(), help);
    };
    let help = if *expected == DataType::Bool {
        format!("write {path} == true, which is false if it is null")
    } else {
        format!(
            "exclude null first: {path} != null in the transition's `when`, or an entry of `refuse` with {path} == \
             null\nor replace null: {path} == null ? … : {path}"
        )
    };
    (format!("`{path}` may be null"), help)
}

/// Returns the innermost part that makes the whole expression nullable.
fn find_nullable_part<'n>(node: &'n ParsedExpr, expr: &Expr) -> Option<&'n ParsedExpr> {
    match (&node.kind, &expr.kind) {
        (ParsedKind::If(_, yes, no), ExprKind::If(_, if_yes, if_no)) => {
            let (node, expr) = if if_yes.value_type.nullable { (yes, if_yes) } else { (no, if_no) };
            find_nullable_part(node, expr)
        }
        (ParsedKind::Call { arguments, .. }, ExprKind::Call(BuiltinFunction::Max | BuiltinFunction::Min, parts)) => {
            find_nullable_part(arguments.first()?, parts.first()?)
        }
        (ParsedKind::Name(_) | ParsedKind::Select { .. } | ParsedKind::Literal(_), _) => Some(node),
        _ => None,
    }
}

/// Returns the help for a comparison of a list with one of its elements.
pub(super) fn membership_help(list: &ParsedExpr, element: &ParsedExpr, negated: bool) -> String {
    let element = match &element.kind {
        ParsedKind::Literal(Value::Text(text)) if text.chars().count() <= 40 && !text.contains(['\'', '\\']) => {
            format!("'{text}'")
        }
        _ => path_text(element).unwrap_or_else(|| "x".to_owned()),
    };
    let list = path_text(list).unwrap_or_else(|| "list".to_owned());
    let found = format!("{element} in {list}");
    format!("search the list: {}", if negated { format!("!({found})") } else { found })
}

/// Returns a path as it is written in the file.
fn path_text(node: &ParsedExpr) -> Option<String> {
    match &node.kind {
        ParsedKind::Name(name) => Some(name.to_string()),
        ParsedKind::Select { operand: of, field, .. } => Some(format!("{}.{field}", path_text(of)?)),
        _ => None,
    }
}
