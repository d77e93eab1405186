//! A log that was written anew, hashes and all: its chain holds, but what it tells cannot have happened.

use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_engine::VerifyReport;
use onceward_store::LogEntry;
use onceward_store::log::ZERO_HASH;
use rusqlite::Connection;
use serde_json::{Value as Json, json};

use crate::test_database::{DatabaseCopy, TestDatabase};

/// Write an entry anew, and every later one of its record with the hashes that follow.
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

/// The first entry whose text is like this.
fn find_entry(connection: &Connection, like: &str) -> u64 {
    let sql = "SELECT min(seq) FROM history WHERE text LIKE ?1";
    let found: Option<u64> = connection.query_row(sql, [like], |row| row.get(0)).unwrap();
    found.unwrap_or_else(|| panic!("no entry is like {like}"))
}

fn reports_broken_rule(report: &VerifyReport, rule: &str) -> bool {
    report.differences.iter().any(|difference| difference.table == "history" && difference.rule == Some(rule))
}

/// Forge the first entry like this, and expect a rule to be named as broken at it.
fn assert_forgery_reported(built: &TestDatabase, rule: &str, like: &str, edit: impl Fn(&mut Json)) {
    let copy = built.copy();
    let seq = find_entry(&copy.connection(), like);
    rewrite_entry(&copy, seq, edit);
    let report = copy.verify();
    assert!(reports_broken_rule(&report, rule), "{rule} at {seq}: {:#?}", report.differences);
    let chain = report.differences.iter().any(|one| one.table == "history" && one.column() == Some("hash"));
    assert!(!chain, "the chain holds: {:#?}", report.differences);
}

/// INV-1: an effect is the committed execution's, and there is no second one.
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

/// INV-2: what was cut off has left nothing.
#[test]
fn effect_of_aborted_execution_is_reported() {
    let built = TestDatabase::new(7, 0);
    assert_forgery_reported(&built, "INV-2", "%\"effect\"%", |body| {
        body["change"]["execution"]["status"] = json!("ABORTED");
    });
}

/// INV-3: records go forward, by rows that there are.
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

/// INV-5: a failure has a name.
#[test]
fn failure_without_code_is_reported() {
    let built = TestDatabase::new(7, 0);
    assert_forgery_reported(&built, "INV-5", "%{\"Fail\"%", |body| {
        body["change"]["execution"]["aborted"] = json!(null);
    });
}

/// INV-6: what callers give has its bounds, also in the log.
#[test]
fn oversized_field_is_reported() {
    let built = TestDatabase::new(7, 0);
    assert_forgery_reported(&built, "INV-6", "%\"second\"%", |body| {
        body["change"]["fields"]["name"] = json!("x".repeat(101));
    });
}

/// INV-7: nobody holds less than nothing, and what is counted is what there is.
#[test]
fn negative_hold_and_wrong_count_are_reported() {
    let built = TestDatabase::new(7, 0);
    assert_forgery_reported(&built, "INV-7", "%\"earn\"%", |body| body["change"]["hold"] = json!(-5));
    let copy = built.copy();
    let seq = find_entry(&copy.connection(), "%\"counts\":[%");
    rewrite_entry(&copy, seq, |body| body["counts"][0][1] = json!(2));
    let report = copy.verify();
    let miscounted = |found: &&onceward_store::TableDifference| found.table == "counts" && found.rule == Some("INV-7");
    assert!(report.differences.iter().filter(miscounted).count() > 1, "the table and the recount: {report:#?}");
}

/// INV-8: two keys with one secret, a key that is made twice, and one that is revoked without being there.
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
        body["api_key_change"]["revoked"] = json!("nobody");
    });
}

/// A key belongs to the record whose key it is.
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

/// INV-9: a refusal says what it must; and whoever may not do what the log says would be refused if it were decided again. Nothing
/// is damaged then: the two are told apart.
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
