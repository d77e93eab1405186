//! One job from its lease to its report.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

use crate::client::Client;
use crate::error::ClientError;
use crate::payload::Payload;
use crate::reports::Verdict;
use crate::shape::{Leased, Reported};
use crate::wire::Backoff;
use crate::work::failure::Failure;
use crate::work::job::{Held, Job, SHORTEST_WAIT, Stopping};
use crate::work::reporter::{Reporter, answered};
use crate::work::worker::Phase;

/// A lease is kept by so many heartbeats.
const BEATS: u32 = 3;

/// No heart beats faster than this.
const FASTEST: Duration = Duration::from_millis(20);

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
    /// Its heart must beat.
    Beat,
    /// The answer to a heartbeat: whether to stop.
    Beaten(Result<bool, ClientError>),
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
    pub(crate) async fn keep(self, leased: Leased, received: Instant, mut heard: watch::Receiver<Phase>) {
        let held = Arc::new(Held::new(&leased, self.reporter.clone(), received));
        let fetched = tokio::select! {
            biased;
            fetched = self.payload(&leased, &held) => fetched,
            // Not begun, so nothing is lost by giving it back.
            () = closes(&heard) => return report(&held, Verdict::Yield, &heard).await,
        };
        let end = match fetched {
            Ok(payload) => self.run(leased, payload, &held, &mut heard).await,
            Err(error) => {
                tracing::warn!(execution = &*held.execution, %error, "cannot fetch the payload: given back");
                End::Report(Verdict::Yield)
            }
        };
        match end {
            End::Report(verdict) => tokio::select! {
                biased;
                () = report(&held, verdict, &heard) => {}
                () = self.beat_on(&held) => {}
            },
            End::Lost(why) => {
                tracing::warn!(execution = &*held.execution, why, "the lease is lost: the work was dropped");
            }
        }
    }

    /// Keeps the lease while the result is on its way, which a server in trouble may turn away for longer than is left of it. Never ends.
    async fn beat_on(&self, held: &Held) {
        let beat = (held.length / BEATS).max(FASTEST);
        let mut backoff = Backoff::default();
        let mut next = (held.gone() + beat).checked_sub(held.length).unwrap_or_else(Instant::now);
        loop {
            tokio::time::sleep_until(next).await;
            let sent = Instant::now();
            let heartbeat = held.about(Verdict::Heartbeat { lease: self.lease });
            next = match self.reporter.file(heartbeat, Some(beat.max(SHORTEST_WAIT))).await {
                Ok(_) => {
                    backoff.reset();
                    held.prolong(sent);
                    sent + beat
                }
                // The report has come first, or it will hear the same.
                Err(error) if is_lost(&error) => return std::future::pending().await,
                Err(error) => Instant::now() + error.retry_after().unwrap_or_else(|| backoff.pause()).min(beat),
            };
        }
    }

    async fn payload(&self, leased: &Leased, held: &Held) -> Result<Option<Payload>, ClientError> {
        if !leased.is_payload_elsewhere() {
            return Ok(leased.payload());
        }
        // No heart beats meanwhile: half of the lease is enough for any payload, or the next attempt may have better luck.
        let most = held.length / 2;
        match tokio::time::timeout(most, self.client.payload(leased.record.id)).await {
            Ok(Ok(None)) => Err(self.client.not_understood(&"the job has a payload, and it is not there")),
            Ok(fetched) => fetched,
            Err(_) => Err(ClientError::TimedOut { server: self.client.server(), after: most }),
        }
    }

    async fn run(
        &self,
        leased: Leased,
        payload: Option<Payload>,
        held: &Arc<Held>,
        heard: &mut watch::Receiver<Phase>,
    ) -> End {
        let is_closing = *heard.borrow_and_update() != Phase::Working;
        let (stop, stopped) = watch::channel(is_closing.then_some(Stopping::Closing));
        let job = Job {
            record: Arc::new(leased.record),
            execution: Arc::clone(&held.execution),
            token: held.token,
            traceparent: held.traceparent.clone(),
            payload,
            held: Arc::clone(held),
            stop: stopped,
        };
        let run = Arc::clone(&self.run);
        // In a task of its own, and called there: one that panics has its failure reported.
        let mut task = Running(tokio::spawn(async move { run(job).await }));
        let beat = (held.length / BEATS).max(FASTEST);
        let warning = (held.length / WARNING_PART).min(LONGEST_WARNING);
        // One that was found again has less time left: its heart beats at once.
        let mut next_beat = (held.gone() + beat).checked_sub(held.length).unwrap_or_else(Instant::now);
        let beats = || Verdict::Heartbeat { lease: self.lease };
        let mut backoff = Backoff::default();
        let (mut beating, mut sent, mut overtime) = (None, Instant::now(), None);
        loop {
            let is_warned = *stop.borrow() == Some(Stopping::Lost);
            let edge = if is_warned { held.gone() } else { held.gone() - warning };
            let next = tokio::select! {
                biased;
                ended = &mut task.0 => Next::Ended(ended),
                beaten = pulse(&mut beating) => Next::Beaten(beaten),
                changed = heard.changed() => if changed.is_ok() { Next::Phase } else { Next::Overtime },
                () = tokio::time::sleep_until(edge) => if is_warned { Next::Gone } else { Next::Warning },
                () = tokio::time::sleep_until(next_beat), if beating.is_none() => Next::Beat,
                () = until(overtime) => Next::Overtime,
            };
            match next {
                Next::Ended(ended) => return End::Report(verdict(held, ended)),
                Next::Beat => {
                    sent = Instant::now();
                    beating = Some(self.reporter.hand_in(held.about(beats()), Some(beat.max(SHORTEST_WAIT))));
                }
                Next::Beaten(Ok(says_stop)) => {
                    beating = None;
                    backoff.reset();
                    held.prolong(sent);
                    next_beat = sent + beat;
                    if says_stop && overtime.is_none() {
                        overtime = Some(Instant::now() + self.grace);
                        tell(&stop, Stopping::Asked);
                    }
                }
                Next::Beaten(Err(error)) => {
                    beating = None;
                    if is_lost(&error) {
                        tell(&stop, Stopping::Lost);
                        return End::Lost(error.to_string());
                    }
                    // Not a whole beat later: two of those, and the lease has run out.
                    let pause = error.retry_after().unwrap_or_else(|| backoff.pause());
                    next_beat = Instant::now() + pause.min(beat);
                }
                Next::Phase => match *heard.borrow_and_update() {
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

/// Comes when the worker takes no more jobs.
async fn closes(heard: &watch::Receiver<Phase>) {
    // Its sender lives as long as the worker's loop, which waits for this.
    let _ = heard.clone().wait_for(|phase| *phase != Phase::Working).await;
}

fn verdict(held: &Held, ended: Result<Done, JoinError>) -> Verdict {
    match ended {
        _ if held.is_committed() => Verdict::Finish,
        Ok(Ok(result)) => Verdict::Commit { result, finish: true },
        Ok(Err(failure)) if failure.is_yield() => Verdict::Yield,
        Ok(Err(failure)) => Verdict::Fail(failure.cleaned()),
        // As when a process dies: the next attempt may go better, and the lifecycle bounds how many there are.
        Err(panic) => Verdict::Fail(Failure::retryable("panicked", panic.to_string()).cleaned()),
    }
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

/// The answer to the heartbeat that is on its way.
async fn pulse(beating: &mut Option<oneshot::Receiver<Result<Reported, ClientError>>>) -> Result<bool, ClientError> {
    match beating {
        Some(beating) => answered(beating.await).map(|reported| reported.stop),
        None => std::future::pending().await,
    }
}

/// Never, where there is no such time.
pub(crate) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// The server knows this lease no more, or us.
fn is_lost(error: &ClientError) -> bool {
    error.problem().is_some_and(|problem| problem.status < 500 && !error.may_pass())
}

async fn report(held: &Held, mut verdict: Verdict, heard: &watch::Receiver<Phase>) {
    let mut last_tries = LAST_TRIES;
    let mut may_go_on = || {
        if *heard.borrow() == Phase::Over {
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
            413 => Failure::terminal("SIZE_EXCEEDED", problem.text()),
            400 | 422 => Failure::terminal("bad_result", problem.text()),
            500.. if !error.may_pass() => Failure::retryable(&problem.code, problem.text()),
            _ => return None,
        },
        ClientError::BadCall(reason) => Failure::terminal("bad_result", reason),
        _ => return None,
    };
    Some(Verdict::Fail(failure.cleaned()))
}
