//! The context of the current request, in a task-local so that handlers need not pass it on.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use onceward_core::hex;
use onceward_core::time::Time;
use onceward_core::trace::TraceContext;
use tracing::{debug, warn};

use super::Telemetry;
use super::otlp::{SpanAttribute, SpanKind, TraceSpan};
use super::request_metrics::UNMATCHED_ROUTE;

tokio::task_local! {
    static CURRENT_REQUEST: Arc<RequestContext>;
}

/// What telemetry knows of one request.
#[derive(Debug)]
pub(crate) struct RequestContext {
    method: Method,
    started_at: Instant,
    received_at: Time,
    /// Request id in the log and in the response header `x-request-id`.
    id: [u8; 8],
    /// The caller's span, from `traceparent`.
    parent: Option<TraceContext>,
    /// The span of this request. Operations and jobs that result from it continue this trace.
    trace: Option<TraceContext>,
    route: OnceLock<MatchedPath>,
    owner: OnceLock<Arc<str>>,
}

impl RequestContext {
    pub(super) fn new(telemetry: &Telemetry, method: &Method, traceparent: Option<&str>) -> Self {
        let parent = traceparent.and_then(TraceContext::parse);
        let id = telemetry.ids.new_span_id();
        let trace = match (telemetry.is_exporting(), parent) {
            (false, parent) => parent,
            (true, Some(parent)) => Some(TraceContext { span_id: id, ..parent }),
            (true, None) => telemetry.ids.should_sample().then(|| TraceContext {
                trace_id: telemetry.ids.new_trace_id(),
                span_id: id,
                flags: 1,
            }),
        };
        let (route, owner) = (OnceLock::new(), OnceLock::new());
        Self {
            method: method.clone(),
            started_at: Instant::now(),
            received_at: telemetry.clock.now(),
            id,
            parent,
            trace,
            route,
            owner,
        }
    }

    pub(crate) fn id(&self) -> String {
        hex::encode(&self.id)
    }

    fn route(&self) -> &str {
        self.route.get().map_or(UNMATCHED_ROUTE, MatchedPath::as_str)
    }

    /// Counts, logs and traces the finished request. `status` is `None` if the caller disconnected.
    fn finish(&self, telemetry: &Telemetry, status: Option<u16>) {
        let (route, elapsed) = (self.route(), self.started_at.elapsed());
        telemetry.request_metrics.record_request(route, &self.method, status, elapsed);
        let (method, owner) = (&self.method, self.owner.get().map_or("", |owner| &**owner));
        let ms = elapsed.as_secs_f64() * 1_000.0;
        // Only internal errors are logged as warnings. A busy server answers thousands of requests per second, and
        // logging each 503 would add to the overload.
        match status {
            Some(status) if status >= 500 && status != 503 => {
                warn!(%method, route, status, ms, owner, request = %self.id(), "request");
            }
            Some(status) => debug!(%method, route, status, ms, owner, request = %self.id(), "request"),
            None => debug!(%method, route, ms, owner, request = %self.id(), "client disconnected"),
        }
        let Some(own) = self.trace.filter(|own| own.is_sampled() && telemetry.is_exporting()) else { return };
        let mut attributes = vec![
            SpanAttribute::text("http.request.method", method.as_str()),
            SpanAttribute::text("http.route", route),
            SpanAttribute::text("onceward.request", &self.id()),
        ];
        attributes.extend(status.map(|status| SpanAttribute::number("http.response.status_code", i64::from(status))));
        telemetry.export_span(TraceSpan {
            context: own,
            parent: self.parent.map(|parent| parent.span_id),
            links: Vec::new(),
            name: format!("{method} {route}"),
            kind: SpanKind::Server,
            started_at: self.received_at,
            ended_at: telemetry.clock.now(),
            failed: status.is_none_or(|status| status >= 500),
            attributes,
        });
    }
}

/// Observes a request and reports its end, also if its future is dropped.
#[derive(Debug)]
pub(crate) struct RequestObserver {
    context: Arc<RequestContext>,
    telemetry: Arc<Telemetry>,
    is_finished: bool,
}

impl RequestObserver {
    pub(super) fn new(telemetry: Arc<Telemetry>, context: RequestContext) -> Self {
        Self { context: Arc::new(context), telemetry, is_finished: false }
    }

    pub(crate) fn context(&self) -> &Arc<RequestContext> {
        &self.context
    }

    /// Runs the handler with this request as the current one.
    pub(crate) async fn scope<F: Future>(&self, handling: F) -> F::Output {
        CURRENT_REQUEST.scope(Arc::clone(&self.context), handling).await
    }

    pub(crate) fn finish(mut self, status: u16) {
        self.is_finished = true;
        self.context.finish(&self.telemetry, Some(status));
    }
}

impl Drop for RequestObserver {
    fn drop(&mut self) {
        if !self.is_finished {
            self.context.finish(&self.telemetry, None);
        }
    }
}

/// Returns the trace context of the current request.
pub fn current_trace() -> Option<TraceContext> {
    CURRENT_REQUEST.try_with(|context| context.trace).ok().flatten()
}

/// Notes the owner of the current request for the log.
pub(crate) fn set_owner(owner: &Arc<str>) {
    let _ = CURRENT_REQUEST.try_with(|context| context.owner.set(Arc::clone(owner)));
}

/// Middleware that notes the matched route pattern.
pub(crate) async fn record_matched_route(request: Request, next: Next) -> Response {
    if let Some(route) = request.extensions().get::<MatchedPath>() {
        let _ = CURRENT_REQUEST.try_with(|context| context.route.set(route.clone()));
    }
    next.run(request).await
}
