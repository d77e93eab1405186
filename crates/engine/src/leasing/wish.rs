//! A job goes straight to who waits for it: it is leased in the transaction that makes it, so that both cost one sync.
//!
//! That is a short cut, and never more: where such a lease is not plainly taken nothing of it is kept, and whoever waits is woken and
//! looks for itself, as ever.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::{Call, Operation, readiness};
use onceward_core::model::Definitions;
use onceward_core::record::{Actor, Record};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{Outcome, Store, Write};

use super::{GoesOn, Leased, Wanted, held, slot};
use crate::batch::numbered;
use crate::deciding::{Decided, decide_more};
use crate::error::EngineError;
use crate::once::{Keyed, Once};
use crate::queue::seed;
use crate::shared::Shared;
use crate::waiting::Granting;

/// What somebody would take at once, having found nothing.
pub(crate) struct Wish {
    pub(crate) goes_on: GoesOn,
    actor: Actor,
    pub(crate) wanted: Wanted,
    once: Option<Once>,
}

impl Wish {
    pub(crate) fn new(actor: &Actor, wanted: Wanted, once: Option<&Once>, goes_on: &GoesOn) -> Self {
        Self { goes_on: Arc::clone(goes_on), actor: actor.clone(), wanted, once: once.cloned() }
    }
}

impl fmt::Debug for Wish {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.debug_struct("Wish").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

/// A wish, and the jobs that a batch has for it. Dropped, its waiter looks for itself.
#[derive(Debug)]
struct Granted {
    granting: Granting,
    leased: Vec<Leased>,
    /// Leases that were decided: some rows set a job aside instead.
    taken: usize,
    /// Asked for again meanwhile, the same key must not get others.
    keyed: Vec<Keyed>,
}

/// What a batch leases besides what was asked of it.
#[derive(Debug, Default)]
pub(crate) struct Grants(Vec<Granted>);

impl Grants {
    /// Whoever waits is told of none of these: they have gone.
    pub(crate) fn records(&self) -> HashSet<RecordId> {
        self.0.iter().flat_map(|granted| &granted.leased).map(|leased| leased.record.id).collect()
    }

    /// The batch is durable.
    pub(crate) fn give<S>(self, shared: &Shared<S>, took: Duration) {
        for Granted { granting, leased, keyed, .. } in self.0 {
            for _ in &leased {
                shared.counted.leased(took);
            }
            drop(keyed);
            granting.grant(leased);
        }
    }
}

/// Lease what this batch has made ready to those who have wished for it.
pub(crate) async fn grant<S: Store>(
    shared: &Shared<S>,
    definitions: &Definitions,
    decided: &mut Decided,
    now: Time,
) -> Result<Grants, EngineError> {
    let mut grants = Grants::default();
    if shared.signals.lines.wishes() == 0 || shared.queue.is_closed() {
        return Ok(grants);
    }
    let room = shared.config.batch.saturating_sub(decided.writes.len());
    for record in made_ready(decided, now).into_iter().take(room) {
        let Some(granted) = grants.for_one(shared, &record) else { continue };
        let wish = &granted.granting.wish;
        let Ok(keyed) = wish.key(shared, granted.taken) else { continue };
        let operation = wish.lease_of(record.id, decided)?;
        if let Some(answer) = decide_more(&shared.store, definitions, decided, operation, keyed.as_ref(), now).await {
            granted.taken += 1;
            granted.keyed.extend(keyed);
            granted.leased.extend(held(answer));
        }
    }
    grants.0.retain(|granted| !granted.leased.is_empty());
    Ok(grants)
}

impl Grants {
    /// Somebody who has wished for a job of this lifecycle, and has room for it.
    fn for_one<S>(&mut self, shared: &Shared<S>, record: &Record) -> Option<&mut Granted> {
        let name = &record.lifecycle.name;
        let has_room = |granted: &Granted| {
            let wanted = &granted.granting.wish.wanted;
            granted.leased.len() < wanted.most && wanted.lifecycles.contains(name)
        };
        if let Some(at) = self.0.iter().position(has_room) {
            return self.0.get_mut(at);
        }
        let granting = shared.signals.lines.wish_for(name)?;
        self.0.push(Granted { granting, leased: Vec::new(), taken: 0, keyed: Vec::new() });
        self.0.last_mut()
    }
}

impl Wish {
    /// The name of its so-manieth job, where its call has a key. Refused where an earlier call with the key is still on its way.
    fn key<S>(&self, shared: &Shared<S>, number: usize) -> Result<Option<Keyed>, EngineError> {
        let begin =
            |once: &Once| shared.queue.running.begin_alone(slot(&self.actor, &once.key, Some(number)), once.digest);
        self.once.as_ref().map(begin).transpose()
    }

    /// The operation that leases it this one.
    fn lease_of(&self, record: RecordId, decided: &Decided) -> Result<Operation, EngineError> {
        let Wanted { worker, lease, start, .. } = &self.wanted;
        let call = Call::Lease { record, worker: Arc::clone(worker), lease: *lease, start: *start };
        let seed = numbered(seed()?, decided.replies.len() + decided.writes.len());
        Ok(Operation { seed, actor: self.actor.clone(), call, answers: Vec::new(), trace: None })
    }
}

/// Jobs that wait for a worker since this batch, in the order in which they would be leased. Those that share a key are left to
/// whoever looks: others of the key may have waited for longer.
fn made_ready(decided: &Decided, now: Time) -> Vec<Arc<Record>> {
    let ready = |record: &Record| readiness(record).filter(|waiting| waiting.from <= now && waiting.key.is_none());
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    for change in decided.writes.iter().flat_map(changed) {
        let record = &change.after;
        if change.before.as_deref().is_some_and(|before| ready(before).is_some()) || !seen.insert(record.id) {
            continue;
        }
        // As the batch leaves it.
        let Some(record) = decided.base.snapshot().record(record.id) else { continue };
        found.extend(ready(record).map(|waiting| (waiting, Arc::clone(record))));
    }
    found.sort_by_key(|(waiting, record)| (std::cmp::Reverse(waiting.priority), waiting.from, record.id));
    found.into_iter().map(|(_, record)| record).collect()
}

fn changed(write: &Write) -> &[onceward_core::decide::RecordChange] {
    match &write.outcome {
        Outcome::Changes(changes) => &changes.records,
        Outcome::NoOp(_) | Outcome::Refusal(_) => &[],
    }
}
