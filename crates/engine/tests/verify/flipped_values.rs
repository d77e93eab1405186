//! One changed value anywhere: `verify` reports it. Exceptions are listed in `docs/verify-columns.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use onceward_core::hex;
use onceward_engine::VerifyReport;
use onceward_store::TableDifference;
use onceward_testkit::random::{Rng, theme_seeds};
use rusqlite::Connection;
use rusqlite::types::Value;

use crate::sqlite_tables::{RowValues, TableInfo, list_tables, other_value};
use crate::test_database::{DatabaseCopy, PrintSeedOnPanic, TestDatabase};

/// The coverage of each column in the list.
pub(crate) type ColumnCoverage = BTreeMap<(String, String), String>;

/// Loads the listed columns of a kind of store.
pub(crate) fn load_column_coverage(store: &str) -> ColumnCoverage {
    let path = onceward_testkit::systems::repository_root().join("docs/verify-columns.toml");
    let file: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
    let mut listed = ColumnCoverage::new();
    for column in file["column"].as_array().unwrap() {
        let text = |name: &str| column[name].as_str().unwrap().to_owned();
        assert!(text("why").len() > 40, "every listed column has a reason");
        if column.get("store").is_some_and(|only| only.as_str() != Some(store)) {
            continue;
        }
        for name in column["names"].as_array().unwrap() {
            listed.insert((text("table"), name.as_str().unwrap().to_owned()), text("how"));
        }
    }
    listed
}

/// A changed value of one row.
struct FlippedValue<'a> {
    table: &'a TableInfo,
    column: usize,
    row: RowValues,
    value: Value,
}

impl FlippedValue<'_> {
    fn describe(&self) -> String {
        let old = &self.row[self.column];
        format!("{}.{}: {old:?} → {:?} in {:?}", self.table.name, self.column_name(), self.value, self.row)
    }

    fn column_name(&self) -> &str {
        &self.table.columns[self.column].name
    }

    /// Chooses a row of the table, and another value that the database accepts.
    fn choose<'a>(table: &'a TableInfo, column: usize, copy: &DatabaseCopy, chance: &mut Rng) -> FlippedValue<'a> {
        let connection = copy.connection();
        let rows = table.rows(&connection, "true");
        assert!(!rows.is_empty(), "{} is empty, so no value can be flipped", table.name);
        // Prefers a row with a value.
        let something: Vec<&RowValues> = rows.iter().filter(|row| row[column] != Value::Null).collect();
        let row = match something.len() {
            0 => rows[chance.below(rows.len())].clone(),
            count => something[chance.below(count)].clone(),
        };
        for _ in 0..100 {
            let value = other_value(&row[column], &table.columns[column], chance);
            if table.update(&connection, &row, column, &value).is_ok_and(|changed| changed == 1) {
                return FlippedValue { table, column, row, value };
            }
        }
        panic!("{}.{} accepts no value other than {row:?}", table.name, table.columns[column].name);
    }

    /// Returns whether a difference names this value, or its row.
    fn is_reported_by(&self, difference: &TableDifference, original: &Connection) -> bool {
        let names_column = match difference.column() {
            None => true,
            // The hash covers the whole entry, and all bytes.
            Some("hash") if self.table.name == "history" => true,
            Some("bytes") if self.table.name == "contents" => true,
            Some(column) => column == self.column_name(),
        };
        // Which queue table has a ready job depends on when the store moved it: it is missed where it should be now.
        let waits = |table: &str| ["ready", "lanes", "delayed"].contains(&table);
        let is_missed = waits(&self.table.name) && waits(difference.table) && difference.column().is_none();
        (difference.table == self.table.name || is_missed)
            && names_column
            && self.row_identifiers(original).iter().any(|hint| difference.key.contains(hint))
    }

    /// Returns the names a report may use for the row: its record, or its own key.
    fn row_identifiers(&self, original: &Connection) -> Vec<String> {
        let mut hints = Vec::new();
        let mut after = self.row.clone();
        after[self.column] = self.value.clone();
        for row in [&self.row, &after] {
            let value = |name: &str| {
                let at = self.table.columns.iter().position(|column| column.name == name)?;
                Some(row[at].clone())
            };
            let mut record = None;
            match &*self.table.name {
                "history" => hints.extend(value("seq").map(value_text)),
                "records" | "queues" => record = value("id"),
                "executions" | "effects" | "ready" | "lanes" | "delayed" | "timers" => {
                    let number = value("record").map(value_text).unwrap();
                    hints.push(format!("row {number}"));
                    let sql = "SELECT id FROM records WHERE row = ?1";
                    record = original.query_row(sql, [number], |row| row.get(0)).ok();
                }
                "links" => {
                    let number = value("source").map(value_text).unwrap();
                    hints.push(format!("row {number}"));
                    let sql = "SELECT id FROM records WHERE row = ?1";
                    record = original.query_row(sql, [number], |row| row.get(0)).ok();
                }
                "uniques" | "counts" => hints.extend(value("parts").map(value_text)),
                "state_counts" => hints.extend(value("owner").map(value_text)),
                "accounts" | "account_entries" => hints.extend(value("name").map(value_text)),
                "workers" => hints.extend(value("worker").map(value_text)),
                "log_seq" | "prune_state" | "api_keys_revision" => hints.extend(value("one").map(value_text)),
                "contents" => hints.extend(value("sha256").map(value_text)),
                "names" | "sources" | "api_keys" => hints.extend(value("id").map(value_text)),
                "definitions" | "activations" => hints.extend(value("number").map(value_text)),
                other => panic!("{other} is a new table: add the names of its rows"),
            }
            if let Some(Value::Blob(bytes)) = record {
                let id = <[u8; 16]>::try_from(&bytes[..]).map(uuid::Uuid::from_bytes);
                hints.push(id.map_or_else(|_| hex::encode(&bytes), |id| id.to_string()));
            }
        }
        hints
    }
}

fn value_text(value: Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => number.to_string(),
        Value::Text(text) => text,
        Value::Blob(bytes) => hex::encode(&bytes),
    }
}

/// INV-1, INV-3, INV-4, INV-7: unless the list says why not; a column that the list calls free is not reported.
#[test]
fn every_flipped_value_is_reported() {
    flip_every_column("verify flips", |seed| TestDatabase::new(seed, 30));
}

/// INV-1, INV-3, INV-4, INV-7
#[test]
fn every_flipped_value_in_pruned_database_is_reported() {
    flip_every_column("verify pruned flips", |seed| crate::pruned_databases::pruned_database(seed, 20));
}

fn flip_every_column(theme: &str, make: impl Fn(u64) -> TestDatabase) {
    let listed = load_column_coverage("sqlite");
    for seed in theme_seeds(theme, 1) {
        let _running = PrintSeedOnPanic(seed);
        println!("seed {seed}");
        let built = make(seed);
        let original = built.copy();
        let tables = list_tables(&original.connection());
        let mut rng = Rng::new(seed);
        let (mut wrong, mut flipped) = (String::new(), 0);
        let mut seen_columns = BTreeSet::new();
        for table in &tables {
            for (column, name) in table.columns.iter().map(|column| &column.name).enumerate() {
                let which = (table.name.clone(), name.clone());
                let how = listed.get(&which).map(String::as_str);
                seen_columns.insert(which);
                if matches!(how, Some("bounded" | "in part")) {
                    continue;
                }
                let copy = built.copy();
                let flip = FlippedValue::choose(table, column, &copy, &mut rng);
                flipped += 1;
                let report = copy.verify();
                let connection = original.connection();
                let named = report.differences.iter().any(|difference| flip.is_reported_by(difference, &connection));
                if named == (how == Some("free")) {
                    let found = summarize_report(&report);
                    let _ = writeln!(wrong, "{}\n  listed {how:?}, found:\n{found}", flip.describe());
                }
            }
        }
        let missing: Vec<_> = listed.keys().filter(|which| !seen_columns.contains(*which)).collect();
        assert!(missing.is_empty(), "listed columns that no table has: {missing:?}");
        println!("{flipped} values flipped in {} tables", tables.len());
        assert!(wrong.is_empty(), "{wrong}");
    }
}

fn summarize_report(report: &VerifyReport) -> String {
    let mut text = String::new();
    for difference in report.differences.iter().take(12) {
        let _ = writeln!(text, "    {difference}");
    }
    for drift in report.drifts.iter().take(3) {
        let _ = writeln!(text, "    drift at {}", drift.seq);
    }
    text
}
