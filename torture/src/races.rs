//! Many at once after the same thing: exactly one has it.
//!
//! Sixteen tasks in each process begin together, and so do the processes, one on a file and three on a server's database. What they were told
//! is counted, and what is kept must be the winner's.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use onceward_core::record::Token;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore, Store as _};
use onceward_testkit::Folder;
use onceward_testkit::postgres::Server;
use serde_json::{Value as Json, json};

use crate::process::{Ear, Process};
use crate::questions::{OWNER, Told, cancel, commit, lease, task};
use crate::{relay, sound};

/// In each process.
pub(crate) const TASKS: usize = 16;

/// Rounds between two races for a prize of relay's, which take more to set up.
const PRIZE: usize = 10;

/// What was raced for.
#[derive(Debug, Default)]
pub(crate) struct Count {
    pub(crate) lease: usize,
    pub(crate) commit: usize,
    pub(crate) cancel: usize,
    /// A commit or a cancel, not both.
    pub(crate) either: usize,
    pub(crate) committed_of_either: usize,
    pub(crate) resolve: usize,
    /// Who lost and was told so.
    pub(crate) losers: usize,
    /// Who lost in a crowd and was told to try again.
    pub(crate) contended: usize,
}

impl Count {
    pub(crate) fn races(&self) -> usize {
        self.lease + self.commit + self.cancel + self.either + self.resolve
    }
}

/// Processes on one database.
pub(crate) struct Field {
    ear: Ear,
    processes: Vec<Process>,
    store: Option<AnyStore>,
    runtime: tokio::runtime::Runtime,
    pub(crate) count: Count,
}

/// On a file, which belongs to one process as long as it lives.
pub(crate) fn on_file(races: usize) -> Result<Count> {
    let folder = Folder::new();
    let runtime = runtime()?;
    let clock = Clock::manual(Time::MIN);
    let open = || -> Result<AnyStore> { Ok(AnyStore::Sqlite(SqliteStore::open(folder.file(), clock.clone())?)) };
    runtime.block_on(sound::define(&open()?))?;
    let ear = Ear::new();
    let processes = vec![ear.start(0, &folder.file().display().to_string(), 0)?];
    let mut field = Field { ear, processes, store: None, runtime, count: Count::default() };
    field.run(races)?;
    let Field { processes, runtime, count, .. } = field;
    drop(processes);
    runtime.block_on(sound::verify(&open()?))?;
    Ok(count)
}

pub(crate) fn on_server(races: usize) -> Result<Count> {
    let server = Server::start();
    let url = server.database();
    let runtime = runtime()?;
    let store = runtime.block_on(PostgresStore::open_with_clock(&url, Clock::manual(Time::MIN)))?;
    let store = AnyStore::Postgres(store);
    runtime.block_on(sound::define(&store))?;
    let ear = Ear::new();
    let processes = (0..3).map(|number| ear.start(number, &url, 0)).collect::<Result<_>>()?;
    let mut field = Field { ear, processes, store: Some(store), runtime, count: Count::default() };
    field.run(races)?;
    let Field { processes, runtime, count, store, .. } = field;
    drop(processes);
    runtime.block_on(sound::verify(store.as_ref().context("a store")?))?;
    Ok(count)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

impl Field {
    fn run(&mut self, races: usize) -> Result<()> {
        let began = Instant::now();
        let mut round = 0;
        while self.count.races() < races {
            self.round(round).with_context(|| format!("round {round}"))?;
            if round.is_multiple_of(PRIZE) {
                relay::race(self, round).with_context(|| format!("the prize of round {round}"))?;
            }
            round += 1;
        }
        println!("  {} races in {:.1} s", self.count.races(), began.elapsed().as_secs_f64());
        Ok(())
    }

    /// The runner of each lane: its process, and its number over all.
    pub(crate) fn runners(&self) -> usize {
        self.processes.len() * TASKS
    }

    /// The first process alone.
    pub(crate) fn ask(&mut self, questions: Vec<Json>) -> Result<Vec<Told>> {
        let answers = self.ear.ask(&mut self.processes[0], questions)?;
        answers.iter().map(Told::read).collect()
    }

    /// All at once, each with its own question; what each was told.
    pub(crate) fn race(&mut self, question: impl Fn(usize) -> Json) -> Result<Vec<Told>> {
        let asked = self.processes.iter_mut().enumerate().map(|(number, process)| {
            let questions = (0..TASKS).map(|task| question(number * TASKS + task)).collect();
            (process, questions)
        });
        let answers = self.ear.ask_all(asked.collect())?;
        let told: Vec<Told> = answers.iter().flatten().map(Told::read).collect::<Result<_>>()?;
        for one in &told {
            match one {
                Told::Refused(code) if code == "contended" => self.count.contended += 1,
                Told::Unknown(why) => anyhow::bail!("nobody knows: {why}"),
                one => self.count.losers += usize::from(!one.won()),
            }
        }
        Ok(told)
    }

    /// The one winner's number.
    fn winner(told: &[Told]) -> Result<usize> {
        let won: Vec<usize> = (0..told.len()).filter(|number| told[*number].won()).collect();
        ensure!(won.len() == 1, "{} winners: {told:?}", won.len());
        Ok(won[0])
    }

    fn round(&mut self, round: usize) -> Result<()> {
        let names = ["a", "b", "c"].map(|name| task(&format!("{name}{round}"), None));
        let made = self.ask(names.into())?.into_iter().map(Told::made).collect::<Result<Vec<_>>>()?;
        let [leased, cancelled, either] = made[..] else { anyhow::bail!("three tasks") };
        let (who, token) = self.lease_race(leased)?;
        let told = self.race(|number| commit(&who, leased, token, json!(number), true))?;
        let winner = Self::winner(&told)?;
        self.kept(leased, Some(winner))?;
        self.count.commit += 1;
        let told = self.race(|number| cancel(cancelled, &number.to_string()))?;
        Self::winner(&told)?;
        self.kept(cancelled, None)?;
        self.count.cancel += 1;
        let (who, token) = self.lease_race(either)?;
        let told = self.race(|number| {
            // So that each kind is first in turn.
            if (number + round).is_multiple_of(2) {
                return cancel(either, &number.to_string());
            }
            commit(&who, either, token, json!(number), true)
        })?;
        let winner = Self::winner(&told)?;
        let committed = !(winner + round).is_multiple_of(2);
        self.kept(either, committed.then_some(winner))?;
        self.count.either += 1;
        self.count.committed_of_either += usize::from(committed);
        Ok(())
    }

    fn lease_race(&mut self, id: RecordId) -> Result<(String, Token)> {
        let name = |number| format!("w{number}");
        let told = self.race(|number| lease(&name(number), id, 600))?;
        let winner = Self::winner(&told)?;
        self.count.lease += 1;
        let Told::Done { token: Some(token), .. } = told[winner] else { anyhow::bail!("a lease without a token") };
        Ok((name(winner), token))
    }

    /// What is kept is the winner's: its effect, or none and the task is dropped. Where another process has the file, its answer to one who
    /// comes late must do: the task has ended.
    fn kept(&mut self, id: RecordId, committed: Option<usize>) -> Result<()> {
        let late = self.ask(vec![cancel(id, "late")])?.pop().context("an answer")?;
        ensure!(matches!(late, Told::Refused(_)), "{id} could be cancelled by {OWNER} afterwards: {late:?}");
        let Some(store) = &self.store else { return Ok(()) };
        let effect = self.runtime.block_on(store.effect(id))?.map(|effect| effect.result);
        ensure!(effect == committed.map(|number| json!(number)), "{id}: {committed:?} won, and {effect:?} is kept");
        Ok(())
    }

    /// The state of a record.
    pub(crate) fn state(&self, id: RecordId) -> Result<Option<String>> {
        let Some(store) = &self.store else { return Ok(None) };
        let record = self.runtime.block_on(store.record(id))?.context("it is there")?;
        Ok(Some(record.state_name().to_string()))
    }
}
