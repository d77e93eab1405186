//! A record only goes onward.

use onceward_core::decide::Decision;
use onceward_core::model::EventKind;
use onceward_core::record::Record;

use super::{Broken, Property, ensure};
use crate::random::outline;
use crate::random::play::Step;

/// Versions, attempts, times and final states.
#[derive(Debug, Default)]
pub struct Lives;

impl Property for Lives {
    fn before(&mut self, step: &Step) -> Result<(), Broken> {
        let Decision::Changes(changes) = step.decision else { return Ok(()) };
        ensure(changes.now >= step.now, "time never runs backwards", || {
            format!("asked at {}, decided at {}", step.now, changes.now)
        })?;
        let mut seen = Vec::new();
        for change in &changes.records {
            let after = &change.after;
            let who = || outline::record(after);
            ensure(!seen.contains(&after.id), "each record changes once in an operation", who)?;
            seen.push(after.id);
            ensure(after.updated_at == changes.now, "an operation has one time", who)?;
            ensure(after.created_at <= after.entered_at && after.entered_at <= changes.now, "times are in order", who)?;
            let kept = step.world.record(after.id);
            match &change.before {
                None => {
                    ensure(kept.is_none(), "a new record has a new id", who)?;
                    ensure(after.version == 1 && after.attempt == 0, "a new record starts at the start", who)?;
                }
                Some(before) => {
                    let same = kept.is_some_and(|kept| outline::record(kept) == outline::record(before));
                    ensure(same, "a change starts from the record as it is", who)?;
                    onward(before, after)?;
                }
            }
            timers_fit(after)?;
        }
        Ok(())
    }
}

fn onward(before: &Record, after: &Record) -> Result<(), Broken> {
    let who = || format!("{}\nbecomes\n{}", outline::record(before), outline::record(after));
    ensure(after.version == before.version + 1, "a version for each operation that changes a record", who)?;
    ensure((before.attempt..=before.attempt + 1).contains(&after.attempt), "attempts grow, by one", who)?;
    ensure(after.updated_at >= before.updated_at, "the time of a record's log only grows", who)?;
    ensure(
        after.created_at == before.created_at && after.owner == before.owner,
        "what a record is born with stays",
        who,
    )?;
    ensure(after.payload == before.payload, "a payload never changes", who)?;
    ensure(before.started_at.is_none() || after.started_at == before.started_at, "a record starts once", who)?;
    if before.is_final() {
        ensure(after.state == before.state, "final states are never left", who)?;
        ensure(after.finished_at == before.finished_at, "a record ends once", who)?;
    }
    ensure(!after.is_final() || after.finished_at.is_some(), "a final record knows when it ended", who)?;
    for (field, (old, new)) in after.lifecycle.fields.iter().zip(before.fields.iter().zip(&after.fields)) {
        ensure(!field.constant || old == new, "a constant stays", who)?;
        ensure(field.nullable || !new.is_null(), "only optional fields are null", who)?;
    }
    Ok(())
}

fn timers_fit(record: &Record) -> Result<(), Broken> {
    let rows = record.lifecycle.rows(EventKind::Time);
    for timer in &record.timers {
        let fits = rows.get(usize::from(timer.row)).is_some_and(|row| row.from.contains(record.state));
        ensure(fits, "a timer belongs to the state that its record is in", || outline::record(record))?;
    }
    Ok(())
}
