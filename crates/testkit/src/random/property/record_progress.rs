//! Property: a record never goes back.

use onceward_core::decide::Decision;
use onceward_core::model::EventKind;
use onceward_core::record::Record;

use super::{Property, PropertyViolation, ensure};
use crate::random::comparable_text;
use crate::random::simulation::DecisionStep;

/// Checks versions, attempts, times and final states.
#[derive(Debug, Default)]
pub struct RecordProgressProperty;

impl Property for RecordProgressProperty {
    fn on_decision(&mut self, step: &DecisionStep) -> Result<(), PropertyViolation> {
        let Decision::Changes(changes) = step.decision else { return Ok(()) };
        ensure(changes.now >= step.now, "time never goes back", || {
            format!("called at {}, decided at {}", step.now, changes.now)
        })?;
        let mut seen = Vec::new();
        for change in &changes.records {
            let after = &change.after;
            let describe = || comparable_text::record_text(after);
            ensure(!seen.contains(&after.id), "an operation changes a record at most once", describe)?;
            seen.push(after.id);
            ensure(after.updated_at == changes.now, "an operation has one time", describe)?;
            ensure(
                after.created_at <= after.entered_at && after.entered_at <= changes.now,
                "times are in order",
                describe,
            )?;
            let stored = step.world.record(after.id);
            match &change.before {
                None => {
                    ensure(stored.is_none(), "a new record has a new id", describe)?;
                    ensure(
                        after.version == 1 && after.attempt == 0,
                        "a new record has version 1 and no attempt",
                        describe,
                    )?;
                }
                Some(before) => {
                    let same = stored
                        .is_some_and(|kept| comparable_text::record_text(kept) == comparable_text::record_text(before));
                    ensure(same, "a change starts from the current version", describe)?;
                    ensure_moves_forward(before, after)?;
                }
            }
            ensure_timers_fit_state(after)?;
        }
        Ok(())
    }
}

fn ensure_moves_forward(before: &Record, after: &Record) -> Result<(), PropertyViolation> {
    let describe =
        || format!("{}\nbecomes\n{}", comparable_text::record_text(before), comparable_text::record_text(after));
    ensure(after.version == before.version + 1, "one version per operation", describe)?;
    ensure((before.attempt..=before.attempt + 1).contains(&after.attempt), "attempts increase by one", describe)?;
    ensure(after.updated_at >= before.updated_at, "times in a record's log never decrease", describe)?;
    ensure(
        after.created_at == before.created_at && after.owner == before.owner,
        "owner and creation time never change",
        describe,
    )?;
    ensure(after.payload == before.payload, "a payload never changes", describe)?;
    ensure(before.started_at.is_none() || after.started_at == before.started_at, "started_at is set once", describe)?;
    if before.is_final() {
        ensure(after.state == before.state, "final states are never left", describe)?;
        ensure(after.finished_at == before.finished_at, "finished_at is set once", describe)?;
    }
    ensure(!after.is_final() || after.finished_at.is_some(), "a final record has its end time", describe)?;
    for (field, (old, new)) in after.lifecycle.fields.iter().zip(before.fields.iter().zip(&after.fields)) {
        ensure(!field.is_constant || old == new, "a constant never changes", describe)?;
        ensure(field.nullable || !new.is_null(), "only optional fields are null", describe)?;
    }
    Ok(())
}

fn ensure_timers_fit_state(record: &Record) -> Result<(), PropertyViolation> {
    let rows = record.lifecycle.transitions(EventKind::Time);
    for timer in &record.timers {
        let fits = rows.get(usize::from(timer.transition)).is_some_and(|row| row.from.contains(record.state));
        ensure(fits, "a timer belongs to the current state", || comparable_text::record_text(record))?;
    }
    Ok(())
}
