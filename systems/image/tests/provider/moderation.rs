//! The moderation client returns a verdict or an error.

use std::time::Duration;

use onceward_system_image::provider::{ModerationClient, OpenAiConfig};
use onceward_testkit::fake_image_service::{FakeImageService, FakeResponse, RequestKind};
use serde_json::json;

use super::{SECRET_PROMPT, TEST_API_KEY, openai_config};

fn moderation_client(service: &FakeImageService, timeout: Duration) -> ModerationClient {
    ModerationClient::open(openai_config(&service.url(), "", timeout)).expect("a valid configuration")
}

/// IMG-15: the request contains only the prompt.
#[tokio::test]
async fn moderation_verdict_is_returned() {
    let service = FakeImageService::start();
    let moderation = moderation_client(&service, Duration::from_secs(20));
    assert_eq!(moderation.is_flagged(SECRET_PROMPT).await, Ok(false));
    service.respond_next(RequestKind::Moderation, FakeResponse::Flagged);
    assert_eq!(moderation.is_flagged(SECRET_PROMPT).await, Ok(true));
    let mixed = r#"{"id":"m","results":[{"flagged":false,"categories":{}},{"flagged":true}]}"#;
    service.respond_next(RequestKind::Moderation, FakeResponse::success_text(mixed));
    assert_eq!(moderation.is_flagged(SECRET_PROMPT).await, Ok(true));
    let heard = service.received();
    assert_eq!(heard[0].body, json!({ "input": SECRET_PROMPT }));
    assert_eq!(heard[0].headers.get("authorization"), Some(&format!("Bearer {TEST_API_KEY}")));
}

#[tokio::test]
async fn configured_model_is_sent() {
    let service = FakeImageService::start();
    let moderation_config = openai_config(&service.url(), "omni-moderation-latest", Duration::from_secs(20));
    let moderation =
        ModerationClient::open(OpenAiConfig { api_key: None, ..moderation_config }).expect("a valid configuration");
    assert_eq!(moderation.is_flagged(SECRET_PROMPT).await, Ok(false));
    let heard = service.received();
    assert_eq!(heard[0].body, json!({ "input": SECRET_PROMPT, "model": "omni-moderation-latest" }));
    assert_eq!(heard[0].headers.get("authorization"), None);
}

/// IMG-15: a prompt never passes without a verdict.
#[tokio::test]
async fn missing_verdict_is_an_error() {
    let service = FakeImageService::start();
    let moderation = moderation_client(&service, Duration::from_millis(500));
    let mut answers: Vec<FakeResponse> =
        [400, 401, 404, 429, 500, 503].map(|status| FakeResponse::error_status(status).into()).to_vec();
    answers.extend(["", "{}", r#"{"results":[]}"#, r#"{"results":[{}]}"#, "<html>"].map(FakeResponse::success_text));
    answers.extend([
        FakeResponse::TruncatedWithLength,
        FakeResponse::CloseConnection,
        FakeResponse::Endless,
        FakeResponse::NoResponse,
        FakeResponse::SlowBytes,
    ]);
    for answer in answers {
        service.respond_next(RequestKind::Moderation, answer.clone());
        let reason = moderation.is_flagged(SECRET_PROMPT).await.expect_err("no verdict");
        assert!(!reason.contains("zebrafinch") && !reason.contains(TEST_API_KEY), "{answer:?}: {reason}");
    }
}
