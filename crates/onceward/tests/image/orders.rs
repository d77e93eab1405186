//! Tests orders from payment to picture, and their other ends.

use onceward_testkit::TempDir;
use onceward_testkit::fake_image_service::{FakeImageService, FakeResponse, RequestKind};
use onceward_testkit::server_process::{self, ALL_DATABASES, DatabaseKind, ServerProcess};
use serde_json::{Value as Json, json};

use crate::support::{BINARY, ImageServer};

#[test]
fn ordered_picture_can_be_fetched_and_removed() {
    for db in ALL_DATABASES {
        let mut server = ImageServer::open(db, &[]);
        server.send_order("", "a lighthouse at dusk").assert_problem(402, "insufficient_credits");
        server.grant("local", 20);
        let made = server.send_order("", "a lighthouse at dusk");
        assert_eq!((made.status, &made.json()["state"]), (201, &json!("queued")), "{}", made.text());
        assert_eq!((&made.json()["cost"], &made.json()["resultUrl"]), (&json!(5), &json!(null)));
        let id = made.json()["id"].as_str().unwrap().to_owned();
        let job = server.wait_for_job("", &id, "completed");
        assert_eq!((&job["retryCount"], &job["lastError"]), (&json!(0), &json!(null)));
        assert!(job["startedAt"].is_string() && job["finishedAt"].is_string());

        let asset = server.get("", &format!("/image/assets/{}", job["asset"].as_str().unwrap()));
        assert_eq!(
            (&asset["job"], &asset["kind"], &asset["url"]),
            (&json!(id), &json!("image/png"), &job["resultUrl"])
        );
        let picture = server.process().get(job["resultUrl"].as_str().unwrap());
        assert_eq!((picture.status, picture.header("content-type")), (200, Some("image/png")));
        assert!(picture.body.starts_with(b"\x89PNG\r\n\x1a\n") && asset["bytes"] == json!(picture.body.len()));
        assert_eq!(picture.header("cache-control"), Some("private"));
        let library = server.get("", "/image/assets");
        assert_eq!((&library["assets"][0], &library["next"]), (&asset, &json!(null)));
        assert_eq!(server.checked_statement(""), [("order".to_owned(), -5), ("grant".to_owned(), 20)]);

        let path = format!("/image/assets/{}", asset["id"].as_str().unwrap());
        for _ in 0..2 {
            let removed = server.call("", "DELETE", &path);
            assert_eq!((removed.status, &removed.json()["url"]), (200, &json!(null)), "{}", removed.text());
            assert_ne!(removed.json()["state"], "stored");
        }
        server.process().get(job["resultUrl"].as_str().unwrap()).assert_problem(404, "not_found");
        assert_eq!(server.get("", "/image/assets")["assets"], json!([]));
        let after = server.get("", &format!("/image/jobs/{id}"));
        assert_eq!(
            (&after["resultUrl"], &after["asset"]),
            (&json!(null), &asset["id"]),
            "the URL of a removed picture is not returned"
        );
        server.wait_for_record("", asset["id"].as_str().unwrap(), "removed");
        assert_eq!(std::fs::read_dir(server.originals()).unwrap().count(), 0, "the object is deleted");
        assert_eq!(server.call("", "DELETE", &path).json()["state"], "removed", "removing again succeeds");
        server.kill_and_verify();
    }
}

/// Also on a server without a provider, and after a crash before the deletion.
#[test]
fn removed_picture_is_deleted_from_bucket() {
    for db in ALL_DATABASES {
        let mut server = ImageServer::open(db, &[]);
        server.grant("local", 10);
        let mut assets = Vec::new();
        for prompt in ["a cat", "a dog"] {
            let id = server.place_order("", prompt);
            assets.push(server.wait_for_job("", &id, "completed")["asset"].as_str().unwrap().to_owned());
        }
        assert_eq!(std::fs::read_dir(server.originals()).unwrap().count(), 2);
        let remove = |server: &ImageServer, asset: &str| {
            assert_eq!(server.post("", &format!("/v1/records/{asset}/events/remove"), &json!({})).status, 200);
        };
        remove(&server, &assets[0]);
        server.wait_for_record("", &assets[0], "removed");
        assert_eq!(std::fs::read_dir(server.originals()).unwrap().count(), 1);
        remove(&server, &assets[1]);
        server.kill();
        server.start_server();
        server.wait_for_record("", &assets[1], "removed");
        assert_eq!(std::fs::read_dir(server.originals()).unwrap().count(), 0);
        server.kill_and_verify();
    }
}

/// Covers accepted and refused prompts.
#[test]
fn refused_prompt_is_not_echoed() {
    let server = ImageServer::open(DatabaseKind::Sqlite, &["--image-provider", "none"]);
    server.grant("local", 5);
    let refused = server.send_order("", "some pоrn by the window");
    refused.assert_problem(422, "policy_violation");
    assert_eq!(refused.json()["detail"], "policy violation");
    assert!(!refused.text().contains("window"));
    assert_eq!(server.balance(""), 5);
    server.post("", "/image/jobs", &json!({ "prompt": " " })).assert_problem(422, "invalid_input");
    server.post("", "/image/jobs", &json!({ "prompt": "a", "size": "1x1" })).assert_problem(422, "invalid_input");
    server.post("", "/image/jobs", &json!({ "prompt": "a".repeat(33_000) })).assert_problem(422, "invalid_input");
}

#[test]
fn custom_word_list_replaces_default() {
    let folder = TempDir::new();
    let list = folder.join("words.txt");
    std::fs::write(&list, "# ours\nlighthouse*\n").unwrap();
    let server =
        ImageServer::open(DatabaseKind::Sqlite, &["--image-provider", "none", "--image-words", list.to_str().unwrap()]);
    server.grant("local", 5);
    server.send_order("", "two Lighthouses").assert_problem(422, "policy_violation");
    server.place_order("", "a tower");
}

#[test]
fn provider_refusal_decides_state_and_charge() {
    for db in ALL_DATABASES {
        let service = FakeImageService::start();
        let mut server = ImageServer::open(db, &["--image-url", &service.url()]);
        server.grant("local", 20);

        service.respond_next(RequestKind::Generation, FakeResponse::error_status(400).code("content_policy_violation"));
        let id = server.place_order("", "something that it does not like");
        let job = server.wait_for_job("", &id, "rejected");
        assert_eq!((&job["lastError"], server.balance("")), (&json!("policy violation"), 15), "the penalty is charged");

        service.respond_next(RequestKind::Generation, FakeResponse::error_status(401).code("some_error"));
        let dead = server.place_order("", "something else");
        server.wait_for_job("", &dead, "dead_letter");
        assert_eq!(server.balance(""), 15, "a dead letter is not charged");
        server.post("", &format!("/image/jobs/{id}/replay"), &json!({})).assert_problem(409, "wrong_state");

        let replayed = server.post("", &format!("/image/jobs/{dead}/replay"), &json!({}));
        assert_eq!((replayed.status, &replayed.json()["replayOf"]), (201, &json!(dead)), "{}", replayed.text());
        let new = replayed.json()["id"].as_str().unwrap().to_owned();
        server.wait_for_job("", &new, "completed");
        let again = server.post("", &format!("/image/jobs/{dead}/replay"), &json!({}));
        assert_eq!((again.status, &again.json()["id"]), (200, &json!(new)), "a repeated replay has no effect");
        assert_eq!(server.get("", &format!("/image/jobs/{dead}"))["state"], "dead_letter");
        let printed: Vec<_> = server.checked_statement("").into_iter().map(|(what, _)| what).collect();
        assert_eq!(printed, ["order", "refund", "order", "order", "grant"]);
        server.kill_and_verify();
    }
}

/// Runs both databases concurrently, because these tests wait in real time.
fn run_on_both_databases(test: impl Fn(DatabaseKind) + Sync) {
    let play = &test;
    std::thread::scope(|scope| {
        for db in ALL_DATABASES {
            scope.spawn(move || play(db));
        }
    });
}

fn parse_time(text: &Json) -> jiff::Timestamp {
    text.as_str().expect("time").parse().expect("RFC 3339")
}

/// Returns the times at which a job entered this state.
fn state_times(server: &ImageServer, id: &str, state: &str) -> Vec<jiff::Timestamp> {
    let history = server.get("", &format!("/v1/records/{id}/history"));
    let entries = history["entries"].as_array().expect("log").iter();
    entries.filter(|entry| entry["state"] == state).map(|entry| parse_time(&entry["at"])).collect()
}

/// The order is charged once.
#[test]
fn order_waits_for_provider_retry_after() {
    run_on_both_databases(|db| {
        let service = FakeImageService::start();
        let mut server = ImageServer::open(db, &["--image-url", &service.url()]);
        server.grant("local", 20);
        service.respond_next(RequestKind::Generation, FakeResponse::error_status(429).header("Retry-After", "4"));
        let id = server.place_order("", "a lighthouse");
        let failed = server.wait_for_job("", &id, "failed");
        assert_eq!((&failed["retryCount"], server.balance("")), (&json!(1), 15), "{failed}");
        let again = parse_time(&failed["retryAt"]);
        let wait = again.duration_since(state_times(&server, &id, "failed")[0]).as_millis();
        assert!((4_000..=5_000).contains(&wait), "{db:?}: {wait} ms");
        let done = server.wait_for_job("", &id, "completed");
        assert_eq!((&done["retryCount"], &done["lastError"]), (&json!(1), &json!(null)));
        assert_eq!(service.received().len(), 2, "one failed and one successful request");
        let queued = state_times(&server, &id, "queued");
        assert!(queued.len() == 2 && queued[1] >= again, "not before Retry-After: {queued:?}");
        assert_eq!(server.checked_statement(""), [("order".to_owned(), -5), ("grant".to_owned(), 20)]);
        server.kill_and_verify();
    });
}

/// The dead letter follows the fourth failure, and a replay draws the picture.
#[test]
fn unavailable_provider_dead_letters_order_without_charge() {
    run_on_both_databases(|db| {
        let service = FakeImageService::start();
        let mut server = ImageServer::open(db, &["--image-url", &service.url()]);
        server.grant("local", 5);
        service.respond_always(RequestKind::Generation, FakeResponse::error_status(503));
        let id = server.place_order("", "a lighthouse");
        let dead = server.wait_for_job("", &id, "dead_letter");
        assert_eq!((&dead["retryCount"], server.balance("")), (&json!(4), 5), "{dead}");
        assert_eq!((service.received().len(), state_times(&server, &id, "running").len()), (4, 4));
        let (failed, queued) = (state_times(&server, &id, "failed"), state_times(&server, &id, "queued"));
        for (seconds, (failed, queued)) in [2, 4, 8].into_iter().zip(failed.iter().zip(&queued[1..])) {
            let waited = queued.duration_since(*failed).as_millis();
            assert!(waited >= seconds * 1_000, "{db:?}: waited {waited} ms, expected {seconds} s");
        }
        service.respond_always(RequestKind::Generation, FakeResponse::Success);
        let replayed = server.post("", &format!("/image/jobs/{id}/replay"), &json!({}));
        assert_eq!(replayed.status, 201, "{}", replayed.text());
        server.wait_for_job("", replayed.json()["id"].as_str().expect("id"), "completed");
        let printed: Vec<_> = server.checked_statement("").into_iter().map(|(what, _)| what).collect();
        assert_eq!(
            (printed, server.balance("")),
            (["order", "refund", "order", "grant"].map(str::to_owned).to_vec(), 0)
        );
        server.kill_and_verify();
    });
}

/// The server prints the reason.
#[test]
fn image_system_is_not_served_without_object_storage() {
    let server = ServerProcess::start(&mut server_process::serve_command(
        BINARY,
        &DatabaseKind::Postgres.new_url(&TempDir::new()),
    ));
    let answer = server.post("/image/jobs", &json!({ "prompt": "a cat" }));
    answer.assert_problem(404, "unknown_lifecycle");
}
