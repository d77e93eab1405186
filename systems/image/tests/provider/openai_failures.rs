//! Failure reports of the client for each kind of response.

use std::net::TcpListener;
use std::time::Duration;

use onceward_core::decide::FailureReport;
use onceward_core::time;
use onceward_system_image::provider::{ImageProvider, OpenAiClient};
use onceward_testkit::fake_image_service::{FakeImageService, FakeResponse, RequestKind, TestGate};
use serde_json::json;

use super::{SECRET_PROMPT, TEST_API_KEY, image_request, openai_client, openai_client_with, openai_config};

/// Expected code and retry delay in seconds.
type ExpectedFailure = (&'static str, Option<i64>);

fn assert_report(case: &str, report: &FailureReport, (code, seconds): ExpectedFailure) {
    assert_eq!(&*report.code, code, "{case}: {}", report.message);
    assert_eq!(report.retry_after, seconds.map(time::Duration::from_secs), "{case}");
    let debug_text = format!("{report:?}");
    for hidden in [SECRET_PROMPT, "zebrafinch", TEST_API_KEY, "Your request"] {
        assert!(!debug_text.contains(hidden), "{case} reveals {hidden}: {debug_text}");
    }
    assert!(!report.message.is_empty(), "{case}");
}

async fn assert_generation_fails(case: &str, answer: impl Into<FakeResponse>, expected: ExpectedFailure) {
    let service = FakeImageService::start();
    service.respond_next(RequestKind::Generation, answer);
    let report = openai_client(&service).generate(&image_request()).await.expect_err(case);
    assert_report(case, &report, expected);
}

/// IMG-12: retryable statuses map to retryable codes, others to terminal ones.
#[tokio::test]
async fn http_status_maps_to_error_code() {
    for (status, code) in [
        (429, "429"),
        (500, "500"),
        (502, "502"),
        (503, "503"),
        (504, "504"),
        (400, "400"),
        (401, "401"),
        (403, "403"),
        // Not in the error table; each maps to the code with the same meaning.
        (402, "403"),
        (404, "400"),
        (408, "timeout"),
        (413, "400"),
        (422, "400"),
        (501, "502"),
        (520, "502"),
        (529, "503"),
        (301, "400"),
    ] {
        assert_generation_fails(&status.to_string(), FakeResponse::error_status(status), (code, None)).await;
    }
}

/// IMG-11: as seconds or as a date.
#[tokio::test]
async fn retry_after_header_is_reported() {
    let in_seconds = FakeResponse::error_status(429).header("Retry-After", "17");
    assert_generation_fails("seconds", in_seconds, ("429", Some(17))).await;
    let as_a_date = FakeResponse::error_status(429)
        .header("Date", "Mon, 16 Nov 2026 12:00:00 GMT")
        .header("Retry-After", "Mon, 16 Nov 2026 12:00:41 GMT");
    assert_generation_fails("a date", as_a_date, ("429", Some(41))).await;
    assert_generation_fails("503 too", FakeResponse::error_status(503).header("Retry-After", "3"), ("503", Some(3)))
        .await;
    assert_generation_fails("nonsense", FakeResponse::error_status(429).header("Retry-After", "later"), ("429", None))
        .await;
}

/// IMG-6
#[tokio::test]
async fn safety_filter_codes_are_reported_as_policy() {
    for code in ["content_policy_violation", "moderation_blocked", "content_filter", "contentFilter"] {
        assert_generation_fails(code, FakeResponse::error_status(400).code(code), ("policy", None)).await;
    }
    assert_generation_fails("403", FakeResponse::error_status(403).code("content_moderation"), ("policy", None)).await;
    let inner = json!({ "code": "BadRequest", "inner_error": { "code": "ResponsibleAIPolicyViolation" } });
    assert_generation_fails("Azure", FakeResponse::error_status(400).error(inner), ("policy", None)).await;
    // Only the code field counts: the message may quote the prompt.
    let worded = json!({ "code": "invalid_size", "message": "content_policy_violation" });
    assert_generation_fails("a word", FakeResponse::error_status(400).error(worded), ("400", None)).await;
    assert_generation_fails("a failure", FakeResponse::error_status(500).code("content_filter"), ("500", None)).await;
}

#[tokio::test]
async fn unbounded_timeout_is_capped() {
    let service = FakeImageService::start();
    assert!(openai_client_with(&service, "a-model", Duration::MAX).generate(&image_request()).await.is_ok());
}

#[tokio::test]
async fn oversized_error_body_is_judged_by_status() {
    let error_of_bytes = |bytes: usize| {
        FakeResponse::error_status(400).error(json!({ "code": "content_filter", "padding": "x".repeat(bytes) }))
    };
    assert_generation_fails("long", error_of_bytes(60 << 10), ("policy", None)).await;
    assert_generation_fails("too long", error_of_bytes(64 << 10), ("400", None)).await;
    assert_generation_fails("far too long", error_of_bytes(3 << 20), ("400", None)).await;
    assert_generation_fails(
        "and busy",
        FakeResponse::error_status(503).error(json!({ "padding": "x".repeat(1 << 20) })),
        ("503", None),
    )
    .await;
}

/// IMG-4: retryable.
#[tokio::test]
async fn unreadable_response_is_reported_as_502() {
    for (case, text) in [
        ("not JSON", "<html>Bad Gateway</html>"),
        ("half of it", r#"{"data":[{"b64_json":"iVBOR"#),
        ("nothing", ""),
        ("no data", "{}"),
        ("no image", r#"{"data":[]}"#),
        ("an empty one", r#"{"data":[{}]}"#),
        ("no base64", r#"{"data":[{"b64_json":"%%%"}]}"#),
        ("no image", r#"{"data":[{"b64_json":"aGVsbG8="}]}"#),
        ("no address", r#"{"data":[{"url":"\u0000"}]}"#),
    ] {
        assert_generation_fails(case, FakeResponse::success_text(text), ("502", None)).await;
    }
    assert_generation_fails("cut short", FakeResponse::TruncatedWithLength, ("502", None)).await;
    assert_generation_fails("ends early", FakeResponse::TruncatedWithoutLength, ("502", None)).await;
    assert_generation_fails("endless", FakeResponse::Endless, ("502", None)).await;
    assert_generation_fails("hangs up", FakeResponse::CloseConnection, ("502", None)).await;
}

/// IMG-4: retryable.
#[tokio::test]
async fn unreachable_service_is_reported_as_503() {
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    for url in [format!("http://127.0.0.1:{port}"), "http://nowhere.invalid".to_owned()] {
        let client =
            OpenAiClient::open(openai_config(&url, "a-model", Duration::from_secs(20))).expect("a valid configuration");
        let report = client.generate(&image_request()).await.expect_err("the service is unreachable");
        assert_report(&url, &report, ("503", None));
    }
}

/// Waits for the real timeout in each case.
#[tokio::test]
async fn slow_response_is_reported_as_timeout() {
    let short_timeout = Duration::from_millis(300);
    let stall = || FakeResponse::StallMidBody(TestGate::new());
    for (case, answer) in
        [("silent", FakeResponse::NoResponse), ("drips", FakeResponse::SlowBytes), ("stalls", stall())]
    {
        for asked in [RequestKind::Generation, RequestKind::Download] {
            let service = FakeImageService::start();
            service.respond_always(RequestKind::Generation, FakeResponse::ImageUrl);
            service.respond_next(asked, answer.clone());
            let report = openai_client_with(&service, "a-model", short_timeout)
                .generate(&image_request())
                .await
                .expect_err(case);
            assert_report(case, &report, ("timeout", None));
        }
    }
}

/// The request contains the ordered prompt and size.
#[tokio::test]
async fn image_is_returned_from_base64_or_url() {
    for answer in [FakeResponse::Success, FakeResponse::ImageUrl] {
        let service = FakeImageService::start();
        service.respond_next(RequestKind::Generation, answer);
        let picture =
            ImageProvider::OpenAi(openai_client(&service)).generate(&image_request()).await.expect("a picture");
        assert_eq!((&*picture.bytes, picture.media_type), (&*FakeImageService::image_bytes(), "image/png"));
        let request = &service.received()[0];
        let expected_body = json!({ "model": "a-model", "prompt": SECRET_PROMPT, "n": 1, "size": "512x512", "response_format": "b64_json" });
        assert_eq!(request.body, expected_body);
        assert_eq!(request.headers.get("authorization"), Some(&format!("Bearer {TEST_API_KEY}")));
    }
}

/// Some services put a data URL into the `url` field.
#[tokio::test]
async fn data_url_is_decoded_without_download() {
    let service = FakeImageService::start();
    // A minimal PNG: one gray pixel.
    let pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==";
    let response = json!({ "data": [{ "url": format!("data:image/png;base64,{pixel}") }] }).to_string();
    service.respond_next(RequestKind::Generation, FakeResponse::success_text(&response));
    let picture = openai_client(&service).generate(&image_request()).await.expect("a picture");
    assert_eq!((picture.media_type, picture.bytes.len()), ("image/png", 67));
    assert_eq!(service.received().len(), 1, "no download");
}

/// OpenAI's newer models reject `response_format` and small sizes.
#[tokio::test]
async fn request_omits_options_that_model_rejects() {
    for (model, size, format) in [
        ("gpt-image-1", "1024x1024", None),
        ("dall-e-3", "1024x1024", Some("b64_json")),
        ("dall-e-2", "512x512", Some("b64_json")),
    ] {
        let service = FakeImageService::start();
        openai_client_with(&service, model, Duration::from_secs(20))
            .generate(&image_request())
            .await
            .expect("a picture");
        let body = &service.received()[0].body;
        assert_eq!(body["size"], size, "{model}");
        assert_eq!(body.get("response_format").and_then(|format| format.as_str()), format, "{model}");
    }
}

#[test]
fn debug_output_hides_key_and_prompt() {
    let config = openai_config("https://api.example.org", "a-model", Duration::from_secs(20));
    let client = OpenAiClient::open(config.clone()).expect("a valid configuration");
    let debug_text = format!("{config:?} {client:?} {:?} {:?}", image_request(), ImageProvider::OpenAi(client.clone()));
    assert!(!debug_text.contains(TEST_API_KEY) && !debug_text.contains("zebrafinch"), "{debug_text}");
}
