//! Many tasks that compete for the same thing.

use std::sync::Arc;

use onceward_core::decide::{Call, CreateRecord};
use onceward_core::value::RecordId;
use onceward_engine::{Engine, EngineError, LeaseRequest, Receipt, Submission};
use onceward_store::{AnyStore, Store as _};
use onceward_testkit::{user, worker};
use serde_json::json;
use tokio::sync::Barrier;

use super::{json_object, reply_code, state_of};

/// Runs tasks concurrently over the engines; returns how many won, and the codes of the others.
pub(crate) async fn race<F>(
    engines: &[Engine<AnyStore>],
    tasks: usize,
    run: impl Fn(Engine<AnyStore>, usize) -> F,
) -> (usize, Vec<String>)
where
    F: Future<Output = Result<Receipt, EngineError>> + Send + 'static,
{
    let barrier = Arc::new(Barrier::new(tasks));
    let runner = |number: usize| {
        let (line, running) = (Arc::clone(&barrier), run(engines[number % engines.len()].clone(), number));
        tokio::spawn(async move {
            line.wait().await;
            running.await
        })
    };
    let tasks: Vec<_> = (0..tasks).map(runner).collect();
    let (mut won, mut codes) = (0, Vec::new());
    for task in tasks {
        match task.await.expect("no panic") {
            Ok(answer) if answer.no_op.is_none() => won += 1,
            reply => codes.push(reply_code(&reply)),
        }
    }
    (won, codes)
}

pub(crate) async fn submit(engine: Engine<AnyStore>, submission: Submission) -> Result<Receipt, EngineError> {
    engine.submit(submission).await
}

/// Workers compete for one job: one gets the lease.
pub(crate) async fn assert_one_lease_wins(engines: &[Engine<AnyStore>], tasks: usize, id: RecordId) {
    let (won, codes) = race(engines, tasks, |engine, number| {
        let call = Call::Lease { record: id, worker: "w".into(), lease: None, start: true };
        submit(engine, Submission::new(&worker(&format!("w{number}")), call))
    })
    .await;
    assert_eq!(won, 1, "{codes:?}");
    assert_eq!(engines[0].store().executions(id).await.unwrap().len(), 1);
}

/// Commits of one execution compete: one succeeds, and the others get that reply.
pub(crate) async fn assert_one_commit_wins(engines: &[Engine<AnyStore>], tasks: usize, id: RecordId) {
    let held = engines[0].store().executions(id).await.unwrap().pop().expect("it is leased");
    let (won, codes) = race(engines, tasks, |engine, number| {
        let call = Call::Commit { record: id, token: held.token, result: json!(number), finish: true };
        submit(engine, Submission::new(&worker(&held.holder), call))
    })
    .await;
    assert_eq!(won, 1, "{codes:?}");
    assert_eq!(engines[0].store().history(id, 0, 10).await.unwrap().len(), 3);
}

/// The owner cancels a prize while entries are judged: one entry wins, or none. Counts both.
#[derive(Debug, Default)]
pub(crate) struct PrizeRaces {
    pub(crate) won: usize,
    pub(crate) cancelled: usize,
}

impl PrizeRaces {
    /// Runs one more race; returns the codes of the late calls. A different task cancels each time, so that it comes
    /// early and late.
    pub(crate) async fn run_race(&mut self, engines: &[Engine<AnyStore>], tasks: usize) -> Vec<String> {
        let (ann, judge, last) = (user("ann"), worker("judge"), &engines[engines.len() - 1]);
        let prize = engines[0].create(&ann, "race.prize", json_object(json!({}))).await.unwrap().subject;
        let entry = |_| {
            let (lifecycle, fields) = ("race.entry".into(), json_object(json!({ "prize": prize.to_string() })));
            Submission::new(
                &ann,
                Call::Create(CreateRecord { lifecycle, id: None, owner: None, fields, payload: None }),
            )
        };
        engines[0].submit_all((0..tasks).map(entry).collect()).await.unwrap();
        let wanted = LeaseRequest { max_jobs: tasks, ..LeaseRequest::single_job("race.entry", "judge") };
        let held = engines[0].lease(&judge, &wanted).await.unwrap();
        assert_eq!(held.len(), tasks);
        let canceling_task = (self.won + self.cancelled) % tasks;
        let (_, codes) = race(engines, tasks, |engine, number| {
            let submission = if number == canceling_task {
                let (record, input) = (prize, json_object(json!({})));
                let call = Call::Fire { record, event: "cancel".into(), input, token: None, if_version: None };
                Submission::new(&ann, call)
            } else {
                let (record, token, result) = (held[number].record.id, held[number].token, json!(null));
                Submission::new(&judge, Call::Commit { record, token, result, finish: true })
            };
            submit(engine, submission)
        })
        .await;
        let mut passed = 0;
        for held in &held {
            passed += usize::from(state_of(last, held.record.id).await == "passed");
        }
        match state_of(last, prize).await.as_str() {
            "won" => {
                assert_eq!(passed, 1);
                self.won += 1;
            }
            "cancelled" => {
                assert_eq!(passed, 0);
                self.cancelled += 1;
            }
            other => panic!("unexpected state {other} after the race"),
        }
        // Ends the job whose judge canceled instead, so that the next race has only its own.
        let own = &held[canceling_task];
        let _ = engines[0].commit(&judge, own.record.id, own.token, json!(null), true).await;
        codes
    }
}
