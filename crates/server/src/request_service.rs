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
use tower_service::Service as _;

use crate::app::AppState;
use crate::problem::Problem;

/// The service that handles the requests of a connection.
#[derive(Clone, Debug)]
pub(crate) struct RequestService {
    pub(crate) app: AppState,
    pub(crate) router: Router,
    /// Set by the connection's first request.
    pub(crate) saw_request: Arc<AtomicBool>,
}

impl hyper::service::Service<Request<Incoming>> for RequestService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        self.saw_request.store(true, Ordering::Relaxed);
        let (app, mut router) = (self.app.clone(), self.router.clone());
        Box::pin(async move {
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
            Ok(response)
        })
    }
}
