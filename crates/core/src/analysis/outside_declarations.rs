//! Finds files that use an `outside` account that only another file declares.

use super::engine_transitions::AnalyzedLifecycles;
use super::reachability::transitions_of;
use crate::diagnostic::Diagnostic;
use crate::model::{AccountRef, Lifecycle, TemplatePart};

pub(super) fn analyze(studies: &AnalyzedLifecycles, diagnostics: &mut Vec<Diagnostic>) {
    for studied in studies.values() {
        let lifecycle = studied.reachability.lifecycle;
        for (_, transition) in transitions_of(lifecycle) {
            for action in &transition.transfers {
                for account in [&action.from, &action.to] {
                    let Some(name) = literal_account_name(account) else { continue };
                    let is_declared_here = lifecycle.outside_accounts.iter().any(|outside| **outside == *name);
                    if let (false, Some(other)) = (is_declared_here, find_outside_declaration(studies, lifecycle, name))
                    {
                        diagnostics.push(
                            Diagnostic::warning(
                                "outside-elsewhere",
                                action.span,
                                format!("`{name}` may go below zero, but only `{}` declares it", other.name),
                            )
                            .label("not declared in the file of the transfer")
                            .help(format!("add `outside = [\"{name}\"]` to this file, too")),
                        );
                    }
                }
            }
        }
    }
}

fn literal_account_name(account: &AccountRef) -> Option<&str> {
    match account {
        AccountRef::Hold => None,
        AccountRef::Named(template) => match template.parts.as_slice() {
            [TemplatePart::Literal(name)] => Some(name),
            _ => None,
        },
    }
}

fn find_outside_declaration<'a>(
    studies: &'a AnalyzedLifecycles,
    lifecycle: &Lifecycle,
    account: &str,
) -> Option<&'a Lifecycle> {
    lifecycle.asset.as_ref()?;
    studies
        .values()
        .map(|studied| studied.reachability.lifecycle)
        .find(|other| other.asset == lifecycle.asset && other.outside_accounts.iter().any(|name| **name == *account))
}
