//! Letters that users' own transactions left in the database: carried out like any other call, once for each key.
//!
//! A letter is answered in the table after its operation is durable. Should the process die in between, the letter comes
//! again, and its key says that it was carried out. One whose answer takes long holds up no other: each is written down when it
//! is there.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use onceward_core::value::RecordId;
use onceward_store::{Letter, LetterAnswer, Refused, Store, StoreError};
use tokio::sync::watch;
use tracing::warn;

use crate::complaint::Complaint;
use crate::error::EngineError;
use crate::queue::{Reply, Submission};
use crate::shared::Shared;

/// Letters on their way at once.
const AT_ONCE: usize = 500;

/// Of a refusal that says that the same may be taken later: a check that has no answer now.
const TRY_AGAIN: u16 = 503;

pub(crate) async fn run<S: Store>(shared: Arc<Shared<S>>, mut news: watch::Receiver<u64>) {
    let mut post = Post::new(&shared);
    while !shared.queue.is_closed() {
        news.borrow_and_update();
        let taken = post.take().await;
        post.tell("the inbox cannot be read", taken);
        tokio::select! {
            settled = post.settled(), if !post.is_empty() => post.write(settled).await,
            // Also where there is no room: whoever poses a question has its time, and then an answer.
            _ = tokio::time::timeout(shared.config.poll, news.changed()) => {}
        }
    }
    // What was taken on is answered before the end.
    while !post.is_empty() {
        let settled = post.settled().await;
        post.write(settled).await;
    }
}

type Answering<'a> = Pin<Box<dyn Future<Output = (i64, Reply)> + Send + 'a>>;

/// Letters that were taken and are not answered.
struct Post<'a, S> {
    shared: &'a Shared<S>,
    numbers: HashSet<i64>,
    answers: FuturesUnordered<Answering<'a>>,
    complaint: Complaint,
}

impl<'a, S: Store> Post<'a, S> {
    fn new(shared: &'a Shared<S>) -> Self {
        let (numbers, answers) = (HashSet::new(), FuturesUnordered::new());
        Self { shared, numbers, answers, complaint: Complaint::default() }
    }

    fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// As many as there is room for.
    async fn take(&mut self) -> Result<(), EngineError> {
        let shared = self.shared;
        let room = AT_ONCE.min(shared.config.batch).min(shared.config.queue).saturating_sub(self.answers.len());
        if room == 0 {
            return Ok(());
        }
        let mut letters = shared.store.letters(room).await?;
        // One that takes very long is to be had again: it is under way here, and by its key would only wait for itself.
        letters.retain(|letter| !self.numbers.contains(&letter.number));
        if letters.is_empty() {
            return Ok(());
        }
        let numbers: Vec<i64> = letters.iter().map(|letter| letter.number).collect();
        let calls = letters.into_iter().map(|Letter { actor, key, call, .. }| Submission::new(&actor, call).once(&key));
        for (number, answer) in numbers.into_iter().zip(shared.queue.enter_own(calls.collect()).await?) {
            self.numbers.insert(number);
            self.answers.push(Box::pin(async move { (number, shared.queue.answered(answer).await) }));
        }
        Ok(())
    }

    /// Waits for one, and takes along those that are there.
    async fn settled(&mut self) -> Vec<(i64, Reply)> {
        let mut settled: Vec<(i64, Reply)> = self.answers.next().await.into_iter().collect();
        while let Some(Some(more)) = self.answers.next().now_or_never() {
            settled.push(more);
        }
        settled
    }

    async fn write(&mut self, settled: Vec<(i64, Reply)>) {
        let mut answers = Vec::with_capacity(settled.len());
        for (number, reply) in settled {
            self.numbers.remove(&number);
            // One that is left for another try is to be had again when the time of whoever took it is over, and not before.
            answers.extend(outcome(reply).map(|outcome| LetterAnswer { number, outcome }));
        }
        if !answers.is_empty() {
            let written = self.shared.store.answer_letters(&answers).await.map_err(EngineError::from);
            self.tell("answers cannot be written into the inbox", written);
        }
    }

    fn tell(&mut self, what: &'static str, done: Result<(), EngineError>) {
        match done {
            Ok(()) => self.complaint.is_over(),
            Err(error) if error.is_the_end() => {}
            Err(error) => {
                if self.complaint.is_new(error.code()) {
                    warn!(code = error.code(), "{what}");
                }
            }
        }
    }
}

/// What to write into the table; nothing where it is worth another try.
fn outcome(reply: Reply) -> Option<Result<RecordId, Refused>> {
    let error = match reply {
        Ok(answer) => return Some(Ok(answer.subject)),
        Err(error) => error,
    };
    // A letter waits longer than a caller would: for a database to be mended, or for a lifecycle to be brought.
    let may_be_mended = matches!(&error, EngineError::Store(store) if !matches!(**store, StoreError::Rejected(_)));
    let says_so = error.refusal().is_some_and(|refusal| refusal.status == TRY_AGAIN);
    let passes = error.may_pass() || error.is_the_end() || may_be_mended || says_so;
    if passes {
        return None;
    }
    let reason = error.refusal().map_or_else(|| error.to_string(), |refusal| refusal.reason.clone());
    Some(Err(Refused { status: error.status(), code: error.code().to_owned(), reason }))
}
