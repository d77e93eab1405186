//! Finds transitions that spawn or require records endlessly. No guard and no `if` breaks the cycle, so none of them
//! can ever be taken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::abstract_eval::is_required;
use super::closure::{TransitionId, can_be_sent_by_record, event_index, ref_lifecycles};
use super::{AnalyzedLifecycle, AnalyzedLifecycles};
use crate::diagnostic::{Diagnostic, Span};
use crate::model::{DataType, DuplicatePolicy, EventKind, Transition};

/// A spawn or require that always happens: one of these transitions must be taken.
struct TransitionDependency {
    span: Span,
    /// In the terms of the file.
    description: String,
    candidates: Vec<TransitionId>,
}

pub(super) fn analyze(analyses: &AnalyzedLifecycles, diagnostics: &mut Vec<Diagnostic>) {
    let dependencies = collect_dependencies(analyses);
    let mut unsatisfiable: BTreeSet<&TransitionId> = dependencies.keys().collect();
    // A transition is unsatisfiable if all candidates of one of its dependencies are. Each round removes one, or the
    // loop ends.
    loop {
        let old_len = unsatisfiable.len();
        let is_unsatisfiable =
            |need: &TransitionDependency| need.candidates.iter().all(|which| unsatisfiable.contains(which));
        let remaining = dependencies
            .iter()
            .filter(|(which, needs)| unsatisfiable.contains(which) && needs.iter().any(is_unsatisfiable));
        unsatisfiable = remaining.map(|(which, _)| which).collect();
        if unsatisfiable.len() == old_len {
            break;
        }
    }
    let next_in_cycle = |id: &TransitionId| {
        let need = dependencies
            .get(id)?
            .iter()
            .find(|need| need.candidates.iter().all(|which| unsatisfiable.contains(which)))?;
        Some((need, need.candidates.first()?))
    };
    let mut visited: BTreeSet<TransitionId> = BTreeSet::new();
    for start in &unsatisfiable {
        let mut path: Vec<(TransitionId, &TransitionDependency)> = Vec::new();
        let mut current = (*start).clone();
        while visited.insert(current.clone()) {
            let Some((need, to)) = next_in_cycle(&current) else { break };
            path.push((current, need));
            current = to.clone();
        }
        if let Some(first) = path.iter().position(|(which, _)| *which == current) {
            let cycle: Vec<&TransitionDependency> = path[first..].iter().map(|(_, need)| *need).collect();
            // The analysis of the engine's transitions may have reported it already.
            if !diagnostics
                .iter()
                .any(|old| old.code == "endless-spawn" && cycle.iter().any(|need| need.span == old.span))
            {
                diagnostics.extend(cycle_diagnostic(&cycle));
            }
        }
    }
}

fn cycle_diagnostic(cycle: &[&TransitionDependency]) -> Option<Diagnostic> {
    let (first, others) = cycle.split_first()?;
    let label =
        if others.is_empty() { "and so on without end" } else { "which leads back to the transition, without end" };
    let message = "the transition can never be taken: it leads back to itself without end";
    let error = Diagnostic::error("endless-spawn", first.span, message)
        .label(format!("{}, {label}", first.description))
        .help("break the cycle: add an `if` that becomes false, or let a timer or a caller create the next record");
    Some(others.iter().take(4).fold(error, |error, need| error.related(need.span, need.description.clone())))
}

fn collect_dependencies(analyses: &AnalyzedLifecycles) -> BTreeMap<TransitionId, Vec<TransitionDependency>> {
    let mut dependencies = BTreeMap::new();
    for (name, analyzed) in analyses {
        for (number, event) in analyzed.reachability.lifecycle.events.iter().enumerate() {
            for (index, transition) in event.transitions.iter().enumerate() {
                let own_dependencies: Vec<TransitionDependency> = spawn_dependencies(analyses, transition)
                    .into_iter()
                    .chain(require_dependencies(analyses, transition))
                    .collect();
                if !own_dependencies.is_empty() {
                    dependencies.insert((name.clone(), number, index), own_dependencies);
                }
            }
        }
    }
    dependencies
}

fn spawn_dependencies(analyses: &AnalyzedLifecycles, transition: &Transition) -> Vec<TransitionDependency> {
    let unconditional = transition.spawn.iter().filter(|spawn| spawn.condition.is_none());
    unconditional
        .filter_map(|spawn| {
            let target = analyses.get(&spawn.lifecycle)?;
            // If an existing record is used instead, nothing is spawned.
            if target
                .reachability
                .lifecycle
                .unique_constraints
                .iter()
                .any(|unique| unique.on_duplicate == DuplicatePolicy::ReturnExisting)
            {
                return None;
            }
            let names: Vec<&str> = spawn.fields.iter().map(|(name, _)| &**name).collect();
            build_dependency(
                analyses,
                target,
                &spawn.lifecycle,
                "create",
                &names,
                spawn.span,
                format!("spawns `{}`", spawn.lifecycle),
            )
        })
        .collect()
}

fn require_dependencies(analyses: &AnalyzedLifecycles, transition: &Transition) -> Vec<TransitionDependency> {
    let unconditional =
        transition.require.iter().filter(|cause| cause.condition.is_none() && !cause.targets.expr.value_type.nullable);
    unconditional
        .filter_map(|cause| {
            // A list may be empty.
            let DataType::Ref(_) = &cause.targets.expr.value_type.ty else { return None };
            let names: Vec<&str> = cause.input.iter().map(|(name, _)| &**name).collect();
            let description = format!("requires `{}` of another record", cause.event);
            let mut dependency =
                TransitionDependency { span: cause.span, description: description.clone(), candidates: Vec::new() };
            for name in ref_lifecycles(&cause.targets.expr.value_type.ty) {
                let target_dependency = build_dependency(
                    analyses,
                    analyses.get(&name)?,
                    &name,
                    &cause.event,
                    &names,
                    cause.span,
                    description.clone(),
                )?;
                dependency.candidates.extend(target_dependency.candidates);
            }
            Some(dependency).filter(|whole| !whole.candidates.is_empty())
        })
        .collect()
}

/// Returns the transitions of a lifecycle that could take an event with inputs of these names. Returns `None` if none
/// could, which another diagnostic reports.
fn build_dependency(
    analyses: &AnalyzedLifecycles,
    target: &AnalyzedLifecycle,
    lifecycle: &Arc<str>,
    event: &str,
    names: &[&str],
    span: Span,
    description: String,
) -> Option<TransitionDependency> {
    let event_index = event_index(analyses, lifecycle, event)?;
    let event = &target.reachability.lifecycle.events[event_index];
    let is_creation = event.kind == EventKind::Create;
    let is_candidate = |transition: &Transition| {
        can_be_sent_by_record(transition)
            && names.iter().all(|name| transition.inputs.iter().any(|input| *input.field.name == **name))
            && transition
                .inputs
                .iter()
                .all(|input| !is_required(input, transition, is_creation) || names.contains(&&*input.field.name))
    };
    let transitions = event.transitions.iter().enumerate().filter(|(_, transition)| is_candidate(transition));
    let any_of: Vec<TransitionId> = transitions.map(|(index, _)| (lifecycle.clone(), event_index, index)).collect();
    (!any_of.is_empty()).then_some(TransitionDependency { span, description, candidates: any_of })
}
