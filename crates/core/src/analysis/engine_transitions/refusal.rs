//! Finds everything that may refuse a transition.

use std::collections::HashSet;

use super::super::abstract_eval::{AbstractShape, AbstractValue, TransitionEffects};
use super::{AnalyzedLifecycle, AnalyzedLifecycles};
use crate::diagnostic::{Diagnostic, Span};
use crate::expr::{Expr, ExprKind, PathRoot, PathStep, ValuePath};
use crate::model::{
    AccountRef, AllowedCaller, AllowedReader, DuplicatePolicy, EventDef, EventKind, KeyPart, Lifecycle, StateIndex,
    StateSet, TemplatePart, TransferAmount, Transition, UniqueConstraint,
};
use crate::value::Value;

#[expect(clippy::too_many_arguments, reason = "the complete context of one transition, used once")]
pub(super) fn analyze(
    analyses: &AnalyzedLifecycles,
    analyzed: &AnalyzedLifecycle,
    event: &EventDef,
    transition: &Transition,
    from: Option<StateIndex>,
    outcome: &TransitionEffects,
    (reason, cause_span): (&str, Option<Span>),
    seen: &mut HashSet<(Span, &'static str)>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let mut report = |code: &'static str, span: Span, message: String, help: String| {
        if seen.insert((span, code)) {
            let mut error = Diagnostic::error(code, span, message).label(reason).help(help);
            if let Some(caused) = cause_span {
                error = error.related(caused, "fired by the action");
            }
            diagnostics.push(error);
        }
    };
    if let Some(refuse) = transition.refuse.first() {
        let help = "no caller receives the refusal: replace the entry by a transition with that condition in `when`";
        report(
            "engine-refuse",
            refuse.condition.expr.span,
            "the transition may be refused".to_owned(),
            help.to_owned(),
        );
    }
    if let Some(require) = transition.require.first() {
        let message = "the transition requires an event of another record, which may not take it".to_owned();
        let help = "send the event with `cascade`, or add a later transition without `require`";
        report("engine-require", require.span, message, help.to_owned());
    }
    if let Some(check) =
        transition.checks.first().and_then(|index| analyzed.reachability.lifecycle.checks.get(usize::from(*index)))
    {
        let message = format!("the transition waits for the external check `{}`, which may never answer", check.name);
        report(
            "engine-check",
            transition.span,
            message,
            "read the check in a transition that a caller fires, and set a field from the answer".to_owned(),
        );
    }
    find_shortages(analyses, analyzed.reachability.lifecycle, transition, &mut report);
    let after = outcome.fields_after.as_deref().unwrap_or_default();
    let change = ConstraintChange {
        lifecycle: analyzed.reachability.lifecycle,
        transition,
        from_state: from,
        is_creation: event.kind == EventKind::Create,
        facts_after: after,
    };
    for unique in &change.lifecycle.unique_constraints {
        if change.enters_counted_set(&unique.on, unique.in_states)
            && !is_key_held_by_own_spawner(analyses, &change, unique)
        {
            let message = format!("another record may hold the unique key `{}`", unique.name);
            let help = format!(
                "do not enter `{}` in an engine transition: claim the key in a transition that a caller fires",
                unique.name
            );
            report("engine-duplicate", transition.span, message, help);
        }
    }
    for limit in &change.lifecycle.limits {
        let is_counted = limit.in_states.is_some() || change.is_creation;
        if is_counted && change.enters_counted_set(&limit.on, limit.in_states) {
            let message = format!("the limit `{}` may be full", limit.name);
            let help = match event.kind {
                EventKind::Lease => "to bound concurrent jobs, give `[work]` a `key` with a `limit`".to_owned(),
                _ => {
                    format!(
                        "do not enter the states that `{}` counts in an engine transition: enter them in a transition \
                         that a caller fires",
                        limit.name
                    )
                }
            };
            report("engine-limit", transition.span, message, help);
        }
    }
    for link in
        analyses.values().flat_map(|other| &other.reachability.lifecycle.links).filter(|link| link.max.is_some())
    {
        let comes_into_link =
            link.sources.iter().filter(|source| source.lifecycle == change.lifecycle.name).any(|source| {
                let slot = change.lifecycle.field_index(&source.field);
                slot.is_some_and(|slot| change.enters_counted_set(&[KeyPart::Field(slot)], None))
            });
        if comes_into_link {
            let message = format!("the link `{}` may be full", link.name);
            let help =
                format!("remove the `max` of `{}`, or set the ref in a transition that a caller fires", link.name);
            report("engine-limit", transition.span, message, help);
        }
    }
}

/// Reports accounts whose balance may be too low.
fn find_shortages(
    analyses: &AnalyzedLifecycles,
    lifecycle: &Lifecycle,
    transition: &Transition,
    report: &mut impl FnMut(&'static str, Span, String, String),
) {
    let is_outside_account = |account: &str| {
        analyses.values().any(|studied| {
            studied.reachability.lifecycle.asset == lifecycle.asset
                && studied.reachability.lifecycle.outside_accounts.iter().any(|name| **name == *account)
        })
    };
    for action in &transition.transfers {
        let is_zero = matches!(&action.amount, TransferAmount::Computed(formula) if matches!(formula.expr.kind, ExprKind::Const(Value::Int(0))));
        match &action.from {
            _ if is_zero => {}
            AccountRef::Hold if matches!(action.amount, TransferAmount::Rest) => {}
            AccountRef::Hold => report(
                "engine-overdraft",
                action.span,
                "the hold may have less than the amount".to_owned(),
                "transfer `amount = \"rest\"`, which is all that the hold has".to_owned(),
            ),
            AccountRef::Named(template) => {
                let is_outside = match template.parts.as_slice() {
                    [TemplatePart::Literal(name)] => is_outside_account(name),
                    _ => false,
                };
                if !is_outside {
                    report(
                        "engine-overdraft",
                        action.span,
                        format!("the account `{}` may have less than the amount", template.text),
                        "transfer the money to the `hold` in a transition that a caller fires, and transfer the `rest` \
                         of the hold in the engine transition"
                            .to_owned(),
                    );
                }
            }
        }
    }
}

struct ConstraintChange<'a> {
    lifecycle: &'a Lifecycle,
    transition: &'a Transition,
    from_state: Option<StateIndex>,
    is_creation: bool,
    facts_after: &'a [AbstractValue],
}

impl ConstraintChange<'_> {
    /// Whether the record may claim a key that it did not hold before.
    fn enters_counted_set(&self, on: &[KeyPart], in_states: Option<StateSet>) -> bool {
        let is_counted = |state: StateIndex| in_states.is_none_or(|within| within.contains(state));
        let Some(to) = self.transition.to.or(self.from_state) else { return false };
        if !is_counted(to) || on.iter().any(|part| self.is_null(*part)) {
            return false;
        }
        let was_counted = !self.is_creation && self.from_state.is_some_and(is_counted);
        !was_counted || on.iter().any(|part| self.can_change(*part))
    }

    /// A null part means no key.
    fn is_null(&self, part: KeyPart) -> bool {
        match part {
            KeyPart::Owner => false,
            KeyPart::Field(slot) => self
                .facts_after
                .get(usize::from(slot))
                .is_some_and(|value| value.may_be_null && matches!(value.shape, AbstractShape::Never)),
        }
    }

    fn can_change(&self, part: KeyPart) -> bool {
        let KeyPart::Field(slot) = part else { return false };
        let is_set =
            self.transition.set.iter().any(|(own, formula)| *own == slot && !is_own_field_read(&formula.expr, slot));
        is_set || self.transition.inputs.iter().any(|input| input.target_field == Some(slot))
    }
}

fn is_own_field_read(expr: &Expr, field_index: u16) -> bool {
    matches!(&expr.kind, ExprKind::Read(ValuePath { root: PathRoot::Record, steps, .. })
        if matches!(steps.as_slice(), [PathStep::Field { index: own, .. }] if *own == field_index))
}

/// Whether a spawn that meets `clash = "return"` can surely use the holder: it has the same owner, or everyone may read
/// it.
fn is_key_held_by_own_spawner(
    analyses: &AnalyzedLifecycles,
    change: &ConstraintChange,
    unique: &UniqueConstraint,
) -> bool {
    if !change.is_creation || unique.on_duplicate != DuplicatePolicy::ReturnExisting {
        return false;
    }
    unique.on.contains(&KeyPart::Owner)
        || change.lifecycle.allowed_readers.contains(&AllowedReader::Anyone)
        || unique
            .on
            .iter()
            .any(|part| matches!(part, KeyPart::Field(slot) if is_spawner_field(analyses, change.lifecycle, *slot)))
}

/// Returns whether the field always holds the record that spawned this one: only spawns create such records, each spawn
/// sets the field to the spawning record and keeps its owner, and no transition changes the field. Then two records with
/// equal values have the same owner.
fn is_spawner_field(analyses: &AnalyzedLifecycles, lifecycle: &Lifecycle, field_index: u16) -> bool {
    let Some(field) = lifecycle.fields.get(usize::from(field_index)) else { return false };
    let is_only_spawned =
        lifecycle.transitions(EventKind::Create).iter().all(|transition| transition.by == [AllowedCaller::Record]);
    let is_spawner_id = |expr: &Expr| matches!(&expr.kind, ExprKind::Read(ValuePath { root: PathRoot::Record, steps, .. }) if steps.is_empty() || steps[..] == [PathStep::Id]);
    let is_spawner_owner = |expr: &Expr| matches!(&expr.kind, ExprKind::Read(ValuePath { root: PathRoot::Record, steps, .. }) if steps[..] == [PathStep::Owner]);
    let is_never_changed = super::super::reachability::transitions_of(lifecycle).all(|(event, transition)| {
        event.kind == EventKind::Create
            || !(transition.set.iter().any(|(set, _)| *set == field_index)
                || transition.inputs.iter().any(|input| input.target_field == Some(field_index)))
    });
    is_only_spawned
        && is_never_changed
        && analyses.values().all(|studied| {
            super::super::reachability::transitions_of(studied.reachability.lifecycle)
                .flat_map(|(_, transition)| &transition.spawn)
                .filter(|spawn| spawn.lifecycle == lifecycle.name)
                .all(|spawn| {
                    spawn.owner.as_ref().is_none_or(|owner| is_spawner_owner(&owner.expr))
                        && spawn
                            .fields
                            .iter()
                            .any(|(name, formula)| *name == field.name && is_spawner_id(&formula.expr))
                })
        })
}
