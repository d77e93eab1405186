//! Timers: armed on entering a state, updated when their field changes, fired when due.

use super::draft::Draft;
use super::halt::DecideResult;
use crate::expr::{FaultKind, eval};
use crate::model::{EventKind, Lifecycle, TimerSpec};
use crate::record::{Record, Timer};
use crate::time::{Duration, Time};
use crate::value::Value;

/// The first due item of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DueKind {
    /// The lease has expired. The execution is lost before its commit and finished after it.
    LeaseExpiry,
    Timers,
}

/// Whether something must fire before the record may be read. A stuck record is never due.
pub fn is_due(record: &Record, now: Time) -> bool {
    first_due(record, now).is_some()
}

/// Returns when the engine must next act on the record: at the end of its lease or at its earliest timer.
pub fn next_due(record: &Record) -> Option<Time> {
    if record.stuck_reason.is_some() {
        return None;
    }
    let lease = record.live_execution().map(|execution| execution.expires_at);
    [lease, earliest_timer(record)].into_iter().flatten().min()
}

pub(super) fn first_due(record: &Record, now: Time) -> Option<DueKind> {
    if record.stuck_reason.is_some() {
        return None;
    }
    let lease = record.live_execution().map(|execution| execution.expires_at).filter(|at| *at <= now);
    let timer = earliest_timer(record).filter(|at| *at <= now);
    match (lease, timer) {
        (Some(lease), Some(timer)) if timer < lease => Some(DueKind::Timers),
        (Some(_), _) => Some(DueKind::LeaseExpiry),
        (None, Some(_)) => Some(DueKind::Timers),
        (None, None) => None,
    }
}

/// Returns when the record's next timer is due; `None` while `finish` is pending, because timers do not fire then.
fn earliest_timer(record: &Record) -> Option<Time> {
    if record.timers.is_empty() || record.awaits_finish() {
        return None;
    }
    record.timers.iter().map(|timer| timer.due_at).min()
}

/// Sets the timers of the record's state, counted from when it was entered.
pub(super) fn arm_timers(draft: &Draft, record: &mut Record) -> DecideResult<()> {
    record.timers.clear();
    for (number, transition) in record.lifecycle.clone().transitions(EventKind::Time).iter().enumerate() {
        if !transition.from.contains(record.state) {
            continue;
        }
        let due = match transition.timer.as_ref() {
            Some(TimerSpec::AfterEntering(formula)) => {
                let env = draft.env(record);
                match eval(&formula.expr, &env)? {
                    Value::Duration(delay) => Some(
                        record
                            .entered_at
                            .checked_add(delay.max(Duration::ZERO))
                            .ok_or_else(|| super::draft::fault_halt(FaultKind::Overflow))?,
                    ),
                    Value::Null => None,
                    _ => return Err(super::draft::fault_halt(FaultKind::WrongType)),
                }
            }
            Some(TimerSpec::AtField(slot)) => time_field_at(record, *slot),
            None => None,
        };
        if let Some(due) = due {
            record.timers.push(Timer { transition: u16::try_from(number).unwrap_or(u16::MAX), due_at: due });
        }
    }
    Ok(())
}

/// After an internal transition: resets the timers whose field changed. All others keep running.
pub(super) fn update_field_timers(lifecycle: &Lifecycle, before: &Record, after: &mut Record) {
    for (number, transition) in lifecycle.transitions(EventKind::Time).iter().enumerate() {
        let Some(TimerSpec::AtField(slot)) = transition.timer else { continue };
        let index = usize::from(slot);
        if !transition.from.contains(after.state) || before.fields[index] == after.fields[index] {
            continue;
        }
        let number = u16::try_from(number).unwrap_or(u16::MAX);
        after.timers.retain(|timer| timer.transition != number);
        if let Some(due) = time_field_at(after, slot) {
            after.timers.push(Timer { transition: number, due_at: due });
            after.timers.sort_unstable_by_key(|timer| timer.transition);
        }
    }
}

fn time_field_at(record: &Record, field_index: crate::model::FieldIndex) -> Option<Time> {
    if let Value::Time(time) = record.fields[usize::from(field_index)] { Some(time) } else { None }
}
