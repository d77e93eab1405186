//! Entity tags: lists, weak tags and `*`.

mod support;

use onceward_server::ServerConfig;
use onceward_store::{AnyStore, Clock, SqliteStore};
use onceward_testkit::TempDir;
use onceward_testkit::http::{self, RawHttpResponse};
use support::TestServer;

const CREATE_RECORD_PATH: &str = "/v1/lifecycles/house.job/records";

#[expect(clippy::needless_pass_by_value, reason = "callers write the configuration inline")]
fn with_server(test: impl AsyncFn(&TestServer)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("tokio runtime").block_on(async {
        let folder = TempDir::new();
        let store = SqliteStore::open(folder.database_path(), Clock::machine()).expect("new database file");
        let server = TestServer::start(AnyStore::Sqlite(store), ServerConfig::default()).await;
        test(&server).await;
        server.close().await;
    });
}

fn create_record(server: &TestServer) -> String {
    let made = http::send_request(server.address(), "POST", CREATE_RECORD_PATH, &[], Some(b"{}"));
    assert_eq!(made.header("etag"), Some("\"1\""));
    made.expect_ok()["id"].as_str().expect("id").to_owned()
}

fn fire_drop(server: &TestServer, id: &str, headers: &[(&str, &str)]) -> RawHttpResponse {
    http::send_request(server.address(), "POST", &format!("/v1/records/{id}/events/drop"), headers, Some(b"{}"))
}

#[test]
fn if_match_accepts_any_of_the_listed_versions() {
    with_server(async |server| {
        for fits in ["*", "\"1\"", "\"7\", \"1\"", "\"1\" ,\"2\"", "W/\"1\", \"abc\", \"1\"", "\"a,b\",\"1\""] {
            let record = fire_drop(server, &create_record(server), &[("if-match", fits)]).expect_ok()["record"].clone();
            assert_eq!((&record["state"], &record["version"]), (&"dropped".into(), &2.into()), "{fits}");
        }
        let on_two_lines = [("if-match", "\"7\""), ("if-match", "\"1\"")];
        assert_eq!(fire_drop(server, &create_record(server), &on_two_lines).status, 200);
        let id = create_record(server);
        for other in ["\"2\"", "\"2\", \"3\"", "W/\"1\"", "W/\"1\", \"2\", \"3\"", "\"abc\"", "\"01\"", "\"\""] {
            fire_drop(server, &id, &[("if-match", other)]).assert_problem(412, "version_mismatch");
        }
        for wrong in ["1", "\"1", "\"1\" \"2\"", "*, \"1\"", "\"1\", 2"] {
            fire_drop(server, &id, &[("if-match", wrong)]).assert_problem(422, "invalid_input");
        }
        let missing_id = "0199a000-0000-7000-8000-000000000001";
        fire_drop(server, missing_id, &[("if-match", "\"1\", \"2\"")]).assert_problem(404, "not_found");
        assert_eq!(fire_drop(server, &id, &[]).status, 200, "the record is unchanged");
    });
}

/// A repeated call replays its reply although the version has changed.
#[test]
fn idempotency_key_covers_the_if_match_list() {
    with_server(async |server| {
        let id = create_record(server);
        let fire = |tags: &str| fire_drop(server, &id, &[("if-match", tags), ("idempotency-key", "k1")]);
        let first = fire("\"7\", \"1\"").expect_ok();
        assert_eq!(fire("\"7\", \"1\"").expect_ok(), first);
        fire("\"8\", \"1\"").assert_problem(422, "idempotency_key_reused");
        fire("\"1\"").assert_problem(422, "idempotency_key_reused");
    });
}

#[test]
fn if_none_match_with_current_version_returns_not_modified() {
    with_server(async |server| {
        let path = format!("/v1/records/{}", create_record(server));
        let get = |tags: &str| http::send_request(server.address(), "GET", &path, &[("if-none-match", tags)], None);
        for known in ["\"1\"", "W/\"1\"", "*", "\"9\", W/\"1\""] {
            let response = get(known);
            assert_eq!(
                (response.status, response.header("etag"), &*response.text()),
                (304, Some("\"1\""), ""),
                "{known}"
            );
        }
        for other in ["\"2\"", "W/\"2\"", "\"2\", \"3\"", "1", "\"abc\""] {
            assert_eq!(get(other).expect_ok()["version"], 1, "{other}");
        }
    });
}
