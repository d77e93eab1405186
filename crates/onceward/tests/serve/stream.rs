//! The log as it grows, over server-sent events.

use onceward_testkit::Following;
use onceward_testkit::served::{BOTH, Db};
use serde_json::json;

use crate::server::start;

#[test]
fn it_goes_on_where_it_ended_without_a_gap_or_a_repetition() {
    for db in BOTH {
        let served = start(db);
        let ids: Vec<_> = (0..20).map(|n| served.job(&json!(n))).collect();
        let mut seen = Vec::new();
        let mut place = 0;
        // Breaks off after each seventh entry, and comes again, while more is written.
        while seen.len() < 30 {
            // As a browser does: the first question again, and the place beside it.
            let last = place.to_string();
            let headers = [("Last-Event-ID", &*last)];
            let headers = if place == 0 { &[][..] } else { &headers };
            let mut following = Following::start(&served.address, "/v1/stream?after=0", headers);
            for _ in 0..7 {
                if seen.len() >= 20 {
                    served.job(&json!("more"));
                }
                let (at, entry) = following.entry().expect("it goes on");
                assert_eq!(entry["seq"], at);
                place = at;
                seen.push(entry);
            }
        }
        let places: Vec<_> = seen.iter().map(|entry| entry["seq"].as_u64().unwrap()).collect();
        assert!(places.windows(2).all(|pair| pair[1] == pair[0] + 1), "{places:?}");
        let first: Vec<_> = seen.iter().take(20).map(|entry| entry["record"].as_str().unwrap().to_owned()).collect();
        assert_eq!(first, ids);
        assert!(seen.iter().all(|entry| entry["event"] == "create" && entry["lifecycle"] == "execution.job"));
    }
}

#[test]
fn only_what_is_asked_for_comes() {
    let served = start(Db::Sqlite);
    let (one, two) = (served.job(&json!(1)), served.job(&json!(2)));
    let mut of_two = served.follow_as("", &format!("/v1/stream?after=0&record={two}"));
    let mut of_lifecycle = served.follow_as("", "/v1/stream?after=0&lifecycle=execution.job");
    let mut from_now = served.follow_as("", "/v1/stream");
    assert_eq!(of_two.entry().unwrap().1["record"], json!(two));
    assert_eq!(of_lifecycle.entry().unwrap().1["record"], json!(one));
    served.lease();
    assert_eq!(
        (&from_now.entry().unwrap().1["event"], &of_lifecycle.entry().unwrap().1["record"]),
        (&json!("lease"), &json!(two))
    );
    served.get("/v1/stream?after=x").is_problem(422, "bad_input");
    served.get("/v1/stream?record=x").is_problem(422, "bad_input");
    served.call("GET", "/v1/stream", &[("Last-Event-ID", "x")], None).is_problem(422, "bad_input");
}

#[test]
fn what_was_pruned_is_gone() {
    for db in BOTH {
        let served = start(db);
        let id = served.job(&json!(1));
        served.lease();
        served.post(&format!("/v1/executions/{id}.1/commit"), &json!({ "token": 1, "finish": true }));
        let pruned = served.post("/v1/prune", &json!({ "older_than": "0s" }));
        assert_eq!(pruned.json()["records"], 1, "{db:?} {}", pruned.text());
        let gone = served.get("/v1/stream?after=0");
        gone.is_problem(410, "pruned");
        let oldest = gone.json()["oldest"].as_u64().unwrap();
        let mut following = served.follow_as("", &format!("/v1/stream?after={oldest}"));
        assert_eq!(following.entry().unwrap().1["pruned"], 1);
        served.get(&format!("/v1/records/{id}")).is_problem(404, "not_found");
    }
}

#[test]
fn it_ends_when_the_server_does() {
    let mut served = start(Db::Sqlite);
    let mut following = served.follow_as("", "/v1/stream");
    served.signal("TERM");
    assert!(following.entry().is_none());
    assert_eq!(served.ended().code(), Some(0));
}
