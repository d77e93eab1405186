//! Compiles `[who]`, `[access]` and `by`: the callers and readers that a lifecycle allows.

use super::lifecycle::{LifecycleBuilder, VisibleNames, expected_type};
use crate::diagnostic::Diagnostic;
use crate::model::{AllowedCaller, AllowedReader, CallerPredicate, DataType};
use crate::suggest;
use crate::syntax::ast::SourceText;

impl LifecycleBuilder<'_> {
    pub(super) fn compile_callers(&mut self) -> Vec<CallerPredicate> {
        let source = self.source;
        let view = VisibleNames { actor: true, now: true, lookups: true, links: true, ..VisibleNames::default() };
        let mut callers = Vec::new();
        for who in &source.callers {
            let Some(formula) = self.compile_formula(&who.predicate, view, &expected_type(DataType::Bool, false))
            else {
                continue;
            };
            callers.push(CallerPredicate {
                name: who.name.text.clone(),
                condition: formula,
                rules: who.rules.clone(),
                span: who.name.span(),
            });
        }
        callers
    }

    pub(super) fn compile_access(&mut self) -> Vec<AllowedReader> {
        let source = self.source;
        let Some(read) = &source.allowed_readers else { return vec![AllowedReader::Caller(AllowedCaller::Owner)] };
        let mut access = Vec::new();
        for name in read {
            match &*name.text {
                "anyone" => access.push(AllowedReader::Anyone),
                _ => access
                    .extend(self.resolve_caller(name, &["owner", "operator", "anyone"]).map(AllowedReader::Caller)),
            }
        }
        access
    }

    /// Resolves a caller name: a built-in caller that `allowed` lists, or an entry of `[who]`.
    pub(super) fn resolve_caller(&mut self, name: &SourceText, allowed: &[&str]) -> Option<AllowedCaller> {
        let text: &str = &name.text;
        let built_in = match text {
            "owner" => Some(AllowedCaller::Owner),
            "operator" => Some(AllowedCaller::Operator),
            "worker" => Some(AllowedCaller::Worker),
            "record" => Some(AllowedCaller::Record),
            _ => None,
        };
        if let Some(by) = built_in
            && allowed.contains(&text)
        {
            return Some(by);
        }
        let found = self.source.callers.iter().position(|who| *who.name.text == *text);
        if found.is_none() {
            let callers = allowed.iter().copied().chain(self.source.callers.iter().map(|who| &*who.name.text));
            let help = if matches!(text, "anyone" | "everyone" | "any" | "*") && !allowed.contains(&"anyone") {
                "remove `by`: then every API key that may write is admitted".to_owned()
            } else {
                suggest::suggestion_text(self.diagnostic_count(), text, "allowed callers", callers)
            };
            self.report(
                Diagnostic::error("unknown-caller", name.span(), format!("`{text}` is not an allowed caller"))
                    .label("not allowed")
                    .help(help),
            );
        }
        found.and_then(|at| u16::try_from(at).ok()).map(AllowedCaller::Predicate)
    }
}
