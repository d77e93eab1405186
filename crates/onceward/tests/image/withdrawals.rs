//! Tests withdrawn orders and invalid ones.

use onceward_testkit::server_process::ALL_DATABASES;
use serde_json::json;

use crate::support::ImageServer;

/// Without a provider, the user or an operator withdraws the order, which also frees the active slot.
#[test]
fn withdrawn_order_refunds_credits() {
    for db in ALL_DATABASES {
        let mut server = ImageServer::with_keys(db, &["--image-provider", "none"]);
        let key = |name: &str, role: &str| server.key(name, &[role]);
        let (ann, eve, mo) = (key("ann", "user"), key("eve", "user"), key("mo", "moderator"));
        server.grant("ann", 5);
        let withdraw = |key: &str, id: &str| server.post(key, &format!("/image/jobs/{id}/withdraw"), &json!({}));
        let first = server.place_order(&ann, "a cat");
        withdraw(&eve, &first).assert_problem(404, "not_found");
        withdraw(&mo, &first).assert_problem(403, "not_allowed");
        let withdrawn = withdraw(&ann, &first).expect_ok();
        assert_eq!((&withdrawn["state"], &withdrawn["lastError"]), (&json!("dead_letter"), &json!("withdrawn")));
        assert_eq!(server.balance(&ann), 5);
        withdraw(&ann, &first).assert_problem(409, "wrong_state");
        let second = server.place_order(&ann, "a dog");
        assert_eq!(withdraw(server.operator_key(), &second).status, 200);

        // A replay in the minute of an identical order returns that order.
        let is_same_minute = (0..3).any(|_| {
            let by_hand = server.place_order(&ann, "a cat");
            let replayed = server.post(&ann, &format!("/image/jobs/{first}/replay"), &json!({}));
            let same_minute = replayed.status == 200;
            if same_minute {
                assert_eq!(replayed.json()["id"], json!(by_hand));
            } else {
                // The minute has changed in between.
                replayed.assert_problem(429, "one_active_job");
            }
            assert_eq!(server.balance(&ann), 0);
            assert_eq!(withdraw(&ann, &by_hand).status, 200);
            same_minute
        });
        assert!(is_same_minute, "a minute ended during each of three attempts");
        assert_eq!(server.balance(&ann), 5);
        server.kill_and_verify();
    }
}

/// `/v1` accepts payloads in many encodings. One that parsers could read in different ways is refused: it is not
/// charged, and no worker sees it.
#[test]
fn ambiguous_order_payload_is_refused() {
    for db in ALL_DATABASES {
        let server = ImageServer::with_keys(db, &["--image-provider", "none"]);
        let ann = server.key("ann", &["user"]);
        server.grant("ann", 5);
        let create = |body: &str| {
            let path = "/v1/lifecycles/image.job/records";
            server.process().call_as(&ann, "POST", path, &[], Some(body.as_bytes()))
        };
        for payload in [
            r#"{"prompt":"x","prompt":"\u0070\u006f\u0072\u006e"}"#,
            r#"{"prompt":"\u0070orn","n":1}"#,
            r#"{"prompt":"a cat","size":"1x1"}"#,
            r#"["\u0070orn"]"#,
            r#""\u200b""#,
        ] {
            create(&format!(r#"{{"payload":{payload}}}"#)).assert_problem(422, "bad_order");
        }
        create(r#"{"payload":{"prompt":"\u0070orn"}}"#).assert_problem(422, "policy_violation");
        server.post(&ann, "/image/jobs", &json!({ "prompt": "\u{200b}" })).assert_problem(422, "invalid_input");
        assert_eq!(server.balance(&ann), 5);
        assert_eq!(create(r#"{"payload":{"prompt":"a \u0063at"}}"#).status, 201);
    }
}

/// Otherwise a worker could expose or remove another job's picture.
#[test]
fn commit_of_foreign_picture_is_refused() {
    let server =
        ImageServer::with_keys(onceward_testkit::server_process::DatabaseKind::Sqlite, &["--image-provider", "none"]);
    let (ann, bob) = (server.key("ann", &["user"]), server.key("bob", &["worker"]));
    server.grant("ann", 5);
    let id = server.place_order(&ann, "a cat");
    let execution = server.process().lease_as(&bob, "image.job", true);
    let commit = |url: &str, sha256: &str| {
        let result = json!({ "url": url, "sha256": sha256, "bytes": 9 });
        server.process().report_as(&bob, &execution, "commit", &[], json!({ "result": result }))
    };
    let (own, hash) = (format!("originals/{id}.png"), "ab".repeat(32));
    commit("originals/01936f0e-0000-7000-8000-000000000001-1.png", &hash).assert_problem(422, "foreign_picture");
    commit(&format!("https://evil.example/{own}"), &hash).assert_problem(422, "invalid_input");
    commit(&format!("../../{own}"), &hash).assert_problem(422, "invalid_input");
    commit(&own, &"xy".repeat(32)).assert_problem(422, "invalid_input");
    assert_eq!(server.get(&ann, &format!("/image/jobs/{id}"))["state"], "running");
    assert_eq!(commit(&own, &hash).status, 200);
}
