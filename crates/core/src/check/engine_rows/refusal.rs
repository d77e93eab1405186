//! Everything by which a row could be refused.

use std::collections::HashSet;

use super::super::faults::{Known, Outcome, Shape};
use super::{Studied, Studies};
use crate::diagnostic::{Diagnostic, Span};
use crate::expr::{Expr, Kind, Path, Root, Step};
use crate::model::{
    Access, AccountRef, Amount, By, Clash, Event, EventKind, KeyPart, Lifecycle, Row, StateIx, StateSet, TemplatePart,
    Unique,
};
use crate::value::Value;

#[expect(clippy::too_many_arguments, reason = "one row's whole context, used in one place")]
pub(super) fn check(
    all: &Studies,
    studied: &Studied,
    event: &Event,
    row: &Row,
    from: Option<StateIx>,
    outcome: &Outcome,
    (why, caused): (&str, Option<Span>),
    seen: &mut HashSet<(Span, &'static str)>,
    found: &mut Vec<Diagnostic>,
) {
    let mut report = |code: &'static str, at: Span, message: String, help: String| {
        if seen.insert((at, code)) {
            let mut error = Diagnostic::error(code, at, message).label(why).help(help);
            if let Some(caused) = caused {
                error = error.also(caused, "reached from here");
            }
            found.push(error);
        }
    };
    if let Some(refuse) = row.refuse.first() {
        let help = "nobody is there to be refused: turn it into a row of its own with `when`, and say where that goes";
        report("engine-refuse", refuse.condition.expr.at, "this row may be refused".to_owned(), help.to_owned());
    }
    if let Some(require) = row.require.first() {
        let message = "this row needs another record to take part, which it may not".to_owned();
        let help = "offer it with `cascade`, or add a later row without `require` that is taken otherwise";
        report("engine-require", require.at, message, help.to_owned());
    }
    if let Some(check) = row.checks.first().and_then(|at| studied.survey.lifecycle.checks.get(usize::from(*at))) {
        let message = format!("this row waits for an answer to `{}`, which may never come", check.name);
        report(
            "engine-check",
            row.at,
            message,
            "ask it in a row that somebody calls, and keep the answer in a field".to_owned(),
        );
    }
    short(all, studied.survey.lifecycle, row, &mut report);
    let after = outcome.after.as_deref().unwrap_or_default();
    let change =
        Change { lifecycle: studied.survey.lifecycle, row, from, creating: event.kind == EventKind::Create, after };
    for unique in &change.lifecycle.uniques {
        if change.comes_into(&unique.on, unique.within) && !is_held_by_its_own(all, &change, unique) {
            let message = format!("another record may have the key `{}` already", unique.name);
            let help = format!("do not come into `{}` here: claim the key in a row that somebody calls", unique.name);
            report("engine-clash", row.at, message, help);
        }
    }
    for limit in &change.lifecycle.limits {
        let counts = limit.within.is_some() || change.creating;
        if counts && change.comes_into(&limit.on, limit.within) {
            let message = format!("the limit `{}` may be full", limit.name);
            let help = match event.kind {
                EventKind::Lease => "to bound what runs at once, give `[work]` a `key` with a `limit`".to_owned(),
                _ => {
                    format!("do not come into what `{}` counts here: come in by a row that somebody calls", limit.name)
                }
            };
            report("engine-limit", row.at, message, help);
        }
    }
    for link in all.values().flat_map(|other| &other.survey.lifecycle.links).filter(|link| link.max.is_some()) {
        let into = link.from.iter().filter(|source| source.lifecycle == change.lifecycle.name).any(|source| {
            let slot = change.lifecycle.field(&source.field);
            slot.is_some_and(|slot| change.comes_into(&[KeyPart::Field(slot)], None))
        });
        if into {
            let message = format!("the link `{}` may be full", link.name);
            let help = format!("drop the `max` of `{}`, or come into it by a row that somebody calls", link.name);
            report("engine-limit", row.at, message, help);
        }
    }
}

/// Accounts that may hold too little.
fn short(all: &Studies, lifecycle: &Lifecycle, row: &Row, report: &mut impl FnMut(&'static str, Span, String, String)) {
    let outside = |account: &str| {
        all.values().any(|studied| {
            studied.survey.lifecycle.asset == lifecycle.asset
                && studied.survey.lifecycle.outside.iter().any(|name| **name == *account)
        })
    };
    for step in &row.moves {
        let zero =
            matches!(&step.amount, Amount::Formula(formula) if matches!(formula.expr.kind, Kind::Const(Value::Int(0))));
        match &step.from {
            _ if zero => {}
            AccountRef::Hold if matches!(step.amount, Amount::Rest) => {}
            AccountRef::Hold => report(
                "engine-short",
                step.at,
                "the hold may have less than this".to_owned(),
                "move `amount = \"rest\"`: it takes whatever there is".to_owned(),
            ),
            AccountRef::Named(template) => {
                let is_outside = match template.parts.as_slice() {
                    [TemplatePart::Literal(name)] => outside(name),
                    _ => false,
                };
                if !is_outside {
                    report(
                        "engine-short",
                        step.at,
                        format!("the account `{}` may have less than this", template.text),
                        "set the money aside in the `hold` when somebody calls, and move its `rest` here".to_owned(),
                    );
                }
            }
        }
    }
}

struct Change<'a> {
    lifecycle: &'a Lifecycle,
    row: &'a Row,
    from: Option<StateIx>,
    creating: bool,
    after: &'a [Known],
}

impl Change<'_> {
    /// Whether the record may come to hold a key that it did not hold before.
    fn comes_into(&self, on: &[KeyPart], within: Option<StateSet>) -> bool {
        let counted = |state: StateIx| within.is_none_or(|within| within.contains(state));
        let Some(to) = self.row.to.or(self.from) else { return false };
        if !counted(to) || on.iter().any(|part| self.is_null(*part)) {
            return false;
        }
        let was_in = !self.creating && self.from.is_some_and(counted);
        !was_in || on.iter().any(|part| self.changes(*part))
    }

    /// A null part means no key.
    fn is_null(&self, part: KeyPart) -> bool {
        match part {
            KeyPart::Owner => false,
            KeyPart::Field(slot) => {
                self.after.get(usize::from(slot)).is_some_and(|known| known.null && matches!(known.shape, Shape::Never))
            }
        }
    }

    fn changes(&self, part: KeyPart) -> bool {
        let KeyPart::Field(slot) = part else { return false };
        let set = self.row.set.iter().any(|(own, formula)| *own == slot && !is_itself(&formula.expr, slot));
        set || self.row.inputs.iter().any(|input| input.take == Some(slot))
    }
}

fn is_itself(expr: &Expr, slot: u16) -> bool {
    matches!(&expr.kind, Kind::Read(Path { root: Root::Record, steps, .. })
        if matches!(steps.as_slice(), [Step::Field { slot: own, .. }] if *own == slot))
}

/// A spawn that meets `clash = "return"` uses the holder, if that is sure to be one that may be used: of the same owner,
/// or readable by all.
fn is_held_by_its_own(all: &Studies, change: &Change, unique: &Unique) -> bool {
    if !change.creating || unique.clash != Clash::Return {
        return false;
    }
    unique.on.contains(&KeyPart::Owner)
        || change.lifecycle.access.contains(&Access::Anyone)
        || unique
            .on
            .iter()
            .any(|part| matches!(part, KeyPart::Field(slot) if is_the_spawner(all, change.lifecycle, *slot)))
}

/// Only spawns make such records, each for its own owner, and each gives itself as this field: so the same value means
/// the same spawner, and that the same owner.
fn is_the_spawner(all: &Studies, lifecycle: &Lifecycle, slot: u16) -> bool {
    let Some(field) = lifecycle.fields.get(usize::from(slot)) else { return false };
    let only_spawned = lifecycle.rows(EventKind::Create).iter().all(|row| row.by == [By::Record]);
    let itself = |expr: &Expr| matches!(&expr.kind, Kind::Read(Path { root: Root::Record, steps, .. }) if steps.is_empty() || steps[..] == [Step::Id]);
    let own = |expr: &Expr| matches!(&expr.kind, Kind::Read(Path { root: Root::Record, steps, .. }) if steps[..] == [Step::Owner]);
    let never_changed = super::super::survey::rows(lifecycle).all(|(event, row)| {
        event.kind == EventKind::Create
            || !(row.set.iter().any(|(set, _)| *set == slot) || row.inputs.iter().any(|input| input.take == Some(slot)))
    });
    only_spawned
        && never_changed
        && all.values().all(|studied| {
            super::super::survey::rows(studied.survey.lifecycle)
                .flat_map(|(_, row)| &row.spawn)
                .filter(|spawn| spawn.lifecycle == lifecycle.name)
                .all(|spawn| {
                    spawn.owner.as_ref().is_none_or(|owner| own(&owner.expr))
                        && spawn.fields.iter().any(|(name, formula)| *name == field.name && itself(&formula.expr))
                })
        })
}
