//! One job from its lease to its report.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

use crate::client::Client;
use crate::error::ClientError;
use crate::payload::Payload;
use crate::reports::Verdict;
use crate::shape::Leased;
use crate::wire::Backoff;
use crate::work::failure::{BAD_RESULT, EXCEPTION, Failure, PAYLOAD_UNAVAILABLE, SIZE_EXCEEDED};
use crate::work::heart::{Beaten, Heart};
use crate::work::job::{Held, Job, Stopping};
use crate::work::reporter::Reporter;
use crate::work::worker::{Phase, closes};

/// A handler hears that its lease is about to go by this part of it earlier, or by a second.
const WARNING_PART: u32 = 6;
const LONGEST_WARNING: Duration = Duration::from_secs(1);

/// Tries of a report when the worker's time is over; then the lease must run out.
const LAST_TRIES: u32 = 5;

/// What a handler leaves: a result to commit, or why there is none.
pub(crate) type Done = Result<Option<Payload>, Failure>;

/// A handler, whatever its types were.
pub(crate) type Run = Arc<dyn Fn(Job) -> Pin<Box<dyn Future<Output = Done> + Send>> + Send + Sync>;

/// Whoever keeps a job, with all it needs for that.
#[derive(Clone)]
pub(crate) struct Keeper {
    pub(crate) client: Client,
    pub(crate) reporter: Reporter,
    pub(crate) run: Run,
    /// As it was asked for: a heartbeat that does not say so gets the lifecycle's own.
    pub(crate) lease: Option<Duration>,
    /// How long a handler may go on when it was asked to stop.
    pub(crate) grace: Duration,
}

/// How it came to an end.
enum End {
    Report(Verdict),
    /// There is nothing to report, and nobody to report to.
    Lost(String),
}

/// What happened next to a job that runs.
enum Next {
    Ended(Result<Done, JoinError>),
    Beaten(Beaten),
    Phase,
    /// The lease is about to run out.
    Warning,
    Gone,
    /// Asked to stop, and still there.
    Overtime,
}

/// Stops its task when it is dropped, however that comes.
struct Running(JoinHandle<Done>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Keeper {
    pub(crate) async fn keep(self, leased: Leased, received: Instant, mut phases: watch::Receiver<Phase>) {
        let held = Arc::new(Held::new(&leased, self.reporter.clone(), received));
        // It goes on until the report is made: one that is slow, or is turned away for now, must not cost the lease.
        let mut heart = Heart::new(&held, self.lease);
        let end = match self.begin(&leased, &held, &mut heart, &mut phases).await {
            Ok(payload) => self.run(leased, payload, &held, &mut heart, &mut phases).await,
            Err(end) => end,
        };
        match end {
            End::Report(verdict) => report(&held, verdict, &phases).await,
            End::Lost(why) => {
                tracing::warn!(execution = &*held.execution, why, "the lease is lost: the work was dropped");
            }
        }
    }

    /// All that comes before the handler. A job that has not begun when the worker closes is given back.
    async fn begin(
        &self,
        leased: &Leased,
        held: &Held,
        heart: &mut Heart,
        phases: &mut watch::Receiver<Phase>,
    ) -> Result<Option<Payload>, End> {
        let begins = async {
            // Found again by its key, long after it began: whether it lasts must be known before anything is started.
            if heart.is_late {
                match heart.next().await {
                    Beaten::Kept { stop: false } => {}
                    Beaten::Kept { stop: true } => return Err(End::Report(Verdict::Yield)),
                    Beaten::Not(error) => return Err(End::Lost(error.to_string())),
                }
            }
            self.payload(leased, held).await.map_err(|error| {
                tracing::warn!(execution = &*held.execution, %error, "cannot fetch the payload");
                End::Report(without_payload(&error))
            })
        };
        tokio::select! {
            biased;
            () = closes(phases) => Err(End::Report(Verdict::Yield)),
            begun = begins => begun,
        }
    }

    async fn payload(&self, leased: &Leased, held: &Held) -> Result<Option<Payload>, ClientError> {
        if !leased.is_payload_elsewhere() {
            return Ok(leased.payload());
        }
        // Half of the lease is enough for any payload, or the next attempt may have better luck.
        let most = held.length / 2;
        match tokio::time::timeout(most, self.fetch(leased)).await {
            Ok(fetched) => fetched.map(Some),
            Err(_) => Err(ClientError::TimedOut { server: self.client.server(), after: most }),
        }
    }

    /// The bytes of the lease's hash, and no others: whatever stands between the server's disk and here may have harmed them.
    async fn fetch(&self, leased: &Leased) -> Result<Payload, ClientError> {
        let mut backoff = Backoff::default();
        for is_last in [false, true] {
            let Some(bytes) = self.client.payload_bytes(leased.record.id).await? else {
                return Err(self.client.not_understood(&"the job has a payload, and it is not there"));
            };
            if leased.record.payload.as_ref().is_none_or(|mark| mark.is_of(&bytes)) {
                return Ok(Payload::found(bytes));
            }
            if !is_last {
                tokio::time::sleep(backoff.pause()).await;
            }
        }
        Err(self.client.not_understood(&"the payload is not that of the job's hash"))
    }

    async fn run(
        &self,
        leased: Leased,
        payload: Option<Payload>,
        held: &Arc<Held>,
        heart: &mut Heart,
        phases: &mut watch::Receiver<Phase>,
    ) -> End {
        let (stop, stopped) = watch::channel(None);
        let job = Job {
            record: Arc::new(leased.record),
            execution: Arc::clone(&held.execution),
            token: held.token,
            traceparent: leased.traceparent.map(Into::into),
            payload,
            held: Arc::clone(held),
            stop: stopped,
        };
        let run = Arc::clone(&self.run);
        // In a task of its own, and called there: one that panics has its failure reported.
        let mut task = Running(tokio::spawn(async move { run(job).await }));
        let warning = (held.length / WARNING_PART).min(LONGEST_WARNING);
        let mut overtime = None;
        loop {
            let is_warned = *stop.borrow() == Some(Stopping::Lost);
            let edge = if is_warned { held.gone() } else { held.gone() - warning };
            let next = tokio::select! {
                biased;
                ended = &mut task.0 => Next::Ended(ended),
                beaten = heart.next() => Next::Beaten(beaten),
                changed = phases.changed() => if changed.is_ok() { Next::Phase } else { Next::Overtime },
                () = tokio::time::sleep_until(edge) => if is_warned { Next::Gone } else { Next::Warning },
                () = until(overtime) => Next::Overtime,
            };
            match next {
                Next::Ended(ended) => return End::Report(verdict(held, ended)),
                Next::Beaten(Beaten::Kept { stop: says_stop }) => {
                    if says_stop && overtime.is_none() {
                        overtime = Some(Instant::now() + self.grace);
                        tell(&stop, Stopping::Asked);
                    }
                }
                Next::Beaten(Beaten::Not(error)) => {
                    tell(&stop, Stopping::Lost);
                    return End::Lost(error.to_string());
                }
                Next::Phase => match *phases.borrow_and_update() {
                    Phase::Working => {}
                    Phase::Closing => {
                        tell(&stop, Stopping::Closing);
                    }
                    Phase::Over => return End::Report(given_back(held)),
                },
                Next::Warning => {
                    tell(&stop, Stopping::Lost);
                }
                Next::Gone => return End::Lost("no heartbeat was answered in time".to_owned()),
                Next::Overtime => return End::Report(given_back(held)),
            }
        }
    }
}

fn verdict(held: &Held, ended: Result<Done, JoinError>) -> Verdict {
    match ended {
        _ if held.is_committed() => Verdict::Finish,
        Ok(Ok(result)) => Verdict::Commit { result, finish: true },
        Ok(Err(failure)) if failure.is_yield() => Verdict::Yield,
        Ok(Err(failure)) => Verdict::Fail(failure.cleaned()),
        // As when a process dies: the next attempt may go better, and the lifecycle bounds how many there are. What the panic says
        // may quote a payload, so the record does not keep it.
        Err(_) => Verdict::Fail(Failure::retryable(EXCEPTION, "the handler panicked").cleaned()),
    }
}

/// A server that is away or busy is no fault of the job's: it is given back. What is not there, is harmed, or breaks off each time
/// would be so for whoever has it next, too: that is a failure, which the lifecycle's patience bounds.
fn without_payload(error: &ClientError) -> Verdict {
    let is_for_now = match error {
        ClientError::Unreachable { unheard, .. } => *unheard,
        ClientError::Problem(_) => error.may_pass(),
        _ => false,
    };
    if is_for_now {
        return Verdict::Yield;
    }
    Verdict::Fail(Failure::retryable(PAYLOAD_UNAVAILABLE, error.to_string()).cleaned())
}

/// The worse reason stays.
fn tell(stop: &watch::Sender<Option<Stopping>>, why: Stopping) {
    stop.send_if_modified(|told| {
        let is_news = *told < Some(why);
        if is_news {
            *told = Some(why);
        }
        is_news
    });
}

/// What is committed is not given back.
fn given_back(held: &Held) -> Verdict {
    if held.is_committed() { Verdict::Finish } else { Verdict::Yield }
}

/// Never, where there is no such time.
pub(crate) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn report(held: &Held, mut verdict: Verdict, phases: &watch::Receiver<Phase>) {
    let mut last_tries = LAST_TRIES;
    let mut may_go_on = || {
        if *phases.borrow() == Phase::Over {
            last_tries = last_tries.saturating_sub(1);
        }
        last_tries > 0
    };
    let execution = &*held.execution;
    for _ in 0..2 {
        let Err(error) = held.report(verdict.clone(), &mut may_go_on).await else {
            tracing::info!(execution, report = verdict.name(), "reported");
            return;
        };
        let report = verdict.name();
        if let Some(other) = instead(&verdict, &error) {
            tracing::warn!(execution, report, %error, "will never be taken: the job fails");
            verdict = other;
        } else if matches!(error.code(), Some("already_committed" | "lease_lost")) {
            // Somebody else had it, too, and was quicker. Nothing is wrong.
            tracing::info!(execution, report, %error, "not ours any more");
            return;
        } else {
            tracing::warn!(execution, report, %error, "the report was not taken");
            return;
        }
    }
}

/// What to report where a report will never be taken: the job fails, which would else run until its lease ends, and again.
fn instead(verdict: &Verdict, error: &ClientError) -> Option<Verdict> {
    if !matches!(verdict, Verdict::Commit { .. }) {
        return None;
    }
    let failure = match error {
        ClientError::Problem(problem) => match problem.status {
            413 => Failure::terminal(SIZE_EXCEEDED, problem.text()),
            400 | 422 => Failure::terminal(BAD_RESULT, problem.text()),
            500.. if !error.may_pass() => Failure::retryable(&problem.code, problem.text()),
            _ => return None,
        },
        ClientError::BadCall(reason) => Failure::terminal(BAD_RESULT, reason),
        _ => return None,
    };
    Some(Verdict::Fail(failure.cleaned()))
}
