//! What others may know of a lifecycle before its expressions are compiled: its signature, and what each of its rows
//! takes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::declared::{self, Declarer, METADATA, TYPES};
use crate::diagnostic::Diagnostic;
use crate::expr::Signature;
use crate::model::{EventKind, Field, Input, Slot};
use crate::near;
use crate::syntax::ast::{self, Row, Source, Text};

/// What one row takes from whoever sends the event.
#[derive(Clone, Debug)]
pub(super) struct RowShape {
    pub(super) inputs: Vec<Input>,
    /// By input: must be given.
    pub(super) required: Vec<bool>,
}

impl RowShape {
    /// The inputs as expressions see them: what need not be given may be null.
    pub(super) fn scope(&self) -> Vec<Field> {
        let optional = self.required.iter().map(|required| !required);
        let inputs = self.inputs.iter().zip(optional);
        inputs
            .map(|(input, optional)| Field { nullable: input.field.nullable || optional, ..input.field.clone() })
            .collect()
    }
}

/// By event, the shapes of its rows in order.
pub(super) type Shapes = BTreeMap<Arc<str>, Vec<RowShape>>;

pub(super) fn signature(source: &Source, declarer: &mut Declarer) -> Option<Signature> {
    let fields = declarer.record_fields(&source.fields)?;
    Some(Signature {
        name: source.lifecycle.text.clone(),
        states: source.states.iter().map(|state| state.name.text.clone()).collect(),
        fields,
        key: source.key.as_ref().map(|key| key.text.clone()),
    })
}

pub(super) fn shapes(source: &Source, signature: &Signature, declarer: &mut Declarer) -> Shapes {
    let mut found = Shapes::new();
    for event in &source.events {
        let creates = EventKind::of(&event.name.text) == EventKind::Create;
        let rows = event.rows.iter().map(|row| row_shape(row, creates, signature, declarer)).collect();
        found.insert(event.name.text.clone(), rows);
    }
    found
}

fn row_shape(row: &Row, creates: bool, signature: &Signature, declarer: &mut Declarer) -> RowShape {
    let mut shape = RowShape { inputs: Vec::new(), required: Vec::new() };
    for name in row.take.iter().flat_map(|take| &take.value) {
        let Some(slot) = slot(signature, name, declarer.out) else { continue };
        let field = &signature.fields[usize::from(slot)];
        if field.constant {
            constant(name, field, declarer.out);
            continue;
        }
        let set = row.set.iter().find(|given| given.name.text == name.text);
        if let Some(set) = set {
            declarer.out.push(
                Diagnostic::error(
                    "take-and-set",
                    name.at(),
                    format!("`{}` is both taken and set by this row", name.text),
                )
                .label("taken from the caller here")
                .also(set.name.at(), "set here")
                .help(
                    "drop one; to compute from what the caller gives, declare an `input` and `set` the field from it",
                ),
            );
        }
        if repeated(&shape, name, declarer.out) {
            continue;
        }
        shape.required.push(creates && !field.nullable && field.default.is_none());
        shape.inputs.push(Input { field: field.clone(), take: Some(slot) });
    }
    for declared in row.input.iter().flat_map(|input| &input.value) {
        if repeated(&shape, &declared.name, declarer.out) {
            continue;
        }
        let Some(field) = input_field(declared, signature, declarer) else { continue };
        shape.required.push(!field.nullable);
        shape.inputs.push(Input { field, take: None });
    }
    shape
}

/// A declaration, a type's name, or the name of a field of the record whose type and bounds it has.
fn input_field(input: &ast::Field, signature: &Signature, declarer: &mut Declarer) -> Option<Field> {
    if !input.short || TYPES.contains(&&*input.ty.text) {
        return declarer.field(input);
    }
    let Some(like) = signature.fields.iter().find(|field| field.name == input.ty.text) else {
        let known = TYPES.into_iter().chain(signature.fields.iter().map(|field| &*field.name));
        let help = declared::type_advice(declarer.out.len(), &input.ty.text, "types and fields", known);
        declarer.out.push(
            Diagnostic::error(
                "unknown-type",
                input.ty.at(),
                format!("`{}` is neither a type nor a field", input.ty.text),
            )
            .label("not known")
            .help(help),
        );
        return None;
    };
    Some(Field {
        name: input.name.text.clone(),
        nullable: false,
        default: None,
        constant: false,
        at: input.name.at(),
        ..like.clone()
    })
}

fn repeated(shape: &RowShape, name: &Text, out: &mut Vec<Diagnostic>) -> bool {
    let first = shape.inputs.iter().find(|input| input.field.name == name.text);
    if first.is_some() {
        out.push(
            Diagnostic::error("duplicate-input", name.at(), format!("`{}` is taken twice by this row", name.text))
                .label("a second time")
                .help("keep it once, in `take` or in `input`"),
        );
    }
    first.is_some()
}

/// A field of the record by name; says so where there is none.
pub(super) fn slot(signature: &Signature, name: &Text, out: &mut Vec<Diagnostic>) -> Option<Slot> {
    let found = signature.fields.iter().position(|field| field.name == name.text);
    if found.is_none() {
        let help = match &*name.text {
            "state" => "a row changes the state with `go`, as go = \"A -> B\"".to_owned(),
            own if METADATA.contains(&own) => format!("every record has `{own}`; it is not given or set like a field"),
            other => near::advice(out.len(), other, "fields", signature.fields.iter().map(|field| &*field.name)),
        };
        out.push(
            Diagnostic::error("unknown-field", name.at(), format!("{} has no field `{}`", signature.name, name.text))
                .label("not declared in [fields]")
                .help(help),
        );
    }
    found.and_then(|at| Slot::try_from(at).ok())
}

pub(super) fn constant(name: &Text, field: &Field, out: &mut Vec<Diagnostic>) {
    out.push(
        Diagnostic::error("const-changed", name.at(), format!("`{}` is const: nothing may change it", name.text))
            .label("would change it")
            .also(field.at, "declared const here")
            .help("leave it out here, or declare it with `default` in place of `const`"),
    );
}
