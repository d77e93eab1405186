//! Proves that transitions that the engine fires are not refused and do not fault, since no caller would get the error.

mod callable_transitions;
mod closure;
mod refusal;
mod spawn_cycles;
mod spawns;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

pub(super) use closure::{can_be_sent_by_record, ref_lifecycles};

use super::abstract_eval::{FaultFinding, StateFacts, eval_in_state};
use super::reachability::Reachability;
use crate::diagnostic::{Diagnostic, Span};
use crate::expr::FaultKind;
use crate::model::{EventDef, EventKind, StateIndex, TimerSpec, Transition};

/// A lifecycle with the results of its analysis.
pub(super) struct AnalyzedLifecycle<'a> {
    pub(super) reachability: Reachability<'a>,
    pub(super) state_facts: StateFacts,
}

pub(super) type AnalyzedLifecycles<'a> = BTreeMap<Arc<str>, AnalyzedLifecycle<'a>>;

pub(super) fn analyze(analyses: &AnalyzedLifecycles, diagnostics: &mut Vec<Diagnostic>) {
    let mut seen = HashSet::new();
    closure::analyze(analyses, &mut seen, diagnostics);
    for analyzed in analyses.values() {
        analyze_timer_delays(analyzed, &mut seen, diagnostics);
        analyze_work_formulas(analyzed, &mut seen, diagnostics);
    }
    spawn_cycles::analyze(analyses, diagnostics);
    // After the engine's transitions, so that an error there is not repeated.
    for analyzed in analyses.values() {
        callable_transitions::analyze(analyzed, &mut seen, diagnostics);
    }
}

/// Analyzes timer delays, which are evaluated on entering a state.
fn analyze_timer_delays(
    analyzed: &AnalyzedLifecycle,
    seen: &mut HashSet<(Span, &'static str)>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    for transition in analyzed.reachability.lifecycle.transitions(EventKind::Time) {
        let Some(TimerSpec::AfterEntering(after)) = &transition.timer else { continue };
        for state in transition.from.iter().filter(|state| analyzed.reachability.reachable.contains(*state)) {
            let (mut findings, value) =
                eval_in_state(&analyzed.reachability, &analyzed.state_facts, &after.expr, state);
            if value
                .and_then(|value| value.number_range())
                .is_some_and(|(_, max_delay)| max_delay > MAX_TIMER_DELAY_MICROS)
            {
                let message = "the delay may end after the year 9999".to_owned();
                findings.push(FaultFinding {
                    kind: FaultKind::Overflow,
                    span: after.expr.span,
                    message,
                    path: None,
                    is_certain: false,
                });
            }
            let name = analyzed.reachability.state_name(state);
            report_faults(findings, &format!("evaluated whenever a record enters `{name}`"), None, seen, diagnostics);
        }
    }
}

/// Largest delay that can be added to the latest assumed `now`, the year 5000, without leaving the time range.
const MAX_TIMER_DELAY_MICROS: i128 = 4_900 * 365 * 86_400 * 1_000_000;

/// Analyzes the formulas that are evaluated while the job is ready or leased.
fn analyze_work_formulas(
    analyzed: &AnalyzedLifecycle,
    seen: &mut HashSet<(Span, &'static str)>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let Some(work) = &analyzed.reachability.lifecycle.work else { return };
    let formulas = [
        (&work.priority, analyzed.reachability.ready_states, "waits"),
        (&work.stop_condition, analyzed.reachability.leased_states, "is leased"),
    ];
    for (formula, states, when) in formulas {
        let Some(formula) = formula else { continue };
        for state in states.iter().filter(|state| analyzed.reachability.reachable.contains(*state)) {
            let (findings, _) = eval_in_state(&analyzed.reachability, &analyzed.state_facts, &formula.expr, state);
            let reason = format!(
                "the engine evaluates it while a record {when} in `{}`",
                analyzed.reachability.state_name(state)
            );
            report_faults(findings, &reason, None, seen, diagnostics);
        }
    }
}

/// Reports each possible fault as an error, once per span.
fn report_faults(
    findings: Vec<FaultFinding>,
    reason: &str,
    cause_span: Option<Span>,
    seen: &mut HashSet<(Span, &'static str)>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    for finding in findings {
        let code = fault_code(finding.kind);
        if !seen.insert((finding.span, code)) {
            continue;
        }
        let mut error =
            Diagnostic::error(code, finding.span, format!("{}, which makes the operation fail", finding.message))
                .label(reason)
                .help(fault_help(&finding));
        if let Some(caused) = cause_span {
            error = error.related(caused, "fired by the action");
        }
        diagnostics.push(error);
    }
}

const fn fault_code(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Null => "may-be-null",
        FaultKind::DivisionByZero => "may-divide-by-zero",
        FaultKind::NotANumber => "may-not-be-a-number",
        FaultKind::OutOfBounds => "may-exceed-bounds",
        FaultKind::NegativeAmount => "may-be-negative",
        // The evaluator notes no other kinds.
        _ => "may-overflow",
    }
}

fn fault_help(finding: &FaultFinding) -> String {
    match (finding.kind, &finding.path) {
        (FaultKind::Null, Some(path)) => match path.strip_prefix("record.").filter(|field| !field.contains('.')) {
            Some(field) => format!(
                "test for null first (`{path} != null && …` in `when`, or `{path} == null ? … : …`), or set `{field}` \
                 in every transition that leads to the state"
            ),
            None => format!("test for null first: `{path} != null && …` in `when`, or `{path} == null ? … : …`"),
        },
        (FaultKind::Null, None) => "test for null first".to_owned(),
        (FaultKind::Overflow, Some(path)) => {
            format!("declare `min` and `max` for `{path}`, or test it in `when`")
        }
        (FaultKind::Overflow, None) => "declare `min` and `max` for the operands, or test them in `when`".to_owned(),
        (FaultKind::DivisionByZero, _) => "test the divisor in `when`, or declare a `min` above zero for it".to_owned(),
        (FaultKind::OutOfBounds, _) => {
            "test the value in `when`, declare the same bounds for its source, or widen the bounds of the field"
                .to_owned()
        }
        (FaultKind::NegativeAmount, _) => "declare `min = 0` for the operands, or test the amount in `when`".to_owned(),
        _ => "test the operands in `when`".to_owned(),
    }
}

/// Describes a transition by its event and states.
fn describe_transition(reachability: &Reachability, event: &EventDef, transition: &Transition) -> String {
    let from = reachability.state_names(transition.from.iter());
    match (event.kind, transition.to) {
        (EventKind::Create, Some(to)) => format!("`create` transition to `{}`", reachability.state_name(to)),
        (_, Some(to)) => format!("`{}` transition from {from} to `{}`", event.name, reachability.state_name(to)),
        (_, None) => format!("`{}` transition in {from}", event.name),
    }
}

/// Returns the `commit` transitions that must be taken: for each leased state the first that surely matches.
fn final_commit_indexes(reachability: &Reachability) -> Vec<usize> {
    let transitions = reachability.lifecycle.transitions(EventKind::Commit);
    let last = |state: StateIndex| {
        let candidates =
            || transitions.iter().enumerate().filter(move |(_, transition)| transition.from.contains(state));
        let certain = candidates().find(|(_, transition)| transition.when.is_none() && transition.require.is_empty());
        certain.or_else(|| candidates().next_back()).map(|(index, _)| index)
    };
    reachability.leased_states.iter().filter_map(last).collect()
}
