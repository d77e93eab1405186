//! The schema of a file, brought up to date by numbered migrations. A database's own number is its `user_version`.

use rusqlite::{Connection, TransactionBehavior};

use crate::error::StoreError;
use crate::schema::{Migration, Schema};

/// Schemas in order. CONTRIBUTING.md tells how to add one.
pub(super) const MIGRATIONS: &[Migration] =
    &[Migration { name: "0001_first", sql: include_str!("migrations/0001_first.sql") }];

/// What a file has. One without tables has nothing yet; one with others' tables is refused.
pub(super) fn schema(connection: &Connection, migrations: &[Migration]) -> Result<Schema, StoreError> {
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found == 0 {
        let tables: u32 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if tables > 0 {
            return Err(StoreError::NoDatabase("this is a database, but not one of Onceward's".to_owned()));
        }
    }
    Schema::of(found, migrations)
}

/// Refuse a database that is not ours, or of another schema.
pub(super) fn check(connection: &Connection) -> Result<(), StoreError> {
    let schema = schema(connection, MIGRATIONS)?;
    if schema.found == 0 {
        return Err(StoreError::NoDatabase("this is not one of Onceward's databases".to_owned()));
    }
    schema.is_current()
}

/// Each migration is one transaction, so that a database always has one of the schemas that there are. What it had before.
pub(super) fn migrate(connection: &mut Connection, migrations: &[Migration]) -> Result<Schema, StoreError> {
    let schema = schema(connection, migrations)?;
    for (number, migration) in (1_u32..).zip(migrations).skip(schema.found as usize) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(migration.sql)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
    }
    Ok(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Migration = Migration { name: "0001_one", sql: "CREATE TABLE one (x)" };
    const TWO: Migration = Migration { name: "0002_two", sql: "ALTER TABLE one ADD COLUMN y; CREATE TABLE two (x)" };
    const BAD: Migration = Migration { name: "0003_bad", sql: "CREATE TABLE three (x); CREATE TABLE one (x)" };

    fn tables(connection: &Connection) -> u32 {
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).expect("a count")
    }

    #[test]
    fn what_is_missing_is_run_once() {
        let mut connection = Connection::open_in_memory().expect("a database");
        assert_eq!(migrate(&mut connection, &[ONE]).expect("from nothing").missing, ["0001_one"]);
        let told = schema(&connection, &[ONE, TWO]).expect("a schema");
        assert_eq!(told, Schema { found: 1, known: 2, missing: vec!["0002_two"] });
        assert!(matches!(told.is_current(), Err(StoreError::TooOld { found: 1, known: 2 })));
        assert_eq!(migrate(&mut connection, &[ONE, TWO]).expect("one more"), told);
        assert_eq!(migrate(&mut connection, &[ONE, TWO]).expect("nothing more").missing, Vec::<&str>::new());
        assert_eq!(tables(&connection), 2);
    }

    #[test]
    fn one_that_fails_leaves_the_schema_before() {
        let mut connection = Connection::open_in_memory().expect("a database");
        migrate(&mut connection, &[ONE, TWO, BAD]).expect_err("there is a table of that name");
        assert_eq!(schema(&connection, &[ONE, TWO, BAD]).expect("a schema").found, 2);
        assert_eq!(tables(&connection), 2, "nothing of it is there");
    }

    #[test]
    fn a_newer_one_is_refused_untouched() {
        let mut connection = Connection::open_in_memory().expect("a database");
        migrate(&mut connection, &[ONE, TWO]).expect("two");
        let refused = migrate(&mut connection, &[ONE]);
        assert!(matches!(refused, Err(StoreError::TooNew { found: 2, known: 1 })), "{refused:?}");
        let said = refused.expect_err("refused").to_string();
        assert_eq!(said, "the database has schema 2, this program knows 1: use a newer one");
    }
}
