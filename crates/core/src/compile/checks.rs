//! Compiles `[checks]`, the external checks.
//!
//! An argument may read inputs of the transition. The compiler therefore compiles it once for each transition that
//! reads the answer, and requires the same result each time.

use super::lifecycle::{LifecycleBuilder, VisibleNames};
use crate::diagnostic::{Diagnostic, Span};
use crate::expr::{ExpectedType, Expr, ExprKind, PathRoot};
use crate::model::{ExternalCheck, FieldDef, Formula};
use crate::syntax::ast::NamedExpr;

/// A transition that reads check answers.
pub(super) struct CheckReader {
    pub(super) check_indexes: Vec<u16>,
    pub(super) inputs: Vec<FieldDef>,
    pub(super) span: Span,
}

impl LifecycleBuilder<'_> {
    pub(super) fn compile_checks(&mut self, readers: &[CheckReader]) -> Vec<ExternalCheck> {
        let source = self.source;
        let mut checks = Vec::new();
        for (index, check) in source.checks.iter().enumerate() {
            let readers: Vec<&CheckReader> = readers
                .iter()
                .filter(|reader| reader.check_indexes.iter().any(|read| usize::from(*read) == index))
                .collect();
            let arguments = check
                .arguments
                .iter()
                .filter_map(|ask| Some((ask.name.text.clone(), self.compile_check_argument(ask, &readers)?)))
                .collect();
            let answer = self.checks.get(index).map_or_else(Vec::new, |(_, fields)| fields.clone());
            checks.push(ExternalCheck {
                name: check.name.text.clone(),
                sends_payload: check.sends_payload,
                arguments,
                answer_fields: answer,
                rules: check.rules.clone(),
                span: check.name.span(),
            });
        }
        checks
    }

    fn compile_check_argument(&mut self, argument: &NamedExpr, readers: &[&CheckReader]) -> Option<Formula> {
        let without_input =
            VisibleNames { actor: true, now: true, lookups: true, links: true, ..VisibleNames::default() };
        let text = &argument.value;
        let formula = |expr| Some(Formula { expr, text: text.text.clone() });
        let Some(first) = readers.first() else { return self.compile_formula(text, without_input, &ExpectedType::Any) };
        if let Ok(expr) = self.try_compile_expr(&text.text, text.location, without_input, &ExpectedType::Any) {
            return formula(expr);
        }
        let mut found: Option<Expr> = None;
        for reader in readers {
            let view = VisibleNames { input: Some(&reader.inputs), ..without_input };
            let expr = self.compile_expr(&text.text, text.location, view, &ExpectedType::Any)?;
            let same = |one: &Expr| serde_json::to_string(&one.kind).ok() == serde_json::to_string(&expr.kind).ok();
            if found.as_ref().is_some_and(|before| !same(before)) {
                self.report(
                    Diagnostic::error(
                        "inconsistent-check-inputs",
                        text.span(),
                        format!("`{}` would differ between transitions", argument.name.text),
                    )
                    .label("reads the transition's inputs")
                    .related(first.span, "a transition that reads the answer")
                    .related(reader.span, "another one, which declares other inputs")
                    .help("declare the same inputs in the same order in both transitions"),
                );
                return None;
            }
            found = Some(expr);
        }
        found.and_then(formula)
    }
}

/// Adds the checks whose answers an expression reads to `found`.
pub(super) fn collect_checks(expr: &Expr, found: &mut Vec<u16>) {
    match &expr.kind {
        ExprKind::Const(_) => {}
        ExprKind::Read(path) => {
            if let PathRoot::Answer { check, .. } = path.root
                && !found.contains(&check)
            {
                found.push(check);
            }
        }
        ExprKind::Not(inner) | ExprKind::Negate(inner) => collect_checks(inner, found),
        ExprKind::And(left, right) | ExprKind::Or(left, right) | ExprKind::Binary(_, left, right) => {
            collect_checks(left, found);
            collect_checks(right, found);
        }
        ExprKind::If(condition, yes, no) => {
            collect_checks(condition, found);
            collect_checks(yes, found);
            collect_checks(no, found);
        }
        ExprKind::Call(_, items) | ExprKind::List(items) => items.iter().for_each(|item| collect_checks(item, found)),
        ExprKind::Comprehension { range, body, .. } => {
            collect_checks(range, found);
            collect_checks(body, found);
        }
    }
}
