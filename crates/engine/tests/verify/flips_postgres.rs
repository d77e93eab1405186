//! One value anywhere in a PostgreSQL database is another one. Flipped in place and flipped back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use onceward_store::{Clock, Difference, PostgresStore, PostgresView};
use onceward_testkit::postgres::Server;
use onceward_testkit::random::{Chance, seeds};
use rusqlite::types::Value;
use tokio_postgres::{Client, NoTls};

use crate::built::{Running, fill};
use crate::flips::listed;
use crate::schema::{Column, other};
use crate::stage::{start, wait};

/// Tables and their columns: name, type, and whether it may be nothing.
async fn tables(client: &Client) -> BTreeMap<String, Vec<(String, String, bool)>> {
    let sql = "SELECT table_name::text, column_name::text, data_type::text, is_nullable = 'YES' FROM information_schema.columns \
               WHERE table_schema = 'onceward' AND table_name <> 'whole' ORDER BY table_name, ordinal_position";
    let mut tables = BTreeMap::<String, Vec<_>>::new();
    for row in client.query(sql, &[]).await.unwrap() {
        tables.entry(row.get(0)).or_default().push((row.get(1), row.get(2), row.get(3)));
    }
    tables
}

/// Another value, as text that the column's type reads.
fn another(text: Option<&str>, ty: &str, nullable: bool, chance: &mut Chance) -> Option<String> {
    let column = |kind: &str| Column::new(kind, nullable);
    let hexed = |bytes: &[u8]| format!("\\x{}", onceward_core::hex::encode(bytes));
    match (ty, text) {
        ("boolean", Some(text)) => Some(if text == "true" { "false" } else { "true" }.to_owned()),
        ("timestamp with time zone", _) => Some("2000-01-01T00:00:00Z".to_owned()),
        ("boolean", None) => Some("true".to_owned()),
        ("uuid", Some(text)) => {
            let mut id = *uuid::Uuid::parse_str(text).unwrap().as_bytes();
            id[chance.below(16)] ^= 1 << chance.below(8);
            Some(uuid::Uuid::from_bytes(id).to_string())
        }
        ("bytea", text) => {
            let bytes = text.and_then(|text| {
                (0..text.len() / 2 - 1).map(|at| u8::from_str_radix(&text[2 * at + 2..2 * at + 4], 16).ok()).collect()
            });
            match other(&bytes.map_or(Value::Null, Value::Blob), &column("BLOB"), chance) {
                Value::Blob(bytes) => Some(hexed(&bytes)),
                _ => None,
            }
        }
        ("text", text) => {
            match other(&text.map_or(Value::Null, |text| Value::Text(text.to_owned())), &column("TEXT"), chance) {
                Value::Text(text) => Some(text),
                _ => None,
            }
        }
        (_, text) => {
            let number = text.map_or(Value::Null, |text| Value::Integer(text.parse().unwrap()));
            match other(&number, &column("INTEGER"), chance) {
                Value::Integer(number) => Some(number.to_string()),
                _ => None,
            }
        }
    }
}

/// INV-1, INV-3, INV-4, INV-7: on PostgreSQL, too, a flipped value of any column of any table is named, unless the list says why not.
#[test]
fn one_flipped_value_anywhere_in_postgresql_is_named() {
    let listed = listed("postgres");
    for seed in seeds("verify flips postgres", 1) {
        let _running = Running(seed);
        println!("seed {seed}");
        let wrong = wait(async {
            let url = Server::shared().database();
            let store = PostgresStore::open_with_clock(&url, Clock::manual(start())).await.expect("a new database");
            let latest = fill(&store, seed, 20).await;
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("a connection");
            tokio::spawn(connection);
            // Damage asks no constraint.
            let sql = "SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) FROM pg_constraint \
                       WHERE connamespace = 'onceward'::regnamespace AND contype IN ('c', 'f')";
            for row in client.query(sql, &[]).await.unwrap() {
                client.batch_execute(row.get(0)).await.unwrap();
            }
            let view = PostgresView::open(&url).await.expect("it opens");
            let mut chance = Chance::new(seed);
            let (mut wrong, mut flipped, mut met) = (String::new(), 0, BTreeSet::new());
            for (table, columns) in tables(&client).await {
                for (column, ty, nullable) in &columns {
                    let which = (table.clone(), column.clone());
                    let how = listed.get(&which).map(String::as_str);
                    met.insert(which);
                    if matches!(how, Some("bounded" | "in part")) {
                        continue;
                    }
                    let sql = format!(
                        "SELECT ctid::text, {column}::text FROM onceward.{table} ORDER BY {column} IS NULL, ctid"
                    );
                    let rows = client.query(&sql, &[]).await.unwrap();
                    assert!(!rows.is_empty(), "{table} is empty");
                    let something = rows.iter().filter(|row| row.get::<_, Option<&str>>(1).is_some()).count();
                    let (ctid, old) = {
                        let row = &rows[chance.below(if something == 0 { rows.len() } else { something })];
                        (row.get::<_, String>(0), row.get::<_, Option<String>>(1))
                    };
                    let sql = format!(
                        "UPDATE onceward.{table} SET {column} = $1::text::{ty} WHERE ctid = $2::text::tid RETURNING ctid::text"
                    );
                    let mut place = None;
                    for _ in 0..100 {
                        let new = another(old.as_deref(), ty, *nullable, &mut chance);
                        if let Ok(row) = client.query_one(&sql, &[&new, &ctid]).await {
                            place = Some((row.get::<_, String>(0), new));
                            break;
                        }
                    }
                    let (place, new) = place.unwrap_or_else(|| panic!("{table}.{column} takes nothing but {old:?}"));
                    flipped += 1;
                    let report = onceward_engine::verify(&view, latest, &mut ()).await;
                    client.query_one(&sql, &[&old, &place]).await.expect("flipped back");
                    let found: Vec<Difference> = report.map_or_else(|_| Vec::new(), |report| report.differences);
                    let named = found.iter().any(|found| names(found, &table, column));
                    if named == (how == Some("free")) {
                        let _ = writeln!(wrong, "{table}.{column}: {old:?} → {new:?}\n  listed {how:?}, found:");
                        for found in found.iter().take(8) {
                            let _ = writeln!(wrong, "    {found}");
                        }
                    }
                }
            }
            let gone: Vec<_> = listed.keys().filter(|which| !met.contains(*which)).collect();
            assert!(gone.is_empty(), "listed, and in no table: {gone:?}");
            println!("{flipped} values flipped");
            let report = onceward_engine::verify(&view, latest, &mut ()).await.expect("it can be read");
            assert!(report.is_clean(), "all are flipped back: {report:#?}");
            wrong
        });
        assert!(wrong.is_empty(), "{wrong}");
    }
}

/// Whether a difference is about this column, or about a row of its table.
fn names(found: &Difference, table: &str, column: &str) -> bool {
    // The log is kept in two tables: what is wrong with the one shows in the other.
    let is_log = |table: &str| matches!(table, "history" | "batches");
    (found.table == table || is_log(found.table) && is_log(table))
        && match found.column() {
            None => true,
            Some(_) if is_log(table) => true,
            Some("bytes") if table == "contents" => true,
            Some(found) => found == column,
        }
}
