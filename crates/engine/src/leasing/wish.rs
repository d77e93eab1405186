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
use onceward_store::{Outcome, Store, Write, rank};

use super::{GoesOn, Leased, Wanted, held, slot};
use crate::batch::numbered;
use crate::deciding::{Decided, More, Tried, decide_more};
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
    /// It was denied one: it looks for itself, and is told why.
    is_denied: bool,
    /// Asked for again meanwhile, the same key must not get others.
    keyed: Vec<Keyed>,
}

impl Granted {
    fn has_room_for(&self, lifecycle: &Arc<str>) -> bool {
        let wanted = &self.granting.wish.wanted;
        !self.is_denied && self.taken < wanted.most && wanted.lifecycles.contains(lifecycle)
    }
}

/// What a batch leases besides what was asked of it.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    granted: Vec<Granted>,
    /// Lifecycles of which nobody wishes for a job.
    unwanted: HashSet<Arc<str>>,
}

impl Grants {
    pub(crate) fn is_empty(&self) -> bool {
        self.granted.is_empty()
    }

    /// Whoever waits is told of none of these: they have gone.
    pub(crate) fn records(&self) -> HashSet<RecordId> {
        self.granted.iter().flat_map(|granted| &granted.leased).map(|leased| leased.record.id).collect()
    }

    /// The batch is durable.
    pub(crate) fn give<S>(self, shared: &Shared<S>, took: Duration) {
        for Granted { granting, leased, keyed, .. } in self.granted {
            for _ in &leased {
                shared.counted.leased(took);
            }
            drop(keyed);
            granting.grant(leased);
        }
    }

    /// Somebody who has wished for a job of this lifecycle and has room for it, and for none of those that are left to who looks.
    fn for_one<S>(
        &mut self,
        shared: &Shared<S>,
        lifecycle: &Arc<str>,
        looked_for: &HashSet<Arc<str>>,
    ) -> Option<usize> {
        if let Some(at) = self.granted.iter().position(|granted| granted.has_room_for(lifecycle)) {
            return Some(at);
        }
        if self.unwanted.contains(lifecycle) {
            return None;
        }
        let Some(granting) = shared.signals.lines.wish_for(lifecycle, looked_for) else {
            self.unwanted.insert(Arc::clone(lifecycle));
            return None;
        };
        self.granted.push(Granted { granting, leased: Vec::new(), taken: 0, is_denied: false, keyed: Vec::new() });
        Some(self.granted.len() - 1)
    }
}

/// Looks at the store for the leases of one batch: those who made the jobs wait for them. What needs more is leased by who looks.
const LOOKS: usize = 4;

/// Wishes at most that are denied a job for one batch.
const DENIED: usize = 16;

/// Lease what this batch has made ready to those who have wished for it. Where this fails, what was decided is not to be relied on
/// any more.
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
    let Ready { records, looked_for } = made_ready(decided, now);
    let (mut looks, mut denied) = (LOOKS, 0);
    for record in records.into_iter().take(room) {
        while let Some(at) = grants.for_one(shared, &record.lifecycle.name, &looked_for) {
            let granted = &mut grants.granted[at];
            let wish = &granted.granting.wish;
            let tried = match wish.key(shared, granted.taken) {
                Ok(keyed) => {
                    let more = More { operation: wish.lease_of(record.id, decided)?, keyed: keyed.as_ref(), now };
                    let tried = decide_more(&shared.store, definitions, decided, more, &mut looks).await?;
                    granted.keyed.extend(keyed.filter(|_| matches!(tried, Tried::Done(_))));
                    tried
                }
                Err(_) => Tried::Denied,
            };
            match tried {
                Tried::Done(answer) => {
                    granted.taken += 1;
                    granted.leased.extend(held(answer));
                    break;
                }
                Tried::Undone => break,
                Tried::Denied => {
                    granted.is_denied = true;
                    denied += 1;
                }
            }
            if denied >= DENIED {
                break;
            }
        }
        if looks == 0 || denied >= DENIED {
            break;
        }
    }
    // What one lease brings about may have ended another.
    let snapshot = decided.base.snapshot();
    let is_live = |leased: &Leased| {
        let execution = snapshot.record(leased.record.id).and_then(|record| record.live_execution());
        execution.is_some_and(|execution| execution.token == leased.token)
    };
    for granted in &mut grants.granted {
        granted.leased.retain(is_live);
    }
    grants.granted.retain(|granted| granted.taken > 0);
    Ok(grants)
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

struct Ready {
    /// Jobs that wait for a worker since this batch, in the order in which they would be leased.
    records: Vec<Arc<Record>>,
    /// Lifecycles whose jobs share keys, where this batch has touched one: others of a key may have waited for longer, and a batch does
    /// not know. They are left to whoever looks.
    looked_for: HashSet<Arc<str>>,
}

fn made_ready(decided: &Decided, now: Time) -> Ready {
    let ready = |record: &Record| readiness(record).filter(|waiting| waiting.from <= now);
    let (mut seen, mut found, mut looked_for) = (HashSet::new(), Vec::new(), HashSet::new());
    for change in decided.writes.iter().flat_map(changed) {
        let record = &change.after;
        if record.lifecycle.work.as_ref().is_some_and(|work| work.key.is_some()) {
            looked_for.insert(Arc::clone(&record.lifecycle.name));
            continue;
        }
        if change.before.as_deref().is_some_and(|before| ready(before).is_some()) || !seen.insert(record.id) {
            continue;
        }
        // As the batch leaves it.
        let Some(record) = decided.base.snapshot().record(record.id) else { continue };
        found.extend(ready(record).map(|waiting| (rank(waiting.priority, waiting.from), Arc::clone(record))));
    }
    // Of the same rank as they came.
    found.sort_by_key(|(rank, _)| *rank);
    Ready { records: found.into_iter().map(|(_, record)| record).collect(), looked_for }
}

fn changed(write: &Write) -> &[onceward_core::decide::RecordChange] {
    match &write.outcome {
        Outcome::Changes(changes) => &changes.records,
        Outcome::NoOp(_) | Outcome::Refusal(_) => &[],
    }
}
