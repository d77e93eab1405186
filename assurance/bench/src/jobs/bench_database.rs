//! Creates benchmark databases: SQLite files, or databases of a PostgreSQL server that the run starts or the
//! environment names.

use std::error::Error;
use std::path::Path;

use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore};
use onceward_testkit::postgres::{PostgresServer, psql};
use rusqlite::Connection;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls};

use crate::baseline::{Baseline, BaselineParts, PostgresBaseline, SqliteBaseline};
use crate::engine::{self, BenchEngine};
use crate::machine::{self, BenchDir};

/// Enough memory and WAL that neither is the bottleneck. Added to the settings of the tests' server.
const SERVER_SETTINGS: &[&str] = &["shared_buffers=512MB", "max_wal_size=4GB", "checkpoint_timeout=15min"];

/// Enabled only on request, because collecting statistics costs time.
const STATEMENT_STATS_SETTINGS: &[&str] =
    &["shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track=all"];

pub(crate) struct BenchDatabase {
    pub(crate) dir: BenchDir,
    server: Option<PostgresServer>,
    /// The server's first process; 0 on SQLite.
    postmaster_pid: u32,
}

/// A snapshot that stays open until it is dropped.
pub(crate) enum HeldSnapshot {
    Sqlite { _connection: Connection },
    Postgres { _client: Client },
}

impl BenchDatabase {
    pub(crate) fn sqlite() -> Result<Self, Box<dyn Error>> {
        Ok(Self { dir: BenchDir::new()?, server: None, postmaster_pid: 0 })
    }

    /// Uses the server that `ONCEWARD_POSTGRES` names, or starts one.
    pub(crate) fn postgres(with_statement_stats: bool) -> Result<Self, Box<dyn Error>> {
        let mut settings = SERVER_SETTINGS.to_vec();
        if with_statement_stats {
            settings.extend(STATEMENT_STATS_SETTINGS);
        }
        let server = PostgresServer::from_env().unwrap_or_else(|| PostgresServer::start_with(&settings));
        let file = psql(&format!("{}/postgres", server.url()), "SELECT pg_read_file('postmaster.pid')");
        let postmaster = file.lines().next().ok_or("an empty postmaster.pid")?.trim().parse()?;
        Ok(Self { dir: BenchDir::new()?, server: Some(server), postmaster_pid: postmaster })
    }

    pub(crate) fn name(&self) -> &'static str {
        if self.server.is_some() { "PostgreSQL" } else { "SQLite" }
    }

    /// Builds a runtime like that of `onceward serve`.
    pub(crate) fn runtime(&self) -> std::io::Result<Runtime> {
        let mut builder = Builder::new_multi_thread();
        if self.server.is_none() && std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
            builder.worker_threads(SqliteStore::runtime_threads());
        }
        builder.enable_all().build()
    }

    /// Returns how many connections a baseline uses: as many as the engine writes with.
    pub(crate) fn baseline_connections(&self) -> usize {
        if self.server.is_some() { 2 } else { 1 }
    }

    pub(crate) fn baseline_parts(&self) -> BaselineParts {
        if self.server.is_some() { PostgresBaseline::PARTS } else { SqliteBaseline::PARTS }
    }

    /// Creates an empty database and returns its path or URL.
    pub(crate) fn new_database(&self, name: &str) -> String {
        match &self.server {
            Some(server) => server.create_database(),
            None => self.dir.file(&format!("{name}.db")).to_string_lossy().into_owned(),
        }
    }

    pub(crate) fn new_engine(&self, runtime: &Runtime, name: &str) -> Result<BenchEngine, Box<dyn Error>> {
        self.engine_at(runtime, &self.new_database(name))
    }

    pub(crate) fn engine_at(&self, runtime: &Runtime, database: &str) -> Result<BenchEngine, Box<dyn Error>> {
        runtime.block_on(async {
            let store = match &self.server {
                Some(_) => AnyStore::Postgres(PostgresStore::open(database).await?),
                None => AnyStore::Sqlite(SqliteStore::open(Path::new(database), Clock::machine())?),
            };
            Ok(engine::open_engine(store).await?)
        })
    }

    pub(crate) fn new_baseline(
        &self,
        name: &str,
        texts: &[String; 3],
        skipped_part: &'static str,
        connections: usize,
    ) -> Result<Box<dyn Baseline>, Box<dyn Error>> {
        self.baseline_at(&self.new_database(name), texts, skipped_part, connections)
    }

    pub(crate) fn baseline_at(
        &self,
        database: &str,
        texts: &[String; 3],
        skipped_part: &'static str,
        connections: usize,
    ) -> Result<Box<dyn Baseline>, Box<dyn Error>> {
        Ok(match &self.server {
            Some(_) => Box::new(PostgresBaseline::open(database, texts, skipped_part, connections)?),
            None => Box::new(SqliteBaseline::open(Path::new(database), texts, skipped_part)?),
        })
    }

    /// Returns the log text of one job's three operations, for the baseline to write.
    pub(crate) fn job_log_texts(&self, runtime: &Runtime) -> Result<[String; 3], Box<dyn Error>> {
        let engine = self.new_engine(runtime, "texts")?;
        runtime.block_on(engine::job_log_texts(&engine))
    }

    /// Returns the processor seconds so far of this process, and of the server with all its children.
    pub(crate) fn cpu_seconds(&self) -> Result<(f64, f64), Box<dyn Error>> {
        let own = machine::process_cpu_seconds()?;
        Ok((own, if self.server.is_some() { machine::server_cpu_seconds(self.postmaster_pid)? } else { 0.0 }))
    }

    /// Opens a snapshot of this database and keeps it open.
    pub(crate) fn hold_snapshot(&self, runtime: &Runtime, database: &str) -> Result<HeldSnapshot, Box<dyn Error>> {
        if self.server.is_none() {
            let connection = Connection::open(database)?;
            connection.execute_batch("BEGIN")?;
            connection.query_row("SELECT seq FROM log_seq", [], |_| Ok(()))?;
            return Ok(HeldSnapshot::Sqlite { _connection: connection });
        }
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(database, NoTls).await?;
            tokio::spawn(connection);
            client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM onceward.names").await?;
            Ok(HeldSnapshot::Postgres { _client: client })
        })
    }

    /// Moves all delayed jobs into the ready table, to compare with the time before they had a table of their own.
    pub(crate) fn move_delayed_to_ready(&self, database: &str) -> Result<(), Box<dyn Error>> {
        let sql = |schema: &str| {
            format!(
                "INSERT INTO {schema}ready (lifecycle, rank, record, ready_at, definition, key) \
                 SELECT lifecycle, rank, record, ready_at, definition, key FROM {schema}later; DELETE FROM {schema}later"
            )
        };
        if self.server.is_some() {
            psql(database, &sql("onceward."));
        } else {
            Connection::open(database)?.execute_batch(&sql(""))?;
        }
        Ok(())
    }

    /// Returns the size of the WAL (SQLite), or of tables with indexes and dead rows (PostgreSQL).
    pub(crate) fn table_sizes(&self, database: &str) -> String {
        if self.server.is_none() {
            let wal = std::fs::metadata(format!("{database}-wal")).map_or(0, |data| data.len() >> 20);
            return format!("WAL: {wal} MB");
        }
        psql(
            database,
            "SELECT format('%-11s %9s live %8s dead %8s kB table %8s kB indexes, vacuumed %s times', relname, n_live_tup, \
             n_dead_tup, pg_table_size(relid) / 1024, pg_indexes_size(relid) / 1024, autovacuum_count) \
             FROM pg_stat_user_tables WHERE schemaname = 'onceward' AND n_tup_ins > 100 OR relname = 'state_counts' ORDER BY relname",
        )
    }

    /// Resets the statement statistics.
    pub(crate) fn reset_statement_stats(&self, database: &str) {
        if self.server.is_some() {
            psql(database, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements; SELECT pg_stat_statements_reset()");
        }
    }

    /// Returns the cost of each statement per job, most expensive first.
    pub(crate) fn statement_costs(database: &str, job_count: usize) -> String {
        let sql = format!(
            "SELECT format('%8s calls %9s rows %8s us  %6s wal bytes  %s', calls, rows, \
             round((total_exec_time * 1000 / {job_count})::numeric, 2), round(wal_bytes / {job_count}), left(query, 100)) \
             FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) \
             ORDER BY total_exec_time DESC LIMIT 40"
        );
        psql(database, &sql)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables come from the store's schema, so the baseline's statements may become outdated.
    #[test]
    fn baselines_run_on_current_schema() {
        let runtime = Runtime::new().expect("a runtime");
        for database in [BenchDatabase::sqlite(), BenchDatabase::postgres(false)] {
            let bench_db = database.expect("database is available");
            let texts = bench_db.job_log_texts(&runtime).expect("log texts of a job are readable");
            for without in [""].into_iter().chain(bench_db.baseline_parts().iter().map(|(part, _)| *part)) {
                let name = format!("baseline without {without}");
                let mut baseline =
                    bench_db.new_baseline(&name, &texts, without, bench_db.baseline_connections()).expect(&name);
                baseline.run_jobs(5, 2).unwrap_or_else(|error| panic!("{}, {name}: {error}", bench_db.name()));
            }
        }
    }
}
