//! Leases jobs to workers, with long polling.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onceward_core::execution_id::ExecutionId;
use onceward_core::time::{Duration as Length, Time};
use onceward_core::trace::TraceContext;
use onceward_engine::{EngineError, KeepWaiting, LeaseRequest, LeasedJob, execution_trace};
use onceward_store::Store as _;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::{self, IDEMPOTENCY_KEY, JsonBody};
use crate::known_names;
use crate::problem::{self, Problem};
use crate::response::{DisplayText, RecordJson, Rfc3339, json_ok};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(lease))
}

/// Bounds what one lease stores in the database.
const MAX_WORKER_NAME_CHARS: usize = 1_000;

/// Bounds the queries of one lease call.
const MAX_LEASE_LIFECYCLES: usize = 100;

/// Total size of payloads in one response. Workers download the others, like large ones.
const MAX_INLINE_RESPONSE_BYTES: u64 = 16 << 20;

/// One day.
const MAX_LEASE_MS: u64 = 86_400_000;

/// A worker's request for jobs.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeaseBody {
    /// Lease jobs of these lifecycles.
    #[schema(value_type = Vec<String>, min_items = 1, max_items = 100)]
    lifecycles: Vec<Arc<str>>,
    /// The name that the worker gives itself.
    #[schema(value_type = String, max_length = 1000)]
    worker: Arc<str>,
    /// Maximum number of jobs; 1 by default. With an `Idempotency-Key`, at most 100 jobs are leased.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 1000)]
    max: u32,
    /// Length of the lease; defaults to that of the lifecycle.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 86_400_000)]
    lease_ms: Option<u64>,
    /// How long to wait for a first job.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 300_000)]
    wait_ms: Option<u64>,
    /// Only return the jobs leased earlier with this `Idempotency-Key`; lease no new ones.
    #[serde(default)]
    again: Option<bool>,
    /// Also start the executions, which saves a report. A commit starts an execution implicitly, too.
    #[serde(default)]
    start: Option<bool>,
}

const fn one() -> u32 {
    1
}

impl LeaseBody {
    fn into_lease_request(self, app: &AppState, idempotency_key: Option<&str>) -> Result<LeaseRequest, Problem> {
        let max_jobs = usize::try_from(self.max).unwrap_or(usize::MAX);
        if max_jobs == 0 || max_jobs > app.config().max_batch_items {
            return Err(Problem::invalid_input(format!("`max` is from 1 to {}", app.config().max_batch_items)));
        }
        if self.lifecycles.is_empty() || self.lifecycles.len() > MAX_LEASE_LIFECYCLES {
            return Err(Problem::invalid_input(format!("`lifecycles` names from 1 to {MAX_LEASE_LIFECYCLES} of them")));
        }
        let lease = match self.lease_ms {
            None => None,
            Some(ms @ 1..=MAX_LEASE_MS) => Some(Length::from_millis(i64::try_from(ms).unwrap_or(i64::MAX))),
            Some(_) => return Err(Problem::invalid_input("`lease_ms` is from 1 to a day")),
        };
        // Checked even if there is no job, so that a name that is too long fails at once and not with the first
        // job.
        if self.worker.chars().count() > MAX_WORKER_NAME_CHARS {
            return Err(Problem::invalid_input(format!("`worker` has at most {MAX_WORKER_NAME_CHARS} characters")));
        }
        let wait = extract::parse_wait(app, self.wait_ms)?;
        if self.again == Some(true) && idempotency_key.is_none() {
            return Err(Problem::invalid_input("`again` goes with the Idempotency-Key of the call before"));
        }
        Ok(LeaseRequest {
            lifecycles: self.lifecycles,
            worker: self.worker,
            max_jobs,
            lease_duration: lease,
            start: self.start.unwrap_or(false),
            max_wait: wait,
            replay_only: self.again.unwrap_or(false),
            idempotency_key: idempotency_key.map(Into::into),
        })
    }
}

/// Leased jobs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LeasedJobs<'a> {
    executions: Vec<LeaseJson<'a>>,
}

/// A leased job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Lease)]
pub(crate) struct LeaseJson<'a> {
    /// Identifies the execution in reports.
    #[schema(value_type = String)]
    id: ExecutionId,
    /// Fencing token. Send it with every report.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    token: u64,
    #[schema(minimum = 1)]
    attempt: u64,
    #[schema(value_type = String, format = DateTime)]
    expires_at: Rfc3339,
    /// Remaining time of the lease by the server's clock. Less than the lease's length if the jobs of an earlier
    /// call are returned again.
    #[schema(minimum = 0)]
    expires_in_ms: u64,
    record: RecordJson<'a>,
    /// Trace context of the execution, in the trace of the request that created the job. Send it with the reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    traceparent: Option<DisplayText<TraceContext>>,
    /// The payload as it was written when the record was created. Payloads larger than 64 KB are omitted: the
    /// record's `payload` has hash and size; download the bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Value)]
    payload: Option<&'a RawValue>,
    /// Replaces `payload` if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(content_encoding = "base64")]
    payload_base64: Option<String>,
}

impl<'a> LeaseJson<'a> {
    fn new(leased: &'a LeasedJob, payload_bytes: Option<&'a [u8]>, now: Time, is_exporting: bool) -> Self {
        let payload = payload_bytes.and_then(extract::as_raw_json);
        let payload_base64 = payload_bytes.filter(|_| payload.is_none()).map(|bytes| STANDARD.encode(bytes));
        Self {
            id: ExecutionId { record: leased.record.id, token: leased.token },
            token: leased.token.0,
            attempt: leased.token.0,
            expires_at: Rfc3339(leased.expires_at),
            expires_in_ms: u64::try_from(leased.expires_at.micros().saturating_sub(now.micros()) / 1_000).unwrap_or(0),
            record: RecordJson::new(&leased.record),
            // Without export, the execution's own span would never be recorded, so the worker continues from the
            // job's.
            traceparent: if is_exporting { execution_trace(&leased.record, leased.token) } else { leased.record.trace }
                .map(DisplayText),
            payload,
            payload_base64,
        }
    }
}

/// Lease jobs
///
/// In order of priority, then age. If no job is ready, waits up to `wait_ms` for one and otherwise returns an empty
/// list. A repeated call with the same `Idempotency-Key` returns the same jobs.
#[utoipa::path(
    post, path = "/v1/leases", tag = "work",
    params(("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]([ -~]{0,253}[!-~])?$", description = "The same key gets the same jobs")),
    request_body = LeaseBody,
    responses(
        (status = 200, description = "Jobs, or none", body = LeasedJobs),
        (status = 409, description = "The first call with this key has no answer yet", body = problem::ProblemBody, content_type = "application/problem+json"),
    )
)]
async fn lease(
    State(app): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    JsonBody(new): JsonBody<LeaseBody>,
) -> Result<Response, Problem> {
    let request = new.into_lease_request(&app, extract::header_text(&headers, &IDEMPOTENCY_KEY)?)?;
    if app.capacity().is_draining() {
        return Err(Problem::draining());
    }
    caller.require_lease(&request.lifecycles)?;
    require_work_lifecycles(&app, &request).await?;
    let _slot = if request.max_wait.is_zero() {
        None
    } else {
        Some(app.capacity().acquire_long_poll(caller.identity.api_key_id.as_ref())?)
    };
    // The API key may be revoked while the call waits.
    let keep_waiting: KeepWaiting = {
        let (app, identity) = (app.clone(), caller.identity.clone());
        Arc::new(move || !app.capacity().is_draining() && app.engine().api_keys().is_still_valid(&identity))
    };
    let leasing = app.engine().lease_while(&caller.actor, &request, &keep_waiting);
    let leased: Vec<LeasedJob> =
        match tokio::time::timeout(request.max_wait + app.config().request_timeout, leasing).await {
            Ok(Err(EngineError::Closed)) => return Err(Problem::draining()),
            Ok(leased) => leased?,
            Err(_) => return Err(Problem::timed_out()),
        };
    if leased.is_empty() && !app.engine().api_keys().is_still_valid(&caller.identity) {
        return Err(EngineError::Unauthorized.into());
    }
    let payloads = load_inline_payloads(&app, &leased).await?;
    let (is_exporting, now) = (app.telemetry().is_exporting(), app.engine().store().now().await?);
    let shapes = leased
        .iter()
        .zip(&payloads)
        .map(|(leased, content)| LeaseJson::new(leased, content.as_deref(), now, is_exporting));
    json_ok(&LeasedJobs { executions: shapes.collect() })
}

/// Returns an error for unknown lifecycles and those without work, so that a worker does not wait for a typo.
async fn require_work_lifecycles(app: &AppState, request: &LeaseRequest) -> Result<(), Problem> {
    let mut catalog = app.engine().store().catalog().await?;
    if request.lifecycles.iter().any(|name| catalog.definitions.get(name).is_none_or(|found| found.work.is_none())) {
        // Another process may have added it since the catalog was cached.
        catalog = app.engine().lifecycles().await?;
    }
    for name in &request.lifecycles {
        let Some(lifecycle) = catalog.definitions.get(name) else {
            return Err(known_names::lifecycle_not_found(app, &catalog, name));
        };
        if lifecycle.work.is_none() {
            return Err(Problem::new(409, "not_a_job", format!("nobody works on records of `{name}`")));
        }
    }
    Ok(())
}

/// Loads the payloads that the response contains.
async fn load_inline_payloads(app: &AppState, leased: &[LeasedJob]) -> Result<Vec<Option<Arc<[u8]>>>, Problem> {
    let max_payload_bytes = app.config().max_inline_payload_bytes;
    let mut remaining_bytes = MAX_INLINE_RESPONSE_BYTES;
    let mut inline = |leased: &LeasedJob| {
        let payload =
            leased.record.payload.filter(|payload| payload.bytes <= max_payload_bytes.min(remaining_bytes))?;
        remaining_bytes -= payload.bytes;
        Some(payload.sha256)
    };
    let inline: Vec<Option<[u8; 32]>> = leased.iter().map(&mut inline).collect();
    let hashes: Vec<[u8; 32]> = inline.iter().copied().flatten().collect();
    if hashes.is_empty() {
        return Ok(vec![None; leased.len()]);
    }
    let mut found = app.engine().store().payloads(&hashes).await?.into_iter();
    Ok(inline.iter().map(|inline| inline.and_then(|_| found.next().flatten())).collect())
}
