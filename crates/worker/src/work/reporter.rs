//! Reports go together: one alone is sent at once; those that come while others are on their way share the next question.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, oneshot};

use crate::client::Client;
use crate::error::ClientError;
use crate::reports::Report;
use crate::shape::{Outcome, Reported};
use crate::work::heart::Hearts;

/// Questions on their way at once; heartbeats have as many of their own, so that slow commits do not hold them up.
const LINES: usize = 2;

/// In one question: well below what a server takes.
const MOST: usize = 100;

/// Bytes of one question that has more than one report.
const HEAVIEST: usize = 1 << 20;

type Answer = Result<Reported, ClientError>;

#[derive(Debug)]
struct Filed {
    report: Report,
    /// For the answer, where it is of no use later.
    within: Option<Duration>,
    answer: oneshot::Sender<Answer>,
}

/// The way to report. Those who wait in it are those who hold jobs, so it is bounded by them.
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    reports: mpsc::UnboundedSender<Filed>,
    beats: mpsc::UnboundedSender<Filed>,
    pub(crate) hearts: Hearts,
}

#[derive(Debug)]
struct Tray {
    incoming: mpsc::UnboundedReceiver<Filed>,
    /// Did not fit into the question before.
    left: Option<Filed>,
}

impl Reporter {
    pub(crate) fn start(client: &Client) -> Self {
        let hearts = Hearts::start();
        let beats = lines(&client.apart(), |carrying| drop(hearts.spawn(carrying)));
        Self { reports: lines(client, |carrying| drop(tokio::spawn(carrying))), beats, hearts }
    }

    /// On its way; the answer comes by itself.
    pub(crate) fn hand_in(&self, report: Report) -> oneshot::Receiver<Answer> {
        let (answer, answered) = oneshot::channel();
        // When nobody carries it any more, the answer is dropped with it.
        let _ = self.reports.send(Filed { report, within: None, answer });
        answered
    }

    /// A heartbeat. One that is not answered within this time is given up, so that there is time for another.
    pub(crate) fn beat(&self, report: Report, within: Duration) -> oneshot::Receiver<Answer> {
        let (answer, answered) = oneshot::channel();
        let _ = self.beats.send(Filed { report, within: Some(within), answer });
        answered
    }

    pub(crate) async fn file(&self, report: Report) -> Answer {
        answered(self.hand_in(report).await)
    }
}

fn lines(client: &Client, start: impl Fn(Carrying)) -> mpsc::UnboundedSender<Filed> {
    let (sender, incoming) = mpsc::unbounded_channel();
    let tray = Arc::new(Mutex::new(Tray { incoming, left: None }));
    for _ in 0..LINES {
        start(Box::pin(carry(client.clone(), Arc::clone(&tray))));
    }
    sender
}

type Carrying = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The carriers end only with their runtime.
pub(crate) fn answered(answer: Result<Answer, oneshot::error::RecvError>) -> Answer {
    answer.unwrap_or_else(|_| Err(ClientError::BadCall("the program ends".to_owned())))
}

async fn carry(client: Client, tray: Arc<Mutex<Tray>>) {
    loop {
        let mut load = Vec::new();
        {
            let mut tray = tray.lock().await;
            let first = match tray.left.take() {
                Some(left) => left,
                None => match tray.incoming.recv().await {
                    Some(first) => first,
                    None => return,
                },
            };
            let mut weight = first.report.weight();
            load.push(first);
            while load.len() < MOST
                && let Ok(next) = tray.incoming.try_recv()
            {
                weight += next.report.weight();
                if weight > HEAVIEST {
                    tray.left = Some(next);
                    break;
                }
                load.push(next);
            }
        }
        let mut patience = client.patience;
        if let Some(within) = load.iter().filter_map(|filed| filed.within).min() {
            patience.answer = patience.answer.min(within);
        }
        send(&client.with(patience), load).await;
    }
}

async fn send(client: &Client, load: Vec<Filed>) {
    let reports: Vec<&Report> = load.iter().map(|filed| &filed.report).collect();
    match client.report_once(&reports).await {
        Ok(results) if results.len() == load.len() => {
            for (filed, outcome) in load.into_iter().zip(results) {
                let answer = match outcome {
                    Outcome::Done(reported) => Ok(reported),
                    Outcome::Refused(problem) => Err(ClientError::Problem(Box::new(problem))),
                };
                // Whoever reported may have gone away.
                let _ = filed.answer.send(answer);
            }
        }
        Ok(results) => {
            let error = client.not_understood(&format!("{} answers to {} reports", results.len(), load.len()));
            fail(load, &error);
        }
        // One of them may be to blame: the others need not share its fate.
        Err(error @ ClientError::Problem(_)) if load.len() > 1 && !error.may_pass() => {
            for filed in load {
                let answer = match client.report_once(&[&filed.report]).await.map(|mut one| one.pop()) {
                    Ok(Some(Outcome::Done(reported))) => Ok(reported),
                    Ok(Some(Outcome::Refused(problem))) => Err(ClientError::Problem(Box::new(problem))),
                    Ok(None) => Err(error.clone()),
                    Err(error) => Err(error),
                };
                let _ = filed.answer.send(answer);
            }
        }
        Err(error) => fail(load, &error),
    }
}

fn fail(load: Vec<Filed>, error: &ClientError) {
    for filed in load {
        let _ = filed.answer.send(Err(error.clone()));
    }
}
