//! A trace collector on loopback: accepts OTLP over HTTP and stores all spans.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::Value as Json;

#[derive(Clone)]
pub(crate) struct TraceCollector {
    pub(crate) url: String,
    received: Arc<Mutex<ReceivedTraces>>,
}

#[derive(Default)]
struct ReceivedTraces {
    text: String,
    spans: Vec<Json>,
}

impl TraceCollector {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("port");
        let url = format!("http://{}", listener.local_addr().expect("address"));
        let kept = Arc::<Mutex<ReceivedTraces>>::default();
        let shared = Arc::clone(&kept);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&shared);
                std::thread::spawn(move || receive_requests(stream, &kept));
            }
        });
        Self { url, received: kept }
    }

    /// Returns everything received, unparsed.
    pub(crate) fn text(&self) -> String {
        self.received.lock().unwrap().text.clone()
    }

    pub(crate) fn spans(&self) -> Vec<Json> {
        self.received.lock().unwrap().spans.clone()
    }

    pub(crate) fn spans_named(&self, name: &str) -> Vec<Json> {
        self.spans().into_iter().filter(|span| span["name"] == name).collect()
    }
}

/// Handles the requests of one connection until it closes.
fn receive_requests(stream: TcpStream, received: &Mutex<ReceivedTraces>) {
    let mut reader = BufReader::new(stream.try_clone().expect("second handle"));
    let mut stream = stream;
    loop {
        let mut head = String::new();
        loop {
            match reader.read_line(&mut head) {
                Ok(0) | Err(_) => return,
                Ok(_) if head.ends_with("\r\n\r\n") => break,
                Ok(_) => {}
            }
        }
        assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        let mut body = vec![0; length.expect("a length")];
        reader.read_exact(&mut body).expect("the body");
        let text = String::from_utf8(body).expect("JSON");
        let request: Json = serde_json::from_str(&text).expect("JSON");
        let mut kept = received.lock().unwrap();
        kept.text.push_str(&text);
        for resource in request["resourceSpans"].as_array().expect("resources") {
            assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "onceward");
            for scope in resource["scopeSpans"].as_array().expect("scopes") {
                kept.spans.extend(scope["spans"].as_array().expect("spans").iter().cloned());
            }
        }
        drop(kept);
        let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        if stream.write_all(answer).is_err() {
            return;
        }
    }
}
