//! Exports spans to a collector, OTLP over HTTP as JSON. A thread sends them in batches; if its bounded queue is
//! full, spans are dropped instead of blocking the caller.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use axum::http::uri::{Scheme, Uri};
use axum::http::{Method, Request};
use http_body_util::Full;
use onceward_core::hex;
use onceward_core::time::Time;
use onceward_core::trace::TraceContext;
use onceward_http_client::{AddressPolicy, HttpClient, HttpClientConfig, TlsRoots};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

/// Spans that may wait for export. Each takes a few hundred bytes, so a few megabytes in total.
const MAX_QUEUED_SPANS: usize = 8_192;

/// Most spans in one export request.
const MAX_SPANS_PER_REQUEST: usize = 512;

/// Longest wait for more spans before a request is sent.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

/// Time for the collector to answer.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Closes an idle connection before the collector does so in the middle of a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// Time to send the remaining spans at shutdown.
const FINAL_FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Shortest time between two log messages about failed exports.
const ERROR_LOG_INTERVAL: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug)]
pub(crate) enum SpanKind {
    Internal = 1,
    Server = 2,
    Consumer = 5,
}

/// A span of a trace.
#[derive(Debug)]
pub(crate) struct TraceSpan {
    pub(crate) context: TraceContext,
    pub(crate) parent: Option<[u8; 8]>,
    pub(crate) links: Vec<TraceContext>,
    pub(crate) name: String,
    pub(crate) kind: SpanKind,
    pub(crate) started_at: Time,
    pub(crate) ended_at: Time,
    pub(crate) failed: bool,
    pub(crate) attributes: Vec<SpanAttribute>,
}

#[derive(Debug)]
pub(crate) struct SpanAttribute(&'static str, Json);

impl SpanAttribute {
    pub(crate) fn text(name: &'static str, text: &str) -> Self {
        Self(name, json!({ "stringValue": text }))
    }

    pub(crate) fn number(name: &'static str, number: i64) -> Self {
        // OTLP/JSON encodes 64-bit integers as strings.
        Self(name, json!({ "intValue": number.to_string() }))
    }

    fn to_json(&self) -> Json {
        json!({ "key": self.0, "value": self.1 })
    }
}

impl TraceSpan {
    fn to_json(&self) -> Json {
        let nanos = |time: Time| (i128::from(time.micros()) * 1_000).to_string();
        let mut json = json!({
            "traceId": hex::encode(&self.context.trace_id),
            "spanId": hex::encode(&self.context.span_id),
            "name": self.name,
            "kind": self.kind as u8,
            "startTimeUnixNano": nanos(self.started_at),
            "endTimeUnixNano": nanos(self.ended_at.max(self.started_at)),
            "attributes": self.attributes.iter().map(SpanAttribute::to_json).collect::<Vec<_>>(),
            "status": if self.failed { json!({ "code": 2 }) } else { json!({}) },
        });
        if let Some(parent) = &self.parent {
            json["parentSpanId"] = hex::encode(parent).into();
        }
        if !self.links.is_empty() {
            let link =
                |to: &TraceContext| json!({ "traceId": hex::encode(&to.trace_id), "spanId": hex::encode(&to.span_id) });
            json["links"] = self.links.iter().map(link).collect();
        }
        json
    }
}

/// Queue to the exporting thread.
#[derive(Debug)]
pub(crate) struct SpanExporter {
    queue: Mutex<Option<mpsc::Sender<TraceSpan>>>,
    /// Disconnects when the exporting thread ends.
    sender_ended: Mutex<Option<std_mpsc::Receiver<()>>>,
    /// When the exporting thread gives up the remaining spans.
    close_deadline: Arc<OnceLock<Instant>>,
    counters: Arc<ExportCounters>,
}

#[derive(Debug, Default)]
struct ExportCounters {
    exported: AtomicU64,
    lost: AtomicU64,
}

impl SpanExporter {
    /// Starts a thread that exports to `{endpoint}/v1/traces`.
    pub(crate) fn start(endpoint: &str, headers: Vec<(String, String)>) -> io::Result<Self> {
        let (sender, spans) = mpsc::channel(MAX_QUEUED_SPANS);
        let counters = Arc::new(ExportCounters::default());
        let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        let close_deadline = Arc::new(OnceLock::new());
        let uri: Uri = url.parse().map_err(invalid_input)?;
        let is_https = uri.scheme() == Some(&Scheme::HTTPS);
        let otlp_sender = OtlpSender {
            uri,
            headers: export_headers(headers)?,
            client: HttpClient::new(&HttpClientConfig {
                address_policy: AddressPolicy::Configured,
                tls_roots: TlsRoots::for_configured_url(is_https).map_err(io::Error::other)?,
                connect_timeout: EXPORT_TIMEOUT,
                idle_timeout: Some(IDLE_TIMEOUT),
                keepalive: None,
            }),
            close_deadline: Arc::clone(&close_deadline),
            counters: Arc::clone(&counters),
            error_logged_at: None,
        };
        // A runtime of its own, so that the last spans are exported while the server's runtime shuts down.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (ended_signal, ended) = std_mpsc::sync_channel(0);
        std::thread::Builder::new().name("traces".to_owned()).spawn(move || {
            runtime.block_on(otlp_sender.run(spans));
            drop(ended_signal);
        })?;
        Ok(Self { queue: Mutex::new(Some(sender)), sender_ended: Mutex::new(Some(ended)), close_deadline, counters })
    }

    /// Queues a span, or counts it as lost if the queue is full. Never blocks.
    pub(crate) fn try_enqueue(&self, span: TraceSpan) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.as_ref().is_none_or(|queue| queue.try_send(span).is_err()) {
            self.counters.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns how many spans were exported, and how many were lost.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.counters.exported.load(Ordering::Relaxed), self.counters.lost.load(Ordering::Relaxed))
    }

    /// Exports the remaining spans, for at most [`FINAL_FLUSH_TIMEOUT`].
    pub(crate) fn close(&self) {
        let _ = self.close_deadline.set(Instant::now() + FINAL_FLUSH_TIMEOUT);
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let ended = self.sender_ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ended) = ended {
            // A request to an unresponsive collector ends with the process.
            let _ = ended.recv_timeout(FINAL_FLUSH_TIMEOUT);
        }
        let (exported, lost) = self.counts();
        info!(exported, lost, "trace export ended");
    }
}

fn invalid_input(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

fn export_headers(configured: Vec<(String, String)>) -> io::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("onceward/", env!("CARGO_PKG_VERSION"))));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in configured {
        let name = HeaderName::try_from(name).map_err(invalid_input)?;
        headers.insert(name, HeaderValue::try_from(value).map_err(invalid_input)?);
    }
    Ok(headers)
}

/// The state of the exporting thread.
struct OtlpSender {
    uri: Uri,
    headers: HeaderMap,
    client: HttpClient,
    close_deadline: Arc<OnceLock<Instant>>,
    counters: Arc<ExportCounters>,
    error_logged_at: Option<Instant>,
}

impl OtlpSender {
    async fn run(mut self, mut spans: mpsc::Receiver<TraceSpan>) {
        while let Some(first) = spans.recv().await {
            let mut batch = vec![first];
            let flush_at = Instant::now() + FLUSH_INTERVAL;
            while batch.len() < MAX_SPANS_PER_REQUEST {
                match timeout_at(flush_at, spans.recv()).await {
                    Ok(Some(span)) => batch.push(span),
                    // The time is up, or the queue is closed and empty.
                    Ok(None) | Err(_) => break,
                }
            }
            self.send(&batch).await;
        }
    }

    async fn send(&mut self, spans: &[TraceSpan]) {
        let count = u64::try_from(spans.len()).unwrap_or(u64::MAX);
        if self.close_deadline.get().is_some_and(|end| *end <= Instant::now()) {
            self.counters.lost.fetch_add(count, Ordering::Relaxed);
            return;
        }
        let mut request = Request::new(Full::from(export_request(spans).to_string()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let response = self.client.send(request, Instant::now() + EXPORT_TIMEOUT).await;
        let (status, error) = match response {
            Ok(response) => (response.status().as_u16(), None),
            Err(error) => (0, Some(error)),
        };
        if (200..300).contains(&status) {
            self.counters.exported.fetch_add(count, Ordering::Relaxed);
            return;
        }
        self.counters.lost.fetch_add(count, Ordering::Relaxed);
        if self.error_logged_at.is_none_or(|at| at.elapsed() > ERROR_LOG_INTERVAL) {
            self.error_logged_at = Some(Instant::now());
            let error = error.map(tracing::field::display);
            warn!(status, error, spans = count, "exporting traces failed; spans are lost");
        }
    }
}

fn export_request(spans: &[TraceSpan]) -> Json {
    let resource = [
        SpanAttribute::text("service.name", "onceward"),
        SpanAttribute::text("service.version", env!("CARGO_PKG_VERSION")),
        SpanAttribute::number("process.pid", i64::from(std::process::id())),
    ];
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource.iter().map(SpanAttribute::to_json).collect::<Vec<_>>() },
        "scopeSpans": [{
            "scope": { "name": "onceward", "version": env!("CARGO_PKG_VERSION") },
            "spans": spans.iter().map(TraceSpan::to_json).collect::<Vec<_>>(),
        }],
    }] })
}
