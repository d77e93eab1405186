//! Finds money that is left in a hold, the private account of one record: a record that may enter a final state with
//! money in its hold (IMG-13, REL-18), or money that no transition ever transfers out. The analysis propagates one bit
//! per state, filled or empty, and ignores guards. Sound, because only the record's own transfers change its hold, and
//! only a transfer of the `rest` surely empties it.

use super::abstract_eval::for_each_subexpr;
use super::reachability::{Reachability, indexed_states, transitions_of};
use crate::diagnostic::Diagnostic;
use crate::expr::{Expr, ExprKind, PathRoot, PathStep};
use crate::model::{AccountRef, EventKind, StateIndex, StateSet, TransferAction, TransferAmount, Transition};
use crate::value::Value;

/// How a hold came to be filled in a state: the last transition, and the state before it.
#[derive(Clone, Copy)]
struct HoldPath<'a> {
    event: &'a str,
    from: Option<StateIndex>,
}

pub(super) fn analyze(reachability: &Reachability, diagnostics: &mut Vec<Diagnostic>) {
    let lifecycle = reachability.lifecycle;
    let states = lifecycle.states.len();
    let mut filled: Vec<Option<HoldPath>> = vec![None; states];
    // After a committed internal transition only `finish` changes the state, so a hold that the commit emptied stays
    // empty.
    let mut committed: Vec<Option<HoldPath>> = vec![None; states];
    // Each round fills a state or ends.
    loop {
        let mut has_changed = false;
        for event in &lifecycle.events {
            for transition in &event.transitions {
                for (from, to) in state_changes(reachability, event.kind, transition) {
                    let table = if event.kind == EventKind::Finish { &committed } else { &filled };
                    let was_filled = from.is_some_and(|from| table[usize::from(from)].is_some());
                    // Final states are checked below; nothing continues from them.
                    let is_final = lifecycle.states[usize::from(to)].is_final;
                    let is_staying_commit = event.kind == EventKind::Commit && transition.to.is_none();
                    if is_staying_commit
                        && committed[usize::from(to)].is_none()
                        && is_hold_filled(&transition.transfers, was_filled)
                    {
                        committed[usize::from(to)] = Some(HoldPath { event: &event.name, from });
                        has_changed = true;
                        break;
                    }
                    if !is_final
                        && filled[usize::from(to)].is_none()
                        && is_hold_filled(&transition.transfers, was_filled)
                    {
                        filled[usize::from(to)] = Some(HoldPath { event: &event.name, from });
                        has_changed = true;
                    }
                }
            }
        }
        if !has_changed {
            break;
        }
    }
    for event in &lifecycle.events {
        for transition in &event.transitions {
            let filled_into_final =
                state_changes(reachability, event.kind, transition).into_iter().find(|(from, to)| {
                    let table = if event.kind == EventKind::Finish { &committed } else { &filled };
                    let before = from.is_some_and(|from| table[usize::from(from)].is_some());
                    lifecycle.states[usize::from(*to)].is_final && is_hold_filled(&transition.transfers, before)
                });
            if let Some((from, to)) = filled_into_final {
                diagnostics.push(filled_hold_diagnostic(reachability, transition, &event.name, from, to, &filled));
            }
        }
    }
    find_trapped_holds(reachability, &filled, diagnostics);
}

/// Whether any transition brings money into the hold.
pub(super) fn can_be_filled(reachability: &Reachability) -> bool {
    transitions_of(reachability.lifecycle).any(|(_, transition)| is_hold_filled(&transition.transfers, false))
}

/// Reports states where money enters the hold and cannot leave it again. Ways into final states are checked separately.
fn find_trapped_holds(reachability: &Reachability, filled: &[Option<HoldPath>], diagnostics: &mut Vec<Diagnostic>) {
    let has_way_out = |state: StateIndex| {
        reachability.transitions_from(state).any(|(_, transition, to)| {
            reachability.lifecycle.states[usize::from(to)].is_final || transition.transfers.iter().any(can_empty_hold)
        })
    };
    let is_trapped = |state: StateIndex| {
        let reachable_from = reachability.shortest_paths(StateSet::default().with(state));
        !has_way_out(state) && !(0..64).zip(&reachable_from).any(|(index, path)| path.is_some() && has_way_out(index))
    };
    for (index, state) in indexed_states(reachability.lifecycle) {
        let Some(path) = &filled[usize::from(index)] else { continue };
        // Reported where the money came in, not for the states after it.
        let filled_before = path.from.filter(|from| *from != index && filled[usize::from(*from)].is_some());
        if !is_trapped(index) || filled_before.is_some_and(is_trapped) {
            continue;
        }
        let filling_transition = transitions_of(reachability.lifecycle).find(|(event, transition)| {
            *event.name == *path.event
                && transition.to.is_none_or(|to| to == index)
                && is_hold_filled(&transition.transfers, false)
        });
        let error = Diagnostic::error(
            "trapped-hold",
            state.span,
            format!("the hold may have money in `{}`, and no transition ever transfers it out", state.name),
        )
        .label("no transition from this state on empties the hold")
        .help(format!(
            "add a transition from `{}`, or from a later state, with `move = [{{ from = \"hold\", to = \"…\", amount = \
             \"rest\" }}]`",
            state.name
        ));
        diagnostics.push(match filling_transition {
            Some((_, transition)) => error.related(transition.span, "fills the hold"),
            None => error,
        });
    }
}

/// Whether the transfer moves the rest, or an amount that a caller can choose to be the whole hold.
fn can_empty_hold(action: &TransferAction) -> bool {
    let is_caller_chosen = |expr: &Expr| match &expr.kind {
        ExprKind::Read(path) => matches!(path.root, PathRoot::Input(_)) || path.steps.first() == Some(&PathStep::Hold),
        _ => false,
    };
    matches!(action.from, AccountRef::Hold)
        && match &action.amount {
            TransferAmount::Rest => true,
            TransferAmount::Computed(formula) => {
                let mut found = false;
                for_each_subexpr(&formula.expr, &mut |expr| found |= is_caller_chosen(expr));
                found
            }
        }
}

/// Returns the states before and after the transition, for each state in which it can fire; `None` before a creation.
fn state_changes(
    reachability: &Reachability,
    kind: EventKind,
    transition: &Transition,
) -> Vec<(Option<StateIndex>, StateIndex)> {
    match (kind, transition.to) {
        (EventKind::Create, Some(to)) => vec![(None, to)],
        (EventKind::Create, None) => Vec::new(),
        _ => {
            let firing = transition.from.iter().filter(|from| reachability.can_fire(kind, transition, *from));
            firing.map(|from| (Some(from), transition.to.unwrap_or(from))).collect()
        }
    }
}

/// Returns whether the hold is filled after these transfers.
fn is_hold_filled(transfers: &[TransferAction], was_filled: bool) -> bool {
    transfers.iter().fold(was_filled, |filled, transfer| {
        let stays_filled =
            filled && !(matches!(transfer.from, AccountRef::Hold) && matches!(transfer.amount, TransferAmount::Rest));
        let fills = matches!(transfer.to, AccountRef::Hold) && !is_zero_amount(&transfer.amount);
        stays_filled || fills
    })
}

fn is_zero_amount(amount: &TransferAmount) -> bool {
    matches!(amount, TransferAmount::Computed(formula) if matches!(formula.expr.kind, ExprKind::Const(Value::Int(0))))
}

fn filled_hold_diagnostic(
    reachability: &Reachability,
    transition: &Transition,
    event: &str,
    from: Option<StateIndex>,
    to: StateIndex,
    filled: &[Option<HoldPath>],
) -> Diagnostic {
    let mut path = format!("({event}) `{}`", reachability.state_name(to));
    let mut state = from;
    // The path ends where the hold was empty. That state may have been filled later, even from here, so the path also
    // ends where it repeats.
    let mut seen = StateSet::default();
    while let Some(at) = state.filter(|at| !seen.contains(*at)) {
        seen = seen.with(at);
        path = format!("`{}` → {path}", reachability.state_name(at));
        state = match filled[usize::from(at)] {
            Some(way) if way.from != Some(at) => {
                path = format!("({}) {path}", way.event);
                if way.from.is_some() {
                    path = format!("→ {path}");
                }
                way.from
            }
            _ => None,
        };
    }
    let path = path.replace("→ →", "→");
    let to_name = reachability.state_name(to);
    let message = format!("a record may reach the final state `{to_name}` with money in its hold");
    Diagnostic::error("filled-hold", transition.span, message)
        .label(format!("the hold may have money: {path}"))
        .related(reachability.lifecycle.states[usize::from(to)].span, "final")
        .help("empty the hold in the transition: `move = [{ from = \"hold\", to = \"…\", amount = \"rest\" }]`")
}
