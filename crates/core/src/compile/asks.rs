//! `[checks]`: what is asked. A question may read the row's inputs, so it is compiled once for each row that reads its
//! answer, and must come to the same each time.

use super::lifecycle::{Builder, View};
use crate::diagnostic::{Diagnostic, Span};
use crate::expr::{Expr, Kind, Root, Want};
use crate::model::{Check, Field, Formula};
use crate::syntax::ast::Given;

/// A row that reads answers: which ones, its inputs and its place.
pub(super) struct Reads {
    pub(super) checks: Vec<u16>,
    pub(super) inputs: Vec<Field>,
    pub(super) at: Span,
}

impl Builder<'_> {
    pub(super) fn asks(&mut self, readers: &[Reads]) -> Vec<Check> {
        let source = self.source;
        let mut checks = Vec::new();
        for (index, check) in source.checks.iter().enumerate() {
            let readers: Vec<&Reads> =
                readers.iter().filter(|reader| reader.checks.iter().any(|read| usize::from(*read) == index)).collect();
            let ask =
                check.ask.iter().filter_map(|ask| Some((ask.name.text.clone(), self.ask(ask, &readers)?))).collect();
            let answer = self.checks.get(index).map_or_else(Vec::new, |(_, fields)| fields.clone());
            checks.push(Check {
                name: check.name.text.clone(),
                payload: check.payload,
                ask,
                answer,
                rules: check.rules.clone(),
                at: check.name.at(),
            });
        }
        checks
    }

    fn ask(&mut self, ask: &Given, readers: &[&Reads]) -> Option<Formula> {
        let alone = View { actor: true, now: true, lookups: true, links: true, ..View::default() };
        let text = &ask.value;
        let formula = |expr| Some(Formula { expr, text: text.text.clone() });
        let Some(first) = readers.first() else { return self.formula(text, alone, &Want::Any) };
        if let Ok(expr) = self.try_expr(&text.text, text.place, alone, &Want::Any) {
            return formula(expr);
        }
        let mut found: Option<Expr> = None;
        for reader in readers {
            let view = View { input: Some(&reader.inputs), ..alone };
            let expr = self.expr(&text.text, text.place, view, &Want::Any)?;
            let same = |one: &Expr| serde_json::to_string(&one.kind).ok() == serde_json::to_string(&expr.kind).ok();
            if found.as_ref().is_some_and(|before| !same(before)) {
                self.report(
                    Diagnostic::error(
                        "check-asks-differently",
                        text.at(),
                        format!("`{}` would not mean the same in every row", ask.name.text),
                    )
                    .label("reads the row's inputs")
                    .also(first.at, "one row that reads the answer")
                    .also(reader.at, "another, whose inputs are declared differently")
                    .help("declare the same inputs in the same order in both rows"),
                );
                return None;
            }
            found = Some(expr);
        }
        found.and_then(formula)
    }
}

/// The checks whose answers an expression reads.
pub(super) fn read(expr: &Expr, found: &mut Vec<u16>) {
    match &expr.kind {
        Kind::Const(_) => {}
        Kind::Read(path) => {
            if let Root::Answer { check, .. } = path.root
                && !found.contains(&check)
            {
                found.push(check);
            }
        }
        Kind::Not(inner) | Kind::Negate(inner) => read(inner, found),
        Kind::And(left, right) | Kind::Or(left, right) | Kind::Binary(_, left, right) => {
            read(left, found);
            read(right, found);
        }
        Kind::If(condition, yes, no) => {
            read(condition, found);
            read(yes, found);
            read(no, found);
        }
        Kind::Call(_, items) | Kind::List(items) => items.iter().for_each(|item| read(item, found)),
        Kind::Comprehension { range, body, .. } => {
            read(range, found);
            read(body, found);
        }
    }
}
