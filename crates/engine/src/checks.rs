//! Questions to the outside: put before an operation is decided, bounded in time and number.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use onceward_core::decide::{Answer, Question, Refusal};
use onceward_store::Store;
use serde_json::{Map, Value as Json};
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::batch;
use crate::complaint::Complaint;
use crate::error::EngineError;
use crate::queue::Request;
use crate::shared::Shared;

/// Answers that one operation may need. A lifecycle file cannot name more checks; each turn answers at least one.
const ANSWERS: usize = 100;

/// A question with the bytes that it is about.
#[derive(Clone, Debug)]
pub struct Asked {
    pub question: Question,
    /// Of the record's payload, where the check asks for it.
    pub content: Option<Arc<[u8]>>,
}

/// Why there is no answer; for the operator, not for the caller. It is logged, so it must say nothing of what was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unanswered(pub String);

type Given = Result<Map<String, Json>, Unanswered>;
type Answering = Arc<dyn Fn(Asked) -> Pin<Box<dyn Future<Output = Given> + Send>> + Send + Sync>;

/// Who answers which check of which lifecycle.
#[derive(Clone, Default)]
pub struct Checks {
    answering: HashMap<CheckName, Answering>,
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.answering.keys()).finish()
    }
}

impl Checks {
    /// Whether somebody answers a check.
    pub fn has(&self, lifecycle: &str, check: &str) -> bool {
        self.answering.contains_key(&(lifecycle.into(), check.into()))
    }

    /// Let `answer` answer the check `check` of `lifecycle`. It may be asked again for the same operation, since others may
    /// change the record meanwhile.
    pub fn on<F>(mut self, lifecycle: &str, check: &str, answer: impl Fn(Asked) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Given> + Send + 'static,
    {
        let answering: Answering = Arc::new(move |asked| Box::pin(answer(asked)));
        self.answering.insert((lifecycle.into(), check.into()), answering);
        self
    }
}

/// Put the questions, and let the operation come back with the answers; it keeps its place in the queue.
pub(crate) fn ask<S: Store + 'static>(shared: Arc<Shared<S>>, mut request: Request, questions: Vec<Question>) {
    tokio::spawn(async move {
        for question in questions {
            if request.operation.answers.len() >= ANSWERS {
                return batch::answer(&shared, request, Err(EngineError::Undecided), Instant::now());
            }
            match put(&shared, &request, &question).await {
                Ok(Ok(answer)) => {
                    shared.unheard.is_over(&question);
                    let Question { lifecycle, check, arguments, payload } = question;
                    request.operation.answers.push(Answer { lifecycle, check, arguments, payload, answer });
                }
                Err(error) => return batch::answer(&shared, request, Err(error), Instant::now()),
                Ok(Err(why)) => {
                    shared.unheard.tell(&question, &why);
                    let refusal = unavailable(&question);
                    shared.counted.refused(refusal.lifecycle.as_ref(), &refusal.code);
                    let refused = Err(EngineError::Refused(Box::new(refusal)));
                    return batch::answer(&shared, request, refused, Instant::now());
                }
            }
        }
        shared.queue.again(request);
    });
}

/// Why a question has no answer.
enum Silence {
    Nobody,
    NoTurn,
    Late,
    Panicked,
    Said(Unanswered),
}

impl Silence {
    fn code(&self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::NoTurn => "no_turn",
            Self::Late => "late",
            Self::Panicked => "panicked",
            Self::Said(_) => "unanswered",
        }
    }

    /// DOC-15: a panic's own words may be about the payload.
    fn words(&self) -> &str {
        match self {
            Self::Nobody => "nobody answers it: `Config::checks` has none of this name",
            Self::NoTurn => "its turn did not come in time",
            Self::Late => "the answer took too long",
            Self::Panicked => "whoever answers it panicked",
            Self::Said(Unanswered(why)) => why,
        }
    }
}

/// Of which lifecycle, and its own.
type CheckName = (Arc<str>, Arc<str>);

/// Checks that have no answer, as far as it was told.
#[derive(Debug, Default)]
pub(crate) struct Unheard(Mutex<HashMap<CheckName, Complaint>>);

impl Unheard {
    fn tell(&self, Question { lifecycle, check, .. }: &Question, why: &Silence) {
        let mut unheard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let told = unheard.entry((Arc::clone(lifecycle), Arc::clone(check))).or_default();
        if told.is_new(why.code()) {
            warn!(%lifecycle, %check, code = why.code(), why = why.words(), "a check has no answer");
        }
    }

    fn is_over(&self, Question { lifecycle, check, .. }: &Question) {
        let mut unheard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !unheard.is_empty() {
            unheard.remove(&(Arc::clone(lifecycle), Arc::clone(check)));
        }
    }
}

type Heard = Result<Map<String, Json>, Silence>;

async fn put<S: Store>(shared: &Shared<S>, request: &Request, question: &Question) -> Result<Heard, EngineError> {
    let name = (Arc::clone(&question.lifecycle), Arc::clone(&question.check));
    let Some(answering) = shared.config.checks.answering.get(&name) else {
        return Ok(Err(Silence::Nobody));
    };
    let late = |_| Ok(Err(Silence::Late));
    let turn = timeout(shared.config.check_time, shared.asking.turn(&request.operation.actor.id)).await;
    let Ok(_turn) = turn else { return Ok(Err(Silence::NoTurn)) };
    timeout(shared.config.check_time, answered(shared, answering, request, question)).await.unwrap_or_else(late)
}

async fn answered<S: Store>(
    shared: &Shared<S>,
    answering: &Answering,
    request: &Request,
    question: &Question,
) -> Result<Heard, EngineError> {
    let content = match question.payload {
        None => None,
        Some(payload) => match request.contents.iter().find(|content| content.payload == payload) {
            Some(content) => Some(Arc::clone(&content.bytes)),
            None => shared.content(payload).await?,
        },
    };
    let asked = Asked { question: question.clone(), content };
    // In a task of its own, and called there: one that panics leaves its caller an answer.
    let answering = Arc::clone(answering);
    let answer = OnDrop(tokio::spawn(async move { answering(asked).await }));
    Ok(answer.await.map_or(Err(Silence::Panicked), |given| given.map_err(Silence::Said)))
}

/// A task that ends when nobody waits for it any more.
pub(crate) struct OnDrop<T>(pub(crate) tokio::task::JoinHandle<T>);

impl<T> Future for OnDrop<T> {
    type Output = Result<T, tokio::task::JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for OnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn unavailable(question: &Question) -> Refusal {
    Refusal {
        status: 503,
        code: "check_unavailable".into(),
        record: None,
        lifecycle: Some(Arc::clone(&question.lifecycle)),
        state: None,
        event: "check".into(),
        reason: format!("the check `{}` has no answer now; try again", question.check),
        audit: None,
        committed: None,
        retry_after: None,
        denial: false,
    }
}
