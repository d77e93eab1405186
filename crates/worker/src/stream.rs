//! The log as it grows: server-sent events, taken up again where they broke off.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::HeaderValue;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::client::Client;
use crate::error::ClientError;
use crate::shape::Entry;
use crate::wire::{Ask, Backoff, escaped};

/// The server says something every 15 seconds, if only that it is there. Who is silent for so long is gone.
const SILENCE: Duration = Duration::from_mins(1);

const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// A refusal that is longer is cut.
const LARGEST_REFUSAL: usize = 64 << 10;

/// No entry of the log is longer: its fields are bounded, and payloads stand in it by their hash.
const LONGEST_LINE: usize = 16 << 20;

/// Which entries to follow.
#[derive(Clone, Debug, Default)]
pub struct Following {
    /// From the entry after this place; from what comes next, where none is given.
    pub after: Option<u64>,
    pub lifecycle: Option<String>,
    pub record: Option<Uuid>,
}

/// Entries of the log, in order, each once. When the connection breaks it is opened again, from the entry after the last.
#[derive(Debug)]
pub struct Stream {
    client: Client,
    path: String,
    last: Option<u64>,
    open: Option<Open>,
    backoff: Backoff,
}

#[derive(Debug)]
struct Open {
    body: Incoming,
    lines: Lines,
}

impl Client {
    /// Follow the log.
    pub fn follow(&self, following: &Following) -> Stream {
        let after = following.after.map(|after| format!("after={after}"));
        let lifecycle = following.lifecycle.as_ref().map(|name| format!("lifecycle={}", escaped(name)));
        let record = following.record.map(|record| format!("record={record}"));
        let query: Vec<String> = [after, lifecycle, record].into_iter().flatten().collect();
        let path = if query.is_empty() { "/v1/stream".to_owned() } else { format!("/v1/stream?{}", query.join("&")) };
        Stream { client: self.clone(), path, last: None, open: None, backoff: Backoff::default() }
    }
}

impl Stream {
    /// The next entry, as soon as there is one. An error ends it, but for one that may pass: then it may be asked again.
    pub async fn next(&mut self) -> Result<Entry, ClientError> {
        // Patience is for a server that is away, and counts from when it is missed: an entry may be waited for without end.
        let mut away = None;
        loop {
            let error = match self.try_next().await {
                Ok(Some(entry)) => {
                    self.backoff.reset();
                    self.last = Some(entry.seq);
                    return Ok(entry);
                }
                // The server has ended it: it is about to go, perhaps.
                Ok(None) => None,
                Err(error) if !error.may_pass() => return Err(error),
                Err(error) => Some(error),
            };
            let was_open = self.open.take().is_some();
            let pause = self.backoff.pause();
            let now = Instant::now();
            // A connection that stood is missed from now on.
            let since = if was_open { *away.insert(now) } else { *away.get_or_insert(now) };
            match error {
                Some(error) if now + pause > since + self.client.patience.retries => return Err(error),
                _ => tokio::time::sleep(pause).await,
            }
        }
    }

    async fn try_next(&mut self) -> Result<Option<Entry>, ClientError> {
        let open = match &mut self.open {
            Some(open) => open,
            None => self.open.insert(open(&self.client, &self.path, self.last).await?),
        };
        loop {
            while let Some(event) = open.lines.event().map_err(|error| self.client.not_understood(&error))? {
                // Also without an entry: where to go on from, should there be none before the connection breaks.
                self.last = event.id.or(self.last);
                if event.data.is_empty() {
                    continue;
                }
                // Others than entries are for later servers to invent.
                if event.name.as_deref().is_none_or(|name| name == "entry" || name == "message") {
                    return serde_json::from_str(&event.data)
                        .map(Some)
                        .map_err(|error| self.client.not_understood(&error));
                }
            }
            match timeout(SILENCE, open.body.frame()).await {
                Err(_) => return Err(self.client.timed_out(SILENCE)),
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(self.client.unreachable(&error, false)),
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        open.lines.add(&data);
                    }
                }
            }
        }
    }
}

async fn open(client: &Client, path: &str, last: Option<u64>) -> Result<Open, ClientError> {
    let until = Instant::now() + client.patience.answer;
    let response = client.open(&Ask::get(path.to_owned()), until, EVENTS, last).await?;
    let (parts, body) = response.into_parts();
    if parts.status.is_success() {
        return Ok(Open { body, lines: Lines::default() });
    }
    let said = Limited::new(body, LARGEST_REFUSAL).collect().await;
    let said = said.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Err(client.refused(parts.status.as_u16(), &parts.headers, &said))
}

/// One event, once its empty line has come.
#[derive(Debug, Default, PartialEq, Eq)]
struct Event {
    name: Option<String>,
    /// Its place in the log.
    id: Option<u64>,
    data: String,
}

/// Bytes as they come, cut into lines and these into events.
#[derive(Debug, Default)]
struct Lines {
    rest: BytesMut,
    /// So many bytes of the rest have no line's end in them.
    searched: usize,
    event: Event,
    has_data: bool,
}

impl Lines {
    fn add(&mut self, data: &Bytes) {
        self.rest.extend_from_slice(data);
    }

    /// The next whole event.
    fn event(&mut self) -> Result<Option<Event>, String> {
        while let Some(line) = self.line()? {
            if line.is_empty() {
                let event = std::mem::take(&mut self.event);
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
                        self.event.data.push('\n');
                    }
                    self.event.data.push_str(value);
                    self.has_data = true;
                }
                "event" => self.event.name = Some(value.to_owned()),
                "id" => self.event.id = value.parse().ok(),
                // A comment keeps the connection alive.
                _ => {}
            }
        }
        Ok(None)
    }

    fn line(&mut self) -> Result<Option<String>, String> {
        let Some(end) = self.rest[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.rest.len();
            if self.searched > LONGEST_LINE {
                return Err("a line has no end".to_owned());
            }
            return Ok(None);
        };
        let line = self.rest.split_to(self.searched + end);
        self.rest.advance(1);
        self.searched = 0;
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        String::from_utf8(line.to_vec()).map(Some).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_put_together_from_whatever_pieces_come() {
        let text = ": hello\n\nid: 6\n\nid: 7\nevent: entry\r\ndata: {\"a\":\ndata: 1}\n\nevent: bye\n\ndata:x\n\n";
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let mut events = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                lines.add(&Bytes::copy_from_slice(piece));
                while let Some(event) = lines.event().expect("UTF-8") {
                    events.push((event.name, event.id, event.data));
                }
            }
            let expected = [
                (None, Some(6), String::new()),
                (Some("entry".to_owned()), Some(7), "{\"a\":\n1}".to_owned()),
                (None, None, "x".to_owned()),
            ];
            assert_eq!(events, expected, "in pieces of {size}");
        }
    }
}
