//! Links, accounts, workers and large payloads, over HTTP.

use onceward_testkit::Folder;
use onceward_testkit::served::{self, BOTH, Db, Served};
use serde_json::{Value as Json, json};

use crate::server::{BINARY, start};

/// The stores' own lifecycles: one has a link, one money.
const FILES: [(&str, &str); 3] = [
    ("box.toml", include_str!("../../../store/tests/stage/box.toml")),
    ("stub.toml", include_str!("../../../store/tests/stage/stub.toml")),
    ("task.toml", include_str!("../../../store/tests/stage/task.toml")),
];

fn with_files(db: Db) -> Served {
    let folder = Folder::new();
    let files = folder.join("lifecycles");
    std::fs::create_dir(&files).unwrap();
    for (name, text) in FILES {
        std::fs::write(files.join(name), text).unwrap();
    }
    let mut command = served::command(BINARY, &db.url(&folder));
    Served::start(command.arg("--lifecycles").arg(files)).keeping(folder)
}

fn made(served: &Served, lifecycle: &str, fields: &Json) -> String {
    let made = served.post(&format!("/v1/lifecycles/{lifecycle}/records"), &json!({ "fields": fields }));
    assert_eq!(made.status, 201, "{}", made.text());
    made.json()["id"].as_str().unwrap().to_owned()
}

fn ids(page: &Json) -> Vec<String> {
    page.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn relations_are_shown() {
    for db in BOTH {
        let served = with_files(db);
        let first = made(&served, "suite.box", &json!({}));
        let second = made(&served, "suite.box", &json!({ "beside": first }));
        let tasks: Vec<String> = (0..3).map(|_| made(&served, "suite.task", &json!({ "box": second }))).collect();
        let shown = served.get(&format!("/v1/records/{second}/links")).json();
        assert_eq!(shown["refs"], json!({ "beside": [{ "id": first, "lifecycle": "suite.box", "state": "open" }] }));
        assert_eq!(
            (ids(&shown["links"]["tasks"]["records"]), &shown["links"]["tasks"]["next"]),
            (tasks.clone(), &Json::Null)
        );
        let page = served.get(&format!("/v1/records/{second}/links?name=tasks&limit=2")).json();
        let next = page["links"]["tasks"]["next"].as_str().unwrap().to_owned();
        let rest = served.get(&format!("/v1/records/{second}/links?name=tasks&limit=2&cursor={next}")).json();
        assert_eq!([ids(&page["links"]["tasks"]["records"]), ids(&rest["links"]["tasks"]["records"])].concat(), tasks);
        assert_eq!(rest["links"]["tasks"]["next"], Json::Null);
        let none = "00000000-0000-7000-8000-000000000000";
        served.get(&format!("/v1/records/{none}/links")).is_problem(404, "not_found");
        for wrong in ["name=nothing", "cursor=1", "name=tasks&cursor=x", "limit=0", "other=1"] {
            served.get(&format!("/v1/records/{second}/links?{wrong}")).is_problem(422, "bad_input");
        }
    }
}

#[test]
fn accounts_tell_what_moved() {
    for db in BOTH {
        let served = with_files(db);
        let id = made(&served, "suite.box", &json!({}));
        for (event, amount) in [("earn", 50), ("spend", 20), ("spend", 5)] {
            let body = json!({ "input": { "amount": amount } });
            assert_eq!(served.post(&format!("/v1/records/{id}/events/{event}"), &body).status, 200);
        }
        let coins = |page: &Json| -> Vec<Json> {
            let all = page["accounts"].as_array().unwrap().iter();
            all.filter(|one| one["asset"] == "coin")
                .map(|one| json!([one["id"], one["outside"], one["balance"]]))
                .collect()
        };
        let listed = served.get("/v1/accounts").json();
        let expected =
            [json!(["coin:mint", true, -50]), json!(["coin:purse:local", false, 25]), json!(["coin:shop", false, 25])];
        assert_eq!(coins(&listed), expected);
        let (mut paged, mut path) = (Vec::new(), "/v1/accounts?limit=1".to_owned());
        loop {
            let page = served.get(&path).json();
            paged.extend(coins(&page));
            let Some(next) = page["next"].as_str() else { break };
            path = format!("/v1/accounts?limit=1&cursor={}", next.replace(':', "%3A"));
        }
        assert_eq!(paged, expected);
        let told = served.get("/v1/accounts/coin:purse%3Alocal/entries").json();
        let lines: Vec<Json> = told["entries"].as_array().unwrap().clone();
        let short: Vec<Json> =
            lines.iter().map(|one| json!([one["event"], one["amount"], one["balance"], one["other"]])).collect();
        let (shop, mint) = (json!({ "account": "coin:shop" }), json!({ "account": "coin:mint" }));
        assert_eq!(
            short,
            [json!(["spend", -5, 25, shop]), json!(["spend", -20, 30, shop]), json!(["earn", 50, 50, mint])]
        );
        assert!(lines.iter().all(|one| one["record"] == json!(id) && one["at"].is_string() && one["seq"].is_u64()));
        assert_eq!((&told["next"], &told["carried_forward"]), (&Json::Null, &json!(0)));
        let page = served.get("/v1/accounts/coin:purse:local/entries?limit=2").json();
        assert_eq!(
            (page["entries"].as_array().unwrap(), &page["carried_forward"]),
            (&lines[..2].to_vec(), &Json::Null)
        );
        let next = page["next"].as_str().unwrap();
        let rest = served.get(&format!("/v1/accounts/coin:purse:local/entries?limit=2&cursor={next}")).json();
        assert_eq!(rest["entries"].as_array().unwrap(), &lines[2..].to_vec());
        served.get("/v1/accounts/coin:nobody/entries").is_problem(404, "not_found");
        served.get("/v1/accounts/nothing/entries").is_problem(404, "not_found");
        served.get("/v1/accounts/coin:mint/entries?cursor=7").is_problem(422, "bad_input");
        served.get("/v1/accounts?cursor=7").is_problem(422, "bad_input");
    }
}

#[test]
fn workers_are_shown() {
    for db in BOTH {
        let served = start(db);
        // The server's own, which posts deliveries, may be there already.
        let own = |shown: &Json| shown["workers"].as_array().unwrap().iter().find(|one| one["worker"] == "w").cloned();
        let before = served.get("/v1/workers").json();
        assert_eq!((own(&before), &before["complete"]), (None, &json!(true)));
        served.job(&json!(1));
        served.lease();
        let shown = served.get("/v1/workers").json();
        let worker = own(&shown).unwrap();
        assert_eq!(
            (&worker["worker"], &worker["owner"], &worker["lifecycles"], &worker["holding"]),
            (&json!("w"), &json!("local"), &json!(["execution.job"]), &json!(1))
        );
        assert!(worker["last_seen"].is_string(), "{shown}");
        served.get("/v1/workers?limit=0").is_problem(422, "bad_input");
    }
}

/// Payloads on both sides of what a lease brings along, and of what is sent in pieces.
#[test]
fn a_large_payload_is_fetched() {
    for db in BOTH {
        let served = start(db);
        for length in [100, 64 << 10, (64 << 10) + 1, 1 << 20] {
            // With its quotes.
            let payload = json!("x".repeat(length - 2));
            let id = served.job(&payload);
            let leased = served.lease();
            assert_eq!(leased["record"]["id"], json!(id));
            assert_eq!(leased["record"]["payload"]["bytes"], json!(length), "{db:?}");
            assert_eq!(leased.get("payload").is_some(), length <= 64 << 10, "{db:?} {length}");
            let fetched = served.get(&format!("/v1/records/{id}/payload"));
            assert_eq!((fetched.status, fetched.header("content-length")), (200, Some(&*length.to_string())));
            let sent = payload.to_string();
            assert!(fetched.text() == sent, "{db:?} {length}");
        }
    }
}

/// A place beyond all places is a place like others: nothing comes after it.
#[test]
fn a_cursor_may_be_made_up() {
    for db in BOTH {
        let served = start(db);
        let id = served.job(&json!(1));
        for far in ["9223372036854775807", "9223372036854775808", "9999999999999999999", "18446744073709551615"] {
            assert_eq!(served.get(&format!("/v1/records?cursor={far}")).ok()["records"], json!([]), "{db:?} {far}");
            for path in ["history", "executions", "links"] {
                let query = if path == "links" { "name=none&" } else { "" };
                let said = served.get(&format!("/v1/records/{id}/{path}?{query}cursor={far}"));
                assert!(said.status == 200 || said.status == 422, "{db:?} {path} {far}: {}", said.text());
            }
            // Whoever comes with the place of another log is told.
            assert_eq!(served.get(&format!("/v1/stream?after={far}&wait_ms=0")).status, 409, "{db:?} {far}");
        }
    }
}
