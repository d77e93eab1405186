//! Orders that are taken back, and what is no order.

use onceward_testkit::served::BOTH;
use serde_json::json;

use crate::house::House;

/// Where nobody draws: who has ordered takes it back, or an operator does, and has credits and place again.
#[test]
fn what_nobody_draws_is_withdrawn() {
    for db in BOTH {
        let mut house = House::with_keys(db, &["--image-provider", "none"]);
        let key = |name: &str, role: &str| house.key(name, &[role]);
        let (ann, eve, mo) = (key("ann", "user"), key("eve", "user"), key("mo", "moderator"));
        house.grant("ann", 5);
        let withdraw = |key: &str, id: &str| house.post(key, &format!("/image/jobs/{id}/withdraw"), &json!({}));
        let first = house.ordered(&ann, "a cat");
        withdraw(&eve, &first).is_problem(404, "not_found");
        withdraw(&mo, &first).is_problem(403, "not_allowed");
        let withdrawn = withdraw(&ann, &first).ok();
        assert_eq!((&withdrawn["state"], &withdrawn["lastError"]), (&json!("dead_letter"), &json!("withdrawn")));
        assert_eq!(house.balance(&ann), 5);
        withdraw(&ann, &first).is_problem(409, "wrong_state");
        let second = house.ordered(&ann, "a dog");
        assert_eq!(withdraw(house.ops(), &second).status, 200);

        // Replayed in the minute in which it was ordered again, it is that order.
        let met = (0..3).any(|_| {
            let by_hand = house.ordered(&ann, "a cat");
            let replayed = house.post(&ann, &format!("/image/jobs/{first}/replay"), &json!({}));
            let same_minute = replayed.status == 200;
            if same_minute {
                assert_eq!(replayed.json()["id"], json!(by_hand));
            } else {
                // The minute ended just then.
                replayed.is_problem(429, "one_active_job");
            }
            assert_eq!(house.balance(&ann), 0);
            assert_eq!(withdraw(&ann, &by_hand).status, 200);
            same_minute
        });
        assert!(met, "three minutes have ended just then");
        assert_eq!(house.balance(&ann), 5);
        house.verified();
    }
}

/// By `/v1` a payload may be spelled in many ways. What cannot be read in one way only is no order: nobody pays for it, and no worker sees it.
#[test]
fn what_is_no_order_is_refused() {
    for db in BOTH {
        let house = House::with_keys(db, &["--image-provider", "none"]);
        let ann = house.key("ann", &["user"]);
        house.grant("ann", 5);
        let create = |body: &str| {
            let path = "/v1/lifecycles/image.job/records";
            house.served().call_as(&ann, "POST", path, &[], Some(body.as_bytes()))
        };
        for payload in [
            r#"{"prompt":"x","prompt":"\u0070\u006f\u0072\u006e"}"#,
            r#"{"prompt":"\u0070orn","n":1}"#,
            r#"{"prompt":"a cat","size":"1x1"}"#,
            r#"["\u0070orn"]"#,
            r#""\u200b""#,
        ] {
            create(&format!(r#"{{"payload":{payload}}}"#)).is_problem(422, "bad_order");
        }
        create(r#"{"payload":{"prompt":"\u0070orn"}}"#).is_problem(422, "policy_violation");
        house.post(&ann, "/image/jobs", &json!({ "prompt": "\u{200b}" })).is_problem(422, "bad_input");
        assert_eq!(house.balance(&ann), 5);
        assert_eq!(create(r#"{"payload":{"prompt":"a \u0063at"}}"#).status, 201);
    }
}

/// A worker's picture is named by its job, or it is not taken: another's would be there to look at and to remove.
#[test]
fn anothers_picture_is_not_taken() {
    let house = House::with_keys(onceward_testkit::served::Db::Sqlite, &["--image-provider", "none"]);
    let (ann, bob) = (house.key("ann", &["user"]), house.key("bob", &["worker"]));
    house.grant("ann", 5);
    let id = house.ordered(&ann, "a cat");
    let execution = house.served().lease_as(&bob, "image.job", true);
    let commit = |url: &str, sha256: &str| {
        let result = json!({ "url": url, "sha256": sha256, "bytes": 9 });
        house.served().report_as(&bob, &execution, "commit", &[], json!({ "result": result }))
    };
    let (own, hash) = (format!("originals/{id}.png"), "ab".repeat(32));
    commit("originals/01936f0e-0000-7000-8000-000000000001-1.png", &hash).is_problem(422, "foreign_picture");
    commit(&format!("https://evil.example/{own}"), &hash).is_problem(422, "bad_input");
    commit(&format!("../../{own}"), &hash).is_problem(422, "bad_input");
    commit(&own, &"xy".repeat(32)).is_problem(422, "bad_input");
    assert_eq!(house.get(&ann, &format!("/image/jobs/{id}"))["state"], "running");
    assert_eq!(commit(&own, &hash).status, 200);
}
