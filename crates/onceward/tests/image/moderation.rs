//! Tests the moderation service, which judges prompts that pass the word list.

use onceward_testkit::fake_image_service::{FakeImageService, FakeResponse, RequestKind};
use onceward_testkit::server_process::{ALL_DATABASES, DatabaseKind};
use serde_json::{Value as Json, json};

use crate::support::ImageServer;

/// The API key of the image service.
const IMAGE_API_KEY: (&str, &str) = ("ONCEWARD_IMAGE_KEY", "sk-for-the-artist");

fn start_moderated_server(
    db: DatabaseKind,
    image_service: &FakeImageService,
    moderation_service: &FakeImageService,
) -> ImageServer {
    let more = [
        "--image-url",
        &image_service.url(),
        "--image-moderation-url",
        &moderation_service.url(),
        "--log-format",
        "json",
    ];
    let server = ImageServer::open_with_environment(db, &more, &[IMAGE_API_KEY, ("ONCEWARD_LOG", "trace")]);
    server.grant("local", 20);
    server
}

/// Returns all log entries so far.
fn log_entries(server: &ImageServer) -> Vec<Json> {
    let mut log = server.process().stream_log_as("", "/v1/stream?after=0&wait_ms=0");
    std::iter::from_fn(|| log.next_entry()).map(|(_, entry)| entry).collect()
}

/// The log entry contains no prompt. Prompts with a blocked word are not sent to the service. Accepted ones are drawn,
/// and the moderation service never sees the image service's key.
#[test]
fn flagged_prompt_is_refused_without_charge() {
    for db in ALL_DATABASES {
        let (artist, judge) = (FakeImageService::start(), FakeImageService::start());
        let mut server = start_moderated_server(db, &artist, &judge);
        judge.respond_next(RequestKind::Moderation, FakeResponse::Flagged);
        let refused = server.send_order("", "a MARKED window");
        refused.assert_problem(422, "policy_violation");
        assert_eq!(refused.json()["detail"], "policy violation");
        let listed = server.send_order("", "porn by a MARKED door");
        listed.assert_problem(422, "policy_violation");
        assert_eq!((server.balance(""), server.checked_statement("").len()), (20, 1), "no credits are charged");
        let inputs: Vec<Json> = judge.received().into_iter().map(|heard| heard.body["input"].clone()).collect();
        assert_eq!(inputs, ["a MARKED window"], "prompts with blocked words are not sent to the service");
        let log = log_entries(&server);
        let blocked: Vec<&Json> = log.iter().filter(|entry| entry["audit"] == json!(["JOB_BLOCKED"])).collect();
        assert_eq!(blocked.len(), 2, "{log:?}");
        assert!(
            blocked.iter().all(|entry| entry["refusal"]["code"] == "policy_violation" && entry["record"].is_null())
        );
        assert_eq!(artist.received(), [], "no image is generated");

        let id = server.place_order("", "a MARKED lighthouse");
        server.wait_for_job("", &id, "completed");
        assert_eq!(server.balance(""), 15);
        let (judged, drawn) = (judge.received(), artist.received());
        assert!(judged.iter().all(|heard| !heard.headers.contains_key("authorization")), "wrong API key: {judged:?}");
        assert_eq!(drawn[0].headers["authorization"], format!("Bearer {}", IMAGE_API_KEY.1));

        let printed = [refused.text(), listed.text(), json!(log).to_string()].concat();
        let server_log = server.stop();
        assert!(server_log.contains(r#""by":"moderation"#) && server_log.contains(r#""by":"words"#), "{server_log}");
        for (what, text) in [("the log", &server_log), ("a response", &printed)] {
            assert!(!text.contains("MARKED") && !text.contains(IMAGE_API_KEY.1), "{what} contains the prompt");
        }
        assert!(server.stores_text("MARKED lighthouse"), "an accepted prompt is the payload of its job");
        assert!(
            !server.stores_text("MARKED window") && !server.stores_text("MARKED door"),
            "a flagged prompt is not stored"
        );
    }
}

/// Without a verdict the order is refused without a charge and can be retried.
#[test]
fn order_is_refused_while_moderation_is_unavailable() {
    // Concurrently, because a silent service takes the full timeout.
    std::thread::scope(|scope| {
        for db in ALL_DATABASES {
            scope.spawn(move || {
                let (artist, judge) = (FakeImageService::start(), FakeImageService::start());
                let server = start_moderated_server(db, &artist, &judge);
                for answer in [
                    FakeResponse::NoResponse,
                    FakeResponse::error_status(500).into(),
                    FakeResponse::CloseConnection,
                    FakeResponse::success_text("[]"),
                ] {
                    judge.respond_next(RequestKind::Moderation, answer);
                    server.send_order("", "a lighthouse").assert_problem(503, "check_unavailable");
                }
                assert_eq!((server.balance(""), artist.received()), (20, Vec::new()));
                assert_eq!(server.get("", "/v1/records?lifecycle=image.job")["records"], json!([]));
                let id = server.place_order("", "a lighthouse");
                server.wait_for_job("", &id, "completed");
                assert_eq!((server.balance(""), judge.received().len()), (15, 5));
            });
        }
    });
}

/// Only the image service gets its key, even if it also moderates. Without an image service, no service gets it.
#[test]
fn image_key_is_sent_to_its_own_service_only() {
    let keys = |judge: &FakeImageService, more: &[&str]| {
        let url = judge.url();
        let more = [&["--image-moderation-url", &url, "--image-provider", "none"], more].concat();
        let server = ImageServer::open_with_environment(DatabaseKind::Sqlite, &more, &[IMAGE_API_KEY]);
        server.grant("local", 5);
        server.place_order("", "a lighthouse");
        judge.received().into_iter().map(|heard| heard.headers.get("authorization").cloned()).collect::<Vec<_>>()
    };
    let judge = FakeImageService::start();
    assert_eq!(keys(&judge, &[]), [None], "moderation and image service are different");
    let both = FakeImageService::start();
    assert_eq!(
        keys(&both, &["--image-url", &format!("{}/v1", both.url())]),
        [Some(format!("Bearer {}", IMAGE_API_KEY.1))]
    );
}
