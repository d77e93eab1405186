//! Vacuums the queue tables. Each job adds and deletes rows in them. Autovacuum runs once a minute, when a table of a
//! few thousand rows can already contain a million dead rows. So the store runs VACUUM itself, depending on how much it
//! wrote. Any process can; a table that another one is vacuuming is skipped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::pool::ConnectionPool;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Each operation leaves one or two dead rows.
const VACUUM_EVERY_OPERATIONS: u64 = 100_000;

/// If another session holds an old snapshot, VACUUM reads whole tables and can remove nothing.
const MIN_VACUUM_INTERVAL: Duration = Duration::from_secs(5);

/// Without truncation, which would need an exclusive lock.
const VACUUM_SQL: &str = "VACUUM (SKIP_LOCKED, INDEX_CLEANUP ON, TRUNCATE OFF) onceward.ready, onceward.timers, onceward.lanes, onceward.delayed, \
     onceward.queues";

/// Runs VACUUM in the background until dropped.
#[derive(Debug)]
pub(super) struct Vacuum {
    written_operations: AtomicU64,
    due: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Vacuum {
    pub(super) fn start(pool: ConnectionPool) -> Self {
        let due = Arc::new(Notify::new());
        let task = tokio::spawn(run_vacuum(pool, Arc::clone(&due)));
        Self { written_operations: AtomicU64::new(0), due, task }
    }

    /// Counts saved operations.
    pub(super) fn add_operations(&self, operations: usize) {
        let operations = u64::try_from(operations).unwrap_or(u64::MAX);
        if crosses_threshold(self.written_operations.fetch_add(operations, Ordering::Relaxed), operations) {
            self.due.notify_one();
        }
    }
}

fn crosses_threshold(before: u64, added: u64) -> bool {
    before / VACUUM_EVERY_OPERATIONS != before.saturating_add(added) / VACUUM_EVERY_OPERATIONS
}

impl Drop for Vacuum {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run_vacuum(pool: ConnectionPool, due: Arc<Notify>) {
    loop {
        due.notified().await;
        // Only speed depends on it. If it fails, for example without permission or connection, autovacuum does the work
        // later.
        if let Ok(client) = pool.get().await {
            let _ = client.with_background_timeout().batch_execute(VACUUM_SQL).await;
        }
        tokio::time::sleep(MIN_VACUUM_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use onceward_testkit::postgres::PostgresServer;
    use tokio_postgres::NoTls;

    use super::*;
    use crate::PostgresStore;

    #[test]
    fn vacuum_is_due_when_operations_cross_threshold() {
        assert!(!crosses_threshold(0, VACUUM_EVERY_OPERATIONS - 1));
        assert!(crosses_threshold(VACUUM_EVERY_OPERATIONS - 1, 1) && crosses_threshold(1, 3 * VACUUM_EVERY_OPERATIONS));
        assert!(!crosses_threshold(VACUUM_EVERY_OPERATIONS, VACUUM_EVERY_OPERATIONS - 1));
    }

    #[tokio::test]
    async fn emptied_queue_tables_are_vacuumed_after_threshold() {
        let url = PostgresServer::shared().create_database();
        let store = PostgresStore::open(&url).await.expect("a new database");
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("the same database");
        tokio::spawn(connection);
        // Autovacuum must not do the work instead.
        let disable_autovacuum_sql = "ALTER TABLE onceward.timers SET (autovacuum_enabled = off); \
                     ALTER TABLE onceward.queues SET (autovacuum_enabled = off)";
        client.batch_execute(disable_autovacuum_sql).await.expect("off");
        let rows = "INSERT INTO onceward.timers SELECT n, n FROM generate_series(1, 1000) n; DELETE FROM onceward.timers; \
                    INSERT INTO onceward.queues SELECT 1, 'a', n, gen_random_uuid() FROM generate_series(1, 1000) n; \
                    DELETE FROM onceward.queues";
        client.batch_execute(rows).await.expect("inserts and deletes rows");
        store.inner.vacuum.add_operations(usize::try_from(VACUUM_EVERY_OPERATIONS).expect("a number"));
        let wait_vacuumed = async {
            for table in ["timers", "queues"] {
                let count = format!("SELECT pg_stat_get_vacuum_count('onceward.{table}'::regclass)");
                while client.query_one(&count, &[]).await.expect("an answer").get::<_, i64>(0) == 0 {
                    tokio::task::yield_now().await;
                }
            }
        };
        tokio::time::timeout(Duration::from_mins(1), wait_vacuumed).await.expect("the tables are vacuumed in time");
    }
}
