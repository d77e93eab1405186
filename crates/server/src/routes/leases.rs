//! Work for workers: leases, waited for where there is none yet.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onceward_core::execution_id::ExecutionId;
use onceward_core::time::{Duration as Length, Time};
use onceward_core::trace::Trace;
use onceward_engine::{EngineError, GoesOn, Leased, Wanted, trace_of};
use onceward_store::Store as _;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::caller::Caller;
use crate::input::{self, Given, IDEMPOTENCY_KEY};
use crate::named;
use crate::problem::{self, Problem};
use crate::shape::{RecordShape, Text, When, ok};

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(lease))
}

/// Characters of a worker's name.
const WORKER: usize = 1_000;

/// Lifecycles that one worker may name.
const LIFECYCLES: usize = 100;

/// Bytes of payloads that come along with one answer, of all jobs together; the others are fetched like large ones.
const INLINE_ALL: u64 = 16 << 20;

/// A lease is at most a day long.
const LONGEST_LEASE_MS: u64 = 86_400_000;

/// What a worker asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewLease {
    /// Jobs of these.
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 100)]
    lifecycles: Vec<Arc<str>>,
    /// What the worker calls itself.
    #[schema(value_type = String, max_length = 1000)]
    worker: Arc<str>,
    /// At most so many jobs; 1 where it is left out. With an `Idempotency-Key` no more than 100 come.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 1000)]
    max: u32,
    /// How long the lease is; the lifecycle's own length where it is left out.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 86_400_000)]
    lease_ms: Option<u64>,
    /// How long to wait for a first job.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 300_000)]
    wait_ms: Option<u64>,
    /// Only the jobs that this `Idempotency-Key` was given before: no more are leased.
    #[serde(default)]
    again: Option<bool>,
    /// Whether they start at once, which saves a report. A commit implies it, too.
    #[serde(default)]
    start: Option<bool>,
}

const fn one() -> u32 {
    1
}

impl NewLease {
    fn wanted(self, app: &App, key: Option<&str>) -> Result<Wanted, Problem> {
        let most = usize::try_from(self.max).unwrap_or(usize::MAX);
        if most == 0 || most > app.settings().batch {
            return Err(Problem::bad_input(format!("`max` is from 1 to {}", app.settings().batch)));
        }
        if self.lifecycles.is_empty() || self.lifecycles.len() > LIFECYCLES {
            return Err(Problem::bad_input(format!("`lifecycles` names from 1 to {LIFECYCLES} of them")));
        }
        let lease = match self.lease_ms {
            None => None,
            Some(ms @ 1..=LONGEST_LEASE_MS) => Some(Length::from_millis(i64::try_from(ms).unwrap_or(i64::MAX))),
            Some(_) => return Err(Problem::bad_input("`lease_ms` is from 1 to a day")),
        };
        // Before there is a job to be refused: else a name that is too long would do until then.
        if self.worker.chars().count() > WORKER {
            return Err(Problem::bad_input(format!("`worker` has at most {WORKER} characters")));
        }
        let wait = input::wait(app, self.wait_ms)?;
        if self.again == Some(true) && key.is_none() {
            return Err(Problem::bad_input("`again` goes with the Idempotency-Key of the call before"));
        }
        Ok(Wanted {
            lifecycles: self.lifecycles,
            worker: self.worker,
            most,
            lease,
            start: self.start.unwrap_or(false),
            wait,
            again: self.again.unwrap_or(false),
            key: key.map(Into::into),
        })
    }
}

/// Jobs in the worker's hands.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Leases<'a> {
    executions: Vec<LeaseShape<'a>>,
}

/// One job in the worker's hands.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Lease)]
pub(crate) struct LeaseShape<'a> {
    /// Names the execution in reports.
    #[schema(value_type = String)]
    id: ExecutionId,
    /// To be shown with every report.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    token: u64,
    #[schema(minimum = 1)]
    attempt: u64,
    #[schema(value_type = String, format = DateTime)]
    expires_at: When,
    /// How much of the lease is left, by the server's clock: less than its length where the jobs of an earlier call are answered again.
    #[schema(minimum = 0)]
    expires_in_ms: u64,
    record: RecordShape<'a>,
    /// Where the worker goes on from, in the trace of the request that made the job: to be sent with its reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    traceparent: Option<Text<Trace>>,
    /// As it was written when the record was made. One that is larger than 64 KB does not come along: the record's `payload`
    /// tells its hash and size, and the bytes are fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    payload: Option<&'a RawValue>,
    /// In its place where it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(content_encoding = "base64")]
    payload_base64: Option<String>,
}

impl<'a> LeaseShape<'a> {
    fn of(leased: &'a Leased, content: Option<&'a [u8]>, now: Time, traces: bool) -> Self {
        let payload = content.and_then(input::as_json);
        let payload_base64 = content.filter(|_| payload.is_none()).map(|bytes| STANDARD.encode(bytes));
        Self {
            id: ExecutionId { record: leased.record.id, token: leased.token },
            token: leased.token.0,
            attempt: leased.token.0,
            expires_at: When(leased.expires_at),
            expires_in_ms: u64::try_from(leased.expires_at.micros().saturating_sub(now.micros()) / 1_000).unwrap_or(0),
            record: RecordShape::of(&leased.record),
            // Nobody will give out the execution's own span where there is nowhere to give it.
            traceparent: if traces { trace_of(&leased.record, leased.token) } else { leased.record.trace }.map(Text),
            payload,
            payload_base64,
        }
    }
}

/// Lease jobs
///
/// By priority, then age. Where there is none, waits up to `wait_ms` for one; none is an empty list. Asked again with the same
/// `Idempotency-Key`, the same jobs are answered.
#[utoipa::path(
    post, path = "/v1/leases", tag = "work",
    params(("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]([ -~]{0,253}[!-~])?$", description = "The same key gets the same jobs")),
    request_body = NewLease,
    responses(
        (status = 200, description = "Jobs, or none", body = Leases),
        (status = 409, description = "The first call with this key has no answer yet", body = problem::Shape, content_type = "application/problem+json"),
    )
)]
async fn lease(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Given(new): Given<NewLease>,
) -> Result<Response, Problem> {
    let wanted = new.wanted(&app, input::text(&headers, &IDEMPOTENCY_KEY)?)?;
    if app.gate().is_leaving() {
        return Err(Problem::leaving());
    }
    caller.may_lease(&wanted.lifecycles)?;
    are_there(&app, &wanted).await?;
    let _place = if wanted.wait.is_zero() { None } else { Some(app.gate().poll(caller.identity.key.as_ref())?) };
    // One that waits may outlive its key.
    let goes_on: GoesOn = {
        let (app, identity) = (app.clone(), caller.identity.clone());
        Arc::new(move || !app.gate().is_leaving() && app.engine().keys().still_lets_in(&identity))
    };
    let leasing = app.engine().lease_while(&caller.actor, &wanted, &goes_on);
    let leased: Vec<Leased> = match tokio::time::timeout(wanted.wait + app.settings().request_time, leasing).await {
        Ok(Err(EngineError::Closed)) => return Err(Problem::leaving()),
        Ok(leased) => leased?,
        Err(_) => return Err(Problem::timed_out()),
    };
    if leased.is_empty() && !app.engine().keys().still_lets_in(&caller.identity) {
        return Err(EngineError::Unauthorized.into());
    }
    let contents = contents(&app, &leased).await?;
    let (traces, now) = (app.observe().exports(), app.engine().store().now().await?);
    let shapes =
        leased.iter().zip(&contents).map(|(leased, content)| LeaseShape::of(leased, content.as_deref(), now, traces));
    ok(&Leases { executions: shapes.collect() })
}

/// A name that is mistyped would be waited for in vain.
async fn are_there(app: &App, wanted: &Wanted) -> Result<(), Problem> {
    let mut catalog = app.engine().store().definitions().await?;
    if wanted.lifecycles.iter().any(|name| catalog.definitions.get(name).is_none_or(|found| found.work.is_none())) {
        // Another process may have brought it a moment ago.
        catalog = app.engine().lifecycles().await?;
    }
    for name in &wanted.lifecycles {
        let Some(lifecycle) = catalog.definitions.get(name) else {
            return Err(named::no_lifecycle(app, &catalog, name));
        };
        if lifecycle.work.is_none() {
            return Err(Problem::new(409, "not_work", format!("nobody works on records of `{name}`")));
        }
    }
    Ok(())
}

/// The payloads that come along.
async fn contents(app: &App, leased: &[Leased]) -> Result<Vec<Option<Arc<[u8]>>>, Problem> {
    let most = app.settings().inline_payload;
    let mut room = INLINE_ALL;
    let mut inline = |leased: &Leased| {
        let payload = leased.record.payload.filter(|payload| payload.bytes <= most.min(room))?;
        room -= payload.bytes;
        Some(payload.sha256)
    };
    let inline: Vec<Option<[u8; 32]>> = leased.iter().map(&mut inline).collect();
    let wanted: Vec<[u8; 32]> = inline.iter().copied().flatten().collect();
    if wanted.is_empty() {
        return Ok(vec![None; leased.len()]);
    }
    let mut found = app.engine().store().contents(&wanted).await?.into_iter();
    Ok(inline.iter().map(|inline| inline.and_then(|_| found.next().flatten())).collect())
}
