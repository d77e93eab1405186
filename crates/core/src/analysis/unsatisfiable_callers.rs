//! Finds transitions whose `by` admits no caller, alone or together with the guard.

use super::abstract_eval::{StateFacts, evaluator_for, initial_env};
use super::reachability::Reachability;
use crate::diagnostic::Diagnostic;
use crate::expr::{ActorPart, BinaryOperator, Expr, ExprKind, PathRoot, PathStep, ValuePath};
use crate::model::{AllowedCaller, EventDef, StateIndex, Transition};

pub(super) fn find_unsatisfiable_by(
    reachability: &Reachability,
    state_facts: &StateFacts,
    event: &EventDef,
    transition: &Transition,
    froms: &[Option<StateIndex>],
) -> Option<Diagnostic> {
    if transition.by.is_empty()
        || !transition.by.iter().all(|by| is_never_admitted(reachability, state_facts, event, transition, by, froms))
    {
        return None;
    }
    let mut warning = Diagnostic::warning(
        "dead-transition",
        transition.span,
        "the transition is never taken: its `by` admits no caller",
    );
    for who in transition.by.iter().filter_map(|by| caller_predicate(reachability, by)) {
        warning = warning.related(who.span, "false for every caller that could fire the transition");
    }
    let label = if transition.when.is_some() {
        "no caller is admitted when the guard is true"
    } else {
        "no caller is admitted"
    };
    Some(warning.label(label).help("correct `by`, the expression in `[who]` or the guard, or remove the transition"))
}

fn caller_predicate<'a>(
    reachability: &Reachability<'a>,
    by: &AllowedCaller,
) -> Option<&'a crate::model::CallerPredicate> {
    match by {
        AllowedCaller::Predicate(index) => reachability.lifecycle.caller_predicates.get(usize::from(*index)),
        _ => None,
    }
}

fn is_never_admitted(
    reachability: &Reachability,
    state_facts: &StateFacts,
    event: &EventDef,
    transition: &Transition,
    by: &AllowedCaller,
    froms: &[Option<StateIndex>],
) -> bool {
    let mut equalities = Vec::new();
    let predicate = caller_predicate(reachability, by);
    match (by, predicate) {
        (AllowedCaller::Owner, _) => {
            equalities.push(PathEquality { is_equal: true, left: &CALLER_ID_PATH, right: &OWNER_PATH });
        }
        (_, Some(who)) => collect_equalities(&who.condition.expr, &mut equalities),
        _ => return false,
    }
    if let Some(when) = &transition.when {
        collect_equalities(&when.expr, &mut equalities);
    }
    if equalities
        .iter()
        .enumerate()
        .any(|(index, claim)| equalities[..index].iter().any(|other| claim.contradicts(other)))
    {
        return true;
    }
    let Some(who) = predicate else { return false };
    froms.iter().all(|from| {
        let mut evaluator = evaluator_for(reachability, event, transition, None);
        evaluator.muted = 1;
        // Without facts about the state, nothing is reported.
        let Some(env) =
            initial_env(state_facts, reachability.lifecycle, event, transition, *from, &evaluator.input_values)
        else {
            return false;
        };
        let admitted = evaluator.split_env(&who.condition.expr, &env).0;
        let out = match (admitted, &transition.when) {
            (Some(env), Some(when)) => evaluator.split_env(&when.expr, &env).0.is_none(),
            (admitted, _) => admitted.is_none(),
        };
        reachability.spend_steps(evaluator.steps);
        out
    })
}

static CALLER_ID_PATH: ValuePath =
    ValuePath { root: PathRoot::Actor(ActorPart::Id), steps: Vec::new(), nullable_steps: Vec::new() };
static OWNER_PATH: std::sync::LazyLock<ValuePath> = std::sync::LazyLock::new(|| ValuePath {
    root: PathRoot::Record,
    steps: vec![PathStep::Owner],
    nullable_steps: Vec::new(),
});

/// Two paths are equal, or are not.
struct PathEquality<'a> {
    is_equal: bool,
    left: &'a ValuePath,
    right: &'a ValuePath,
}

impl PathEquality<'_> {
    fn contradicts(&self, other: &Self) -> bool {
        let is_same = self.left == other.left && self.right == other.right;
        let is_swapped = self.left == other.right && self.right == other.left;
        self.is_equal != other.is_equal && (is_same || is_swapped)
    }
}

/// Collects the equalities that must hold if the expression is true.
fn collect_equalities<'a>(expr: &'a Expr, equalities: &mut Vec<PathEquality<'a>>) {
    match &expr.kind {
        ExprKind::And(left, right) => {
            collect_equalities(left, equalities);
            collect_equalities(right, equalities);
        }
        ExprKind::Binary(operator @ (BinaryOperator::Equal | BinaryOperator::NotEqual), left, right) => {
            if let (ExprKind::Read(left), ExprKind::Read(right)) = (&left.kind, &right.kind) {
                equalities.push(PathEquality { is_equal: *operator == BinaryOperator::Equal, left, right });
            }
        }
        _ => {}
    }
}
