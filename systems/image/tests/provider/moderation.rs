//! A verdict, or an error: nothing between.

use std::time::Duration;

use onceward_system_image::provider::{Moderation, OpenAiConfig};
use onceward_testkit::pictures::{Answer, Asked, Pictures};
use serde_json::json;

use super::{KEY, PROMPT, config, wait};

fn moderation(service: &Pictures, time: Duration) -> Moderation {
    Moderation::open(config(&service.url(), "", time)).expect("a good configuration")
}

/// IMG-15: a flagged prompt is flagged, another is not; the service is asked about the prompt and nothing else.
#[test]
fn a_verdict_is_passed_on() {
    wait(async {
        let service = Pictures::start();
        let moderation = moderation(&service, Duration::from_secs(20));
        assert_eq!(moderation.flagged(PROMPT).await, Ok(false));
        service.next(Asked::Moderation, Answer::Flagged);
        assert_eq!(moderation.flagged(PROMPT).await, Ok(true));
        let mixed = r#"{"id":"m","results":[{"flagged":false,"categories":{}},{"flagged":true}]}"#;
        service.next(Asked::Moderation, Answer::text(mixed));
        assert_eq!(moderation.flagged(PROMPT).await, Ok(true));
        let heard = service.heard();
        assert_eq!(heard[0].body, json!({ "input": PROMPT }));
        assert_eq!(heard[0].headers.get("authorization"), Some(&format!("Bearer {KEY}")));
    });
}

#[test]
fn a_model_is_named_where_one_is_configured() {
    wait(async {
        let service = Pictures::start();
        let judge = config(&service.url(), "omni-moderation-latest", Duration::from_secs(20));
        let moderation = Moderation::open(OpenAiConfig { key: None, ..judge }).expect("a good configuration");
        assert_eq!(moderation.flagged(PROMPT).await, Ok(false));
        let heard = service.heard();
        assert_eq!(heard[0].body, json!({ "input": PROMPT, "model": "omni-moderation-latest" }));
        assert_eq!(heard[0].headers.get("authorization"), None);
    });
}

/// IMG-15: without a verdict there is none: a prompt never passes because nobody could look at it.
#[test]
fn no_verdict_is_an_error() {
    wait(async {
        let service = Pictures::start();
        let moderation = moderation(&service, Duration::from_millis(500));
        let mut answers: Vec<Answer> =
            [400, 401, 404, 429, 500, 503].map(|status| Answer::refusal(status).into()).to_vec();
        answers.extend(["", "{}", r#"{"results":[]}"#, r#"{"results":[{}]}"#, "<html>"].map(Answer::text));
        answers.extend([Answer::CutShort, Answer::HangUp, Answer::Endless, Answer::Silence, Answer::Drip]);
        for answer in answers {
            service.next(Asked::Moderation, answer.clone());
            let reason = moderation.flagged(PROMPT).await.expect_err("no verdict");
            assert!(!reason.contains("zebrafinch") && !reason.contains(KEY), "{answer:?}: {reason}");
        }
    });
}
