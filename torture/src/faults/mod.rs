//! Disks and servers that fail while an engine works: a clear error or a clean recovery, and nothing that was acknowledged is lost.

mod cut;
mod disk;
mod lost;
mod pages;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use onceward_core::time::Time;
use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore};
use onceward_testkit::random::Chance;

use crate::books::Books;
use crate::process::{Ear, Process, Said};
use crate::questions::Told;
use crate::sound;
use crate::toil::Toiler;

/// All of them; each says what it saw.
pub(crate) fn run(seed: u64) -> Result<()> {
    type Fault = fn(u64) -> Result<String>;
    let faults: [(&str, Fault); 8] = [
        ("a disk that is full", disk::full),
        ("writes that find no room", disk::no_room),
        ("writes that fail", disk::bad_writes),
        ("syncs that fail", disk::bad_syncs),
        ("a disk that cannot be written", disk::read_only),
        ("writes after the last sync", lost::writes),
        ("damaged pages", pages::damaged),
        ("a connection that is cut", cut::connection),
    ];
    for (name, fault) in faults {
        let began = Instant::now();
        let shown = fault(seed).with_context(|| name.to_owned())?;
        println!("{name}: {shown} ({:.1} s)", began.elapsed().as_secs_f64());
    }
    Ok(())
}

/// One engine's process, and who works at it.
struct Bench {
    place: String,
    ear: Ear,
    process: Process,
    toilers: Vec<Toiler>,
    books: Books,
    runtime: tokio::runtime::Runtime,
}

/// What a stretch of work has seen.
#[derive(Debug, Default)]
struct Seen {
    done: usize,
    /// Refused or unknown, with words that were looked for.
    told: usize,
    unknown: usize,
}

impl Bench {
    /// By way of another program, where one is named.
    fn new(place: &str, by: &[&str], seed: u64) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let ear = Ear::new();
        let store = runtime.block_on(open(place))?;
        runtime.block_on(sound::define(&store))?;
        drop(store);
        let process = ear.start_by(by, 0, place, 0)?;
        let mut chance = Chance::new(seed);
        let toilers = (0..8).map(|number| Toiler::new(format!("t{number}"), chance.fork())).collect();
        Ok(Self { place: place.to_owned(), ear, process, toilers, books: Books::default(), runtime })
    }

    /// So many questions, or until so many were told these words.
    fn work(&mut self, most: usize, words: &str, enough: usize) -> Result<Seen> {
        let mut seen = Seen::default();
        for (tag, toiler) in (0..).zip(&mut self.toilers) {
            self.process.ask(tag, vec![toiler.ask()]);
        }
        let (mut asked, mut waiting) = (self.toilers.len(), self.toilers.len());
        while waiting > 0 {
            let (tag, answers) = match self.ear.hear()?.1 {
                Said::Answers(tag, answers) => (tag, answers),
                Said::Cannot(why) => anyhow::bail!("it cannot go on: {why}"),
                Said::Ended => anyhow::bail!("it has ended by itself"),
            };
            waiting -= 1;
            let told = Told::read(answers.first().context("an answer")?)?;
            match &told {
                Told::Done { .. } => seen.done += 1,
                Told::Refused(why) => seen.told += usize::from(why.contains(words)),
                Told::Unknown(why) => {
                    seen.unknown += 1;
                    seen.told += usize::from(why.contains(words));
                }
            }
            let toiler = &mut self.toilers[usize::try_from(tag)?];
            toiler.told(&told, &mut self.books)?;
            if asked < most && seen.told < enough {
                self.process.ask(tag, vec![toiler.ask()]);
                asked += 1;
                waiting += 1;
            }
        }
        Ok(seen)
    }

    /// Killed, and gone.
    fn kill(&mut self) -> Result<()> {
        self.process.kill_in(0)?;
        while !matches!(self.ear.hear()?.1, Said::Ended) {}
        self.process.bury()
    }

    /// Killed, and everything is there.
    fn end(mut self) -> Result<Ended> {
        self.kill()?;
        let store = self.runtime.block_on(open(&self.place))?;
        let entries = self.runtime.block_on(self.books.look_at_all(&store))?;
        drop(store);
        self.runtime.block_on(sound::verify(&self.place))?;
        Ok(Ended { entries, acknowledged: self.books.acknowledged })
    }
}

struct Ended {
    entries: u64,
    acknowledged: u64,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "all {} acknowledged are there, verify finds {} entries sound", self.acknowledged, self.entries)
    }
}

async fn open(place: &str) -> Result<AnyStore> {
    let clock = Clock::manual(Time::MIN);
    if place.starts_with("postgres://") {
        return Ok(AnyStore::Postgres(PostgresStore::open_with_clock(place, clock).await?));
    }
    Ok(AnyStore::Sqlite(SqliteStore::open(place, clock)?))
}

/// A disk of so many megabytes in memory, where we may mount one.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    fn new(folder: &'a Path, megabytes: u32) -> Result<Option<Self>> {
        std::fs::create_dir_all(folder)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"]).arg(folder);
        let mounted = mount.stderr(std::process::Stdio::null()).status().is_ok_and(|status| status.success());
        Ok(mounted.then_some(Self(folder)))
    }

    fn again(&self, options: &str) -> Result<()> {
        let mut mount = Command::new("mount");
        let status = mount.args(["-o", &format!("remount,{options}")]).arg(self.0).status()?;
        ensure!(status.success(), "remount with {options}");
        Ok(())
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}
