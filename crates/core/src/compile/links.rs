//! Compiles `[links]` and `[refs]`, which reach other records.

use super::lifecycle::{LifecycleBuilder, VisibleNames, expected_type};
use super::signature;
use crate::diagnostic::{Diagnostic, Span};
use crate::expr;
use crate::model::{DataType, LinkDef, LinkSource, RecordLookup};
use crate::syntax::ast::SourceText;

impl LifecycleBuilder<'_> {
    pub(super) fn compile_links(&mut self) -> Vec<LinkDef> {
        let source = self.source;
        let mut links = Vec::new();
        for link in &source.links {
            let from = link.from.iter().filter_map(|from| self.resolve_link_source(from)).collect();
            links.push(LinkDef {
                name: link.name.text.clone(),
                sources: from,
                max: link.max.map(|max| max.value),
                span: link.name.span(),
            });
        }
        links
    }

    fn resolve_link_source(&mut self, from: &SourceText) -> Option<LinkSource> {
        let Some((lifecycle, field)) = from.text.rsplit_once('.') else {
            self.report_invalid_link(from, "it does not name a field of another lifecycle", None);
            return None;
        };
        let named = |range: std::ops::Range<usize>| SourceText {
            text: from.text[range.clone()].into(),
            location: expr::ExprLocation { value_span: from.part_span(range), content_start: None },
        };
        if !self.declaration_compiler().require_lifecycle(&named(0..lifecycle.len())) {
            return None;
        }
        let context = self.context;
        let signature = context.signatures.get(lifecycle)?;
        let field_index =
            signature::resolve_field(signature, &named(lifecycle.len() + 1..from.text.len()), &mut self.diagnostics)?;
        let declared = &signature.fields[usize::from(field_index)];
        let target = match &declared.ty {
            DataType::List(of) => of,
            other => other,
        };
        if !matches!(target, DataType::Ref(to) if to.contains(&self.own_signature.name)) {
            self.report_invalid_link(
                from,
                &format!("the field does not refer to {}", self.own_signature.name),
                Some(declared.span),
            );
            return None;
        }
        Some(LinkSource { lifecycle: lifecycle.into(), field: field.into() })
    }

    fn report_invalid_link(&mut self, from: &SourceText, why: &str, declared: Option<Span>) {
        let mut diagnostic =
            Diagnostic::error("not-a-link", from.span(), format!("`{}` cannot be followed: {why}", from.text))
                .label("not a ref to this lifecycle")
                .help(
                    "name a `ref` or `refs` field of another lifecycle that may refer to this one, such as \
                     \"relay.submission.job\"",
                );
        if let Some(declared) = declared {
            diagnostic = diagnostic.related(declared, "declaration of the field");
        }
        self.report(diagnostic);
    }

    pub(super) fn compile_lookups(&mut self) -> Vec<RecordLookup> {
        let source = self.source;
        let mut lookups = Vec::new();
        for lookup in &source.lookups {
            if !self.declaration_compiler().require_lifecycle(&lookup.target_lifecycle) {
                continue;
            }
            let context = self.context;
            let Some(target) = context.signatures.get(&lookup.target_lifecycle.text) else { continue };
            let Some(field) =
                target.natural_key.as_ref().and_then(|key| target.fields.iter().find(|field| field.name == *key))
            else {
                self.report(
                    Diagnostic::error(
                        "no-natural-key",
                        lookup.target_lifecycle.span(),
                        format!("{} has no natural key", target.name),
                    )
                    .label("its records cannot be looked up")
                    .help("give that lifecycle a `key`, or use a `ref` field instead"),
                );
                continue;
            };
            let ty = match &field.ty {
                DataType::Enum(_) => DataType::Text,
                other => other.clone(),
            };
            let view = VisibleNames { actor: true, ..VisibleNames::default() };
            let Some(key) = self.compile_formula(&lookup.natural_key, view, &expected_type(ty, true)) else { continue };
            lookups.push(RecordLookup {
                name: lookup.name.text.clone(),
                lifecycle: target.name.clone(),
                natural_key: key,
                span: lookup.name.span(),
            });
        }
        lookups
    }
}
