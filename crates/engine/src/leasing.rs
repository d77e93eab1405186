//! Jobs for workers. The store names candidates in their order, `decide` says who may have one, and no job is offered to
//! two callers of this engine at once. Should two engines offer the same, one of them loses and looks again. Where there is none, the
//! batch that makes the next one leases it right there.

mod desk;
mod wish;

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::Call;
use onceward_core::record::{Actor, Record, Token};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{RequestName, Store};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::error::EngineError;
use crate::once::{self, Once};
use crate::queue::{Answer, Submission};
use crate::shared::Shared;
use crate::waiting::Given;

pub(crate) use desk::Desk;
use desk::pick;
pub(crate) use wish::{Grants, Wish, grant};

/// Rounds in which we were refused jobs that are offered again, before waiting for news: their keys are full, or they cannot be leased.
const ROUNDS: usize = 5;

/// Rounds at all in which every candidate went to somebody else. Each one means that somebody else got on.
const PATIENCE: usize = 1_000;

/// Jobs at most for a call with a key: each of them is looked for.
const KEYED: usize = 100;

/// One who waits is seen so often.
const SEEN: Duration = Duration::from_secs(10);

/// A call that waits longer is asked again by its caller.
const LONGEST_WAIT: Duration = Duration::from_hours(1);

/// Says whether somebody who waits still wants anything.
pub type GoesOn = Arc<dyn Fn() -> bool + Send + Sync>;

/// What a worker asks for.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub lifecycles: Vec<Arc<str>>,
    /// What the worker calls itself; shown with the execution.
    pub worker: Arc<str>,
    /// At most so many jobs.
    pub most: usize,
    /// Shorter or longer than the lifecycle's own.
    pub lease: Option<onceward_core::time::Duration>,
    /// Start at once: saves a report.
    pub start: bool,
    /// How long to wait for a first job where there is none.
    pub wait: Duration,
    /// Only what the key was given before: nothing more is leased.
    pub again: bool,
    /// A key of the worker's: asked again with the same one, it gets the same jobs and no others.
    pub key: Option<Arc<str>>,
}

impl Wanted {
    /// One job of a lifecycle, started, without waiting.
    pub fn one(lifecycle: &str, worker: &str) -> Self {
        Self {
            lifecycles: vec![lifecycle.into()],
            worker: worker.into(),
            most: 1,
            lease: None,
            start: true,
            wait: Duration::ZERO,
            again: false,
            key: None,
        }
    }

    /// What was asked, but for how long to wait.
    fn digest(&self) -> [u8; 32] {
        let lease = self.lease.map(onceward_core::time::Duration::micros);
        let asked = serde_json::json!([self.lifecycles, self.worker, self.most, lease, self.start]);
        Sha256::digest(asked.to_string().as_bytes()).into()
    }
}

/// A job in a worker's hands.
#[derive(Clone, Debug)]
pub struct Leased {
    pub record: Arc<Record>,
    /// To be shown with every report.
    pub token: Token,
    pub expires_at: Time,
}

/// Lease up to as many jobs as wanted; none where none came in time.
pub(crate) async fn lease<S: Store>(
    shared: &Shared<S>,
    actor: &Actor,
    wanted: &Wanted,
) -> Result<Vec<Leased>, EngineError> {
    lease_while(shared, actor, wanted, &(Arc::new(|| true) as GoesOn)).await
}

/// The same, and none as soon as nobody wants any more: asked when there is news of work.
pub(crate) async fn lease_while<S: Store>(
    shared: &Shared<S>,
    actor: &Actor,
    wanted: &Wanted,
    goes_on: &GoesOn,
) -> Result<Vec<Leased>, EngineError> {
    let mut most = wanted.most.min(shared.config.batch);
    let mut keyed = None;
    if let Some(key) = &wanted.key {
        let once = Once::new(key, wanted.digest());
        once.check()?;
        most = most.min(KEYED);
        // Until this call ends, and not while the call before is under way: it may still be given some.
        let alone = shared.queue.running.begin_alone(slot(actor, key, None), once.digest)?;
        let leased = again(shared, actor, &once, most).await?;
        if wanted.again || leased.is_some() {
            return Ok(leased.unwrap_or_default());
        }
        keyed = Some((alone, once));
    }
    let once = keyed.as_ref().map(|(_, once)| once);
    let until = Instant::now() + wanted.wait.min(LONGEST_WAIT);
    let lines = &shared.signals.lines;
    let mut waiter = lines.join(&wanted.lifecycles);
    let (mut lost, mut in_vain, mut refused) = (0, 0, HashSet::new());
    if most == 0 || wanted.again {
        return Ok(Vec::new());
    }
    loop {
        if shared.queue.is_gone() {
            return Err(shared.queue.gone());
        }
        // From here on no news is missed: it comes before this look, or ends the wait after it.
        let mut turn = pin!(waiter.turn());
        turn.as_mut().enable();
        let news = lines.news();
        if !goes_on() {
            return Ok(Vec::new());
        }
        shared.roll.note(actor, &wanted.worker, &wanted.lifecycles);
        let mut offer = pick(shared, wanted, most, news).await?;
        waiter.has_looked();
        if !offer.records.is_empty() {
            // It may have waited for its turn at the desk.
            if !goes_on() {
                return Ok(Vec::new());
            }
            let leased = take(shared, actor, wanted, once, &offer.records).await?;
            offer.taken = true;
            shared.desk.went(shared, leased.len(), offer.records.len());
            if !leased.is_empty() {
                return Ok(leased);
            }
            // Who is quicker takes a job away, so that it is not offered again: while others come there are some left.
            let before = refused.len();
            refused.extend(offer.records.iter().copied());
            in_vain += usize::from(refused.len() < before + offer.records.len());
            drop(offer);
            lost += 1;
            if in_vain < ROUNDS && lost < PATIENCE {
                continue;
            }
            (lost, in_vain) = (0, 0);
            refused.clear();
        }
        let now = Instant::now();
        if now >= until {
            return Ok(Vec::new());
        }
        let mut wished = waiter.wish(Wish::new(actor, Wanted { most, ..wanted.clone() }, once, goes_on));
        let given = tokio::select! {
            biased;
            () = turn => {
                waiter.was_woken();
                wished.withdraw().await
            }
            given = wished.given() => given,
            () = tokio::time::sleep(SEEN.min(until - now)) => wished.withdraw().await,
        };
        match given {
            Given::Jobs(leased) if !leased.is_empty() => return Ok(leased),
            // Its key may be used by now: by this very call, or at another process.
            Given::Jobs(_) | Given::Failed => {
                if let Some(once) = once
                    && let Some(leased) = again(shared, actor, once, most).await?
                {
                    return Ok(leased);
                }
            }
            Given::Ended => {}
        }
    }
}

/// Lease these, each on its own. Those that went to somebody else meanwhile are left out.
async fn take<S: Store>(
    shared: &Shared<S>,
    actor: &Actor,
    wanted: &Wanted,
    once: Option<&Once>,
    records: &[RecordId],
) -> Result<Vec<Leased>, EngineError> {
    let calls = records.iter().enumerate().map(|(number, record)| {
        let (worker, lease, start) = (Arc::clone(&wanted.worker), wanted.lease, wanted.start);
        let call = Call::Lease { record: *record, worker, lease, start };
        let once = once.map(|once| Once { key: slot(actor, &once.key, Some(number)).key, own: true, ..once.clone() });
        Submission { once, ..Submission::new(actor, call) }
    });
    let answers = shared.queue.enter(calls.collect())?;
    let mut leased = Vec::with_capacity(answers.len());
    let mut failed = None;
    for answer in answers {
        match shared.queue.answered(answer).await {
            Ok(answer) => leased.extend(held(answer)),
            // Somebody was quicker, or its key is full.
            Err(EngineError::Refused(refusal)) if refusal.status == 409 => {}
            Err(error) => failed = Some(error),
        }
    }
    // What was leased is not lost for a sibling's failure.
    match failed {
        Some(error) if leased.is_empty() => Err(error),
        _ => Ok(leased),
    }
}

/// Without a live execution it was not leased: its own row may have set it aside.
fn held(answer: Answer) -> Option<Leased> {
    let (record, token) = (answer.record?, answer.token?);
    // Of an earlier call with the same key: it may be over, which its worker will be told; but then another may have it.
    let execution = record.execution.as_ref().filter(|execution| execution.token == token)?;
    let expires_at = execution.expires_at;
    Some(Leased { record, token, expires_at })
}

/// Each job of a call with a key has a name of its own: who asks again is given those that were leased. No key of a caller's
/// has such a name.
fn slot(actor: &Actor, key: &str, number: Option<usize>) -> RequestName {
    let number = number.map(|number| number.to_string()).unwrap_or_default();
    RequestName { owner: Arc::clone(&actor.id), key: format!("{key}\u{1f}{number}").into() }
}

/// The jobs that a call with this key was given before, as far as they are still in its hands. `None` where it was given none; an
/// empty list where all are over: such a key gets no others, so there is nothing to wait for.
async fn again<S: Store>(
    shared: &Shared<S>,
    actor: &Actor,
    once: &Once,
    most: usize,
) -> Result<Option<Vec<Leased>>, EngineError> {
    let (catalog, now) = (shared.store.definitions().await?, shared.store.now().await?);
    let (mut leased, mut is_used) = (Vec::new(), false);
    let names: Vec<RequestName> = (0..most).map(|number| slot(actor, &once.key, Some(number))).collect();
    for found in shared.store.requests(&names).await?.into_iter().flatten() {
        let answer = once::answered(&shared.store, &catalog.definitions, actor, &found, &once.digest, now).await??;
        is_used = true;
        let lasts = |leased: &Leased| leased.expires_at > now && leased.record.live_execution().is_some();
        leased.extend(held(answer).filter(lasts));
    }
    Ok(is_used.then_some(leased))
}

/// Looks for those who wait: at the times at which jobs are known to become ready, and now and then for what nobody has told of.
pub(crate) async fn run<S: Store>(shared: Arc<Shared<S>>) {
    while !shared.queue.is_closed() {
        let poll = shared.config.poll;
        let nap = shared.store.now().await.map_or(poll, |now| shared.signals.until_ready(now, poll));
        shared.signals.sooner(nap).await;
        shared.signals.lines.look();
    }
}
