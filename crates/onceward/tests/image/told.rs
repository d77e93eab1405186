//! What the server tells of prompts.

use onceward_testkit::served::BOTH;
use serde_json::json;

use crate::house::House;

/// Neither a prompt that is flagged nor one that passes stands in the server's log, at the lowest level of all, in its answers or its
/// metrics, or, where it is flagged, in the database and beside it.
#[test]
fn nothing_of_a_prompt_is_told() {
    for db in BOTH {
        let mut house = House::open_with(db, &["--log-format", "json"], &[("ONCEWARD_LOG", "trace")]);
        let mut said = String::new();
        house.grant("local", 20);
        let served = house.served();
        for prompt in ["porn with a MARKED window", "\u{200b}", "a MARKED lighthouse"] {
            said += &served.post("/image/jobs", &json!({ "prompt": prompt, "size": "256x256" })).text();
            said += &served
                .post("/v1/lifecycles/image.job/records", &json!({ "payload": { "prompt": prompt, "n": 1 } }))
                .text();
            said += &served.post("/v1/lifecycles/image.job/records", &json!({ "payload": prompt })).text();
        }
        said += &served.get("/v1/records?lifecycle=image.job").text();
        said += &served.get("/metrics").text();
        let written = house.stop();
        assert!(said.contains("policy_violation") && said.contains("bad_order") && said.contains("queued"), "{said}");
        assert!(written.contains("a prompt was flagged") && written.contains("engine drained"), "{written}");
        for (what, text) in [("the log", &written), ("an answer", &said)] {
            let found = text.find("MARKED");
            assert!(found.is_none(), "{what} tells of it: {}", &text[found.unwrap_or(0).saturating_sub(300)..]);
        }
        // What is flagged is kept nowhere; what passes is its job's payload.
        assert!(house.keeps("MARKED lighthouse") && !house.keeps("MARKED window"), "{db:?}");
    }
}
