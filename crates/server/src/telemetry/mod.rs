//! Metrics, request log and traces. They contain ids, names of lifecycles and states, numbers and times, but no
//! data of records or calls.

mod cached_stats;
mod context;
mod ids;
mod metrics;
mod otlp;
mod process;
mod prometheus;
mod request_metrics;

use std::sync::Arc;

use axum::http::{HeaderMap, Method};
use onceward_engine::{ExecutionSpan, OperationSpan, SpanSink};
use onceward_store::Clock;

pub use context::current_trace;
pub(crate) use context::{RequestObserver, record_matched_route, set_owner};
pub(crate) use metrics::render_metrics;

use cached_stats::CachedStats;
use context::RequestContext;
use ids::IdGenerator;
use otlp::{SpanAttribute, SpanExporter, SpanKind, TraceSpan};
use request_metrics::RequestMetrics;

/// Where to export traces, and how many requests to sample.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceExport {
    /// An OTLP/HTTP collector, such as `http://127.0.0.1:4318`.
    pub endpoint: String,
    /// Headers of each export request.
    pub headers: Vec<(String, String)>,
    /// Fraction of the requests without `traceparent` that start a trace, from 0 to 1.
    pub sample_ratio: f64,
}

/// Collects metrics and traces. Created before the engine; the engine and the server share it.
#[derive(Debug)]
pub struct Telemetry {
    request_metrics: RequestMetrics,
    cached_stats: CachedStats,
    exporter: Option<SpanExporter>,
    ids: IdGenerator,
    clock: Clock,
}

impl Telemetry {
    /// Creates telemetry without traces.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::build(None, 0.0))
    }

    /// Creates telemetry that exports traces.
    pub fn with_traces(export: TraceExport) -> std::io::Result<Arc<Self>> {
        let exporter = SpanExporter::start(&export.endpoint, export.headers)?;
        Ok(Arc::new(Self::build(Some(exporter), export.sample_ratio)))
    }

    fn build(exporter: Option<SpanExporter>, sample_ratio: f64) -> Self {
        let (request_metrics, cached_stats) = (RequestMetrics::default(), CachedStats::default());
        Self { request_metrics, cached_stats, exporter, ids: IdGenerator::new(sample_ratio), clock: Clock::machine() }
    }

    /// Returns the span sink for [`EngineConfig`](onceward_engine::EngineConfig), or `None` if traces are not exported.
    pub fn span_sink(self: &Arc<Self>) -> Option<Arc<dyn SpanSink>> {
        self.is_exporting().then(|| Arc::clone(self) as Arc<dyn SpanSink>)
    }

    pub(crate) fn is_exporting(&self) -> bool {
        self.exporter.is_some()
    }

    /// Exports the remaining spans. Blocks until the collector answers or times out.
    pub fn close(&self) {
        if let Some(exporter) = &self.exporter {
            exporter.close();
        }
    }

    pub(crate) fn begin_request(self: &Arc<Self>, method: &Method, headers: &HeaderMap) -> RequestObserver {
        // W3C Trace Context: ignore a repeated `traceparent`.
        let mut values = headers.get_all("traceparent").iter();
        let first = values.next().filter(|_| values.next().is_none()).and_then(|value| value.to_str().ok());
        RequestObserver::new(Arc::clone(self), RequestContext::new(self, method, first))
    }

    fn export_span(&self, span: TraceSpan) {
        if let Some(exporter) = &self.exporter {
            exporter.try_enqueue(span);
        }
    }
}

impl SpanSink for Telemetry {
    fn record_operation(&self, operation: OperationSpan) {
        let OperationSpan { parent, kind, duration: took, code } = operation;
        let to = self.clock.now();
        let micros = i64::try_from(took.as_micros()).unwrap_or(0);
        let attributes = code.iter().map(|code| SpanAttribute::text("error.type", code)).collect();
        self.export_span(TraceSpan {
            context: onceward_core::trace::TraceContext { span_id: self.ids.new_span_id(), ..parent },
            parent: Some(parent.span_id),
            links: Vec::new(),
            name: format!("operation {kind}"),
            kind: SpanKind::Internal,
            started_at: onceward_core::time::Time::from_micros(to.micros().saturating_sub(micros)),
            ended_at: to,
            failed: code.is_some(),
            attributes,
        });
    }

    fn record_execution(&self, execution: ExecutionSpan) {
        let ExecutionSpan { parent, context: own, record, lifecycle, attempt, leased_at, ended_at, outcome: end } =
            execution;
        let mut attributes = vec![
            SpanAttribute::text("onceward.lifecycle", &lifecycle),
            SpanAttribute::text("onceward.record", &record.to_string()),
            SpanAttribute::number("onceward.attempt", i64::try_from(attempt).unwrap_or(i64::MAX)),
            SpanAttribute::text("onceward.end", end),
        ];
        let failed = matches!(end, "failed" | "lost");
        if failed {
            attributes.push(SpanAttribute::text("error.type", end));
        }
        self.export_span(TraceSpan {
            context: own,
            parent: Some(parent.span_id),
            // Also linked to its parent, because trace viewers find the messages of a trace by link.
            links: vec![parent],
            name: format!("execution {lifecycle}"),
            kind: SpanKind::Consumer,
            started_at: leased_at,
            ended_at,
            failed,
            attributes,
        });
    }
}
