//! Letters that users' own transactions left in the database: carried out like any other call, once for each key.
//!
//! A letter is answered in the table after its operation is durable. Should the process die in between, the letter comes
//! again, and its key says that it was carried out.

use std::sync::Arc;

use onceward_core::value::RecordId;
use onceward_store::{Letter, LetterAnswer, Refused, Store, StoreError};
use tokio::sync::watch;

use crate::error::EngineError;
use crate::queue::{Reply, Submission};
use crate::shared::Shared;

/// Letters in one go.
const AT_ONCE: usize = 500;

pub(crate) async fn run<S: Store>(shared: Arc<Shared<S>>, mut news: watch::Receiver<u64>) {
    while !shared.queue.is_closed() {
        news.borrow_and_update();
        match round(&shared).await {
            Ok(0) | Err(_) => {
                let _ = tokio::time::timeout(shared.config.poll, news.changed()).await;
            }
            Ok(_) => {}
        }
    }
}

/// How many were answered.
async fn round<S: Store>(shared: &Shared<S>) -> Result<usize, EngineError> {
    let letters = shared.store.letters(AT_ONCE.min(shared.config.batch).min(shared.config.queue)).await?;
    if letters.is_empty() {
        return Ok(0);
    }
    let numbers: Vec<i64> = letters.iter().map(|letter| letter.number).collect();
    let calls = letters.into_iter().map(|Letter { actor, key, call, .. }| Submission::new(&actor, call).once(&key));
    let mut answers = Vec::new();
    for (number, answer) in numbers.into_iter().zip(shared.queue.enter_own(calls.collect()).await?) {
        let reply = shared.queue.answered(answer).await;
        answers.extend(outcome(reply).map(|outcome| LetterAnswer { number, outcome }));
    }
    if !answers.is_empty() {
        shared.store.answer_letters(&answers).await?;
    }
    Ok(answers.len())
}

/// What to write into the table; nothing where it is worth another try.
fn outcome(reply: Reply) -> Option<Result<RecordId, Refused>> {
    let error = match reply {
        Ok(answer) => return Some(Ok(answer.subject)),
        Err(error) => error,
    };
    // A letter waits longer than a caller would: for a database to be mended, or for a lifecycle to be brought.
    let may_be_mended = matches!(&error, EngineError::Store(store) if !matches!(**store, StoreError::Rejected(_)));
    let passes = error.may_pass() || error.is_the_end() || may_be_mended;
    if passes {
        return None;
    }
    let reason = error.refusal().map_or_else(|| error.to_string(), |refusal| refusal.reason.clone());
    Some(Err(Refused { status: error.status(), code: error.code().to_owned(), reason }))
}
