//! What a stranger learns of somebody's job: nothing, not even that there is one.

use onceward_testkit::http::Reply;
use onceward_testkit::served::{BOTH, Db};
use serde_json::json;

use crate::house::House;

const NOWHERE: &str = "01938d6e-7a2b-7c00-8000-000000000001";

/// By whose key, and of which id.
type Way<'a> = &'a dyn Fn(&str, &str) -> Reply;

/// A job that is another's, one that never was, a record of another kind and a name that is no id have one answer, byte for byte; so has
/// a result that is not there yet.
#[test]
fn missing_foreign_and_unfinished_look_alike() {
    for db in BOTH {
        let house = House::open(db);
        let (foreign, done) = (house.submitted("a", b"a document"), house.submitted("b", b"a document"));
        for _ in 0..2 {
            let leased = house.lease();
            if leased["record"]["id"] == *done {
                assert_eq!(house.report(&leased, "commit", json!({ "result": "secret", "finish": true })).status, 200);
            }
        }
        let other = house.post(&house.bob, "/v1/lifecycles/execution.job/records", &json!({ "payload": 1 }));
        let other = other.json()["id"].as_str().expect("a record of Bob's own").to_owned();
        let ways: [(&str, Way); 4] = [
            ("get", &|key, id| house.get(key, &format!("/document/jobs/{id}"))),
            ("submit", &|key, id| house.post(key, &format!("/document/jobs/{id}/submit"), &json!({}))),
            ("cancel", &|key, id| house.post(key, &format!("/document/jobs/{id}/cancel"), &json!({}))),
            ("result", &|key, id| house.get(key, &format!("/document/jobs/{id}/result"))),
        ];
        for (way, send) in ways {
            let missing = send(&house.bob, NOWHERE).lasting();
            missing.is_problem(404, "not_found");
            for id in [&*foreign, &done, &other, "no-id", "%ff"] {
                assert_eq!(send(&house.bob, id).lasting(), missing, "{db:?}: {way} of {id}");
            }
        }
        // To its owner, too, a result that is not there is nothing more than that.
        let result = |id: &str| house.get(&house.alice, &format!("/document/jobs/{id}/result")).lasting();
        assert_eq!(result(&foreign), result(NOWHERE));
        assert_eq!(result(&done).text(), "secret");
        // Nothing came of it.
        assert_eq!(
            (&house.job(&foreign)["state"], &house.job(&done)["state"]),
            (&json!("RUNNING"), &json!("SUCCEEDED"))
        );
        let record = house.get(&house.operator, &format!("/v1/records/{foreign}")).json();
        assert_eq!(record["fields"]["cancelRequested"], false, "nobody asked it to stop");
    }
}

/// Without a key there is nothing here at all.
#[test]
fn nobody_is_let_in_without_a_key() {
    let house = House::open(Db::Sqlite);
    let id = house.submitted("a", b"a document");
    for path in [format!("/document/jobs/{id}"), format!("/document/jobs/{id}/result"), "/document/jobs/x".to_owned()] {
        house.get("", &path).is_problem(401, "unauthorized");
        house.get("ow_wrong", &path).is_problem(401, "unauthorized");
    }
    house.post("", &format!("/document/jobs/{id}/cancel"), &json!({})).is_problem(401, "unauthorized");
    assert_eq!(house.job(&id)["state"], "QUEUED");
}
