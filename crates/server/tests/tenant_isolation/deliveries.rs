//! Deliveries: the secret that signs them belongs to one owner, and only the engine works on them.

use onceward_testkit::http::RawHttpResponse;
use serde_json::json;

use crate::fixtures::on_both_stores;

fn secret_of(response: &RawHttpResponse) -> String {
    assert_eq!((response.status, response.header("cache-control")), (200, Some("no-store")), "{response:?}");
    response.json()["secret"].as_str().expect("a secret").to_owned()
}

/// INV-9
#[test]
fn webhook_secret_is_shown_to_producers_of_its_owner_only() {
    on_both_stores(async |server| {
        let ann = server.create_api_key("ann", &["producer"], &[]).await;
        let show = |key: &str| server.send(Some(key), "GET", "/v1/webhook-secret", None);
        let rotate = |key: &str| server.send(Some(key), "POST", "/v1/webhook-secret/rotate", Some(&json!({})));
        let first = secret_of(&show(&ann));
        assert!(first.starts_with("whsec_") && first.len() == 50, "{first}");
        for (owner, role) in [("eve", "producer"), ("ops", "operator")] {
            let stranger = server.create_api_key(owner, &[role], &[]).await;
            let own = secret_of(&show(&stranger));
            assert_ne!(own, first);
            assert_ne!(secret_of(&rotate(&stranger)), own);
        }
        for role in ["viewer", "worker", "metrics"] {
            let key = server.create_api_key("ann", &[role], &[]).await;
            for refused in [show(&key), rotate(&key)] {
                assert_eq!((refused.status, refused.problem_code()), (403, "forbidden".to_owned()), "{role}");
            }
        }
        assert_eq!(secret_of(&show(&ann)), first, "no other call changed it");

        let rotated = rotate(&ann);
        let second = secret_of(&rotated);
        let shown = show(&ann).json();
        assert_eq!(shown, rotated.json());
        assert_ne!(second, first);
        assert_eq!((&shown["previous_secret"], shown["previous_until"].is_string()), (&json!(first), true));
        let again = rotate(&ann);
        assert_eq!((again.status, again.problem_code()), (409, "secret_rotation_pending".to_owned()));
        assert_eq!(show(&ann).json(), shown);
        server.close().await;
    });
}

/// Otherwise a worker could read every owner's deliveries, and acknowledge them without sending them.
#[test]
fn lease_of_engine_lifecycle_is_forbidden() {
    on_both_stores(async |server| {
        for roles in [&["worker"][..], &["operator"], &["operator", "worker"]] {
            let key = server.create_api_key("mallory", roles, &[]).await;
            for lifecycles in [json!(["onceward.delivery"]), json!(["house.job", "onceward.delivery"])] {
                let body = json!({ "lifecycles": lifecycles, "worker": "w" });
                let refused = server.send(Some(&key), "POST", "/v1/leases", Some(&body));
                assert_eq!((refused.status, refused.problem_code()), (403, "forbidden".to_owned()), "{refused:?}");
            }
            let body = json!({ "lifecycles": ["house.job"], "worker": "w" });
            assert_eq!(server.send(Some(&key), "POST", "/v1/leases", Some(&body)).status, 200);
        }
        let key = server.create_api_key("ops", &["operator"], &[]).await;
        let impostor = json!({ "owner": "onceward.delivery", "roles": ["worker"] });
        let refused = server.send(Some(&key), "POST", "/v1/keys", Some(&impostor));
        assert_eq!((refused.status, refused.problem_code()), (422, "invalid_api_key".to_owned()));
        server.close().await;
    });
}
