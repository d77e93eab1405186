//! Engines that are killed at random moments, again and again.
//!
//! Each process answers some dozens of producers and workers at once. After its n-th answer and so many microseconds it is killed, and what it had
//! acknowledged must be there. On PostgreSQL three of them work on one database: one dies, the others go on.

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

/// Producers and workers at each process. From 32 callers on an engine has two batches on their way at once.
const CLIENTS_PER_PROCESS: usize = 64;

/// Answers of a process at most before it is killed: some for each of them.
const MAX_REPLIES_BEFORE_KILL: usize = 4 * CLIENTS_PER_PROCESS;

/// Kills before a new database: looking at all of it takes longer and longer.
const KILLS_PER_DATABASE: usize = 100;

/// Kills between two looks at everything.
const KILLS_PER_FULL_VERIFY: usize = 20;

/// Kills of processes between two of PostgreSQL's server.
const KILLS_PER_SERVER_STOP: usize = 25;

/// Clocks of processes on a file are sometimes wrong by up to so many seconds, either way.
const MAX_CLOCK_ERROR_SECS: i64 = 3_600;

/// What was done.
#[derive(Debug, Default)]
pub(crate) struct KillCounts {
    pub(crate) kills: usize,
    pub(crate) server_stops: usize,
    /// Processes that found no server when they came up, and said so.
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
            write!(f, ", {server_stops} stops of the server ({gave_up} processes came up meanwhile and said so)")?;
        }
        if *clock_steps > 0 {
            write!(f, ", {clock_steps} times the clock had stepped")?;
        }
        let Self { acknowledged, refused, tasks, commits, verified, entries, .. } = self;
        write!(
            f,
            "; {acknowledged} acknowledged and {refused} refused, {tasks} tasks, {commits} commits: all as told; "
        )?;
        write!(f, "verify clean {verified} times, on up to {entries} entries")
    }
}

/// One process, and who works at it.
struct ProcessSlot {
    process: EngineProcess,
    clients: Vec<LoadClient>,
    /// Answers until it is killed, and microseconds more.
    replies_until_kill: usize,
    kill_delay_micros: u64,
}

/// Where they work.
enum TortureDatabase<'a> {
    SqliteFile(TempDir),
    Postgres(&'a PostgresServer, String),
}

impl TortureDatabase<'_> {
    /// For a process that works there.
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
    /// A name for this database, so that no two runs share one.
    name: String,
    runtime: tokio::runtime::Runtime,
    /// On PostgreSQL: open all the time.
    store: Option<AnyStore>,
    /// Times that the server was stopped, and that all was looked at.
    server_stops: usize,
    full_verifies: usize,
}

/// So many kills on database files.
pub(crate) fn on_files(kills: usize, seed: u64, counts: &mut KillCounts) -> Result<()> {
    let mut rng = Rng::new(seed);
    while counts.kills < kills {
        let max_kills = (kills - counts.kills).min(KILLS_PER_DATABASE);
        let name = format!("s{}", counts.kills);
        run_kills(TortureDatabase::SqliteFile(TempDir::new()), 1, max_kills, name, rng.fork(), counts)?;
    }
    Ok(())
}

/// So many kills of processes, three at a time, on databases of a real server, which is stopped now and then itself.
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
    /// A database with its lifecycles.
    fn prepare_database(&mut self) -> Result<()> {
        let store = self.open_store()?;
        self.runtime.block_on(verify::put_lifecycles(&store))?;
        if let TortureDatabase::Postgres(..) = self.database {
            self.store = Some(store);
        }
        Ok(())
    }

    /// By a clock that stands: nothing falls due while we look.
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
                    let outcome = RequestOutcome::parse(answers.first().context("an answer")?)?;
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
                // It was just coming up when the server went down: it says so, and is started again.
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

    /// What was acknowledged is there.
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

    /// All of it is there, and the database is sound.
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
