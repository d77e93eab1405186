//! What to say of slips that are made often: a field without `record.`, a number without a unit, a value that may be
//! null.

use super::super::parse::{Node, What};
use super::super::suggest;
use super::super::tree::{Expr, Function, Kind};
use super::typer::Typer;
use crate::model::Type;
use crate::value::Value;

impl Typer<'_> {
    /// What a bare name was probably meant to be: an input or a field of that name, or else the nearest that there is.
    pub(super) fn meant(&self, name: &str) -> Option<String> {
        let inputs = || self.scope.input.unwrap_or_default().iter().map(|field| &*field.name);
        let kept = || self.scope.own.fields.iter().map(|field| &*field.name).chain(super::paths::META);
        let input = || format!("`input.{name}`");
        let record = || format!("`record.{name}`");
        match (inputs().any(|known| known == name), kept().any(|known| known == name)) {
            (true, true) => return Some(format!("{} or {}", input(), record())),
            (true, false) => return Some(input()),
            (false, true) => return Some(record()),
            (false, false) => {}
        }
        let near = |known: Option<&str>, root: &str| known.map(|known| format!("`{root}{known}`"));
        near(suggest::guessed(self.told(), name, self.names()), "")
            .or_else(|| near(suggest::guessed(self.told(), name, inputs()), "input."))
            .or_else(|| near(suggest::guessed(self.told(), name, kept()), "record."))
    }
}

/// What to do about a number that should have been a duration. `bare`: it stands in the file without quotes.
pub(super) fn unit_help(node: &Node, bare: bool) -> String {
    match &node.what {
        What::Literal(Value::Int(number)) if *number >= 0 => {
            let quote = if bare { "\"" } else { "" };
            format!("a number has no unit: write {quote}'{number}s'{quote} for seconds")
        }
        _ => "a number has no unit: write a literal such as '30s', or read a field of type duration".to_owned(),
    }
}

/// What of an expression may be null, and what to do about it.
pub(super) fn null(node: &Node, expr: &Expr, want: &Type) -> (String, String) {
    let Some(part) = doubtful(node, expr) else {
        return ("this may be null".to_owned(), "say what to take instead: x == null ? … : x".to_owned());
    };
    if std::ptr::eq(part, node) && matches!(node.what, What::Literal(_)) {
        return ("this is null".to_owned(), "give a value, or declare the field `optional`".to_owned());
    }
    let Some(path) = written(part) else {
        let help = "give a value in every branch, or declare the field `optional`".to_owned();
        return ("one branch is null".to_owned(), help);
    };
    let help = if *want == Type::Bool {
        format!("write {path} == true, which is false where it is null")
    } else {
        format!(
            "rule null out first: with {path} != null in the row's `when`, or a `refuse` if {path} == null\n\
             or say what to take instead: {path} == null ? … : {path}"
        )
    };
    (format!("`{path}` may be null"), help)
}

/// The innermost part by which the whole may be null.
fn doubtful<'n>(node: &'n Node, expr: &Expr) -> Option<&'n Node> {
    match (&node.what, &expr.kind) {
        (What::If(_, yes, no), Kind::If(_, if_yes, if_no)) => {
            let (node, expr) = if if_yes.typed.nullable { (yes, if_yes) } else { (no, if_no) };
            doubtful(node, expr)
        }
        (What::Call { arguments, .. }, Kind::Call(Function::Max | Function::Min, parts)) => {
            doubtful(arguments.first()?, parts.first()?)
        }
        (What::Name(_) | What::Select { .. } | What::Literal(_), _) => Some(node),
        _ => None,
    }
}

/// What to write where a list was compared with one of its elements.
pub(super) fn look_into(list: &Node, element: &Node, negated: bool) -> String {
    let element = match &element.what {
        What::Literal(Value::Text(text)) if text.chars().count() <= 40 && !text.contains(['\'', '\\']) => {
            format!("'{text}'")
        }
        _ => written(element).unwrap_or_else(|| "x".to_owned()),
    };
    let list = written(list).unwrap_or_else(|| "list".to_owned());
    let found = format!("{element} in {list}");
    format!("look into the list: {}", if negated { format!("!({found})") } else { found })
}

/// A path as it stands in the file.
fn written(node: &Node) -> Option<String> {
    match &node.what {
        What::Name(name) => Some(name.to_string()),
        What::Select { of, field, .. } => Some(format!("{}.{field}", written(of)?)),
        _ => None,
    }
}
