//! Spans on their way to a collector: OTLP over HTTP, as JSON. A thread of its own sends them in batches; whoever has a span
//! puts it into a bounded queue or drops it, and never waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use onceward_core::hex;
use onceward_core::time::Time;
use onceward_core::trace::Trace;
use serde_json::{Value as Json, json};
use tracing::{info, warn};

/// Spans that may wait. Each is a few hundred bytes.
const QUEUE: usize = 8_192;

/// Spans in one request.
const BATCH: usize = 512;

/// A span waits no longer for company.
const EVERY: Duration = Duration::from_secs(1);

/// For a collector to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// For all that is left when the process ends.
const LAST: Duration = Duration::from_secs(5);

/// Between two complaints.
const QUIET: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug)]
pub(crate) enum SpanKind {
    Internal = 1,
    Server = 2,
    Consumer = 5,
}

/// One thing that took time, in a trace.
#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) own: Trace,
    pub(crate) parent: Option<[u8; 8]>,
    pub(crate) links: Vec<Trace>,
    pub(crate) name: String,
    pub(crate) kind: SpanKind,
    pub(crate) from: Time,
    pub(crate) to: Time,
    pub(crate) failed: bool,
    pub(crate) attributes: Vec<Attribute>,
}

#[derive(Debug)]
pub(crate) struct Attribute(&'static str, Json);

impl Attribute {
    pub(crate) fn text(name: &'static str, text: &str) -> Self {
        Self(name, json!({ "stringValue": text }))
    }

    pub(crate) fn number(name: &'static str, number: i64) -> Self {
        // The form asks for numbers of 64 bits as text.
        Self(name, json!({ "intValue": number.to_string() }))
    }

    fn shape(&self) -> Json {
        json!({ "key": self.0, "value": self.1 })
    }
}

impl Span {
    fn shape(&self) -> Json {
        let nanos = |time: Time| (i128::from(time.micros()) * 1_000).to_string();
        let mut shape = json!({
            "traceId": hex::encode(&self.own.id),
            "spanId": hex::encode(&self.own.span),
            "name": self.name,
            "kind": self.kind as u8,
            "startTimeUnixNano": nanos(self.from),
            "endTimeUnixNano": nanos(self.to.max(self.from)),
            "attributes": self.attributes.iter().map(Attribute::shape).collect::<Vec<_>>(),
            "status": if self.failed { json!({ "code": 2 }) } else { json!({}) },
        });
        if let Some(parent) = &self.parent {
            shape["parentSpanId"] = hex::encode(parent).into();
        }
        if !self.links.is_empty() {
            let link = |to: &Trace| json!({ "traceId": hex::encode(&to.id), "spanId": hex::encode(&to.span) });
            shape["links"] = self.links.iter().map(link).collect();
        }
        shape
    }
}

/// Where spans go.
#[derive(Debug)]
pub(crate) struct Exporter {
    queue: Mutex<Option<SyncSender<Span>>>,
    /// Ends with the thread that sends.
    ended: Mutex<Option<Receiver<()>>>,
    /// When the last are given up.
    closing: Arc<OnceLock<Instant>>,
    counted: Arc<Sent>,
}

#[derive(Debug, Default)]
struct Sent {
    exported: AtomicU64,
    lost: AtomicU64,
}

impl Exporter {
    /// To `{endpoint}/v1/traces`.
    pub(crate) fn start(endpoint: &str, headers: Vec<(String, String)>) -> std::io::Result<Self> {
        let (sender, spans) = sync_channel(QUEUE);
        let counted = Arc::new(Sent::default());
        let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        let closing = Arc::new(OnceLock::new());
        let sending = Sending {
            url,
            headers,
            agent: agent(),
            closing: Arc::clone(&closing),
            counted: Arc::clone(&counted),
            complained: None,
        };
        let (ends, ended) = sync_channel(0);
        std::thread::Builder::new().name("traces".to_owned()).spawn(move || {
            sending.run(&spans);
            drop(ends);
        })?;
        Ok(Self { queue: Mutex::new(Some(sender)), ended: Mutex::new(Some(ended)), closing, counted })
    }

    /// Never waits: one that finds no room is lost, and counted.
    pub(crate) fn put(&self, span: Span) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.as_ref().is_none_or(|queue| queue.try_send(span).is_err()) {
            self.counted.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Spans that a collector took, and those that were lost.
    pub(crate) fn counted(&self) -> (u64, u64) {
        (self.counted.exported.load(Ordering::Relaxed), self.counted.lost.load(Ordering::Relaxed))
    }

    /// Send what is left, for so long as is fair to whoever waits for the process to end.
    pub(crate) fn close(&self) {
        let _ = self.closing.set(Instant::now() + LAST);
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ended) = ended {
            // One that is on its way to a collector that does not answer ends with the process.
            let _ = ended.recv_timeout(LAST);
        }
        let (exported, lost) = self.counted();
        info!(exported, lost, "traces ended");
    }
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(PATIENCE))
        .max_redirects(0)
        .user_agent(concat!("onceward/", env!("CARGO_PKG_VERSION")));
    config.build().into()
}

/// The thread that sends.
struct Sending {
    url: String,
    headers: Vec<(String, String)>,
    agent: ureq::Agent,
    closing: Arc<OnceLock<Instant>>,
    counted: Arc<Sent>,
    complained: Option<Instant>,
}

impl Sending {
    fn run(mut self, spans: &Receiver<Span>) {
        let mut open = true;
        while open {
            let mut batch = Vec::new();
            let Ok(first) = spans.recv() else { return };
            batch.push(first);
            let until = Instant::now() + EVERY;
            while batch.len() < BATCH {
                match spans.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(span) => batch.push(span),
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => {
                        open = false;
                        break;
                    }
                }
            }
            self.send(&batch);
        }
    }

    fn send(&mut self, spans: &[Span]) {
        let count = u64::try_from(spans.len()).unwrap_or(u64::MAX);
        if self.closing.get().is_some_and(|end| *end <= Instant::now()) {
            self.counted.lost.fetch_add(count, Ordering::Relaxed);
            return;
        }
        let body = request(spans).to_string();
        let mut post = self.agent.post(&self.url).header("content-type", "application/json");
        for (name, value) in &self.headers {
            post = post.header(name, value);
        }
        match post.send(body) {
            Ok(_) => {
                self.counted.exported.fetch_add(count, Ordering::Relaxed);
            }
            Err(error) => {
                self.counted.lost.fetch_add(count, Ordering::Relaxed);
                if self.complained.is_none_or(|at| at.elapsed() > QUIET) {
                    self.complained = Some(Instant::now());
                    let status = if let ureq::Error::StatusCode(status) = error { status } else { 0 };
                    warn!(status, spans = count, "traces cannot be delivered and are lost");
                }
            }
        }
    }
}

fn request(spans: &[Span]) -> Json {
    let resource = [
        Attribute::text("service.name", "onceward"),
        Attribute::text("service.version", env!("CARGO_PKG_VERSION")),
        Attribute::number("process.pid", i64::from(std::process::id())),
    ];
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource.iter().map(Attribute::shape).collect::<Vec<_>>() },
        "scopeSpans": [{
            "scope": { "name": "onceward", "version": env!("CARGO_PKG_VERSION") },
            "spans": spans.iter().map(Span::shape).collect::<Vec<_>>(),
        }],
    }] })
}
