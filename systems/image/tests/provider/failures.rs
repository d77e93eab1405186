//! What the client reports for each way in which a service answers, or does not.

use std::net::TcpListener;
use std::time::Duration;

use onceward_core::decide::ErrorReport;
use onceward_core::time;
use onceward_system_image::provider::{OpenAi, Provider};
use onceward_testkit::pictures::{Answer, Asked, Gate, Pictures};
use serde_json::json;

use super::{KEY, PROMPT, client, config, order, wait, with};

/// What must be reported: the code, and after how many seconds to come again.
type Wanted = (&'static str, Option<i64>);

fn check(case: &str, report: &ErrorReport, (code, seconds): Wanted) {
    assert_eq!(&*report.code, code, "{case}: {}", report.message);
    assert_eq!(report.retry_after, seconds.map(time::Duration::from_secs), "{case}");
    let told = format!("{report:?}");
    for hidden in [PROMPT, "zebrafinch", KEY, "Your request"] {
        assert!(!told.contains(hidden), "{case} tells {hidden}: {told}");
    }
    assert!(!report.message.is_empty(), "{case}");
}

async fn reports(case: &str, answer: impl Into<Answer>, wanted: Wanted) {
    let service = Pictures::start();
    service.next(Asked::Drawing, answer);
    let report = client(&service).draw(&order()).await.expect_err(case);
    check(case, &report, wanted);
}

/// IMG-12: a status that may pass is reported as one that may, and one that will not as one that will not.
#[test]
fn each_status_has_its_code() {
    wait(async {
        for (status, code) in [
            (429, "429"),
            (500, "500"),
            (502, "502"),
            (503, "503"),
            (504, "504"),
            (400, "400"),
            (401, "401"),
            (403, "403"),
            // Not in the table; each means what one of the table does.
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
            reports(&status.to_string(), Answer::refusal(status), (code, None)).await;
        }
    });
}

/// IMG-11: the pause that a service asks for is reported, in seconds or as a date.
#[test]
fn retry_after_is_passed_on() {
    wait(async {
        let in_seconds = Answer::refusal(429).header("Retry-After", "17");
        reports("seconds", in_seconds, ("429", Some(17))).await;
        let as_a_date = Answer::refusal(429)
            .header("Date", "Mon, 16 Nov 2026 12:00:00 GMT")
            .header("Retry-After", "Mon, 16 Nov 2026 12:00:41 GMT");
        reports("a date", as_a_date, ("429", Some(41))).await;
        reports("503 too", Answer::refusal(503).header("Retry-After", "3"), ("503", Some(3))).await;
        reports("nonsense", Answer::refusal(429).header("Retry-After", "later"), ("429", None)).await;
    });
}

/// IMG-6: a safety filter's word is `policy`, whichever of its names the service calls it by.
#[test]
fn a_safety_filter_is_policy() {
    wait(async {
        for code in ["content_policy_violation", "moderation_blocked", "content_filter", "contentFilter"] {
            reports(code, Answer::refusal(400).code(code), ("policy", None)).await;
        }
        reports("403", Answer::refusal(403).code("content_moderation"), ("policy", None)).await;
        let inner = json!({ "code": "BadRequest", "inner_error": { "code": "ResponsibleAIPolicyViolation" } });
        reports("Azure", Answer::refusal(400).error(inner), ("policy", None)).await;
        // A word in the text is not a code: it may be the prompt's.
        let worded = json!({ "code": "invalid_size", "message": "content_policy_violation" });
        reports("a word", Answer::refusal(400).error(worded), ("400", None)).await;
        reports("a failure", Answer::refusal(500).code("content_filter"), ("500", None)).await;
    });
}

/// A time beyond all clocks is a day.
#[test]
fn a_time_without_a_bound() {
    wait(async {
        let service = Pictures::start();
        assert!(with(&service, "a-model", Duration::MAX).draw(&order()).await.is_ok());
    });
}

/// Of a refusal no more is read than any needs: one that goes on is taken by its status alone.
#[test]
fn a_refusal_without_an_end_is_its_status() {
    wait(async {
        let with = |bytes: usize| {
            Answer::refusal(400).error(json!({ "code": "content_filter", "padding": "x".repeat(bytes) }))
        };
        reports("long", with(60 << 10), ("policy", None)).await;
        reports("too long", with(64 << 10), ("400", None)).await;
        reports("far too long", with(3 << 20), ("400", None)).await;
        reports("and busy", Answer::refusal(503).error(json!({ "padding": "x".repeat(1 << 20) })), ("503", None)).await;
    });
}

/// IMG-4: what cannot be understood may be understood the next time.
#[test]
fn garbage_may_pass() {
    wait(async {
        for (case, text) in [
            ("not JSON", "<html>Bad Gateway</html>"),
            ("half of it", r#"{"data":[{"b64_json":"iVBOR"#),
            ("nothing", ""),
            ("no data", "{}"),
            ("no picture", r#"{"data":[]}"#),
            ("an empty one", r#"{"data":[{}]}"#),
            ("no base64", r#"{"data":[{"b64_json":"%%%"}]}"#),
            ("no image", r#"{"data":[{"b64_json":"aGVsbG8="}]}"#),
            ("no address", r#"{"data":[{"url":"\u0000"}]}"#),
        ] {
            reports(case, Answer::text(text), ("502", None)).await;
        }
        reports("cut short", Answer::CutShort, ("502", None)).await;
        reports("ends early", Answer::EndsEarly, ("502", None)).await;
        reports("endless", Answer::Endless, ("502", None)).await;
        reports("hangs up", Answer::HangUp, ("502", None)).await;
    });
}

/// IMG-4: nobody there is a failure that may pass.
#[test]
fn nobody_there() {
    wait(async {
        // A port that was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
        for url in [format!("http://127.0.0.1:{port}"), "http://nowhere.invalid".to_owned()] {
            let client = OpenAi::open(config(&url, "a-model", Duration::from_secs(20))).expect("a good configuration");
            let report = client.draw(&order()).await.expect_err("nobody is there");
            check(&url, &report, ("503", None));
        }
    });
}

/// However slowly an answer comes, there is an end to waiting for it. Waits for a real moment each time.
#[test]
fn waiting_has_an_end() {
    wait(async {
        let moment = Duration::from_millis(300);
        let stall = || Answer::Stall(Gate::new());
        for (case, answer) in [("silent", Answer::Silence), ("drips", Answer::Drip), ("stalls", stall())] {
            for asked in [Asked::Drawing, Asked::Download] {
                let service = Pictures::start();
                service.always(Asked::Drawing, Answer::Link);
                service.next(asked, answer.clone());
                let report = with(&service, "a-model", moment).draw(&order()).await.expect_err(case);
                check(case, &report, ("timeout", None));
            }
        }
    });
}

/// A picture comes as it was drawn, in either form, and the service hears what was ordered.
#[test]
fn a_picture_comes() {
    wait(async {
        for answer in [Answer::Well, Answer::Link] {
            let service = Pictures::start();
            service.next(Asked::Drawing, answer);
            let picture = Provider::OpenAi(client(&service)).draw(&order()).await.expect("a picture");
            assert_eq!((&*picture.bytes, picture.kind), (&*Pictures::picture(), "image/png"));
            let heard = &service.heard()[0];
            let said = json!({ "model": "a-model", "prompt": PROMPT, "n": 1, "size": "512x512", "response_format": "b64_json" });
            assert_eq!(heard.body, said);
            assert_eq!(heard.headers.get("authorization"), Some(&format!("Bearer {KEY}")));
        }
    });
}

/// Some put the picture where its address should be.
#[test]
fn an_address_may_be_the_picture() {
    wait(async {
        let service = Pictures::start();
        // The smallest PNG that any program takes: one grey pixel.
        let pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==";
        let said = json!({ "data": [{ "url": format!("data:image/png;base64,{pixel}") }] }).to_string();
        service.next(Asked::Drawing, Answer::text(&said));
        let picture = client(&service).draw(&order()).await.expect("a picture");
        assert_eq!((picture.kind, picture.bytes.len()), ("image/png", 67));
        assert_eq!(service.heard().len(), 1, "nothing was fetched");
    });
}

/// OpenAI's newer models refuse to be told how to answer, and to draw small pictures.
#[test]
fn newer_models_are_told_less() {
    wait(async {
        for (model, size, format) in [
            ("gpt-image-1", "1024x1024", None),
            ("dall-e-3", "1024x1024", Some("b64_json")),
            ("dall-e-2", "512x512", Some("b64_json")),
        ] {
            let service = Pictures::start();
            with(&service, model, Duration::from_secs(20)).draw(&order()).await.expect("a picture");
            let body = &service.heard()[0].body;
            assert_eq!(body["size"], size, "{model}");
            assert_eq!(body.get("response_format").and_then(|format| format.as_str()), format, "{model}");
        }
    });
}

/// Neither a key nor a prompt stands in what a log might show.
#[test]
fn nothing_hidden_is_shown() {
    let config = config("https://api.example.org", "a-model", Duration::from_secs(20));
    let client = OpenAi::open(config.clone()).expect("a good configuration");
    let shown = format!("{config:?} {client:?} {:?} {:?}", order(), Provider::OpenAi(client.clone()));
    assert!(!shown.contains(KEY) && !shown.contains("zebrafinch"), "{shown}");
}
