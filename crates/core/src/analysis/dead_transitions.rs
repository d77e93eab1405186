//! Finds dead transitions (their guard never holds, or they always refuse) and refusals that never happen.

use super::abstract_eval::{
    AbstractEnv, AbstractEvaluator, RefusalPrediction, StateFacts, env_in_state, evaluator_for, initial_env,
    predict_refusals,
};
use super::guard_cases::{GuardCases, fold_constants};
use super::reachability::{Reachability, always_refuses_unchanged, is_literally_true};
use super::unsatisfiable_callers;
use crate::diagnostic::Diagnostic;
use crate::expr::Expr;
use crate::model::{EventDef, EventKind, StateIndex, Transition};

pub(super) fn analyze(reachability: &Reachability, state_facts: &StateFacts, diagnostics: &mut Vec<Diagnostic>) {
    for event in &reachability.lifecycle.events {
        for (index, transition) in event.transitions.iter().enumerate() {
            let froms: Vec<Option<StateIndex>> = match event.kind {
                EventKind::Create => vec![None],
                _ => reachability.firing_states(event, transition).into_iter().map(Some).collect(),
            };
            if froms.is_empty() || reachability.ignores_shadowing() {
                continue;
            }
            if froms.iter().all(|from| is_guard_never_true(reachability, state_facts, event, transition, *from)) {
                diagnostics.extend(dead_transition_diagnostic(reachability, state_facts, event, transition));
            } else if let Some(diagnostic) =
                unsatisfiable_callers::find_unsatisfiable_by(reachability, state_facts, event, transition, &froms)
            {
                diagnostics.push(diagnostic);
            } else if !transition.refuse.is_empty() {
                find_dead_refusals(reachability, state_facts, event, index, &froms, diagnostics);
            }
        }
    }
}

/// Whether the transition's guard alone never holds in this state.
pub(super) fn is_guard_never_true(
    reachability: &Reachability,
    state_facts: &StateFacts,
    event: &EventDef,
    transition: &Transition,
    from: Option<StateIndex>,
) -> bool {
    let Some(when) = &transition.when else { return false };
    let mut evaluator: AbstractEvaluator = evaluator_for(reachability, event, transition, None);
    // Without facts about the state, nothing is reported.
    let Some(env) = initial_env(state_facts, reachability.lifecycle, event, transition, from, &evaluator.input_values)
    else {
        return false;
    };
    evaluator.muted = 1;
    let holds = evaluator.split_env(&when.expr, &env).0.is_some();
    reachability.spend_steps(evaluator.steps);
    !holds || has_no_true_case(reachability, &fold_constants(&when.expr, reachability.lifecycle), &env)
}

/// Whether no case makes the guard true.
fn has_no_true_case(reachability: &Reachability, guard: &Expr, env: &AbstractEnv) -> bool {
    let cases = GuardCases::enumerate(reachability, &[guard], env);
    cases.is_some_and(|cases| cases.find_case(|case| case.is_true(guard)).is_none())
}

fn dead_transition_diagnostic(
    reachability: &Reachability,
    state_facts: &StateFacts,
    event: &EventDef,
    transition: &Transition,
) -> Option<Diagnostic> {
    let when = transition.when.as_ref()?;
    let warning = Diagnostic::warning(
        "dead-transition",
        when.expr.span,
        "the transition is never taken: its guard is never true",
    );
    let warning = if event.kind == EventKind::Create {
        warning.label("false for every new record")
    } else {
        let states = reachability.state_names(reachability.firing_states(event, transition));
        warning.label(format!("false for every record in {states}"))
    };
    let mut evaluator: AbstractEvaluator = evaluator_for(reachability, event, transition, None);
    evaluator.muted = 1;
    let is_satisfiable = reachability.firing_states(event, transition).into_iter().any(|from| {
        let env = env_in_state(reachability.lifecycle, state_facts.declared.clone(), from);
        evaluator.split_env(&when.expr, &env).0.is_some()
    });
    reachability.spend_steps(evaluator.steps);
    Some(warning.help(if is_satisfiable {
        "no transition brings a record there with such values: set or take them in one, correct the guard, or remove \
         the transition"
    } else {
        "correct the guard, or remove the transition"
    }))
}

fn find_dead_refusals(
    reachability: &Reachability,
    state_facts: &StateFacts,
    event: &EventDef,
    index: usize,
    froms: &[Option<StateIndex>],
    diagnostics: &mut Vec<Diagnostic>,
) {
    let transition = &event.transitions[index];
    let predictions: Vec<Vec<RefusalPrediction>> =
        froms.iter().map(|from| predict_refusals(reachability, state_facts, event, index, *from)).collect();
    for (number, refuse) in transition.refuse.iter().enumerate() {
        // A prediction is missing if the transition is never chosen or an earlier entry always refuses.
        let predictions_here: Vec<RefusalPrediction> =
            predictions.iter().filter_map(|outlook| outlook.get(number).copied()).collect();
        if predictions_here.is_empty() {
            return;
        }
        let span = refuse.condition.expr.span;
        if predictions_here.iter().all(|outlook| *outlook == RefusalPrediction::Always) {
            if !(is_literally_true(&refuse.condition.expr) && always_refuses_unchanged(transition)) {
                diagnostics.push(
                    Diagnostic::warning("always-refused", span, "the transition is never taken: it always refuses")
                        .label("true whenever the guard is true")
                        .help(
                            "correct the condition; if the transition is meant to refuse every call, write `if = \
                             \"true\"` and no changes",
                        ),
                );
            }
            return;
        }
        if predictions_here.iter().all(|outlook| *outlook == RefusalPrediction::Never) {
            diagnostics.push(
                Diagnostic::warning("never-refuses", span, format!("the entry never refuses with `{}`", refuse.code))
                    .label("false whenever the guard is true")
                    .help("correct the condition, or remove the entry: the case it refuses cannot occur"),
            );
        }
    }
}
