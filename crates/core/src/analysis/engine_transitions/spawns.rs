//! Whether a spawned record is surely created, and by which transitions.

use super::super::abstract_eval::{
    AbstractEnv, AbstractValue, SentValues, evaluator_for, find_misfit, initial_env, is_required,
};
use super::AnalyzedLifecycle;
use crate::model::{AllowedCaller, EventKind, Transition};

/// The transitions that may take what is sent.
#[derive(Default)]
pub(super) struct MatchingTransitions {
    /// With the facts about their inputs.
    pub(super) transitions: Vec<(usize, Vec<AbstractValue>)>,
    /// Why possibly none does.
    pub(super) uncertainty: Option<String>,
}

/// Sent values as the inputs of a transition.
pub(super) struct InputMatch {
    pub(super) inputs: Vec<AbstractValue>,
    /// Why they may not fit after all.
    pub(super) uncertainty: Option<String>,
}

/// Tries the `create` transitions in order, as `decide` does.
pub(super) fn transitions_taking(target: &AnalyzedLifecycle, sent_values: &SentValues) -> MatchingTransitions {
    let mut matching = MatchingTransitions::default();
    let mut reason = None;
    let lifecycle = target.reachability.lifecycle;
    let Some(event) = lifecycle.events.iter().find(|event| event.kind == EventKind::Create) else {
        matching.uncertainty = Some(format!("`{}` has no `create` transition", lifecycle.name));
        return matching;
    };
    for (index, transition) in event.transitions.iter().enumerate() {
        if !super::closure::can_be_sent_by_record(transition) {
            continue;
        }
        let Some(input_match) = match_inputs(transition, sent_values, true) else {
            reason.get_or_insert_with(|| mismatch_reason(transition, sent_values));
            continue;
        };
        let mut evaluator = evaluator_for(&target.reachability, event, transition, Some(&input_match.inputs));
        let env = initial_env(&target.state_facts, lifecycle, event, transition, None, &input_match.inputs);
        // Whether earlier transitions match is ignored: each may be the one taken.
        let Some((matched, unmatched)) = env.map(|env| guard_outcomes(&mut evaluator, transition, &env)) else {
            continue;
        };
        target.reachability.spend_steps(evaluator.steps);
        if !matched {
            continue;
        }
        matching.transitions.push((index, input_match.inputs));
        let is_admitted = transition.by.is_empty() || transition.by.contains(&AllowedCaller::Record);
        match input_match.uncertainty {
            None if is_admitted && !unmatched && transition.require.is_empty() => return matching,
            None if !is_admitted => {
                reason.get_or_insert_with(|| "the `by` of its `create` transition does not admit `record`".to_owned())
            }
            None => reason.get_or_insert_with(|| "no `create` transition is certain to match".to_owned()),
            Some(uncertainty) => reason.get_or_insert(uncertainty),
        };
    }
    matching.uncertainty =
        Some(reason.unwrap_or_else(|| format!("no `create` transition of `{}` accepts it", lifecycle.name)));
    matching
}

/// Whether the guard may hold, and whether it may not.
fn guard_outcomes(
    evaluator: &mut super::super::abstract_eval::AbstractEvaluator,
    transition: &Transition,
    env: &AbstractEnv,
) -> (bool, bool) {
    match &transition.when {
        Some(when) => {
            let (yes, no) = evaluator.split_env(&when.expr, env);
            (yes.is_some(), no.is_some())
        }
        None => (true, false),
    }
}

/// Returns `None` if the transition surely does not take the values.
pub(super) fn match_inputs(transition: &Transition, sent_values: &SentValues, is_creation: bool) -> Option<InputMatch> {
    let is_known_input = |name: &str| transition.inputs.iter().any(|input| *input.field.name == *name);
    if sent_values.iter().any(|(name, _)| !is_known_input(name)) {
        return None;
    }
    let mut input_match = InputMatch { inputs: Vec::new(), uncertainty: None };
    for input in &transition.inputs {
        let field = &input.field;
        match sent_values.iter().find(|(name, _)| *name == field.name) {
            Some((name, value)) => {
                let declared_value = AbstractValue::of_type(&field.ty, &field.bounds, field.nullable);
                let fitting = value.meet(&declared_value);
                if fitting.is_empty() && !value.is_empty() {
                    return None;
                }
                if let Some(reason) = find_misfit(value, &field.ty, &field.bounds, field.nullable) {
                    input_match.uncertainty.get_or_insert_with(|| format!("`{name}` {reason}"));
                }
                input_match.inputs.push(fitting);
            }
            None if is_required(input, transition, is_creation) => return None,
            None => input_match.inputs.push(match (&input.target_field, &field.default) {
                (None, Some(default)) => AbstractValue::of_value(default),
                _ => AbstractValue::only_null(),
            }),
        }
    }
    Some(input_match)
}

fn mismatch_reason(transition: &Transition, sent_values: &SentValues) -> String {
    let unknown = sent_values.iter().find(|(name, _)| !transition.inputs.iter().any(|input| input.field.name == *name));
    if let Some((name, _)) = unknown {
        return format!("its `create` transition does not accept `{name}`");
    }
    let missing = transition.inputs.iter().find(|input| {
        is_required(input, transition, true) && !sent_values.iter().any(|(name, _)| *name == input.field.name)
    });
    match missing {
        Some(input) => format!("`{}` is missing", input.field.name),
        None => "a value never fits its `create` transition".to_owned(),
    }
}
