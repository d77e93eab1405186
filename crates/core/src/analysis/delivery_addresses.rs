//! Finds literal addresses to which no message can be delivered.

use super::reachability::Reachability;
use crate::diagnostic::Diagnostic;
use crate::expr::{Expr, ExprKind};
use crate::value::Value;

pub(super) fn analyze(reachability: &Reachability, diagnostics: &mut Vec<Diagnostic>) {
    let transitions = reachability.lifecycle.events.iter().flat_map(|event| &event.transitions);
    for deliver in transitions.flat_map(|transition| &transition.deliver) {
        for (expr, address) in literal_values(&deliver.url.expr) {
            if !is_http_url(address) {
                diagnostics.push(
                    Diagnostic::warning(
                        "undeliverable-address",
                        expr.span,
                        format!("no message can be delivered to `{address}`"),
                    )
                    .label("the delivery ends in the state `dead`")
                    .help("write a URL, such as 'https://hooks.example.com/orders'"),
                );
            }
        }
    }
}

/// Returns the texts that an expression can evaluate to, if it is a literal or chooses between literals.
fn literal_values(expr: &Expr) -> Vec<(&Expr, &str)> {
    match &expr.kind {
        ExprKind::Const(Value::Text(text)) => vec![(expr, text)],
        ExprKind::If(_, yes, no) => [literal_values(yes), literal_values(no)].concat(),
        _ => Vec::new(),
    }
}

fn is_http_url(address: &str) -> bool {
    let Some((scheme, rest)) = address.split_once("://") else { return false };
    let is_http = ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    is_http && !rest.is_empty() && !rest.starts_with(['/', '?', '#', ':'])
}
