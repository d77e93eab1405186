//! Leases jobs to workers, with long polling.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onceward_api_types as wire;
use onceward_core::decide::Call;
use onceward_core::execution_id::ExecutionId;
use onceward_core::time::{Duration as Length, Time};
use onceward_engine::{EngineError, KeepWaiting, LeaseRequest, LeasedJob, Submission, execution_trace};
use onceward_store::Store as _;
use serde_json::value::RawValue;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::capacity::{ResponseReservation, exhausted};
use crate::extract::{self, IDEMPOTENCY_KEY, JsonBody};
use crate::known_names;
use crate::problem::{self, Problem};
use crate::response::{RecordJson, json_ok, record_json, timestamp};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(lease))
}

/// Bounds what one lease stores in the database.
const MAX_WORKER_NAME_CHARS: usize = 1_000;

/// Bounds the queries of one lease call.
const MAX_LEASE_LIFECYCLES: usize = 100;

/// One day.
const MAX_LEASE_MS: u64 = 86_400_000;

fn lease_request(
    body: wire::LeaseBody,
    app: &AppState,
    idempotency_key: Option<&str>,
) -> Result<LeaseRequest, Problem> {
    let max_jobs = usize::try_from(body.max).unwrap_or(usize::MAX);
    if max_jobs == 0 || max_jobs > app.config().max_batch_items {
        return Err(Problem::invalid_input(format!("`max` must be from 1 to {}", app.config().max_batch_items)));
    }
    if body.lifecycles.is_empty() || body.lifecycles.len() > MAX_LEASE_LIFECYCLES {
        return Err(Problem::invalid_input(format!("`lifecycles` must have 1 to {MAX_LEASE_LIFECYCLES} names")));
    }
    let lease = match body.lease_ms {
        None => None,
        Some(ms @ 1..=MAX_LEASE_MS) => Some(Length::from_millis(i64::try_from(ms).unwrap_or(i64::MAX))),
        Some(_) => return Err(Problem::invalid_input("`lease_ms` must be from 1 ms to one day")),
    };
    // Checked even if there is no job, so that a name that is too long fails at once and not with the first
    // job.
    if body.worker.chars().count() > MAX_WORKER_NAME_CHARS {
        return Err(Problem::invalid_input(format!("`worker` must have at most {MAX_WORKER_NAME_CHARS} characters")));
    }
    let wait = extract::parse_wait(app, body.wait_ms)?;
    if body.again == Some(true) && idempotency_key.is_none() {
        return Err(Problem::invalid_input("`again` needs the `Idempotency-Key` of the previous call"));
    }
    Ok(LeaseRequest {
        lifecycles: body.lifecycles.into_iter().map(Into::into).collect(),
        worker: body.worker.into(),
        max_jobs,
        lease_duration: lease,
        start: body.start.unwrap_or(false),
        max_wait: wait,
        max_bytes: app.config().max_response_bytes,
        replay_only: body.again.unwrap_or(false),
        idempotency_key: idempotency_key.map(Into::into),
    })
}

/// A lease that borrows the record and the payload.
type LeaseJson<'a> = wire::Lease<RecordJson<'a>, &'a RawValue>;

fn lease_json<'a>(
    leased: &'a LeasedJob,
    payload_bytes: Option<&'a [u8]>,
    now: Time,
    is_exporting: bool,
) -> LeaseJson<'a> {
    let payload = payload_bytes.and_then(extract::as_raw_json);
    let payload_base64 = payload_bytes.filter(|_| payload.is_none()).map(|bytes| STANDARD.encode(bytes));
    // Without export, the execution's own span would never be recorded, so the worker continues from the job's.
    let trace = if is_exporting { execution_trace(&leased.record, leased.token) } else { leased.record.trace };
    LeaseJson {
        id: ExecutionId { record: leased.record.id, token: leased.token }.to_string(),
        token: leased.token.0,
        attempt: leased.token.0,
        expires_at: timestamp(leased.expires_at),
        expires_in_ms: u64::try_from(leased.expires_at.micros().saturating_sub(now.micros()) / 1_000).unwrap_or(0),
        record: record_json(&leased.record),
        traceparent: trace.map(|trace| trace.to_string()),
        payload,
        payload_base64,
    }
}

/// Lease jobs
///
/// Returns the jobs that have been ready longest; each step of priority counts as one more minute of waiting. If no job
/// is ready, waits up to `wait_ms` for one and otherwise returns an empty list. A repeated call with the same
/// `Idempotency-Key` returns the same jobs. Leases no more jobs than the response can hold; a job that is larger than
/// that is leased alone.
#[utoipa::path(
    post, path = "/v1/leases", operation_id = "lease_jobs", tag = "work",
    params(("Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]([ -~]{0,253}[!-~])?$", description = "Makes the call safe to repeat: a repeated call returns the same jobs")),
    request_body = wire::LeaseBody,
    responses(
        (status = 200, description = "The leased jobs; empty if no job became ready within `wait_ms`", body = wire::LeasedJobs),
        (status = 409, description = "The first call with this idempotency key is still in progress", body = problem::ProblemBody, content_type = "application/problem+json"),
    )
)]
async fn lease(
    State(app): State<AppState>,
    caller: Caller,
    reservation: ResponseReservation,
    headers: HeaderMap,
    JsonBody(new): JsonBody<wire::LeaseBody>,
) -> Result<Response, Problem> {
    let request = lease_request(new, &app, extract::header_text(&headers, &IDEMPOTENCY_KEY)?)?;
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
    // Without waiting: a lease that waits for its response wastes its time.
    if !reservation.try_resize(leased.iter().map(LeasedJob::response_bytes).sum()) {
        yield_all(&app, &caller, &leased).await;
        return Err(exhausted());
    }
    let payloads = load_inline_payloads(&app, &leased).await?;
    let (is_exporting, now) = (app.telemetry().is_exporting(), app.engine().store().now().await?);
    let leases =
        leased.iter().zip(&payloads).map(|(leased, content)| lease_json(leased, content.as_deref(), now, is_exporting));
    json_ok(&wire::LeasedJobs { executions: leases.collect() })
}

/// Returns the jobs whose response cannot be sent, so that they need not wait for the end of their leases.
async fn yield_all(app: &AppState, caller: &Caller, leased: &[LeasedJob]) {
    let call = |job: &LeasedJob| Call::Yield { record: job.record.id, token: job.token };
    let yields = leased.iter().map(|job| Submission::new(&caller.actor, call(job))).collect();
    if let Err(error) = app.engine().submit_all(yields).await {
        tracing::warn!(code = error.code(), jobs = leased.len(), "jobs of an unsent response were not yielded");
    }
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
            return Err(Problem::new(
                409,
                "not_a_job",
                format!("records of `{name}` are not jobs: the lifecycle has no `[work]`"),
            ));
        }
    }
    Ok(())
}

/// Loads the payloads that the response contains.
async fn load_inline_payloads(app: &AppState, leased: &[LeasedJob]) -> Result<Vec<Option<Arc<[u8]>>>, Problem> {
    let max_payload_bytes = app.config().max_inline_payload_bytes;
    let records_bytes: usize = leased.iter().map(LeasedJob::record_bytes).sum();
    let mut remaining_bytes = app.config().max_response_bytes.saturating_sub(records_bytes);
    let mut inline = |leased: &LeasedJob| {
        let payload = leased.record.payload.filter(|payload| payload.bytes <= max_payload_bytes)?;
        remaining_bytes = remaining_bytes.checked_sub(leased.inline_payload_bytes())?;
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
