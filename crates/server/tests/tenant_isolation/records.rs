//! Single records and lists.

use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_testkit::http::RawHttpResponse;
use serde_json::{Value as Json, json};

use crate::fixtures::{MISSING_RECORD_ID, create_record, on_both_stores, stranger_keys};
use crate::routes::{ROUTE_ACCESS, StrangerAccess, call_route};

/// INV-9: in each state of the record and for each kind of stranger, the responses are equal byte for byte.
#[test]
fn foreign_record_is_answered_like_missing_record() {
    on_both_stores(async |server| {
        let (ann, bob) = (
            server.create_api_key("ann", &["producer"], &[]).await,
            server.create_api_key("bob", &["worker"], &[]).await,
        );
        let strangers = stranger_keys(&server).await;
        let id =
            create_record(&server, &ann, &json!({ "payload": { "secret": "of ann's" }, "fields": { "name": "anns" } }));
        create_record(&server, &ann, &json!({ "fields": { "near": id } }));
        let mut compared = 0;
        for state in ["waiting", "running", "done"] {
            for route in ROUTE_ACCESS.iter().copied().filter(|route| route.2 == StrangerAccess::SingleRecord) {
                for (stranger, key) in &strangers {
                    let foreign = call_route(&server, Some(key), route, &id);
                    let none = call_route(&server, Some(key), route, MISSING_RECORD_ID);
                    assert_eq!(foreign, none, "{state}, {stranger}");
                    for (path, response) in &foreign {
                        // The response must not reveal the record's state or fields.
                        assert!(
                            !response.text().contains("waiting") && !response.text().contains("of ann's"),
                            "{path}: {response:?}"
                        );
                        let hidden = matches!(response.status, 404 | 409 | 403) || path.ends_with("/batch");
                        assert!(hidden, "{state}, {stranger}, {path}: {response:?}");
                        compared += 1;
                    }
                }
            }
            let own = server.send(Some(&ann), "GET", &format!("/v1/records/{id}"), None);
            assert_eq!(own.json()["state"], state, "the state is unchanged");
            if state == "waiting" {
                let wanted = json!({ "lifecycles": ["house.job"], "worker": "w" });
                let leased = server.send(Some(&bob), "POST", "/v1/leases", Some(&wanted));
                assert_eq!(leased.json()["executions"][0]["record"]["id"], id, "{leased:?}");
                let seen = server.send(Some(&bob), "GET", &format!("/v1/records/{id}/payload"), None);
                assert_eq!((seen.status, &*seen.text()), (200, r#"{"secret":"of ann's"}"#));
            } else if state == "running" {
                let report = json!({ "token": 1, "result": "made", "finish": true });
                let done = server.send(Some(&bob), "POST", &format!("/v1/executions/{id}.1/commit"), Some(&report));
                assert_eq!(done.status, 200, "{done:?}");
                let seen = server.send(Some(&bob), "GET", &format!("/v1/records/{id}/payload"), None);
                assert_eq!(seen.status, 404, "the lease is over");
                // A repeated report succeeds but does not show the record.
                let again = server.send(Some(&bob), "POST", &format!("/v1/executions/{id}.1/commit"), Some(&report));
                assert_eq!(
                    (again.status, &again.json()["record"], &again.json()["execution"]),
                    (200, &Json::Null, &Json::Null)
                );
                let batch = json!({ "reports": [{ "execution": format!("{id}.1"), "do": "commit", "token": 1, "result": "made", "finish": true }] });
                let again = server.send(Some(&bob), "POST", "/v1/executions/batch", Some(&batch));
                assert!(again.status == 200 && !again.text().contains("anns"), "{again:?}");
            }
        }
        println!("{compared} answers compared");
        assert!(compared > 200);
        server.close().await;
    });
}

/// INV-9
#[test]
fn event_replay_after_lease_end_hides_the_record() {
    on_both_stores(async |server| {
        let (ann, bob) = (
            server.create_api_key("ann", &["producer"], &[]).await,
            server.create_api_key("bob", &["worker"], &[]).await,
        );
        let (id, given_back) = (create_record(&server, &ann, &json!({})), create_record(&server, &ann, &json!({})));
        let wanted = json!({ "lifecycles": ["house.job"], "worker": "w", "max": 2 });
        server.send(Some(&bob), "POST", "/v1/leases", Some(&wanted)).expect_ok();
        let mark = |id: &str| {
            let path = format!("/v1/records/{id}/events/mark");
            let key = [("idempotency-key", id)];
            server.send_with(Some(&bob), "POST", &path, &key, Some(&json!({ "token": 1 }))).expect_ok()
        };
        for id in [&id, &given_back] {
            let (first, again) = (mark(id), mark(id));
            assert_eq!(first["record"]["fields"]["note"], "marked", "{first}");
            assert_eq!(again, first, "the lease lasts");
        }
        let report = |id: &str, what: &str, body: &Json| {
            server.send(Some(&bob), "POST", &format!("/v1/executions/{id}.1/{what}"), Some(body)).expect_ok()
        };
        report(&id, "commit", &json!({ "token": 1, "finish": true }));
        report(&given_back, "yield", &json!({ "token": 1 }));
        server
            .send(
                Some(&ann),
                "POST",
                &format!("/v1/records/{given_back}/events/write"),
                Some(&json!({ "input": { "note": "of ann's" } })),
            )
            .expect_ok();
        for id in [&id, &given_back] {
            assert_eq!(server.send(Some(&bob), "GET", &format!("/v1/records/{id}"), None).status, 404);
            assert_eq!(mark(id), json!({ "record": null, "spawned": [] }));
        }
        server.close().await;
    });
}

/// INV-9: counts exclude a lifecycle once one of its versions hides its records; single reads follow the record's
/// own version.
#[test]
fn counts_exclude_versions_hidden_from_the_caller() {
    on_both_stores(async |server| {
        let (ann, eve) = (
            server.create_api_key("ann", &["producer"], &[]).await,
            server.create_api_key("eve", &["producer"], &[]).await,
        );
        server.engine.put_lifecycles(&board_files("anyone")).await.expect("valid lifecycle file");
        let pin = || server.send(Some(&ann), "POST", "/v1/lifecycles/house.board/records", Some(&json!({}))).json();
        let counts =
            |key: &str| server.send(Some(key), "GET", "/v1/lifecycles/house.board", None).expect_ok()["counts"].clone();
        let open = pin();
        let seen = |id: &Json| {
            server.send(Some(&eve), "GET", &format!("/v1/records/{}", id["id"].as_str().expect("id")), None).status
        };
        let shown = counts(&eve);
        assert_eq!(shown, counts(&ann), "all callers may read");
        server.engine.put_lifecycles(&board_files("owner")).await.expect("valid lifecycle file");
        let before = counts(&eve);
        let hidden = pin();
        assert_eq!((seen(&open), seen(&hidden)), (200, 404));
        assert_eq!(counts(&eve), before, "counts exclude records that eve may not read");
        assert_ne!(counts(&ann), before);
        // Only operators see which operator activated the first version again.
        let operator = server.create_api_key("zoe", &["operator"], &[]).await;
        let versions = |key: &str| server.send(Some(key), "GET", "/v1/lifecycles/house.board/versions", None);
        let hash = versions(&eve).expect_ok()["versions"][0]["hash"].clone();
        server
            .send(Some(&operator), "POST", "/v1/lifecycles/house.board/use", Some(&json!({ "hash": hash })))
            .expect_ok();
        assert!(versions(&operator).text().contains("zoe") && !versions(&eve).text().contains("zoe"));
        server.close().await;
    });
}

/// A lifecycle with these readers.
fn board_files(readers: &str) -> InputFiles {
    let text = format!(
        r#"
language  = 1
lifecycle = "house.board"
about     = "A note on a board"
[states]
pinned = {{ about = "for its readers", rest = true }}
[access]
read = ["{readers}"]
[[on.create]]
go = "-> pinned"
"#
    );
    InputFiles { files: vec![InputFile { name: "board.toml".to_owned(), text: text.as_str().into() }] }
}

/// Removes the times at which workers were last seen, which change between calls.
fn without_worker_times(response: Vec<(String, RawHttpResponse)>) -> Vec<(String, RawHttpResponse)> {
    let hide = |response: RawHttpResponse| match serde_json::from_slice::<Json>(&response.body) {
        Ok(mut body) if body["workers"].is_array() => {
            for worker in body["workers"].as_array_mut().into_iter().flatten() {
                worker["last_seen"] = Json::Null;
            }
            // The length of a time varies.
            let head: Vec<&str> = response.head.lines().filter(|line| !line.starts_with("content-length")).collect();
            RawHttpResponse { status: response.status, head: head.join("\n"), body: body.to_string().into_bytes() }
        }
        _ => response,
    };
    response.into_iter().map(|(path, response)| (path, hide(response))).collect()
}

/// INV-9: lists, counts, lifecycles, workers and leases.
#[test]
fn lists_do_not_change_with_records_of_others() {
    on_both_stores(async |server| {
        let ann = server.create_api_key("ann", &["producer"], &[]).await;
        let strangers = stranger_keys(&server).await;
        let routes: Vec<_> =
            ROUTE_ACCESS.iter().copied().filter(|route| route.2 == StrangerAccess::RecordList).collect();
        let mut before = Vec::new();
        // Twice: a caller that asked for jobs appears in its own list of workers from then on.
        for round in 0..2 {
            for route in &routes {
                for (_, key) in &strangers {
                    let response = call_route(&server, Some(key), *route, MISSING_RECORD_ID);
                    before.extend((round == 1).then(|| without_worker_times(response)));
                }
            }
        }
        let id = create_record(&server, &ann, &json!({ "fields": { "name": "anns" } }));
        create_record(&server, &ann, &json!({ "fields": { "near": id } }));
        let mut before = before.into_iter();
        for route in &routes {
            for (stranger, key) in &strangers {
                let after = without_worker_times(call_route(&server, Some(key), *route, MISSING_RECORD_ID));
                assert_eq!(Some(after), before.next(), "{stranger}");
            }
        }
        let own = server.send(Some(&ann), "GET", "/v1/records", None);
        assert_eq!(own.json()["records"].as_array().map(Vec::len), Some(2));
        server.close().await;
    });
}
