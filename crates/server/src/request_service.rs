//! Wraps every request: counts it, limits its time, and turns a panic into a response.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, header};
use axum::response::IntoResponse as _;
use futures_util::FutureExt as _;
use hyper::body::Incoming;
use tokio::task::JoinSet;
use tower_service::Service as _;

use crate::app::AppState;
use crate::auth::is_health_path;
use crate::problem::Problem;

/// The service that handles the requests of a connection.
#[derive(Clone, Debug)]
pub(crate) struct RequestService {
    pub(crate) app: AppState,
    router: Router,
    /// Set by the connection's first request.
    saw_request: Arc<AtomicBool>,
    mode: ServiceMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServiceMode {
    /// Handles requests on the current runtime.
    Direct,
    /// Handles health checks on the current runtime, and other requests on the engine's.
    Forwarding,
    /// Like `Forwarding`, but closes the connection after the first response.
    Closing,
}

impl RequestService {
    pub(crate) fn new(app: AppState, router: Router) -> Self {
        Self { app, router, saw_request: Arc::default(), mode: ServiceMode::Direct }
    }

    /// For another connection, with a flag of its own.
    pub(crate) fn for_connection(self, saw_request: Arc<AtomicBool>) -> Self {
        Self { saw_request, ..self }
    }

    /// For a connection on the listener's runtime.
    pub(crate) fn forwarding(self) -> Self {
        Self { mode: ServiceMode::Forwarding, ..self }
    }

    /// For a health check over a limit.
    pub(crate) fn closing(self) -> Self {
        Self { mode: ServiceMode::Closing, ..self }
    }
}

impl hyper::service::Service<Request<Incoming>> for RequestService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.saw_request.store(true, Ordering::Relaxed);
        let (app, router, mode) = (self.app.clone(), self.router.clone(), self.mode);
        if mode == ServiceMode::Direct {
            return Box::pin(async move { Ok(handle(app, router, request).await) });
        }
        Box::pin(async move {
            let mut response = if is_health_path(request.uri().path()) {
                handle(app, router, request).await
            } else {
                // If the client disconnects, dropping the set aborts the handler.
                let (runtime, mut handler) = (app.engine().runtime().clone(), JoinSet::new());
                handler.spawn_on(handle(app, router, request), &runtime);
                let handled = handler.join_next().await;
                handled.and_then(Result::ok).unwrap_or_else(|| Problem::internal().into_response())
            };
            if mode == ServiceMode::Closing {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        })
    }
}

async fn handle(app: AppState, mut router: Router, mut request: Request<Incoming>) -> Response<Body> {
    let _in_flight = app.capacity().begin_request();
    let body_budget = Arc::new(app.capacity().body_budget());
    request.extensions_mut().insert(Arc::clone(&body_budget));
    let is_self_timed = app.is_self_timed(request.uri().path());
    let request_timeout = if is_self_timed { Duration::MAX } else { app.config().request_timeout };
    let observer = app.telemetry().begin_request(request.method(), request.headers());
    let handling = observer.scope(AssertUnwindSafe(router.call(request)).catch_unwind());
    let mut response = match tokio::time::timeout(request_timeout, handling).await {
        Ok(Ok(Ok(response))) => response,
        Ok(Err(_)) => {
            tracing::error!("request handler panicked");
            Problem::internal().into_response()
        }
        Err(_) => Problem::timed_out().into_response(),
    };
    if app.capacity().is_draining() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if let Ok(id) = HeaderValue::from_str(&observer.context().id()) {
        response.headers_mut().insert("x-request-id", id);
    }
    observer.finish(response.status().as_u16());
    drop(body_budget);
    response
}
