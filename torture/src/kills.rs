//! Engines that are killed at random moments, again and again.
//!
//! Each process answers some dozens of producers and workers at once. After its n-th answer and so many microseconds it is killed, and what it had
//! acknowledged must be there. On PostgreSQL three of them work on one database: one dies, the others go on.

use std::fmt;

use anyhow::{Context as _, Result, ensure};
use onceward_core::time::Time;
use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore};
use onceward_testkit::Folder;
use onceward_testkit::postgres::Server;
use onceward_testkit::random::Chance;

use crate::books::Books;
use crate::process::{Ear, Process, Said};
use crate::questions::Told;
use crate::sound;
use crate::toil::Toiler;

/// Producers and workers at each process. From 32 callers on an engine has two batches on their way at once.
const TOILERS: usize = 64;

/// Answers of a process at most before it is killed: some for each of them.
const ANSWERS: usize = 4 * TOILERS;

/// Kills before a new database: looking at all of it takes longer and longer.
const A_DATABASE: usize = 100;

/// Kills between two looks at everything.
const WHOLE: usize = 20;

/// Kills of processes between two of PostgreSQL's server.
const SERVER: usize = 25;

/// Clocks of processes on a file are sometimes wrong by up to so many seconds, either way.
const WRONG_BY: i64 = 3_600;

/// What was done.
#[derive(Debug, Default)]
pub(crate) struct Count {
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

impl fmt::Display for Count {
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
struct Slot {
    process: Process,
    toilers: Vec<Toiler>,
    /// Answers until it is killed, and microseconds more.
    until: usize,
    spin: u64,
}

/// Where they work.
enum Place<'a> {
    File(Folder),
    Database(&'a Server, String),
}

impl Place<'_> {
    /// For a process that works there.
    fn name(&self) -> String {
        match self {
            Self::File(folder) => folder.file().display().to_string(),
            Self::Database(_, url) => url.clone(),
        }
    }
}

struct Torture<'a> {
    place: Place<'a>,
    ear: Ear,
    chance: Chance,
    books: Books,
    count: &'a mut Count,
    /// A name for this database, so that no two runs share one.
    name: String,
    runtime: tokio::runtime::Runtime,
    /// On PostgreSQL: open all the time.
    store: Option<AnyStore>,
    /// Times that the server was stopped, and that all was looked at.
    stops: usize,
    looks: usize,
}

/// So many kills on database files.
pub(crate) fn on_files(kills: usize, seed: u64, count: &mut Count) -> Result<()> {
    let mut chance = Chance::new(seed);
    while count.kills < kills {
        let most = (kills - count.kills).min(A_DATABASE);
        let name = format!("s{}", count.kills);
        torture(Place::File(Folder::new()), 1, most, name, chance.fork(), count)?;
    }
    Ok(())
}

/// So many kills of processes, three at a time, on databases of a real server, which is stopped now and then itself.
pub(crate) fn on_server(kills: usize, seed: u64, count: &mut Count) -> Result<()> {
    let server = Server::start();
    let mut chance = Chance::new(seed);
    while count.kills < kills {
        let most = (kills - count.kills).min(A_DATABASE);
        let name = format!("p{}", count.kills);
        torture(Place::Database(&server, server.database()), 3, most, name, chance.fork(), count)?;
    }
    Ok(())
}

fn torture(
    place: Place<'_>,
    processes: usize,
    kills: usize,
    name: String,
    chance: Chance,
    count: &mut Count,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let books = Books::default();
    let mut torture =
        Torture { place, ear: Ear::new(), chance, books, count, name, runtime, store: None, stops: 0, looks: 0 };
    torture.prepare()?;
    torture.run(processes, kills)?;
    torture.whole()?;
    let Torture { books, count, .. } = torture;
    count.acknowledged += books.acknowledged;
    count.refused += books.refused;
    count.tasks += books.tasks();
    count.commits += books.commits();
    Ok(())
}

impl Torture<'_> {
    /// A database with its lifecycles.
    fn prepare(&mut self) -> Result<()> {
        let store = self.open()?;
        self.runtime.block_on(sound::define(&store))?;
        if let Place::Database(..) = self.place {
            self.store = Some(store);
        }
        Ok(())
    }

    /// By a clock that stands: nothing falls due while we look.
    fn open(&self) -> Result<AnyStore> {
        let clock = Clock::manual(Time::MIN);
        Ok(match &self.place {
            Place::File(folder) => AnyStore::Sqlite(SqliteStore::open(folder.file(), clock)?),
            Place::Database(_, url) => {
                AnyStore::Postgres(self.runtime.block_on(PostgresStore::open_with_clock(url, clock))?)
            }
        })
    }

    fn run(&mut self, processes: usize, kills: usize) -> Result<()> {
        let mut slots = Vec::new();
        for number in 0..processes {
            let toiler = |count| Toiler::new(format!("{}-{number}-{count}", self.name), self.chance.fork());
            let toilers = (0..TOILERS).map(toiler).collect();
            slots.push(self.start(number, toilers)?);
        }
        let mut killed = 0;
        let mut running = processes;
        while running > 0 {
            let (number, said) = self.ear.hear()?;
            match said {
                Said::Answers(tag, answers) => {
                    let slot = &mut slots[number];
                    let toiler = &mut slot.toilers[usize::try_from(tag)?];
                    let told = Told::read(answers.first().context("an answer")?)?;
                    toiler.told(&told, &mut self.books)?;
                    if slot.process.is_killed() {
                        continue;
                    }
                    slot.process.ask(tag, vec![toiler.ask()]);
                    slot.until -= 1;
                    if slot.until == 0 {
                        slot.process.kill_in(slot.spin)?;
                        killed += 1;
                        self.count.kills += 1;
                    }
                }
                // It was just coming up when the server went down: it says so, and is started again.
                Said::Cannot(why) => {
                    ensure!(self.store.is_some() && why.contains("cannot be reached"), "process {number}: {why}");
                    slots[number].process.gives_up();
                    self.count.gave_up += 1;
                }
                Said::Ended => {
                    let toilers = std::mem::take(&mut slots[number].toilers);
                    slots[number].process.bury()?;
                    self.after_kill(killed)?;
                    if killed < kills {
                        slots[number] = self.start(number, toilers)?;
                    } else {
                        running -= 1;
                    }
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, number: usize, mut toilers: Vec<Toiler>) -> Result<Slot> {
        let wrong_by = match self.place {
            Place::File(_) if self.chance.yes(30) => self.chance.between(-WRONG_BY, WRONG_BY),
            _ => 0,
        };
        self.count.clock_steps += usize::from(wrong_by != 0);
        let mut process = self.ear.start(number, &self.place.name(), wrong_by)?;
        for (tag, toiler) in (0..).zip(&mut toilers) {
            toiler.left_alone();
            process.ask(tag, vec![toiler.ask()]);
        }
        let (until, spin) = (1 + self.chance.below(ANSWERS), self.chance.next() % 3_000);
        Ok(Slot { process, toilers, until, spin })
    }

    /// What was acknowledged is there.
    fn after_kill(&mut self, killed: usize) -> Result<()> {
        let Self { place, books, count, runtime, .. } = self;
        if let Place::Database(server, _) = place
            && killed / SERVER > self.stops
        {
            self.stops += 1;
            server.stop();
            server.start_again();
            count.server_stops += 1;
        }
        if killed / WHOLE > self.looks {
            self.looks += 1;
            return self.whole();
        }
        if let Some(store) = &self.store {
            return runtime.block_on(books.look(store));
        }
        let store = self.open()?;
        self.runtime.block_on(self.books.look(&store))
    }

    /// All of it is there, and the database is sound.
    fn whole(&mut self) -> Result<()> {
        let opened = if self.store.is_none() { Some(self.open()?) } else { None };
        let store = opened.as_ref().or(self.store.as_ref()).context("a store")?;
        let Self { books, count, runtime, place, .. } = self;
        count.entries = count.entries.max(runtime.block_on(books.look_at_all(store))?);
        runtime.block_on(sound::verify(&place.name()))?;
        count.verified += 1;
        Ok(())
    }
}
