//! Deleted rows, added rows, a truncated or reordered log, and values that are verified only within bounds.

use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::time::Time;
use onceward_engine::VerifyReport;
use onceward_store::Store as _;
use onceward_store::scan::DifferenceKind;
use onceward_testkit::random::{Rng, theme_seeds};
use onceward_testkit::user;
use rusqlite::Connection;
use serde_json::json;

use crate::sqlite_tables::{RowValues, TableInfo, list_tables, other_value};
use crate::support::driver::StoreDriver;
use crate::support::{block_on, start_time};
use crate::test_database::{PrintSeedOnPanic, TestDatabase, verify_file};

/// Tables that the log does not cover (docs/verify-columns.toml).
const UNVERIFIED_TABLES: [&str; 4] = ["idempotency_keys", "workers", "clock_acceptance", "webhook_secrets"];

/// Condition for rows that the log proves and that have a meaning.
fn verified_rows_condition(table: &str) -> &'static str {
    match table {
        // Zero equals no row. Counters of windows have a test below.
        "counts" => "count <> 0 AND window_start = -9223372036854775808",
        "state_counts" => "count <> 0",
        // Bytes that no record references are not verified.
        "contents" => "refs <> 0",
        _ => "true",
    }
}

fn reports_table(report: &VerifyReport, table: &str) -> bool {
    report.differences.iter().any(|difference| difference.table == table)
}

fn reports_missing_record_row(report: &VerifyReport) -> bool {
    let is_missing_row = |kind: &DifferenceKind| {
        matches!(kind, DifferenceKind::Differs { column, stored: Some(stored), .. }
            if *column == "record" && stored.starts_with("record row"))
    };
    report.differences.iter().any(|difference| difference.table == "history" && is_missing_row(&difference.kind))
}

/// Damages each table in turn, each time on a copy, and checks the report.
fn damage_each_table(
    theme: &str,
    damage: impl Fn(&TableInfo, &Connection, &mut Rng) -> RowValues,
    is_found: impl Fn(&TableInfo, &VerifyReport) -> bool,
) {
    for seed in theme_seeds(theme, 1) {
        let _running = PrintSeedOnPanic(seed);
        println!("seed {seed}");
        let built = TestDatabase::new(seed, 20);
        let mut chance = Rng::new(seed);
        for table in list_tables(&built.copy().connection()) {
            if UNVERIFIED_TABLES.contains(&&*table.name) {
                continue;
            }
            let copy = built.copy();
            let row = damage(&table, &copy.connection(), &mut chance);
            let report = copy.verify();
            assert!(is_found(&table, &report), "{} {row:?}: {:#?}", table.name, report.differences);
        }
    }
}

/// INV-4: in every table.
#[test]
fn deleted_row_is_reported() {
    let remove = |table: &TableInfo, connection: &Connection, chance: &mut Rng| {
        let mut rows = table.rows(connection, verified_rows_condition(&table.name));
        assert!(!rows.is_empty(), "{} is empty", table.name);
        let row = rows.swap_remove(chance.below(rows.len()));
        assert_eq!(table.delete(connection, &row), 1, "{} {row:?}", table.name);
        row
    };
    damage_each_table("verify gone", remove, |table, report| {
        let missed = match &*table.name {
            // Only log_seq shows that the last entry is missing.
            "history" => reports_table(report, "history") || reports_table(report, "log_seq"),
            // Without the row, the log does not tell the id of the record. Its entries point to the missing row.
            "records" => reports_table(report, "records") || reports_missing_record_row(report),
            name => reports_table(report, name),
        };
        // Which queue table has a ready job depends on when the store moved it: it is missed where it should be now.
        let waits = |name: &str| ["ready", "lanes", "delayed"].contains(&name);
        missed || waits(&table.name) && report.differences.iter().any(|other| waits(other.table))
    });
}

/// INV-4, INV-7: afterwards the counter may be pruned.
#[test]
fn deleted_window_count_is_reported_until_window_ends() {
    let text = r#"
language  = 1
lifecycle = "suite.visit"
about     = "So many a minute"
[states]
over = { about = "that was all", final = true }
[limit]
rate = { on = ["owner"], per = "1m", max = 2, clash = "429 slow_down" }
[[on.create]]
go = "-> over"
"#;
    let built = TestDatabase::filled_by(|store, _| {
        block_on(async {
            let file = InputFile { name: "visit.toml".to_owned(), text: text.into() };
            store.put_lifecycles(&InputFiles { files: vec![file] }).await.expect("a valid file");
            StoreDriver::new(store).await.create_record(&user("ann"), "suite.visit", json!({}), start_time()).await;
        });
        start_time()
    });
    let copy = built.copy();
    assert!(copy.verify().is_clean());
    assert_eq!(copy.connection().execute("DELETE FROM counts", []).expect("rows to delete"), 1);
    let report = copy.verify();
    assert!(reports_table(&report, "counts"), "{report:#?}");
    let over = Time::from_micros(start_time().micros() + 60_000_000);
    let report = verify_file(&copy.path(), over);
    assert!(report.is_clean(), "{report:#?}");
}

/// INV-4: in every table.
#[test]
fn added_row_is_reported() {
    damage_each_table("verify added", insert_altered_row, |table, report| reports_table(report, &table.name));
}

/// Inserts a copy of a row with another key.
fn insert_altered_row(table: &TableInfo, connection: &Connection, chance: &mut Rng) -> RowValues {
    let rows = table.rows(connection, "true");
    for _ in 0..1_000 {
        let mut row = rows[chance.below(rows.len())].clone();
        let at = chance.below(row.len());
        row[at] = other_value(&row[at], &table.columns[at], chance);
        if at != 0 {
            row[0] = other_value(&row[0], &table.columns[0], chance);
        }
        if table.insert(connection, &row).is_ok() {
            return row;
        }
    }
    panic!("{} accepts no more rows", table.name);
}

/// INV-3, INV-4
#[test]
fn truncated_log_is_reported() {
    let built = TestDatabase::new(1, 20);
    for cut in [1, 7] {
        let copy = built.copy();
        let connection = copy.connection();
        let sql = "DELETE FROM history WHERE seq > (SELECT max(seq) - ?1 FROM history)";
        connection.execute(sql, [cut]).unwrap();
        assert!(reports_table(&copy.verify(), "log_seq"), "log_seq has the last seq");
        connection.execute("UPDATE log_seq SET seq = (SELECT max(seq) FROM history)", []).unwrap();
        drop(connection);
        let refusals_only =
            "SELECT count(*) = 0 FROM history WHERE seq > (SELECT max(seq) - ?1 FROM history) AND record > 0";
        let unseen: bool = built.copy().connection().query_row(refusals_only, [cut], |row| row.get(0)).unwrap();
        // If the last entry is a refusal, no record shows that it is missing.
        assert_eq!(reports_table(&copy.verify(), "records"), !unseen, "a record is ahead of its log");
    }
}

/// INV-3
#[test]
fn swapped_log_entries_are_reported() {
    for seed in theme_seeds("verify swapped", 2) {
        let _running = PrintSeedOnPanic(seed);
        let built = TestDatabase::new(seed, 20);
        let original = built.copy();
        let connection = original.connection();
        let sql = "SELECT a.seq FROM history a JOIN history b ON b.seq = a.seq + 1 WHERE a.record > 0 AND b.record > 0";
        let mut statement = connection.prepare(sql).unwrap();
        let seqs: Vec<i64> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        let mut chance = Rng::new(seed);
        for _ in 0..5 {
            let seq = seqs[chance.below(seqs.len())];
            let copy = built.copy();
            let connection = copy.connection();
            for sql in [
                format!("UPDATE history SET seq = -1 WHERE seq = {seq}"),
                format!("UPDATE history SET seq = {seq} WHERE seq = {}", seq + 1),
                format!("UPDATE history SET seq = {} WHERE seq = -1", seq + 1),
            ] {
                connection.execute_batch(&sql).unwrap();
            }
            drop(connection);
            let report = copy.verify();
            assert!(!report.differences.is_empty(), "{seq} and the next");
        }
    }
}

/// Within the bounds nothing is reported.
#[test]
fn partly_verified_values_are_reported_beyond_their_bounds() {
    let built = TestDatabase::new(3, 20);
    let live = "record || ':' || token IN (SELECT record || ':' || token FROM executions WHERE status < 3)";
    let heartbeat = format!(
        "UPDATE timers SET due_at = due_at + 1000000 WHERE (due_at, record) IN (SELECT expires_at, record FROM executions WHERE {live}); \
         UPDATE executions SET expires_at = expires_at + 1000000 WHERE {live}"
    );
    let back = format!(
        "UPDATE timers SET due_at = due_at - 1000000 WHERE (due_at, record) IN (SELECT expires_at, record FROM executions WHERE {live}); \
         UPDATE executions SET expires_at = expires_at - 100000000 WHERE {live}"
    );
    let far = format!("UPDATE executions SET expires_at = expires_at + 31536000000000 WHERE {live}");
    let ended = "UPDATE executions SET expires_at = expires_at + 1 WHERE status >= 3";
    let twice = "SELECT row FROM records WHERE link_version > 1 ORDER BY row LIMIT 1";
    let comment = "UPDATE sources SET files = replace(files, 'about     = \\\"Holds things\\\"', 'about     = \\\"Holds what it can\\\"')";
    let state = "UPDATE sources SET files = replace(files, 'about     = \\\"Holds things\\\"', 'about     = 7')";
    for (what, sql, column) in [
        ("a heartbeat", &*heartbeat, None),
        ("a heartbeat that shortens the lease", &back, Some(("executions", "expires_at"))),
        ("a lease of a year", &far, Some(("executions", "expires_at"))),
        ("the lease of an ended execution", ended, Some(("executions", "expires_at"))),
        (
            "a link that was added and removed in one batch",
            &*format!("UPDATE records SET link_version = link_version - 1 WHERE row = ({twice})"),
            None,
        ),
        (
            "more links than were ever added",
            "UPDATE records SET link_version = link_version + 1",
            Some(("records", "link_version")),
        ),
        ("fewer links than exist", "UPDATE records SET link_version = 0", Some(("records", "link_version"))),
        ("another description", comment, None),
        ("another lifecycle", state, Some(("sources", "files"))),
    ] {
        let copy = built.copy();
        let connection = copy.connection();
        let before = connection.total_changes();
        connection.execute_batch(sql).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(connection.total_changes() > before, "{what} changes nothing");
        drop(connection);
        let report = copy.verify();
        match column {
            None => assert!(report.is_clean(), "{what}: {:#?}", report.differences),
            Some((table, column)) => {
                let found =
                    report.differences.iter().find(|found| found.table == table && found.column() == Some(column));
                assert!(found.is_some(), "{what}: {:#?}", report.differences);
            }
        }
    }
}

/// INV-4: no single value is wrong: the job is at the back of its lane, although the limit allows it in front.
#[test]
fn job_that_can_never_be_leased_is_reported() {
    let built = TestDatabase::new(5, 0);
    for lane in ["sb", "sx"] {
        let copy = built.copy();
        let connection = copy.connection();
        let first = format!("SELECT record FROM lanes WHERE front = 1 AND key LIKE '%{lane}%' LIMIT 1");
        let record: i64 = connection.query_row(&first, [], |row| row.get(0)).unwrap();
        connection.execute("UPDATE lanes SET front = 0 WHERE record = ?1", [record]).unwrap();
        connection.execute("DELETE FROM ready WHERE record = ?1", [record]).unwrap();
        drop(connection);
        let report = copy.verify();
        assert!(reports_table(&report, "lanes"), "{lane}: {report:#?}");
    }
}
