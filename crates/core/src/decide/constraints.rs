//! Unique keys and count limits, checked when a record enters the constrained set.

use std::sync::Arc;

use super::access::{EventCaller, can_read};
use super::changes::Refusal;
use super::draft::{Draft, fault_halt};
use super::halt::{DecideResult, Halt, record_refusal};
use super::plan::EventContext;
use super::snapshot::{CounterKey, UniqueKey, canonical_key_parts};
use crate::expr::{FaultKind, eval};
use crate::model::{CountLimit, DuplicatePolicy, KeyPart, StateSet, UniqueConstraint};
use crate::record::Record;
use crate::time::{Duration, Time};
use crate::value::{RecordId, Value};

/// Claims and releases the unique keys and counters of a changed record. `before` is `None` at creation.
pub(super) fn update_constraints(
    draft: &mut Draft,
    before: Option<&Record>,
    after: &Record,
    context: EventContext,
) -> DecideResult<()> {
    let lifecycle = Arc::clone(&after.lifecycle);
    for unique in &lifecycle.unique_constraints {
        update_unique(draft, before, after, context, unique)?;
    }
    for limit in &lifecycle.limits {
        update_limit(draft, before, after, context.event, limit)?;
    }
    Ok(())
}

pub(super) fn update_unique(
    draft: &mut Draft,
    before: Option<&Record>,
    after: &Record,
    context: EventContext,
    unique: &UniqueConstraint,
) -> DecideResult<()> {
    let old_parts = before.and_then(|record| held_key_parts(record, &unique.on, unique.in_states));
    let new_parts = held_key_parts(after, &unique.on, unique.in_states);
    if old_parts == new_parts {
        return Ok(());
    }
    let lifecycle = &after.lifecycle.name;
    let key = |parts| UniqueKey { lifecycle: Arc::clone(lifecycle), unique: Arc::clone(&unique.name), parts };
    // A constraint without `in` is permanent: the first holder keeps the key even if its field changes.
    if let (Some(parts), true) = (old_parts, unique.in_states.is_some()) {
        draft.set_unique_holder(key(parts), None);
    }
    if let Some(parts) = new_parts {
        let key = key(parts);
        match draft.unique_holder(&key)? {
            Some(holder) if holder != after.id => {
                return Err(resolve_duplicate(draft, before, after, context, holder, unique)?);
            }
            Some(_) => {}
            None => draft.set_unique_holder(key, Some(after.id)),
        }
    }
    Ok(())
}

/// Releases what a record holds by the old version of its lifecycle and claims what it holds by the new one. A key or
/// counter that both versions declare under the same name stays and is not counted again.
pub(super) fn migrate_constraints(
    draft: &mut Draft,
    before: &Record,
    after: &Record,
    context: EventContext,
) -> DecideResult<()> {
    let (old, new) = (Arc::clone(&before.lifecycle), Arc::clone(&after.lifecycle));
    for unique in old.unique_constraints.iter().filter(|unique| unique.in_states.is_some()) {
        let Some(parts) = held_key_parts(before, &unique.on, unique.in_states) else { continue };
        let same_name = new.unique_constraints.iter().find(|other| other.name == unique.name);
        if same_name.and_then(|kept| held_key_parts(after, &kept.on, kept.in_states)).as_ref() != Some(&parts) {
            draft.set_unique_holder(
                UniqueKey { lifecycle: Arc::clone(&old.name), unique: Arc::clone(&unique.name), parts },
                None,
            );
        }
    }
    for unique in &new.unique_constraints {
        let Some(parts) = held_key_parts(after, &unique.on, unique.in_states) else { continue };
        let key = UniqueKey { lifecycle: Arc::clone(&new.name), unique: Arc::clone(&unique.name), parts };
        match draft.unique_holder(&key)? {
            Some(holder) if holder != after.id => {
                return Err(resolve_duplicate(draft, Some(before), after, context, holder, unique)?);
            }
            Some(_) => {}
            None => draft.set_unique_holder(key, Some(after.id)),
        }
    }
    let counts_current_states = |limit: &&CountLimit| limit.in_states.is_some() && limit.window.is_none();
    let key = |limit: &CountLimit, parts| CounterKey {
        lifecycle: Arc::clone(&new.name),
        limit: Arc::clone(&limit.name),
        parts,
        window_start: None,
    };
    let mut old_counters: Vec<CounterKey> = Vec::new();
    for limit in old.limits.iter().filter(counts_current_states) {
        old_counters.extend(held_key_parts(before, &limit.on, limit.in_states).map(|parts| key(limit, parts)));
    }
    for limit in new.limits.iter().filter(counts_current_states) {
        let Some(key) = held_key_parts(after, &limit.on, limit.in_states).map(|parts| key(limit, parts)) else {
            continue;
        };
        if let Some(index) = old_counters.iter().position(|old| *old == key) {
            old_counters.swap_remove(index);
        } else {
            increment_counter(draft, after, context.event, limit, key)?;
        }
    }
    for key in old_counters {
        draft.add_to_counter(key, -1);
    }
    Ok(())
}

/// Decides the reply to a duplicate key. Fires the holder's due timers first, since they may release the key.
fn resolve_duplicate(
    draft: &Draft,
    before: Option<&Record>,
    after: &Record,
    context: EventContext,
    holder: RecordId,
    unique: &UniqueConstraint,
) -> DecideResult<Halt> {
    let event = context.event;
    let policy = &unique.on_duplicate;
    let reason = format!("another record has the same unique key `{}`", unique.name);
    let holder_record = draft.find(holder)?;
    if *policy == DuplicatePolicy::ReturnExisting && before.is_none() && holder_record.is_none() {
        // The existing record was pruned, so the reply cannot show it.
        let gone =
            record_refusal(after, event, 410, "gone", "the record that was created with the unique key was pruned");
        return Ok(Halt::Refuse(Box::new(Refusal { record: None, state: None, ..*gone })));
    }
    let is_readable = match holder_record {
        // A spawn may use any holder, because the caller sees nothing of it.
        Some(_) if context.caller == EventCaller::Record => true,
        Some(record) => can_read(draft, record, &draft.operation.actor, None)?,
        None => false,
    };
    Ok(match policy {
        // Not even the holder's owner sees it if the lifecycle admits other readers only.
        DuplicatePolicy::ReturnExisting if before.is_none() && is_readable => Halt::ExistingRecord(holder),
        DuplicatePolicy::ReturnExisting => Halt::Refuse(record_refusal(after, event, 409, "key_taken", reason)),
        DuplicatePolicy::Refuse { status, code } => Halt::Refuse(record_refusal(after, event, *status, code, reason)),
    })
}

fn held_key_parts(record: &Record, on: &[KeyPart], within: Option<StateSet>) -> Option<Vec<Arc<str>>> {
    within.is_none_or(|states| states.contains(record.state)).then(|| canonical_key_parts(record, on)).flatten()
}

pub(super) fn update_limit(
    draft: &mut Draft,
    before: Option<&Record>,
    after: &Record,
    event: &str,
    limit: &CountLimit,
) -> DecideResult<()> {
    // Without `in`, the limit counts creations, and the count never falls.
    if limit.in_states.is_none() && before.is_some() {
        return Ok(());
    }
    let old_parts = before.and_then(|record| held_key_parts(record, &limit.on, limit.in_states));
    let new_parts = held_key_parts(after, &limit.on, limit.in_states);
    if old_parts == new_parts {
        return Ok(());
    }
    let window = limit.window.map(|per| draft.now.micros() - micros_into_window(draft.now, per));
    let key = |parts| CounterKey {
        lifecycle: Arc::clone(&after.lifecycle.name),
        limit: Arc::clone(&limit.name),
        parts,
        window_start: window,
    };
    if let Some(parts) = old_parts {
        draft.add_to_counter(key(parts), -1);
    }
    if let Some(parts) = new_parts {
        increment_counter(draft, after, event, limit, key(parts))?;
    }
    Ok(())
}

fn increment_counter(
    draft: &mut Draft,
    after: &Record,
    event: &str,
    limit: &CountLimit,
    key: CounterKey,
) -> DecideResult<()> {
    let env = draft.env(after);
    let Value::Int(max) = eval(&limit.max.expr, &env)? else { return Err(fault_halt(FaultKind::WrongType)) };
    // INV-7, FM-6: admits exactly `max`, and none if `max` is zero or less.
    if draft.counter_value(&key)? >= u64::try_from(max).unwrap_or(0) {
        let reason = format!("the limit `{}` of {max} is reached", limit.name);
        let mut refusal = record_refusal(after, event, limit.status, &limit.code, reason);
        refusal.retry_after =
            limit.window.map(|per| Duration::from_micros(per.micros() - micros_into_window(draft.now, per)));
        return Err(Halt::Refuse(refusal));
    }
    draft.add_to_counter(key, 1);
    Ok(())
}

/// Microseconds since the start of the limit's window. Windows are aligned to the epoch.
fn micros_into_window(now: Time, per: Duration) -> i64 {
    now.micros().rem_euclid(per.micros().max(1))
}
