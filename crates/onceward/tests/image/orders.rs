//! An order's whole life, and how it may end.

use onceward_testkit::Folder;
use onceward_testkit::pictures::{Answer, Asked, Pictures};
use onceward_testkit::served::{self, BOTH, Db, Served};
use serde_json::{Value as Json, json};

use crate::house::{BINARY, House};

/// From no credits to a picture that its owner can open.
#[test]
fn a_picture_is_ordered_drawn_and_fetched() {
    for db in BOTH {
        let mut house = House::open(db, &[]);
        house.order("", "a lighthouse at dusk").is_problem(402, "insufficient_credits");
        house.grant("local", 20);
        let made = house.order("", "a lighthouse at dusk");
        assert_eq!((made.status, &made.json()["state"]), (201, &json!("queued")), "{}", made.text());
        assert_eq!((&made.json()["cost"], &made.json()["resultUrl"]), (&json!(5), &json!(null)));
        let id = made.json()["id"].as_str().unwrap().to_owned();
        let job = house.until("", &id, "completed");
        assert_eq!((&job["retryCount"], &job["lastError"]), (&json!(0), &json!(null)));
        assert!(job["startedAt"].is_string() && job["finishedAt"].is_string());

        let asset = house.get("", &format!("/image/assets/{}", job["asset"].as_str().unwrap()));
        assert_eq!(
            (&asset["job"], &asset["kind"], &asset["url"]),
            (&json!(id), &json!("image/png"), &job["resultUrl"])
        );
        let picture = house.served().get(job["resultUrl"].as_str().unwrap());
        assert_eq!((picture.status, picture.header("content-type")), (200, Some("image/png")));
        assert!(picture.body.starts_with(b"\x89PNG\r\n\x1a\n") && asset["bytes"] == json!(picture.body.len()));
        assert_eq!(picture.header("cache-control"), Some("private"));
        let library = house.get("", "/image/assets");
        assert_eq!((&library["assets"][0], &library["next"]), (&asset, &json!(null)));
        assert_eq!(house.statement(""), [("order".to_owned(), -5), ("grant".to_owned(), 20)]);

        let path = format!("/image/assets/{}", asset["id"].as_str().unwrap());
        for _ in 0..2 {
            let removed = house.call("", "DELETE", &path);
            assert_eq!((removed.status, &removed.json()["url"]), (200, &json!(null)), "{}", removed.text());
            assert_ne!(removed.json()["state"], "stored");
        }
        house.served().get(job["resultUrl"].as_str().unwrap()).is_problem(404, "not_found");
        assert_eq!(house.get("", "/image/assets")["assets"], json!([]));
        let after = house.get("", &format!("/image/jobs/{id}"));
        assert_eq!((&after["resultUrl"], &after["asset"]), (&json!(null), &asset["id"]), "its address is told no more");
        house.watched("", asset["id"].as_str().unwrap(), "removed");
        assert_eq!(std::fs::read_dir(house.originals()).unwrap().count(), 0, "nor is it in the bucket");
        assert_eq!(house.call("", "DELETE", &path).json()["state"], "removed", "once more does no harm");
        house.verified();
    }
}

/// However a picture is removed, it leaves the bucket, also where nobody draws; and what could not be done before the server died is done
/// by the next.
#[test]
fn a_picture_removed_by_other_ways_leaves_the_bucket() {
    for db in BOTH {
        let mut house = House::open(db, &[]);
        house.grant("local", 10);
        let mut assets = Vec::new();
        for prompt in ["a cat", "a dog"] {
            let id = house.ordered("", prompt);
            assets.push(house.until("", &id, "completed")["asset"].as_str().unwrap().to_owned());
        }
        assert_eq!(std::fs::read_dir(house.originals()).unwrap().count(), 2);
        let remove = |house: &House, asset: &str| {
            assert_eq!(house.post("", &format!("/v1/records/{asset}/events/remove"), &json!({})).status, 200);
        };
        remove(&house, &assets[0]);
        house.watched("", &assets[0], "removed");
        assert_eq!(std::fs::read_dir(house.originals()).unwrap().count(), 1);
        remove(&house, &assets[1]);
        house.kill();
        house.begin();
        house.watched("", &assets[1], "removed");
        assert_eq!(std::fs::read_dir(house.originals()).unwrap().count(), 0);
        house.verified();
    }
}

/// The prompt is in no answer, whether it passes or not.
#[test]
fn a_blocked_prompt_is_told_apart_and_told_no_more() {
    let house = House::open(Db::Sqlite, &["--image-provider", "none"]);
    house.grant("local", 5);
    let refused = house.order("", "some pоrn by the window");
    refused.is_problem(422, "policy_violation");
    assert_eq!(refused.json()["detail"], "policy violation");
    assert!(!refused.text().contains("window"));
    assert_eq!(house.balance(""), 5);
    house.post("", "/image/jobs", &json!({ "prompt": " " })).is_problem(422, "bad_input");
    house.post("", "/image/jobs", &json!({ "prompt": "a", "size": "1x1" })).is_problem(422, "bad_input");
    house.post("", "/image/jobs", &json!({ "prompt": "a".repeat(33_000) })).is_problem(422, "bad_input");
}

/// A list of one's own stands in the place of the one that is built in.
#[test]
fn words_of_ones_own_are_looked_for() {
    let folder = Folder::new();
    let list = folder.join("words.txt");
    std::fs::write(&list, "# ours\nlighthouse*\n").unwrap();
    let house = House::open(Db::Sqlite, &["--image-provider", "none", "--image-words", list.to_str().unwrap()]);
    house.grant("local", 5);
    house.order("", "two Lighthouses").is_problem(422, "policy_violation");
    house.ordered("", "a tower");
}

/// What a provider says decides how an order ends, and who pays.
#[test]
fn a_provider_that_refuses_or_fails() {
    for db in BOTH {
        let service = Pictures::start();
        let mut house = House::open(db, &["--image-url", &service.url()]);
        house.grant("local", 20);

        service.next(Asked::Drawing, Answer::refusal(400).code("content_policy_violation"));
        let id = house.ordered("", "something that it does not like");
        let job = house.until("", &id, "rejected");
        assert_eq!((&job["lastError"], house.balance("")), (&json!("policy violation"), 15), "the penalty is paid");

        service.next(Asked::Drawing, Answer::refusal(401).code("some_error"));
        let dead = house.ordered("", "something else");
        house.until("", &dead, "dead_letter");
        assert_eq!(house.balance(""), 15, "a dead letter costs nothing");
        house.post("", &format!("/image/jobs/{id}/replay"), &json!({})).is_problem(409, "wrong_state");

        let replayed = house.post("", &format!("/image/jobs/{dead}/replay"), &json!({}));
        assert_eq!((replayed.status, &replayed.json()["replayOf"]), (201, &json!(dead)), "{}", replayed.text());
        let new = replayed.json()["id"].as_str().unwrap().to_owned();
        house.until("", &new, "completed");
        let again = house.post("", &format!("/image/jobs/{dead}/replay"), &json!({}));
        assert_eq!((again.status, &again.json()["id"]), (200, &json!(new)), "replaying twice is replaying once");
        assert_eq!(house.get("", &format!("/image/jobs/{dead}"))["state"], "dead_letter");
        let said: Vec<_> = house.statement("").into_iter().map(|(what, _)| what).collect();
        assert_eq!(said, ["order", "refund", "order", "order", "grant"]);
        house.verified();
    }
}

/// Beside each other, on both databases: they wait in real time.
fn on_both(play: impl Fn(Db) + Sync) {
    let play = &play;
    std::thread::scope(|scope| {
        for db in BOTH {
            scope.spawn(move || play(db));
        }
    });
}

fn time(text: &Json) -> jiff::Timestamp {
    text.as_str().expect("a time").parse().expect("RFC 3339")
}

/// When a job came to this state, each time.
fn times(house: &House, id: &str, state: &str) -> Vec<jiff::Timestamp> {
    let history = house.get("", &format!("/v1/records/{id}/history"));
    let entries = history["entries"].as_array().expect("its log").iter();
    entries.filter(|entry| entry["state"] == state).map(|entry| time(&entry["at"])).collect()
}

/// A provider that is busy: the order waits as long as it was told to, is drawn then, and is paid for once.
#[test]
fn a_provider_that_is_busy_for_a_while() {
    on_both(|db| {
        let service = Pictures::start();
        let mut house = House::open(db, &["--image-url", &service.url()]);
        house.grant("local", 20);
        service.next(Asked::Drawing, Answer::refusal(429).header("Retry-After", "4"));
        let id = house.ordered("", "a lighthouse");
        let failed = house.until("", &id, "failed");
        assert_eq!((&failed["retryCount"], house.balance("")), (&json!(1), 15), "{failed}");
        let again = time(&failed["retryAt"]);
        let wait = again.duration_since(times(&house, &id, "failed")[0]).as_millis();
        assert!((4_000..=5_000).contains(&wait), "{db:?}: {wait} ms");
        let done = house.until("", &id, "completed");
        assert_eq!((&done["retryCount"], &done["lastError"]), (&json!(1), &json!(null)));
        assert_eq!(service.heard().len(), 2, "once in vain and once well");
        let queued = times(&house, &id, "queued");
        assert!(queued.len() == 2 && queued[1] >= again, "not before its time: {queued:?}");
        assert_eq!(house.statement(""), [("order".to_owned(), -5), ("grant".to_owned(), 20)]);
        house.verified();
    });
}

/// A provider that is away for longer than anybody waits: a dead letter after the fourth time, free of charge, and drawn when it is replayed.
#[test]
fn a_provider_that_is_away_for_long() {
    on_both(|db| {
        let service = Pictures::start();
        let mut house = House::open(db, &["--image-url", &service.url()]);
        house.grant("local", 5);
        service.always(Asked::Drawing, Answer::refusal(503));
        let id = house.ordered("", "a lighthouse");
        let dead = house.until("", &id, "dead_letter");
        assert_eq!((&dead["retryCount"], house.balance("")), (&json!(4), 5), "{dead}");
        assert_eq!((service.heard().len(), times(&house, &id, "running").len()), (4, 4));
        let (failed, queued) = (times(&house, &id, "failed"), times(&house, &id, "queued"));
        for (seconds, (failed, queued)) in [2, 4, 8].into_iter().zip(failed.iter().zip(&queued[1..])) {
            let waited = queued.duration_since(*failed).as_millis();
            assert!(waited >= seconds * 1_000, "{db:?}: {waited} ms in place of {seconds} s");
        }
        service.always(Asked::Drawing, Answer::Well);
        let replayed = house.post("", &format!("/image/jobs/{id}/replay"), &json!({}));
        assert_eq!(replayed.status, 201, "{}", replayed.text());
        house.until("", replayed.json()["id"].as_str().expect("an id"), "completed");
        let said: Vec<_> = house.statement("").into_iter().map(|(what, _)| what).collect();
        assert_eq!((said, house.balance("")), (["order", "refund", "order", "grant"].map(str::to_owned).to_vec(), 0));
        house.verified();
    });
}

/// Where there is no place for pictures the system is not served, and says why.
#[test]
fn without_a_bucket_there_are_no_pictures() {
    let served = Served::start(&mut served::command(BINARY, &Db::Postgres.url(&Folder::new())));
    let answer = served.post("/image/jobs", &json!({ "prompt": "a cat" }));
    answer.is_problem(404, "no_such_lifecycle");
}
