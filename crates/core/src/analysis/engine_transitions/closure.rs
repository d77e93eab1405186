//! Collects the transitions that the engine may fire: its own events, and everything that these send, spawn or enter.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::super::abstract_eval::{AbstractValue, SentValues, TransitionEffects, analyze_transition, event_actions};
use super::{
    AnalyzedLifecycle, AnalyzedLifecycles, describe_transition, final_commit_indexes, refusal, report_faults, spawns,
};
use crate::diagnostic::{Diagnostic, Span};
use crate::model::{AllowedCaller, DataType, EventDef, EventKind, StateIndex, Transition};

/// Lifecycle, event index and transition index.
pub(super) type TransitionId = (Arc<str>, usize, usize);

/// A transition that may fire without a caller.
struct FiredTransition {
    id: TransitionId,
    /// Facts about its inputs, if another transition gives them.
    inputs: Option<Vec<AbstractValue>>,
    /// Span of the action that fires it.
    cause_span: Option<Span>,
    /// Whether it must not be refused either. All `commit` transitions but the last may be.
    must_succeed: bool,
}

/// Most senders of one transition that are analyzed separately. Beyond that, it is analyzed with any input.
const MAX_DISTINCT_CALLERS: u32 = 4;
/// Nesting limit of spawns and requires, as in `decide`.
const MAX_NESTED_SPAWNS: u32 = 16;

pub(super) fn analyze(
    analyses: &AnalyzedLifecycles,
    seen: &mut HashSet<(Span, &'static str)>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let mut visits: HashMap<(TransitionId, bool), u32> = HashMap::new();
    let mut queue: Vec<FiredTransition> = engine_fired_roots(analyses);
    let mut edges: Vec<(TransitionId, TransitionId, bool, Span)> = Vec::new();
    while let Some(mut fired) = queue.pop() {
        let visit = visits.entry((fired.id.clone(), fired.must_succeed)).or_default();
        *visit += 1;
        let is_root = fired.inputs.is_none() && fired.cause_span.is_none();
        if *visit > MAX_DISTINCT_CALLERS + 1 || (is_root && *visit > 1) {
            continue;
        }
        if *visit == MAX_DISTINCT_CALLERS + 1 {
            fired.inputs = None;
        }
        let Some(analyzed) = analyses.get(&fired.id.0) else { continue };
        let Some(event) = analyzed.reachability.lifecycle.events.get(fired.id.1) else { continue };
        let Some(transition) = event.transitions.get(fired.id.2) else { continue };
        let reason = match fired.cause_span {
            None => {
                format!(
                    "the engine fires the {}; no caller can react to a failure, so it must always succeed",
                    describe_transition(&analyzed.reachability, event, transition)
                )
            }
            Some(_) => format!(
                "the engine may fire the {} of `{}`; no caller can react to a failure, so it must always succeed",
                describe_transition(&analyzed.reachability, event, transition),
                fired.id.0
            ),
        };
        let froms: Vec<Option<StateIndex>> = match event.kind {
            EventKind::Create => vec![None],
            _ if analyzed.reachability.merges_states() => vec![transition.from.iter().next()],
            _ => analyzed.reachability.firing_states(event, transition).into_iter().map(Some).collect(),
        };
        for from in froms {
            let outcome = analyze_transition(
                &analyzed.reachability,
                &analyzed.state_facts,
                event,
                fired.id.2,
                from,
                fired.inputs.as_deref(),
            );
            if fired.must_succeed && outcome.fields_after.is_some() {
                refusal::analyze(
                    analyses,
                    analyzed,
                    event,
                    transition,
                    from,
                    &outcome,
                    (&reason, fired.cause_span),
                    seen,
                    diagnostics,
                );
                follow_actions(analyses, &fired, transition, &outcome, &mut queue, &mut edges, seen, diagnostics);
                add_enter_edges(analyzed, &fired, transition, &mut edges);
            }
            report_faults(outcome.findings, &reason, fired.cause_span, seen, diagnostics);
        }
    }
    find_endless_nesting(&edges, diagnostics);
}

fn engine_fired_roots(analyses: &AnalyzedLifecycles) -> Vec<FiredTransition> {
    let mut roots = Vec::new();
    for (name, analyzed) in analyses {
        for (number, event) in analyzed.reachability.lifecycle.events.iter().enumerate() {
            let final_commits =
                if event.kind == EventKind::Commit { final_commit_indexes(&analyzed.reachability) } else { Vec::new() };
            for index in 0..event.transitions.len() {
                let must_succeed = match event.kind {
                    EventKind::Create | EventKind::Called => continue,
                    EventKind::Commit => final_commits.contains(&index),
                    _ => true,
                };
                roots.push(FiredTransition {
                    id: (name.clone(), number, index),
                    inputs: None,
                    cause_span: None,
                    must_succeed,
                });
            }
        }
    }
    roots
}

/// Follows the actions of a transition.
#[expect(clippy::too_many_arguments, reason = "the complete state of the walk, used once")]
fn follow_actions(
    analyses: &AnalyzedLifecycles,
    fired: &FiredTransition,
    transition: &Transition,
    outcome: &TransitionEffects,
    queue: &mut Vec<FiredTransition>,
    edges: &mut Vec<(TransitionId, TransitionId, bool, Span)>,
    seen: &mut HashSet<(Span, &'static str)>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let mut push = |which: TransitionId, inputs: Vec<AbstractValue>, is_nested: bool, span: Span| {
        edges.push((fired.id.clone(), which.clone(), is_nested, span));
        queue.push(FiredTransition { id: which, inputs: Some(inputs), cause_span: Some(span), must_succeed: true });
    };
    let creation_transitions = |sent_values: &SentValues,
                                lifecycle: &str,
                                span: Span,
                                diagnostics: &mut Vec<Diagnostic>,
                                seen: &mut HashSet<_>| {
        let Some(target) = analyses.get(lifecycle) else { return Vec::new() };
        let matching = spawns::transitions_taking(target, sent_values);
        if let Some(reason) = matching.uncertainty
            && seen.insert((span, "engine-spawn"))
        {
            diagnostics.push(
                Diagnostic::error(
                    "engine-spawn",
                    span,
                    format!("the creation of the `{lifecycle}` may fail, and then the whole operation is rolled back"),
                )
                .label(reason)
                .help(format!(
                    "give values that a `create` transition of `{lifecycle}` always accepts, or add such a transition"
                )),
            );
        }
        matching.transitions
    };
    for (index, sent_values) in &outcome.spawned_values {
        let spawn = &transition.spawn[*index];
        for (number, inputs) in creation_transitions(sent_values, &spawn.lifecycle, spawn.span, diagnostics, seen) {
            if let Some(event) = event_index(analyses, &spawn.lifecycle, "create") {
                push((spawn.lifecycle.clone(), event, number), inputs, true, spawn.span);
            }
        }
    }
    for (index, to, bytes) in &outcome.deliveries {
        let deliver = &transition.deliver[*index];
        let max_bytes = analyses
            .get("onceward.delivery")
            .map_or(u64::MAX, |delivery| delivery.reachability.lifecycle.payload_bounds.max_bytes);
        if *bytes > max_bytes && seen.insert((deliver.span, "deliver-too-large")) {
            diagnostics.push(
                Diagnostic::error(
                    "deliver-too-large",
                    deliver.span,
                    "the delivery may be too large, which makes the operation fail",
                )
                .label(format!("its body may have {bytes} bytes as JSON, but at most {max_bytes} are allowed"))
                .help("send less, or give its texts a smaller `max` (a character may take six bytes)"),
            );
        }
        let source = AbstractValue::non_null(super::super::abstract_eval::AbstractShape::Text {
            size: (36, 36),
            allowed_values: None,
            pattern: None,
        });
        let sent_values: SentValues = vec![("to".into(), to.clone()), ("source".into(), source)];
        let name: Arc<str> = "onceward.delivery".into();
        for (number, inputs) in creation_transitions(&sent_values, &name, deliver.span, diagnostics, seen) {
            if let Some(event) = event_index(analyses, &name, "create") {
                push((name.clone(), event, number), inputs, true, deliver.span);
            }
        }
    }
    let requires = transition.require.len();
    for (index, sent_values) in &outcome.event_values {
        let Some(action) = event_actions(transition).nth(*index) else { continue };
        for name in ref_lifecycles(&action.targets.expr.value_type.ty) {
            let (Some(target), Some(number)) = (analyses.get(&name), event_index(analyses, &name, &action.event))
            else {
                continue;
            };
            let event = &target.reachability.lifecycle.events[number];
            for (row_number, transition) in event.transitions.iter().enumerate() {
                if let Some(inputs) = spawns::match_inputs(transition, sent_values, false)
                    .map(|fit| fit.inputs)
                    .filter(|_| can_be_sent_by_record(transition))
                {
                    push((name.clone(), number, row_number), inputs, *index < requires, action.span);
                }
            }
        }
    }
}

/// Adds the `enter` transitions of the state that the transition enters.
fn add_enter_edges(
    analyzed: &AnalyzedLifecycle,
    fired: &FiredTransition,
    transition: &Transition,
    edges: &mut Vec<(TransitionId, TransitionId, bool, Span)>,
) {
    let Some(to) = transition.to else { return };
    let lifecycle = analyzed.reachability.lifecycle;
    let Some(number) = lifecycle.events.iter().position(|event| event.kind == EventKind::Enter) else { return };
    for (index, enter) in
        lifecycle.events[number].transitions.iter().enumerate().filter(|(_, enter)| enter.from.contains(to))
    {
        edges.push((fired.id.clone(), (fired.id.0.clone(), number, index), false, enter.span));
    }
}

/// Returns the lifecycles that an event action may target.
pub(crate) fn ref_lifecycles(ty: &DataType) -> Vec<Arc<str>> {
    match ty {
        DataType::Ref(names) => names.to_vec(),
        DataType::List(element) => ref_lifecycles(element),
        _ => Vec::new(),
    }
}

/// Whether another record may send the event. It carries no token, so a transition only for workers never takes it.
pub(crate) fn can_be_sent_by_record(transition: &Transition) -> bool {
    transition.by.is_empty() || transition.by.iter().any(|by| *by != AllowedCaller::Worker)
}

pub(super) fn event_index(analyses: &AnalyzedLifecycles, lifecycle: &str, event: &str) -> Option<usize> {
    let events: &[EventDef] = &analyses.get(lifecycle)?.reachability.lifecycle.events;
    events.iter().position(|own| *own.name == *event)
}

/// Reports spawns and requires that nest endlessly or beyond the limit, which `decide` refuses.
fn find_endless_nesting(edges: &[(TransitionId, TransitionId, bool, Span)], diagnostics: &mut Vec<Diagnostic>) {
    let mut nesting_depth: HashMap<&TransitionId, u32> = HashMap::new();
    // Depths only grow, and beyond the limit they are reported, so the loop ends.
    loop {
        let mut has_changed = false;
        for (from, to, is_nested, span) in edges {
            let nesting = nesting_depth.get(from).copied().unwrap_or(0) + u32::from(*is_nested);
            if nesting > MAX_NESTED_SPAWNS {
                diagnostics.push(
                    Diagnostic::error(
                        "endless-spawn",
                        *span,
                        format!("records spawn or require one another more than {MAX_NESTED_SPAWNS} levels deep"),
                    )
                    .label("leads back to itself, or nests too deeply")
                    .help("break the cycle: let a timer or a caller create the next record"),
                );
                return;
            }
            let deepest = nesting_depth.entry(to).or_insert(0);
            if nesting > *deepest {
                *deepest = nesting;
                has_changed = true;
            }
        }
        if !has_changed {
            return;
        }
    }
}
