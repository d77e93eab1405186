//! Builds the requests for engine processes and parses their replies.

use anyhow::{Context as _, Result, bail};
use onceward_core::decide::{Call, CreateRecord, FailureReport};
use onceward_core::record::{Actor, FencingToken};
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use onceward_testkit::{user, worker};
use serde_json::{Map, Value as Json, json};

pub(crate) const TASK_LIFECYCLE: &str = "torture.task";

/// The owner of all tasks.
pub(crate) const TASK_OWNER: &str = "ann";

/// The outcome of a request.
#[derive(Debug)]
pub(crate) enum RequestOutcome {
    /// `already`: an earlier call had done it.
    Done { id: Option<RecordId>, token: Option<FencingToken>, already: bool },
    /// Certainly not done.
    Refused(String),
    /// The result is unknown.
    Unknown(String),
}

impl RequestOutcome {
    pub(crate) fn parse(reply: &Json) -> Result<Self> {
        if let Some(done) = reply.get("ok") {
            let id = done.get("id").map(|id| serde_json::from_value(id.clone())).transpose()?;
            let token = done.get("token").filter(|token| !token.is_null());
            let token = token.map(|token| serde_json::from_value(token.clone())).transpose()?;
            let already = done.get("already").and_then(Json::as_bool).unwrap_or(false);
            return Ok(Self::Done { id, token, already });
        }
        let text = |name: &str| reply.get(name).and_then(Json::as_str).map(str::to_owned);
        match (text("no"), text("unknown")) {
            (Some(code), _) => Ok(Self::Refused(code)),
            (None, Some(why)) => Ok(Self::Unknown(why)),
            (None, None) => bail!("unknown reply: {reply}"),
        }
    }

    /// Returns whether this call did it.
    pub(crate) fn is_winner(&self) -> bool {
        matches!(self, Self::Done { already: false, .. })
    }

    /// Returns the record that this call created.
    pub(crate) fn into_created_id(self) -> Result<RecordId> {
        match self {
            Self::Done { id, .. } => id.context("a valid id"),
            other => bail!("not done: {other:?}"),
        }
    }
}

pub(crate) fn call_request(actor: &Actor, call: &Call) -> Json {
    json!({ "actor": actor, "call": call })
}

pub(crate) fn create(lifecycle: &str, owner: &str, fields: Json) -> Json {
    let fields = if let Json::Object(fields) = fields { fields } else { Map::new() };
    let create = CreateRecord { lifecycle: lifecycle.into(), id: None, owner: None, fields, payload: None };
    call_request(&user(owner), &Call::Create(create))
}

/// Creates a task, with an optional idempotency key.
pub(crate) fn create_task(name: &str, idempotency_key: Option<&str>) -> Json {
    let mut question = create(TASK_LIFECYCLE, TASK_OWNER, json!({ "name": name }));
    question["key"] = json!(idempotency_key);
    question
}

pub(crate) fn fire(owner: &str, record: RecordId, event: &str, input: Json) -> Json {
    let input = if let Json::Object(input) = input { input } else { Map::new() };
    call_request(&user(owner), &Call::Fire { record, event: event.into(), input, token: None, if_version: None })
}

pub(crate) fn cancel(record: RecordId, why: &str) -> Json {
    fire(TASK_OWNER, record, "cancel", json!({ "why": why }))
}

pub(crate) fn lease(name: &str, record: RecordId, seconds: i64) -> Json {
    let lease = Some(Duration::from_secs(seconds));
    call_request(&worker(name), &Call::Lease { record, worker: name.into(), lease, start: true })
}

/// Leases any ready task.
pub(crate) fn lease_any(name: &str, seconds: i64) -> Json {
    json!({ "actor": worker(name), "lease": { "lifecycle": TASK_LIFECYCLE, "worker": name, "seconds": seconds } })
}

pub(crate) fn heartbeat(name: &str, record: RecordId, token: FencingToken, seconds: i64) -> Json {
    let lease = Some(Duration::from_secs(seconds));
    call_request(&worker(name), &Call::Heartbeat { record, token, lease })
}

pub(crate) fn commit(name: &str, record: RecordId, token: FencingToken, result: Json, finish: bool) -> Json {
    call_request(&worker(name), &Call::Commit { record, token, result, finish })
}

pub(crate) fn finish(name: &str, record: RecordId, token: FencingToken) -> Json {
    call_request(&worker(name), &Call::Finish { record, token })
}

pub(crate) fn fail(name: &str, record: RecordId, token: FencingToken) -> Json {
    let error =
        FailureReport { code: "broken".into(), message: "broken".into(), retryable: Some(true), retry_after: None };
    call_request(&worker(name), &Call::Fail { record, token, error })
}
