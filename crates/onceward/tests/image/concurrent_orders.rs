//! Tests fifty concurrent requests.

use std::sync::Barrier;

use onceward_testkit::http::RawHttpResponse;
use onceward_testkit::server_process::ALL_DATABASES;
use serde_json::{Value as Json, json};

use crate::support::ImageServer;

const CONCURRENT_CALLS: usize = 50;

/// Sends all requests at the same moment and returns the replies.
fn call_concurrently(server: &ImageServer, call: impl Fn(usize) -> RawHttpResponse + Sync) -> Vec<RawHttpResponse> {
    let (barrier, call) = (Barrier::new(CONCURRENT_CALLS), &call);
    let _ = server.process();
    std::thread::scope(|scope| {
        let barrier = &barrier;
        let begin = |number| {
            scope.spawn(move || {
                barrier.wait();
                call(number)
            })
        };
        let all: Vec<_> = (0..CONCURRENT_CALLS).map(begin).collect();
        all.into_iter().map(|one| one.join().expect("response")).collect()
    })
}

fn distinct_ids(replies: &[RawHttpResponse]) -> Vec<Json> {
    let mut ids: Vec<Json> = replies.iter().map(|reply| reply.json()["id"].clone()).collect();
    ids.dedup();
    ids
}

/// One charge, and all callers get the same reply.
#[test]
fn concurrent_identical_orders_create_one_job() {
    for db in ALL_DATABASES {
        let server = ImageServer::with_keys(db, &["--image-provider", "none"]);
        let within_a_minute = (0..3).any(|turn| {
            let name = format!("ann-{turn}");
            let key = server.key(&name, &["user"]);
            server.grant(&name, 20);
            let replies = call_concurrently(&server, |_| server.send_order(&key, "a cat"));
            // The minute changed in between: later orders found another active job. Retry with another user.
            if replies.iter().any(|reply| reply.status == 429) {
                return false;
            }
            let made = replies.iter().filter(|reply| reply.status == 201).count();
            let same = replies.iter().filter(|reply| reply.status == 200).count();
            assert_eq!((made, same), (1, CONCURRENT_CALLS - 1));
            assert_eq!(distinct_ids(&replies).len(), 1);
            assert_eq!(server.checked_statement(&key), [("order".to_owned(), -5), ("grant".to_owned(), 20)]);
            true
        });
        assert!(within_a_minute, "a minute ended during each of three attempts");
    }
}

/// The key is independent of the minute.
#[test]
fn concurrent_orders_with_same_key_create_one_job() {
    for db in ALL_DATABASES {
        let server = ImageServer::with_keys(db, &["--image-provider", "none"]);
        let key = server.key("ann", &["user"]);
        server.grant("ann", 20);
        let once = |body: &[u8]| {
            server.process().call_as(&key, "POST", "/image/jobs", &[("idempotency-key", "k")], Some(body))
        };
        let replies = call_concurrently(&server, |_| once(br#"{"prompt": "a cat"}"#));
        assert!(replies.iter().all(|reply| matches!(reply.status, 200 | 201)), "{:?}", replies[0].text());
        assert_eq!(distinct_ids(&replies).len(), 1);
        assert_eq!(server.balance(&key), 15);
        once(br#"{"prompt": "a dog"}"#).assert_problem(422, "idempotency_key_reused");
    }
}

/// Refused orders cost nothing.
#[test]
fn concurrent_different_orders_leave_one_active_job() {
    for db in ALL_DATABASES {
        let server = ImageServer::with_keys(db, &["--image-provider", "none"]);
        let key = server.key("ann", &["pro"]);
        server.grant("ann", 500);
        let replies = call_concurrently(&server, |number| server.send_order(&key, &format!("picture {number}")));
        assert_eq!(replies.iter().filter(|reply| reply.status == 201).count(), 1);
        for refused in replies.iter().filter(|reply| reply.status != 201) {
            refused.assert_problem(429, "one_active_job");
        }
        assert_eq!(server.balance(&key), 495);
    }
}

/// Each user has credits for one picture and sends two orders.
#[test]
fn concurrent_orders_of_many_users_all_complete() {
    for db in ALL_DATABASES {
        let mut server = ImageServer::with_keys(db, &[]);
        let keys: Vec<String> =
            (0..CONCURRENT_CALLS).map(|number| server.key(&format!("user-{number}"), &["user"])).collect();
        for number in 0..CONCURRENT_CALLS {
            server.grant(&format!("user-{number}"), 5);
        }
        let replies = call_concurrently(&server, |number| server.send_order(&keys[number], "a cat"));
        for (key, reply) in keys.iter().zip(&replies) {
            assert_eq!(reply.status, 201, "{}", reply.text());
            server.wait_for_job(key, reply.json()["id"].as_str().unwrap(), "completed");
            server.send_order(key, "a dog").assert_problem(402, "insufficient_credits");
            assert_eq!(server.get(key, "/image/assets")["assets"].as_array().map(Vec::len), Some(1));
        }
        let revenue = server.get(server.operator_key(), "/v1/accounts/credit:revenue/entries");
        assert_eq!(revenue["account"]["balance"], 5 * CONCURRENT_CALLS);
        server.kill_and_verify();
    }
}

/// With one order left in the hour, one of fifty is accepted and charged. With none left, none is.
#[test]
fn last_quota_slot_is_taken_once() {
    for db in ALL_DATABASES {
        let server = ImageServer::with_keys(db, &["--image-provider", "none"]);
        let mo = server.key("mo", &["moderator"]);
        let block = |id: &str| assert_eq!(server.post(&mo, &format!("/image/jobs/{id}/block"), &json!({})).status, 200);
        // If the hour changes in between, retry with another guest.
        let counted = (0..3).any(|turn| {
            let name = format!("guest-{turn}");
            let key = server.key(&name, &["producer"]);
            server.grant(&name, 500);
            let began = server.hour();
            for number in 0..4 {
                block(&server.place_order(&key, &format!("before {number}")));
            }
            let replies = call_concurrently(&server, |number| server.send_order(&key, &format!("picture {number}")));
            let made: Vec<&RawHttpResponse> = replies.iter().filter(|reply| reply.status == 201).collect();
            let paid = 500 - server.balance(&key);
            block(made[0].json()["id"].as_str().unwrap());
            let late = call_concurrently(&server, |number| server.send_order(&key, &format!("late picture {number}")));
            let same = server.hour() == began;
            if same {
                assert_eq!((made.len(), paid), (1, 25));
                let refused = |reply: &&RawHttpResponse| reply.status == 429;
                assert_eq!(replies.iter().filter(refused).count(), CONCURRENT_CALLS - 1);
                for reply in &late {
                    reply.assert_problem(429, "quota");
                }
                assert_eq!((server.balance(&key), server.checked_statement(&key).len()), (475, 6));
            }
            same
        });
        assert!(counted, "an hour ended during each of three attempts");
    }
}

#[test]
fn concurrent_blocks_charge_one_penalty() {
    for db in ALL_DATABASES {
        let mut server = ImageServer::with_keys(db, &["--image-provider", "none"]);
        let (ann, mo) = (server.key("ann", &["user"]), server.key("mo", &["moderator"]));
        server.grant("ann", 20);
        let path = format!("/image/jobs/{}/block", server.place_order(&ann, "a cat"));
        let replies = call_concurrently(&server, |_| server.post(&mo, &path, &json!({})));
        assert_eq!(replies.iter().filter(|reply| reply.status == 200).count(), 1);
        for refused in replies.iter().filter(|reply| reply.status != 200) {
            refused.assert_problem(409, "wrong_state");
        }
        let accounts = server.accounts();
        assert_eq!((accounts["penalties"], accounts["user:ann"]), (5, 15));
        server.kill_and_verify();
    }
}

/// The job ends in one state, and its credits are booked once.
#[test]
fn concurrent_block_and_withdraw_end_job_once() {
    for db in ALL_DATABASES {
        let mut server = ImageServer::with_keys(db, &["--image-provider", "none"]);
        let (ann, mo) = (server.key("ann", &["user"]), server.key("mo", &["moderator"]));
        server.grant("ann", 20);
        let id = server.place_order(&ann, "a cat");
        let replies = call_concurrently(&server, |number| {
            let (key, what) = if number % 2 == 0 { (&mo, "block") } else { (&ann, "withdraw") };
            server.post(key, &format!("/image/jobs/{id}/{what}"), &json!({}))
        });
        let done: Vec<Json> = replies.iter().filter(|reply| reply.status == 200).map(RawHttpResponse::json).collect();
        assert_eq!(done.len(), 1);
        for refused in replies.iter().filter(|reply| reply.status != 200) {
            refused.assert_problem(409, "wrong_state");
        }
        let ended = server.get(&ann, &format!("/image/jobs/{id}"))["state"].clone();
        assert_eq!(ended, done[0]["state"]);
        let accounts = server.accounts();
        let penalties = accounts.get("penalties").copied().unwrap_or_default();
        let expected = if ended == "rejected" { (5, 15) } else { (0, 20) };
        assert_eq!((penalties, accounts["user:ann"]), expected, "{ended}");
        assert_eq!(accounts.values().sum::<i64>(), 0, "no hold is left");
        server.kill_and_verify();
    }
}
