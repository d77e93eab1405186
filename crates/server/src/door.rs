//! Around every request: it is counted, bounded in time, and answered also where a handler breaks.

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

use crate::app::App;
use crate::problem::Problem;

/// What a connection's requests go through.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    pub(crate) app: App,
    pub(crate) router: Router,
    /// Set with the connection's first request.
    pub(crate) heard: Arc<AtomicBool>,
}

impl hyper::service::Service<Request<Incoming>> for Door {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        self.heard.store(true, Ordering::Relaxed);
        let (app, mut router) = (self.app.clone(), self.router.clone());
        Box::pin(async move {
            let _under_way = app.gate().enter();
            let room = Arc::new(app.gate().body());
            request.extensions_mut().insert(Arc::clone(&room));
            let is_unhurried = app.is_unhurried(request.uri().path());
            let most = if is_unhurried { Duration::MAX } else { app.settings().request_time };
            let watched = app.observe().begin(request.method(), request.headers());
            let answering = watched.during(AssertUnwindSafe(router.call(request)).catch_unwind());
            let mut response = match tokio::time::timeout(most, answering).await {
                Ok(Ok(Ok(response))) => response,
                Ok(Err(_)) => {
                    tracing::error!("a handler broke");
                    Problem::new(500, "internal", "something is wrong inside; the server's log says more")
                        .into_response()
                }
                Err(_) => Problem::timed_out().into_response(),
            };
            if app.gate().is_leaving() {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            if let Ok(id) = HeaderValue::from_str(&watched.context().id()) {
                response.headers_mut().insert("x-request-id", id);
            }
            watched.answered(response.status().as_u16());
            drop(room);
            Ok(response)
        })
    }
}
