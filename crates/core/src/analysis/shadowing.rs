//! Finds transitions that are never chosen, in all or one of their states, because earlier ones always match.

use super::abstract_eval::{
    AbstractEnv, AbstractEvaluator, StateFacts, decides_before, env_when_passed_over, evaluator_for, initial_env,
    precedes,
};
use super::guard_cases::{GuardCases, fold_constants};
use super::reachability::Reachability;
use crate::diagnostic::Diagnostic;
use crate::expr::Expr;
use crate::model::{EventDef, EventKind, StateIndex, Transition};

pub(super) fn analyze(reachability: &Reachability, state_facts: &StateFacts, diagnostics: &mut Vec<Diagnostic>) {
    for event in &reachability.lifecycle.events {
        for index in 0..event.transitions.len() {
            let transition = &event.transitions[index];
            let froms: Vec<Option<StateIndex>> = match event.kind {
                EventKind::Create => vec![None],
                _ => reachability.firing_states(event, transition).into_iter().map(Some).collect(),
            };
            if froms.is_empty() {
                continue;
            }
            let outcomes: Vec<Selectability> =
                froms.iter().map(|from| selectability(reachability, state_facts, event, index, *from)).collect();
            let is_never_taken =
                |outcome: &Selectability| matches!(outcome, Selectability::Never | Selectability::GuardNeverTrue);
            let shadowed = outcomes
                .iter()
                .position(|outcome| *outcome == Selectability::Never)
                .map(|state_index| froms[state_index]);
            if let (true, Some(from)) = (outcomes.iter().all(is_never_taken), shadowed) {
                diagnostics.push(shadowed_diagnostic(reachability, event, index, from));
            } else if let Some(Some(from)) = shadowed {
                diagnostics.push(shadowed_from_diagnostic(reachability, event, index, from));
            } else if let Some(earlier) = froms.iter().find_map(|from| find_open_before(event, index, *from)) {
                diagnostics.push(ineffective_by_diagnostic(transition, earlier));
            } else if outcomes.iter().all(|outcome| *outcome != Selectability::Possible)
                && outcomes.contains(&Selectability::Unknown)
            {
                let earlier = earlier_deciding(reachability, event, index, froms[0]).next();
                let mut warning =
                    Diagnostic::warning("unproven-shadowing", transition.span, "the transition may never be chosen")
                        .label("its guard and earlier ones compare the same values")
                        .help("compare with constants, or test the opposite of the earlier guard");
                if let Some(earlier) = earlier {
                    warning = warning.related(earlier.span, "may match whenever the later transition does");
                }
                diagnostics.push(warning);
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Selectability {
    Possible,
    Never,
    /// Its own guard never holds, which `dead-transition` reports.
    GuardNeverTrue,
    Unknown,
}

fn earlier_deciding<'a>(
    reachability: &'a Reachability,
    event: &'a EventDef,
    index: usize,
    from: Option<StateIndex>,
) -> impl Iterator<Item = &'a Transition> {
    let transition = &event.transitions[index];
    event.transitions[..index].iter().filter(move |earlier| {
        let predicates = &reachability.lifecycle.caller_predicates;
        from.is_none_or(|from| earlier.from.contains(from))
            && decides_before(predicates, event.kind, earlier, transition)
    })
}

/// Finds an earlier transition without `by` and guard. Every API key that may write takes it first, so the later `by`
/// restricts nothing. Only an API key with no role but `worker` gets past it.
fn find_open_before(event: &EventDef, index: usize, from: Option<StateIndex>) -> Option<&Transition> {
    let transition = &event.transitions[index];
    event.transitions[..index].iter().find(|earlier| {
        from.is_none_or(|from| earlier.from.contains(from))
            && is_open_to_all_before(earlier, transition)
            && (earlier.when.is_none() || has_same_guard(earlier, transition))
            && precedes(event.kind, earlier, transition)
    })
}

fn has_same_guard(earlier: &Transition, transition: &Transition) -> bool {
    match (&earlier.when, &transition.when) {
        (Some(earlier), Some(later)) => earlier.text == later.text,
        _ => false,
    }
}

fn selectability(
    reachability: &Reachability,
    state_facts: &StateFacts,
    event: &EventDef,
    index: usize,
    from: Option<StateIndex>,
) -> Selectability {
    let transition = &event.transitions[index];
    if reachability.ignores_shadowing() {
        return Selectability::Possible;
    }
    let mut evaluator: AbstractEvaluator = evaluator_for(reachability, event, transition, None);
    let Some(env) =
        initial_env(state_facts, reachability.lifecycle, event, transition, from, &evaluator.input_values.clone())
    else {
        return Selectability::Possible;
    };
    let matched_alone = match &transition.when {
        Some(when) => evaluator.split_env(&when.expr, &env).0,
        None => Some(env.clone()),
    };
    if matched_alone.is_none() {
        return Selectability::GuardNeverTrue;
    }
    if earlier_deciding(reachability, event, index, from).next().is_none() {
        return Selectability::Possible;
    }
    let has_remaining_case = has_case_left(reachability, &mut evaluator, event, index, from, &env);
    reachability.spend_steps(evaluator.steps);
    if !has_remaining_case {
        return Selectability::Never;
    }
    let fold = |transition: &Transition| {
        transition.when.as_ref().map(|when| fold_constants(&when.expr, reachability.lifecycle))
    };
    let earlier: Vec<Expr> = earlier_deciding(reachability, event, index, from).filter_map(fold).collect();
    let own_guard = fold(transition);
    let guards: Vec<&Expr> = earlier.iter().chain(&own_guard).collect();
    // Inputs are numbered per transition, so cases of two guards that read inputs cannot be compared.
    if guards.iter().any(|guard| reads_input(guard)) {
        return Selectability::Possible;
    }
    let Some(cases) = GuardCases::enumerate(reachability, &guards, &env) else { return Selectability::Possible };
    let case = cases.find_case(|case| {
        own_guard.as_ref().is_none_or(|own| case.is_true(own)) && !earlier.iter().any(|guard| case.is_true(guard))
    });
    match case {
        None => Selectability::Never,
        Some(_) if own_guard.is_some() && cases.has_related_opaque_tests() => Selectability::Unknown,
        Some(_) => Selectability::Possible,
    }
}

/// Whether a case remains for the transition after the earlier ones. Its own refusals do not count.
fn has_case_left(
    reachability: &Reachability,
    evaluator: &mut AbstractEvaluator,
    event: &EventDef,
    index: usize,
    from: Option<StateIndex>,
    env: &AbstractEnv,
) -> bool {
    let mut remaining = Some(env.clone());
    for earlier in earlier_deciding(reachability, event, index, from) {
        remaining = remaining.and_then(|env| env_when_passed_over(evaluator, earlier, env));
    }
    match (&event.transitions[index].when, remaining) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(when), Some(env)) => evaluator.split_env(&when.expr, &env).0.is_some(),
    }
}

fn reads_input(expr: &Expr) -> bool {
    let mut reads = false;
    super::abstract_eval::for_each_subexpr(expr, &mut |expr| {
        if let crate::expr::ExprKind::Read(path) = &expr.kind {
            reads |= matches!(path.root, crate::expr::PathRoot::Input(_));
        }
    });
    reads
}

fn shadowed_diagnostic(
    reachability: &Reachability,
    event: &EventDef,
    index: usize,
    from: Option<StateIndex>,
) -> Diagnostic {
    let is_open = earlier_deciding(reachability, event, index, from)
        .all(|earlier| is_open_to_all_before(earlier, &event.transitions[index]));
    let help = if is_open { CLOSE_EARLIER_HELP } else { "put it before them, narrow their guards, or remove it" };
    let error =
        Diagnostic::error("shadowed-transition", event.transitions[index].span, "the transition is never chosen")
            .label("whenever it matches, an earlier transition is taken")
            .help(help);
    with_earlier_transitions(reachability, event, index, from, error)
}

/// Whether `earlier` admits every caller although `transition` restricts them.
fn is_open_to_all_before(earlier: &Transition, transition: &Transition) -> bool {
    earlier.by.is_empty() && !transition.by.is_empty()
}

const CLOSE_EARLIER_HELP: &str =
    "give the earlier transition a `by`, remove it, or move it after the later one to admit all other callers";

fn ineffective_by_diagnostic(transition: &Transition, earlier: &Transition) -> Diagnostic {
    Diagnostic::warning("shadowed-by", transition.span, "the `by` of the transition restricts nothing")
        .label("every caller that may write takes an earlier transition")
        .help(CLOSE_EARLIER_HELP)
        .related(earlier.span, "has no `by`, so it admits every caller")
}

/// The transition can be taken in other states, but not in this state of its `go`.
fn shadowed_from_diagnostic(
    reachability: &Reachability,
    event: &EventDef,
    index: usize,
    from: StateIndex,
) -> Diagnostic {
    let name = reachability.state_name(from);
    let message = format!("the transition is never chosen in `{name}`");
    let error = Diagnostic::error("shadowed-from", event.transitions[index].span, message)
        .label(format!("whenever it matches in `{name}`, an earlier transition is taken"))
        .help(format!("remove `{name}` from `go`, or put the transition before the others"));
    with_earlier_transitions(reachability, event, index, Some(from), error)
}

/// Adds the earlier transitions to the diagnostic.
fn with_earlier_transitions(
    reachability: &Reachability,
    event: &EventDef,
    index: usize,
    from: Option<StateIndex>,
    mut error: Diagnostic,
) -> Diagnostic {
    for earlier in earlier_deciding(reachability, event, index, from).take(3) {
        let note = match (&earlier.when, from) {
            (None, Some(from)) => format!("always matches in `{}`", reachability.state_name(from)),
            (None, None) => "always matches".to_owned(),
            (Some(when), _) => format!("matches if {}", when.text),
        };
        let note = if is_open_to_all_before(earlier, &event.transitions[index]) {
            format!("{note}, and admits every caller because it has no `by`")
        } else {
            note
        };
        error = error.related(earlier.span, note);
    }
    error
}
