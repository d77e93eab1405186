//! Timers: armed on entering a state, followed where they follow a field, due when their time has come.

use super::draft::Draft;
use super::halt::Step;
use crate::expr::{FaultKind, eval};
use crate::model::{EventKind, Lifecycle, Timing};
use crate::record::{Record, Timer};
use crate::time::{Duration, Time};
use crate::value::Value;

/// What is due on a record first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The lease has run out: lost before the commit, to be finished after it.
    Lease,
    Timers,
}

/// Whether something must be dealt with before the record may be read. A stuck record stays readable as it is.
pub fn is_due(record: &Record, now: Time) -> bool {
    first_due(record, now).is_some()
}

/// When the record next needs the engine: the end of a lease or its earliest timer.
pub fn next_due(record: &Record) -> Option<Time> {
    if record.stuck.is_some() {
        return None;
    }
    let lease = record.live_execution().map(|execution| execution.expires_at);
    [lease, earliest_timer(record)].into_iter().flatten().min()
}

pub(super) fn first_due(record: &Record, now: Time) -> Option<Due> {
    if record.stuck.is_some() {
        return None;
    }
    let lease = record.live_execution().map(|execution| execution.expires_at).filter(|at| *at <= now);
    let timer = earliest_timer(record).filter(|at| *at <= now);
    match (lease, timer) {
        (Some(lease), Some(timer)) if timer < lease => Some(Due::Timers),
        (Some(_), _) => Some(Due::Lease),
        (None, Some(_)) => Some(Due::Timers),
        (None, None) => None,
    }
}

/// A record that waits for its finish row has no timers that count: they wait with it.
fn earliest_timer(record: &Record) -> Option<Time> {
    if record.timers.is_empty() || record.awaits_finish() {
        return None;
    }
    record.timers.iter().map(|timer| timer.due).min()
}

/// Set the timers of a state, as of when the record entered it.
pub(super) fn arm(draft: &Draft, record: &mut Record) -> Step<()> {
    record.timers.clear();
    for (number, row) in record.lifecycle.clone().rows(EventKind::Time).iter().enumerate() {
        if !row.from.contains(record.state) {
            continue;
        }
        let due = match row.timing.as_ref() {
            Some(Timing::After(formula)) => {
                let env = draft.env(record);
                match eval(&formula.expr, &env)? {
                    Value::Duration(delay) => Some(
                        record
                            .entered_at
                            .checked_add(delay.max(Duration::ZERO))
                            .ok_or_else(|| super::draft::fault(FaultKind::Overflow))?,
                    ),
                    Value::Null => None,
                    _ => return Err(super::draft::fault(FaultKind::WrongType)),
                }
            }
            Some(Timing::At(slot)) => time_in(record, *slot),
            None => None,
        };
        if let Some(due) = due {
            record.timers.push(Timer { row: u16::try_from(number).unwrap_or(u16::MAX), due });
        }
    }
    Ok(())
}

/// After a row that stayed: timers that follow a field follow it where it changed; nothing else restarts.
pub(super) fn follow(lifecycle: &Lifecycle, before: &Record, after: &mut Record) {
    for (number, row) in lifecycle.rows(EventKind::Time).iter().enumerate() {
        let Some(Timing::At(slot)) = row.timing else { continue };
        let at = usize::from(slot);
        if !row.from.contains(after.state) || before.fields[at] == after.fields[at] {
            continue;
        }
        let number = u16::try_from(number).unwrap_or(u16::MAX);
        after.timers.retain(|timer| timer.row != number);
        if let Some(due) = time_in(after, slot) {
            after.timers.push(Timer { row: number, due });
            after.timers.sort_unstable_by_key(|timer| timer.row);
        }
    }
}

fn time_in(record: &Record, slot: crate::model::Slot) -> Option<Time> {
    if let Value::Time(time) = record.fields[usize::from(slot)] { Some(time) } else { None }
}
