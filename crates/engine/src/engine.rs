//! What a program calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onceward_core::decide::{Call, Create, ErrorReport};
use onceward_core::diagnostic::Files;
use onceward_core::record::{Actor, Token};
use onceward_core::value::RecordId;
use onceward_store::{Catalog, Content, Store};
use serde_json::{Map, Value as Json};
use tokio::task::JoinHandle;
use tracing::info;

use crate::checks::Unheard;
use crate::config::Config;
use crate::counted::{Counted, Measures, Tally};
use crate::error::EngineError;
use crate::keys::KeyDesk;
use crate::leasing::{self, Desk, GoesOn, Leased, Wanted};
use crate::objects::{Arrived, Arriving, Objects};
use crate::prune::{PruneOptions, Pruned};
use crate::queue::{Answer, Queue, Submission};
use crate::retention::Retention;
use crate::roll::Roll;
use crate::shared::Shared;
use crate::signals::Signals;
use crate::stream::LogStream;
use crate::timers::SetAside;
use crate::trail::Trail;
use crate::turns::Turns;
use crate::working::Worker;
use crate::{batch, elsewhere, inbox, objects, prune, rehearsal, roll, stream, timers};

/// An engine on a store. Clones are the same engine. [`close`](Self::close) lets it finish what it has taken on; dropping the last
/// clone ends it where it stands, which loses nothing that was answered.
#[derive(Debug)]
pub struct Engine<S> {
    pub(crate) shared: Arc<Shared<S>>,
    tasks: Arc<Tasks>,
}

impl<S> Clone for Engine<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), tasks: Arc::clone(&self.tasks) }
    }
}

#[derive(Debug)]
struct Tasks {
    own: Mutex<Vec<JoinHandle<()>>>,
    workers: Mutex<Vec<Worker>>,
}

fn take<T>(all: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut all.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Drop for Tasks {
    fn drop(&mut self) {
        take(&self.workers).iter().for_each(Worker::abort);
        take(&self.own).iter().for_each(JoinHandle::abort);
    }
}

impl<S: Store + 'static> Engine<S> {
    /// Start working on a store: what fell due while nobody was there is done first. Needs a tokio runtime with time.
    pub fn open(store: S, config: Config) -> Self {
        let config = Config { queue: config.queue.max(1), batch: config.batch.max(1), ..config };
        let (queue, incoming) = Queue::new(&config);
        let (asking, following) = (Turns::new(config.asking), Turns::new(stream::AT_ONCE));
        let (signals, desk, counted) = (Signals::default(), Desk::default(), Counted::default());
        let trail = Trail::new(config.denials);
        let (set_aside, keys, roll) = (SetAside::default(), KeyDesk::default(), Roll::default());
        let unheard = Unheard::default();
        let shared = Arc::new(Shared {
            store,
            config,
            queue,
            signals,
            desk,
            counted,
            trail,
            set_aside,
            roll,
            keys,
            asking,
            unheard,
            following,
        });
        let Config { batch, queue, .. } = shared.config;
        info!(batch, queue, "engine started");
        let writer = tokio::spawn(batch::run(Arc::clone(&shared), incoming));
        let timers = tokio::spawn(timers::run(Arc::clone(&shared)));
        let pruning = tokio::spawn(prune::run(Arc::clone(&shared)));
        let roll = tokio::spawn(roll::run(Arc::clone(&shared)));
        let looking = tokio::spawn(leasing::run(Arc::clone(&shared)));
        let mut own = vec![writer, timers, pruning, roll, looking];
        if let Some(news) = shared.store.news() {
            own.push(tokio::spawn(elsewhere::run(Arc::clone(&shared), news.clone())));
            own.push(tokio::spawn(inbox::run(Arc::clone(&shared), news)));
        }
        let tasks = Tasks { own: Mutex::new(own), workers: Mutex::default() };
        Self { shared, tasks: Arc::new(tasks) }
    }

    /// A worker that is to be closed with the engine.
    pub(crate) fn keep(&self, worker: Worker) {
        self.tasks.workers.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
    }

    /// Do something now and then, as long as the engine is there: for the first time after `first`, and again `every` so long after it was done.
    pub fn now_and_then<F>(&self, first: Duration, every: Duration, duty: impl Fn(Self) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let engine = self.within();
        let task = tokio::spawn(async move {
            let mut pause = first;
            loop {
                tokio::time::sleep(pause).await;
                duty(engine.clone()).await;
                pause = every;
            }
        });
        self.tasks.own.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }

    /// This engine, for what it runs itself: dropped with its own workers and duties, it does not keep them, as a clone would.
    #[must_use]
    pub fn within(&self) -> Self {
        let tasks = Tasks { own: Mutex::default(), workers: Mutex::default() };
        Self { shared: Arc::clone(&self.shared), tasks: Arc::new(tasks) }
    }

    pub fn store(&self) -> &S {
        &self.shared.store
    }

    /// Where large payloads are, if they are not in the database: to bring one piece by piece, before its record is made.
    pub fn objects(&self) -> Option<&Objects> {
        self.shared.config.objects.as_ref()
    }

    /// How long what has ended is kept.
    pub fn retention(&self) -> &Retention {
        &self.shared.config.retention
    }

    /// Begin to take in the payload of a record that is made when all of it is there: [`Submission::carrying`].
    pub fn arriving(&self) -> Arriving {
        Arriving::new(self.shared.config.objects.clone())
    }

    /// Check lifecycle files and take them in.
    pub async fn define(&self, files: &Files) -> Result<Arc<Catalog>, EngineError> {
        Ok(self.shared.store.put_definitions(files).await?)
    }

    /// One call, answered when it is durable. A future that is dropped may or may not have been carried out.
    pub async fn submit(&self, submission: Submission) -> Result<Answer, EngineError> {
        let mut replies = self.submit_all(vec![submission]).await?;
        replies.pop().unwrap_or_else(|| Err(self.shared.queue.gone()))
    }

    /// Many calls, taken on together or not at all, decided in their order, each taken or refused on its own. One that has to ask
    /// the outside first is decided when that has answered; those after it do not wait.
    pub async fn submit_all(
        &self,
        submissions: Vec<Submission>,
    ) -> Result<Vec<Result<Answer, EngineError>>, EngineError> {
        if submissions.is_empty() {
            return Ok(Vec::new());
        }
        let mut submissions = submissions;
        let mut hopeless = BTreeMap::new();
        if let Some(objects) = &self.shared.config.objects {
            hopeless = rehearsal::hopeless(&self.shared, &mut submissions).await?;
            objects::stow(objects, &mut submissions).await?;
        }
        let answers = if submissions.is_empty() { Vec::new() } else { self.shared.queue.enter(submissions)? };
        let mut replies = Vec::with_capacity(answers.len());
        for answer in answers {
            replies.push(self.shared.queue.answered(answer).await);
        }
        // From the first on, so that each comes to its own place.
        for (at, refused) in hopeless {
            replies.insert(at, Err(refused));
        }
        Ok(replies)
    }

    pub async fn create(
        &self,
        actor: &Actor,
        lifecycle: &str,
        fields: Map<String, Json>,
    ) -> Result<Answer, EngineError> {
        let create = Create { lifecycle: lifecycle.into(), id: None, owner: None, fields, payload: None };
        self.submit(Submission::new(actor, Call::Create(create))).await
    }

    /// Create a record whose payload is these bytes.
    pub async fn create_with(
        &self,
        actor: &Actor,
        create: Create,
        bytes: impl Into<Arc<[u8]>>,
    ) -> Result<Answer, EngineError> {
        let arrived = Arrived::from(Content::of(bytes));
        self.submit(Submission::new(actor, Call::Create(create)).carrying(arrived)).await
    }

    pub async fn fire(
        &self,
        actor: &Actor,
        record: RecordId,
        event: &str,
        input: Map<String, Json>,
    ) -> Result<Answer, EngineError> {
        let call = Call::Fire { record, event: event.into(), input, token: None, if_version: None };
        self.submit(Submission::new(actor, call)).await
    }

    /// Jobs for a worker, by priority, then age; waits for a first one as long as is wanted.
    pub async fn lease(&self, actor: &Actor, wanted: &Wanted) -> Result<Vec<Leased>, EngineError> {
        leasing::lease(&self.shared, actor, wanted).await
    }

    /// The same, and none as soon as `goes_on` says no: it is asked at the beginning, when there is news of work or a job, and
    /// on [`wake`](Self::wake).
    pub async fn lease_while(
        &self,
        actor: &Actor,
        wanted: &Wanted,
        goes_on: &GoesOn,
    ) -> Result<Vec<Leased>, EngineError> {
        leasing::lease_while(&self.shared, actor, wanted, goes_on).await
    }

    pub async fn start(&self, actor: &Actor, record: RecordId, token: Token) -> Result<Answer, EngineError> {
        self.submit(Submission::new(actor, Call::Start { record, token })).await
    }

    /// Keep a lease. [`Answer::stop`] asks the worker to give up.
    pub async fn heartbeat(&self, actor: &Actor, record: RecordId, token: Token) -> Result<Answer, EngineError> {
        self.submit(Submission::new(actor, Call::Heartbeat { record, token, lease: None })).await
    }

    /// The effect lands, once. With `finish` the execution is done too.
    pub async fn commit(
        &self,
        actor: &Actor,
        record: RecordId,
        token: Token,
        result: Json,
        finish: bool,
    ) -> Result<Answer, EngineError> {
        self.submit(Submission::new(actor, Call::Commit { record, token, result, finish })).await
    }

    pub async fn finish(&self, actor: &Actor, record: RecordId, token: Token) -> Result<Answer, EngineError> {
        self.submit(Submission::new(actor, Call::Finish { record, token })).await
    }

    pub async fn fail(
        &self,
        actor: &Actor,
        record: RecordId,
        token: Token,
        error: ErrorReport,
    ) -> Result<Answer, EngineError> {
        self.submit(Submission::new(actor, Call::Fail { record, token, error })).await
    }

    /// Give a job back unharmed.
    pub async fn yield_back(&self, actor: &Actor, record: RecordId, token: Token) -> Result<Answer, EngineError> {
        self.submit(Submission::new(actor, Call::Yield { record, token })).await
    }

    /// Take out what is over by now. The engine does so by itself, as its [`Config::retention`] says; this is for doing it by hand.
    pub async fn prune(&self, options: &PruneOptions) -> Result<Pruned, EngineError> {
        let pruned = prune::prune(&self.shared.store, options).await?;
        prune::tell(&self.shared, &pruned);
        if !options.dry_run {
            prune::tidy(&self.shared).await?;
        }
        Ok(pruned)
    }

    /// The log after a place, as it grows: the entries of records that the actor may see. An operator sees all, those of no
    /// record too. Before a place that pruning took, [`EngineError::Pruned`] says from where on it can be had.
    pub fn stream(&self, actor: &Actor, after: u64) -> LogStream<S> {
        LogStream::new(Arc::clone(&self.shared), actor.clone(), after)
    }

    /// Operations that are on their way.
    pub fn waiting(&self) -> usize {
        self.shared.queue.waiting()
    }

    pub fn tally(&self) -> Tally {
        Tally { overloaded: self.shared.queue.turned_away(), ..self.shared.counted.tally() }
    }

    /// All that was counted, and how full the queue is. Looks at no store.
    pub fn measures(&self) -> Measures {
        let (room, waiting_bytes) = self.shared.queue.places();
        Measures {
            tally: self.tally(),
            commits: self.shared.store.commits(),
            waiting: self.waiting(),
            room,
            waiting_bytes,
            idle: self.shared.signals.lines.wishes(),
            set_aside: self.shared.set_aside.len(),
            ..self.shared.counted.measures()
        }
    }

    /// Let everybody who waits look again: for a manual clock that was set, and for leases that are no longer wanted.
    pub fn wake(&self) {
        self.shared.signals.wake_all();
    }

    /// Let the workers inside the process take no more jobs, and those that run come to an end: for a program that is about to close
    /// it, and has something to finish before.
    pub fn leave(&self) {
        for worker in self.tasks.workers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            worker.leave();
        }
    }

    /// Let the workers inside the process come to an end, take on nothing more, answer all that was taken on, and stop.
    pub async fn close(&self) {
        info!(waiting = self.waiting(), "engine draining");
        let closing: Vec<_> = take(&self.tasks.workers)
            .into_iter()
            .map(|worker| tokio::spawn(async move { worker.close().await }))
            .collect();
        for worker in closing {
            let _ = worker.await;
        }
        self.shared.queue.close();
        self.shared.signals.wake_all();
        self.shared.queue.drained().await;
        self.shared.signals.wake_all();
        // Nothing is on its way any more. Waited for, so that they let go of the store.
        for task in take(&self.tasks.own) {
            task.abort();
            let _ = task.await;
        }
        info!("engine drained");
    }
}
