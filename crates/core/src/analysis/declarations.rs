//! Finds caller predicates, checks and lookups that are declared but not used. Links are exempt, since readers follow
//! them too.

use super::abstract_eval::{for_each_subexpr, for_each_transition_expr};
use super::reachability::{Reachability, transitions_of};
use crate::diagnostic::{Diagnostic, Span};
use crate::expr::{Expr, ExprKind, PathRoot};
use crate::model::{AllowedCaller, AllowedReader, Formula, Lifecycle};

pub(super) fn analyze(reachability: &Reachability, diagnostics: &mut Vec<Diagnostic>) {
    let lifecycle = reachability.lifecycle;
    let references = DeclarationReferences::collect(lifecycle);
    let mut unused = |table: &str, name: &str, at: Span, help: &str| {
        diagnostics.push(
            Diagnostic::warning("unused-declaration", at, format!("`{name}` of `[{table}]` is never used"))
                .label("declared but never used")
                .help(format!("remove it, or {help}")),
        );
    };
    for (who, _) in lifecycle.caller_predicates.iter().zip(&references.who).filter(|(_, named)| !**named) {
        unused("who", &who.name, who.span, &format!("name it in a transition's `by = \"{}\"`, or in `read`", who.name));
    }
    for (check, _) in lifecycle.checks.iter().zip(&references.checks).filter(|(_, named)| !**named) {
        unused("checks", &check.name, check.span, &format!("read its answer: `checks.{}.…`", check.name));
    }
    for (lookup, _) in lifecycle.lookups.iter().zip(&references.lookups).filter(|(_, named)| !**named) {
        unused("refs", &lookup.name, lookup.span, &format!("read it: `refs.{}`", lookup.name));
    }
}

/// By index: whether anything uses it.
struct DeclarationReferences {
    who: Vec<bool>,
    checks: Vec<bool>,
    lookups: Vec<bool>,
}

impl DeclarationReferences {
    fn collect(lifecycle: &Lifecycle) -> Self {
        let mut references = Self {
            who: vec![false; lifecycle.caller_predicates.len()],
            checks: vec![false; lifecycle.checks.len()],
            lookups: vec![false; lifecycle.lookups.len()],
        };
        let by_access = lifecycle.allowed_readers.iter().filter_map(|access| match access {
            AllowedReader::Caller(by) => Some(by),
            AllowedReader::Anyone => None,
        });
        for by in transitions_of(lifecycle).flat_map(|(_, transition)| &transition.by).chain(by_access) {
            if let AllowedCaller::Predicate(who) = by
                && let Some(named) = references.who.get_mut(usize::from(*who))
            {
                *named = true;
            }
        }
        for (_, transition) in transitions_of(lifecycle) {
            for_each_transition_expr(transition, &mut |expr| references.mark_read(expr));
        }
        for formula in non_transition_formulas(lifecycle) {
            for_each_subexpr(&formula.expr, &mut |expr| references.mark_read(expr));
        }
        references
    }

    fn mark_read(&mut self, expr: &Expr) {
        let ExprKind::Read(path) = &expr.kind else { return };
        let flag = match path.root {
            PathRoot::Answer { check, .. } => self.checks.get_mut(usize::from(check)),
            PathRoot::Lookup(at) => self.lookups.get_mut(usize::from(at)),
            _ => None,
        };
        if let Some(named) = flag {
            *named = true;
        }
    }
}

/// Returns every formula outside of transitions.
fn non_transition_formulas(lifecycle: &Lifecycle) -> impl Iterator<Item = &Formula> {
    let work = lifecycle.work.iter().flat_map(|work| work.stop_condition.iter().chain(&work.priority));
    let check_arguments = lifecycle.checks.iter().flat_map(|check| check.arguments.iter().map(|(_, formula)| formula));
    work.chain(check_arguments)
        .chain(lifecycle.limits.iter().map(|limit| &limit.max))
        .chain(lifecycle.lookups.iter().map(|lookup| &lookup.natural_key))
        .chain(lifecycle.caller_predicates.iter().map(|who| &who.condition))
}
