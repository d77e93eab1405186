//! A rewritten log with valid hashes, whose content is impossible.

use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_engine::VerifyReport;
use onceward_store::LogEntry;
use onceward_store::log::ZERO_HASH;
use rusqlite::Connection;
use serde_json::{Value as Json, json};

use crate::test_database::{DatabaseCopy, TestDatabase};

/// Rewrites an entry, and the hashes of all later entries of its record.
fn rewrite_entry(copy: &DatabaseCopy, seq: u64, edit: impl Fn(&mut Json)) {
    let connection = copy.connection();
    let record: Option<i64> =
        connection.query_row("SELECT record FROM history WHERE seq = ?1", [seq], |row| row.get(0)).unwrap();
    let id: Option<[u8; 16]> = record
        .map(|row| connection.query_row("SELECT id FROM records WHERE row = ?1", [row], |row| row.get(0)).unwrap());
    let sql =
        "SELECT seq, version, at, text, hash FROM history WHERE seq = ?1 OR (record = ?2 AND seq > ?1) ORDER BY seq";
    let mut statement = connection.prepare(sql).unwrap();
    let entries = statement.query_map((seq, record), |row| {
        Ok(LogEntry {
            seq: row.get(0)?,
            record: id.map(|id| RecordId(uuid::Uuid::from_bytes(id))),
            version: row.get(1)?,
            at: Time::from_micros(row.get(2)?),
            text: row.get(3)?,
            hash: row.get(4)?,
        })
    });
    let entries: Vec<LogEntry> = entries.unwrap().map(Result::unwrap).collect();
    let sql = "SELECT hash FROM history WHERE record = ?1 AND seq < ?2 ORDER BY seq DESC LIMIT 1";
    let mut previous = connection.query_row(sql, (record, seq), |row| row.get(0)).unwrap_or(ZERO_HASH);
    for mut entry in entries {
        if entry.seq == seq {
            let mut body: Json = serde_json::from_str(&entry.text).unwrap();
            edit(&mut body);
            entry.text = body.to_string().into();
        }
        previous = entry.expected_hash(&previous);
        let sql = "UPDATE history SET text = ?2, hash = ?3 WHERE seq = ?1";
        connection.execute(sql, (entry.seq, &*entry.text, previous)).unwrap();
    }
    connection.execute("UPDATE records SET head = ?2 WHERE row = ?1", (record, previous)).unwrap();
}

/// Finds the first entry whose text matches.
fn find_entry(connection: &Connection, like: &str) -> u64 {
    let sql = "SELECT min(seq) FROM history WHERE text LIKE ?1";
    let found: Option<u64> = connection.query_row(sql, [like], |row| row.get(0)).unwrap();
    found.unwrap_or_else(|| panic!("no entry matches {like}"))
}

fn reports_broken_rule(report: &VerifyReport, rule: &str) -> bool {
    report.differences.iter().any(|difference| difference.table == "history" && difference.rule == Some(rule))
}

/// Forges the first matching entry, and expects a violation of the rule there.
fn assert_forgery_reported(built: &TestDatabase, rule: &str, like: &str, edit: impl Fn(&mut Json)) {
    let copy = built.copy();
    let seq = find_entry(&copy.connection(), like);
    rewrite_entry(&copy, seq, edit);
    let report = copy.verify();
    assert!(reports_broken_rule(&report, rule), "{rule} at {seq}: {:#?}", report.differences);
    let chain = report.differences.iter().any(|one| one.table == "history" && one.column() == Some("hash"));
    assert!(!chain, "the hash chain is intact: {:#?}", report.differences);
}

/// INV-1
#[test]
fn missing_or_second_effect_is_reported() {
    let built = TestDatabase::new(7, 0);
    assert_forgery_reported(&built, "INV-1", "%\"effect\"%", |body| {
        drop(body.as_object_mut().unwrap().remove("effect"));
    });
    let first = find_entry(&built.copy().connection(), "%\"effect\"%");
    let text: String = {
        let copy = built.copy();
        let sql = "SELECT text FROM history WHERE seq = ?1";
        copy.connection().query_row(sql, [first], |row| row.get(0)).unwrap()
    };
    let effect = serde_json::from_str::<Json>(&text).unwrap()["effect"].clone();
    assert_forgery_reported(&built, "INV-1", "%{\"Finish\"%", |body| body["effect"] = effect.clone());
}

/// INV-2
#[test]
fn effect_of_aborted_execution_is_reported() {
    let built = TestDatabase::new(7, 0);
    assert_forgery_reported(&built, "INV-2", "%\"effect\"%", |body| {
        body["change"]["execution"]["status"] = json!("ABORTED");
    });
}

/// INV-3
#[test]
fn impossible_transition_is_reported() {
    let built = TestDatabase::new(7, 0);
    assert_forgery_reported(&built, "INV-3", "%{\"Lease\"%", |body| body["change"]["attempt"] = json!(7));
    assert_forgery_reported(&built, "INV-3", "%{\"Finish\"%", |body| body["change"]["state"] = json!("waiting"));
    assert_forgery_reported(&built, "INV-3", "%{\"Lease\"%", |body| {
        drop(body.as_object_mut().unwrap().remove("transitions"));
    });
    assert_forgery_reported(&built, "INV-3", "%{\"Lease\"%", |body| body["transitions"][0][1] = json!(99));
}

/// INV-4: `suite.task` reaches `done` only through a commit.
#[test]
fn ended_job_without_effect_is_reported() {
    let built = TestDatabase::new(7, 0);
    assert_forgery_reported(&built, "INV-4", "%\"effect\"%", |body| {
        drop(body.as_object_mut().unwrap().remove("effect"));
    });
}

/// INV-5
#[test]
fn failure_without_code_is_reported() {
    let built = TestDatabase::new(7, 0);
    assert_forgery_reported(&built, "INV-5", "%{\"Fail\"%", |body| {
        body["change"]["execution"]["aborted"] = json!(null);
    });
}

/// INV-6
#[test]
fn oversized_field_is_reported() {
    let built = TestDatabase::new(7, 0);
    assert_forgery_reported(&built, "INV-6", "%\"second\"%", |body| {
        body["change"]["fields"]["name"] = json!("x".repeat(101));
    });
}

/// INV-7
#[test]
fn negative_hold_and_wrong_count_are_reported() {
    let built = TestDatabase::new(7, 0);
    assert_forgery_reported(&built, "INV-7", "%\"earn\"%", |body| body["change"]["hold"] = json!(-5));
    let copy = built.copy();
    let seq = find_entry(&copy.connection(), "%\"counts\":[%");
    rewrite_entry(&copy, seq, |body| body["counts"][0][1] = json!(2));
    let report = copy.verify();
    let miscounted = |found: &&onceward_store::TableDifference| found.table == "counts" && found.rule == Some("INV-7");
    assert!(report.differences.iter().filter(miscounted).count() > 1, "the table and the recount differ: {report:#?}");
}

/// INV-8: two keys with one secret, a key created twice, and a revoked key that does not exist.
#[test]
fn inconsistent_api_keys_are_reported() {
    let built = TestDatabase::new(7, 0);
    let (one, two) = ("%\"created\":{\"id\":\"key1\"%", "%\"created\":{\"id\":\"key2\"%");
    let text: String = {
        let copy = built.copy();
        let connection = copy.connection();
        let first = find_entry(&connection, one);
        connection.query_row("SELECT text FROM history WHERE seq = ?1", [first], |row| row.get(0)).unwrap()
    };
    let made = serde_json::from_str::<Json>(&text).unwrap()["api_key_change"]["created"].clone();
    assert_forgery_reported(&built, "INV-8", two, |body| {
        body["api_key_change"]["created"]["hash_digest"] = made["hash_digest"].clone();
    });
    assert_forgery_reported(&built, "INV-8", two, |body| body["api_key_change"]["created"]["id"] = json!("key1"));
    assert_forgery_reported(&built, "INV-8", "%\"revoked\":\"key2\"%", |body| {
        body["api_key_change"]["revoked"] = json!("unknown");
    });
}

#[test]
fn unique_key_of_wrong_holder_is_reported() {
    let built = TestDatabase::new(7, 0);
    let copy = built.copy();
    let connection = copy.connection();
    let (first, second) = (find_entry(&connection, "%\"first\"%"), find_entry(&connection, "%\"second\"%"));
    assert_ne!(first, second);
    let other: [u8; 16] = connection
        .query_row("SELECT id FROM records WHERE row = (SELECT record FROM history WHERE seq = ?1)", [second], |row| {
            row.get(0)
        })
        .unwrap();
    let other = uuid::Uuid::from_bytes(other).to_string();
    connection
        .execute(
            "UPDATE uniques SET holder = ?1 WHERE parts LIKE '%first%'",
            [&uuid::Uuid::parse_str(&other).unwrap().as_bytes()[..]],
        )
        .unwrap();
    drop(connection);
    rewrite_entry(&copy, first, |body| body["uniques"][0][1] = json!(other));
    let report = copy.verify();
    let named = |found: &onceward_store::TableDifference| found.table == "uniques" && found.column() == Some("holder");
    assert!(report.differences.iter().any(named), "{report:#?}");
}

/// INV-9: drift is not damage.
#[test]
fn call_by_unauthorized_actor_is_reported_as_drift() {
    let built = TestDatabase::new(7, 0);
    assert_forgery_reported(&built, "INV-9", "%\"denial\":true%", |body| body["refusal"]["status"] = json!(200));
    let copy = built.copy();
    let seq = find_entry(&copy.connection(), "%\"earn\"%");
    rewrite_entry(&copy, seq, |body| body["operation"]["actor"]["id"] = json!("eve"));
    let report = copy.verify();
    assert!(report.differences.is_empty(), "{report:#?}");
    assert_eq!(report.drifts.iter().map(|drift| drift.seq).collect::<Vec<_>>(), [seq]);
}
