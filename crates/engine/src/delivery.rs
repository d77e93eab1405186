//! Messages to the outside: what lifecycles `deliver` is posted, in order for each record, until it is acknowledged or dead.
//!
//! A delivery is a job like any other, of the built-in lifecycle `onceward.delivery`: its lease, its retries, its budget and
//! its end stand in that file. What is here takes such jobs and posts them.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::ErrorReport;
use onceward_core::record::{Actor, Record};
use onceward_core::time::Duration as Span;
use onceward_store::Store;
use serde_json::json;

use crate::engine::Engine;
use crate::working::{Done, Job, Worker, Working};

/// The built-in lifecycle.
pub const DELIVERY: &str = "onceward.delivery";

/// A receiver that asks for a longer wait is asked again after so long.
const LONGEST_WAIT: Duration = Duration::from_hours(1);

/// One message, as it is posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where to.
    pub to: Arc<str>,
    /// EXE-16: the same at every try, so that the receiver can tell a repeated message from a new one.
    pub key: Arc<str>,
    /// The record that it comes from.
    pub source: Arc<str>,
    /// Which try this is, from 1.
    pub attempt: u64,
    pub body: Arc<[u8]>,
}

/// What the receiver answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// As HTTP numbers it.
    pub status: u16,
    /// How long it asks to be left alone.
    pub retry_after: Option<Duration>,
}

/// Why a message had no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPosted {
    /// Trying again may help. The receiver may have got it.
    #[error("{0}")]
    NotNow(String),
    /// It cannot be posted to such an address, ever.
    #[error("{0}")]
    Never(String),
}

/// Something that carries messages out. It must come back in bounded time, with a bounded answer.
pub trait Post: Send + Sync + 'static {
    fn post(&self, message: Message) -> impl Future<Output = Result<Posted, NotPosted>> + Send;
}

impl<S: Store + 'static> Engine<S> {
    /// Post what lifecycles deliver, so many messages at once. Messages of one record go one after the other.
    pub fn deliver(&self, post: impl Post, at_once: usize) -> Worker {
        let working = Working { at_once, actor: Actor::new(DELIVERY, &["worker"]), ..Working::on(DELIVERY) };
        let post = Arc::new(post);
        self.work(working, move |job| {
            let post = Arc::clone(&post);
            async move { done(post.post(message(&job)).await) }
        })
    }
}

/// Whether a record is a message that was given up.
pub(crate) fn is_dead(record: &Record) -> bool {
    *record.lifecycle.name == *DELIVERY && **record.state_name() == *"dead"
}

fn message(job: &Job) -> Message {
    let text = |name: &str| -> Arc<str> { job.field(name).as_str().unwrap_or_default().into() };
    let body = job.payload.clone().unwrap_or_default();
    let key = job.record.id.to_string().into();
    Message { to: text("to"), key, source: text("source"), attempt: job.record.attempt, body }
}

/// 2xx acknowledges. 410 says that nobody will ever be there. Anything else may pass: receivers are restarted, put behind the
/// wrong door and brought back.
fn done(posted: Result<Posted, NotPosted>) -> Done {
    let failed = |retryable, code: &str, message: &str, retry_after: Option<Duration>| {
        let retry_after = retry_after.map(|wait| wait.min(LONGEST_WAIT).as_secs());
        let retry_after = retry_after.map(|seconds| Span::from_secs(i64::try_from(seconds).unwrap_or(0)));
        ErrorReport { retryable: Some(retryable), retry_after, ..ErrorReport::new(code, message) }
    };
    match posted {
        Ok(Posted { status: status @ 200..=299, .. }) => Ok(json!({ "status": status })),
        Ok(Posted { status, retry_after }) => {
            let message = format!("the receiver answered {status}");
            Err(failed(status != 410, "not_acknowledged", &message, retry_after))
        }
        Err(NotPosted::NotNow(why)) => Err(failed(true, "unreachable", &why, None)),
        Err(NotPosted::Never(why)) => Err(failed(false, "bad_address", &why, None)),
    }
}
