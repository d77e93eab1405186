//! Fifty at once.

use std::sync::Barrier;

use onceward_testkit::http::Reply;
use onceward_testkit::served::BOTH;
use serde_json::Value as Json;

use crate::house::House;

const CROWD: usize = 50;

/// The same moment for all of them; what each was answered.
fn at_once(house: &House, call: impl Fn(usize) -> Reply + Sync) -> Vec<Reply> {
    let (barrier, call) = (Barrier::new(CROWD), &call);
    let _ = house.served();
    std::thread::scope(|scope| {
        let barrier = &barrier;
        let begin = |number| {
            scope.spawn(move || {
                barrier.wait();
                call(number)
            })
        };
        let all: Vec<_> = (0..CROWD).map(begin).collect();
        all.into_iter().map(|one| one.join().expect("an answer")).collect()
    })
}

fn ids(replies: &[Reply]) -> Vec<Json> {
    let mut ids: Vec<Json> = replies.iter().map(|reply| reply.json()["id"].clone()).collect();
    ids.dedup();
    ids
}

/// Fifty times the same order: one job, one deduction, and everybody is told of it.
#[test]
fn the_same_order_fifty_times_is_one() {
    for db in BOTH {
        let house = House::with_keys(db, &["--image-provider", "none"]);
        let within_a_minute = (0..3).any(|turn| {
            let name = format!("ann-{turn}");
            let key = house.key(&name, &["user"]);
            house.grant(&name, 20);
            let replies = at_once(&house, |_| house.order(&key, "a cat"));
            // The minute ended among them: those of the next found another job under way. Then once more, with somebody else.
            if replies.iter().any(|reply| reply.status == 429) {
                return false;
            }
            let made = replies.iter().filter(|reply| reply.status == 201).count();
            let same = replies.iter().filter(|reply| reply.status == 200).count();
            assert_eq!((made, same), (1, CROWD - 1));
            assert_eq!(ids(&replies).len(), 1);
            assert_eq!(house.statement(&key), [("order".to_owned(), -5), ("grant".to_owned(), 20)]);
            true
        });
        assert!(within_a_minute, "three minutes have ended just then");
    }
}

/// Fifty times the same key, whatever the minute: one job.
#[test]
fn the_same_key_fifty_times_is_one_order() {
    for db in BOTH {
        let house = House::with_keys(db, &["--image-provider", "none"]);
        let key = house.key("ann", &["user"]);
        house.grant("ann", 20);
        let once =
            |body: &[u8]| house.served().call_as(&key, "POST", "/image/jobs", &[("idempotency-key", "k")], Some(body));
        let replies = at_once(&house, |_| once(br#"{"prompt": "a cat"}"#));
        assert!(replies.iter().all(|reply| matches!(reply.status, 200 | 201)), "{:?}", replies[0].text());
        assert_eq!(ids(&replies).len(), 1);
        assert_eq!(house.balance(&key), 15);
        once(br#"{"prompt": "a dog"}"#).is_problem(422, "key_reused");
    }
}

/// Fifty different orders of one user: one is under way, the others are refused and cost nothing.
#[test]
fn one_order_at_a_time() {
    for db in BOTH {
        let house = House::with_keys(db, &["--image-provider", "none"]);
        let key = house.key("ann", &["pro"]);
        house.grant("ann", 500);
        let replies = at_once(&house, |number| house.order(&key, &format!("picture {number}")));
        assert_eq!(replies.iter().filter(|reply| reply.status == 201).count(), 1);
        for refused in replies.iter().filter(|reply| reply.status != 201) {
            refused.is_problem(429, "one_active_job");
        }
        assert_eq!(house.balance(&key), 495);
    }
}

/// Fifty users at once, each with credits for one picture and an order for two: each gets one, and all of them are drawn.
#[test]
fn fifty_users_get_a_picture_each() {
    for db in BOTH {
        let mut house = House::with_keys(db, &[]);
        let keys: Vec<String> = (0..CROWD).map(|number| house.key(&format!("user-{number}"), &["user"])).collect();
        for number in 0..CROWD {
            house.grant(&format!("user-{number}"), 5);
        }
        let replies = at_once(&house, |number| house.order(&keys[number], "a cat"));
        for (key, reply) in keys.iter().zip(&replies) {
            assert_eq!(reply.status, 201, "{}", reply.text());
            house.until(key, reply.json()["id"].as_str().unwrap(), "completed");
            house.order(key, "a dog").is_problem(402, "insufficient_credits");
            assert_eq!(house.get(key, "/image/assets")["assets"].as_array().map(Vec::len), Some(1));
        }
        let revenue = house.get(house.ops(), "/v1/accounts/credit:revenue/entries");
        assert_eq!(revenue["account"]["balance"], 5 * CROWD);
        house.verified();
    }
}
