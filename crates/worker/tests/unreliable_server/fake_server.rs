//! A fake server that answers, hangs or disconnects, request by request.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A request as received.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    /// Number of the connection, from 1.
    pub(crate) connection: usize,
    pub(crate) path: String,
    pub(crate) head: String,
}

impl ReceivedRequest {
    /// Returns the last path segment: the kind of a report.
    pub(crate) fn last_path_segment(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// How to respond to a request.
pub(crate) enum FakeResponse {
    Json(u16, Value),
    /// Keep the connection open without a response.
    Hang,
    /// Send part of a stream, then disconnect.
    Stream(String),
}

pub(crate) type RequestHandler = dyn Fn(&ReceivedRequest) -> FakeResponse + Send + Sync;

/// Starts the server and returns its address. It runs as long as the runtime.
pub(crate) async fn start(handler: impl Fn(&ReceivedRequest) -> FakeResponse + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    let handler: Arc<RequestHandler> = Arc::new(handler);
    tokio::spawn(async move {
        for connection in 1.. {
            let (stream, _) = listener.accept().await.expect("a connection");
            tokio::spawn(serve(stream, connection, Arc::clone(&handler)));
        }
    });
    url
}

async fn serve(stream: TcpStream, connection: usize, handler: Arc<RequestHandler>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await.ok()? == 0 {
                return None;
            }
        }
        let header = |name: &str| {
            let headers = head.lines().filter_map(|line| line.split_once(": "));
            headers
                .filter(|(header_name, _)| header_name.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.to_owned())
                .next()
        };
        let length = header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        let path = head.split(' ').nth(1)?.to_owned();
        match handler(&ReceivedRequest { connection, path, head }) {
            FakeResponse::Json(status, answer) => {
                let answer = answer.to_string();
                let kind = if status < 400 { "application/json" } else { "application/problem+json" };
                let text = format!(
                    "HTTP/1.1 {status} Status\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{answer}",
                    answer.len()
                );
                stream.get_mut().write_all(text.as_bytes()).await.ok()?;
            }
            FakeResponse::Hang => std::future::pending().await,
            FakeResponse::Stream(events) => {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
                let text = format!("{head}{:x}\r\n{events}\r\n", events.len());
                stream.get_mut().write_all(text.as_bytes()).await.ok()?;
                return None;
            }
        }
    }
}

pub(crate) const RECORD_ID: &str = "0199a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b";

/// A response with one job that was leased for `seconds`, with `remaining_ms` left.
pub(crate) fn lease_response(seconds: u32, remaining_ms: u64) -> Value {
    let (leased_at, expires_at) =
        ("2026-01-01T00:00:00Z", format!("2026-01-01T00:{:02}:{:02}Z", seconds / 60, seconds % 60));
    let record = json!({ "id": RECORD_ID, "lifecycle": "a.job", "state": "RUNNING", "version": 2, "owner": "ann", "created_at": leased_at, "updated_at": leased_at });
    let job = json!({ "id": format!("{RECORD_ID}.1"), "token": 1, "attempt": 1, "expires_at": expires_at, "expires_in_ms": remaining_ms, "record": record });
    json!({ "executions": [job] })
}

pub(crate) fn no_jobs() -> FakeResponse {
    FakeResponse::Json(200, json!({ "executions": [] }))
}

pub(crate) fn overloaded() -> FakeResponse {
    FakeResponse::Json(
        503,
        json!({ "status": 503, "code": "overloaded", "title": "Overloaded", "detail": "come back", "retry_after_ms": 50 }),
    )
}
