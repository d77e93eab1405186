//! Status summary of a PostgreSQL database.

use std::sync::Arc;

use onceward_core::time::Time;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::SELECT_NOW_SQL;
use super::client::PooledClient;
use crate::database_status::{DatabaseSetting, DatabaseStatus, MAX_COUNTED_ROWS, OverdueSummary, ReadyBacklog};
use crate::error::StoreError;
use crate::query::StateCount;
use crate::symbols::SymbolTable;

/// Other values can lose committed data, leave torn pages or prevent cleanup.
const RECOMMENDED_SETTINGS: [(&str, &[&str]); 4] =
    [("fsync", &["on"]), ("full_page_writes", &["on"]), ("autovacuum", &["on"]), ("zero_damaged_pages", &["off"])];

const MAX_COUNTED: i64 = MAX_COUNTED_ROWS.cast_signed();

const SELECT_SIZE_SQL: &str = "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class \
     WHERE relnamespace = 'onceward'::regnamespace AND relkind = 'r'";

const SELECT_READY_BACKLOG_SQL: &str = "SELECT d.name, w.count, w.since FROM (SELECT DISTINCT name FROM onceward.definitions) d \
     JOIN onceward.names n ON n.name = d.name \
     CROSS JOIN LATERAL (SELECT count(*), min(ready_at) AS since FROM (SELECT ready_at FROM \
        (SELECT ready_at FROM onceward.ready WHERE lifecycle = n.id ORDER BY rank, record LIMIT $1) f WHERE ready_at <= $2 \
        UNION ALL SELECT ready_at FROM (SELECT ready_at, lifecycle FROM onceward.delayed WHERE ready_at <= $2 \
        ORDER BY ready_at, record LIMIT $1) l WHERE lifecycle = n.id) a) w \
     WHERE w.count > 0 ORDER BY d.name";

const COUNT_DELAYED_SQL: &str = "SELECT count(*) FROM (SELECT FROM onceward.delayed WHERE ready_at > $2 LIMIT $1) l";

const COUNT_OVERDUE_SQL: &str = "SELECT count(*), min(t.due_at), count(*) FILTER (WHERE e.status < 2), count(*) FILTER (WHERE e.status = 2) \
     FROM (SELECT due_at, record FROM onceward.timers WHERE due_at <= $2 ORDER BY due_at, record LIMIT $1) t \
     LEFT JOIN onceward.records r ON r.row = t.record \
     LEFT JOIN onceward.executions e ON e.record = r.row AND e.token = r.attempt AND e.status < 3 AND e.expires_at <= $2";

const COUNT_INBOX_SQL: &str = "SELECT count(*), (extract(epoch FROM min(sent_at)) * 1000000)::bigint FROM \
     (SELECT sent_at FROM onceward.inbox WHERE answered_at IS NULL ORDER BY number LIMIT $1) w";

const SELECT_STATE_COUNTS_SQL: &str = "SELECT d.name, t.state::bigint, sum(t.count)::bigint FROM onceward.state_counts t \
     JOIN onceward.definitions d ON d.number = t.definition GROUP BY d.name, t.state";

/// Of other sessions, as far as the role can see them.
const SELECT_OLDEST_TRANSACTION_SQL: &str = "SELECT (extract(epoch FROM min(xact_start)) * 1000000)::bigint FROM pg_stat_activity \
     WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";

pub(super) async fn read_status(
    client: &PooledClient,
    symbols: &SymbolTable,
    schema_version: u32,
) -> Result<DatabaseStatus, StoreError> {
    let query_one = async |sql: &str| client.query_one(sql, &[]).await;
    let now = optional_time_column(&query_one(SELECT_NOW_SQL).await?, 0)?.unwrap_or(Time::MIN);
    let server: String = query_one("SHOW server_version").await?.try_get(0)?;
    let last = query_one("SELECT coalesce(max(last), 0) FROM onceward.batches").await?;
    let at = client.query_opt("SELECT at FROM onceward.history ORDER BY entry_id DESC LIMIT 1", &[]).await?;
    let behind_sql = "SELECT count(*) FROM (SELECT front FROM onceward.lanes LIMIT $1) l WHERE NOT front";
    let (limit, now_micros): (&(dyn ToSql + Sync), &(dyn ToSql + Sync)) = (&MAX_COUNTED, &now.micros());
    let mut counts = Vec::new();
    for row in client.query(SELECT_STATE_COUNTS_SQL, &[]).await? {
        let (lifecycle, state) = (row.try_get::<_, &str>(0)?.into(), symbols.name(row.try_get(1)?)?);
        counts.push(StateCount { lifecycle, state, count: count_column(&row, 2)? });
    }
    counts.retain(|count| count.count > 0);
    counts.sort_unstable();
    let mut backlogs = Vec::new();
    for row in client.query(SELECT_READY_BACKLOG_SQL, &[limit, now_micros]).await? {
        let lifecycle: Arc<str> = row.try_get::<_, &str>(0)?.into();
        backlogs.push(ReadyBacklog {
            lifecycle,
            count: count_column(&row, 1)?,
            oldest_since: optional_time_column(&row, 2)?,
        });
    }
    let overdue = client.query_one(COUNT_OVERDUE_SQL, &[limit, now_micros]).await?;
    let (leases, committed) = (count_column(&overdue, 2)?, count_column(&overdue, 3)?);
    let inbox = client.query_one(COUNT_INBOX_SQL, &[limit]).await?;
    let read_overdue = |row: &Row| {
        Ok::<_, StoreError>(OverdueSummary {
            count: count_column(row, 0)?,
            oldest_due_at: optional_time_column(row, 1)?,
            ..OverdueSummary::default()
        })
    };
    let mut settings = Vec::new();
    for (name, recommended) in RECOMMENDED_SETTINGS {
        let value: String = client.query_one("SELECT current_setting($1)", &[&name]).await?.try_get(0)?;
        let is_good = recommended.contains(&value.as_str());
        settings.push(DatabaseSetting { name: name.to_owned(), value, is_recommended: is_good });
    }
    Ok(DatabaseStatus {
        server_version: format!("PostgreSQL {server}"),
        schema_version,
        now,
        database_bytes: count_column(&query_one(SELECT_SIZE_SQL).await?, 0)?,
        wal_bytes: None,
        last_seq: count_column(&last, 0)?,
        last_entry_at: at.map(|row| optional_time_column(&row, 0)).transpose()?.flatten(),
        state_counts: counts,
        ready_backlogs: backlogs,
        waiting_behind_key: count_column(&client.query_one(behind_sql, &[limit]).await?, 0)?,
        delayed: count_column(&client.query_one(COUNT_DELAYED_SQL, &[limit, now_micros]).await?, 0)?,
        overdue: OverdueSummary { expired_leases: leases, unfinished_commits: committed, ..read_overdue(&overdue)? },
        inbox: Some(read_overdue(&inbox)?),
        settings,
        oldest_transaction: optional_time_column(&query_one(SELECT_OLDEST_TRANSACTION_SQL).await?, 0)?,
    })
}

fn count_column(row: &Row, index: usize) -> Result<u64, StoreError> {
    Ok(u64::try_from(row.try_get::<_, i64>(index)?).unwrap_or(0))
}

fn optional_time_column(row: &Row, index: usize) -> Result<Option<Time>, StoreError> {
    Ok(row.try_get::<_, Option<i64>>(index)?.map(Time::from_micros))
}
