//! The floor on PostgreSQL: arrays of rows, one statement a table, all of a transaction in one round trip. One connection, or
//! several side by side.

use std::error::Error;

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, NoTls};
use uuid::Uuid;

use super::pipeline::{Batch, Wire, arg};
use super::{Floor, Parts, at, hash, id};

/// The schema itself, so that a new index or column is in the floor as soon as it is in the store.
const SCHEMA: &str = include_str!("../../../../crates/store/src/postgres/migrations/0001_first.sql");

/// As the store's own connections are served.
const OPTIONS: &str = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c jit=off";

const PARTS: Parts = &[
    ("history", "3 inserts, with the texts of a real life"),
    ("history index", "3 inserts, the key of the log"),
    ("records", "1 insert, 2 updates that no index learns of"),
    ("id index", "1 insert, the unique index from id to row"),
    ("executions", "1 insert, 1 update"),
    ("effects", "1 insert"),
    ("effects index", "1 insert, the key of effects"),
    ("ready", "1 insert, 1 delete"),
    ("timers", "1 insert, 1 delete"),
    ("loads", "2 selects of the record with its execution, by id; 1 of the job to lease, from ready"),
];

const HISTORY: &str = "INSERT INTO onceward.history (place, record, version, at, previous, text, hash) \
     SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::bigint[]), \
     unnest($5::bigint[]), unnest($6::text[]), unnest($7::bytea[])";

const CREATE: &str = "INSERT INTO onceward.records (row, id, definition, state, version, owner, fields, attempt, \
     created_at, updated_at, entered_at, hold, head, entry) SELECT k.row, k.id, 1, 0, 1, k.owner, k.fields, 0, k.at, \
     k.at, k.at, 0, k.head, k.entry FROM (SELECT unnest($1::bigint[]) AS row, unnest($2::uuid[]) AS id, \
     unnest($3::text[]) AS owner, unnest($4::text[]) AS fields, unnest($5::bigint[]) AS at, \
     unnest($6::bytea[]) AS head, unnest($7::bigint[]) AS entry) k";

const READY: &str = "INSERT INTO onceward.ready (lifecycle, rank, record, ready_at, definition) \
     SELECT 1, k.at, k.row, k.at, 1 FROM (SELECT unnest($1::bigint[]) AS at, unnest($2::bigint[]) AS row) k";

const LOOK: &str = "SELECT w.rank, w.record, w.definition, w.key, r.id \
     FROM onceward.ready w JOIN onceward.records r ON r.row = w.record \
     WHERE w.lifecycle = 1 AND (w.rank, w.record) > ($1::bigint, 0) AND w.ready_at <= $2::bigint \
     ORDER BY w.rank, w.record LIMIT $3::bigint";

const LOAD: &str = "SELECT * FROM onceward.whole WHERE id = ANY($1::uuid[])";

const LEASED: &str = "UPDATE onceward.records r SET state = 1, version = 2, fields = n.fields, attempt = 1, \
     updated_at = n.at, started_at = n.at, entered_at = n.at, head = n.head, entry = n.entry FROM (SELECT \
     unnest($1::bigint[]) AS row, unnest($2::text[]) AS fields, unnest($3::bigint[]) AS at, \
     unnest($4::bytea[]) AS head, unnest($5::bigint[]) AS entry) n WHERE r.row = n.row AND r.version = 1";

const DONE: &str = "UPDATE onceward.records r SET state = 2, version = 3, fields = n.fields, committed = 1, \
     updated_at = n.at, finished_at = n.at, entered_at = n.at, head = n.head, entry = n.entry \
     FROM (SELECT unnest($1::bigint[]) AS row, unnest($2::text[]) AS fields, unnest($3::bigint[]) AS at, \
     unnest($4::bytea[]) AS head, unnest($5::bigint[]) AS entry) n WHERE r.row = n.row AND r.version = 2";

const BEGIN_EXECUTION: &str = "INSERT INTO onceward.executions (record, token, worker, holder, status, leased_at, \
     expires_at, started_at, finish_moves) SELECT k.row, 1, k.worker, k.worker, 1, k.at, k.at, k.at, false \
     FROM (SELECT unnest($1::bigint[]) AS row, unnest($2::text[]) AS worker, unnest($3::bigint[]) AS at) k";

// A key's first column as a number in the text would have the planner begin at the wrong table.
const END_EXECUTION: &str = "UPDATE onceward.executions e SET status = 3, expires_at = n.at, started_at = n.at, \
     finished_at = n.at FROM (SELECT unnest($1::bigint[]) AS row, unnest($2::bigint[]) AS token, \
     unnest($3::bigint[]) AS at) n WHERE e.record = n.row AND e.token = n.token";

const EFFECTS: &str = "INSERT INTO onceward.effects (record, token, result) SELECT k.row, 1, k.result \
     FROM (SELECT unnest($1::bigint[]) AS row, unnest($2::text[]) AS result) k";

const WIND: &str = "INSERT INTO onceward.timers (due, record) SELECT unnest($1::bigint[]), unnest($2::bigint[])";

const UNWIND: &str = "DELETE FROM onceward.timers WHERE ctid = ANY (ARRAY(SELECT x.ctid \
     FROM (SELECT unnest($1::bigint[]) AS d, unnest($2::bigint[]) AS r) k CROSS JOIN LATERAL \
     (SELECT ctid FROM onceward.timers WHERE due = k.d AND record = k.r OFFSET 0) x))";

const UNREADY: &str = "DELETE FROM onceward.ready WHERE ctid = ANY (ARRAY(SELECT x.ctid \
     FROM (SELECT unnest($1::bigint[]) AS l, unnest($2::bigint[]) AS k, unnest($3::bigint[]) AS r) k CROSS JOIN LATERAL \
     (SELECT ctid FROM onceward.ready WHERE lifecycle = k.l AND rank = k.k AND record = k.r OFFSET 0) x))";

const END: &str = "SELECT one FROM onceward.log_end FOR UPDATE";

const PLACE: &str = "INSERT INTO onceward.batches (last, first, batch) \
     SELECT coalesce(max(last), 0) + $1, coalesce(max(last), 0) + 1, $2 FROM onceward.batches RETURNING first, last";

const TALLY: &str =
    "UPDATE onceward.tallies SET count = count + $2::bigint WHERE definition = 1 AND owner = 'ann' AND state = $1";

type Done = Result<(), Box<dyn Error>>;

pub(crate) struct PostgresFloor {
    /// Where the connections live: no thread but the caller's.
    runtime: Runtime,
    lanes: Vec<Lane>,
}

/// One connection, with rows of its own.
struct Lane {
    wire: Wire,
    without: &'static str,
    texts: [String; 3],
    result: String,
    row: i64,
    batch: i64,
}

impl PostgresFloor {
    pub(crate) const PARTS: Parts = PARTS;

    /// In a database that is empty.
    pub(crate) fn open(
        url: &str,
        texts: &[String; 3],
        without: &'static str,
        connections: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let mut config: Config = url.parse()?;
        config.options(OPTIONS);
        let mut lanes = Vec::new();
        for number in 0..i64::try_from(connections)? {
            let client = runtime.block_on(async {
                let (client, connection) = config.connect(NoTls).await?;
                tokio::spawn(connection);
                if number == 0 {
                    client.batch_execute(&schema(without)).await?;
                }
                Ok::<_, tokio_postgres::Error>(client)
            })?;
            let first = number << 40;
            let result = crate::engine::result().to_string();
            lanes.push(Lane {
                wire: Wire::new(client),
                without,
                texts: texts.clone(),
                result,
                row: first,
                batch: first >> 20,
            });
        }
        Ok(Self { runtime, lanes })
    }
}

fn schema(without: &str) -> String {
    let mut schema = format!("CREATE SCHEMA onceward; {SCHEMA}");
    schema += "INSERT INTO onceward.tallies VALUES (1, 'ann', 1, 0), (1, 'ann', 2, 0), (1, 'ann', 3, 0);";
    schema += match without {
        "history index" => "ALTER TABLE onceward.history DROP CONSTRAINT history_pkey",
        "id index" => "ALTER TABLE onceward.records DROP CONSTRAINT records_id",
        "effects index" => "ALTER TABLE onceward.effects DROP CONSTRAINT effects_pkey",
        _ => "",
    };
    schema
}

impl Floor for PostgresFloor {
    fn lives(&mut self, count: i64, batch: i64) -> Done {
        let each = count / i64::try_from(self.lanes.len())?;
        self.runtime.block_on(async {
            let mut lives: Vec<_> = self.lanes.iter_mut().map(|lane| Box::pin(lane.lives(each, batch))).collect();
            let mut failed = None;
            std::future::poll_fn(|context| {
                lives.retain_mut(|lane| match lane.as_mut().poll(context) {
                    std::task::Poll::Pending => true,
                    std::task::Poll::Ready(done) => {
                        failed = failed.take().or(done.err());
                        false
                    }
                });
                if lives.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
            failed.map_or(Ok(()), Err)
        })
    }

    fn sent(&self) -> Option<(u64, u64)> {
        let wires = || self.lanes.iter().map(|lane| &lane.wire);
        Some((wires().map(|wire| wire.statements).sum(), wires().map(|wire| wire.trips).sum()))
    }
}

/// Columns that several statements of a step need.
struct Columns {
    rows: Vec<i64>,
    times: Vec<i64>,
    ids: Vec<Uuid>,
    hashes: Vec<[u8; 32]>,
    places: Vec<i64>,
}

impl Columns {
    fn new(first: i64, size: i64, batch: i64) -> Self {
        let rows = || first..first + size;
        Self {
            rows: rows().collect(),
            times: rows().map(at).collect(),
            ids: rows().map(|row| Uuid::from_bytes(id(row))).collect(),
            hashes: rows().map(hash).collect(),
            places: (0..size).map(|number| (batch << 20) + number).collect(),
        }
    }

    fn rows(&self) -> Box<dyn ToSql + Sync + '_> {
        arg(&self.rows[..])
    }

    fn ones(&self) -> Box<dyn ToSql + Sync> {
        arg(vec![1_i64; self.rows.len()])
    }

    fn times(&self) -> Box<dyn ToSql + Sync + '_> {
        arg(&self.times[..])
    }

    fn heads(&self) -> Box<dyn ToSql + Sync + '_> {
        arg(self.hashes.iter().map(|hash| &hash[..]).collect::<Vec<_>>())
    }

    fn all<'a>(&self, text: &'a str) -> Box<dyn ToSql + Sync + 'a> {
        arg(vec![text; self.rows.len()])
    }
}

impl Lane {
    async fn lives(&mut self, count: i64, batch: i64) -> Done {
        let mut left = count;
        while left > 0 {
            let size = left.min(batch);
            let first = self.row + 1;
            self.row += size;
            for step in 0..3 {
                self.batch += 1;
                let columns = Columns::new(first, size, self.batch);
                if step > 0 {
                    self.look(&columns, step).await?;
                }
                let (text, result) = (self.texts[step].clone(), self.result.clone());
                let mut batch = Batch::default();
                batch.plain("BEGIN");
                self.history(&mut batch, &columns, step, &text);
                match step {
                    0 => self.create(&mut batch, &columns),
                    1 => self.lease(&mut batch, &columns),
                    _ => self.commit(&mut batch, &columns, &result),
                }
                batch.add(END, Vec::new());
                batch.add(PLACE, vec![arg(size), arg(self.batch)]);
                let state = i32::try_from(step)? + 1;
                batch.add(TALLY, vec![arg(state), arg(size)]);
                if step > 0 {
                    batch.add(TALLY, vec![arg(state - 1), arg(-size)]);
                }
                batch.plain("COMMIT");
                self.wire.run(&batch).await?;
            }
            left -= size;
        }
        Ok(())
    }

    fn has(&self, part: &str) -> bool {
        self.without != part
    }

    /// What must be known before a step is taken: two round trips to lease, one to report.
    async fn look(&mut self, columns: &Columns, step: usize) -> Done {
        if !self.has("loads") || !self.has("id index") {
            return Ok(());
        }
        let size = i64::try_from(columns.rows.len())?;
        if step == 1 && self.has("ready") && self.has("records") {
            let mut batch = Batch::default();
            batch.add(LOOK, vec![arg(columns.times[0] - 1), arg(i64::MAX), arg(size)]);
            let answers = self.wire.run(&batch).await?;
            for row in &answers[0] {
                row.try_get::<_, Uuid>(4)?;
            }
            if answers[0].len() != columns.rows.len() {
                return Err("not all jobs were ready".into());
            }
        }
        let mut batch = Batch::default();
        batch.add(LOAD, vec![arg(&columns.ids[..])]);
        let answers = self.wire.run(&batch).await?;
        if self.has("records") && answers[0].len() != columns.rows.len() {
            return Err("not all jobs were found".into());
        }
        Ok(())
    }

    fn history<'a>(&self, batch: &mut Batch<'a>, columns: &'a Columns, step: usize, text: &'a str) {
        if self.has("history") {
            let version = i64::try_from(step).unwrap_or(0) + 1;
            let previous: Vec<Option<i64>> =
                columns.places.iter().map(|place| (step > 0).then_some(place - (1 << 20))).collect();
            let parameters = vec![
                arg(&columns.places[..]),
                columns.rows(),
                arg(vec![version; columns.rows.len()]),
                columns.times(),
                arg(previous),
                columns.all(text),
                columns.heads(),
            ];
            batch.add(HISTORY, parameters);
        }
    }

    fn create<'a>(&self, batch: &mut Batch<'a>, columns: &'a Columns) {
        if self.has("records") {
            let (owners, fields) = (columns.all("ann"), columns.all(FIELDS));
            let entries = arg(&columns.places[..]);
            let ids = arg(&columns.ids[..]);
            batch.add(CREATE, vec![columns.rows(), ids, owners, fields, columns.times(), columns.heads(), entries]);
        }
        if self.has("ready") {
            batch.add(READY, vec![columns.times(), columns.rows()]);
        }
    }

    fn change<'a>(&self, batch: &mut Batch<'a>, columns: &'a Columns, sql: &'static str) {
        if self.has("records") {
            let (fields, entries) = (columns.all(FIELDS), arg(&columns.places[..]));
            batch.add(sql, vec![columns.rows(), fields, columns.times(), columns.heads(), entries]);
        }
    }

    fn lease<'a>(&self, batch: &mut Batch<'a>, columns: &'a Columns) {
        self.change(batch, columns, LEASED);
        if self.has("executions") {
            let workers = columns.all("worker-1");
            batch.add(BEGIN_EXECUTION, vec![columns.rows(), workers, columns.times()]);
        }
        if self.has("timers") {
            batch.add(WIND, vec![columns.times(), columns.rows()]);
        }
        if self.has("ready") {
            batch.add(UNREADY, vec![columns.ones(), columns.times(), columns.rows()]);
        }
    }

    fn commit<'a>(&self, batch: &mut Batch<'a>, columns: &'a Columns, result: &'a str) {
        self.change(batch, columns, DONE);
        if self.has("executions") {
            batch.add(END_EXECUTION, vec![columns.rows(), columns.ones(), columns.times()]);
        }
        if self.has("effects") {
            batch.add(EFFECTS, vec![columns.rows(), columns.all(result)]);
        }
        if self.has("timers") {
            batch.add(UNWIND, vec![columns.times(), columns.rows()]);
        }
    }
}

const FIELDS: &str = "[3,0,0,null,null]";
