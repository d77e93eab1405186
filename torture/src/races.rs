//! Many at once after the same thing: exactly one has it.
//!
//! Sixteen tasks in each process begin together, and so do the processes, one on a file and three on a server's database. What they were told
//! is counted, and what is kept must be the winner's.

use std::fmt;

use anyhow::{Context as _, Result, ensure};
use onceward_core::record::Token;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore, Store as _};
use onceward_testkit::Folder;
use onceward_testkit::postgres::Server;
use serde_json::{Value as Json, json};

use crate::process::{Ear, Process};
use crate::questions::{Told, cancel, commit, lease, task};
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

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lease, commit, cancel, either, committed_of_either, resolve, losers, contended } = self;
        write!(
            f,
            "{} races, one winner each: {lease} for a lease, {commit} for a commit, {cancel} for a cancel, ",
            self.races()
        )?;
        write!(f, "{either} for either ({committed_of_either} committed), {resolve} for relay's prize; ")?;
        write!(f, "{losers} lost, {contended} were told to try again")
    }
}

/// Processes on one database.
pub(crate) struct Field {
    ear: Ear,
    processes: Vec<Process>,
    runtime: tokio::runtime::Runtime,
    pub(crate) count: Count,
    /// Tasks that were raced for, and the number of whoever committed.
    expected: Vec<(RecordId, Option<usize>)>,
    pub(crate) prizes: Vec<Prize>,
}

/// One of relay's.
pub(crate) struct Prize {
    pub(crate) job: RecordId,
    pub(crate) submissions: Vec<RecordId>,
}

/// On a file, which belongs to one process as long as it lives.
pub(crate) fn on_file(races: usize) -> Result<Count> {
    let folder = Folder::new();
    let open =
        || -> Result<AnyStore> { Ok(AnyStore::Sqlite(SqliteStore::open(folder.file(), Clock::manual(Time::MIN))?)) };
    let runtime = runtime()?;
    runtime.block_on(sound::define(&open()?))?;
    let place = folder.file().display().to_string();
    let mut field = Field::new(runtime, 1, &place)?;
    field.run(races)?;
    field.processes.clear();
    field.check(&open()?, &place)?;
    Ok(field.count)
}

pub(crate) fn on_server(races: usize) -> Result<Count> {
    let server = Server::start();
    let url = server.database();
    let runtime = runtime()?;
    let store = runtime.block_on(PostgresStore::open_with_clock(&url, Clock::manual(Time::MIN)))?;
    let store = AnyStore::Postgres(store);
    runtime.block_on(sound::define(&store))?;
    let mut field = Field::new(runtime, 3, &url)?;
    field.run(races)?;
    field.processes.clear();
    field.check(&store, &url)?;
    Ok(field.count)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

impl Field {
    fn new(runtime: tokio::runtime::Runtime, processes: usize, place: &str) -> Result<Self> {
        let ear = Ear::new();
        let processes = (0..processes).map(|number| ear.start(number, place, 0)).collect::<Result<_>>()?;
        Ok(Self { ear, processes, runtime, count: Count::default(), expected: Vec::new(), prizes: Vec::new() })
    }

    fn run(&mut self, races: usize) -> Result<()> {
        let mut round = 0;
        while self.count.races() < races {
            self.round(round).with_context(|| format!("round {round}"))?;
            if round.is_multiple_of(PRIZE) {
                relay::race(self, round).with_context(|| format!("the prize of round {round}"))?;
            }
            round += 1;
        }
        Ok(())
    }

    /// How many run.
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

    /// Who comes late is told no; what is kept is looked at in the end, since a file belongs to its process until then.
    fn kept(&mut self, id: RecordId, committed: Option<usize>) -> Result<()> {
        let late = self.ask(vec![cancel(id, "late")])?.pop().context("an answer")?;
        ensure!(matches!(late, Told::Refused(_)), "{id} could be cancelled afterwards: {late:?}");
        self.expected.push((id, committed));
        Ok(())
    }

    /// What is kept is the winners': the effect of the one that committed, or none; one submission that passed, and its job resolved.
    fn check(&self, store: &AnyStore, place: &str) -> Result<()> {
        self.runtime.block_on(async {
            for (id, committed) in &self.expected {
                let effect = store.effect(*id).await?.map(|effect| effect.result);
                ensure!(effect == committed.map(|number| json!(number)), "{id}: {committed:?} won, {effect:?} is kept");
                let state = state(store, *id).await?;
                ensure!(state == if committed.is_some() { "done" } else { "dropped" }, "{id} is {state}");
            }
            for Prize { job, submissions } in &self.prizes {
                let mut passed = 0;
                for id in submissions {
                    passed += usize::from(state(store, *id).await? == "passed");
                }
                let job = state(store, *job).await?;
                ensure!(passed == 1 && job == "resolved", "{passed} have passed, and the job is {job}");
            }
            sound::verify(place).await.map(drop)
        })
    }
}

async fn state(store: &AnyStore, id: RecordId) -> Result<String> {
    let record = store.record(id).await?.with_context(|| format!("{id} is lost"))?;
    Ok(record.state_name().to_string())
}
