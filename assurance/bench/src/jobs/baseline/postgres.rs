//! The baseline on PostgreSQL: arrays of rows, one statement per table, one round trip per transaction, on one or more
//! connections.

use std::error::Error;

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, NoTls};
use uuid::Uuid;

use super::pipelined_connection::{PipelinedConnection, StatementBatch, sql_parameter};
use super::{Baseline, BaselineParts, row_hash, row_id, row_time};

/// The store's own schema, so that the baseline has each new index and column.
const SCHEMA_SQL: &str = include_str!("../../../../../crates/store/src/postgres/migrations/0001_first.sql");

/// The settings of the store's own connections.
const CONNECTION_OPTIONS: &str = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off";

const BASELINE_PARTS: BaselineParts = &[
    ("history", "3 inserts, with the texts of a real job"),
    ("history index", "3 inserts, the key of the log"),
    ("records", "1 insert, 2 updates without index changes"),
    ("id index", "1 insert, the unique index from id to row"),
    ("executions", "1 insert, 1 update"),
    ("effects", "1 insert"),
    ("effects index", "1 insert, the key of effects"),
    ("ready", "1 insert, 1 delete"),
    ("timers", "1 insert, 1 delete"),
    ("loads", "2 selects of the record with its execution, by id; 1 of the job to lease, from ready"),
];

const INSERT_HISTORY: &str = "INSERT INTO onceward.history (entry_id, record, version, at, previous, text, hash) \
     SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::bigint[]), \
     unnest($5::bigint[]), unnest($6::text[]), unnest($7::bytea[])";

const INSERT_RECORDS: &str = "INSERT INTO onceward.records (row, id, definition, state, version, owner, fields, attempt, \
     created_at, updated_at, entered_at, hold, head, entry) SELECT k.row, k.id, 1, 0, 1, k.owner, k.fields, 0, k.at, \
     k.at, k.at, 0, k.head, k.entry FROM (SELECT unnest($1::bigint[]) AS row, unnest($2::uuid[]) AS id, \
     unnest($3::text[]) AS owner, unnest($4::text[]) AS fields, unnest($5::bigint[]) AS at, \
     unnest($6::bytea[]) AS head, unnest($7::bigint[]) AS entry) k";

const INSERT_READY: &str = "INSERT INTO onceward.ready (lifecycle, rank, record, ready_at, definition) \
     SELECT 1, k.at, k.row, k.at, 1 FROM (SELECT unnest($1::bigint[]) AS at, unnest($2::bigint[]) AS row) k";

const SELECT_LEASABLE: &str = "SELECT w.rank, w.record, w.definition, w.key, r.id \
     FROM onceward.ready w JOIN onceward.records r ON r.row = w.record \
     WHERE w.lifecycle = 1 AND (w.rank, w.record) > ($1::bigint, 0) AND w.ready_at <= $2::bigint \
     ORDER BY w.rank, w.record LIMIT $3::bigint";

const SELECT_RECORDS: &str = "SELECT * FROM onceward.records_with_execution WHERE id = ANY($1::uuid[])";

const UPDATE_LEASED: &str = "UPDATE onceward.records r SET state = 1, version = 2, fields = n.fields, attempt = 1, \
     updated_at = n.at, started_at = n.at, entered_at = n.at, head = n.head, entry = n.entry FROM (SELECT \
     unnest($1::bigint[]) AS row, unnest($2::text[]) AS fields, unnest($3::bigint[]) AS at, \
     unnest($4::bytea[]) AS head, unnest($5::bigint[]) AS entry) n WHERE r.row = n.row AND r.version = 1";

const UPDATE_DONE: &str = "UPDATE onceward.records r SET state = 2, version = 3, fields = n.fields, committed = 1, \
     updated_at = n.at, finished_at = n.at, entered_at = n.at, head = n.head, entry = n.entry \
     FROM (SELECT unnest($1::bigint[]) AS row, unnest($2::text[]) AS fields, unnest($3::bigint[]) AS at, \
     unnest($4::bytea[]) AS head, unnest($5::bigint[]) AS entry) n WHERE r.row = n.row AND r.version = 2";

const INSERT_EXECUTIONS: &str = "INSERT INTO onceward.executions (record, token, worker, holder, status, leased_at, \
     expires_at, started_at, finish_pending) SELECT k.row, 1, k.worker, k.worker, 1, k.at, k.at, k.at, false \
     FROM (SELECT unnest($1::bigint[]) AS row, unnest($2::text[]) AS worker, unnest($3::bigint[]) AS at) k";

// Joins on both key columns: with a constant for one of them, the planner would start at the wrong table.
const UPDATE_EXECUTIONS: &str = "UPDATE onceward.executions e SET status = 3, expires_at = n.at, started_at = n.at, \
     finished_at = n.at FROM (SELECT unnest($1::bigint[]) AS row, unnest($2::bigint[]) AS token, \
     unnest($3::bigint[]) AS at) n WHERE e.record = n.row AND e.token = n.token";

const INSERT_EFFECTS: &str = "INSERT INTO onceward.effects (record, token, result) SELECT k.row, 1, k.result \
     FROM (SELECT unnest($1::bigint[]) AS row, unnest($2::text[]) AS result) k";

const INSERT_TIMERS: &str =
    "INSERT INTO onceward.timers (due_at, record) SELECT unnest($1::bigint[]), unnest($2::bigint[])";

const DELETE_TIMERS: &str = "DELETE FROM onceward.timers WHERE ctid = ANY (ARRAY(SELECT x.ctid \
     FROM (SELECT unnest($1::bigint[]) AS d, unnest($2::bigint[]) AS r) k CROSS JOIN LATERAL \
     (SELECT ctid FROM onceward.timers WHERE due_at = k.d AND record = k.r OFFSET 0) x))";

const DELETE_READY: &str = "DELETE FROM onceward.ready WHERE ctid = ANY (ARRAY(SELECT x.ctid \
     FROM (SELECT unnest($1::bigint[]) AS l, unnest($2::bigint[]) AS k, unnest($3::bigint[]) AS r) k CROSS JOIN LATERAL \
     (SELECT ctid FROM onceward.ready WHERE lifecycle = k.l AND rank = k.k AND record = k.r OFFSET 0) x))";

const LOCK_LOG_END: &str = "SELECT one FROM onceward.log_end FOR UPDATE";

const INSERT_BATCH: &str = "INSERT INTO onceward.batches (last, first, batch) \
     SELECT coalesce(max(last), 0) + $1, coalesce(max(last), 0) + 1, $2 FROM onceward.batches RETURNING first, last";

const UPDATE_STATE_COUNT: &str =
    "UPDATE onceward.state_counts SET count = count + $2::bigint WHERE definition = 1 AND owner = 'ann' AND state = $1";

type BenchResult = Result<(), Box<dyn Error>>;

pub(crate) struct PostgresBaseline {
    /// Runs on the caller's thread only.
    runtime: Runtime,
    connections: Vec<BaselineConnection>,
}

/// A connection with rows of its own.
struct BaselineConnection {
    connection: PipelinedConnection,
    skipped_part: &'static str,
    texts: [String; 3],
    result: String,
    last_row: i64,
    last_batch: i64,
}

impl PostgresBaseline {
    pub(crate) const PARTS: BaselineParts = BASELINE_PARTS;

    /// Opens connections to an empty database.
    pub(crate) fn open(
        url: &str,
        texts: &[String; 3],
        skipped_part: &'static str,
        connection_count: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let mut config: Config = url.parse()?;
        config.options(CONNECTION_OPTIONS);
        let mut opened = Vec::new();
        for number in 0..i64::try_from(connection_count)? {
            let client = runtime.block_on(async {
                let (client, connection) = config.connect(NoTls).await?;
                tokio::spawn(connection);
                if number == 0 {
                    client.batch_execute(&schema_sql(skipped_part)).await?;
                }
                Ok::<_, tokio_postgres::Error>(client)
            })?;
            let first = number << 40;
            let result = crate::engine::job_result().to_string();
            opened.push(BaselineConnection {
                connection: PipelinedConnection::new(client),
                skipped_part,
                texts: texts.clone(),
                result,
                last_row: first,
                last_batch: first >> 20,
            });
        }
        Ok(Self { runtime, connections: opened })
    }
}

fn schema_sql(skipped_part: &str) -> String {
    let mut schema = format!("CREATE SCHEMA onceward; {SCHEMA_SQL}");
    schema += "INSERT INTO onceward.state_counts VALUES (1, 'ann', 1, 0), (1, 'ann', 2, 0), (1, 'ann', 3, 0);";
    schema += match skipped_part {
        "history index" => "ALTER TABLE onceward.history DROP CONSTRAINT history_pkey",
        "id index" => "ALTER TABLE onceward.records DROP CONSTRAINT records_id",
        "effects index" => "ALTER TABLE onceward.effects DROP CONSTRAINT effects_pkey",
        _ => "",
    };
    schema
}

impl Baseline for PostgresBaseline {
    fn run_jobs(&mut self, count: i64, batch: i64) -> BenchResult {
        let each = count / i64::try_from(self.connections.len())?;
        self.runtime.block_on(async {
            let mut lanes: Vec<_> =
                self.connections.iter_mut().map(|lane| Box::pin(lane.run_jobs(each, batch))).collect();
            let mut failed = None;
            std::future::poll_fn(|context| {
                lanes.retain_mut(|lane| match lane.as_mut().poll(context) {
                    std::task::Poll::Pending => true,
                    std::task::Poll::Ready(done) => {
                        failed = failed.take().or(done.err());
                        false
                    }
                });
                if lanes.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
            failed.map_or(Ok(()), Err)
        })
    }

    fn wire_counts(&self) -> Option<(u64, u64)> {
        let wires = || self.connections.iter().map(|lane| &lane.connection);
        Some((wires().map(|wire| wire.statements).sum(), wires().map(|wire| wire.round_trips).sum()))
    }
}

/// Columns that several statements of a step share.
struct StepColumns {
    rows: Vec<i64>,
    times: Vec<i64>,
    ids: Vec<Uuid>,
    hashes: Vec<[u8; 32]>,
    entry_ids: Vec<i64>,
}

impl StepColumns {
    fn new(first: i64, size: i64, batch: i64) -> Self {
        let rows = || first..first + size;
        Self {
            rows: rows().collect(),
            times: rows().map(row_time).collect(),
            ids: rows().map(|row| Uuid::from_bytes(row_id(row))).collect(),
            hashes: rows().map(row_hash).collect(),
            entry_ids: (0..size).map(|number| (batch << 20) + number).collect(),
        }
    }

    fn rows(&self) -> Box<dyn ToSql + Sync + '_> {
        sql_parameter(&self.rows[..])
    }

    fn ones(&self) -> Box<dyn ToSql + Sync> {
        sql_parameter(vec![1_i64; self.rows.len()])
    }

    fn times(&self) -> Box<dyn ToSql + Sync + '_> {
        sql_parameter(&self.times[..])
    }

    fn heads(&self) -> Box<dyn ToSql + Sync + '_> {
        sql_parameter(self.hashes.iter().map(|hash| &hash[..]).collect::<Vec<_>>())
    }

    fn repeated<'a>(&self, text: &'a str) -> Box<dyn ToSql + Sync + 'a> {
        sql_parameter(vec![text; self.rows.len()])
    }
}

impl BaselineConnection {
    async fn run_jobs(&mut self, count: i64, batch: i64) -> BenchResult {
        let mut remaining = count;
        while remaining > 0 {
            let size = remaining.min(batch);
            let first = self.last_row + 1;
            self.last_row += size;
            for step in 0..3 {
                self.last_batch += 1;
                let columns = StepColumns::new(first, size, self.last_batch);
                if step > 0 {
                    self.load_before_step(&columns, step).await?;
                }
                let (text, result) = (self.texts[step].clone(), self.result.clone());
                let mut batch = StatementBatch::default();
                batch.add_unprepared("BEGIN");
                self.history(&mut batch, &columns, step, &text);
                match step {
                    0 => self.create(&mut batch, &columns),
                    1 => self.lease(&mut batch, &columns),
                    _ => self.commit(&mut batch, &columns, &result),
                }
                batch.add(LOCK_LOG_END, Vec::new());
                batch.add(INSERT_BATCH, vec![sql_parameter(size), sql_parameter(self.last_batch)]);
                let state = i32::try_from(step)? + 1;
                batch.add(UPDATE_STATE_COUNT, vec![sql_parameter(state), sql_parameter(size)]);
                if step > 0 {
                    batch.add(UPDATE_STATE_COUNT, vec![sql_parameter(state - 1), sql_parameter(-size)]);
                }
                batch.add_unprepared("COMMIT");
                self.connection.run(&batch).await?;
            }
            remaining -= size;
        }
        Ok(())
    }

    fn includes(&self, part: &str) -> bool {
        self.skipped_part != part
    }

    /// Loads what a step needs: two round trips before a lease, one before a report.
    async fn load_before_step(&mut self, columns: &StepColumns, step: usize) -> BenchResult {
        if !self.includes("loads") || !self.includes("id index") {
            return Ok(());
        }
        let size = i64::try_from(columns.rows.len())?;
        if step == 1 && self.includes("ready") && self.includes("records") {
            let mut batch = StatementBatch::default();
            batch.add(
                SELECT_LEASABLE,
                vec![sql_parameter(columns.times[0] - 1), sql_parameter(i64::MAX), sql_parameter(size)],
            );
            let answers = self.connection.run(&batch).await?;
            for row in &answers[0] {
                row.try_get::<_, Uuid>(4)?;
            }
            if answers[0].len() != columns.rows.len() {
                return Err("not all jobs were ready".into());
            }
        }
        let mut batch = StatementBatch::default();
        batch.add(SELECT_RECORDS, vec![sql_parameter(&columns.ids[..])]);
        let answers = self.connection.run(&batch).await?;
        if self.includes("records") && answers[0].len() != columns.rows.len() {
            return Err("not all jobs were found".into());
        }
        Ok(())
    }

    fn history<'a>(&self, batch: &mut StatementBatch<'a>, columns: &'a StepColumns, step: usize, text: &'a str) {
        if self.includes("history") {
            let version = i64::try_from(step).unwrap_or(0) + 1;
            let previous: Vec<Option<i64>> =
                columns.entry_ids.iter().map(|place| (step > 0).then_some(place - (1 << 20))).collect();
            let parameters = vec![
                sql_parameter(&columns.entry_ids[..]),
                columns.rows(),
                sql_parameter(vec![version; columns.rows.len()]),
                columns.times(),
                sql_parameter(previous),
                columns.repeated(text),
                columns.heads(),
            ];
            batch.add(INSERT_HISTORY, parameters);
        }
    }

    fn create<'a>(&self, batch: &mut StatementBatch<'a>, columns: &'a StepColumns) {
        if self.includes("records") {
            let (owners, fields) = (columns.repeated("ann"), columns.repeated(JOB_FIELDS_JSON));
            let entries = sql_parameter(&columns.entry_ids[..]);
            let ids = sql_parameter(&columns.ids[..]);
            batch.add(
                INSERT_RECORDS,
                vec![columns.rows(), ids, owners, fields, columns.times(), columns.heads(), entries],
            );
        }
        if self.includes("ready") {
            batch.add(INSERT_READY, vec![columns.times(), columns.rows()]);
        }
    }

    fn update_records<'a>(&self, batch: &mut StatementBatch<'a>, columns: &'a StepColumns, sql: &'static str) {
        if self.includes("records") {
            let (fields, entries) = (columns.repeated(JOB_FIELDS_JSON), sql_parameter(&columns.entry_ids[..]));
            batch.add(sql, vec![columns.rows(), fields, columns.times(), columns.heads(), entries]);
        }
    }

    fn lease<'a>(&self, batch: &mut StatementBatch<'a>, columns: &'a StepColumns) {
        self.update_records(batch, columns, UPDATE_LEASED);
        if self.includes("executions") {
            let workers = columns.repeated("worker-1");
            batch.add(INSERT_EXECUTIONS, vec![columns.rows(), workers, columns.times()]);
        }
        if self.includes("timers") {
            batch.add(INSERT_TIMERS, vec![columns.times(), columns.rows()]);
        }
        if self.includes("ready") {
            batch.add(DELETE_READY, vec![columns.ones(), columns.times(), columns.rows()]);
        }
    }

    fn commit<'a>(&self, batch: &mut StatementBatch<'a>, columns: &'a StepColumns, result: &'a str) {
        self.update_records(batch, columns, UPDATE_DONE);
        if self.includes("executions") {
            batch.add(UPDATE_EXECUTIONS, vec![columns.rows(), columns.ones(), columns.times()]);
        }
        if self.includes("effects") {
            batch.add(INSERT_EFFECTS, vec![columns.rows(), columns.repeated(result)]);
        }
        if self.includes("timers") {
            batch.add(DELETE_TIMERS, vec![columns.times(), columns.rows()]);
        }
    }
}

const JOB_FIELDS_JSON: &str = "[3,0,0,null,null]";
