//! Kills engine processes at random moments.
//!
//! Each process serves dozens of clients. It is killed a random time after its n-th reply, and the database must
//! contain what it acknowledged. On PostgreSQL, three processes share one database: one is killed, the others go on.

use std::fmt;

use anyhow::{Context as _, Result, ensure};
use onceward_core::time::Time;
use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore};
use onceward_testkit::TempDir;
use onceward_testkit::postgres::PostgresServer;
use onceward_testkit::random::Rng;

use crate::ack_ledger::AckLedger;
use crate::client::LoadClient;
use crate::process::{EngineProcess, ProcessMessage, ProcessMonitor};
use crate::requests::RequestOutcome;
use crate::verify;

/// With 32 or more callers, an engine has two batches in flight.
const CLIENTS_PER_PROCESS: usize = 64;

/// A process answers each of its clients up to four times before it is killed.
const MAX_REPLIES_BEFORE_KILL: usize = 4 * CLIENTS_PER_PROCESS;

/// A full verification takes longer as the database grows.
const KILLS_PER_DATABASE: usize = 100;

/// Full verifications are slow, so most kills verify only the tasks with new replies.
const KILLS_PER_FULL_VERIFY: usize = 20;

/// A server's restart takes longer than that of a process.
const KILLS_PER_SERVER_STOP: usize = 25;

/// The largest clock error of a process on a file, in either direction.
const MAX_CLOCK_ERROR_SECS: i64 = 3_600;

#[derive(Debug, Default)]
pub(crate) struct KillCounts {
    pub(crate) kills: usize,
    pub(crate) server_stops: usize,
    /// Processes that found no server at startup and exited with an error.
    pub(crate) gave_up: usize,
    pub(crate) clock_steps: usize,
    pub(crate) acknowledged: u64,
    pub(crate) refused: u64,
    pub(crate) tasks: usize,
    pub(crate) commits: usize,
    pub(crate) verified: usize,
    pub(crate) entries: u64,
}

impl fmt::Display for KillCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, server_stops, gave_up, clock_steps, .. } = self;
        write!(f, "{kills} kills")?;
        if *server_stops > 0 {
            write!(f, ", {server_stops} stops of the server ({gave_up} processes started meanwhile and reported it)")?;
        }
        if *clock_steps > 0 {
            write!(f, ", {clock_steps} clock steps")?;
        }
        let Self { acknowledged, refused, tasks, commits, verified, entries, .. } = self;
        write!(
            f,
            "; {acknowledged} acknowledged and {refused} refused, {tasks} tasks, {commits} commits: all as acknowledged; "
        )?;
        write!(f, "verify clean {verified} times, on up to {entries} entries")
    }
}

/// A process with its clients.
struct ProcessSlot {
    process: EngineProcess,
    clients: Vec<LoadClient>,
    /// Replies until the kill, and a further delay in microseconds.
    replies_until_kill: usize,
    kill_delay_micros: u64,
}

/// The database under test.
enum TortureDatabase<'a> {
    SqliteFile(TempDir),
    Postgres(&'a PostgresServer, String),
}

impl TortureDatabase<'_> {
    /// Returns the path or URL for a process.
    fn location(&self) -> String {
        match self {
            Self::SqliteFile(folder) => folder.database_path().display().to_string(),
            Self::Postgres(_, url) => url.clone(),
        }
    }
}

struct KillRun<'a> {
    database: TortureDatabase<'a>,
    monitor: ProcessMonitor,
    rng: Rng,
    ledger: AckLedger,
    counts: &'a mut KillCounts,
    /// A unique name for this database, so that no two runs share one.
    name: String,
    runtime: tokio::runtime::Runtime,
    /// Only on PostgreSQL, where it stays open during the run.
    store: Option<AnyStore>,
    /// Server stops and full verifications so far.
    server_stops: usize,
    full_verifies: usize,
}

/// Runs kills on database files.
pub(crate) fn on_files(kills: usize, seed: u64, counts: &mut KillCounts) -> Result<()> {
    let mut rng = Rng::new(seed);
    while counts.kills < kills {
        let max_kills = (kills - counts.kills).min(KILLS_PER_DATABASE);
        let name = format!("s{}", counts.kills);
        run_kills(TortureDatabase::SqliteFile(TempDir::new()), 1, max_kills, name, rng.fork(), counts)?;
    }
    Ok(())
}

/// Runs kills on PostgreSQL with three processes at a time, and sometimes stops the server itself.
pub(crate) fn on_server(kills: usize, seed: u64, counts: &mut KillCounts) -> Result<()> {
    let server = PostgresServer::start();
    let mut rng = Rng::new(seed);
    while counts.kills < kills {
        let max_kills = (kills - counts.kills).min(KILLS_PER_DATABASE);
        let name = format!("p{}", counts.kills);
        run_kills(
            TortureDatabase::Postgres(&server, server.create_database()),
            3,
            max_kills,
            name,
            rng.fork(),
            counts,
        )?;
    }
    Ok(())
}

fn run_kills(
    database: TortureDatabase<'_>,
    processes: usize,
    kills: usize,
    name: String,
    rng: Rng,
    counts: &mut KillCounts,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ledger = AckLedger::default();
    let mut kill_run = KillRun {
        database,
        monitor: ProcessMonitor::new(),
        rng,
        ledger,
        counts,
        name,
        runtime,
        store: None,
        server_stops: 0,
        full_verifies: 0,
    };
    kill_run.prepare_database()?;
    kill_run.run(processes, kills)?;
    kill_run.verify_all()?;
    let KillRun { ledger: books, counts: count, .. } = kill_run;
    count.acknowledged += books.acknowledged;
    count.refused += books.refused;
    count.tasks += books.task_count();
    count.commits += books.commit_count();
    Ok(())
}

impl KillRun<'_> {
    /// Creates the database and its lifecycles.
    fn prepare_database(&mut self) -> Result<()> {
        let store = self.open_store()?;
        self.runtime.block_on(verify::put_lifecycles(&store))?;
        if let TortureDatabase::Postgres(..) = self.database {
            self.store = Some(store);
        }
        Ok(())
    }

    /// Opens the store with a fixed clock, so that nothing falls due during the verification.
    fn open_store(&self) -> Result<AnyStore> {
        let clock = Clock::manual(Time::MIN);
        Ok(match &self.database {
            TortureDatabase::SqliteFile(folder) => AnyStore::Sqlite(SqliteStore::open(folder.database_path(), clock)?),
            TortureDatabase::Postgres(_, url) => {
                AnyStore::Postgres(self.runtime.block_on(PostgresStore::open_with_clock(url, clock))?)
            }
        })
    }

    fn run(&mut self, processes: usize, kills: usize) -> Result<()> {
        let mut slots = Vec::new();
        for number in 0..processes {
            let client = |count| LoadClient::new(format!("{}-{number}-{count}", self.name), self.rng.fork());
            let clients = (0..CLIENTS_PER_PROCESS).map(client).collect();
            slots.push(self.start(number, clients)?);
        }
        let mut killed = 0;
        let mut running = processes;
        while running > 0 {
            let (number, message) = self.monitor.next_message()?;
            match message {
                ProcessMessage::Replies(tag, answers) => {
                    let slot = &mut slots[number];
                    let client = &mut slot.clients[usize::try_from(tag)?];
                    let outcome = RequestOutcome::parse(answers.first().context("a reply")?)?;
                    client.on_outcome(&outcome, &mut self.ledger)?;
                    if slot.process.is_killed() {
                        continue;
                    }
                    slot.process.send_requests(tag, vec![client.next_request()]);
                    slot.replies_until_kill -= 1;
                    if slot.replies_until_kill == 0 {
                        slot.process.kill_after(slot.kill_delay_micros)?;
                        killed += 1;
                        self.counts.kills += 1;
                    }
                }
                // The process started while the server was down. It reported that and is restarted.
                ProcessMessage::OpenFailed(why) => {
                    ensure!(self.store.is_some() && why.contains("cannot be reached"), "process {number}: {why}");
                    slots[number].process.mark_gave_up();
                    self.counts.gave_up += 1;
                }
                ProcessMessage::Exited => {
                    let clients = std::mem::take(&mut slots[number].clients);
                    slots[number].process.reap()?;
                    self.after_kill(killed)?;
                    if killed < kills {
                        slots[number] = self.start(number, clients)?;
                    } else {
                        running -= 1;
                    }
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, number: usize, mut clients: Vec<LoadClient>) -> Result<ProcessSlot> {
        let clock_offset_secs = match self.database {
            TortureDatabase::SqliteFile(_) if self.rng.percent(30) => {
                self.rng.between(-MAX_CLOCK_ERROR_SECS, MAX_CLOCK_ERROR_SECS)
            }
            _ => 0,
        };
        self.counts.clock_steps += usize::from(clock_offset_secs != 0);
        let mut process = self.monitor.start(number, &self.database.location(), clock_offset_secs)?;
        for (tag, toiler) in (0..).zip(&mut clients) {
            toiler.on_no_reply();
            process.send_requests(tag, vec![toiler.next_request()]);
        }
        let (replies_until_kill, kill_delay_micros) =
            (1 + self.rng.below(MAX_REPLIES_BEFORE_KILL), self.rng.next_u64() % 3_000);
        Ok(ProcessSlot { process, clients, replies_until_kill, kill_delay_micros })
    }

    /// Verifies what the killed process had acknowledged.
    fn after_kill(&mut self, killed: usize) -> Result<()> {
        let Self { database: place, ledger: books, counts: count, runtime, .. } = self;
        if let TortureDatabase::Postgres(server, _) = place
            && killed / KILLS_PER_SERVER_STOP > self.server_stops
        {
            self.server_stops += 1;
            server.stop_immediately();
            server.restart();
            count.server_stops += 1;
        }
        if killed / KILLS_PER_FULL_VERIFY > self.full_verifies {
            self.full_verifies += 1;
            return self.verify_all();
        }
        if let Some(store) = &self.store {
            return runtime.block_on(books.verify_recent(store));
        }
        let store = self.open_store()?;
        self.runtime.block_on(self.ledger.verify_recent(&store))
    }

    /// Verifies all tasks and runs `onceward verify`.
    fn verify_all(&mut self) -> Result<()> {
        let opened = if self.store.is_none() { Some(self.open_store()?) } else { None };
        let store = opened.as_ref().or(self.store.as_ref()).context("a store")?;
        let Self { ledger: books, counts: count, runtime, database: place, .. } = self;
        count.entries = count.entries.max(runtime.block_on(books.verify_all(store))?);
        runtime.block_on(verify::assert_clean(&place.location()))?;
        count.verified += 1;
        Ok(())
    }
}
