//! What is known of the request that is being answered: carried beside the handlers, so that none of them must hand it on.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use onceward_core::hex;
use onceward_core::time::Time;
use onceward_core::trace::Trace;
use tracing::{debug, warn};

use super::Observe;
use super::otlp::{Attribute, Span, SpanKind};
use super::requests::UNMATCHED;

tokio::task_local! {
    static CURRENT: Arc<Context>;
}

/// One request.
#[derive(Debug)]
pub(crate) struct Context {
    method: Method,
    came: Instant,
    at: Time,
    /// In the log, and in the answer's `x-request-id`.
    id: [u8; 8],
    /// Where the caller says that it stands.
    parent: Option<Trace>,
    /// Where this request stands: what comes of it remembers that.
    own: Option<Trace>,
    route: OnceLock<MatchedPath>,
    owner: OnceLock<Arc<str>>,
}

impl Context {
    pub(super) fn new(observe: &Observe, method: &Method, traceparent: Option<&str>) -> Self {
        let parent = traceparent.and_then(Trace::parse);
        let id = observe.chance.span();
        let own = match (observe.exports(), parent) {
            (false, parent) => parent,
            (true, Some(parent)) => Some(Trace { span: id, ..parent }),
            (true, None) => observe.chance.begins().then(|| Trace { id: observe.chance.trace(), span: id, flags: 1 }),
        };
        let (route, owner) = (OnceLock::new(), OnceLock::new());
        Self { method: method.clone(), came: Instant::now(), at: observe.clock.now(), id, parent, own, route, owner }
    }

    pub(crate) fn id(&self) -> String {
        hex::encode(&self.id)
    }

    fn route(&self) -> &str {
        self.route.get().map_or(UNMATCHED, MatchedPath::as_str)
    }

    /// It is over: counted, told, and where it stands in a trace, given out as a span. No status: its caller went away.
    fn over(&self, observe: &Observe, status: Option<u16>) {
        let (route, took) = (self.route(), self.came.elapsed());
        observe.requests.add(route, &self.method, status, took);
        let (method, owner) = (&self.method, self.owner.get().map_or("", |owner| &**owner));
        let ms = took.as_secs_f64() * 1_000.0;
        // A busy server has thousands a second: only those that went wrong by its own fault are told unasked. Who is turned away because
        // there are too many, or because it is about to end, is counted; a line for each would be one more load.
        match status {
            Some(status) if status >= 500 && status != 503 => {
                warn!(%method, route, status, ms, owner, request = %self.id(), "request");
            }
            Some(status) => debug!(%method, route, status, ms, owner, request = %self.id(), "request"),
            None => debug!(%method, route, ms, owner, request = %self.id(), "the caller went away"),
        }
        let Some(own) = self.own.filter(|own| own.is_sampled() && observe.exports()) else { return };
        let mut attributes = vec![
            Attribute::text("http.request.method", method.as_str()),
            Attribute::text("http.route", route),
            Attribute::text("onceward.request", &self.id()),
        ];
        attributes.extend(status.map(|status| Attribute::number("http.response.status_code", i64::from(status))));
        observe.export(Span {
            own,
            parent: self.parent.map(|parent| parent.span),
            links: Vec::new(),
            name: format!("{method} {route}"),
            kind: SpanKind::Server,
            from: self.at,
            to: observe.clock.now(),
            failed: status.is_none_or(|status| status >= 500),
            attributes,
        });
    }
}

/// A request that is being answered; told of when it ends, however that is.
#[derive(Debug)]
pub(crate) struct Watched {
    context: Arc<Context>,
    observe: Arc<Observe>,
    ended: bool,
}

impl Watched {
    pub(super) fn new(observe: Arc<Observe>, context: Context) -> Self {
        Self { context: Arc::new(context), observe, ended: false }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Answer it, with its context at hand.
    pub(crate) async fn during<F: Future>(&self, answering: F) -> F::Output {
        CURRENT.scope(Arc::clone(&self.context), answering).await
    }

    pub(crate) fn answered(mut self, status: u16) {
        self.ended = true;
        self.context.over(&self.observe, Some(status));
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.ended {
            self.context.over(&self.observe, None);
        }
    }
}

/// Where the request that is being answered stands in a trace.
pub fn trace() -> Option<Trace> {
    CURRENT.try_with(|context| context.own).ok().flatten()
}

/// Who asks, once that is known.
pub(crate) fn owner(owner: &Arc<str>) {
    let _ = CURRENT.try_with(|context| context.owner.set(Arc::clone(owner)));
}

/// A layer around all routes: it sees the pattern that matched.
pub(crate) async fn matched(request: Request, next: Next) -> Response {
    if let Some(route) = request.extensions().get::<MatchedPath>() {
        let _ = CURRENT.try_with(|context| context.route.set(route.clone()));
    }
    next.run(request).await
}
