//! The log as it grows.

use onceward_testkit::Following;
use onceward_testkit::http::is_of_the_moment;
use serde_json::json;

use crate::house::House;
use crate::people::{NOBODY, create, on_both};

/// A stream of the log, and what has come of it.
struct Heard {
    stream: Following,
    said: String,
}

impl Heard {
    /// It has begun when this comes back.
    fn start(house: &House, key: &str, query: &str) -> Self {
        let headers = [("authorization", &*format!("Bearer {key}"))];
        let stream = Following::start(house.address(), &format!("/v1/stream?after=0{query}"), &headers);
        let said = stream.head.lines().filter(|line| !is_of_the_moment(line)).collect::<Vec<_>>().join("\n");
        Self { stream, said }
    }

    fn more(&mut self) -> bool {
        let piece = self.stream.piece();
        self.said += piece.as_deref().unwrap_or_default();
        piece.is_some()
    }

    fn until(&mut self, word: &str) {
        while !self.said.contains(word) {
            assert!(self.more(), "it ended: {}", self.said);
        }
    }

    fn end(mut self) -> String {
        while self.more() {}
        self.said
    }
}

/// INV-9: a stream tells its reader of its own records; of a foreign one as much as of none.
#[test]
fn a_stream_is_its_readers() {
    on_both(async |house| {
        let (ann, eve) = (house.key("ann", &["producer"], &[]).await, house.key("eve", &["producer"], &[]).await);
        let anns = create(&house, &ann, &json!({ "fields": { "name": "anns" } }));
        let eves = create(&house, &eve, &json!({}));
        let follow = |query: &str| Heard::start(&house, &eve, query);
        let (mut all, mut own) = (follow(""), follow(&format!("&record={eves}")));
        let (foreign, none) = (follow(&format!("&record={anns}")), follow(&format!("&record={NOBODY}")));
        all.until(&eves);
        own.until(&eves);
        // One more of each: when the last has come to the one, all have come past the first.
        create(&house, &ann, &json!({ "fields": { "near": anns } }));
        let last = create(&house, &eve, &json!({}));
        all.until(&last);
        house.close().await;
        let (all, foreign, none) = (all.end(), foreign.end(), none.end());
        assert!(!all.contains(&anns) && !all.contains("anns"), "{all}");
        assert_eq!(foreign, none);
        assert!(foreign.starts_with("HTTP/1.1 200") && !own.end().contains(&last));
    });
}
