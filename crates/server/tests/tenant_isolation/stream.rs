//! The log stream.

use onceward_testkit::SseClient;
use onceward_testkit::http::is_volatile_header;
use serde_json::json;

use crate::fixtures::{MISSING_RECORD_ID, create_record, on_both_stores};
use crate::support::TestServer;

/// A log stream and the text received so far.
struct StreamTranscript {
    stream: SseClient,
    text: String,
}

impl StreamTranscript {
    /// Returns once the stream has begun.
    fn start(server: &TestServer, key: &str, query: &str) -> Self {
        let headers = [("authorization", &*format!("Bearer {key}"))];
        let stream = SseClient::start(server.address(), &format!("/v1/stream?after=0{query}"), &headers);
        let response = stream.head.lines().filter(|line| !is_volatile_header(line)).collect::<Vec<_>>().join("\n");
        Self { stream, text: response }
    }

    fn read_more(&mut self) -> bool {
        let piece = self.stream.next_chunk();
        self.text += piece.as_deref().unwrap_or_default();
        piece.is_some()
    }

    fn read_until(&mut self, word: &str) {
        while !self.text.contains(word) {
            assert!(self.read_more(), "the stream ended: {}", self.text);
        }
    }

    fn read_to_end(mut self) -> String {
        while self.read_more() {}
        self.text
    }
}

/// INV-9
#[test]
fn stream_shows_only_records_visible_to_the_caller() {
    on_both_stores(async |server| {
        let (ann, eve) = (
            server.create_api_key("ann", &["producer"], &[]).await,
            server.create_api_key("eve", &["producer"], &[]).await,
        );
        let anns = create_record(&server, &ann, &json!({ "fields": { "name": "anns" } }));
        let eves = create_record(&server, &eve, &json!({}));
        let follow = |query: &str| StreamTranscript::start(&server, &eve, query);
        let (mut all, mut own) = (follow(""), follow(&format!("&record={eves}")));
        let (foreign, none) = (follow(&format!("&record={anns}")), follow(&format!("&record={MISSING_RECORD_ID}")));
        all.read_until(&eves);
        own.read_until(&eves);
        // One more of each: when the stream has sent the last record, it has passed all earlier entries.
        create_record(&server, &ann, &json!({ "fields": { "near": anns } }));
        let last = create_record(&server, &eve, &json!({}));
        all.read_until(&last);
        server.close().await;
        let (all, foreign, none) = (all.read_to_end(), foreign.read_to_end(), none.read_to_end());
        assert!(!all.contains(&anns) && !all.contains("anns"), "{all}");
        assert_eq!(foreign, none);
        assert!(foreign.starts_with("HTTP/1.1 200") && !own.read_to_end().contains(&last));
    });
}
