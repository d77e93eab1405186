//! Workers inside the process.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward_core::decide::{Call, ErrorReport};
use onceward_core::record::{Record, Token};
use onceward_core::time::Duration as Span;
use onceward_core::value::{RecordId, Value};
use onceward_engine::{Config, Engine, Job, Wanted, Working};
use onceward_store::{AnyStore, Batch, Clock, MemoryStore, Store, StoreError, Write};
use onceward_testkit::{user, worker};
use serde_json::{Value as Json, json};
use tokio::sync::{Semaphore, mpsc};

use crate::stage::troubled::Troubled;
use crate::stage::{Folder, LONG, object, on_each, open, ops, sqlite, start, unpolled, wait};

const ERRAND: &str = "race.errand";

async fn errand<S: Store + 'static>(engine: &Engine<S>, what: &str) -> RecordId {
    engine.create(&user("ann"), ERRAND, object(json!({ "what": what }))).await.expect("an errand").subject
}

async fn look<S: Store + 'static>(engine: &Engine<S>, id: RecordId) -> Arc<Record> {
    engine.get(&ops(), id).await.expect("reading").expect("it is there")
}

/// Looks until it is so; a test that waits too long has failed.
async fn until<S: Store + 'static>(engine: &Engine<S>, id: RecordId, is: impl Fn(&Record) -> bool) -> Arc<Record> {
    let looking = async {
        loop {
            let record = look(engine, id).await;
            if is(&record) {
                return record;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG, looking).await.expect("in time")
}

fn in_state(state: &str) -> impl Fn(&Record) -> bool {
    move |record| **record.state_name() == *state
}

fn last_error(record: &Record) -> Json {
    record.field("lastError").map(Value::to_json).unwrap_or_default()
}

/// What a closure returns is committed once; an error fails its job, and so do a panic and a result that does not fit.
#[test]
fn a_closure_for_each_job() {
    on_each(unpolled(), async |engine, _| {
        let ids = [
            errand(engine, "fetch").await,
            errand(engine, "refuse").await,
            errand(engine, "stumble").await,
            errand(engine, "chatter").await,
        ];
        engine.work(Working { at_once: 2, ..Working::on(ERRAND) }, |job: Job| async move {
            match job.field("what").as_str() {
                Some("fetch") => Ok(json!({ "said": "here" })),
                Some("chatter") => Ok(json!({ "said": "far too long for it" })),
                Some("stumble") if job.token == Token(1) => panic!("over a stone"),
                Some("stumble") => Ok(json!({ "said": "ouch" })),
                _ => Err(ErrorReport { retryable: Some(false), ..ErrorReport::new("unwilling", "no") }),
            }
        });
        until(engine, ids[0], in_state("done")).await;
        assert_eq!(last_error(&*until(engine, ids[1], in_state("failed")).await), "unwilling");
        let stumbled = until(engine, ids[2], in_state("done")).await;
        assert_eq!((stumbled.attempt, last_error(&stumbled)), (2, json!("EXCEPTION")));
        assert_eq!(last_error(&*until(engine, ids[3], in_state("failed")).await), "BAD_RESULT");
        let effect = engine.effect(&user("ann"), ids[0]).await.unwrap().expect("an effect");
        assert_eq!(effect.result, json!({ "said": "here" }));
    });
}

/// A result that is too large fails its job, and so does one that the database will not have; of an error that is too large the
/// beginning is reported. Nothing is tried for ever: closing comes to an end.
#[test]
fn what_is_never_taken_fails_its_job() {
    wait(async {
        let reject = |batch: &Batch| {
            let rude = |write: &Write| matches!(&write.operation.call, Call::Commit { result, .. } if result["said"] == "rude");
            batch.writes.iter().any(rude).then(|| Err(StoreError::Rejected("no".to_owned())))
        };
        let store = Troubled::new(MemoryStore::new(Clock::manual(start())), reject);
        let engine = open(store, Config { result_bytes: 1_000, input_bytes: 2_000, ..unpolled() }).await;
        let (large, rude, wordy) =
            (errand(&engine, "large").await, errand(&engine, "rude").await, errand(&engine, "wordy").await);
        engine.work(Working::on(ERRAND), |job: Job| async move {
            match job.field("what").as_str() {
                Some("large") => Ok(json!({ "said": "x".repeat(2_000) })),
                Some("rude") => Ok(json!({ "said": "rude" })),
                _ => Err(ErrorReport { retryable: Some(false), ..ErrorReport::new("wordy", &"x".repeat(5_000)) }),
            }
        });
        assert_eq!(last_error(&*until(&engine, large, in_state("failed")).await), "SIZE_EXCEEDED");
        assert_eq!(last_error(&*until(&engine, rude, in_state("failed")).await), "store_rejected");
        assert_eq!(last_error(&*until(&engine, wordy, in_state("failed")).await), "wordy");
        tokio::time::timeout(LONG, engine.close()).await.expect("in time");
    });
}

/// A closure that panics before it comes to its future fails its job like any other.
#[test]
fn a_panic_at_once_is_reported() {
    wait(async {
        let engine = open(MemoryStore::new(Clock::manual(start())), unpolled()).await;
        let id = errand(&engine, "stumble").await;
        engine.work(Working::on(ERRAND), |job: Job| {
            assert_ne!(job.token, Token(1), "over a stone");
            async { Ok(json!({ "said": "ouch" })) }
        });
        let stumbled = until(&engine, id, in_state("done")).await;
        assert_eq!((stumbled.attempt, last_error(&stumbled)), (2, json!("EXCEPTION")));
        // What it said may quote a payload.
        let log = engine.store().log(0, 100).await.expect("the log");
        assert!(!log.iter().any(|entry| format!("{:?}", entry.body()).contains("over a stone")));
        engine.close().await;
    });
}

/// A heartbeat that finds no room is tried again soon enough to keep the lease.
#[test]
fn a_heartbeat_that_finds_no_database_is_tried_again() {
    wait(async {
        let beats = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&beats);
        let busy = move |batch: &Batch| {
            let beat = |write: &Write| matches!(write.operation.call, Call::Heartbeat { .. });
            if !batch.writes.iter().any(beat) {
                return None;
            }
            let mut told = told.lock().unwrap();
            told.push(tokio::time::Instant::now());
            (told.len() < 3).then_some(Err(StoreError::Busy))
        };
        let store = Troubled::new(MemoryStore::new(Clock::manual(start())), busy);
        let engine = open(store, Config { grace: Duration::ZERO, ..unpolled() }).await;
        errand(&engine, "wait").await;
        // A beat of a second: two that fail, each tried again a whole one later, and the lease is gone.
        let lease = Some(Span::from_millis(3_000));
        engine.work(Working { lease, ..Working::on(ERRAND) }, |_: Job| std::future::pending());
        let three = async {
            loop {
                if let [first, _, third, ..] = beats.lock().unwrap()[..] {
                    return third - first;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let took = tokio::time::timeout(LONG, three).await.expect("in time");
        assert!(took < Duration::from_secs(1), "{took:?}");
        engine.close().await;
    });
}

/// A database that is busy for good does not keep a worker from closing: what it could not report runs out.
#[test]
fn a_report_that_finds_no_database_ends_with_the_worker() {
    wait(async {
        let busy = |batch: &Batch| {
            let commit = |write: &Write| matches!(write.operation.call, Call::Commit { .. });
            batch.writes.iter().any(commit).then_some(Err(StoreError::Busy))
        };
        let store = Troubled::new(MemoryStore::new(Clock::manual(start())), busy);
        let engine = open(store.clone(), Config { grace: Duration::from_millis(1), ..unpolled() }).await;
        let id = errand(&engine, "fetch").await;
        engine.work(Working::on(ERRAND), |_: Job| async { Ok(json!({ "said": "here" })) });
        until(&engine, id, |record| record.live_execution().is_some()).await;
        tokio::time::timeout(LONG, engine.close()).await.expect("in time");
        assert!(store.inner.record(id).await.unwrap().unwrap().live_execution().is_some());
    });
}

/// A job that takes longer than its lease keeps it by heartbeats.
#[test]
fn a_long_job_keeps_its_lease() {
    wait(async {
        let engine = open(MemoryStore::new(Clock::machine()), Config::default()).await;
        let id = errand(&engine, "wait").await;
        let (began, mut starts) = mpsc::unbounded_channel();
        let gate = Arc::new(Semaphore::new(0));
        let waits = Arc::clone(&gate);
        let lease = Some(Span::from_millis(3_000));
        engine.work(Working { lease, ..Working::on(ERRAND) }, move |job: Job| {
            let (began, waits) = (began.clone(), Arc::clone(&waits));
            async move {
                let _ = began.send(job.record.execution.as_ref().expect("leased").expires_at);
                let _ = waits.acquire().await;
                Ok(json!({ "said": "done" }))
            }
        });
        let first_end = starts.recv().await.expect("it began");
        until(&engine, id, |record| record.execution.as_ref().is_some_and(|own| own.expires_at > first_end)).await;
        gate.add_permits(1);
        assert_eq!(until(&engine, id, in_state("done")).await.attempt, 1);
        engine.close().await;
    });
}

/// Called off while somebody is at it: the heartbeat tells the closure, and what it says then is what counts. One that will
/// not hear is dropped.
#[test]
fn a_job_is_asked_to_stop() {
    for hears in [true, false] {
        wait(async {
            let engine = open(MemoryStore::new(Clock::machine()), Config::default()).await;
            let id = errand(&engine, "wait").await;
            let lease = Some(Span::from_millis(1_500));
            engine.work(Working { lease, ..Working::on(ERRAND) }, move |job: Job| async move {
                if hears {
                    job.stopped().await;
                    assert!(job.should_stop());
                    return Err(ErrorReport::new("heard", "as you wish"));
                }
                std::future::pending().await
            });
            until(&engine, id, |record| record.live_execution().is_some()).await;
            engine.fire(&user("ann"), id, "call_off", object(json!({}))).await.unwrap();
            let record = until(&engine, id, in_state("off")).await;
            assert_eq!(last_error(&record), if hears { "heard" } else { "yielded" });
            engine.close().await;
        });
    }
}

/// A closing program lets its jobs finish; one that does not come to an end is given back, and waits for the next worker.
#[test]
fn closing_ends_or_gives_back() {
    on_each(Config { grace: Duration::from_millis(500), ..unpolled() }, async |engine, _| {
        let (ends, hangs) = (errand(engine, "ends").await, errand(engine, "hangs").await);
        let running = Arc::new(Semaphore::new(0));
        let runs = Arc::clone(&running);
        engine.work(Working { at_once: 2, ..Working::on(ERRAND) }, move |job: Job| {
            runs.add_permits(1);
            async move {
                job.stopped().await;
                if job.field("what") == "hangs" {
                    std::future::pending::<()>().await;
                }
                Ok(json!({ "said": "just so" }))
            }
        });
        let _ = running.acquire_many(2).await.expect("both run");
        engine.close().await;
        let kept = async |id| engine.store().record(id).await.unwrap().unwrap();
        assert_eq!(&**kept(ends).await.state_name(), "done");
        let given_back = kept(hangs).await;
        assert_eq!((&**given_back.state_name(), last_error(&given_back)), ("waiting", json!("yielded")));
        assert!(given_back.live_execution().is_none());
    });
}

/// Tells when it is dropped.
struct Told(mpsc::UnboundedSender<()>);

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// A job whose lease was lost is dropped: whatever it would still do comes to nothing.
#[test]
fn a_lost_lease_drops_the_job() {
    wait(async {
        let clock = Clock::manual(start());
        let engine = open(MemoryStore::new(clock.clone()), unpolled()).await;
        let id = errand(&engine, "wait").await;
        let (dropped, mut drops) = mpsc::unbounded_channel();
        let lease = Some(Span::from_millis(300));
        engine.work(Working { lease, ..Working::on(ERRAND) }, move |job: Job| {
            let told = Told(dropped.clone());
            async move {
                let _told = told;
                if job.token == Token(1) {
                    std::future::pending::<()>().await;
                }
                Ok(json!({ "said": "again" }))
            }
        });
        until(&engine, id, |record| record.live_execution().is_some()).await;
        // The process stood still for an hour.
        clock.set(start().checked_add(Span::from_secs(3_600)).unwrap());
        tokio::time::timeout(LONG, drops.recv()).await.expect("in time").expect("dropped");
        assert_eq!(until(&engine, id, in_state("done")).await.attempt, 2);
        engine.close().await;
    });
}

/// A process that died held jobs of its own. Opened again, the database gives them back at once: the clock has not moved. What
/// others hold runs on.
#[test]
fn what_a_dead_process_held_is_free_at_once() {
    let (folder, clock) = (Folder::new(), Clock::manual(start()));
    let (own, others) = wait(async {
        let engine = open(sqlite(&folder, &clock), unpolled()).await;
        let others = errand(&engine, "others").await;
        assert_eq!(engine.lease(&worker("bob"), &Wanted::one(ERRAND, "remote")).await.unwrap().len(), 1);
        let own = errand(&engine, "own").await;
        engine.work(Working::on(ERRAND), |_: Job| std::future::pending());
        until(&engine, own, |record| record.live_execution().is_some()).await;
        // Ends here, without closing.
        (own, others)
    });
    wait(async {
        let engine: Engine<AnyStore> = Engine::open(sqlite(&folder, &clock), unpolled());
        let record = until(&engine, own, |record| record.live_execution().is_none()).await;
        assert_eq!((record.attempt, last_error(&record)), (1, json!("lost")));
        assert_eq!(look(&engine, others).await.live_execution().map(|own| own.token), Some(Token(1)));
        engine.work(Working::on(ERRAND), |_: Job| async { Ok(json!({ "said": "done" })) });
        assert_eq!(until(&engine, own, in_state("done")).await.attempt, 2);
        // Its own leases, of this opening, are nobody's leavings.
        assert!(engine.store().left_behind(10).await.unwrap().is_empty());
        engine.close().await;
    });
}
