//! Tests that logs, replies and metrics contain no prompts.

use onceward_testkit::server_process::ALL_DATABASES;
use serde_json::json;

use crate::support::ImageServer;

/// Covers the log at trace level, and for flagged prompts also the database and object storage.
#[test]
fn logs_and_answers_contain_no_prompt_text() {
    for db in ALL_DATABASES {
        let mut server =
            ImageServer::open_with_environment(db, &["--log-format", "json"], &[("ONCEWARD_LOG", "trace")]);
        let mut responses = String::new();
        server.grant("local", 20);
        let process = server.process();
        for prompt in ["porn with a MARKED window", "\u{200b}", "a MARKED lighthouse"] {
            responses += &process.post("/image/jobs", &json!({ "prompt": prompt, "size": "256x256" })).text();
            responses += &process
                .post("/v1/lifecycles/image.job/records", &json!({ "payload": { "prompt": prompt, "n": 1 } }))
                .text();
            responses += &process.post("/v1/lifecycles/image.job/records", &json!({ "payload": prompt })).text();
        }
        responses += &process.get("/v1/records?lifecycle=image.job").text();
        responses += &process.get("/metrics").text();
        let server_log = server.stop();
        assert!(
            responses.contains("policy_violation") && responses.contains("bad_order") && responses.contains("queued"),
            "{responses}"
        );
        assert!(
            server_log.contains("prompt filter flagged a prompt") && server_log.contains("engine drained"),
            "{server_log}"
        );
        for (what, text) in [("the log", &server_log), ("a response", &responses)] {
            let found = text.find("MARKED");
            assert!(found.is_none(), "{what} contains the prompt: {}", &text[found.unwrap_or(0).saturating_sub(300)..]);
        }
        // An accepted prompt is stored as the job's payload, a flagged one is not stored.
        assert!(server.stores_text("MARKED lighthouse") && !server.stores_text("MARKED window"), "{db:?}");
    }
}
