//! Streams the log as server-sent events.

use std::collections::HashMap;
use std::collections::hash_map::Entry as HashMapEntry;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use onceward_api_types as wire;
use onceward_core::decide::reads_everything;
use onceward_core::value::RecordId;
use onceward_engine::LogStream;
use onceward_store::{AnyStore, LogEntry, Store as _};
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::capacity::Slot;
use crate::extract::{self, LAST_EVENT_ID, QueryParams};
use crate::known_names;
use crate::problem::{self, Problem};
use crate::response::log_entry_json;

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(stream))
}

/// Bounds the memory of the cache that maps records to their lifecycle.
const MAX_CACHED_LIFECYCLES: usize = 10_000;

/// Entries that are available together are sent in chunks of about this size.
const MAX_CHUNK_BYTES: usize = 32 << 10;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StreamParams {
    /// Start after this `seq`; by default, at the end of the log
    #[param(minimum = 0)]
    after: Option<u64>,
    /// Only entries of records of this lifecycle
    lifecycle: Option<String>,
    /// Only entries of this record
    #[param(value_type = Option<String>, format = Uuid)]
    record: Option<RecordId>,
    /// End the stream after this time without an entry; 0 returns only existing entries. By default, the stream
    /// does not end
    #[param(minimum = 0, maximum = 300_000)]
    wait_ms: Option<u64>,
}

/// Stream the log
///
/// Server-sent events: `id` is the entry's `seq`, `event` is `entry`, `data` is a `LogEntry` as JSON. The first
/// event, and one at intervals while the stream is idle, has only an `id`: the log was scanned up to there, so a
/// client can resume there. `Last-Event-ID` takes precedence over `after`. 410 with `oldest` if entries after the
/// start were pruned. 404 if the lifecycle does not exist. The stream ends when the caller's API key becomes
/// invalid.
#[utoipa::path(
    get, path = "/v1/stream", operation_id = "stream_log", tag = "log",
    params(StreamParams, ("Last-Event-ID" = Option<String>, Header, pattern = "^[0-9]{1,18}$", description = "Resume after this `seq`")),
    responses(
        (status = 200, description = "Log entries as server-sent events; each has these fields", body = wire::StreamEvent, content_type = "text/event-stream"),
        (status = 409, description = "The start is past the end of the log", body = problem::ProblemBody, content_type = "application/problem+json"),
        (status = 410, description = "Entries after the start were pruned", body = problem::ProblemBody, content_type = "application/problem+json"),
    )
)]
async fn stream(
    State(app): State<AppState>,
    caller: Caller,
    QueryParams(params): QueryParams<StreamParams>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if app.capacity().is_draining() {
        return Err(Problem::draining());
    }
    extract::parse_wait(&app, params.wait_ms)?;
    known_names::require_known(&app, params.lifecycle.as_deref(), None).await?;
    let store = app.engine().store();
    let last_event_id = extract::header_text(&headers, &LAST_EVENT_ID)?
        .map(|text| text.parse().map_err(|_| Problem::invalid_input("`Last-Event-ID` must be a `seq` of the log")))
        .transpose()?;
    let last = store.last_seq().await?;
    let after = last_event_id.or(params.after).unwrap_or(last);
    if after > last {
        let detail = format!(
            "the stream cannot start after seq {after}, because the log ends at seq {last}; the number is wrong, or the database was \
             replaced or restored from an older backup; read the records again, then stream from {last}"
        );
        return Err(Problem::new(409, "past_end_of_log", detail).with_member("last", last));
    }
    // Detect a pruned start before the response begins.
    store.log(after, 1).await?;
    let follower = LogFollower {
        slot: app.capacity().acquire_stream(caller.identity.api_key_id.as_ref())?,
        log: app.engine().stream(&caller.actor, after),
        last_sent_seq: None,
        has_failed: false,
        last_entry_at: Instant::now(),
        caller,
        params,
        lifecycle_cache: HashMap::new(),
        app,
    };
    let body = futures_util::stream::unfold(follower, |mut follower| async move {
        let chunk = follower.next_chunk().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), follower))
    });
    let mut response = Body::from_stream(body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// A client that follows the log. Buffers at most one page, however slowly the client reads.
struct LogFollower {
    app: AppState,
    log: LogStream<AnyStore>,
    caller: Caller,
    params: StreamParams,
    /// When the last entry was sent, or the stream began.
    last_entry_at: Instant,
    /// The store failed. The stream ends, and the client gets the error when it reconnects.
    has_failed: bool,
    /// The last `seq` sent to the client.
    last_sent_seq: Option<u64>,
    lifecycle_cache: HashMap<RecordId, Option<Arc<str>>>,
    #[expect(dead_code, reason = "kept until the stream ends")]
    slot: Slot,
}

impl LogFollower {
    /// Returns the next chunk; `None` ends the stream.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        let app = self.app.clone();
        let keys = app.engine().api_keys();
        if self.has_failed {
            return None;
        }
        if self.last_sent_seq.is_none() {
            return Some(self.keep_alive_message());
        }
        // Applies even while entries pass that this client does not get.
        let keep_alive_at = Instant::now() + app.config().keep_alive_interval;
        let deadline = self.idle_deadline().map_or(keep_alive_at, |ends| ends.min(keep_alive_at));
        let mut text = String::new();
        loop {
            let entry = match self.log.next_buffered() {
                Some(entry) => entry,
                // Send what is buffered; wait only for the first entry.
                None if !text.is_empty() => return Some(text.into()),
                None => {
                    let next = tokio::select! {
                        // Biased, so that a busy log cannot keep the stream open.
                        biased;
                        () = app.capacity().wait_drain() => return None,
                        () = keys.wait_until_invalid(&self.caller.identity) => return None,
                        next = self.log.next_until(Some(deadline)) => next,
                    };
                    match next {
                        Ok(Some(entry)) => entry,
                        // Before the end, send the `seq` that the scan has reached.
                        Ok(None)
                            if self.last_sent_seq == Some(self.log.seq())
                                && self.idle_deadline().is_some_and(|ends| ends <= deadline) =>
                        {
                            return None;
                        }
                        Ok(None) => return Some(self.keep_alive_message()),
                        // The client gets the error when it reconnects.
                        Err(_) => return None,
                    }
                }
            };
            let Ok(is_wanted) = self.matches_filter(&entry).await else {
                // Send the earlier entries before the stream ends.
                self.has_failed = true;
                return (!text.is_empty()).then(|| text.into());
            };
            if is_wanted {
                self.write_entry(&entry, &mut text);
                self.last_entry_at = Instant::now();
            } else if text.is_empty() && Instant::now() >= keep_alive_at {
                return Some(self.keep_alive_message());
            }
            if text.len() >= MAX_CHUNK_BYTES {
                return Some(text.into());
            }
        }
    }

    /// Returns when the stream ends if no more entries arrive.
    fn idle_deadline(&self) -> Option<Instant> {
        self.params.wait_ms.map(|wait| self.last_entry_at + Duration::from_millis(wait))
    }

    /// Returns an `id` without data. Clients update their position and dispatch no event.
    fn keep_alive_message(&mut self) -> Bytes {
        let seq = self.log.seq();
        if self.last_sent_seq.replace(seq) == Some(seq) {
            return Bytes::from_static(b": keep-alive\n\n");
        }
        format!("id: {seq}\n\n").into()
    }

    fn write_entry(&mut self, entry: &LogEntry, text: &mut String) {
        let _ = writeln!(text, "id: {}", entry.seq);
        // Skip an unreadable entry: the server logs it and `verify` reports it.
        if let Ok(json) = log_entry_json(entry, reads_everything(&self.caller.actor)) {
            // Cannot fail: text, numbers and values that were JSON already. Compact JSON has no line breaks.
            let _ = write!(text, "event: entry\ndata: {}\n", serde_json::to_string(&json).unwrap_or_default());
        }
        text.push('\n');
        self.last_sent_seq = Some(entry.seq);
    }

    async fn matches_filter(&mut self, entry: &LogEntry) -> Result<bool, Problem> {
        if self.params.record.is_some() && self.params.record != entry.record {
            return Ok(false);
        }
        let Some(wanted) = &self.params.lifecycle else { return Ok(true) };
        let Some(record) = entry.record else { return Ok(false) };
        if self.lifecycle_cache.len() >= MAX_CACHED_LIFECYCLES {
            self.lifecycle_cache.clear();
        }
        let lifecycle = match self.lifecycle_cache.entry(record) {
            HashMapEntry::Occupied(known) => known.into_mut(),
            HashMapEntry::Vacant(unknown) => {
                let record = self.app.engine().store().record(record).await?;
                unknown.insert(record.map(|record| Arc::clone(&record.lifecycle.name)))
            }
        };
        Ok(lifecycle.as_deref() == Some(wanted.as_str()))
    }
}
