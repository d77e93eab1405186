//! Downloads from URLs: which addresses are allowed and which responses are accepted.

use onceward_testkit::fake_image_service::{FakeImageService, FakeResponse, RequestKind};

use super::{image_request, openai_client};

/// Returns the reported code if the service answers with a URL and the download gets this response.
async fn failed_download_code(download: impl Into<FakeResponse>) -> String {
    let service = FakeImageService::start();
    service.respond_next(RequestKind::Generation, FakeResponse::ImageUrl);
    service.respond_next(RequestKind::Download, download);
    openai_client(&service).generate(&image_request()).await.expect_err("no image").code.to_string()
}

#[tokio::test]
async fn empty_base64_falls_back_to_url() {
    let service = FakeImageService::start();
    let picture = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, FakeImageService::image_bytes());
    let address = format!("data:image/png;base64,{picture}");
    let both = serde_json::json!({ "data": [{ "b64_json": "", "url": address }] });
    service.respond_next(RequestKind::Generation, FakeResponse::success_text(&both.to_string()));
    assert_eq!(
        *openai_client(&service).generate(&image_request()).await.expect("a picture").bytes,
        *FakeImageService::image_bytes()
    );
    service.respond_next(RequestKind::Generation, FakeResponse::success_text(r#"{"data":[{"b64_json":""}]}"#));
    assert_eq!(&*openai_client(&service).generate(&image_request()).await.expect_err("no image").code, "502");
}

/// IMG-12: a retry generates the image again, with a new URL.
#[tokio::test]
async fn failed_download_is_reported_as_retryable() {
    for (status, code) in [(500, "500"), (502, "502"), (503, "503"), (504, "504"), (429, "429"), (408, "timeout")] {
        assert_eq!(failed_download_code(FakeResponse::error_status(status)).await, code);
    }
    // An expired URL says nothing about the API key or the request.
    for status in [400, 401, 403, 404, 410, 416, 206, 204] {
        assert_eq!(failed_download_code(FakeResponse::error_status(status)).await, "502", "{status}");
    }
}

/// IMG-4: with and without a content length.
#[tokio::test]
async fn truncated_download_is_reported_as_502() {
    assert_eq!(failed_download_code(FakeResponse::TruncatedWithLength).await, "502");
    assert_eq!(failed_download_code(FakeResponse::TruncatedWithoutLength).await, "502");
    assert_eq!(failed_download_code(FakeResponse::CloseConnection).await, "502");
}

#[tokio::test]
async fn content_type_must_match_image_bytes() {
    let png = FakeImageService::image_bytes;
    let page = || b"<html>Sign in</html>".to_vec();
    for (content_type, bytes) in [
        ("text/html", page()),
        ("text/html", png()),
        ("application/octet-stream", png()),
        ("image/png", page()),
        ("image/jpeg", png()),
        ("image/svg+xml", b"<svg/>".to_vec()),
        ("image/gif", b"GIF89a".to_vec()),
        ("image/png", Vec::new()),
    ] {
        let answer = FakeResponse::Body { content_type, bytes };
        assert_eq!(failed_download_code(answer).await, "502", "{content_type}");
    }
}

/// With and without a content length.
#[tokio::test]
async fn oversized_download_is_reported_as_502() {
    let large = onceward_testkit::fake_image_service::gray_noise_png(300);
    assert!(large.len() > 64 << 10);
    assert_eq!(failed_download_code(FakeResponse::Body { content_type: "image/png", bytes: large }).await, "502");
    assert_eq!(failed_download_code(FakeResponse::Endless).await, "502");
}

/// Even if the URL is at the service itself.
#[tokio::test]
async fn download_requests_carry_no_api_key() {
    let service = FakeImageService::start();
    service.respond_next(RequestKind::Generation, FakeResponse::ImageUrl);
    service.respond_next(RequestKind::Download, FakeResponse::redirect("/pictures/2.png"));
    openai_client(&service).generate(&image_request()).await.expect("a picture");
    let requests = service.received();
    let paths: Vec<&str> = requests.iter().map(|heard| heard.path.as_str()).collect();
    assert_eq!(paths, ["/v1/images/generations", "/pictures/1.png", "/pictures/2.png"]);
    assert!(requests[0].headers.contains_key("authorization"));
    assert!(requests[1..].iter().all(|heard| !heard.headers.contains_key("authorization")), "{requests:?}");
}

/// Other hosts are allowed only with https and a public address.
#[tokio::test]
async fn private_download_addresses_are_rejected() {
    let (service, private_service) = (FakeImageService::start(), FakeImageService::start());
    let port = private_service.url().rsplit(':').next().map(str::to_owned).expect("a port");
    for (address, code) in [
        (format!("{}/pictures/1.png", private_service.url()), "403"),
        (format!("http://localhost:{port}/pictures/1.png"), "403"),
        (format!("https://localhost:{port}/pictures/1.png"), "403"),
        (format!("https://127.0.0.1:{port}/pictures/1.png"), "403"),
        (format!("https://[::1]:{port}/pictures/1.png"), "403"),
        (format!("https://[::ffff:127.0.0.1]:{port}/pictures/1.png"), "403"),
        // Some resolvers parse it as an address, others as an unknown name.
        (format!("https://2130706433:{port}/pictures/1.png"), "403 or 503"),
        ("http://169.254.169.254/latest/meta-data/".to_owned(), "403"),
        ("https://169.254.169.254/latest/meta-data/".to_owned(), "403"),
        ("https://user@files.example.org/1.png".to_owned(), "403"),
        ("ftp://files.example.org/1.png".to_owned(), "403"),
        // A URL without a host is invalid.
        ("file:///etc/passwd".to_owned(), "502"),
    ] {
        service.respond_next(RequestKind::Generation, FakeResponse::ImageUrlAt(address.clone()));
        let report = openai_client(&service).generate(&image_request()).await.expect_err(&address);
        assert!(code.contains(&*report.code), "{address}: {report:?}");
        // The same address as the target of a redirect.
        service.respond_next(RequestKind::Generation, FakeResponse::ImageUrl);
        service.respond_next(RequestKind::Download, FakeResponse::redirect(&address));
        let report = openai_client(&service).generate(&image_request()).await.expect_err(&address);
        assert!(code.contains(&*report.code), "{address}: {report:?}");
    }
    service.respond_next(RequestKind::Generation, FakeResponse::ImageUrlAt("/pictures/1.png".to_owned()));
    let report = openai_client(&service).generate(&image_request()).await.expect_err("a path without a host");
    assert_eq!(&*report.code, "403");
    assert_eq!(private_service.received(), [], "the private service got a request");
}

#[tokio::test]
async fn more_than_three_redirects_are_rejected() {
    for (count, succeeds) in [(3, true), (4, false)] {
        let service = FakeImageService::start();
        service.respond_next(RequestKind::Generation, FakeResponse::ImageUrl);
        for _ in 0..count {
            service.respond_next(RequestKind::Download, FakeResponse::redirect("/pictures/again.png"));
        }
        assert_eq!(openai_client(&service).generate(&image_request()).await.is_ok(), succeeds, "{count}");
    }
    assert_eq!(failed_download_code(FakeResponse::error_status(302)).await, "502", "a redirect without a location");
}
