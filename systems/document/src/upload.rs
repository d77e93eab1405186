//! A document comes in. It goes to the object store as it comes, and nobody here looks into it (DOC-15).

use axum::Extension;
use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::State;
use axum::http::header::EXPECT;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt as _;
use onceward_core::decide::{Call, Create};
use onceward_core::model::Lifecycle;
use onceward_core::value::RecordId;
use onceward_engine::{Arrived, Arriving, EngineError, Submission};
use onceward_server::{App, Caller, Problem, ProblemShape, answer, must_be_bytes, text, trace};
use onceward_store::Store as _;
use serde_json::Map;
use tokio::time::{Instant, timeout};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::pace::Paced;
use crate::places::Places;
use crate::shape::{Document, JobShape};
use crate::{Bounds, JOB};

pub(crate) const PATH: &str = "/document/upload";

const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("client-request-id");

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(upload))
}

/// How many come at once, and how slowly they may.
#[derive(Clone, Debug)]
pub(crate) struct Uploads {
    bounds: Bounds,
    places: Places,
}

impl Uploads {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, places: Places::new(bounds.at_once, bounds.of_one_owner) }
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
    request_body(content = inline(Document), content_type = "application/octet-stream", description = "The document"),
    responses(
        (status = 201, description = "A job was made of it", body = JobShape),
        (status = 200, description = "The name came before, and this is its job", body = JobShape),
        (status = 410, description = "The name came before, and its job is gone", body = ProblemShape, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = ProblemShape, content_type = "application/problem+json"),
        (status = 415, description = "Not application/octet-stream", body = ProblemShape, content_type = "application/problem+json"),
        (status = 422, description = "Empty, or without a name", body = ProblemShape, content_type = "application/problem+json"),
    )
)]
async fn upload(
    State(app): State<App>,
    caller: Caller,
    Extension(uploads): Extension<Uploads>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    must_be_bytes(&headers)?;
    // What would be refused in the end is refused before a hundred megabytes have come for nothing. Whether it is taken is for the
    // lifecycle to say all the same.
    if !caller.actor.may_produce() {
        return Err(EngineError::Forbidden("this key has no role that makes jobs".to_owned()).into());
    }
    let catalog = app.engine().store().definitions().await?;
    let lifecycle = catalog.definitions.get(JOB).ok_or_else(Problem::not_found)?;
    let name = name(&headers, lifecycle)?;
    let _place = uploads.places.take(&caller.actor.id)?;
    let most = Most::of(&app, lifecycle);
    most.check(body.size_hint().lower())?;
    let fields = Map::from_iter([("requestId".to_owned(), name.into())]);
    let create = Create { lifecycle: JOB.into(), id: None, owner: None, fields, payload: None };
    let mut body = body;
    if let Some(job) = made_before(&app, &caller, &create).await? {
        // What comes under a name that came before is dropped, so it is written nowhere. Who waits to be asked for it need not even send it; from
        // others it is taken, since they listen only when they have sent all.
        let is_held_back = headers.contains_key(EXPECT) && body.size_hint().lower() > 0;
        if is_held_back || Coming::new(body, most, uploads.bounds).dropped().await? > 0 {
            let record = app.engine().get(&caller.actor, job?).await?.ok_or_else(Problem::not_found)?;
            return answer(StatusCode::OK, &JobShape::of(&record));
        }
        // Nothing is no document, whatever its name.
        body = Body::empty();
    }
    let arrived = Coming::new(body, most, uploads.bounds).kept(app.engine().arriving()).await?;
    let submission = Submission::new(&caller.actor, Call::Create(create)).traced(trace()).carrying(arrived);
    let made = app.engine().submit(submission).await?;
    let status = if made.is_new() { StatusCode::CREATED } else { StatusCode::OK };
    let record = made.record.ok_or_else(Problem::not_found)?;
    answer(status, &JobShape::of(&record))
}

/// What the caller calls this upload.
fn name<'a>(headers: &'a HeaderMap, lifecycle: &Lifecycle) -> Result<&'a str, Problem> {
    if headers.get_all(&CLIENT_REQUEST_ID).iter().count() > 1 {
        return Err(Problem::bad_input("send one Client-Request-Id"));
    }
    let name = text(headers, &CLIENT_REQUEST_ID)?
        .ok_or_else(|| Problem::bad_input("send a header Client-Request-Id: your own name for this upload"))?;
    let field = lifecycle.field("requestId").and_then(|slot| lifecycle.fields.get(usize::from(slot)));
    let (fewest, most) = field.and_then(|field| field.bounds.size).unwrap_or((0, u64::MAX));
    let characters = u64::try_from(name.chars().count()).unwrap_or(u64::MAX);
    if characters < fewest || characters > most {
        return Err(Problem::bad_input(format!("Client-Request-Id has from {fewest} to {most} characters")));
    }
    Ok(name)
}

/// How many bytes may come.
#[derive(Clone, Copy, Debug)]
struct Most {
    bytes: u64,
    /// It could be more if there were a place for large payloads.
    is_for_want_of_room: bool,
}

impl Most {
    fn of(app: &App, lifecycle: &Lifecycle) -> Self {
        let (of_a_document, of_a_body) = (lifecycle.payload.max, app.settings().body_bytes);
        let of_a_body = u64::try_from(of_a_body).unwrap_or(u64::MAX);
        // Into a database it goes as a whole.
        let is_for_want_of_room = app.engine().objects().is_none() && of_a_body < of_a_document;
        Self { bytes: if is_for_want_of_room { of_a_body } else { of_a_document }, is_for_want_of_room }
    }

    fn check(self, bytes: u64) -> Result<(), Problem> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let most = self.bytes;
        let problem = if self.is_for_want_of_room {
            let detail =
                format!("into its database this server takes {most} bytes at most; with --objects it takes more");
            Problem::new(413, "no_objects", detail)
        } else {
            Problem::new(413, "too_large", format!("a document has at most {most} bytes"))
        };
        Err(problem.with("most", most))
    }
}

/// The job of a name that came before; or that it is gone.
async fn made_before(
    app: &App,
    caller: &Caller,
    create: &Create,
) -> Result<Option<Result<RecordId, EngineError>>, Problem> {
    match app.engine().made_before(&caller.actor, create.clone()).await {
        Ok(job) => Ok(job.map(Ok)),
        Err(gone @ EngineError::Refused(_)) => Ok(Some(Err(gone))),
        Err(error) => Err(error.into()),
    }
}

/// A document as it comes, within its bounds.
struct Coming {
    body: Body,
    most: Most,
    bounds: Bounds,
    paced: Paced,
    /// How many came so far.
    bytes: u64,
}

impl Coming {
    fn new(body: Body, most: Most, bounds: Bounds) -> Self {
        Self { body, most, bounds, paced: Paced::new(bounds.pace), bytes: 0 }
    }

    /// The next piece; none at its end.
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        loop {
            let since = Instant::now();
            let next = timeout(self.bounds.piece_time, self.body.frame()).await;
            let waited = since.elapsed();
            let Some(frame) = next.map_err(|_| slow("the next piece of the document did not come in time"))? else {
                return Ok(None);
            };
            let frame = frame.map_err(|_| Problem::new(400, "broken_body", "the body ended before its end"))?;
            let Ok(piece) = frame.into_data() else { continue };
            let bytes = u64::try_from(piece.len()).unwrap_or(u64::MAX);
            if !self.paced.came(waited, bytes) {
                return Err(slow("the document comes too slowly"));
            }
            self.bytes = self.bytes.saturating_add(bytes);
            self.most.check(self.bytes)?;
            return Ok(Some(piece));
        }
    }

    /// All of it, to where payloads live. Whatever breaks off leaves nothing there.
    async fn kept(mut self, mut arriving: Arriving) -> Result<Arrived, Problem> {
        let bounds = self.bounds;
        let all = async {
            while let Some(piece) = self.next().await? {
                arriving = arriving.take(piece).await?;
            }
            Ok(arriving)
        };
        Ok(in_time(bounds, all).await?.arrived().await?)
    }

    /// All of it, to nowhere; how many bytes it had.
    async fn dropped(mut self) -> Result<u64, Problem> {
        let bounds = self.bounds;
        let all = async {
            while self.next().await?.is_some() {}
            Ok(self.bytes)
        };
        in_time(bounds, all).await
    }
}

async fn in_time<T>(bounds: Bounds, all: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
    timeout(bounds.whole_time, all).await.unwrap_or_else(|_| Err(slow("the document did not come in time")))
}

fn slow(detail: &str) -> Problem {
    Problem::new(408, "slow_body", detail)
}
