//! Where lives are lived: files of SQLite, or databases of a PostgreSQL server, this run's own or one that was given.

use std::error::Error;
use std::path::Path;

use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore};
use onceward_testkit::postgres::{Server, psql};
use rusqlite::Connection;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls};

use crate::engine::{self, Lives};
use crate::floor::{Floor, Parts, PostgresFloor, SqliteFloor};
use crate::machine::{self, Folder};

/// Beside what the tests' server is given: memory and log enough that neither is what is measured.
const SETTINGS: &[&str] = &["shared_buffers=512MB", "max_wal_size=4GB", "checkpoint_timeout=15min"];

/// What statements cost is counted only where it is asked for: counting costs too.
const COUNTING: &[&str] = &["shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track=all"];

pub(crate) struct Place {
    pub(crate) folder: Folder,
    server: Option<Server>,
    /// The server's first process, where there is one.
    postmaster: u32,
}

/// A snapshot that somebody holds open, for as long as this lives.
pub(crate) enum Snapshot {
    Sqlite { _connection: Connection },
    Postgres { _client: Client },
}

impl Place {
    pub(crate) fn sqlite() -> Result<Self, Box<dyn Error>> {
        Ok(Self { folder: Folder::new()?, server: None, postmaster: 0 })
    }

    /// The server that `ONCEWARD_POSTGRES` names, or one of this run's own.
    pub(crate) fn postgres(counting: bool) -> Result<Self, Box<dyn Error>> {
        let mut settings = SETTINGS.to_vec();
        if counting {
            settings.extend(COUNTING);
        }
        let server = Server::given().unwrap_or_else(|| Server::start_with(&settings));
        let file = psql(&format!("{}/postgres", server.url()), "SELECT pg_read_file('postmaster.pid')");
        let postmaster = file.lines().next().ok_or("an empty postmaster.pid")?.trim().parse()?;
        Ok(Self { folder: Folder::new()?, server: Some(server), postmaster })
    }

    pub(crate) fn name(&self) -> &'static str {
        if self.server.is_some() { "PostgreSQL" } else { "SQLite" }
    }

    /// As `onceward serve` has it.
    pub(crate) fn runtime(&self) -> std::io::Result<Runtime> {
        let mut builder = Builder::new_multi_thread();
        if self.server.is_none() && std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
            builder.worker_threads(SqliteStore::runtime_threads());
        }
        builder.enable_all().build()
    }

    /// How many connections a floor may use: those of the engine, where it has several.
    pub(crate) fn connections(&self) -> usize {
        if self.server.is_some() { 2 } else { 1 }
    }

    pub(crate) fn parts(&self) -> Parts {
        if self.server.is_some() { PostgresFloor::PARTS } else { SqliteFloor::PARTS }
    }

    /// A new database, empty: a path or a URL.
    pub(crate) fn database(&self, name: &str) -> String {
        match &self.server {
            Some(server) => server.database(),
            None => self.folder.file(&format!("{name}.db")).to_string_lossy().into_owned(),
        }
    }

    pub(crate) fn engine(&self, runtime: &Runtime, name: &str) -> Result<Lives, Box<dyn Error>> {
        self.engine_at(runtime, &self.database(name))
    }

    pub(crate) fn engine_at(&self, runtime: &Runtime, database: &str) -> Result<Lives, Box<dyn Error>> {
        runtime.block_on(async {
            let store = match &self.server {
                Some(_) => AnyStore::Postgres(PostgresStore::open(database).await?),
                None => AnyStore::Sqlite(SqliteStore::open(Path::new(database), Clock::machine())?),
            };
            Ok(engine::open(store).await?)
        })
    }

    pub(crate) fn floor(
        &self,
        name: &str,
        texts: &[String; 3],
        without: &'static str,
        connections: usize,
    ) -> Result<Box<dyn Floor>, Box<dyn Error>> {
        self.floor_at(&self.database(name), texts, without, connections)
    }

    pub(crate) fn floor_at(
        &self,
        database: &str,
        texts: &[String; 3],
        without: &'static str,
        connections: usize,
    ) -> Result<Box<dyn Floor>, Box<dyn Error>> {
        Ok(match &self.server {
            Some(_) => Box::new(PostgresFloor::open(database, texts, without, connections)?),
            None => Box::new(SqliteFloor::open(Path::new(database), texts, without)?),
        })
    }

    /// What the log says of one life: three texts, for the floor to write.
    pub(crate) fn texts(&self, runtime: &Runtime) -> Result<[String; 3], Box<dyn Error>> {
        let engine = self.engine(runtime, "texts")?;
        runtime.block_on(engine::texts(&engine))
    }

    /// Processor seconds so far: this process's, and the server's with all its children.
    pub(crate) fn processor_seconds(&self) -> Result<(f64, f64), Box<dyn Error>> {
        let own = machine::processor_seconds()?;
        Ok((own, if self.server.is_some() { machine::server_seconds(self.postmaster)? } else { 0.0 }))
    }

    /// A snapshot of this database, held open.
    pub(crate) fn hold(&self, runtime: &Runtime, database: &str) -> Result<Snapshot, Box<dyn Error>> {
        if self.server.is_none() {
            let connection = Connection::open(database)?;
            connection.execute_batch("BEGIN")?;
            connection.query_row("SELECT seq FROM counter", [], |_| Ok(()))?;
            return Ok(Snapshot::Sqlite { _connection: connection });
        }
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(database, NoTls).await?;
            tokio::spawn(connection);
            client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM onceward.names").await?;
            Ok(Snapshot::Postgres { _client: client })
        })
    }

    /// Put all that waits for its time among what may be leased, where it stood before it had a table of its own.
    pub(crate) fn put_among_the_ready(&self, database: &str) -> Result<(), Box<dyn Error>> {
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

    /// How large it has grown: the log that waits to be checkpointed, or tables with their indexes and dead rows.
    pub(crate) fn sizes(&self, database: &str) -> String {
        if self.server.is_none() {
            let wal = std::fs::metadata(format!("{database}-wal")).map_or(0, |data| data.len() >> 20);
            return format!("WAL: {wal} MB");
        }
        psql(
            database,
            "SELECT format('%-11s %9s live %8s dead %8s kB table %8s kB indexes, vacuumed %s times', relname, n_live_tup, \
             n_dead_tup, pg_table_size(relid) / 1024, pg_indexes_size(relid) / 1024, autovacuum_count) \
             FROM pg_stat_user_tables WHERE schemaname = 'onceward' AND n_tup_ins > 100 OR relname = 'tallies' ORDER BY relname",
        )
    }

    /// Forget what statements have cost so far.
    pub(crate) fn count_anew(&self, database: &str) {
        if self.server.is_some() {
            psql(database, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements; SELECT pg_stat_statements_reset()");
        }
    }

    /// What each statement has cost a life, the dearest first.
    pub(crate) fn statements(database: &str, lives: usize) -> String {
        let sql = format!(
            "SELECT format('%8s calls %9s rows %8s us  %6s wal bytes  %s', calls, rows, \
             round((total_exec_time * 1000 / {lives})::numeric, 2), round(wal_bytes / {lives}), left(query, 100)) \
             FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) \
             ORDER BY total_exec_time DESC LIMIT 40"
        );
        psql(database, &sql)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A floor takes its tables from the store's own schema, so that its statements can be out of date.
    #[test]
    fn the_floors_know_the_schema_as_it_is() {
        let runtime = Runtime::new().expect("a runtime");
        for place in [Place::sqlite(), Place::postgres(false)] {
            let place = place.expect("a place");
            let texts = place.texts(&runtime).expect("the texts of a life");
            for without in [""].into_iter().chain(place.parts().iter().map(|(part, _)| *part)) {
                let name = format!("floor without {without}");
                let mut floor = place.floor(&name, &texts, without, place.connections()).expect(&name);
                floor.lives(5, 2).unwrap_or_else(|error| panic!("{}, {name}: {error}", place.name()));
            }
        }
    }
}
