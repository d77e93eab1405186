//! What is known of the request that is being answered: carried beside the handlers, so that none of them must hand it on.

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

/// One request.
#[derive(Debug)]
pub(crate) struct RequestContext {
    method: Method,
    started_at: Instant,
    received_at: Time,
    /// In the log, and in the answer's `x-request-id`.
    id: [u8; 8],
    /// Where the caller says that it stands.
    parent: Option<TraceContext>,
    /// Where this request stands: what comes of it remembers that.
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

    /// It is over: counted, told, and where it stands in a trace, given out as a span. No status: its caller went away.
    fn finish(&self, telemetry: &Telemetry, status: Option<u16>) {
        let (route, elapsed) = (self.route(), self.started_at.elapsed());
        telemetry.request_metrics.record_request(route, &self.method, status, elapsed);
        let (method, owner) = (&self.method, self.owner.get().map_or("", |owner| &**owner));
        let ms = elapsed.as_secs_f64() * 1_000.0;
        // A busy server has thousands a second: only those that went wrong by its own fault are told unasked. Who is turned away because
        // there are too many, or because it is about to end, is counted; a line for each would be one more load.
        match status {
            Some(status) if status >= 500 && status != 503 => {
                warn!(%method, route, status, ms, owner, request = %self.id(), "request");
            }
            Some(status) => debug!(%method, route, status, ms, owner, request = %self.id(), "request"),
            None => debug!(%method, route, ms, owner, request = %self.id(), "the caller went away"),
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

/// A request that is being answered; told of when it ends, however that is.
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

    /// Answer it, with its context at hand.
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

/// Where the request that is being answered stands in a trace.
pub fn current_trace() -> Option<TraceContext> {
    CURRENT_REQUEST.try_with(|context| context.trace).ok().flatten()
}

/// Who asks, once that is known.
pub(crate) fn set_owner(owner: &Arc<str>) {
    let _ = CURRENT_REQUEST.try_with(|context| context.owner.set(Arc::clone(owner)));
}

/// A layer around all routes: it sees the pattern that matched.
pub(crate) async fn record_matched_route(request: Request, next: Next) -> Response {
    if let Some(route) = request.extensions().get::<MatchedPath>() {
        let _ = CURRENT_REQUEST.try_with(|context| context.route.set(route.clone()));
    }
    next.run(request).await
}
