//! Finds faults in transitions that callers fire: possible nulls and certain faults. The caller gets an error but
//! cannot fix the lifecycle.

use std::collections::HashSet;

use super::super::abstract_eval::{FaultFinding, analyze_transition};
use super::{AnalyzedLifecycle, describe_transition};
use crate::diagnostic::{Diagnostic, Span};
use crate::expr::FaultKind;
use crate::model::{AllowedCaller, EventKind, StateIndex};

pub(super) fn analyze(
    analyzed: &AnalyzedLifecycle,
    seen: &mut HashSet<(Span, &'static str)>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let reachability = &analyzed.reachability;
    for event in &reachability.lifecycle.events {
        if !matches!(event.kind, EventKind::Create | EventKind::Called) {
            continue;
        }
        for (index, transition) in event.transitions.iter().enumerate() {
            // Transitions only for records are analyzed with the values that the sending record gives.
            if transition.by == [AllowedCaller::Record] {
                continue;
            }
            // Without shadowing, the analysis would report false doubts.
            if reachability.ignores_shadowing() {
                return;
            }
            let froms: Vec<Option<StateIndex>> = match event.kind {
                EventKind::Create => vec![None],
                _ => reachability.firing_states(event, transition).into_iter().map(Some).collect(),
            };
            let mut faults = Vec::new();
            for from in froms {
                let mut outcome = analyze_transition(reachability, &analyzed.state_facts, event, index, from, None);
                if outcome.fields_after.is_some() {
                    faults.push(outcome.fault.take());
                }
                for finding in outcome.findings.into_iter().filter(|finding| finding.kind == FaultKind::Null) {
                    if seen.insert((finding.span, "may-be-null")) {
                        let is_creation = event.kind == EventKind::Create;
                        diagnostics.push(null_diagnostic(
                            &finding,
                            is_creation,
                            &describe_transition(reachability, event, transition),
                        ));
                    }
                }
            }
            // Only if it faults in every state; otherwise it may still be taken in one.
            if let Some((span, reason)) =
                faults.into_iter().collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().next())
                && seen.insert((span, "always-faults"))
            {
                diagnostics.push(always_faults_diagnostic(
                    span,
                    &reason,
                    &describe_transition(reachability, event, transition),
                ));
            }
        }
    }
}

fn null_diagnostic(finding: &FaultFinding, is_creation: bool, transition_text: &str) -> Diagnostic {
    let help = match &finding.path {
        Some(path) => format!(
            "test for null first: `{path} != null && …` in `when`, an entry of `refuse` with `if = \"{path} == \
             null\"`, or `{path} == null ? … : …`"
        ),
        None => "test for null first, in `when` or in an entry of `refuse`".to_owned(),
    };
    if is_creation && finding.is_certain {
        let message = finding.message.replace("may be null", "is always null");
        return Diagnostic::error("may-be-null", finding.span, format!("{message}, which makes the operation fail"))
            .label(format!("null for every call of the {transition_text}"))
            .help(format!("take the field, give it a default, or {help}"));
    }
    Diagnostic::warning("may-be-null", finding.span, format!("{}, which makes the operation fail", finding.message))
        .label(format!("the caller of the {transition_text} then gets a fault that it cannot fix"))
        .help(help)
}

fn always_faults_diagnostic(span: Span, reason: &str, transition_text: &str) -> Diagnostic {
    Diagnostic::error("always-faults", span, reason.to_owned())
        .label(format!("every call of the {transition_text} fails, so it is never taken"))
        .help("correct the value or the bounds, or remove the transition")
}
