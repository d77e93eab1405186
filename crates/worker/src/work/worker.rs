//! The loop that asks for jobs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::client::Client;
use crate::error::ClientError;
use crate::leases::LeaseCall;
use crate::payload::Payload;
use crate::reports::{Report, Verdict, millis};
use crate::shape::Leased;
use crate::wire::{Backoff, new_key};
use crate::work::failure::{BAD_RESULT, Failure};
use crate::work::job::Job;
use crate::work::keeping::{Done, Keeper, Run};
use crate::work::reporter::Reporter;

/// How long to wait for a first job before asking again.
const WAIT: Duration = Duration::from_secs(30);

/// Jobs in one question: the server gives no more under one key.
const MOST: usize = 100;

/// For what a question that was broken off may have been given.
const TAKING_BACK: Duration = Duration::from_secs(2);

/// For giving back what still runs when the grace is over. A server that does not answer is not waited for: leases run out.
const GIVING_BACK: Duration = Duration::from_secs(5);

/// Which jobs a worker takes.
#[derive(Clone, Debug)]
pub struct Working {
    pub lifecycles: Vec<String>,
    /// Shown with its executions.
    pub name: String,
    /// Jobs at the same time.
    pub at_once: usize,
    /// Shorter or longer than the lifecycle's own.
    pub lease: Option<Duration>,
    /// How long handlers may go on when the worker closes, or when their job is to stop.
    pub grace: Duration,
    /// End when there is nothing left to do, instead of waiting for more.
    pub until_idle: bool,
}

impl Working {
    /// Jobs of one lifecycle, one at a time.
    pub fn on(lifecycle: &str) -> Self {
        Self {
            lifecycles: vec![lifecycle.to_owned()],
            name: format!("{lifecycle}@{}", std::process::id()),
            at_once: 1,
            lease: None,
            grace: Duration::from_secs(10),
            until_idle: false,
        }
    }

    /// So many at the same time.
    pub fn at_once(self, at_once: usize) -> Self {
        Self { at_once, ..self }
    }

    fn call(&self, free: usize) -> Result<LeaseCall, ClientError> {
        Ok(LeaseCall {
            lifecycles: self.lifecycles.clone(),
            worker: self.name.clone(),
            max: free.clamp(1, MOST),
            lease_ms: self.lease.map(millis),
            wait_ms: if self.until_idle { 0 } else { millis(WAIT) },
            start: true,
            again: false,
            key: Some(new_key()?),
        })
    }
}

/// How far a worker has come in its own life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Working,
    /// Takes no more jobs, and asks those that run to come to an end.
    Closing,
    /// What still runs is given back.
    Over,
}

/// A worker that runs. Dropping this changes nothing: it works on until it is closed or its runtime ends.
#[derive(Clone, Debug)]
pub struct Worker {
    phase: watch::Sender<Phase>,
    task: Arc<Mutex<Option<Ending>>>,
}

type Ending = JoinHandle<Result<(), ClientError>>;

impl Worker {
    /// Take no more jobs. Those that run are asked to stop and may finish within the worker's grace; after it they are dropped and
    /// given back.
    pub async fn close(&self) -> Result<(), ClientError> {
        self.begin_to_close();
        self.ended().await
    }

    /// The same, without waiting for the end.
    pub fn begin_to_close(&self) {
        self.phase.send_if_modified(|phase| {
            let closes = *phase == Phase::Working;
            if closes {
                *phase = Phase::Closing;
            }
            closes
        });
    }

    /// Waits until it has ended: closed, idle, or because the server will not have it. Says so once.
    pub async fn ended(&self) -> Result<(), ClientError> {
        let mut task = self.task.lock().await;
        let Some(running) = task.as_mut() else { return Ok(()) };
        let ended = running.await;
        *task = None;
        ended.unwrap_or_else(|error| Err(ClientError::BadCall(error.to_string())))
    }
}

impl Client {
    /// Run a closure for each job. What it returns is committed and finished; a failure fails the job, and so do a panic and a
    /// result that can never be taken. It is dropped when its lease is lost.
    pub fn work<F, R>(&self, working: Working, run: impl Fn(Job) -> F + Send + Sync + 'static) -> Worker
    where
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Serialize + 'static,
    {
        let run: Run = Arc::new(move |job| {
            let running = run(job);
            Box::pin(async move { running.await.and_then(|result| written(&result)) })
        });
        self.start(working, run)
    }

    /// The same, with the payload read into a type. One that has another shape fails its job for good.
    pub fn work_with<I, F, R>(&self, working: Working, run: impl Fn(I, Job) -> F + Send + Sync + 'static) -> Worker
    where
        I: DeserializeOwned + Send + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Serialize + 'static,
    {
        let run = Arc::new(run);
        let run: Run = Arc::new(move |job| {
            let run = Arc::clone(&run);
            Box::pin(async move {
                let input = job.input()?;
                run(input, job).await.and_then(|result| written(&result))
            })
        });
        self.start(working, run)
    }

    pub(crate) fn start(&self, working: Working, run: Run) -> Worker {
        let (phase, heard) = watch::channel(Phase::Working);
        let (reporter, lease, grace) = (Reporter::start(self), working.lease, working.grace);
        let keeper = Keeper { client: self.clone(), reporter, run, lease, grace };
        let turn = Turn { keeper, working, heard, phase: phase.clone(), jobs: JoinSet::new(), was_away: false };
        Worker { phase, task: Arc::new(Mutex::new(Some(tokio::spawn(turn.run())))) }
    }
}

/// Comes when the worker takes no more jobs.
pub(crate) async fn closes(heard: &mut watch::Receiver<Phase>) {
    // Its sender lives as long as the loop.
    let _ = heard.wait_for(|phase| *phase != Phase::Working).await;
}

fn written(result: &impl Serialize) -> Done {
    Payload::json(result)
        .map(Some)
        .map_err(|error| Failure::terminal(BAD_RESULT, format!("the result cannot be written: {error}")))
}

struct Turn {
    keeper: Keeper,
    working: Working,
    heard: watch::Receiver<Phase>,
    phase: watch::Sender<Phase>,
    jobs: JoinSet<()>,
    /// The server was away: said once, and not with every try.
    was_away: bool,
}

impl fmt::Debug for Turn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Turn").field("working", &self.working).finish_non_exhaustive()
    }
}

impl Turn {
    async fn run(mut self) -> Result<(), ClientError> {
        let ended = self.take_jobs().await;
        let grace = self.working.grace;
        let all = async { while self.jobs.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, all).await.is_err() {
            self.phase.send_replace(Phase::Over);
            let all = async { while self.jobs.join_next().await.is_some() {} };
            if tokio::time::timeout(GIVING_BACK, all).await.is_err() {
                tracing::warn!(jobs = self.jobs.len(), "not given back: their leases will run out");
            }
        }
        ended
    }

    /// Until the worker closes, or the server will not have it.
    async fn take_jobs(&mut self) -> Result<(), ClientError> {
        let mut backoff = Backoff::default();
        // Asked again as it was when its answer was lost: then the same jobs are given.
        let mut again: Option<LeaseCall> = None;
        loop {
            while self.jobs.try_join_next().is_some() {}
            if !self.goes_on() {
                if let Some(call) = again {
                    self.take_back(call).await;
                }
                return Ok(());
            }
            let free = self.working.at_once.max(1).saturating_sub(self.jobs.len());
            if free == 0 {
                self.until_a_job_ends().await;
                continue;
            }
            let is_repeated = again.is_some();
            let call = match again.take() {
                Some(call) => call,
                None => self.working.call(free)?,
            };
            let mut closing = self.heard.clone();
            let client = self.keeper.client.clone();
            let answer = tokio::select! {
                biased;
                answer = client.lease_once(&call) => answer,
                () = closes(&mut closing) => {
                    self.take_back(call).await;
                    return Ok(());
                }
            };
            match answer {
                Ok(leased) => {
                    self.is_back();
                    backoff.reset();
                    // A question that was asked before may have been given jobs that are lost by now: none says nothing of others.
                    if leased.is_empty() && self.working.until_idle && !is_repeated {
                        if self.jobs.is_empty() {
                            return Ok(());
                        }
                        self.until_a_job_ends().await;
                    }
                    self.begin(leased);
                }
                Err(error) if error.problem().is_some_and(|problem| problem.status < 500) && !error.may_pass() => {
                    return Err(error);
                }
                Err(error) => {
                    self.is_away(&error);
                    let pause = error.retry_after().unwrap_or_else(|| backoff.pause());
                    let _ = tokio::time::timeout(pause, closes(&mut closing)).await;
                    again = Some(call);
                }
            }
        }
    }

    fn goes_on(&self) -> bool {
        *self.heard.borrow() == Phase::Working
    }

    fn begin(&mut self, leased: Vec<Leased>) {
        let received = Instant::now();
        for job in leased {
            self.jobs.spawn(self.keeper.clone().keep(job, received, self.heard.clone()));
        }
    }

    async fn until_a_job_ends(&mut self) {
        let mut closing = self.heard.clone();
        tokio::select! {
            _ = self.jobs.join_next() => {}
            () = closes(&mut closing) => {}
        }
    }

    /// The question was broken off. Should jobs have been given just then, they are given back, and need not wait until their
    /// lease runs out.
    async fn take_back(&self, call: LeaseCall) {
        let call = LeaseCall { wait_ms: 0, again: true, ..call };
        let taking = async {
            let mut backoff = Backoff::default();
            let leased = loop {
                match self.keeper.client.lease_once(&call).await {
                    Ok(leased) => break leased,
                    Err(error) if error.may_pass() => tokio::time::sleep(backoff.pause()).await,
                    Err(_) => return,
                }
            };
            for job in leased {
                if let Err(error) = self.keeper.reporter.file(Report::on(&job, Verdict::Yield)).await {
                    tracing::warn!(execution = job.id, %error, "cannot be given back");
                }
            }
        };
        // Somebody waits for this process to end, and the server may not even answer.
        let _ = tokio::time::timeout(TAKING_BACK, taking).await;
    }

    fn is_away(&mut self, error: &ClientError) {
        if !std::mem::replace(&mut self.was_away, true) {
            tracing::warn!(%error, "no jobs to be had for now; trying again");
        }
    }

    fn is_back(&mut self) {
        if std::mem::replace(&mut self.was_away, false) {
            tracing::info!("the server is back");
        }
    }
}
