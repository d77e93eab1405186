//! Schema migrations in PostgreSQL. If several processes start at once, one migrates and the others wait.

use super::client::PooledClient;
use super::pool::{ConnectionPool, OpenTransaction};
use crate::error::StoreError;
use crate::schema::{SchemaMigration, SchemaStatus};

/// In order. CONTRIBUTING.md describes how to add one.
pub(super) const MIGRATIONS: &[SchemaMigration] =
    &[SchemaMigration { name: "0001_first", sql: include_str!("migrations/0001_first.sql") }];

/// Two processes that create the migrations table at the same time can both fail, so each retries.
const MAX_BOOTSTRAP_ATTEMPTS: usize = 20;

/// Creates the schema if there is none, for an engine that starts. Fails on an older schema, because other processes
/// may still use it.
pub(super) async fn create_if_missing(pool: &ConnectionPool, migrations: &[SchemaMigration]) -> Result<(), StoreError> {
    let schema = schema_status(&pool.get().await?, migrations).await?;
    if schema.current > 0 {
        return schema.require_current();
    }
    migrate(pool, migrations).await.map(drop)
}

/// Runs the pending migrations in one transaction and returns the status before.
pub(super) async fn migrate(pool: &ConnectionPool, migrations: &[SchemaMigration]) -> Result<SchemaStatus, StoreError> {
    bootstrap_migrations_table(&pool.get().await?).await?;
    let transaction = OpenTransaction::new(pool.get().await?);
    let client = transaction.client()?;
    client.batch_execute("BEGIN").await?;
    client.batch_execute("SELECT number FROM onceward.migrations WHERE number = 0 FOR UPDATE").await?;
    let schema = match current_schema(client).await.and_then(|found| SchemaStatus::compare(found, migrations)) {
        Ok(schema) => schema,
        Err(error) => {
            transaction.rollback().await;
            return Err(error);
        }
    };
    for (number, migration) in (1_i32..).zip(migrations).skip(schema.current as usize) {
        client.batch_execute_without_timeout(migration.sql).await?;
        client.execute("INSERT INTO onceward.migrations (number, at) VALUES ($1, now())", &[&number]).await?;
    }
    client.batch_execute_without_timeout("COMMIT").await?;
    transaction.release();
    Ok(schema)
}

/// Reads the schema version of a database; 0 if it has no tables.
pub(super) async fn schema_status(
    client: &PooledClient,
    migrations: &[SchemaMigration],
) -> Result<SchemaStatus, StoreError> {
    let row = client.query_one("SELECT to_regclass('onceward.migrations') IS NOT NULL", &[]).await?;
    let found = if row.try_get::<_, bool>(0)? { current_schema(client).await? } else { 0 };
    SchemaStatus::compare(found, migrations)
}

async fn current_schema(client: &PooledClient) -> Result<u32, StoreError> {
    let row = client.query_one("SELECT coalesce(max(number), 0) FROM onceward.migrations", &[]).await?;
    Ok(u32::try_from(row.try_get::<_, i32>(0)?).unwrap_or(u32::MAX))
}

/// Fails if the database has no Onceward schema or another version. For read-only access, which cannot migrate.
pub(super) async fn require_current(client: &PooledClient) -> Result<(), StoreError> {
    let schema = schema_status(client, MIGRATIONS).await?;
    if schema.current == 0 {
        return Err(StoreError::ForeignDatabase("not an Onceward database".to_owned()));
    }
    schema.require_current()
}

/// Creates the schema and the migrations table, whose row 0 serves as a lock.
async fn bootstrap_migrations_table(client: &PooledClient) -> Result<(), StoreError> {
    let sql = "CREATE SCHEMA IF NOT EXISTS onceward; \
               CREATE TABLE IF NOT EXISTS onceward.migrations (number INTEGER PRIMARY KEY, at TIMESTAMPTZ NOT NULL); \
               INSERT INTO onceward.migrations (number, at) VALUES (0, now()) ON CONFLICT DO NOTHING";
    let probe_sql = "SELECT to_regclass('onceward.migrations') IS NOT NULL, to_regnamespace('onceward') IS NOT NULL, \
                EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('onceward'))";
    let mut last = None;
    for _ in 0..MAX_BOOTSTRAP_ATTEMPTS {
        let row = client.query_one(probe_sql, &[]).await?;
        let (migrations, schema, has_objects) =
            (row.try_get(0)?, row.try_get::<_, bool>(1)?, row.try_get::<_, bool>(2)?);
        if migrations {
            return Ok(());
        }
        if schema && has_objects {
            return Err(StoreError::ForeignDatabase(
                "not an Onceward database: its schema `onceward` belongs to another program".to_owned(),
            ));
        }
        match client.batch_execute(sql).await.map_err(StoreError::from) {
            Ok(()) => return Ok(()),
            // Another process is creating it.
            Err(error @ (StoreError::Busy | StoreError::Rejected(_) | StoreError::Unavailable(_))) => {
                last = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(last.unwrap_or(StoreError::Busy))
}

#[cfg(test)]
mod tests {
    use onceward_testkit::postgres::PostgresServer;

    use super::*;
    use crate::postgres::pool;

    const MIGRATION_ONE: SchemaMigration =
        SchemaMigration { name: "0001_one", sql: "CREATE TABLE onceward.one (x INTEGER PRIMARY KEY)" };
    const MIGRATION_TWO: SchemaMigration =
        SchemaMigration { name: "0002_two", sql: "ALTER TABLE onceward.one ADD y INTEGER" };
    const FAILING_MIGRATION: SchemaMigration =
        SchemaMigration { name: "0003_bad", sql: "CREATE TABLE onceward.three (); SELECT 1 / 0" };

    #[tokio::test]
    async fn create_if_missing_creates_new_schema_and_refuses_older_or_newer() {
        let pool = pool::build_pool(&PostgresServer::shared().create_database()).expect("a pool");
        create_if_missing(&pool, &[MIGRATION_ONE]).await.expect("migrates an empty database");
        create_if_missing(&pool, &[MIGRATION_ONE]).await.expect("accepts the current schema");
        let refused = create_if_missing(&pool, &[MIGRATION_ONE, MIGRATION_TWO]).await;
        assert!(matches!(refused, Err(StoreError::SchemaTooOld { found: 1, known: 2 })), "{refused:?}");
        assert!(refused.expect_err("refused").to_string().contains("`onceward migrate`"));
        assert_eq!(
            migrate(&pool, &[MIGRATION_ONE, MIGRATION_TWO]).await.expect("runs the second migration").pending,
            ["0002_two"]
        );
        assert_eq!(migrate(&pool, &[MIGRATION_ONE, MIGRATION_TWO]).await.expect("nothing").pending, Vec::<&str>::new());
        create_if_missing(&pool, &[MIGRATION_ONE, MIGRATION_TWO]).await.expect("accepts the migrated schema");
        let refused = create_if_missing(&pool, &[MIGRATION_ONE]).await;
        assert!(matches!(refused, Err(StoreError::SchemaTooNew { found: 2, known: 1 })), "{refused:?}");
        migrate(&pool, &[MIGRATION_ONE, MIGRATION_TWO, FAILING_MIGRATION]).await.expect_err("the migration fails");
        let client = pool.get().await.expect("a connection");
        assert_eq!(
            schema_status(&client, &[MIGRATION_ONE, MIGRATION_TWO, FAILING_MIGRATION]).await.expect("a schema").pending,
            ["0003_bad"]
        );
        let query_result = client
            .query_one("SELECT to_regclass('onceward.three') IS NULL", &[])
            .await
            .expect("the catalog can be queried");
        assert!(query_result.get::<_, bool>(0), "the failed migration left nothing");
    }
}
