//! A document comes in. It goes to the object store as it comes, and nobody here looks into it (DOC-15).

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
    AppState, Caller, Problem, ProblemBody, current_trace, header_text, json_response, require_octet_stream,
};
use onceward_store::Store as _;
use serde_json::Map;
use tokio::time::{Instant, timeout};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::min_rate::RateMeter;
use crate::response::{DocumentBytes, DocumentJobJson};
use crate::slots::SlotPool;
use crate::{JOB_LIFECYCLE, UploadLimits};

pub(crate) const UPLOAD_PATH: &str = "/document/upload";

const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("client-request-id");

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(upload))
}

/// How many come at once, and how slowly they may.
#[derive(Clone, Debug)]
pub(crate) struct UploadState {
    limits: UploadLimits,
    slots: SlotPool,
}

impl UploadState {
    pub(crate) fn new(limits: UploadLimits) -> Self {
        Self { limits, slots: SlotPool::new(limits.max_concurrent, limits.max_concurrent_per_owner) }
    }
}

/// Upload a document
///
/// The body is the document, 1 byte to 100 MB of any kind. It becomes a job that is processed once it is submitted.
///
/// `Client-Request-Id` is the caller's own name for the upload. The same caller with the same name gets the same job again, with 200,
/// however the job has gone on and whatever bytes came the second time: they are dropped. Once the job is pruned, the answer is 410. An upload that breaks off makes nothing.
#[utoipa::path(
    post, path = "/document/upload", tag = "document",
    params(("Client-Request-Id" = String, Header, description = "The caller's own name for the upload", min_length = 1, max_length = 200)),
    request_body(content = inline(DocumentBytes), content_type = "application/octet-stream", description = "The document"),
    responses(
        (status = 201, description = "A job was made of it", body = DocumentJobJson),
        (status = 200, description = "The name came before, and this is its job", body = DocumentJobJson),
        (status = 410, description = "The name came before, and its job is gone", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = ProblemBody, content_type = "application/problem+json"),
        (status = 415, description = "Not application/octet-stream", body = ProblemBody, content_type = "application/problem+json"),
        (status = 422, description = "Empty, or without a name", body = ProblemBody, content_type = "application/problem+json"),
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
    // What would be refused in the end is refused before a hundred megabytes have come for nothing. Whether it is taken is for the
    // lifecycle to say all the same.
    if !caller.actor.can_produce() {
        return Err(EngineError::Forbidden("this key has no role that makes jobs".to_owned()).into());
    }
    let catalog = app.engine().store().catalog().await?;
    let lifecycle = catalog.definitions.get(JOB_LIFECYCLE).ok_or_else(Problem::not_found)?;
    let client_request_id = client_request_id(&headers, lifecycle)?;
    let _slot = uploads.slots.try_acquire(&caller.actor.id)?;
    let size_limit = UploadSizeLimit::for_lifecycle(&app, lifecycle);
    size_limit.enforce(body.size_hint().lower())?;
    let fields = Map::from_iter([("requestId".to_owned(), client_request_id.into())]);
    let create = CreateRecord { lifecycle: JOB_LIFECYCLE.into(), id: None, owner: None, fields, payload: None };
    let mut body = body;
    if let Some(job) = find_existing(&app, &caller, &create).await? {
        // What comes under a name that came before is dropped, so it is written nowhere. Who waits to be asked for it need not even send it; from
        // others it is taken, since they listen only when they have sent all.
        let expects_continue = headers.contains_key(EXPECT) && body.size_hint().lower() > 0;
        if expects_continue || UploadStream::new(body, size_limit, uploads.limits).discard().await? > 0 {
            let record = app.engine().get(&caller.actor, job?).await?.ok_or_else(Problem::not_found)?;
            return json_response(StatusCode::OK, &DocumentJobJson::from_record(&record));
        }
        // Nothing is no document, whatever its name.
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

/// What the caller calls this upload.
fn client_request_id<'a>(headers: &'a HeaderMap, lifecycle: &Lifecycle) -> Result<&'a str, Problem> {
    if headers.get_all(&CLIENT_REQUEST_ID).iter().count() > 1 {
        return Err(Problem::bad_input("send one Client-Request-Id"));
    }
    let id = header_text(headers, &CLIENT_REQUEST_ID)?
        .ok_or_else(|| Problem::bad_input("send a header Client-Request-Id: your own name for this upload"))?;
    let field = lifecycle.field_index("requestId").and_then(|slot| lifecycle.fields.get(usize::from(slot)));
    let (min_chars, max_chars) = field.and_then(|field| field.bounds.size).unwrap_or((0, u64::MAX));
    let characters = u64::try_from(id.chars().count()).unwrap_or(u64::MAX);
    if characters < min_chars || characters > max_chars {
        return Err(Problem::bad_input(format!("Client-Request-Id has from {min_chars} to {max_chars} characters")));
    }
    Ok(id)
}

/// How many bytes may come.
#[derive(Clone, Copy, Debug)]
struct UploadSizeLimit {
    max_bytes: u64,
    /// It could be more if there were a place for large payloads.
    needs_object_storage: bool,
}

impl UploadSizeLimit {
    fn for_lifecycle(app: &AppState, lifecycle: &Lifecycle) -> Self {
        let (max_document_bytes, max_body_bytes) = (lifecycle.payload_bounds.max_bytes, app.config().max_body_bytes);
        let of_a_body = u64::try_from(max_body_bytes).unwrap_or(u64::MAX);
        // Into a database it goes as a whole.
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
                format!("into its database this server takes {max_bytes} bytes at most; with --objects it takes more");
            Problem::new(413, "no_objects", detail)
        } else {
            Problem::new(413, "too_large", format!("a document has at most {max_bytes} bytes"))
        };
        Err(problem.with_member("most", max_bytes))
    }
}

/// The job of a name that came before; or that it is gone.
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

/// A document as it comes, within its bounds.
struct UploadStream {
    body: Body,
    size_limit: UploadSizeLimit,
    limits: UploadLimits,
    rate_meter: RateMeter,
    /// How many came so far.
    received_bytes: u64,
}

impl UploadStream {
    fn new(body: Body, size_limit: UploadSizeLimit, limits: UploadLimits) -> Self {
        Self { body, size_limit, limits, rate_meter: RateMeter::new(limits.min_rate), received_bytes: 0 }
    }

    /// The next piece; none at its end.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            let started_at = Instant::now();
            let frame_result = timeout(self.limits.chunk_timeout, self.body.frame()).await;
            let waited = started_at.elapsed();
            let Some(frame) =
                frame_result.map_err(|_| slow_body_problem("the next piece of the document did not come in time"))?
            else {
                return Ok(None);
            };
            let frame = frame.map_err(|_| Problem::new(400, "broken_body", "the body ended before its end"))?;
            let Ok(chunk) = frame.into_data() else { continue };
            let bytes = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
            if !self.rate_meter.record_chunk(waited, bytes) {
                return Err(slow_body_problem("the document comes too slowly"));
            }
            self.received_bytes = self.received_bytes.saturating_add(bytes);
            self.size_limit.enforce(self.received_bytes)?;
            return Ok(Some(chunk));
        }
    }

    /// All of it, to where payloads live. Whatever breaks off leaves nothing there.
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

    /// All of it, to nowhere; how many bytes it had.
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
    transfer_body: impl Future<Output = Result<T, Problem>>,
) -> Result<T, Problem> {
    timeout(limits.total_timeout, transfer_body)
        .await
        .unwrap_or_else(|_| Err(slow_body_problem("the document did not come in time")))
}

fn slow_body_problem(detail: &str) -> Problem {
    Problem::new(408, "slow_body", detail)
}
