//! Streams an uploaded document to object storage and creates its job. The server never inspects the content (DOC-15).

use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::State;
use axum::http::header::EXPECT;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt as _;
use onceward_core::decide::{Call, CreateRecord};
use onceward_core::model::Lifecycle;
use onceward_core::value::RecordId;
use onceward_engine::{EngineError, PayloadUpload, Submission, UploadedPayload};
use onceward_server::{
    AppState, Caller, Problem, ProblemBody, Slot, SlotError, SlotPool, current_trace, header_text, json_response,
    require_octet_stream,
};
use onceward_store::Store as _;
use serde_json::Map;
use tokio::time::{Instant, timeout};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::min_rate::RateMeter;
use crate::response::{DocumentBytes, DocumentJobJson};
use crate::{JOB_LIFECYCLE, UploadLimits};

pub(crate) const UPLOAD_PATH: &str = "/document/upload";

/// Two spellings of one header; a request has one of them.
static REQUEST_ID_HEADERS: [HeaderName; 2] =
    [HeaderName::from_static("client-request-id"), HeaderName::from_static("x-client-request-id")];

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(upload))
}

/// Upload limits and the slots in use.
#[derive(Clone, Debug)]
pub(crate) struct UploadState {
    limits: UploadLimits,
    slots: Arc<SlotPool>,
}

impl UploadState {
    pub(crate) fn new(limits: UploadLimits) -> Self {
        Self { limits, slots: Arc::new(SlotPool::new(limits.max_concurrent, limits.max_concurrent_per_owner)) }
    }

    fn acquire_slot(&self, owner: &Arc<str>) -> Result<Slot, Problem> {
        self.slots.try_acquire(Some(owner)).map_err(|error| {
            let detail = match error {
                SlotError::Exhausted => "the server receives as many uploads as it allows; retry later",
                SlotError::ShareExceeded(_) => {
                    "the owner has as many uploads running as allowed; retry when one is done"
                }
            };
            Problem::new(503, "too_many_uploads", detail)
        })
    }
}

/// Upload a document
///
/// The body is the document: 1 byte to 100 MB of any content. The upload creates a job, which is processed once it is
/// submitted.
///
/// `Client-Request-Id` (or `X-Client-Request-Id`) is chosen by the caller. If the same caller repeats it, the answer is
/// 200 with the existing job in its current state, and the new bytes are discarded. If that job has been pruned, the
/// answer is 410. An interrupted upload creates nothing.
#[utoipa::path(
    post, path = "/document/upload", operation_id = "upload_document", tag = "document",
    params(("Client-Request-Id" = String, Header, description = "The caller's identifier of the upload", min_length = 1, max_length = 200)),
    request_body(content = inline(DocumentBytes), content_type = "application/octet-stream", description = "The document"),
    responses(
        (status = 201, description = "The job was created", body = DocumentJobJson),
        (status = 200, description = "The id was used before; this is its job", body = DocumentJobJson),
        (status = 410, description = "The id was used before, and its job was pruned", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "Not application/octet-stream", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "The body is empty, or the header `Client-Request-Id` is missing", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
async fn upload(
    State(app): State<AppState>,
    caller: Caller,
    Extension(uploads): Extension<UploadState>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    require_octet_stream(&headers)?;
    // Refuse doomed uploads before up to 100 MB arrive. The lifecycle still decides on the create call.
    if !caller.actor.can_create_and_fire() {
        return Err(EngineError::Forbidden("the API key has no role that may create jobs".to_owned()).into());
    }
    let catalog = app.engine().store().catalog().await?;
    let lifecycle = catalog.definitions.get(JOB_LIFECYCLE).ok_or_else(Problem::not_found)?;
    let client_request_id = client_request_id(&headers, lifecycle)?;
    let _slot = uploads.acquire_slot(&caller.actor.id)?;
    let size_limit = UploadSizeLimit::for_lifecycle(&app, lifecycle);
    size_limit.enforce(body.size_hint().lower())?;
    let fields = Map::from_iter([("requestId".to_owned(), client_request_id.into())]);
    let create = CreateRecord { lifecycle: JOB_LIFECYCLE.into(), id: None, owner: None, fields, payload: None };
    let mut body = body;
    if let Some(job) = find_existing(&app, &caller, &create).await? {
        // The bytes of a repeated upload are discarded. A client that sent `Expect: 100-continue` has not sent them
        // yet and is answered at once; for other clients the server reads the body first, because they read the
        // response only after sending everything.
        let expects_continue = headers.contains_key(EXPECT) && body.size_hint().lower() > 0;
        if expects_continue || UploadStream::new(body, size_limit, uploads.limits).discard().await? > 0 {
            let record = app.engine().get(&caller.actor, job?).await?.ok_or_else(Problem::not_found)?;
            return json_response(StatusCode::OK, &DocumentJobJson::from_record(&record));
        }
        // An empty body is refused even if the id is known.
        body = Body::empty();
    }
    let uploaded =
        UploadStream::new(body, size_limit, uploads.limits).save_payload(app.engine().begin_payload()).await?;
    let submission =
        Submission::new(&caller.actor, Call::Create(create)).with_trace(current_trace()).with_payload(uploaded);
    let receipt = app.engine().submit(submission).await?;
    let status = if receipt.is_new() { StatusCode::CREATED } else { StatusCode::OK };
    let record = receipt.record.ok_or_else(Problem::not_found)?;
    json_response(status, &DocumentJobJson::from_record(&record))
}

/// Returns the caller's `Client-Request-Id`, checked against the bounds of the field `requestId`.
fn client_request_id<'a>(headers: &'a HeaderMap, lifecycle: &Lifecycle) -> Result<&'a str, Problem> {
    let mut found = REQUEST_ID_HEADERS.iter().filter(|name| headers.contains_key(*name));
    let name = found.next().ok_or_else(|| {
        Problem::invalid_input("send a header Client-Request-Id with your own identifier of the upload")
    })?;
    if found.next().is_some() || headers.get_all(name).iter().count() > 1 {
        return Err(Problem::invalid_input("send exactly one header Client-Request-Id or X-Client-Request-Id"));
    }
    let id = header_text(headers, name)?.unwrap_or_default();
    let field = lifecycle.field_index("requestId").and_then(|slot| lifecycle.fields.get(usize::from(slot)));
    let (min_chars, max_chars) = field.and_then(|field| field.bounds.size).unwrap_or((0, u64::MAX));
    let characters = u64::try_from(id.chars().count()).unwrap_or(u64::MAX);
    if characters < min_chars || characters > max_chars {
        return Err(Problem::invalid_input(format!(
            "Client-Request-Id must have {min_chars} to {max_chars} characters"
        )));
    }
    Ok(id)
}

/// Maximum size of an upload.
#[derive(Clone, Copy, Debug)]
struct UploadSizeLimit {
    max_bytes: u64,
    /// True if object storage would raise the limit.
    needs_object_storage: bool,
}

impl UploadSizeLimit {
    fn for_lifecycle(app: &AppState, lifecycle: &Lifecycle) -> Self {
        let (max_document_bytes, max_body_bytes) = (lifecycle.payload_bounds.max_bytes, app.config().max_body_bytes);
        let of_a_body = u64::try_from(max_body_bytes).unwrap_or(u64::MAX);
        // Without object storage the payload goes into the database in one piece, so the body limit applies.
        let needs_object_storage = app.engine().object_storage().is_none() && of_a_body < max_document_bytes;
        Self { max_bytes: if needs_object_storage { of_a_body } else { max_document_bytes }, needs_object_storage }
    }

    fn enforce(self, bytes: u64) -> Result<(), Problem> {
        if bytes <= self.max_bytes {
            return Ok(());
        }
        let max_bytes = self.max_bytes;
        let problem = if self.needs_object_storage {
            let detail =
                format!("without object storage the server accepts at most {max_bytes} bytes; start it with --objects");
            Problem::new(413, "object_storage_not_configured", detail)
        } else {
            Problem::new(413, "request_too_large", format!("a document may have at most {max_bytes} bytes"))
        };
        Err(problem.with_member("max_bytes", max_bytes))
    }
}

/// Looks up the job of a repeated `Client-Request-Id`. The inner error means that the job has been pruned.
async fn find_existing(
    app: &AppState,
    caller: &Caller,
    create: &CreateRecord,
) -> Result<Option<Result<RecordId, EngineError>>, Problem> {
    match app.engine().find_existing(&caller.actor, create.clone()).await {
        Ok(job) => Ok(job.map(Ok)),
        Err(gone @ EngineError::Refused(_)) => Ok(Some(Err(gone))),
        Err(error) => Err(error.into()),
    }
}

/// The body of an upload, read within its size, time and rate limits.
struct UploadStream {
    body: Body,
    size_limit: UploadSizeLimit,
    limits: UploadLimits,
    rate_meter: RateMeter,
    received_bytes: u64,
}

impl UploadStream {
    fn new(body: Body, size_limit: UploadSizeLimit, limits: UploadLimits) -> Self {
        Self { body, size_limit, limits, rate_meter: RateMeter::new(limits.min_rate), received_bytes: 0 }
    }

    /// Returns the next chunk, or `None` at the end of the body.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            let started_at = Instant::now();
            let frame_result = timeout(self.limits.chunk_timeout, self.body.frame()).await;
            let waited = started_at.elapsed();
            let Some(frame) =
                frame_result.map_err(|_| slow_body_problem("the next part of the body did not arrive in time"))?
            else {
                return Ok(None);
            };
            let frame = frame.map_err(|_| Problem::new(400, "incomplete_request_body", "the body is incomplete"))?;
            let Ok(chunk) = frame.into_data() else { continue };
            let bytes = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
            if !self.rate_meter.record_chunk(waited, bytes) {
                return Err(slow_body_problem("the body arrives too slowly"));
            }
            self.received_bytes = self.received_bytes.saturating_add(bytes);
            self.size_limit.enforce(self.received_bytes)?;
            return Ok(Some(chunk));
        }
    }

    /// Copies the body to payload storage. An interrupted upload leaves nothing there.
    async fn save_payload(mut self, mut payload_upload: PayloadUpload) -> Result<UploadedPayload, Problem> {
        let limits = self.limits;
        let copy = async {
            while let Some(chunk) = self.next_chunk().await? {
                payload_upload = payload_upload.push(chunk).await?;
            }
            Ok(payload_upload)
        };
        Ok(with_total_timeout(limits, copy).await?.finish().await?)
    }

    /// Reads and discards the body; returns its size in bytes.
    async fn discard(mut self) -> Result<u64, Problem> {
        let limits = self.limits;
        let drain = async {
            while self.next_chunk().await?.is_some() {}
            Ok(self.received_bytes)
        };
        with_total_timeout(limits, drain).await
    }
}

async fn with_total_timeout<T>(
    limits: UploadLimits,
    body_future: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    timeout(limits.total_timeout, body_future)
        .await
        .unwrap_or_else(|_| Err(slow_body_problem("the body did not arrive in time")))
}

fn slow_body_problem(detail: &str) -> Problem {
    Problem::new(408, "request_body_timeout", detail)
}
