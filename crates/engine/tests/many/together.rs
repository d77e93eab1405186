//! What one engine does, the others hear of; what is due is done by one of them.

use std::collections::BTreeMap;

use onceward_core::time::Duration;
use onceward_engine::{Config, EngineError, Wanted};
use onceward_store::{Clock, Store, StoreError};
use onceward_testkit::postgres::Server;
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::stage::{JOB, LONG, job, leased, object, open, ops, postgres, start, state, unpolled, wait};
use crate::{engines, proven};

/// A worker that waits at one engine has the job that another makes, long before it would have looked for itself.
#[test]
fn a_job_of_another_engine_wakes_a_worker() {
    wait(async {
        let url = Server::shared().database();
        let engines = engines(2, &url, &Clock::manual(start()), &unpolled()).await;
        let wanted = Wanted { wait: LONG / 2, ..Wanted::one(JOB, "w") };
        for _ in 0..5 {
            let waiting = {
                let (engine, wanted) = (engines[1].clone(), wanted.clone());
                tokio::spawn(async move { engine.lease(&worker("bob"), &wanted).await })
            };
            let id = job(&engines[0]).await;
            let held = waiting.await.unwrap().unwrap().pop().expect("in time");
            assert_eq!(held.record.id, id);
        }
        // The log is followed across engines, too.
        let mut stream = engines[1].stream(&ops(), 0);
        for seq in 1..=10 {
            assert_eq!(stream.next().await.unwrap().unwrap().seq, seq);
        }
        let next = tokio::spawn(async move { stream.next().await });
        job(&engines[0]).await;
        assert_eq!(next.await.unwrap().unwrap().unwrap().seq, 11);
    });
}

/// A worker that waits at one engine has asked again with its key at another, and was given a job there. What is made at the first is
/// not held up by a key that is used, and the call that still waits is answered as its key was.
#[test]
fn a_key_used_at_another_engine_holds_up_no_job() {
    wait(async {
        let url = Server::shared().database();
        let engines = engines(2, &url, &Clock::manual(start()), &unpolled()).await;
        let ranked = Wanted { key: Some("take".into()), ..Wanted::one("race.ranked", "w") };
        let waiting = tokio::spawn({
            let (engine, wanted) = (engines[0].clone(), Wanted { wait: LONG, ..ranked.clone() });
            async move { engine.lease(&worker("bob"), &wanted).await }
        });
        while engines[0].measures().idle == 0 {
            tokio::task::yield_now().await;
        }
        let fields = || object(json!({ "rank": 1 }));
        let first = engines[1].create(&user("ann"), "race.ranked", fields()).await.unwrap().subject;
        // It may be that the first engine hears of it before: then that is quicker.
        engines[1].lease(&worker("bob"), &ranked).await.unwrap();
        let next = engines[0].create(&user("ann"), "race.ranked", fields()).await.unwrap().subject;
        let given = waiting.await.unwrap().unwrap();
        assert_eq!(given.iter().map(|given| given.record.id).collect::<Vec<_>>(), [first]);
        assert!(engines[0].get(&ops(), next).await.unwrap().expect("it was made").live_execution().is_none());
    });
}

/// A job that one engine leased is reported to another, which remembers it as it was when it was made.
#[test]
fn a_refusal_does_not_rest_on_memory() {
    wait(async {
        for _ in 0..3 {
            let url = Server::shared().database();
            let engines = engines(2, &url, &Clock::manual(start()), &unpolled()).await;
            let id = job(&engines[0]).await;
            let held =
                engines[1].lease(&worker("bob"), &Wanted::one(JOB, "w")).await.unwrap().pop().expect("it is there");
            engines[0].commit(&worker("bob"), id, held.token, json!(1), true).await.unwrap();
        }
    });
}

/// Leases that run out, seen by three engines at once: each is lost once.
#[test]
fn what_is_due_is_done_once() {
    const JOBS: usize = 60;
    wait(async {
        let url = Server::shared().database();
        let clock = Clock::manual(start());
        let engines = engines(3, &url, &clock, &Config::default()).await;
        let mut jobs = Vec::new();
        for _ in 0..JOBS {
            jobs.push(job(&engines[0]).await);
        }
        let wanted = Wanted { most: JOBS, ..Wanted::one(JOB, "w") };
        assert_eq!(engines[1].lease(&worker("bob"), &wanted).await.unwrap().len(), JOBS);
        let mut stream = engines[2].stream(&ops(), 0);
        for _ in 0..2 * JOBS {
            stream.next().await.unwrap();
        }
        clock.set(start().checked_add(Duration::from_secs(3_600)).unwrap());
        engines.iter().for_each(onceward_engine::Engine::wake);
        let mut lost = BTreeMap::<_, usize>::new();
        for _ in 0..JOBS {
            let entry = stream.next().await.unwrap().unwrap();
            *lost.entry(entry.record.unwrap()).or_default() += 1;
        }
        assert_eq!(lost.len(), JOBS, "each job has one entry more, none has two");
        for engine in &engines {
            engine.close().await;
        }
        assert_eq!(engines[0].store().log(0, 10_000).await.unwrap().len(), 3 * JOBS, "and nothing was done twice");
        proven(&url, clock.now()).await;
    });
}

/// The server goes while an engine works, and comes back: what was answered is there, what was not is told, and work goes on.
#[test]
fn the_database_goes_and_comes_back() {
    wait(async {
        let server = Server::start();
        let url = server.database();
        let clock = Clock::manual(start());
        let engine = open(postgres(&url, &clock).await, Config::default()).await;
        let mut made = Vec::new();
        for round in 0..3 {
            made.push(job(&engine).await);
            let held = leased(&engine).await.expect("the job");
            server.stop();
            let commit = engine.commit(&worker("bob"), held.record.id, held.token, json!(round), true).await;
            let unreachable = |error: &EngineError| matches!(error, EngineError::Store(store) if matches!(**store, StoreError::Unavailable(_)));
            assert!(commit.as_ref().is_err_and(unreachable), "{commit:?}");
            let made = engine.create(&user("ann"), JOB, object(json!({}))).await;
            assert!(made.as_ref().is_err_and(unreachable), "{made:?}");
            server.start_again();
            engine
                .commit(&worker("bob"), held.record.id, held.token, json!(round), true)
                .await
                .expect("the lease holds");
        }
        for id in &made {
            assert_eq!(state(&engine, *id).await, "SUCCEEDED");
        }
        engine.close().await;
        proven(&url, clock.now()).await;
    });
}

/// Who may see a record is told by what stands in the database, not by what this engine saved last: another may have changed it, and
/// word of that may not have come yet.
#[test]
fn who_may_see_it_is_not_told_from_memory() {
    wait(async {
        let url = Server::shared().database();
        let engines = engines(2, &url, &Clock::manual(start()), &unpolled()).await;
        let ann = user("ann");
        let board = engines[0].create(&ann, "race.board", object(json!({ "reader": "eve" }))).await.unwrap().subject;
        let on_it = object(json!({ "board": board.to_string() }));
        let pinned = engines[0].create(&ann, "race.pinned", on_it).await.unwrap().subject;
        for (reader, other) in [("zoe", "eve"), ("eve", "zoe"), ("zoe", "eve")] {
            engines[1].fire(&ann, board, "hand", object(json!({ "reader": reader }))).await.unwrap();
            let sees = async |who: &str| engines[0].get(&user(who), pinned).await.unwrap().is_some();
            assert_eq!((sees(reader).await, sees(other).await), (true, false), "{reader} is the reader now");
            // So that it is this engine's own again, and at hand.
            engines[0].fire(&ann, board, "hand", object(json!({ "reader": reader }))).await.unwrap();
        }
    });
}
