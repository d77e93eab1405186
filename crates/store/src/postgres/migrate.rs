//! The schema, brought up to date by numbered migrations. Many processes may start at once: one does it, the others wait.

use deadpool_postgres::{ClientWrapper, Object, Pool};

use super::connect::InTransaction;
use crate::error::StoreError;

/// Schemas in order. Never changed once released, only added to.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_first.sql")];

/// Attempts at making the table that all of them wait for: two that make it at once get in each other's way.
const ATTEMPTS: usize = 20;

pub(super) async fn migrate(pool: &Pool) -> Result<(), StoreError> {
    ground(&pool.get().await?).await?;
    let transaction = InTransaction::new(pool.get().await?);
    let client = transaction.client()?;
    client.batch_execute("BEGIN").await?;
    client.batch_execute("SELECT number FROM onceward.migrations WHERE number = 0 FOR UPDATE").await?;
    let known = u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX);
    let row = client.query_one("SELECT max(number) FROM onceward.migrations", &[]).await?;
    let found = u32::try_from(row.try_get::<_, i32>(0)?).unwrap_or(u32::MAX);
    if found > known {
        transaction.roll_back().await;
        return Err(StoreError::TooNew { found, known });
    }
    for (number, sql) in (1_i32..).zip(MIGRATIONS).skip(usize::try_from(found).unwrap_or(usize::MAX)) {
        client.batch_execute(sql).await?;
        client.execute("INSERT INTO onceward.migrations (number, at) VALUES ($1, now())", &[&number]).await?;
    }
    client.batch_execute("COMMIT").await?;
    transaction.ended();
    Ok(())
}

/// Refuse a database without our schema, or with another one: who only reads brings nothing up to date.
pub(super) async fn check(client: &ClientWrapper) -> Result<(), StoreError> {
    let row = client.query_one("SELECT to_regclass('onceward.migrations') IS NOT NULL", &[]).await?;
    if !row.try_get::<_, bool>(0)? {
        return Err(StoreError::corrupt("this is not one of Onceward's databases"));
    }
    let known = u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX);
    let row = client.query_one("SELECT max(number) FROM onceward.migrations", &[]).await?;
    let found = u32::try_from(row.try_get::<_, i32>(0)?).unwrap_or(u32::MAX);
    match found {
        found if found < known => Err(StoreError::TooOld { found, known }),
        found if found > known => Err(StoreError::TooNew { found, known }),
        _ => Ok(()),
    }
}

/// The schema and the table of migrations, whose row 0 is there to be locked.
async fn ground(client: &Object) -> Result<(), StoreError> {
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
            return Err(StoreError::corrupt("the database has a schema `onceward`, but not one of Onceward's"));
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
