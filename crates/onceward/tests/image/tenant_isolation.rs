//! Tests which callers see which records.

use onceward_testkit::server_process::ALL_DATABASES;
use serde_json::json;

use crate::support::ImageServer;

/// Covers jobs, assets, pictures and accounts.
#[test]
fn foreign_records_look_missing() {
    for db in ALL_DATABASES {
        let server = ImageServer::with_keys(db, &[]);
        let (ann, eve, mo) =
            (server.key("ann", &["user"]), server.key("eve", &["user"]), server.key("mo", &["moderator"]));
        server.grant("ann", 10);
        let id = server.place_order(&ann, "a cat");
        let job = server.wait_for_job(&ann, &id, "completed");
        let (asset, picture) =
            (job["asset"].as_str().unwrap().to_owned(), job["resultUrl"].as_str().unwrap().to_owned());
        let nothing = "01936f0e-0000-7000-8000-000000000001";
        for (own, missing) in [
            (format!("/image/jobs/{id}"), format!("/image/jobs/{nothing}")),
            (format!("/image/assets/{asset}"), format!("/image/assets/{nothing}")),
            (picture.clone(), format!("/image/assets/{nothing}/image")),
            // Existing records of another lifecycle.
            (format!("/image/jobs/{asset}"), "/image/jobs/nonsense".to_owned()),
            (format!("/image/assets/{id}"), "/image/assets/nonsense".to_owned()),
        ] {
            let (foreign, none) = (server.call(&eve, "GET", &own), server.call(&eve, "GET", &missing));
            foreign.assert_problem(404, "not_found");
            assert_eq!(foreign.without_volatile_headers(), none.without_volatile_headers(), "{own}");
        }
        for what in ["replay", "block", "withdraw"] {
            let path = |id: &str| format!("/image/jobs/{id}/{what}");
            let (foreign, none) =
                (server.post(&eve, &path(&id), &json!({})), server.post(&eve, &path(nothing), &json!({})));
            foreign.assert_problem(404, "not_found");
            assert_eq!(foreign.without_volatile_headers(), none.without_volatile_headers(), "{what}");
        }
        server.call(&eve, "DELETE", &format!("/image/assets/{asset}")).assert_problem(404, "not_found");
        assert_eq!(server.get(&eve, "/image/assets")["assets"], json!([]));
        // An operator sees the asset, but only its owner sees the picture. A moderator sees the job.
        assert_eq!(server.get(server.operator_key(), &format!("/image/assets/{asset}"))["owner"], "ann");
        server.call(server.operator_key(), "GET", &picture).assert_problem(404, "not_found");
        server
            .call(server.operator_key(), "DELETE", &format!("/image/assets/{asset}"))
            .assert_problem(403, "not_allowed");
        assert_eq!(server.get(&mo, &format!("/image/jobs/{id}"))["state"], "completed");
        server.call(&mo, "GET", &picture).assert_problem(404, "not_found");
        assert_eq!((server.balance(&ann), server.balance(&eve)), (5, 0));
        assert_eq!(server.checked_statement(&eve), []);
        server.call(&eve, "GET", "/image/credits?user=ann").assert_problem(403, "forbidden");
        server.call(&eve, "GET", "/image/credits/entries?user=ann").assert_problem(403, "forbidden");
        assert_eq!(server.get(server.operator_key(), "/image/credits?user=ann")["balance"], 5);
        let grant = json!({ "user": "eve", "amount": 5, "order": "mine" });
        server.post(&eve, "/image/credits/grants", &grant).assert_problem(403, "not_allowed");
        assert_eq!(server.post(server.operator_key(), "/image/credits/grants", &grant).status, 201);
        assert_eq!(
            server.post(server.operator_key(), "/image/credits/grants", &grant).status,
            200,
            "a grant is idempotent"
        );
        assert_eq!(server.balance(&eve), 5);
    }
}
