//! Many after the same thing at once.

use std::sync::Arc;

use onceward_core::decide::{Call, Create};
use onceward_core::value::RecordId;
use onceward_engine::{Answer, Engine, EngineError, Submission, Wanted};
use onceward_store::{AnyStore, Store as _};
use onceward_testkit::{user, worker};
use serde_json::json;
use tokio::sync::Barrier;

use super::{code, object, state};

/// So many tasks, each at an engine in turn, all at once; how many had it, and what the others were told.
pub(crate) async fn race<F>(
    engines: &[Engine<AnyStore>],
    tasks: usize,
    run: impl Fn(Engine<AnyStore>, usize) -> F,
) -> (usize, Vec<String>)
where
    F: Future<Output = Result<Answer, EngineError>> + Send + 'static,
{
    let line = Arc::new(Barrier::new(tasks));
    let runner = |number: usize| {
        let (line, running) = (Arc::clone(&line), run(engines[number % engines.len()].clone(), number));
        tokio::spawn(async move {
            line.wait().await;
            running.await
        })
    };
    let tasks: Vec<_> = (0..tasks).map(runner).collect();
    let (mut won, mut told) = (0, Vec::new());
    for task in tasks {
        match task.await.expect("no panic") {
            Ok(answer) if answer.already.is_none() => won += 1,
            reply => told.push(code(&reply)),
        }
    }
    (won, told)
}

pub(crate) async fn submit(engine: Engine<AnyStore>, submission: Submission) -> Result<Answer, EngineError> {
    engine.submit(submission).await
}

/// Workers after one job, each by a name of its own: one has the lease.
pub(crate) async fn one_lease(engines: &[Engine<AnyStore>], tasks: usize, id: RecordId) {
    let (won, told) = race(engines, tasks, |engine, number| {
        let call = Call::Lease { record: id, worker: "w".into(), lease: None, start: true };
        submit(engine, Submission::new(&worker(&format!("w{number}")), call))
    })
    .await;
    assert_eq!(won, 1, "{told:?}");
    assert_eq!(engines[0].store().executions(id).await.unwrap().len(), 1);
}

/// Many commits of one execution: one lands, and all the others hear that it has.
pub(crate) async fn one_commit(engines: &[Engine<AnyStore>], tasks: usize, id: RecordId) {
    let held = engines[0].store().executions(id).await.unwrap().pop().expect("it is leased");
    let (won, told) = race(engines, tasks, |engine, number| {
        let call = Call::Commit { record: id, token: held.token, result: json!(number), finish: true };
        submit(engine, Submission::new(&worker(&held.holder), call))
    })
    .await;
    assert_eq!(won, 1, "{told:?}");
    assert_eq!(engines[0].store().history(id, 0, 10).await.unwrap().len(), 3);
}

/// The owner takes the prize back while entries are judged: either one entry has won it, or nobody has. How often which.
#[derive(Debug, Default)]
pub(crate) struct Prizes {
    pub(crate) won: usize,
    pub(crate) cancelled: usize,
}

impl Prizes {
    /// One more prize, and so many who judge or cancel; what those were told who came too late. A different one tries to cancel each time,
    /// so that it comes early and late.
    pub(crate) async fn race(&mut self, engines: &[Engine<AnyStore>], tasks: usize) -> Vec<String> {
        let (ann, judge, last) = (user("ann"), worker("judge"), &engines[engines.len() - 1]);
        let prize = engines[0].create(&ann, "race.prize", object(json!({}))).await.unwrap().subject;
        let entry = |_| {
            let (lifecycle, fields) = ("race.entry".into(), object(json!({ "prize": prize.to_string() })));
            Submission::new(&ann, Call::Create(Create { lifecycle, id: None, owner: None, fields, payload: None }))
        };
        engines[0].submit_all((0..tasks).map(entry).collect()).await.unwrap();
        let wanted = Wanted { most: tasks, ..Wanted::one("race.entry", "judge") };
        let held = engines[0].lease(&judge, &wanted).await.unwrap();
        assert_eq!(held.len(), tasks);
        let cancels = (self.won + self.cancelled) % tasks;
        let (_, told) = race(engines, tasks, |engine, number| {
            let submission = if number == cancels {
                let (record, input) = (prize, object(json!({})));
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
            passed += usize::from(state(last, held.record.id).await == "passed");
        }
        match state(last, prize).await.as_str() {
            "won" => {
                assert_eq!(passed, 1);
                self.won += 1;
            }
            "cancelled" => {
                assert_eq!(passed, 0);
                self.cancelled += 1;
            }
            other => panic!("{other} after all have had their say"),
        }
        // The one whose judge cancelled instead is done with, so that the next race has only its own.
        let own = &held[cancels];
        let _ = engines[0].commit(&judge, own.record.id, own.token, json!(null), true).await;
        told
    }
}
