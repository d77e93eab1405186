//! What can be seen of a server from outside: metrics, one line for each request, and traces. None of it holds anything that a
//! record or a call brings along: ids, names of lifecycles and states, numbers and times only.

mod chance;
mod context;
mod exposition;
mod metrics;
mod otlp;
mod process;
mod requests;

use std::sync::Arc;

use axum::http::{HeaderMap, Method};
use onceward_engine::{ExecutionSpan, OperationSpan, Spans};
use onceward_store::Clock;

pub use context::trace;
pub(crate) use context::{Watched, matched, owner};
pub(crate) use metrics::{Looked, page};

use chance::Chance;
use context::Context;
use otlp::{Attribute, Exporter, Span, SpanKind};
use requests::Requests;

/// Where traces go, and how many.
#[derive(Clone, Debug, PartialEq)]
pub struct Tracing {
    /// A collector that takes OTLP over HTTP, as `http://127.0.0.1:4318`.
    pub endpoint: String,
    /// Sent with each request to it.
    pub headers: Vec<(String, String)>,
    /// The part of the requests without a trace of their own that begin one, from 0 to 1.
    pub sample: f64,
}

/// All that watches. Made before the engine, which is told of it; the server has the same one.
#[derive(Debug)]
pub struct Observe {
    requests: Requests,
    looked: Looked,
    exporter: Option<Exporter>,
    chance: Chance,
    clock: Clock,
}

impl Observe {
    /// Metrics and log only.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::with(None, 0.0))
    }

    /// And traces.
    pub fn tracing(tracing: Tracing) -> std::io::Result<Arc<Self>> {
        let exporter = Exporter::start(&tracing.endpoint, tracing.headers)?;
        Ok(Arc::new(Self::with(Some(exporter), tracing.sample)))
    }

    fn with(exporter: Option<Exporter>, sample: f64) -> Self {
        let (requests, looked) = (Requests::default(), Looked::default());
        Self { requests, looked, exporter, chance: Chance::new(sample), clock: Clock::machine() }
    }

    /// What an engine's [`Config`](onceward_engine::Config) is given, where traces go anywhere.
    pub fn spans(self: &Arc<Self>) -> Option<Arc<dyn Spans>> {
        self.exports().then(|| Arc::clone(self) as Arc<dyn Spans>)
    }

    /// Whether traces go anywhere.
    pub(crate) fn exports(&self) -> bool {
        self.exporter.is_some()
    }

    /// Send what is left of traces. Blocks for as long as a collector may take to answer.
    pub fn close(&self) {
        if let Some(exporter) = &self.exporter {
            exporter.close();
        }
    }

    pub(crate) fn begin(self: &Arc<Self>, method: &Method, headers: &HeaderMap) -> Watched {
        // More than one is none: the standard says so.
        let mut all = headers.get_all("traceparent").iter();
        let first = all.next().filter(|_| all.next().is_none()).and_then(|value| value.to_str().ok());
        Watched::new(Arc::clone(self), Context::new(self, method, first))
    }

    fn export(&self, span: Span) {
        if let Some(exporter) = &self.exporter {
            exporter.put(span);
        }
    }
}

impl Spans for Observe {
    fn operation(&self, operation: OperationSpan) {
        let OperationSpan { parent, kind, took, code } = operation;
        let to = self.clock.now();
        let micros = i64::try_from(took.as_micros()).unwrap_or(0);
        let attributes = code.iter().map(|code| Attribute::text("error.type", code)).collect();
        self.export(Span {
            own: onceward_core::trace::Trace { span: self.chance.span(), ..parent },
            parent: Some(parent.span),
            links: Vec::new(),
            name: format!("operation {kind}"),
            kind: SpanKind::Internal,
            from: onceward_core::time::Time::from_micros(to.micros().saturating_sub(micros)),
            to,
            failed: code.is_some(),
            attributes,
        });
    }

    fn execution(&self, execution: ExecutionSpan) {
        let ExecutionSpan { parent, own, record, lifecycle, attempt, leased_at, ended_at, end } = execution;
        let mut attributes = vec![
            Attribute::text("onceward.lifecycle", &lifecycle),
            Attribute::text("onceward.record", &record.to_string()),
            Attribute::number("onceward.attempt", i64::try_from(attempt).unwrap_or(i64::MAX)),
            Attribute::text("onceward.end", end),
        ];
        let failed = matches!(end, "failed" | "lost");
        if failed {
            attributes.push(Attribute::text("error.type", end));
        }
        self.export(Span {
            own,
            parent: Some(parent.span),
            // In the same trace, and linked: programs that show the messages of a trace look for the link.
            links: vec![parent],
            name: format!("execution {lifecycle}"),
            kind: SpanKind::Consumer,
            from: leased_at,
            to: ended_at,
            failed,
            attributes,
        });
    }
}
