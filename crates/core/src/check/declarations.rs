//! Callers, questions and lookups that are declared and named nowhere. Links are not asked for: readers follow them too.

use super::faults::{each, each_of_row};
use super::survey::{Survey, rows};
use crate::diagnostic::{Diagnostic, Span};
use crate::expr::{Expr, Kind, Root};
use crate::model::{Access, By, Formula, Lifecycle};

pub(super) fn check(survey: &Survey, found: &mut Vec<Diagnostic>) {
    let lifecycle = survey.lifecycle;
    let named = Named::of(lifecycle);
    let mut unused = |table: &str, name: &str, at: Span, help: &str| {
        found.push(
            Diagnostic::warning("unused-declaration", at, format!("`{name}` of `[{table}]` is named nowhere"))
                .label("declared, and never used")
                .help(format!("take it away, or {help}")),
        );
    };
    for (who, _) in lifecycle.who.iter().zip(&named.who).filter(|(_, named)| !**named) {
        unused("who", &who.name, who.at, &format!("name it in a row's `by = \"{}\"`, or in `read`", who.name));
    }
    for (check, _) in lifecycle.checks.iter().zip(&named.checks).filter(|(_, named)| !**named) {
        unused("checks", &check.name, check.at, &format!("read its answer: `checks.{}.…`", check.name));
    }
    for (lookup, _) in lifecycle.lookups.iter().zip(&named.lookups).filter(|(_, named)| !**named) {
        unused("refs", &lookup.name, lookup.at, &format!("read it: `refs.{}`", lookup.name));
    }
}

/// By number: whether anything names it.
struct Named {
    who: Vec<bool>,
    checks: Vec<bool>,
    lookups: Vec<bool>,
}

impl Named {
    fn of(lifecycle: &Lifecycle) -> Self {
        let mut named = Self {
            who: vec![false; lifecycle.who.len()],
            checks: vec![false; lifecycle.checks.len()],
            lookups: vec![false; lifecycle.lookups.len()],
        };
        let by_access = lifecycle.access.iter().filter_map(|access| match access {
            Access::By(by) => Some(by),
            Access::Anyone => None,
        });
        for by in rows(lifecycle).flat_map(|(_, row)| &row.by).chain(by_access) {
            if let By::Who(who) = by
                && let Some(named) = named.who.get_mut(usize::from(*who))
            {
                *named = true;
            }
        }
        for (_, row) in rows(lifecycle) {
            each_of_row(row, &mut |expr| named.read(expr));
        }
        for formula in beside_rows(lifecycle) {
            each(&formula.expr, &mut |expr| named.read(expr));
        }
        named
    }

    fn read(&mut self, expr: &Expr) {
        let Kind::Read(path) = &expr.kind else { return };
        let named = match path.root {
            Root::Answer { check, .. } => self.checks.get_mut(usize::from(check)),
            Root::Lookup(at) => self.lookups.get_mut(usize::from(at)),
            _ => None,
        };
        if let Some(named) = named {
            *named = true;
        }
    }
}

/// Every formula that stands in no row.
fn beside_rows(lifecycle: &Lifecycle) -> impl Iterator<Item = &Formula> {
    let work = lifecycle.work.iter().flat_map(|work| work.stop.iter().chain(&work.priority));
    let asks = lifecycle.checks.iter().flat_map(|check| check.ask.iter().map(|(_, formula)| formula));
    work.chain(asks)
        .chain(lifecycle.limits.iter().map(|limit| &limit.max))
        .chain(lifecycle.lookups.iter().map(|lookup| &lookup.key))
        .chain(lifecycle.who.iter().map(|who| &who.formula))
}
