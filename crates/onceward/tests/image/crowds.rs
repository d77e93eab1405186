//! Fifty at once.

use std::sync::Barrier;

use onceward_testkit::http::Reply;
use onceward_testkit::served::BOTH;
use serde_json::{Value as Json, json};

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

/// One is left of the hour: of fifty orders one is taken and paid for. None is left: of fifty none is, whoever comes first.
#[test]
fn the_last_of_the_hour_is_taken_once() {
    for db in BOTH {
        let house = House::with_keys(db, &["--image-provider", "none"]);
        let mo = house.key("mo", &["moderator"]);
        let block = |id: &str| assert_eq!(house.post(&mo, &format!("/image/jobs/{id}/block"), &json!({})).status, 200);
        // Should the hour end in between, another guest begins anew in the next.
        let counted = (0..3).any(|turn| {
            let name = format!("guest-{turn}");
            let key = house.key(&name, &["producer"]);
            house.grant(&name, 500);
            let began = house.hour();
            for number in 0..4 {
                block(&house.ordered(&key, &format!("before {number}")));
            }
            let replies = at_once(&house, |number| house.order(&key, &format!("picture {number}")));
            let made: Vec<&Reply> = replies.iter().filter(|reply| reply.status == 201).collect();
            let paid = 500 - house.balance(&key);
            block(made[0].json()["id"].as_str().unwrap());
            let late = at_once(&house, |number| house.order(&key, &format!("late picture {number}")));
            let same = house.hour() == began;
            if same {
                assert_eq!((made.len(), paid), (1, 25));
                let refused = |reply: &&Reply| reply.status == 429;
                assert_eq!(replies.iter().filter(refused).count(), CROWD - 1);
                for reply in &late {
                    reply.is_problem(429, "quota");
                }
                assert_eq!((house.balance(&key), house.statement(&key).len()), (475, 6));
            }
            same
        });
        assert!(counted, "three hours have passed");
    }
}

/// Fifty moderators at one job: it is blocked once, and the penalty is paid once.
#[test]
fn a_penalty_is_paid_once() {
    for db in BOTH {
        let mut house = House::with_keys(db, &["--image-provider", "none"]);
        let (ann, mo) = (house.key("ann", &["user"]), house.key("mo", &["moderator"]));
        house.grant("ann", 20);
        let path = format!("/image/jobs/{}/block", house.ordered(&ann, "a cat"));
        let replies = at_once(&house, |_| house.post(&mo, &path, &json!({})));
        assert_eq!(replies.iter().filter(|reply| reply.status == 200).count(), 1);
        for refused in replies.iter().filter(|reply| reply.status != 200) {
            refused.is_problem(409, "wrong_state");
        }
        let accounts = house.accounts();
        assert_eq!((accounts["penalties"], accounts["user:ann"]), (5, 15));
        house.verified();
    }
}

/// Half of them block a job and half take it back: it ends in one way, and its credits go one way.
#[test]
fn a_job_ends_in_one_way() {
    for db in BOTH {
        let mut house = House::with_keys(db, &["--image-provider", "none"]);
        let (ann, mo) = (house.key("ann", &["user"]), house.key("mo", &["moderator"]));
        house.grant("ann", 20);
        let id = house.ordered(&ann, "a cat");
        let replies = at_once(&house, |number| {
            let (key, what) = if number % 2 == 0 { (&mo, "block") } else { (&ann, "withdraw") };
            house.post(key, &format!("/image/jobs/{id}/{what}"), &json!({}))
        });
        let done: Vec<Json> = replies.iter().filter(|reply| reply.status == 200).map(Reply::json).collect();
        assert_eq!(done.len(), 1);
        for refused in replies.iter().filter(|reply| reply.status != 200) {
            refused.is_problem(409, "wrong_state");
        }
        let ended = house.get(&ann, &format!("/image/jobs/{id}"))["state"].clone();
        assert_eq!(ended, done[0]["state"]);
        let accounts = house.accounts();
        let penalties = accounts.get("penalties").copied().unwrap_or_default();
        let expected = if ended == "rejected" { (5, 15) } else { (0, 20) };
        assert_eq!((penalties, accounts["user:ann"]), expected, "{ended}");
        assert_eq!(accounts.values().sum::<i64>(), 0, "no hold is left open");
        house.verified();
    }
}
