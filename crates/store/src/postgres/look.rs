//! A database at a glance.

use std::sync::Arc;

use onceward_core::time::Time;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::CLOCK;
use super::client::Client;
use crate::error::StoreError;
use crate::look::{COUNTED, Look, Overdue, Setting, Waiting};
use crate::names::Names;
use crate::query::StateCount;

/// Settings without which an answer may be lost, or a page be half written.
const SETTINGS: [(&str, &[&str]); 4] =
    [("fsync", &["on"]), ("full_page_writes", &["on"]), ("autovacuum", &["on"]), ("zero_damaged_pages", &["off"])];

const LIMIT: i64 = COUNTED.cast_signed();

const SIZE: &str = "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class \
     WHERE relnamespace = 'onceward'::regnamespace AND relkind = 'r'";

const WAITING: &str = "SELECT d.name, w.count, w.since FROM (SELECT DISTINCT name FROM onceward.definitions) d \
     JOIN onceward.names n ON n.name = d.name \
     CROSS JOIN LATERAL (SELECT count(*), min(ready_at) AS since FROM (SELECT ready_at FROM \
        (SELECT ready_at FROM onceward.ready WHERE lifecycle = n.id ORDER BY rank, record LIMIT $1) f WHERE ready_at <= $2 \
        UNION ALL SELECT ready_at FROM (SELECT ready_at, lifecycle FROM onceward.later WHERE ready_at <= $2 \
        ORDER BY ready_at, record LIMIT $1) l WHERE lifecycle = n.id) a) w \
     WHERE w.count > 0 ORDER BY d.name";

const LATER: &str = "SELECT count(*) FROM (SELECT FROM onceward.later WHERE ready_at > $2 LIMIT $1) l";

const OVERDUE: &str = "SELECT count(*), min(t.due), count(*) FILTER (WHERE e.status < 2), count(*) FILTER (WHERE e.status = 2) \
     FROM (SELECT due, record FROM onceward.timers WHERE due <= $2 ORDER BY due, record LIMIT $1) t \
     LEFT JOIN onceward.records r ON r.row = t.record \
     LEFT JOIN onceward.executions e ON e.record = r.row AND e.token = r.attempt AND e.status < 3 AND e.expires_at <= $2";

const INBOX: &str = "SELECT count(*), (extract(epoch FROM min(sent_at)) * 1000000)::bigint FROM \
     (SELECT sent_at FROM onceward.inbox WHERE answered_at IS NULL ORDER BY number LIMIT $1) w";

const TALLIES: &str = "SELECT d.name, t.state::bigint, sum(t.count)::bigint FROM onceward.tallies t \
     JOIN onceward.definitions d ON d.number = t.definition GROUP BY d.name, t.state";

/// Of others, as far as we may see them.
const OLDEST: &str = "SELECT (extract(epoch FROM min(xact_start)) * 1000000)::bigint FROM pg_stat_activity \
     WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";

pub(super) async fn look(client: &Client, names: &Names, schema: u32) -> Result<Look, StoreError> {
    let one = async |sql: &str| client.query_one(sql, &[]).await;
    let now = time(&one(CLOCK).await?, 0)?.unwrap_or(Time::MIN);
    let server: String = one("SHOW server_version").await?.try_get(0)?;
    let last = one("SELECT coalesce(max(last), 0) FROM onceward.batches").await?;
    let at = client.query_opt("SELECT at FROM onceward.history ORDER BY place DESC LIMIT 1", &[]).await?;
    let behind = "SELECT count(*) FROM (SELECT front FROM onceward.lanes LIMIT $1) l WHERE NOT front";
    let (limit, until): (&(dyn ToSql + Sync), &(dyn ToSql + Sync)) = (&LIMIT, &now.micros());
    let mut counts = Vec::new();
    for row in client.query(TALLIES, &[]).await? {
        let (lifecycle, state) = (row.try_get::<_, &str>(0)?.into(), names.name(row.try_get(1)?)?);
        counts.push(StateCount { lifecycle, state, count: unsigned(&row, 2)? });
    }
    counts.retain(|count| count.count > 0);
    counts.sort_unstable();
    let mut waiting = Vec::new();
    for row in client.query(WAITING, &[limit, until]).await? {
        let lifecycle: Arc<str> = row.try_get::<_, &str>(0)?.into();
        waiting.push(Waiting { lifecycle, count: unsigned(&row, 1)?, since: time(&row, 2)? });
    }
    let overdue = client.query_one(OVERDUE, &[limit, until]).await?;
    let (leases, committed) = (unsigned(&overdue, 2)?, unsigned(&overdue, 3)?);
    let inbox = client.query_one(INBOX, &[limit]).await?;
    let first_of = |row: &Row| {
        Ok::<_, StoreError>(Overdue { count: unsigned(row, 0)?, first: time(row, 1)?, ..Overdue::default() })
    };
    let mut settings = Vec::new();
    for (name, safe) in SETTINGS {
        let value: String = client.query_one("SELECT current_setting($1)", &[&name]).await?.try_get(0)?;
        let is_good = safe.contains(&value.as_str());
        settings.push(Setting { name: name.to_owned(), value, is_good });
    }
    Ok(Look {
        server: format!("PostgreSQL {server}"),
        schema,
        now,
        bytes: unsigned(&one(SIZE).await?, 0)?,
        wal_bytes: None,
        last_entry: unsigned(&last, 0)?,
        last_entry_at: at.map(|row| time(&row, 0)).transpose()?.flatten(),
        counts,
        waiting,
        behind: unsigned(&client.query_one(behind, &[limit]).await?, 0)?,
        later: unsigned(&client.query_one(LATER, &[limit, until]).await?, 0)?,
        overdue: Overdue { leases, committed, ..first_of(&overdue)? },
        inbox: Some(first_of(&inbox)?),
        settings,
        oldest_transaction: time(&one(OLDEST).await?, 0)?,
    })
}

fn unsigned(row: &Row, at: usize) -> Result<u64, StoreError> {
    Ok(u64::try_from(row.try_get::<_, i64>(at)?).unwrap_or(0))
}

fn time(row: &Row, at: usize) -> Result<Option<Time>, StoreError> {
    Ok(row.try_get::<_, Option<i64>>(at)?.map(Time::from_micros))
}
