//! Unique keys and exact limits, checked when a record comes into the counted set.

use std::sync::Arc;

use super::access::{Caller, may_read};
use super::changes::Refusal;
use super::draft::{Draft, fault};
use super::halt::{Halt, Step, refusal};
use super::plan::Occasion;
use super::snapshot::{CountKey, UniqueKey, key_parts};
use crate::expr::{FaultKind, eval};
use crate::model::{Clash, KeyPart, Limit, StateSet, Unique};
use crate::record::Record;
use crate::time::{Duration, Time};
use crate::value::{RecordId, Value};

/// Claim and release what the change of a record claims and releases. `before` is `None` at creation.
pub(super) fn update(draft: &mut Draft, before: Option<&Record>, after: &Record, occasion: Occasion) -> Step<()> {
    let lifecycle = Arc::clone(&after.lifecycle);
    for unique in &lifecycle.uniques {
        update_unique(draft, before, after, occasion, unique)?;
    }
    for limit in &lifecycle.limits {
        update_limit(draft, before, after, occasion.event, limit)?;
    }
    Ok(())
}

pub(super) fn update_unique(
    draft: &mut Draft,
    before: Option<&Record>,
    after: &Record,
    occasion: Occasion,
    unique: &Unique,
) -> Step<()> {
    let old = before.and_then(|record| held(record, &unique.on, unique.within));
    let new = held(after, &unique.on, unique.within);
    if old == new {
        return Ok(());
    }
    let lifecycle = &after.lifecycle.name;
    let key = |parts| UniqueKey { lifecycle: Arc::clone(lifecycle), unique: Arc::clone(&unique.name), parts };
    // A key without `in` is for ever: whoever had it first keeps it, even when its field changes.
    if let (Some(parts), true) = (old, unique.within.is_some()) {
        draft.set_holder(key(parts), None);
    }
    if let Some(parts) = new {
        let key = key(parts);
        match draft.holder(&key)? {
            Some(holder) if holder != after.id => {
                return Err(clash(draft, before, after, occasion, holder, &unique.clash)?);
            }
            Some(_) => {}
            None => draft.set_holder(key, Some(after.id)),
        }
    }
    Ok(())
}

/// Let go of what a record held by one version of its lifecycle, and claim what it holds by another. What both give it under one
/// name stays its own, and is not counted anew.
pub(super) fn carry_over(draft: &mut Draft, before: &Record, after: &Record, occasion: Occasion) -> Step<()> {
    let (old, new) = (Arc::clone(&before.lifecycle), Arc::clone(&after.lifecycle));
    for unique in old.uniques.iter().filter(|unique| unique.within.is_some()) {
        let Some(parts) = held(before, &unique.on, unique.within) else { continue };
        let kept = new.uniques.iter().find(|other| other.name == unique.name);
        if kept.and_then(|kept| held(after, &kept.on, kept.within)).as_ref() != Some(&parts) {
            draft.set_holder(
                UniqueKey { lifecycle: Arc::clone(&old.name), unique: Arc::clone(&unique.name), parts },
                None,
            );
        }
    }
    for unique in &new.uniques {
        let Some(parts) = held(after, &unique.on, unique.within) else { continue };
        let key = UniqueKey { lifecycle: Arc::clone(&new.name), unique: Arc::clone(&unique.name), parts };
        match draft.holder(&key)? {
            Some(holder) if holder != after.id => {
                return Err(clash(draft, Some(before), after, occasion, holder, &unique.clash)?);
            }
            Some(_) => {}
            None => draft.set_holder(key, Some(after.id)),
        }
    }
    let counted = |limit: &&Limit| limit.within.is_some() && limit.per.is_none();
    let key = |limit: &Limit, parts| CountKey {
        lifecycle: Arc::clone(&new.name),
        limit: Arc::clone(&limit.name),
        parts,
        window: None,
    };
    let mut was: Vec<CountKey> = Vec::new();
    for limit in old.limits.iter().filter(counted) {
        was.extend(held(before, &limit.on, limit.within).map(|parts| key(limit, parts)));
    }
    for limit in new.limits.iter().filter(counted) {
        let Some(key) = held(after, &limit.on, limit.within).map(|parts| key(limit, parts)) else { continue };
        if let Some(at) = was.iter().position(|old| *old == key) {
            was.swap_remove(at);
        } else {
            count_one_more(draft, after, occasion.event, limit, key)?;
        }
    }
    for key in was {
        draft.add_count(key, -1);
    }
    Ok(())
}

/// What a clash answers. The holder is brought up to date first, since a due timer may make it let go of the key.
fn clash(
    draft: &Draft,
    before: Option<&Record>,
    after: &Record,
    occasion: Occasion,
    holder: RecordId,
    clash: &Clash,
) -> Step<Halt> {
    let event = occasion.event;
    let holds = draft.find(holder)?;
    if *clash == Clash::Return && before.is_none() && holds.is_none() {
        // Pruned: what was asked for was done once, and cannot be shown any more.
        let gone = refusal(after, event, 410, "gone", "the record that was made with this key is no longer there");
        return Ok(Halt::Refuse(Box::new(Refusal { record: None, state: None, ..*gone })));
    }
    let readable = match holds {
        // A spawn uses the holder whoever owns it: nobody is shown anything of it.
        Some(_) if occasion.caller == Caller::Record => true,
        Some(record) => may_read(draft, record, &draft.operation.actor, None)?,
        None => false,
    };
    Ok(match clash {
        // Not even to its own owner, where the lifecycle lets others read and not the owner.
        Clash::Return if before.is_none() && readable => Halt::Holder(holder),
        Clash::Return => Halt::Refuse(refusal(after, event, 409, "key_taken", "another record has this key")),
        Clash::Refuse { status, code } => {
            Halt::Refuse(refusal(after, event, *status, code, "another record has this key"))
        }
    })
}

fn held(record: &Record, on: &[KeyPart], within: Option<StateSet>) -> Option<Vec<Arc<str>>> {
    within.is_none_or(|states| states.contains(record.state)).then(|| key_parts(record, on)).flatten()
}

pub(super) fn update_limit(
    draft: &mut Draft,
    before: Option<&Record>,
    after: &Record,
    event: &str,
    limit: &Limit,
) -> Step<()> {
    // Without `in`, creations count, and nothing ever leaves the count.
    if limit.within.is_none() && before.is_some() {
        return Ok(());
    }
    let old = before.and_then(|record| held(record, &limit.on, limit.within));
    let new = held(after, &limit.on, limit.within);
    if old == new {
        return Ok(());
    }
    let window = limit.per.map(|per| draft.now.micros() - since_begun(draft.now, per));
    let key = |parts| CountKey {
        lifecycle: Arc::clone(&after.lifecycle.name),
        limit: Arc::clone(&limit.name),
        parts,
        window,
    };
    if let Some(parts) = old {
        draft.add_count(key(parts), -1);
    }
    if let Some(parts) = new {
        count_one_more(draft, after, event, limit, key(parts))?;
    }
    Ok(())
}

fn count_one_more(draft: &mut Draft, after: &Record, event: &str, limit: &Limit, key: CountKey) -> Step<()> {
    let env = draft.env(after);
    let Value::Int(max) = eval(&limit.max.expr, &env)? else { return Err(fault(FaultKind::WrongType)) };
    // INV-7, FM-6: exactly `max` are admitted, none where it is zero or less.
    if draft.count(&key)? >= u64::try_from(max).unwrap_or(0) {
        let reason = format!("the limit `{}` of {max} is reached", limit.name);
        let mut refusal = refusal(after, event, limit.status, &limit.code, reason);
        refusal.retry_after = limit.per.map(|per| Duration::from_micros(per.micros() - since_begun(draft.now, per)));
        return Err(Halt::Refuse(refusal));
    }
    draft.add_count(key, 1);
    Ok(())
}

/// Microseconds since the window of a limit `per` a time has begun: windows follow one another from 1970 on.
fn since_begun(now: Time, per: Duration) -> i64 {
    now.micros().rem_euclid(per.micros().max(1))
}
