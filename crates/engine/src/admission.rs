//! What is turned away before anybody decides on it: calls that are too large, and bytes that are not what they are said to be.

use onceward_core::decide::Call;
use onceward_store::Content;
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

use crate::config::Config;
use crate::error::EngineError;
use crate::queue::Submission;

/// How deep what a call brings may be nested. Readers of JSON stop at 128, and the log and answers wrap it a few times.
const DEEPEST: usize = 100;

/// How much a call may bring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    input: usize,
    result: usize,
}

impl Bounds {
    pub(crate) fn of(config: &Config) -> Self {
        Self { input: config.input_bytes, result: config.result_bytes }
    }

    pub(crate) fn check(&self, submission: &Submission) -> Result<(), EngineError> {
        let most = if matches!(submission.call, Call::Commit { .. }) { self.result } else { self.input };
        if call_bytes(&submission.call) > most {
            return Err(EngineError::TooLarge { most });
        }
        if depth(&submission.call) > DEEPEST {
            return Err(EngineError::TooDeep { most: DEEPEST });
        }
        if let Some(once) = &submission.once {
            once.check()?;
        }
        submission.contents.iter().try_for_each(|content| named(&submission.call, content))
    }
}

/// What a submission keeps in memory while it is on its way, but for a fixed part.
pub(crate) fn weight(submission: &Submission) -> usize {
    let contents = submission.contents.iter().map(|content| content.bytes.len());
    contents.fold(call_bytes(&submission.call), usize::saturating_add)
}

/// The parts of a call that can be of any size.
fn call_bytes(call: &Call) -> usize {
    match call {
        Call::Create(create) => {
            let owner = create.owner.as_ref().map_or(0, |owner| owner.len());
            map_bytes(&create.fields) + create.lifecycle.len() + owner
        }
        Call::Fire { event, input, .. } => map_bytes(input) + event.len(),
        Call::Lease { worker, .. } => worker.len(),
        Call::Commit { result, .. } => json_bytes(result),
        Call::Move(moving) => {
            moving.to.len() + moving.states.iter().map(|(from, to)| from.len() + to.len() + 8).sum::<usize>()
        }
        Call::Fail { error, .. } => error.code.len() + error.message.len(),
        Call::Start { .. }
        | Call::Heartbeat { .. }
        | Call::Finish { .. }
        | Call::Yield { .. }
        | Call::Due { .. }
        | Call::Lost { .. } => 0,
    }
}

fn map_bytes(map: &Map<String, Json>) -> usize {
    map.iter().fold(0, |sum, (name, value)| sum.saturating_add(name.len() + 4).saturating_add(json_bytes(value)))
}

fn depth(call: &Call) -> usize {
    match call {
        Call::Create(create) => create.fields.values().map(levels).max().unwrap_or(0),
        Call::Fire { input, .. } => input.values().map(levels).max().unwrap_or(0),
        Call::Commit { result, .. } => levels(result),
        _ => 0,
    }
}

fn levels(value: &Json) -> usize {
    match value {
        Json::Array(items) => 1 + items.iter().map(levels).max().unwrap_or(0),
        Json::Object(map) => 1 + map.values().map(levels).max().unwrap_or(0),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => 0,
    }
}

/// About as long as it is as text.
fn json_bytes(value: &Json) -> usize {
    match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => 8,
        Json::String(text) => text.len() + 2,
        Json::Array(items) => items.iter().fold(2, |sum, item| sum.saturating_add(json_bytes(item) + 1)),
        Json::Object(map) => map_bytes(map).saturating_add(2),
    }
}

/// Bytes come only with a call that names them, and under their own hash.
fn named(call: &Call, content: &Content) -> Result<(), EngineError> {
    let Call::Create(create) = call else { return Err(EngineError::BadContent) };
    let length = u64::try_from(content.bytes.len()).unwrap_or(u64::MAX);
    let is_it = create.payload == Some(content.payload)
        && content.payload.bytes == length
        && Sha256::digest(&content.bytes)[..] == content.payload.sha256;
    if is_it { Ok(()) } else { Err(EngineError::BadContent) }
}
