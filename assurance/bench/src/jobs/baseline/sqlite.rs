//! The baseline on SQLite: one thread, one connection.

use std::error::Error;
use std::path::Path;

use rusqlite::{Connection, params};

use super::{Baseline, BaselineParts, row_hash, row_id, row_time};

/// The store's own schema, so that the baseline has each new index and column.
const SCHEMA_SQL: &str = include_str!("../../../../../crates/store/src/sqlite/migrations/0001_first.sql");

const BASELINE_PARTS: BaselineParts = &[
    ("history", "3 inserts, with the texts of a real job"),
    ("records", "1 insert, 2 updates"),
    ("id index", "1 insert, the unique index from id to row"),
    ("executions", "1 insert, 1 update"),
    ("effects", "1 insert"),
    ("ready", "1 insert, 1 delete"),
    ("timers", "1 insert, 1 delete"),
    ("loads", "2 selects of the record with its execution, by id; 1 of the job to lease, from ready"),
];

pub(crate) struct SqliteBaseline {
    connection: Connection,
    skipped_part: &'static str,
    texts: [String; 3],
    last_row: i64,
    seq: i64,
}

type BenchResult = Result<(), Box<dyn Error>>;

/// The state of a record when it is first written.
#[derive(Clone, Copy)]
struct RecordStage {
    state: i64,
    version: i64,
    attempt: i64,
}

impl Baseline for SqliteBaseline {
    fn run_jobs(&mut self, count: i64, batch: i64) -> BenchResult {
        let mut remaining = count;
        while remaining > 0 {
            let size = remaining.min(batch);
            let first = self.last_row + 1;
            self.last_row += size;
            self.transaction(size, |floor| floor.create(first, size))?;
            self.transaction(size, |floor| floor.lease(first, size))?;
            self.transaction(size, |floor| floor.commit(first, size))?;
            remaining -= size;
        }
        Ok(())
    }

    fn create_leased(&mut self) -> Result<bool, Box<dyn Error>> {
        self.last_row += 1;
        let row = self.last_row;
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        self.insert_history(row, 1, 0)?;
        self.seq += 1;
        self.insert_history(row, 1, 1)?;
        // Write each row once, as a batch with a sync match does: the job never enters the ready table.
        self.insert_records(row, 1, RecordStage { state: 1, version: 2, attempt: 1 })?;
        self.insert_executions(row, 1)?;
        self.update_state_counts(0, 2, 1)?;
        self.insert_timers(row, 1)?;
        self.end_transaction(1)?;
        Ok(true)
    }

    fn commit_leased(&mut self) -> BenchResult {
        let row = self.last_row;
        self.transaction(1, |floor| floor.commit(row, 1))
    }
}

impl SqliteBaseline {
    pub(crate) const PARTS: BaselineParts = BASELINE_PARTS;

    pub(crate) fn open(path: &Path, texts: &[String; 3], skipped_part: &'static str) -> Result<Self, Box<dyn Error>> {
        let connection = Connection::open(path)?;
        for (setting, value) in [("journal_mode", "WAL"), ("synchronous", "FULL"), ("temp_store", "MEMORY")] {
            connection.pragma_update(None, setting, value)?;
        }
        connection.pragma_update(None, "wal_autocheckpoint", 8_000)?;
        connection.pragma_update(None, "cache_size", -32_768)?;
        connection.set_prepared_statement_cache_capacity(64);
        let mut schema = SCHEMA_SQL.to_owned();
        if skipped_part == "id index" {
            schema = schema.replace("id            BLOB NOT NULL UNIQUE", "id            BLOB NOT NULL");
        }
        connection.execute_batch(&schema)?;
        connection.execute_batch(
            "INSERT INTO sources VALUES (1, ''); INSERT INTO definitions VALUES (1, 'a', 'b', 1); \
             INSERT INTO state_counts VALUES (1, 'ann', 1, 0), (1, 'ann', 2, 0), (1, 'ann', 3, 0)",
        )?;
        Ok(Self { connection, skipped_part, texts: texts.clone(), last_row: 0, seq: 0 })
    }

    fn includes(&self, part: &str) -> bool {
        self.skipped_part != part
    }

    fn transaction(&mut self, size: i64, write_rows: impl FnOnce(&Self) -> BenchResult) -> BenchResult {
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        write_rows(self)?;
        self.end_transaction(size)
    }

    fn end_transaction(&mut self, size: i64) -> BenchResult {
        self.seq += size;
        self.connection.prepare_cached("UPDATE log_seq SET seq = ?1")?.execute([self.seq])?;
        self.connection.execute_batch("COMMIT")?;
        Ok(())
    }

    fn insert_history(&self, first: i64, size: i64, step: usize) -> BenchResult {
        if !self.includes("history") {
            return Ok(());
        }
        let sql =
            "INSERT INTO history (seq, record, version, at, previous, text, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let mut statement = self.connection.prepare_cached(sql)?;
        for number in 0..size {
            let (seq, row) = (self.seq + 1 + number, first + number);
            let previous = (step > 0).then_some(seq - size);
            statement.execute(params![seq, row, step + 1, row_time(row), previous, self.texts[step], row_hash(row)])?;
        }
        Ok(())
    }

    fn update_state_counts(&self, from: i64, to: i64, size: i64) -> BenchResult {
        let sql = "UPDATE state_counts SET count = count + ?4 WHERE definition = ?1 AND owner = ?2 AND state = ?3";
        let mut statement = self.connection.prepare_cached(sql)?;
        statement.execute(params![1, "ann", to, size])?;
        if from > 0 {
            statement.execute(params![1, "ann", from, -size])?;
        }
        Ok(())
    }

    fn execute_per_row(
        &self,
        part: &str,
        sql: &str,
        first: i64,
        size: i64,
        values: impl Fn(&mut rusqlite::Statement, i64) -> rusqlite::Result<usize>,
    ) -> BenchResult {
        if self.includes(part) {
            let mut statement = self.connection.prepare_cached(sql)?;
            for row in first..first + size {
                values(&mut statement, row)?;
            }
        }
        Ok(())
    }

    fn load_records(&self, first: i64, size: i64) -> BenchResult {
        if !self.includes("loads") || !self.includes("id index") {
            return Ok(());
        }
        let mut statement = self.connection.prepare_cached("SELECT * FROM records_with_execution WHERE id = ?1")?;
        for row in first..first + size {
            let mut found = statement.query([row_id(row)])?;
            let found = found.next()?;
            assert!(!self.includes("records") || found.is_some_and(|found| found.get::<_, i64>(0) == Ok(row)));
        }
        Ok(())
    }

    fn insert_records(&self, first: i64, size: i64, stage: RecordStage) -> BenchResult {
        let sql = "INSERT INTO records (row, id, definition, state, version, owner, fields, attempt, created_at, updated_at, \
                   started_at, finished_at, entered_at, hold, timers, committed, payload, payload_bytes, stuck, head, entry) \
                   VALUES (?1, ?2, 1, ?7, ?8, 'ann', ?3, ?9, ?4, ?4, NULL, NULL, ?4, 0, NULL, NULL, NULL, NULL, NULL, ?5, ?6)";
        let fields = "[3,0,0,null,null]";
        let RecordStage { state, version, attempt } = stage;
        self.execute_per_row("records", sql, first, size, |statement, row| {
            statement.execute(params![
                row,
                row_id(row),
                fields,
                row_time(row),
                row_hash(row),
                row,
                state,
                version,
                attempt
            ])
        })
    }

    fn insert_executions(&self, first: i64, size: i64) -> BenchResult {
        let sql = "INSERT INTO executions (record, token, worker, holder, status, leased_at, expires_at, started_at, \
                   finished_at, abort_code, abort_retryable, finish_pending, key) \
                   VALUES (?1, 1, 'worker-1', 'worker-1', 1, ?2, ?2, ?2, NULL, NULL, NULL, 0, NULL)";
        self.execute_per_row("executions", sql, first, size, |statement, row| {
            statement.execute(params![row, row_time(row)])
        })
    }

    fn insert_timers(&self, first: i64, size: i64) -> BenchResult {
        let sql = "INSERT INTO timers (due_at, record) VALUES (?1, ?2)";
        self.execute_per_row("timers", sql, first, size, |statement, row| {
            statement.execute(params![row_time(row), row])
        })
    }

    fn create(&self, first: i64, size: i64) -> BenchResult {
        self.insert_history(first, size, 0)?;
        self.insert_records(first, size, RecordStage { state: 0, version: 1, attempt: 0 })?;
        self.update_state_counts(0, 1, size)?;
        let sql =
            "INSERT INTO ready (lifecycle, rank, record, ready_at, definition, key) VALUES (1, ?1, ?2, ?1, 1, NULL)";
        self.execute_per_row("ready", sql, first, size, |statement, row| statement.execute(params![row_time(row), row]))
    }

    fn lease(&self, first: i64, size: i64) -> BenchResult {
        if self.includes("loads") && self.includes("ready") {
            let sql = "SELECT w.rank, w.record, w.definition, w.key, r.id FROM ready w JOIN records r ON r.row = w.record \
                       WHERE w.lifecycle = 1 AND w.ready_at <= ?1 ORDER BY w.rank, w.record LIMIT ?2";
            let mut statement = self.connection.prepare_cached(sql)?;
            let mut found = statement.query(params![i64::MAX, size])?;
            while let Some(row) = found.next()? {
                row.get::<_, [u8; 16]>(4)?;
            }
        }
        self.load_records(first, size)?;
        self.insert_history(first, size, 1)?;
        let sql = "UPDATE records SET state = 1, version = 2, fields = ?3, attempt = 1, updated_at = ?4, started_at = ?4, \
                   finished_at = NULL, entered_at = ?4, hold = 0, timers = NULL, committed = NULL, stuck = NULL, head = ?5, \
                   entry = ?6 WHERE row = ?1 AND version = ?2";
        self.execute_per_row("records", sql, first, size, |statement, row| {
            statement.execute(params![row, 1, "[3,0,0,null,null]", row_time(row), row_hash(row), row])
        })?;
        self.insert_executions(first, size)?;
        self.update_state_counts(1, 2, size)?;
        self.insert_timers(first, size)?;
        let sql = "DELETE FROM ready WHERE lifecycle = 1 AND rank = ?1 AND record = ?2";
        self.execute_per_row("ready", sql, first, size, |statement, row| statement.execute(params![row_time(row), row]))
    }

    fn commit(&self, first: i64, size: i64) -> BenchResult {
        self.load_records(first, size)?;
        self.insert_history(first, size, 2)?;
        let sql = "UPDATE records SET state = 2, version = 3, fields = ?3, attempt = 1, updated_at = ?4, started_at = ?4, \
                   finished_at = ?4, entered_at = ?4, hold = 0, timers = NULL, committed = 1, stuck = NULL, head = ?5, \
                   entry = ?6 WHERE row = ?1 AND version = ?2";
        self.execute_per_row("records", sql, first, size, |statement, row| {
            statement.execute(params![row, 2, "[3,0,0,null,null]", row_time(row), row_hash(row), row])
        })?;
        let sql = "UPDATE executions SET status = 3, expires_at = ?2, started_at = ?2, finished_at = ?2, abort_code = NULL, \
                   abort_retryable = NULL, finish_pending = 0, key = NULL WHERE record = ?1 AND token = 1";
        self.execute_per_row("executions", sql, first, size, |statement, row| {
            statement.execute(params![row, row_time(row)])
        })?;
        let sql = "INSERT INTO effects (record, token, result) VALUES (?1, 1, ?2)";
        let result = crate::engine::job_result().to_string();
        self.execute_per_row("effects", sql, first, size, |statement, row| statement.execute(params![row, result]))?;
        self.update_state_counts(2, 3, size)?;
        let sql = "DELETE FROM timers WHERE due_at = ?1 AND record = ?2";
        self.execute_per_row("timers", sql, first, size, |statement, row| {
            statement.execute(params![row_time(row), row])
        })
    }
}
