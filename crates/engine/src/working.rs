//! Workers inside the process: a closure is run for each job, its lease kept alive as long as it runs.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::{Call, ErrorReport};
use onceward_core::record::{Actor, Record, Token};
use onceward_core::value::Value;
use onceward_store::Store;
use serde_json::Value as Json;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tracing::warn;

use crate::checks::OnDrop;
use crate::complaint::Complaint;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::leasing::{self, GoesOn, Leased, Wanted};
use crate::queue::Submission;
use crate::shared::Shared;
use crate::signals::length;

/// How long to wait for a first job before asking again.
const WAIT: Duration = Duration::from_secs(30);

/// A lease is kept by so many heartbeats.
const BEATS: u32 = 3;

/// No heart beats faster than this.
const FASTEST: Duration = Duration::from_millis(5);

/// Before a report that found no room, or no database, is made again.
const AGAIN: Duration = Duration::from_millis(50);

/// Tries of a report when the worker's time is over: half a second, then the lease must run out.
const LAST_TRIES: usize = 10;

/// Characters of a text that is cut because the whole of it was too large, or is not the worker's own.
const SHORT: usize = 500;

/// All that is said of a panic.
const PANICKED: &str = "the worker's own code panicked";

/// Which jobs a worker inside the process takes.
#[derive(Clone, Debug)]
pub struct Working {
    pub lifecycles: Vec<Arc<str>>,
    /// Shown with its executions.
    pub name: Arc<str>,
    /// For whom it speaks: a key with the role `worker`.
    pub actor: Actor,
    /// Jobs at the same time.
    pub at_once: usize,
    /// Shorter or longer than the lifecycle's own.
    pub lease: Option<onceward_core::time::Duration>,
}

impl Working {
    /// Jobs of one lifecycle, one at a time.
    pub fn on(lifecycle: &str) -> Self {
        Self {
            lifecycles: vec![lifecycle.into()],
            name: lifecycle.into(),
            actor: Actor::new("local", &["worker"]),
            at_once: 1,
            lease: None,
        }
    }
}

/// A job, as the closure gets it.
#[derive(Clone, Debug)]
pub struct Job {
    pub record: Arc<Record>,
    pub token: Token,
    /// The bytes of its payload.
    pub payload: Option<Arc<[u8]>>,
    stop: watch::Receiver<bool>,
}

impl Job {
    /// A field's value; null where it is not set or there is none of this name.
    pub fn field(&self, name: &str) -> Json {
        self.record.field(name).map(Value::to_json).unwrap_or_default()
    }

    /// Whether the job is to be given up: its lifecycle says so, or the program shuts down.
    pub fn should_stop(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits until it is to be given up.
    pub async fn stopped(&self) {
        let mut stop = self.stop.clone();
        if stop.wait_for(|stop| *stop).await.is_err() {
            // Nobody is left who could say so.
            std::future::pending::<()>().await;
        }
    }
}

/// What a closure reports: the result to commit, or why it failed. `yielded` as the error's code gives the job back unharmed.
pub type Done = Result<Json, ErrorReport>;

/// How far a worker has come in its own life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Working,
    /// Takes no more jobs, and asks those that run to come to an end.
    Closing,
    /// What still runs is given back.
    Over,
}

/// A worker that runs. The engine closes it when it is closed itself; dropping this changes nothing.
#[derive(Clone, Debug)]
pub struct Worker {
    phase: watch::Sender<Phase>,
    task: Arc<tokio::sync::Mutex<Option<JoinHandle<()>>>>,
}

impl Worker {
    /// Take no more jobs. Those that run are asked to stop and may finish within the grace that the engine's
    /// [`Config`](crate::Config) gives; after it they are dropped and given back.
    pub async fn close(&self) {
        self.leave();
        if let Some(task) = self.task.lock().await.take() {
            let _ = task.await;
        }
    }

    /// The same, without waiting for it.
    pub(crate) fn leave(&self) {
        self.phase.send_if_modified(|phase| {
            let closes = *phase == Phase::Working;
            if closes {
                *phase = Phase::Closing;
            }
            closes
        });
    }

    /// At once, without giving anything back.
    pub(crate) fn abort(&self) {
        if let Ok(mut task) = self.task.try_lock()
            && let Some(task) = task.take()
        {
            task.abort();
        }
    }
}

impl<S: Store + 'static> Engine<S> {
    /// Run a closure for each job, in this process. What it returns is committed and finished; an error fails the job, and so do a
    /// panic and a result that can never be taken. It is dropped when its lease is lost.
    pub fn work<F>(&self, working: Working, run: impl Fn(Job) -> F + Send + Sync + 'static) -> Worker
    where
        F: Future<Output = Done> + Send + 'static,
    {
        let (phase, heard) = watch::channel(Phase::Working);
        let shared = Arc::clone(&self.shared);
        let task = tokio::spawn(turn(shared, working, Arc::new(run), heard, phase.clone()));
        let worker = Worker { phase, task: Arc::new(tokio::sync::Mutex::new(Some(task))) };
        self.keep(worker.clone());
        worker
    }
}

async fn turn<S, R, F>(
    shared: Arc<Shared<S>>,
    working: Working,
    run: Arc<R>,
    heard: watch::Receiver<Phase>,
    phase: watch::Sender<Phase>,
) where
    S: Store + 'static,
    R: Fn(Job) -> F + Send + Sync + 'static,
    F: Future<Output = Done> + Send + 'static,
{
    let mut jobs: JoinSet<()> = JoinSet::new();
    // So that whoever opens the database next knows that the worker is gone.
    let worker = match shared.store.opening() {
        Some(opening) => onceward_store::own_worker(&opening, &working.name),
        None => Arc::clone(&working.name),
    };
    let at_once = working.at_once.max(1);
    let goes_on: GoesOn = {
        let heard = heard.clone();
        Arc::new(move || *heard.borrow() == Phase::Working)
    };
    let mut complaint = Complaint::default();
    let ask_to_stop = tokio::spawn(pass_on(heard.clone(), Arc::clone(&shared)));
    while goes_on() && !shared.queue.is_closed() {
        while jobs.try_join_next().is_some() {}
        if jobs.len() >= at_once {
            let mut closing = heard.clone();
            tokio::select! {
                _ = jobs.join_next() => {}
                _ = closing.wait_for(|phase| *phase != Phase::Working) => {}
            }
            continue;
        }
        let wanted = Wanted {
            lifecycles: working.lifecycles.clone(),
            worker: Arc::clone(&worker),
            most: at_once - jobs.len(),
            lease: working.lease,
            start: true,
            wait: WAIT,
            again: false,
            key: None,
        };
        match leasing::lease_while(&shared, &working.actor, &wanted, &goes_on).await {
            Ok(leased) => {
                complaint.is_over();
                for held in leased {
                    let (shared, run, actor) = (Arc::clone(&shared), Arc::clone(&run), working.actor.clone());
                    jobs.spawn(one(shared, actor, held, run, heard.clone()));
                }
            }
            Err(error) if error.is_the_end() => break,
            Err(error) => {
                if complaint.is_new(error.code()) {
                    warn!(worker = %working.name, code = error.code(), "a worker gets no jobs");
                }
                let _ = tokio::time::timeout(shared.config.poll, heard.clone().changed()).await;
            }
        }
    }
    ask_to_stop.abort();
    let all = async { while jobs.join_next().await.is_some() {} };
    if tokio::time::timeout(shared.config.grace, all).await.is_err() {
        phase.send_replace(Phase::Over);
        while jobs.join_next().await.is_some() {}
    }
}

/// Whoever waits for a job looks up when the worker closes.
async fn pass_on<S>(mut heard: watch::Receiver<Phase>, shared: Arc<Shared<S>>) {
    if heard.wait_for(|phase| *phase != Phase::Working).await.is_ok() {
        shared.signals.lines.wake_all();
    }
}

/// What happened next to a job that runs.
enum Next {
    Ended(Result<Done, tokio::task::JoinError>),
    /// Its heart must beat.
    Beat,
    Phase,
}

/// One job from its lease to its report.
async fn one<S, R, F>(
    shared: Arc<Shared<S>>,
    actor: Actor,
    held: Leased,
    run: Arc<R>,
    mut heard: watch::Receiver<Phase>,
) where
    S: Store + 'static,
    R: Fn(Job) -> F + Send + Sync + 'static,
    F: Future<Output = Done> + Send + 'static,
{
    let (id, token) = (held.record.id, held.token);
    let beat = held
        .record
        .execution
        .as_ref()
        .map_or(FASTEST, |execution| (length(execution.leased_at, execution.expires_at) / BEATS).max(FASTEST));
    let payload = match held.record.payload {
        Some(payload) => match shared.content(payload).await {
            Ok(content) => content,
            // The next attempt may have better luck.
            Err(_) => return report(&shared, &actor, Call::Yield { record: id, token }, &heard).await,
        },
        None => None,
    };
    let (stop, stopped) = watch::channel(*heard.borrow_and_update() != Phase::Working);
    let job = Job { record: held.record, token, payload, stop: stopped };
    // In a task of its own, and called there: one that panics has its failure reported.
    let mut task = OnDrop(tokio::spawn(async move { run(job).await }));
    let (mut asked_to_stop, mut pause) = (false, beat);
    let call = loop {
        let next = tokio::select! {
            // One that has ended is not given back, whatever else is to be heard.
            biased;
            ended = &mut task => Next::Ended(ended),
            () = tokio::time::sleep(pause) => Next::Beat,
            changed = heard.changed() => {
                // Its sender lives as long as the task that spawned this one.
                if changed.is_err() { Next::Beat } else { Next::Phase }
            }
        };
        match next {
            Next::Ended(Ok(Ok(result))) => break Call::Commit { record: id, token, result, finish: true },
            Next::Ended(Ok(Err(error))) if *error.code == *"yielded" => break Call::Yield { record: id, token },
            Next::Ended(Ok(Err(error))) => break Call::Fail { record: id, token, error },
            Next::Ended(Err(_)) => {
                // As when a process dies: the next attempt may go better, and the lifecycle bounds how many there are. What the panic
                // says may quote a payload, so the record does not keep it.
                let error = ErrorReport { retryable: Some(true), ..ErrorReport::new("EXCEPTION", PANICKED) };
                break Call::Fail { record: id, token, error };
            }
            Next::Phase if *heard.borrow_and_update() == Phase::Over => break Call::Yield { record: id, token },
            Next::Phase => {
                stop.send_replace(true);
            }
            Next::Beat => match heartbeat(&shared, &actor, &Call::Heartbeat { record: id, token, lease: None }).await {
                // Asked before, and still there.
                Ok(true) if asked_to_stop => break Call::Yield { record: id, token },
                Ok(says_stop) => {
                    pause = beat;
                    asked_to_stop |= says_stop;
                    if says_stop {
                        stop.send_replace(true);
                    }
                }
                // The lease is lost: whatever it still does comes to nothing.
                Err(EngineError::Refused(_) | EngineError::Closed | EngineError::Broken) => return,
                // Not a whole beat later: two of those, and the lease has run out.
                Err(EngineError::Overloaded { retry_after }) => pause = retry_after.min(beat),
                Err(error) => pause = if error.may_pass() { AGAIN.min(beat) } else { beat },
            },
        }
    };
    drop(task);
    report(&shared, &actor, call, &heard).await;
}

async fn heartbeat<S: Store>(shared: &Shared<S>, actor: &Actor, call: &Call) -> Result<bool, EngineError> {
    Ok(submit(shared, Submission::new(actor, call.clone())).await?.stop)
}

async fn submit<S: Store>(shared: &Shared<S>, submission: Submission) -> Result<crate::Answer, EngineError> {
    let mut answers = shared.queue.enter(vec![submission])?;
    match answers.pop() {
        Some(answer) => shared.queue.answered(answer).await,
        None => Err(shared.queue.gone()),
    }
}

/// Until it is taken or refused, as long as trying again may help and the worker's time is not over. The same report twice does
/// no harm: its token sees to that.
async fn report<S: Store>(shared: &Shared<S>, actor: &Actor, mut call: Call, heard: &watch::Receiver<Phase>) {
    let (mut last_tries, mut is_instead) = (LAST_TRIES, false);
    loop {
        let Err(error) = submit(shared, Submission::new(actor, call.clone())).await else { return };
        if error.may_pass() {
            if *heard.borrow() == Phase::Over {
                last_tries -= 1;
                if last_tries == 0 {
                    return;
                }
            }
            tokio::time::sleep(AGAIN).await;
            continue;
        }
        match instead(call, &error) {
            Some(other) if !is_instead => (call, is_instead) = (other, true),
            _ => return,
        }
    }
}

/// What to report where a report will never be taken: the job fails, which would else run until its lease ends, and again.
fn instead(call: Call, error: &EngineError) -> Option<Call> {
    let failed =
        |code: &str, message: &str| ErrorReport { retryable: Some(false), ..ErrorReport::new(code, short(message)) };
    let (record, token, error) = match (call, error) {
        (Call::Commit { record, token, .. }, EngineError::Refused(refusal)) => match refusal.status {
            413 | 422 => (record, token, failed("BAD_RESULT", &refusal.reason)),
            _ => return None,
        },
        (Call::Commit { record, token, .. }, EngineError::TooLarge { most }) => {
            (record, token, failed("SIZE_EXCEEDED", &format!("the result has more than {most} bytes")))
        }
        (_, error) if error.is_the_end() => return None,
        (Call::Commit { record, token, .. }, other) => (record, token, failed(other.code(), &other.to_string())),
        (Call::Fail { record, token, error }, EngineError::TooLarge { .. }) => {
            let (code, message) = (short(&error.code).into(), short(&error.message).into());
            (record, token, ErrorReport { code, message, ..error })
        }
        _ => return None,
    };
    Some(Call::Fail { record, token, error })
}

fn short(text: &str) -> &str {
    text.char_indices().nth(SHORT).map_or(text, |(end, _)| &text[..end])
}
