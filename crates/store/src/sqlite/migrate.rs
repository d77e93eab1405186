//! Schema migrations of SQLite files. `user_version` contains the schema version.

use rusqlite::{Connection, TransactionBehavior};

use crate::error::StoreError;
use crate::schema::{SchemaMigration, SchemaStatus};

/// In order. CONTRIBUTING.md describes how to add one.
pub(super) const MIGRATIONS: &[SchemaMigration] =
    &[SchemaMigration { name: "0001_first", sql: include_str!("migrations/0001_first.sql") }];

/// Reads the schema version of a file; 0 if it has no tables. Fails if it has tables of another program.
pub(super) fn schema_status(
    connection: &Connection,
    migrations: &[SchemaMigration],
) -> Result<SchemaStatus, StoreError> {
    let found: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found == 0 {
        let tables: u32 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if tables > 0 {
            return Err(StoreError::ForeignDatabase(
                "not an Onceward database: it has tables of another program".to_owned(),
            ));
        }
    }
    SchemaStatus::compare(found, migrations)
}

/// Fails if the database was not created by Onceward or has another schema version.
pub(super) fn require_current(connection: &Connection) -> Result<(), StoreError> {
    let schema = schema_status(connection, MIGRATIONS)?;
    if schema.current == 0 {
        return Err(StoreError::ForeignDatabase("not an Onceward database".to_owned()));
    }
    schema.require_current()
}

/// Runs the pending migrations and returns the status before. Each migration is one transaction, so a failure leaves
/// the schema at a known version.
pub(super) fn migrate(connection: &mut Connection, migrations: &[SchemaMigration]) -> Result<SchemaStatus, StoreError> {
    let schema = schema_status(connection, migrations)?;
    for (number, migration) in (1_u32..).zip(migrations).skip(schema.current as usize) {
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

    const MIGRATION_ONE: SchemaMigration = SchemaMigration { name: "0001_one", sql: "CREATE TABLE one (x)" };
    const MIGRATION_TWO: SchemaMigration =
        SchemaMigration { name: "0002_two", sql: "ALTER TABLE one ADD COLUMN y; CREATE TABLE two (x)" };
    const FAILING_MIGRATION: SchemaMigration =
        SchemaMigration { name: "0003_bad", sql: "CREATE TABLE three (x); CREATE TABLE one (x)" };

    fn count_tables(connection: &Connection) -> u32 {
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).expect("a count")
    }

    #[test]
    fn migrate_runs_each_pending_migration_once() {
        let mut connection = Connection::open_in_memory().expect("a database");
        assert_eq!(
            migrate(&mut connection, &[MIGRATION_ONE]).expect("migrates an empty database").pending,
            ["0001_one"]
        );
        let status = schema_status(&connection, &[MIGRATION_ONE, MIGRATION_TWO]).expect("a schema");
        assert_eq!(status, SchemaStatus { current: 1, supported: 2, pending: vec!["0002_two"] });
        assert!(matches!(status.require_current(), Err(StoreError::SchemaTooOld { found: 1, known: 2 })));
        assert_eq!(
            migrate(&mut connection, &[MIGRATION_ONE, MIGRATION_TWO]).expect("runs the second migration"),
            status
        );
        assert_eq!(
            migrate(&mut connection, &[MIGRATION_ONE, MIGRATION_TWO]).expect("accepts the migrated schema").pending,
            Vec::<&str>::new()
        );
        assert_eq!(count_tables(&connection), 2);
    }

    #[test]
    fn failed_migration_leaves_previous_schema() {
        let mut connection = Connection::open_in_memory().expect("a database");
        migrate(&mut connection, &[MIGRATION_ONE, MIGRATION_TWO, FAILING_MIGRATION])
            .expect_err("the table already exists");
        assert_eq!(
            schema_status(&connection, &[MIGRATION_ONE, MIGRATION_TWO, FAILING_MIGRATION]).expect("a schema").current,
            2
        );
        assert_eq!(count_tables(&connection), 2, "the failed migration left nothing");
    }

    #[test]
    fn newer_schema_is_refused_without_change() {
        let mut connection = Connection::open_in_memory().expect("a database");
        migrate(&mut connection, &[MIGRATION_ONE, MIGRATION_TWO]).expect("two");
        let refused = migrate(&mut connection, &[MIGRATION_ONE]);
        assert!(matches!(refused, Err(StoreError::SchemaTooNew { found: 2, known: 1 })), "{refused:?}");
        let message = refused.expect_err("refused").to_string();
        assert_eq!(
            message,
            "the database has schema 2, and the program supports only 1; use a newer version of onceward"
        );
    }
}
