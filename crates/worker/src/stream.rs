//! Follows the log over server-sent events and reconnects where it broke off.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::HeaderValue;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use onceward_api_types::LogEntry;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::client::Client;
use crate::error::ClientError;
use crate::transport::{ApiRequest, Backoff, percent_encode};

/// The server sends a keep-alive every 15 seconds, so after four missed ones the connection is dead.
const STREAM_IDLE_TIMEOUT: Duration = Duration::from_mins(1);

const TEXT_EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// Longer error bodies are cut.
const MAX_ERROR_BODY_BYTES: usize = 64 << 10;

/// Larger than any log entry: fields are limited, and payloads appear only as hashes.
const MAX_LINE_BYTES: usize = 16 << 20;

/// Which entries to follow.
#[derive(Clone, Debug, Default)]
pub struct StreamOptions {
    /// Start after this `seq`; `None` starts at the end of the log.
    pub after: Option<u64>,
    pub lifecycle: Option<String>,
    pub record: Option<Uuid>,
}

/// Entries of the log, in order, each once. Reconnects after the last entry if the connection breaks.
#[derive(Debug)]
pub struct LogStream {
    client: Client,
    path: String,
    last_seq: Option<u64>,
    connection: Option<StreamConnection>,
    backoff: Backoff,
}

#[derive(Debug)]
struct StreamConnection {
    body: Incoming,
    parser: SseParser,
}

impl Client {
    /// Follows the log.
    pub fn follow(&self, options: &StreamOptions) -> LogStream {
        let after = options.after.map(|after| format!("after={after}"));
        let lifecycle = options.lifecycle.as_ref().map(|name| format!("lifecycle={}", percent_encode(name)));
        let record = options.record.map(|record| format!("record={record}"));
        let query: Vec<String> = [after, lifecycle, record].into_iter().flatten().collect();
        let path = if query.is_empty() { "/v1/stream".to_owned() } else { format!("/v1/stream?{}", query.join("&")) };
        LogStream { client: self.clone(), path, last_seq: None, connection: None, backoff: Backoff::default() }
    }
}

impl LogStream {
    /// Waits for the next entry. After a retryable error, it can be called again; any other error is final.
    pub async fn next(&mut self) -> Result<LogEntry, ClientError> {
        // `retry_timeout` counts only while the server is unavailable. Waiting for an entry is unlimited.
        let mut unavailable_since = None;
        loop {
            let error = match self.try_next_entry().await {
                Ok(Some(entry)) => {
                    self.backoff.reset();
                    self.last_seq = Some(entry.seq);
                    return Ok(entry);
                }
                // The server ended the stream, perhaps because it shuts down.
                Ok(None) => None,
                Err(error) if !error.is_retryable() => return Err(error),
                Err(error) => Some(error),
            };
            let was_connected = self.connection.take().is_some();
            let delay = self.backoff.next_delay();
            let now = Instant::now();
            // If there was a connection, the server is unavailable only since now.
            let since =
                if was_connected { *unavailable_since.insert(now) } else { *unavailable_since.get_or_insert(now) };
            match error {
                Some(error) if now + delay > since + self.client.retry_policy.retry_timeout => return Err(error),
                _ => tokio::time::sleep(delay).await,
            }
        }
    }

    async fn try_next_entry(&mut self) -> Result<Option<LogEntry>, ClientError> {
        let connection = match &mut self.connection {
            Some(open) => open,
            None => self.connection.insert(open_stream(&self.client, &self.path, self.last_seq).await?),
        };
        loop {
            while let Some(event) =
                connection.parser.next_event().map_err(|error| self.client.invalid_response(&error))?
            {
                // Note the position of events without data, too, to reconnect there.
                self.last_seq = event.id.or(self.last_seq);
                if event.data.is_empty() {
                    continue;
                }
                // Ignore event types of newer servers.
                if event.name.as_deref().is_none_or(|name| name == "entry" || name == "message") {
                    return serde_json::from_str(&event.data)
                        .map(Some)
                        .map_err(|error| self.client.invalid_response(&error));
                }
            }
            match timeout(STREAM_IDLE_TIMEOUT, connection.body.frame()).await {
                Err(_) => return Err(self.client.timeout_error(STREAM_IDLE_TIMEOUT)),
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(self.client.unreachable_error(&error, false)),
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        connection.parser.push(&data);
                    }
                }
            }
        }
    }
}

async fn open_stream(client: &Client, path: &str, last_seq: Option<u64>) -> Result<StreamConnection, ClientError> {
    let deadline = Instant::now() + client.retry_policy.response_timeout;
    let response =
        client.open_response(&ApiRequest::get(path.to_owned()), deadline, TEXT_EVENT_STREAM, last_seq).await?;
    let (parts, body) = response.into_parts();
    if parts.status.is_success() {
        return Ok(StreamConnection { body, parser: SseParser::default() });
    }
    let error_body = Limited::new(body, MAX_ERROR_BODY_BYTES).collect().await;
    let error_body = error_body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Err(client.refusal_error(parts.status.as_u16(), &parts.headers, &error_body))
}

/// A complete event.
#[derive(Debug, Default, PartialEq, Eq)]
struct SseEvent {
    name: Option<String>,
    /// Position in the log.
    id: Option<u64>,
    data: String,
}

/// Parses server-sent events from chunks of bytes.
#[derive(Debug, Default)]
struct SseParser {
    buffer: BytesMut,
    /// Number of bytes in `buffer` already searched for a line end.
    scanned_bytes: usize,
    current_event: SseEvent,
    has_data: bool,
}

impl SseParser {
    fn push(&mut self, data: &Bytes) {
        self.buffer.extend_from_slice(data);
    }

    /// Returns the next complete event.
    fn next_event(&mut self) -> Result<Option<SseEvent>, String> {
        while let Some(line) = self.next_line()? {
            if line.is_empty() {
                let event = std::mem::take(&mut self.current_event);
                if std::mem::take(&mut self.has_data) || event.id.is_some() {
                    return Ok(Some(event));
                }
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "data" => {
                    if self.has_data {
                        self.current_event.data.push('\n');
                    }
                    self.current_event.data.push_str(value);
                    self.has_data = true;
                }
                "event" => self.current_event.name = Some(value.to_owned()),
                "id" => self.current_event.id = value.parse().ok(),
                // Comments are keep-alives.
                _ => {}
            }
        }
        Ok(None)
    }

    fn next_line(&mut self) -> Result<Option<String>, String> {
        let Some(end) = self.buffer[self.scanned_bytes..].iter().position(|byte| *byte == b'\n') else {
            self.scanned_bytes = self.buffer.len();
            if self.scanned_bytes > MAX_LINE_BYTES {
                return Err("a line of the event stream is too long".to_owned());
            }
            return Ok(None);
        };
        let line = self.buffer.split_to(self.scanned_bytes + end);
        self.buffer.advance(1);
        self.scanned_bytes = 0;
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        String::from_utf8(line.to_vec()).map(Some).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sse_parser_reassembles_events_from_any_chunking() {
        let text = ": hello\n\nid: 6\n\nid: 7\nevent: entry\r\ndata: {\"a\":\ndata: 1}\n\nevent: bye\n\ndata:x\n\n";
        for size in 1..text.len() {
            let mut parser = SseParser::default();
            let mut events = Vec::new();
            for chunk in text.as_bytes().chunks(size) {
                parser.push(&Bytes::copy_from_slice(chunk));
                while let Some(event) = parser.next_event().expect("UTF-8") {
                    events.push((event.name, event.id, event.data));
                }
            }
            let expected = [
                (None, Some(6), String::new()),
                (Some("entry".to_owned()), Some(7), "{\"a\":\n1}".to_owned()),
                (None, None, "x".to_owned()),
            ];
            assert_eq!(events, expected, "chunks of {size} bytes");
        }
    }
}
