//! Entity tags, as HTTP has them: several at once, weak ones, and any.

mod house;

use house::House;
use onceward_server::Settings;
use onceward_store::{AnyStore, Clock, SqliteStore};
use onceward_testkit::Folder;
use onceward_testkit::http::{self, Reply};

const CREATE: &str = "/v1/lifecycles/house.job/records";

#[expect(clippy::needless_pass_by_value, reason = "a closure, written where it is used")]
fn with(test: impl AsyncFn(&House)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let folder = Folder::new();
        let store = SqliteStore::open(folder.file(), Clock::machine()).expect("a new file");
        let house = House::open(AnyStore::Sqlite(store), Settings::default()).await;
        test(&house).await;
        house.close().await;
    });
}

fn made(house: &House) -> String {
    let made = http::call(house.address(), "POST", CREATE, &[], Some(b"{}"));
    assert_eq!(made.header("etag"), Some("\"1\""));
    made.ok()["id"].as_str().expect("an id").to_owned()
}

fn dropped(house: &House, id: &str, headers: &[(&str, &str)]) -> Reply {
    http::call(house.address(), "POST", &format!("/v1/records/{id}/events/drop"), headers, Some(b"{}"))
}

#[test]
fn an_event_is_taken_at_any_of_these_versions() {
    with(async |house| {
        for fits in ["*", "\"1\"", "\"7\", \"1\"", "\"1\" ,\"2\"", "W/\"1\", \"abc\", \"1\"", "\"a,b\",\"1\""] {
            let record = dropped(house, &made(house), &[("if-match", fits)]).ok()["record"].clone();
            assert_eq!((&record["state"], &record["version"]), (&"dropped".into(), &2.into()), "{fits}");
        }
        let on_two_lines = [("if-match", "\"7\""), ("if-match", "\"1\"")];
        assert_eq!(dropped(house, &made(house), &on_two_lines).status, 200);
        let id = made(house);
        for other in ["\"2\"", "\"2\", \"3\"", "W/\"1\"", "W/\"1\", \"2\", \"3\"", "\"abc\"", "\"01\"", "\"\""] {
            dropped(house, &id, &[("if-match", other)]).is_problem(412, "version_mismatch");
        }
        for wrong in ["1", "\"1", "\"1\" \"2\"", "*, \"1\"", "\"1\", 2"] {
            dropped(house, &id, &[("if-match", wrong)]).is_problem(422, "bad_input");
        }
        let nobody = "0199a000-0000-7000-8000-000000000001";
        dropped(house, nobody, &[("if-match", "\"1\", \"2\"")]).is_problem(404, "not_found");
        assert_eq!(dropped(house, &id, &[]).status, 200, "nothing has happened to it");
    });
}

/// Sent again, a call is the one that it was, though the version is another by then.
#[test]
fn a_key_goes_with_all_of_them() {
    with(async |house| {
        let id = made(house);
        let asked = |tags: &str| dropped(house, &id, &[("if-match", tags), ("idempotency-key", "k1")]);
        let first = asked("\"7\", \"1\"").ok();
        assert_eq!(asked("\"7\", \"1\"").ok(), first);
        asked("\"8\", \"1\"").is_problem(422, "key_reused");
        asked("\"1\"").is_problem(422, "key_reused");
    });
}

#[test]
fn who_knows_a_version_is_not_told_again() {
    with(async |house| {
        let path = format!("/v1/records/{}", made(house));
        let asked = |tags: &str| http::call(house.address(), "GET", &path, &[("if-none-match", tags)], None);
        for known in ["\"1\"", "W/\"1\"", "*", "\"9\", W/\"1\""] {
            let said = asked(known);
            assert_eq!((said.status, said.header("etag"), &*said.text()), (304, Some("\"1\""), ""), "{known}");
        }
        for other in ["\"2\"", "W/\"2\"", "\"2\", \"3\"", "1", "\"abc\""] {
            assert_eq!(asked(other).ok()["version"], 1, "{other}");
        }
    });
}
