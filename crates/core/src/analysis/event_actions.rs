//! Proves that events between records have a sender and a transition that takes them.

use std::sync::Arc;

use super::abstract_eval::event_actions;
use super::engine_transitions::{AnalyzedLifecycle, AnalyzedLifecycles, can_be_sent_by_record, ref_lifecycles};
use super::reachability::{join_with_and, transitions_of};
use crate::diagnostic::Diagnostic;
use crate::model::{AllowedCaller, Definitions, EventAction, EventKind, Lifecycle, Transition};

pub(super) fn analyze(analyses: &AnalyzedLifecycles, diagnostics: &mut Vec<Diagnostic>) {
    let sent_events: super::SentEvents =
        analyses.values().flat_map(|studied| events_sent_by(studied.reachability.lifecycle)).collect();
    for studied in analyses.values() {
        let lifecycle = studied.reachability.lifecycle;
        for event in lifecycle.events.iter().filter(|event| matches!(event.kind, EventKind::Called | EventKind::Create))
        {
            let is_for_records_only =
                event.transitions.iter().all(|transition| transition.by == [AllowedCaller::Record]);
            if is_for_records_only
                && !sent_events.contains(&(lifecycle.name.clone(), event.name.clone()))
                && let Some(transition) = event.transitions.first()
            {
                diagnostics.push(
                    Diagnostic::warning(
                        "never-sent",
                        transition.span,
                        format!("no lifecycle in the given files sends `{}` to a `{}`", event.name, lifecycle.name),
                    )
                    .label("`by` admits only other records")
                    .help(
                        "check the files together with the lifecycle that sends the event, or name another caller in \
                         `by`",
                    ),
                );
            }
        }
        find_unproven_cascades(analyses, studied, diagnostics);
        for (_, transition) in transitions_of(lifecycle) {
            let required = transition.require.len();
            for (index, cause) in event_actions(transition).enumerate() {
                find_never_taken(analyses, cause, index < required, diagnostics);
            }
        }
    }
}

/// Collects the events that lifecycles send to each other or to themselves.
pub(super) fn collect_sent_events(definitions: &Definitions) -> super::SentEvents {
    definitions.lifecycles.values().flat_map(|lifecycle| events_sent_by(lifecycle)).collect()
}

fn events_sent_by(lifecycle: &Lifecycle) -> Vec<(Arc<str>, Arc<str>)> {
    let mut sent_events = Vec::new();
    for (_, transition) in transitions_of(lifecycle) {
        sent_events.extend(event_actions(transition).flat_map(|cause| {
            ref_lifecycles(&cause.targets.expr.value_type.ty).into_iter().map(|target| (target, cause.event.clone()))
        }));
        sent_events.extend(transition.spawn.iter().map(|spawn| (spawn.lifecycle.clone(), "create".into())));
        sent_events.extend(transition.deliver.iter().map(|_| ("onceward.delivery".into(), "create".into())));
    }
    // The server may create deliveries too.
    sent_events.push(("onceward.delivery".into(), "create".into()));
    sent_events
}

fn find_never_taken(
    analyses: &AnalyzedLifecycles,
    action: &EventAction,
    required: bool,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let names = ref_lifecycles(&action.targets.expr.value_type.ty);
    let handlers: Vec<(&AnalyzedLifecycle, Vec<&Transition>)> = names
        .iter()
        .filter_map(|name| analyses.get(name))
        .map(|studied| {
            (
                studied,
                studied
                    .reachability
                    .lifecycle
                    .event(&action.event)
                    .map_or(Vec::new(), |event| event.transitions.iter().collect()),
            )
        })
        .collect();
    let can_take = |transition: &Transition| can_be_sent_by_record(transition) && inputs_match(transition, action);
    if !handlers.is_empty()
        && !handlers.iter().any(|(_, transitions)| transitions.iter().any(|transition| can_take(transition)))
    {
        let manner = if required { "required" } else { "cascaded" };
        let targets = join_with_and(names.iter().map(|name| format!("`{name}`")));
        diagnostics.push(
            Diagnostic::error(
                "never-taken",
                action.span,
                format!(
                    "`{}` is {manner}, but no transition of {targets} can take it from another record",
                    action.event
                ),
            )
            .label("no transition admits another record")
            .help("add `record` to the `by` of a transition of the target"),
        );
    }
}

/// Reports transitions that take a cascaded event only under a guard. A state without any such transition clearly
/// ignores the event; a guard makes it uncertain.
fn find_unproven_cascades(
    analyses: &AnalyzedLifecycles,
    studied: &AnalyzedLifecycle,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let lifecycle = studied.reachability.lifecycle;
    for event in lifecycle.events.iter().filter(|event| event.kind == EventKind::Called) {
        let cascades = cascades_to(analyses, lifecycle, &event.name);
        if cascades.is_empty() {
            continue;
        }
        let is_certain = |transition: &&Transition| {
            transition.when.is_none()
                && transition.require.is_empty()
                && (transition.by.is_empty() || transition.by.contains(&AllowedCaller::Record))
        };
        for transition in
            event.transitions.iter().filter(|transition| can_be_sent_by_record(transition) && !is_certain(transition))
        {
            let uncertain_states = transition.from.iter().filter(|state| {
                studied.reachability.reachable.contains(*state)
                    && !event
                        .transitions
                        .iter()
                        .filter(|transition| transition.from.contains(*state))
                        .any(|transition| is_certain(&transition))
            });
            let uncertain_states: Vec<_> = uncertain_states.collect();
            if uncertain_states.is_empty() {
                continue;
            }
            let warning = Diagnostic::warning(
                "unproven-cascade",
                transition.span,
                format!(
                    "a cascaded `{}` may not be taken in {}",
                    event.name,
                    studied.reachability.state_names(uncertain_states)
                ),
            )
            .label(
                "taken only if the guard is true and `by` admits the caller; otherwise the event is skipped without an \
                 error",
            )
            .help("if the event must always be taken, add a last transition with `by = \"record\"` and no `when`");
            diagnostics.push(
                cascades.iter().take(3).fold(warning, |warning, cause| warning.related(cause.span, "sends the event")),
            );
        }
    }
}

fn cascades_to<'a>(analyses: &'a AnalyzedLifecycles, lifecycle: &Lifecycle, event: &str) -> Vec<&'a EventAction> {
    analyses
        .values()
        .flat_map(|studied| transitions_of(studied.reachability.lifecycle))
        .flat_map(|(_, transition)| &transition.cascade)
        .filter(|cause| {
            *cause.event == *event && ref_lifecycles(&cause.targets.expr.value_type.ty).contains(&lifecycle.name)
        })
        .collect()
}

fn inputs_match(transition: &Transition, action: &EventAction) -> bool {
    action.input.iter().all(|(name, _)| transition.inputs.iter().any(|input| input.field.name == *name))
        && transition.inputs.iter().all(|input| {
            !super::abstract_eval::is_required(input, transition, false)
                || action.input.iter().any(|(name, _)| *name == input.field.name)
        })
}
