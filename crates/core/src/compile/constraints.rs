//! Compiles `[unique]` and `[limit]`.

use super::lifecycle::{LifecycleBuilder, VisibleNames, expected_type};
use super::signature;
use crate::diagnostic::{Diagnostic, Span};
use crate::model::{CountLimit, DataType, DuplicatePolicy, FieldIndex, KeyPart, UniqueConstraint};
use crate::syntax::ast::{self, SourceText};

impl LifecycleBuilder<'_> {
    pub(super) fn compile_key_parts(&mut self, on: &[SourceText]) -> Vec<KeyPart> {
        let mut parts = Vec::new();
        for name in on {
            let part = if &*name.text == "owner" {
                Some(KeyPart::Owner)
            } else {
                signature::resolve_field(self.own_signature, name, &mut self.diagnostics).map(KeyPart::Field)
            };
            if let Some(part) = part {
                if parts.contains(&part) {
                    self.report(
                        Diagnostic::error(
                            "duplicate-key-field",
                            name.span(),
                            format!("`{}` is in the key twice", name.text),
                        )
                        .label("the second time")
                        .help("remove one of them"),
                    );
                }
                parts.push(part);
            }
        }
        parts
    }

    /// Reports a unique key, a limit or a concurrency key that lists no fields.
    pub(super) fn report_empty_key(&mut self, span: Span, message: &str) {
        self.report(
            Diagnostic::error("empty-key", span, message).label("`on` is empty").help("list the fields of the key"),
        );
    }

    pub(super) fn compile_uniques(&mut self, key: Option<FieldIndex>) -> Vec<UniqueConstraint> {
        let source = self.source;
        let mut uniques = Vec::new();
        if let (Some(slot), Some(name)) = (key, &source.natural_key) {
            uniques.push(UniqueConstraint {
                name: "key".into(),
                on: vec![KeyPart::Field(slot)],
                in_states: None,
                on_duplicate: DuplicatePolicy::Refuse { status: 409, code: "key_taken".into() },
                rules: Vec::new(),
                span: name.span(),
            });
        }
        for unique in &source.uniques {
            if &*unique.name.text == "key" {
                self.declaration_compiler().report_reserved_name(
                    &unique.name,
                    "a unique key",
                    "it belongs to the natural key",
                );
            }
            if unique.on.is_empty() {
                self.report_empty_key(unique.name.span(), "a unique key without fields would allow only one record");
            }
            let clash = match &unique.on_duplicate {
                ast::DuplicatePolicyDecl::Return => DuplicatePolicy::ReturnExisting,
                ast::DuplicatePolicyDecl::Refuse(answer) => {
                    DuplicatePolicy::Refuse { status: answer.status, code: answer.code.clone() }
                }
            };
            uniques.push(UniqueConstraint {
                name: unique.name.text.clone(),
                on: self.compile_key_parts(&unique.on),
                in_states: unique.in_states.as_ref().map(|states| self.resolve_states(states)),
                on_duplicate: clash,
                rules: unique.rules.clone(),
                span: unique.name.span(),
            });
        }
        uniques
    }

    pub(super) fn compile_limits(&mut self) -> Vec<CountLimit> {
        let source = self.source;
        let mut limits = Vec::new();
        for limit in &source.limits {
            if let (Some(within), Some(per)) = (&limit.in_states, &limit.window) {
                self.report(
                    Diagnostic::error(
                        "conflicting-keys",
                        per.span,
                        "a limit counts records in states or creations per window, not both",
                    )
                    .label("`per` counts creations")
                    .related(within.span, "`in` counts records in states")
                    .help("declare two limits"),
                );
            }
            let view = VisibleNames { actor: true, now: true, lookups: true, links: true, ..VisibleNames::default() };
            let on = self.compile_key_parts(&limit.on);
            let within = limit.in_states.as_ref().map(|states| self.resolve_states(&states.value));
            let Some(max) = self.compile_formula(&limit.max, view, &expected_type(DataType::Int, false)) else {
                continue;
            };
            limits.push(CountLimit {
                name: limit.name.text.clone(),
                on,
                in_states: within,
                window: limit.window.map(|per| per.value),
                max,
                status: limit.on_exceeded.status,
                code: limit.on_exceeded.code.clone(),
                rules: limit.rules.clone(),
                span: limit.name.span(),
            });
        }
        limits
    }
}
