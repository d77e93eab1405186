//! The log as it grows: server-sent events, one for each entry, from any place.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use onceward_core::decide::sees_all;
use onceward_core::value::RecordId;
use onceward_engine::LogStream;
use onceward_store::{AnyStore, Entry, Store as _};
use serde::Deserialize;
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::caller::Caller;
use crate::gate::Place;
use crate::input::{self, Asked, LAST_EVENT_ID};
use crate::named;
use crate::problem::{self, Problem};
use crate::shape::EntryShape;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(stream))
}

/// Records whose lifecycle a stream remembers.
const REMEMBERED: usize = 10_000;

/// Entries are written together up to so many bytes, where they are there.
const TOGETHER: usize = 32 << 10;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Following {
    /// The place after which to begin; from now on where it is left out
    #[param(minimum = 0)]
    after: Option<u64>,
    /// Only entries of records of this lifecycle
    lifecycle: Option<String>,
    /// Only entries of this record
    #[param(value_type = Option<String>, format = Uuid)]
    record: Option<RecordId>,
    /// End when nothing has come for so long: 0 for what is there already. Left out, it goes on
    #[param(minimum = 0, maximum = 300_000)]
    wait_ms: Option<u64>,
}

/// An event of the stream.
#[derive(Debug, ToSchema)]
#[schema(as = StreamEvent)]
#[expect(dead_code, reason = "its shape stands in the contract")]
pub(crate) struct Told {
    /// A place in the log.
    #[schema(pattern = "^[0-9]+$")]
    id: Option<String>,
    /// `entry`, where there is data.
    event: Option<String>,
    /// An Entry as JSON.
    data: Option<String>,
}

/// Follow the log
///
/// Server-sent events: `id` is the entry's place, `event` is `entry`, `data` an Entry. First, and now and then where nothing comes, there is
/// an `id` without data: how far the log was looked through. Whoever breaks off there goes on from there. `Last-Event-ID` goes before `after`. 410 with
/// the `oldest` place where pruning took what comes after the place. 404 where there is no such lifecycle. It ends when the caller's key does.
#[utoipa::path(
    get, path = "/v1/stream", tag = "log",
    params(Following, ("Last-Event-ID" = Option<String>, Header, pattern = "^[0-9]{1,18}$", description = "The place after which to go on")),
    responses(
        (status = 200, description = "Entries, as they come: each event has these fields", body = Told, content_type = "text/event-stream"),
        (status = 409, description = "The log does not reach that far", body = problem::Shape, content_type = "application/problem+json"),
        (status = 410, description = "Pruned", body = problem::Shape, content_type = "application/problem+json"),
    )
)]
async fn stream(
    State(app): State<App>,
    caller: Caller,
    Asked(from): Asked<Following>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if app.gate().is_leaving() {
        return Err(Problem::leaving());
    }
    input::wait(&app, from.wait_ms)?;
    named::must_be_there(&app, from.lifecycle.as_deref(), None).await?;
    let store = app.engine().store();
    let place = input::text(&headers, &LAST_EVENT_ID)?
        .map(|text| text.parse().map_err(|_| Problem::bad_input("Last-Event-ID is a place in the log")))
        .transpose()?;
    let last = store.last().await?;
    let after = place.or(from.after).unwrap_or(last);
    if after > last {
        let detail =
            "the log does not reach that far: it is not the one that this place was read from, or an older copy of it";
        return Err(Problem::new(409, "beyond_the_log", detail).with("last", last));
    }
    // Before the answer begins: whether it is still there.
    store.log(after, 1).await?;
    let follower = Follower {
        place: app.gate().stream(caller.identity.key.as_ref())?,
        log: app.engine().stream(&caller.actor, after),
        told: None,
        is_over: false,
        since: Instant::now(),
        caller,
        from,
        lifecycles: HashMap::new(),
        app,
    };
    let body = futures_util::stream::unfold(follower, |mut follower| async move {
        let chunk = follower.next().await?;
        Some((Ok::<_, std::convert::Infallible>(chunk), follower))
    });
    let mut response = Body::from_stream(body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// One who follows. Holds a page of the log at most, however slowly it is read.
struct Follower {
    app: App,
    log: LogStream<AnyStore>,
    caller: Caller,
    from: Following,
    /// When the last entry was written, or it began.
    since: Instant,
    /// The store has failed: whoever comes again is told how.
    is_over: bool,
    /// The place that the reader was told last.
    told: Option<u64>,
    lifecycles: HashMap<RecordId, Option<Arc<str>>>,
    #[expect(dead_code, reason = "kept until the stream ends")]
    place: Place,
}

impl Follower {
    /// What to write next; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        let app = self.app.clone();
        let keys = app.engine().keys();
        if self.is_over {
            return None;
        }
        if self.told.is_none() {
            return Some(self.sign_of_life());
        }
        // However much goes by that is not for this reader.
        let sign = Instant::now() + app.settings().keep_alive;
        let until = self.ends().map_or(sign, |ends| ends.min(sign));
        let mut text = String::new();
        loop {
            let entry = match self.log.at_hand() {
                Some(entry) => entry,
                // What is there already goes along; only the first is waited for.
                None if !text.is_empty() => return Some(text.into()),
                None => {
                    let next = tokio::select! {
                        // In this order: a log that is always busy does not keep it open.
                        biased;
                        () = app.gate().left() => return None,
                        () = keys.over(&self.caller.identity) => return None,
                        next = self.log.next_by(Some(until)) => next,
                    };
                    match next {
                        Ok(Some(entry)) => entry,
                        // Not without a last word on how far it came.
                        Ok(None)
                            if self.told == Some(self.log.place()) && self.ends().is_some_and(|ends| ends <= until) =>
                        {
                            return None;
                        }
                        Ok(None) => return Some(self.sign_of_life()),
                        // A follower that comes again is told why.
                        Err(_) => return None,
                    }
                }
            };
            let Ok(is_wanted) = self.wants(&entry).await else {
                // What came before goes out before the end.
                self.is_over = true;
                return (!text.is_empty()).then(|| text.into());
            };
            if is_wanted {
                self.write(&entry, &mut text);
                self.since = Instant::now();
            } else if text.is_empty() && Instant::now() >= sign {
                return Some(self.sign_of_life());
            }
            if text.len() >= TOGETHER {
                return Some(text.into());
            }
        }
    }

    /// When it ends, should nothing more come.
    fn ends(&self) -> Option<Instant> {
        self.from.wait_ms.map(|wait| self.since + Duration::from_millis(wait))
    }

    /// No data, so no event: readers only note the place.
    fn sign_of_life(&mut self) -> Bytes {
        let place = self.log.place();
        if self.told.replace(place) == Some(place) {
            return Bytes::from_static(b": still here\n\n");
        }
        format!("id: {place}\n\n").into()
    }

    fn write(&mut self, entry: &Entry, text: &mut String) {
        let _ = writeln!(text, "id: {}", entry.seq);
        // One that cannot be read is in the server's log, and found by `verify`; it keeps nobody from those behind it.
        if let Ok(shape) = EntryShape::of(entry, sees_all(&self.caller.actor)) {
            // Text, numbers and what was JSON already; JSON on one line.
            let _ = write!(text, "event: entry\ndata: {}\n", serde_json::to_string(&shape).unwrap_or_default());
        }
        text.push('\n');
        self.told = Some(entry.seq);
    }

    async fn wants(&mut self, entry: &Entry) -> Result<bool, Problem> {
        if self.from.record.is_some() && self.from.record != entry.record {
            return Ok(false);
        }
        let Some(wanted) = &self.from.lifecycle else { return Ok(true) };
        let Some(record) = entry.record else { return Ok(false) };
        if self.lifecycles.len() >= REMEMBERED {
            self.lifecycles.clear();
        }
        let lifecycle = match self.lifecycles.entry(record) {
            Slot::Occupied(known) => known.into_mut(),
            Slot::Vacant(unknown) => {
                let record = self.app.engine().store().record(record).await?;
                unknown.insert(record.map(|record| Arc::clone(&record.lifecycle.name)))
            }
        };
        Ok(lifecycle.as_deref() == Some(wanted.as_str()))
    }
}
