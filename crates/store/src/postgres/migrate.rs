//! The schema, brought up to date by numbered migrations. Many processes may start at once: one makes it, the others wait.

use super::client::Client;
use super::connect::{InTransaction, Pool};
use crate::error::StoreError;
use crate::schema::{Migration, Schema};

/// Schemas in order. CONTRIBUTING.md tells how to add one.
pub(super) const MIGRATIONS: &[Migration] =
    &[Migration { name: "0001_first", sql: include_str!("migrations/0001_first.sql") }];

/// Attempts at making the table that all of them wait for: two that make it at once get in each other's way.
const ATTEMPTS: usize = 20;

/// Make the schema where there is none, for an engine that starts. An older one is refused: other processes may still be working
/// on it, with the program that knows it.
pub(super) async fn make(pool: &Pool, migrations: &[Migration]) -> Result<(), StoreError> {
    let schema = schema(&pool.get().await?, migrations).await?;
    if schema.found > 0 {
        return schema.is_current();
    }
    migrate(pool, migrations).await.map(drop)
}

/// All of them are one transaction. What the database had before.
pub(super) async fn migrate(pool: &Pool, migrations: &[Migration]) -> Result<Schema, StoreError> {
    ground(&pool.get().await?).await?;
    let transaction = InTransaction::new(pool.get().await?);
    let client = transaction.client()?;
    client.batch_execute("BEGIN").await?;
    client.batch_execute("SELECT number FROM onceward.migrations WHERE number = 0 FOR UPDATE").await?;
    let schema = match found(client).await.and_then(|found| Schema::of(found, migrations)) {
        Ok(schema) => schema,
        Err(error) => {
            transaction.roll_back().await;
            return Err(error);
        }
    };
    for (number, migration) in (1_i32..).zip(migrations).skip(schema.found as usize) {
        client.unhurried(migration.sql).await?;
        client.execute("INSERT INTO onceward.migrations (number, at) VALUES ($1, now())", &[&number]).await?;
    }
    client.unhurried("COMMIT").await?;
    transaction.ended();
    Ok(schema)
}

/// What a database has: nothing where nobody has made anything yet.
pub(super) async fn schema(client: &Client, migrations: &[Migration]) -> Result<Schema, StoreError> {
    let row = client.query_one("SELECT to_regclass('onceward.migrations') IS NOT NULL", &[]).await?;
    let found = if row.try_get::<_, bool>(0)? { found(client).await? } else { 0 };
    Schema::of(found, migrations)
}

async fn found(client: &Client) -> Result<u32, StoreError> {
    let row = client.query_one("SELECT coalesce(max(number), 0) FROM onceward.migrations", &[]).await?;
    Ok(u32::try_from(row.try_get::<_, i32>(0)?).unwrap_or(u32::MAX))
}

/// Refuse a database without our schema, or with another one: who only reads brings nothing up to date.
pub(super) async fn check(client: &Client) -> Result<(), StoreError> {
    let schema = schema(client, MIGRATIONS).await?;
    if schema.found == 0 {
        return Err(StoreError::NoDatabase("this is not one of Onceward's databases".to_owned()));
    }
    schema.is_current()
}

/// The schema and the table of migrations, whose row 0 is there to be locked.
async fn ground(client: &Client) -> Result<(), StoreError> {
    let sql = "CREATE SCHEMA IF NOT EXISTS onceward; \
               CREATE TABLE IF NOT EXISTS onceward.migrations (number INTEGER PRIMARY KEY, at TIMESTAMPTZ NOT NULL); \
               INSERT INTO onceward.migrations (number, at) VALUES (0, now()) ON CONFLICT DO NOTHING";
    let look = "SELECT to_regclass('onceward.migrations') IS NOT NULL, to_regnamespace('onceward') IS NOT NULL, \
                EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('onceward'))";
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let row = client.query_one(look, &[]).await?;
        let (migrations, schema, things) = (row.try_get(0)?, row.try_get::<_, bool>(1)?, row.try_get::<_, bool>(2)?);
        if migrations {
            return Ok(());
        }
        if schema && things {
            return Err(StoreError::NoDatabase(
                "the database has a schema `onceward`, but not one of Onceward's".to_owned(),
            ));
        }
        match client.batch_execute(sql).await.map_err(StoreError::from) {
            Ok(()) => return Ok(()),
            // Another process makes it right now.
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
    use onceward_testkit::postgres::Server;

    use super::*;
    use crate::postgres::connect;

    const ONE: Migration = Migration { name: "0001_one", sql: "CREATE TABLE onceward.one (x INTEGER PRIMARY KEY)" };
    const TWO: Migration = Migration { name: "0002_two", sql: "ALTER TABLE onceward.one ADD y INTEGER" };
    const BAD: Migration = Migration { name: "0003_bad", sql: "CREATE TABLE onceward.three (); SELECT 1 / 0" };

    #[tokio::test]
    async fn an_engine_makes_what_is_not_there_and_leaves_what_is_older() {
        let pool = connect::pool(&Server::shared().database()).expect("a pool");
        make(&pool, &[ONE]).await.expect("from nothing");
        make(&pool, &[ONE]).await.expect("as it is");
        let refused = make(&pool, &[ONE, TWO]).await;
        assert!(matches!(refused, Err(StoreError::TooOld { found: 1, known: 2 })), "{refused:?}");
        assert!(refused.expect_err("refused").to_string().contains("`onceward migrate`"));
        assert_eq!(migrate(&pool, &[ONE, TWO]).await.expect("one more").missing, ["0002_two"]);
        assert_eq!(migrate(&pool, &[ONE, TWO]).await.expect("nothing").missing, Vec::<&str>::new());
        make(&pool, &[ONE, TWO]).await.expect("up to date");
        let refused = make(&pool, &[ONE]).await;
        assert!(matches!(refused, Err(StoreError::TooNew { found: 2, known: 1 })), "{refused:?}");
        migrate(&pool, &[ONE, TWO, BAD]).await.expect_err("it cannot be");
        let client = pool.get().await.expect("a connection");
        assert_eq!(schema(&client, &[ONE, TWO, BAD]).await.expect("a schema").missing, ["0003_bad"]);
        let left = client.query_one("SELECT to_regclass('onceward.three') IS NULL", &[]).await.expect("a look");
        assert!(left.get::<_, bool>(0), "nothing of it is there");
    }
}
