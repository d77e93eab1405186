//! Reads the log stream of a server.

use std::io::BufReader;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Instant;

use serde_json::Value as Json;

use crate::http::{self, TEST_TIMEOUT};

/// An open stream.
#[derive(Debug)]
pub struct SseClient {
    pub head: String,
    reader: BufReader<TcpStream>,
    /// Received text that is not parsed yet.
    buffered: String,
}

impl SseClient {
    pub fn start(to: impl ToSocketAddrs, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut stream = http::connect(to);
        http::write_request(&mut stream, "GET", path, headers, None);
        let mut from = BufReader::new(stream);
        let head = http::read_head(&mut from);
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
        Self { head, reader: from, buffered: String::new() }
    }

    /// Returns the next chunk, or `None` at the end of the stream.
    pub fn next_chunk(&mut self) -> Option<String> {
        http::read_chunk(&mut self.reader).map(|piece| String::from_utf8(piece).expect("UTF-8"))
    }

    /// Returns the next entry with its `seq`, or `None` at the end of the stream.
    pub fn next_entry(&mut self) -> Option<(u64, Json)> {
        let began = Instant::now();
        loop {
            while let Some((event, rest)) = self.buffered.split_once("\n\n") {
                let part = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                let parsed = part("data: ").map(|data| {
                    let seq = part("id: ").and_then(|id| id.parse().ok()).expect("an entry has a seq");
                    (seq, serde_json::from_str(data).expect("JSON"))
                });
                self.buffered = rest.to_owned();
                if parsed.is_some() {
                    return parsed;
                }
            }
            let piece = self.next_chunk()?;
            // Keep-alive comments are not entries, so the loop needs its own timeout.
            assert!(began.elapsed() < TEST_TIMEOUT, "no entry before the timeout");
            self.buffered += &piece;
        }
    }

    /// Returns the states that a record enters, up to one of `end_states`.
    pub fn states_until(&mut self, end_states: &[&str]) -> Vec<String> {
        let mut states = Vec::new();
        loop {
            let (_, entry) = self.next_entry().unwrap_or_else(|| panic!("the stream ended after {states:?}"));
            // Entries without a state entered none.
            let Some(state) = entry["state"].as_str() else { continue };
            states.push(state.to_owned());
            if end_states.contains(&state) {
                return states;
            }
        }
    }
}
