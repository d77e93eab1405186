//! The log as it grows, as a server streams it.

use std::io::BufReader;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Instant;

use serde_json::Value as Json;

use crate::http::{self, PATIENCE};

/// A stream that has begun.
#[derive(Debug)]
pub struct Following {
    pub head: String,
    from: BufReader<TcpStream>,
    /// What has come and was not looked at yet.
    come: String,
}

impl Following {
    pub fn start(to: impl ToSocketAddrs, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut stream = http::connect(to);
        http::write(&mut stream, "GET", path, headers, None);
        let mut from = BufReader::new(stream);
        let head = http::head(&mut from);
        assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/event-stream"), "{head}");
        Self { head, from, come: String::new() }
    }

    /// What comes next, as it comes; none when it has ended.
    pub fn piece(&mut self) -> Option<String> {
        http::chunk(&mut self.from).map(|piece| String::from_utf8(piece).expect("UTF-8"))
    }

    /// The next entry: its place, and what it says. None when it has ended.
    pub fn entry(&mut self) -> Option<(u64, Json)> {
        let began = Instant::now();
        loop {
            while let Some((event, rest)) = self.come.split_once("\n\n") {
                let part = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                let told = part("data: ").map(|data| {
                    let place = part("id: ").and_then(|id| id.parse().ok()).expect("its place comes with it");
                    (place, serde_json::from_str(data).expect("JSON"))
                });
                self.come = rest.to_owned();
                if told.is_some() {
                    return told;
                }
            }
            let piece = self.piece()?;
            // Signs of life are no entries.
            assert!(began.elapsed() < PATIENCE, "nothing else comes");
            self.come += &piece;
        }
    }

    /// The states that a record comes to, up to one of these.
    pub fn states(&mut self, ends: &[&str]) -> Vec<String> {
        let mut states = Vec::new();
        loop {
            let (_, entry) = self.entry().unwrap_or_else(|| panic!("it ended after {states:?}"));
            // Where it entered one.
            let Some(state) = entry["state"].as_str() else { continue };
            states.push(state.to_owned());
            if ends.contains(&state) {
                return states;
            }
        }
    }
}
