//! Bounds the memory of responses that clients have not read yet: in the process, and for each API key.
//!
//! A handler that may answer with much reserves that much before it reads the store, and waits if necessary. When the
//! response is ready, the reservation shrinks to its size; it is released when the last byte is with the kernel.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::Method;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use onceward_engine::Identity;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::app::AppState;
use crate::config::ServerConfig;
use crate::problem::Problem;

/// Smaller responses are not counted: all connections together cannot hold much of them.
const MIN_COUNTED_BYTES: usize = 16 << 10;

/// A semaphore counts at most `u32::MAX` permits, so a permit stands for this many bytes.
const BYTES_PER_PERMIT: usize = 1 << 10;

#[derive(Debug)]
pub(crate) struct ResponseMemory {
    total: Arc<Semaphore>,
    max_permits: u32,
    max_permits_per_key: u32,
    wait_timeout: Duration,
    /// One entry for each API key that got a large response: at most as many as the engine allows.
    by_api_key: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
}

/// Permits of one response. Dropping them releases the memory.
#[derive(Debug)]
struct Permits {
    total: OwnedSemaphorePermit,
    of_api_key: Option<OwnedSemaphorePermit>,
}

fn permits_for(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(BYTES_PER_PERMIT)).unwrap_or(u32::MAX)
}

impl ResponseMemory {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let max_permits = permits_for(config.max_total_response_bytes).max(1);
        let share = u64::from(max_permits) * u64::from(config.api_key_share_percent) / 100;
        Self {
            total: Arc::new(Semaphore::new(usize::try_from(max_permits).unwrap_or(Semaphore::MAX_PERMITS))),
            max_permits,
            max_permits_per_key: u32::try_from(share).unwrap_or(u32::MAX).clamp(1, max_permits),
            wait_timeout: config.response_memory_timeout,
            by_api_key: Mutex::default(),
        }
    }

    pub(crate) fn used_bytes(&self) -> usize {
        let max = usize::try_from(self.max_permits).unwrap_or(usize::MAX);
        max.saturating_sub(self.total.available_permits()).saturating_mul(BYTES_PER_PERMIT)
    }

    /// Returns the semaphore of an API key. A call without one has no limit of its own.
    fn semaphore_of(&self, api_key: Option<&Arc<str>>) -> Option<Arc<Semaphore>> {
        let mut by_api_key = self.by_api_key.lock().unwrap_or_else(PoisonError::into_inner);
        let permits = usize::try_from(self.max_permits_per_key).unwrap_or(Semaphore::MAX_PERMITS);
        Some(Arc::clone(by_api_key.entry(Arc::clone(api_key?)).or_insert_with(|| Arc::new(Semaphore::new(permits)))))
    }

    /// One response may have all permits of its API key, so that it is not rejected for ever.
    fn bounded_permits(&self, bytes: usize, api_key: Option<&Arc<str>>) -> u32 {
        permits_for(bytes).min(if api_key.is_some() { self.max_permits_per_key } else { self.max_permits })
    }

    async fn acquire(&self, api_key: Option<&Arc<str>>, permits: u32) -> Option<Permits> {
        let acquiring = async {
            let of_api_key = match self.semaphore_of(api_key) {
                Some(own) => Some(own.acquire_many_owned(permits).await.ok()?),
                None => None,
            };
            Some(Permits { total: Arc::clone(&self.total).acquire_many_owned(permits).await.ok()?, of_api_key })
        };
        tokio::time::timeout(self.wait_timeout, acquiring).await.ok().flatten()
    }

    fn try_acquire(&self, api_key: Option<&Arc<str>>, permits: u32) -> Option<Permits> {
        let of_api_key = match self.semaphore_of(api_key) {
            Some(own) => Some(own.try_acquire_many_owned(permits).ok()?),
            None => None,
        };
        Some(Permits { total: Arc::clone(&self.total).try_acquire_many_owned(permits).ok()?, of_api_key })
    }
}

/// The memory that one request has reserved for its response.
#[derive(Clone, Debug)]
pub(crate) struct ResponseReservation(Arc<ReservationState>);

#[derive(Debug)]
struct ReservationState {
    app: AppState,
    api_key: Option<Arc<str>>,
    permits: Mutex<Option<Permits>>,
}

impl ResponseReservation {
    fn new(app: AppState, api_key: Option<Arc<str>>) -> Self {
        Self(Arc::new(ReservationState { app, api_key, permits: Mutex::default() }))
    }

    fn memory(&self) -> &ResponseMemory {
        self.0.app.capacity().response_memory()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Permits>> {
        self.0.permits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves memory before a call that may answer with this much. Waits for it, up to a deadline. Call it once, and
    /// before the call takes effect.
    pub(crate) async fn reserve(&self, bytes: usize) -> Result<(), Problem> {
        let permits = self.memory().bounded_permits(bytes, self.0.api_key.as_ref());
        let acquired = self.memory().acquire(self.0.api_key.as_ref(), permits).await;
        *self.lock() = Some(acquired.ok_or_else(exhausted)?);
        Ok(())
    }

    /// Reserves what one call may answer at most.
    pub(crate) async fn reserve_largest(&self) -> Result<(), Problem> {
        self.reserve(self.0.app.config().max_response_bytes).await
    }

    /// Changes the reservation to the size of the response, without waiting. Returns false if there is not enough
    /// memory; then the response must be dropped.
    pub(crate) fn try_resize(&self, bytes: usize) -> bool {
        let mut held = self.lock();
        if bytes < MIN_COUNTED_BYTES {
            *held = None;
            return true;
        }
        let wanted = self.memory().bounded_permits(bytes, self.0.api_key.as_ref());
        let wanted_permits = usize::try_from(wanted).unwrap_or(usize::MAX);
        let missing = match &mut *held {
            Some(permits) => {
                let excess = permits.total.num_permits().saturating_sub(wanted_permits);
                drop(permits.total.split(excess));
                drop(permits.of_api_key.as_mut().and_then(|own| own.split(excess)));
                wanted - u32::try_from(permits.total.num_permits()).unwrap_or(wanted)
            }
            None => wanted,
        };
        if missing == 0 {
            return true;
        }
        let Some(more) = self.memory().try_acquire(self.0.api_key.as_ref(), missing) else { return false };
        match &mut *held {
            Some(permits) => {
                permits.total.merge(more.total);
                if let (Some(own), Some(more)) = (&mut permits.of_api_key, more.of_api_key) {
                    own.merge(more);
                }
            }
            None => *held = Some(more),
        }
        true
    }

    /// Ties the reservation to the response's bytes. Replaces the response if there is no memory for it.
    async fn attach_to(self, response: Response, method: &Method) -> Response {
        let (parts, body) = response.into_parts();
        let Some(bytes) = body.size_hint().exact() else {
            // A stream holds what its handler reserved until it ends.
            let body =
                if self.lock().is_some() { Body::new(ReservedStream { body, _reservation: self }) } else { body };
            return Response::from_parts(parts, body);
        };
        // A handler that reserved memory has estimated the size; the response may be a little larger.
        if !self.try_resize(usize::try_from(bytes).unwrap_or(usize::MAX)) && self.lock().is_none() {
            return if method == Method::GET { exhausted() } else { response_dropped() }.into_response();
        }
        if self.lock().is_none() {
            return Response::from_parts(parts, body);
        }
        // Cannot fail: the body is complete.
        let content = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        Response::from_parts(parts, Body::from(Bytes::from_owner(ReservedBytes { content, _reservation: self })))
    }
}

/// The error of a call that was not carried out, because there is no memory for its response.
pub(crate) fn exhausted() -> Problem {
    let detail = "responses that clients have not read use all the memory reserved for them; retry";
    Problem::new(503, "overloaded", detail)
}

fn response_dropped() -> Problem {
    let detail = "the call was carried out, but responses that clients have not read use all the memory reserved for them; repeat the \
                  call with its idempotency key or token, or read the record";
    Problem::new(503, "response_dropped", detail)
}

impl FromRequestParts<AppState> for ResponseReservation {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Problem> {
        // The middleware below runs before every handler.
        parts.extensions.get::<Self>().cloned().ok_or_else(Problem::internal)
    }
}

/// Middleware that counts each response until the client has read it.
pub(crate) async fn limit_response_memory(State(app): State<AppState>, mut request: Request, next: Next) -> Response {
    if request.uri().path() == "/metrics" {
        // Must be readable while the memory is used up.
        return next.run(request).await;
    }
    let api_key = request.extensions().get::<Identity>().and_then(|identity| identity.api_key_id.clone());
    let reservation = ResponseReservation::new(app, api_key);
    let method = request.method().clone();
    request.extensions_mut().insert(reservation.clone());
    let response = next.run(request).await;
    reservation.attach_to(response, &method).await
}

/// A complete response. hyper holds its bytes until they are with the kernel.
struct ReservedBytes {
    content: Bytes,
    _reservation: ResponseReservation,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

/// A streamed response.
struct ReservedStream {
    body: Body,
    _reservation: ResponseReservation,
}

impl HttpBody for ReservedStream {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
