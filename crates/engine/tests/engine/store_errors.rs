//! Store errors: who gets them, and that other operations continue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use onceward_core::decide::Call;
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::value::RecordId;
use onceward_engine::{Engine, EngineConfig, EngineError, LeaseRequest, Submission};
use onceward_store::{Batch, Clock, ListQuery, MemoryStore, SaveConflict, SaveResult, Store, StoreError};
use onceward_testkit::worker;

use crate::support::faulty_store::FaultyStore;
use crate::support::{
    JOB_LIFECYCLE, TEST_TIMEOUT, config_without_polling, memory_store, new_job_submission, open_engine, operator_actor,
    spawn_submit, start_time, wait_until_queued,
};

fn has_create_by_eve(batch: &Batch) -> bool {
    batch
        .operations
        .iter()
        .any(|write| matches!(&write.operation.call, Call::Create(_)) && &*write.operation.actor.id == "eve")
}

/// The batch is split until the rejected operation is alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rejected_operation_fails_alone() {
    let reject = |batch: &Batch| has_create_by_eve(batch).then(|| Err(StoreError::Rejected("no".to_owned())));
    let engine = open_engine(FaultyStore::new(memory_store(), reject), EngineConfig::default()).await;
    let mut jobs: Vec<_> = (0..100).map(|_| new_job_submission()).collect();
    jobs[37].actor.id = "eve".into();
    let replies = engine.submit_all(jobs).await.unwrap();
    for (number, reply) in replies.iter().enumerate() {
        match reply {
            Ok(_) => assert_ne!(number, 37),
            Err(EngineError::Store(error)) => {
                assert!(number == 37 && matches!(**error, StoreError::Rejected(_)), "{number}: {error}");
            }
            Err(other) => panic!("{number}: {other}"),
        }
    }
    assert_eq!(engine.store().log(0, 1_000).await.unwrap().len(), 99);
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unreadable_record_fails_alone() {
    let engine = open_engine(FaultyStore::new(memory_store(), |_: &Batch| None), EngineConfig::default()).await;
    let mut ids = Vec::new();
    for reply in engine.submit_all((0..100).map(|_| new_job_submission()).collect()).await.unwrap() {
        ids.push(reply.unwrap().subject);
    }
    engine.store().damaged_records.lock().unwrap().insert(ids[37]);
    let lease = |id: &RecordId| {
        let call = Call::Lease { record: *id, worker: "w".into(), lease: None, start: true };
        Submission::new(&worker("bob"), call)
    };
    let replies = engine.submit_all(ids.iter().map(lease).collect()).await.unwrap();
    let failed: Vec<_> = replies.iter().enumerate().filter(|(_, reply)| reply.is_err()).collect();
    assert!(matches!(failed[..], [(37, Err(EngineError::Store(_)))]), "{failed:?}");
    engine.close().await;
}

/// There are more damaged records than one poll fires.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn damaged_due_records_do_not_block_others() {
    let clock = Clock::manual(start_time());
    let store = FaultyStore::new(MemoryStore::new(clock.clone()), |_: &Batch| None);
    let engine = open_engine(store, EngineConfig { max_batch_operations: 10, ..config_without_polling() }).await;
    let after = |seconds| start_time().checked_add(onceward_core::time::Duration::from_secs(seconds)).unwrap();
    let mut held = Vec::new();
    for number in 0..25 {
        clock.set(after(number));
        engine.submit(new_job_submission()).await.unwrap();
        held.push(
            engine
                .lease(&worker("bob"), &LeaseRequest::single_job(JOB_LIFECYCLE, "w"))
                .await
                .unwrap()
                .remove(0)
                .record
                .id,
        );
    }
    let last = held.pop().expect("a valid submission");
    engine.store().damaged_records.lock().unwrap().extend(&held);
    clock.set(after(3_600));
    engine.wake_all();
    let ended = async {
        while engine.store().record(last).await.unwrap().unwrap().live_execution().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, ended).await.expect("no timeout");
    let jobs = engine.list(&operator_actor(), &ListQuery { limit: 100, ..ListQuery::default() }).await.unwrap();
    assert_eq!(jobs.records.iter().map(|job| job.id).collect::<Vec<_>>(), [last]);
    assert_eq!(engine.counts(&operator_actor()).await.unwrap().iter().map(|count| count.count).sum::<u64>(), 25);
    assert!(engine.get(&operator_actor(), held[0]).await.is_err());
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conflicting_batch_is_split_until_saved() {
    let lose = |batch: &Batch| (batch.operations.len() > 10).then(|| Ok(SaveResult::Conflict(SaveConflict::default())));
    let engine = open_engine(FaultyStore::new(memory_store(), lose), EngineConfig::default()).await;
    let replies = engine.submit_all((0..100).map(|_| new_job_submission()).collect()).await.unwrap();
    assert!(replies.iter().all(Result::is_ok));
    assert_eq!(engine.store().log(0, 1_000).await.unwrap().len(), 100);
    // Batches of 100, 50, 25 and 13 conflict four times each, once per part of that size; those of 12 do too.
    let tally = engine.counters();
    assert_eq!((tally.batches, tally.operations), (16, 100));
    assert_eq!(tally.conflicts, 4 * (1 + 2 + 4 + 8));
    engine.close().await;
}

/// Another engine leases the job between decide and save.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conflicting_save_is_decided_again() {
    let store = FaultyStore::gated(memory_store());
    let quick = open_engine(store.inner.clone(), EngineConfig::default()).await;
    let late = open_engine(store.clone(), EngineConfig::default()).await;
    let id = quick.submit(new_job_submission()).await.unwrap().subject;
    let lease = |name| {
        let call = Call::Lease { record: id, worker: "w".into(), lease: None, start: true };
        Submission::new(&worker(name), call)
    };
    let losing = spawn_submit(&late, lease("late"));
    store.wait_for_saves(1).await;
    quick.submit(lease("quick")).await.unwrap();
    store.save_gate.add_permits(10);
    let reply = losing.await.unwrap();
    assert_eq!(reply.unwrap_err().refusal().map(|refusal| refusal.status), Some(409));
    assert_eq!(late.counters().conflicts, 1);
    let attempts = store.executions(id).await.unwrap();
    assert_eq!((attempts.len(), &*attempts[0].holder), (1, "quick"));
    quick.close().await;
    late.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn endless_conflicts_return_too_many_conflicts() {
    let lose = |_: &Batch| Some(Ok(SaveResult::Conflict(SaveConflict::default())));
    let engine = open_engine(FaultyStore::new(memory_store(), lose), EngineConfig::default()).await;
    assert!(matches!(engine.submit(new_job_submission()).await, Err(EngineError::TooManyConflicts)));
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn full_store_fails_calls_until_space_returns() {
    let failures = Arc::new(AtomicUsize::new(2));
    let full = move |_: &Batch| {
        let left = failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.is_ok().then_some(Err(StoreError::DiskFull))
    };
    let engine = open_engine(FaultyStore::new(memory_store(), full), EngineConfig::default()).await;
    for _ in 0..2 {
        let replies = engine.submit_all(vec![new_job_submission(), new_job_submission()]).await.unwrap();
        let is_expected_error = |reply: &Result<_, EngineError>| matches!(reply, Err(EngineError::Store(error)) if matches!(**error, StoreError::DiskFull));
        assert!(replies.iter().all(is_expected_error));
    }
    assert!(engine.store().log(0, 10).await.unwrap().is_empty());
    engine.submit(new_job_submission()).await.unwrap();
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn failed_due_work_is_retried_with_delay() {
    let (tries, full, clock) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)), Clock::manual(start_time()));
    let (counted, is_full) = (Arc::clone(&tries), Arc::clone(&full));
    let fault = move |batch: &Batch| {
        let due = batch.operations.iter().any(|write| matches!(write.operation.call, Call::FireDue { .. }));
        counted.fetch_add(usize::from(due), Ordering::SeqCst);
        (due && is_full.load(Ordering::SeqCst)).then_some(Err(StoreError::DiskFull))
    };
    let engine = open_engine(FaultyStore::new(MemoryStore::new(clock.clone()), fault), config_without_polling()).await;
    engine.submit(new_job_submission()).await.unwrap();
    engine.lease(&worker("bob"), &LeaseRequest::single_job(JOB_LIFECYCLE, "w")).await.unwrap();
    clock.set(start_time().checked_add(onceward_core::time::Duration::from_secs(30)).unwrap());
    engine.wake_all();
    while tries.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    // Enough time for many iterations of a loop that does not wait.
    for _ in 0..100 {
        // A call that shares a transaction with due work fails with it, and is retried.
        while engine.submit(new_job_submission()).await.is_err() {}
    }
    // Once for the lease's notification, once for the clock.
    assert!(tries.load(Ordering::SeqCst) <= 2);
    full.store(false, Ordering::SeqCst);
    let mut stream = engine.stream(&operator_actor(), 102);
    engine.wake_all();
    assert!(tokio::time::timeout(TEST_TIMEOUT, stream.next()).await.expect("no timeout").unwrap().is_some());
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unsound_lifecycle_returns_its_diagnostics() {
    let engine = open_engine(memory_store(), EngineConfig::default()).await;
    let file = InputFile { name: "bad.toml".to_owned(), text: "language = 1\nlifecycle = \"bad.one\"\n".into() };
    let error = engine.put_lifecycles(&InputFiles { files: vec![file] }).await.expect_err("unsound");
    assert_eq!((error.status(), error.code()), (422, "invalid_lifecycle"));
    let EngineError::Store(store) = &error else { panic!("{error}") };
    let StoreError::InvalidLifecycles(found) = &**store else { panic!("{error}") };
    assert!(error.to_string().contains(&found.diagnostics[0].message), "{error}");
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_callers_share_transactions() {
    let store = FaultyStore::gated(memory_store());
    let engine = open_engine(store.clone(), EngineConfig::default()).await;
    let callers: Vec<_> = (0..100).map(|_| spawn_create(&engine)).collect();
    wait_until_queued(&engine, 100).await;
    store.save_gate.add_permits(100);
    for caller in callers {
        caller.await.unwrap();
    }
    let tally = engine.counters();
    assert_eq!(tally.operations, 100);
    // One that was alone when it came, one beside it, then the others; and one more for each caller that was about
    // to submit, one per thread.
    assert!(tally.batches <= 8, "{tally:?}");
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn small_batch_is_sent_while_earlier_save_blocks() {
    let store = FaultyStore::gated(memory_store());
    let engine = open_engine(store.clone(), EngineConfig::default()).await;
    let stuck = spawn_create(&engine);
    tokio::time::timeout(TEST_TIMEOUT, store.wait_for_saves(1)).await.expect("no timeout");
    let late = spawn_create(&engine);
    tokio::time::timeout(TEST_TIMEOUT, store.wait_for_saves(2)).await.expect("no timeout");
    store.save_gate.add_permits(2);
    stuck.await.unwrap();
    late.await.unwrap();
    engine.close().await;
}

/// Operations of one call stay together.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn batch_respects_max_batch_operations() {
    let largest = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&largest);
    let store = FaultyStore::new(memory_store(), move |batch: &Batch| {
        seen.fetch_max(batch.operations.len(), Ordering::SeqCst);
        None
    });
    let store = store.with_gate();
    let engine = open_engine(store.clone(), EngineConfig { max_batch_operations: 10, ..EngineConfig::default() }).await;
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let engine = engine.clone();
            tokio::spawn(async move { engine.submit_all((0..7).map(|_| new_job_submission()).collect()).await })
        })
        .collect();
    wait_until_queued(&engine, 140).await;
    store.save_gate.add_permits(100);
    for call in calls {
        assert!(call.await.unwrap().unwrap().iter().all(Result::is_ok));
    }
    assert_eq!(largest.load(Ordering::SeqCst), 7);
    engine.close().await;
}

/// Both decide on the same job; one of them conflicts and decides again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pipelined_batches_lease_a_job_once() {
    let store = FaultyStore::gated(memory_store());
    store.save_gate.add_permits(1);
    let engine = open_engine(store.clone(), EngineConfig::default()).await;
    let id = engine.submit(new_job_submission()).await.unwrap().subject;
    let lease = |number: usize| {
        let call = Call::Lease { record: id, worker: "w".into(), lease: None, start: true };
        spawn_submit(&engine, Submission::new(&worker(&format!("w{number}")), call))
    };
    // One save blocks at the gate; then enough operations for a second batch.
    let mut tasks = vec![lease(0)];
    store.wait_for_saves(2).await;
    tasks.extend((1..64).map(lease));
    store.wait_for_saves(3).await;
    store.save_gate.add_permits(100);
    let mut won = 0;
    for task in tasks {
        won += usize::from(task.await.unwrap().is_ok());
    }
    assert_eq!((won, store.executions(id).await.unwrap().len()), (1, 1));
    assert_eq!(engine.counters().conflicts, 1);
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lease_scan_is_bounded_by_queue_capacity() {
    let engine = open_engine(
        FaultyStore::new(memory_store(), |_: &Batch| None),
        EngineConfig { max_queued_operations: 50, ..EngineConfig::default() },
    )
    .await;
    // The permits of one call are released shortly after its reply.
    for _ in 0..25 {
        engine.submit_all((0..20).map(|_| new_job_submission()).collect()).await.unwrap();
    }
    let tasks = (0..40).map(|_| {
        let engine = engine.clone();
        tokio::spawn(async move {
            let wanted = LeaseRequest { max_jobs: 20, ..LeaseRequest::single_job(JOB_LIFECYCLE, "w") };
            let mut had = 0;
            loop {
                match engine.lease(&worker("bob"), &wanted).await {
                    Ok(found) if found.is_empty() => return had,
                    Ok(found) => had += found.len(),
                    Err(EngineError::Overloaded { .. }) => tokio::task::yield_now().await,
                    Err(error) => panic!("{error}"),
                }
            }
        })
    });
    let mut had = 0;
    for task in tasks.collect::<Vec<_>>() {
        had += task.await.unwrap();
    }
    assert_eq!(had, 500);
    assert!(engine.store().max_requested_candidates.load(Ordering::SeqCst) <= 50);
    engine.close().await;
}

fn spawn_create(engine: &Engine<FaultyStore>) -> tokio::task::JoinHandle<()> {
    let engine = engine.clone();
    tokio::spawn(async move {
        engine.submit(new_job_submission()).await.expect("a job");
    })
}
