//! Compiles the signatures of a lifecycle: its fields and the inputs of its transitions.
//!
//! Other lifecycles refer to them, so the compiler builds all signatures before any expression.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fields::{self, DeclarationCompiler, METADATA_FIELD_NAMES, TYPE_NAMES};
use crate::diagnostic::Diagnostic;
use crate::expr::LifecycleSignature;
use crate::model::{EventKind, FieldDef, FieldIndex, TransitionInput};
use crate::suggest;
use crate::syntax::ast::{self, LifecycleSource, SourceText, TransitionDecl};

/// The inputs of one transition.
#[derive(Clone, Debug)]
pub(super) struct TransitionSignature {
    pub(super) inputs: Vec<TransitionInput>,
    /// By input: whether the caller must give it.
    pub(super) required: Vec<bool>,
}

impl TransitionSignature {
    /// Returns the inputs as expressions see them. Optional inputs are nullable.
    pub(super) fn scope_fields(&self) -> Vec<FieldDef> {
        let optional = self.required.iter().map(|required| !required);
        let inputs = self.inputs.iter().zip(optional);
        inputs
            .map(|(input, optional)| FieldDef { nullable: input.field.nullable || optional, ..input.field.clone() })
            .collect()
    }
}

/// By event: the signatures of its transitions, in order.
pub(super) type SignaturesByEvent = BTreeMap<Arc<str>, Vec<TransitionSignature>>;

pub(super) fn compile_signature(
    source: &LifecycleSource,
    compiler: &mut DeclarationCompiler,
) -> Option<LifecycleSignature> {
    let fields = compiler.compile_record_fields(&source.fields)?;
    Some(LifecycleSignature {
        name: source.lifecycle.text.clone(),
        states: source.states.iter().map(|state| state.name.text.clone()).collect(),
        fields,
        natural_key: source.natural_key.as_ref().map(|key| key.text.clone()),
    })
}

pub(super) fn compile_transition_signatures(
    source: &LifecycleSource,
    signature: &LifecycleSignature,
    compiler: &mut DeclarationCompiler,
) -> SignaturesByEvent {
    let mut found = SignaturesByEvent::new();
    for event in &source.events {
        let creates = EventKind::from_name(&event.name.text) == EventKind::Create;
        let signatures = event
            .transitions
            .iter()
            .map(|transition| compile_transition_signature(transition, creates, signature, compiler))
            .collect();
        found.insert(event.name.text.clone(), signatures);
    }
    found
}

fn compile_transition_signature(
    transition: &TransitionDecl,
    creates: bool,
    signature: &LifecycleSignature,
    compiler: &mut DeclarationCompiler,
) -> TransitionSignature {
    let mut transition_signature = TransitionSignature { inputs: Vec::new(), required: Vec::new() };
    for name in transition.take.iter().flat_map(|take| &take.value) {
        let Some(slot) = resolve_field(signature, name, compiler.diagnostics) else { continue };
        let field = &signature.fields[usize::from(slot)];
        if field.is_constant {
            report_const_changed(name, field, compiler.diagnostics);
            continue;
        }
        let set = transition.set.iter().find(|given| given.name.text == name.text);
        if let Some(set) = set {
            compiler.diagnostics.push(
                Diagnostic::error(
                    "take-and-set",
                    name.span(),
                    format!("the transition both takes and sets `{}`", name.text),
                )
                .label("taken from the caller")
                .related(set.name.span(), "set by the transition")
                .help(
                    "remove one; to compute the field from a value of the caller, declare an `input` and `set` the \
                     field from it",
                ),
            );
        }
        if report_if_repeated(&transition_signature, name, compiler.diagnostics) {
            continue;
        }
        transition_signature.required.push(creates && !field.nullable && field.default.is_none());
        transition_signature.inputs.push(TransitionInput { field: field.clone(), target_field: Some(slot) });
    }
    for declared in transition.input.iter().flat_map(|input| &input.value) {
        if report_if_repeated(&transition_signature, &declared.name, compiler.diagnostics) {
            continue;
        }
        let Some(field) = compile_input_field(declared, signature, compiler) else { continue };
        transition_signature.required.push(!field.nullable);
        transition_signature.inputs.push(TransitionInput { field, target_field: None });
    }
    transition_signature
}

/// Compiles an input: a full declaration, a type name, or the name of a record field whose type and bounds it gets.
fn compile_input_field(
    input: &ast::FieldDecl,
    signature: &LifecycleSignature,
    compiler: &mut DeclarationCompiler,
) -> Option<FieldDef> {
    if !input.is_shorthand || TYPE_NAMES.contains(&&*input.ty.text) {
        return compiler.compile_field(input);
    }
    let Some(like) = signature.fields.iter().find(|field| field.name == input.ty.text) else {
        let known = TYPE_NAMES.into_iter().chain(signature.fields.iter().map(|field| &*field.name));
        let help = fields::suggest_type(compiler.diagnostics.len(), &input.ty.text, "types and fields", known);
        compiler.diagnostics.push(
            Diagnostic::error(
                "unknown-type",
                input.ty.span(),
                format!("`{}` is neither a type nor a field", input.ty.text),
            )
            .label("unknown")
            .help(help),
        );
        return None;
    };
    Some(FieldDef {
        name: input.name.text.clone(),
        nullable: false,
        default: None,
        is_constant: false,
        span: input.name.span(),
        ..like.clone()
    })
}

fn report_if_repeated(
    transition_signature: &TransitionSignature,
    name: &SourceText,
    out: &mut Vec<Diagnostic>,
) -> bool {
    let first = transition_signature.inputs.iter().find(|input| input.field.name == name.text);
    if first.is_some() {
        out.push(
            Diagnostic::error("duplicate-input", name.span(), format!("the transition takes `{}` twice", name.text))
                .label("the second time")
                .help("keep it in `take` or in `input`"),
        );
    }
    first.is_some()
}

/// Resolves a field of the record by name, and reports an unknown one.
pub(super) fn resolve_field(
    signature: &LifecycleSignature,
    name: &SourceText,
    diagnostics: &mut Vec<Diagnostic>,
) -> Option<FieldIndex> {
    let found = signature.fields.iter().position(|field| field.name == name.text);
    if found.is_none() {
        let help = match &*name.text {
            "state" => "a transition changes the state with `go`, such as go = \"A -> B\"".to_owned(),
            own if METADATA_FIELD_NAMES.contains(&own) => {
                format!("every record has `{own}`; callers and transitions cannot give or set it")
            }
            other => suggest::suggestion_text(
                diagnostics.len(),
                other,
                "fields",
                signature.fields.iter().map(|field| &*field.name),
            ),
        };
        diagnostics.push(
            Diagnostic::error("unknown-field", name.span(), format!("{} has no field `{}`", signature.name, name.text))
                .label("not declared in [fields]")
                .help(help),
        );
    }
    found.and_then(|at| FieldIndex::try_from(at).ok())
}

pub(super) fn report_const_changed(name: &SourceText, field: &FieldDef, diagnostics: &mut Vec<Diagnostic>) {
    diagnostics.push(
        Diagnostic::error("const-changed", name.span(), format!("`{}` is const and cannot change", name.text))
            .label("would change the field")
            .related(field.span, "declared const")
            .help("remove it, or declare the field with `default` instead of `const`"),
    );
}
