//! Pictures at an address: which addresses are asked, and what of the answers is believed.

use onceward_testkit::pictures::{Answer, Asked, Pictures};

use super::{client, order, wait};

/// The code that is reported when an order is answered with an address and the download with this.
async fn reported(download: impl Into<Answer>) -> String {
    let service = Pictures::start();
    service.next(Asked::Drawing, Answer::Link);
    service.next(Asked::Download, download);
    client(&service).draw(&order()).await.expect_err("no picture").code.to_string()
}

/// A service that names both, the picture as an empty text and its address, has given the address.
#[test]
fn an_empty_picture_is_none_beside_an_address() {
    wait(async {
        let service = Pictures::start();
        let picture = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, Pictures::picture());
        let address = format!("data:image/png;base64,{picture}");
        let both = serde_json::json!({ "data": [{ "b64_json": "", "url": address }] });
        service.next(Asked::Drawing, Answer::text(&both.to_string()));
        assert_eq!(*client(&service).draw(&order()).await.expect("a picture").bytes, *Pictures::picture());
        service.next(Asked::Drawing, Answer::text(r#"{"data":[{"b64_json":""}]}"#));
        assert_eq!(&*client(&service).draw(&order()).await.expect_err("no picture").code, "502");
    });
}

/// IMG-12: a download that fails may pass: drawn again, the picture has a new address.
#[test]
fn a_download_that_fails_may_pass() {
    wait(async {
        for (status, code) in [(500, "500"), (502, "502"), (503, "503"), (504, "504"), (429, "429"), (408, "timeout")] {
            assert_eq!(reported(Answer::refusal(status)).await, code);
        }
        // A link that ran out says nothing of our key or our order.
        for status in [400, 401, 403, 404, 410, 416, 206, 204] {
            assert_eq!(reported(Answer::refusal(status)).await, "502", "{status}");
        }
    });
}

/// IMG-4: half of a picture is none, whether or not the head told how long it is.
#[test]
fn half_a_picture_is_none() {
    wait(async {
        assert_eq!(reported(Answer::CutShort).await, "502");
        assert_eq!(reported(Answer::EndsEarly).await, "502");
        assert_eq!(reported(Answer::HangUp).await, "502");
    });
}

/// The head must name a picture, the bytes must be one, and of the same kind.
#[test]
fn head_and_bytes_must_agree() {
    wait(async {
        let png = Pictures::picture;
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
            let answer = Answer::Body { content_type, bytes };
            assert_eq!(reported(answer).await, "502", "{content_type}");
        }
    });
}

/// Neither a length that is told nor one that is not fills the memory.
#[test]
fn large_pictures_are_left() {
    wait(async {
        let large = onceward_testkit::pictures::png(300);
        assert!(large.len() > 64 << 10);
        assert_eq!(reported(Answer::Body { content_type: "image/png", bytes: large }).await, "502");
        assert_eq!(reported(Answer::Endless).await, "502");
    });
}

/// The key is for the service alone, so a download goes without it, even at the service itself.
#[test]
fn downloads_are_told_no_key() {
    wait(async {
        let service = Pictures::start();
        service.next(Asked::Drawing, Answer::Link);
        service.next(Asked::Download, Answer::redirect("/pictures/2.png"));
        client(&service).draw(&order()).await.expect("a picture");
        let heard = service.heard();
        let paths: Vec<&str> = heard.iter().map(|heard| heard.path.as_str()).collect();
        assert_eq!(paths, ["/v1/images/generations", "/pictures/1.png", "/pictures/2.png"]);
        assert!(heard[0].headers.contains_key("authorization"));
        assert!(heard[1..].iter().all(|heard| !heard.headers.contains_key("authorization")), "{heard:?}");
    });
}

/// An address elsewhere is asked only by https and only where all the world can reach it.
#[test]
fn private_places_are_not_asked() {
    wait(async {
        let (service, neighbour) = (Pictures::start(), Pictures::start());
        let port = neighbour.url().rsplit(':').next().map(str::to_owned).expect("a port");
        for (address, code) in [
            (format!("{}/pictures/1.png", neighbour.url()), "403"),
            (format!("http://localhost:{port}/pictures/1.png"), "403"),
            (format!("https://localhost:{port}/pictures/1.png"), "403"),
            (format!("https://127.0.0.1:{port}/pictures/1.png"), "403"),
            (format!("https://[::1]:{port}/pictures/1.png"), "403"),
            (format!("https://[::ffff:127.0.0.1]:{port}/pictures/1.png"), "403"),
            // Some resolvers read it as an address, others as a name that nobody has.
            (format!("https://2130706433:{port}/pictures/1.png"), "403 or 503"),
            ("http://169.254.169.254/latest/meta-data/".to_owned(), "403"),
            ("https://169.254.169.254/latest/meta-data/".to_owned(), "403"),
            ("https://user@files.example.org/1.png".to_owned(), "403"),
            ("ftp://files.example.org/1.png".to_owned(), "403"),
            // No host: no address at all.
            ("file:///etc/passwd".to_owned(), "502"),
        ] {
            service.next(Asked::Drawing, Answer::LinkTo(address.clone()));
            let report = client(&service).draw(&order()).await.expect_err(&address);
            assert!(code.contains(&*report.code), "{address}: {report:?}");
            // The same at the end of a redirect.
            service.next(Asked::Drawing, Answer::Link);
            service.next(Asked::Download, Answer::redirect(&address));
            let report = client(&service).draw(&order()).await.expect_err(&address);
            assert!(code.contains(&*report.code), "{address}: {report:?}");
        }
        service.next(Asked::Drawing, Answer::LinkTo("/pictures/1.png".to_owned()));
        let report = client(&service).draw(&order()).await.expect_err("a path alone");
        assert_eq!(&*report.code, "403");
        assert_eq!(neighbour.heard(), [], "somebody was sent to a neighbour");
    });
}

/// Redirects come to an end.
#[test]
fn redirects_are_counted() {
    wait(async {
        for (count, found) in [(3, true), (4, false)] {
            let service = Pictures::start();
            service.next(Asked::Drawing, Answer::Link);
            for _ in 0..count {
                service.next(Asked::Download, Answer::redirect("/pictures/again.png"));
            }
            assert_eq!(client(&service).draw(&order()).await.is_ok(), found, "{count}");
        }
        assert_eq!(reported(Answer::refusal(302)).await, "502", "a redirect to nowhere");
    });
}
