//! Races many callers for the same thing: exactly one must win.
//!
//! All processes, one on a file or three on PostgreSQL, start sixteen tasks at the same moment. The replies are
//! counted, and the database must contain the winner's result.

use std::fmt;

use anyhow::{Context as _, Result, ensure};
use onceward_core::record::FencingToken;
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore, Store as _};
use onceward_testkit::TempDir;
use onceward_testkit::postgres::PostgresServer;
use serde_json::{Value as Json, json};

use crate::process::{EngineProcess, ProcessMonitor};
use crate::requests::{RequestOutcome, cancel, commit, create_task, lease};
use crate::{relay, verify};

pub(crate) const CALLERS_PER_PROCESS: usize = 16;

/// A race for relay's prize takes more setup than the others.
const ROUNDS_PER_PRIZE: usize = 10;

/// The number of races by kind.
#[derive(Debug, Default)]
pub(crate) struct RaceCounts {
    pub(crate) leases: usize,
    pub(crate) commits: usize,
    pub(crate) cancels: usize,
    /// Races between a commit and a cancel.
    pub(crate) commits_or_cancels: usize,
    pub(crate) commits_won: usize,
    pub(crate) resolutions: usize,
    /// Callers that lost and were refused.
    pub(crate) losers: usize,
    /// Callers that lost after repeated conflicts.
    pub(crate) conflicts: usize,
}

impl RaceCounts {
    pub(crate) fn race_count(&self) -> usize {
        self.leases + self.commits + self.cancels + self.commits_or_cancels + self.resolutions
    }
}

impl fmt::Display for RaceCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            leases: lease,
            commits: commit,
            cancels: cancel,
            commits_or_cancels: either,
            commits_won: committed_of_either,
            resolutions: resolve,
            losers,
            conflicts,
        } = self;
        write!(
            f,
            "{} races, one winner each: {lease} for a lease, {commit} for a commit, {cancel} for a cancel, ",
            self.race_count()
        )?;
        write!(
            f,
            "{either} for a commit or a cancel ({committed_of_either} committed), {resolve} for relay's prize; "
        )?;
        write!(f, "{losers} lost, {conflicts} gave up after repeated conflicts")
    }
}

/// Processes on one database.
pub(crate) struct RaceHarness {
    monitor: ProcessMonitor,
    processes: Vec<EngineProcess>,
    runtime: tokio::runtime::Runtime,
    pub(crate) counts: RaceCounts,
    /// Raced tasks, and the number of the caller that committed, if any.
    expected_winners: Vec<(RecordId, Option<usize>)>,
    pub(crate) prizes: Vec<RelayPrize>,
}

/// A relay job and its submissions.
pub(crate) struct RelayPrize {
    pub(crate) job: RecordId,
    pub(crate) submissions: Vec<RecordId>,
}

/// Races on a file, which only one process can have open.
pub(crate) fn on_file(races: usize) -> Result<RaceCounts> {
    let folder = TempDir::new();
    let open = || -> Result<AnyStore> {
        Ok(AnyStore::Sqlite(SqliteStore::open(folder.database_path(), Clock::manual(Time::MIN))?))
    };
    let runtime = new_runtime()?;
    runtime.block_on(verify::put_lifecycles(&open()?))?;
    let database = folder.database_path().display().to_string();
    let mut harness = RaceHarness::new(runtime, 1, &database)?;
    harness.run(races)?;
    harness.processes.clear();
    harness.assert_winners_stored(&open()?, &database)?;
    Ok(harness.counts)
}

pub(crate) fn on_server(races: usize) -> Result<RaceCounts> {
    let server = PostgresServer::start();
    let url = server.create_database();
    let runtime = new_runtime()?;
    let store = runtime.block_on(PostgresStore::open_with_clock(&url, Clock::manual(Time::MIN)))?;
    let store = AnyStore::Postgres(store);
    runtime.block_on(verify::put_lifecycles(&store))?;
    let mut harness = RaceHarness::new(runtime, 3, &url)?;
    harness.run(races)?;
    harness.processes.clear();
    harness.assert_winners_stored(&store, &url)?;
    Ok(harness.counts)
}

fn new_runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

impl RaceHarness {
    fn new(runtime: tokio::runtime::Runtime, processes: usize, database: &str) -> Result<Self> {
        let monitor = ProcessMonitor::new();
        let processes = (0..processes).map(|number| monitor.start(number, database, 0)).collect::<Result<_>>()?;
        Ok(Self {
            monitor,
            processes,
            runtime,
            counts: RaceCounts::default(),
            expected_winners: Vec::new(),
            prizes: Vec::new(),
        })
    }

    fn run(&mut self, races: usize) -> Result<()> {
        let mut round = 0;
        while self.counts.race_count() < races {
            self.run_round(round).with_context(|| format!("round {round}"))?;
            if round.is_multiple_of(ROUNDS_PER_PRIZE) {
                relay::race_for_prize(self, round).with_context(|| format!("the prize of round {round}"))?;
            }
            round += 1;
        }
        Ok(())
    }

    /// Returns the number of concurrent callers.
    pub(crate) fn caller_count(&self) -> usize {
        self.processes.len() * CALLERS_PER_PROCESS
    }

    /// Sends requests to the first process only.
    pub(crate) fn request(&mut self, requests: Vec<Json>) -> Result<Vec<RequestOutcome>> {
        let answers = self.monitor.request(&mut self.processes[0], requests)?;
        answers.iter().map(RequestOutcome::parse).collect()
    }

    /// Sends one request per caller at the same moment and returns the outcomes.
    pub(crate) fn race(&mut self, request: impl Fn(usize) -> Json) -> Result<Vec<RequestOutcome>> {
        let requests = self.processes.iter_mut().enumerate().map(|(number, process)| {
            let questions = (0..CALLERS_PER_PROCESS).map(|task| request(number * CALLERS_PER_PROCESS + task)).collect();
            (process, questions)
        });
        let answers = self.monitor.request_all(requests.collect())?;
        let outcomes: Vec<RequestOutcome> =
            answers.iter().flatten().map(RequestOutcome::parse).collect::<Result<_>>()?;
        for one in &outcomes {
            match one {
                RequestOutcome::Refused(code) if code == "too_many_conflicts" => self.counts.conflicts += 1,
                RequestOutcome::Unknown(why) => anyhow::bail!("outcome unknown: {why}"),
                one => self.counts.losers += usize::from(!one.is_winner()),
            }
        }
        Ok(outcomes)
    }

    /// Returns the number of the only winner.
    fn find_winner(outcomes: &[RequestOutcome]) -> Result<usize> {
        let won: Vec<usize> = (0..outcomes.len()).filter(|number| outcomes[*number].is_winner()).collect();
        ensure!(won.len() == 1, "{} winners: {outcomes:?}", won.len());
        Ok(won[0])
    }

    fn run_round(&mut self, round: usize) -> Result<()> {
        let names = ["a", "b", "c"].map(|name| create_task(&format!("{name}{round}"), None));
        let made =
            self.request(names.into())?.into_iter().map(RequestOutcome::into_created_id).collect::<Result<Vec<_>>>()?;
        let [leased, cancelled, either] = made[..] else { anyhow::bail!("three tasks") };
        let (holder, token) = self.lease_race(leased)?;
        let told = self.race(|number| commit(&holder, leased, token, json!(number), true))?;
        let winner = Self::find_winner(&told)?;
        self.expect_settled(leased, Some(winner))?;
        self.counts.commits += 1;
        let told = self.race(|number| cancel(cancelled, &number.to_string()))?;
        Self::find_winner(&told)?;
        self.expect_settled(cancelled, None)?;
        self.counts.cancels += 1;
        let (holder, token) = self.lease_race(either)?;
        let told = self.race(|number| {
            // Alternate which kind goes first.
            if (number + round).is_multiple_of(2) {
                return cancel(either, &number.to_string());
            }
            commit(&holder, either, token, json!(number), true)
        })?;
        let winner = Self::find_winner(&told)?;
        let committed = !(winner + round).is_multiple_of(2);
        self.expect_settled(either, committed.then_some(winner))?;
        self.counts.commits_or_cancels += 1;
        self.counts.commits_won += usize::from(committed);
        Ok(())
    }

    fn lease_race(&mut self, id: RecordId) -> Result<(String, FencingToken)> {
        let name = |number| format!("w{number}");
        let told = self.race(|number| lease(&name(number), id, 600))?;
        let winner = Self::find_winner(&told)?;
        self.counts.leases += 1;
        let RequestOutcome::Done { token: Some(token), .. } = told[winner] else {
            anyhow::bail!("a lease without a token")
        };
        Ok((name(winner), token))
    }

    /// Checks that a late call is refused. The stored result is verified at the end, because until then the process has
    /// the file open.
    fn expect_settled(&mut self, id: RecordId, committed: Option<usize>) -> Result<()> {
        let late = self.request(vec![cancel(id, "late")])?.pop().context("a reply")?;
        ensure!(matches!(late, RequestOutcome::Refused(_)), "{id} could be cancelled afterwards: {late:?}");
        self.expected_winners.push((id, committed));
        Ok(())
    }

    /// Verifies the stored results: the effect of the caller that committed, or none; one passed submission, and its
    /// job resolved.
    fn assert_winners_stored(&self, store: &AnyStore, database: &str) -> Result<()> {
        self.runtime.block_on(async {
            for (id, committed) in &self.expected_winners {
                let effect = store.effect(*id).await?.map(|effect| effect.result);
                ensure!(
                    effect == committed.map(|number| json!(number)),
                    "{id}: {committed:?} won, but {effect:?} is stored"
                );
                let state = read_state(store, *id).await?;
                ensure!(state == if committed.is_some() { "done" } else { "dropped" }, "{id} is {state}");
            }
            for RelayPrize { job, submissions } in &self.prizes {
                let mut passed = 0;
                for id in submissions {
                    passed += usize::from(read_state(store, *id).await? == "passed");
                }
                let job = read_state(store, *job).await?;
                ensure!(passed == 1 && job == "resolved", "{passed} submissions passed, but the job is {job}");
            }
            verify::assert_clean(database).await.map(drop)
        })
    }
}

async fn read_state(store: &AnyStore, id: RecordId) -> Result<String> {
    let record = store.record(id).await?.with_context(|| format!("{id} is lost"))?;
    Ok(record.state_name().to_string())
}
