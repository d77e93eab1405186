//! Panics: one of an operation fails that operation alone, and the engine names a task that a panic ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use onceward_core::decide::Call;
use onceward_core::trace::TraceContext;
use onceward_core::value::RecordId;
use onceward_engine::{EngineConfig, EngineError, ExecutionSpan, LeaseRequest, OperationSpan, SpanSink, Submission};
use onceward_store::{Batch, Clock, MemoryStore, Store as _};
use onceward_testkit::worker;

use crate::support::faulty_store::FaultyStore;
use crate::support::{
    JOB_LIFECYCLE, TEST_TIMEOUT, config_without_polling, memory_store, new_job_submission, open_engine, operator_actor,
    reply_code, start_time,
};

/// A sink with a bug.
#[derive(Debug)]
struct PanickingSpans;

impl SpanSink for PanickingSpans {
    fn record_operation(&self, _: OperationSpan) {
        panic!("simulated bug in a reply");
    }

    fn record_execution(&self, _: ExecutionSpan) {}
}

fn is_by_eve(batch: &Batch) -> bool {
    batch.operations.iter().any(|write| &*write.operation.actor.id == "eve")
}

/// Both while it is decided and while it is saved. Others of its batch are not affected, nor is a batch whose load panics
/// once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn panicking_operation_fails_alone() {
    let panics_on_save = |batch: &Batch| is_by_eve(batch).then(|| panic!("simulated bug in the save"));
    let engine = open_engine(FaultyStore::new(memory_store(), panics_on_save), EngineConfig::default()).await;
    let mut jobs: Vec<_> = (0..100).map(|_| new_job_submission()).collect();
    jobs[37].actor.id = "eve".into();
    let replies = engine.submit_all(jobs).await.unwrap();
    assert_eq!(failed_indexes(&replies), [(37, 500, "panicked".to_owned())]);
    let panics_by_save = engine.counters().panics;
    assert!(panics_by_save > 1, "the batch was split");
    let ids: Vec<RecordId> = replies.into_iter().flatten().map(|receipt| receipt.subject).collect();
    let lease = |id: &RecordId| {
        let call = Call::Lease { record: *id, worker: "w".into(), lease: None, start: true };
        Submission::new(&worker("bob"), call)
    };
    let store = engine.store();
    store.panicking_loads.lock().unwrap().insert(ids[50], usize::MAX);
    let replies = engine.submit_all(ids.iter().map(lease).collect()).await.unwrap();
    assert_eq!(failed_indexes(&replies), [(50, 500, "panicked".to_owned())]);
    let panics_by_load = engine.counters().panics - panics_by_save;
    assert!(panics_by_load > 1, "the batch was split");
    assert_eq!(engine.metrics().failures["panicked"], 2);
    store.panicking_loads.lock().unwrap().insert(ids[50], 1);
    engine.submit(lease(&ids[50])).await.expect("decided again");
    assert_eq!(engine.counters().panics, panics_by_save + panics_by_load + 1);
    assert_eq!(engine.dead_task(), None);
    engine.close().await;
}

fn failed_indexes<T>(replies: &[Result<T, EngineError>]) -> Vec<(usize, u16, String)> {
    let failed = replies.iter().enumerate().filter_map(|(number, reply)| Some((number, reply.as_ref().err()?)));
    failed.map(|(number, error)| (number, error.status(), error.code().to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn due_record_that_panics_is_blocked_and_others_fire() {
    let clock = Clock::manual(start_time());
    let store = FaultyStore::new(MemoryStore::new(clock.clone()), |_: &Batch| None);
    let engine = open_engine(store, config_without_polling()).await;
    let mut leased = Vec::new();
    for _ in 0..3 {
        engine.submit(new_job_submission()).await.unwrap();
        let jobs = engine.lease(&worker("bob"), &LeaseRequest::single_job(JOB_LIFECYCLE, "w")).await.unwrap();
        leased.push(jobs[0].record.id);
    }
    engine.store().panicking_loads.lock().unwrap().insert(leased[1], usize::MAX);
    let mut stream = engine.stream(&operator_actor(), engine.store().last_seq().await.unwrap());
    clock.set(start_time().checked_add(onceward_core::time::Duration::from_secs(30)).unwrap());
    engine.wake_all();
    for _ in 0..2 {
        let entry = tokio::time::timeout(TEST_TIMEOUT, stream.next()).await.expect("no timeout").unwrap().unwrap();
        assert_ne!(entry.record, Some(leased[1]));
    }
    while engine.metrics().blocked_records == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(engine.dead_task(), None);
    engine.close().await;
}

/// The engine names the task. A handler of a worker may panic, because its job fails alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn task_that_ends_is_reported() {
    let store = FaultyStore::new(memory_store(), |_: &Batch| None);
    let engine = open_engine(store.clone(), EngineConfig::default()).await;
    assert_eq!(engine.dead_task(), None);
    store.panics_on_due_records.store(true, Ordering::SeqCst);
    let dead = tokio::time::timeout(TEST_TIMEOUT, engine.wait_dead_task()).await.expect("no timeout");
    assert_eq!((&*dead, engine.dead_task().as_deref()), ("scheduler", Some("scheduler")));
    engine.submit(new_job_submission()).await.expect("the writer still runs");
    engine.spawn_periodic("second", std::time::Duration::ZERO, TEST_TIMEOUT, async |_| panic!("simulated bug"));
    tokio::time::timeout(TEST_TIMEOUT, engine.close()).await.expect("no timeout");
    assert_eq!(engine.dead_task().as_deref(), Some("scheduler"), "the first task is the cause");
    let engine = open_engine(memory_store(), EngineConfig::default()).await;
    engine.close().await;
    assert_eq!(engine.dead_task(), None, "tasks end with the engine");
}

/// The replies say that the outcome is unknown, not that the engine is closed. `close` still ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writer_that_panics_after_save_returns_writer_died() {
    let config = EngineConfig { span_sink: Some(Arc::new(PanickingSpans)), ..EngineConfig::default() };
    let engine = open_engine(memory_store(), config).await;
    let traced =
        new_job_submission().with_trace(TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
    assert_eq!(reply_code(&engine.submit(traced).await), "writer_died");
    assert_eq!(engine.store().log(0, 10).await.unwrap().len(), 1, "the call took effect");
    assert_eq!(reply_code(&engine.submit(new_job_submission()).await), "writer_died");
    let dead = tokio::time::timeout(TEST_TIMEOUT, engine.wait_dead_task()).await.expect("no timeout");
    assert_eq!(&*dead, "group_commit");
    tokio::time::timeout(TEST_TIMEOUT, engine.close()).await.expect("no timeout");
    assert_eq!(reply_code(&engine.submit(new_job_submission()).await), "closed");
}
