//! In-process workers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward_core::decide::{Call, FailureReport};
use onceward_core::record::{FencingToken, Record};
use onceward_core::time::Duration as Span;
use onceward_core::value::{RecordId, Value};
use onceward_engine::{Engine, EngineConfig, LeaseRequest, WorkerConfig, WorkerJob};
use onceward_store::{AnyStore, Batch, Clock, DecidedOperation, MemoryStore, Store, StoreError};
use onceward_testkit::{user, worker};
use serde_json::{Value as Json, json};
use tokio::sync::{Semaphore, mpsc};

use crate::support::faulty_store::FaultyStore;
use crate::support::{
    TEST_TIMEOUT, TempDir, block_on, config_without_polling, json_object, on_each_store, open_engine, open_sqlite,
    operator_actor, start_time,
};

const ERRAND_LIFECYCLE: &str = "race.errand";

async fn create_errand<S: Store + 'static>(engine: &Engine<S>, task: &str) -> RecordId {
    engine
        .create(&user("ann"), ERRAND_LIFECYCLE, json_object(json!({ "what": task })))
        .await
        .expect("an errand")
        .subject
}

async fn get_record<S: Store + 'static>(engine: &Engine<S>, id: RecordId) -> Arc<Record> {
    engine.get(&operator_actor(), id).await.expect("reading").expect("it exists")
}

/// Polls until the condition holds, or fails after a timeout.
async fn wait_until<S: Store + 'static>(
    engine: &Engine<S>,
    id: RecordId,
    condition: impl Fn(&Record) -> bool,
) -> Arc<Record> {
    let looking = async {
        loop {
            let record = get_record(engine, id).await;
            if condition(&record) {
                return record;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, looking).await.expect("no timeout")
}

fn is_in_state(state: &str) -> impl Fn(&Record) -> bool {
    move |record| **record.state_name() == *state
}

fn last_error(record: &Record) -> Json {
    record.field("lastError").map(Value::to_json).unwrap_or_default()
}

#[test]
fn handler_result_decides_job_outcome() {
    on_each_store(config_without_polling(), async |engine, _| {
        let ids = [
            create_errand(engine, "fetch").await,
            create_errand(engine, "refuse").await,
            create_errand(engine, "stumble").await,
            create_errand(engine, "chatter").await,
        ];
        engine.work(
            WorkerConfig { concurrency: 2, ..WorkerConfig::for_lifecycle(ERRAND_LIFECYCLE) },
            |job: WorkerJob| async move {
                match job.field("what").as_str() {
                    Some("fetch") => Ok(json!({ "said": "here" })),
                    Some("chatter") => Ok(json!({ "said": "far too long for it" })),
                    Some("stumble") if job.token == FencingToken(1) => panic!("secret detail"),
                    Some("stumble") => Ok(json!({ "said": "ouch" })),
                    _ => Err(FailureReport { retryable: Some(false), ..FailureReport::new("unwilling", "no") }),
                }
            },
        );
        wait_until(engine, ids[0], is_in_state("done")).await;
        assert_eq!(last_error(&*wait_until(engine, ids[1], is_in_state("failed")).await), "unwilling");
        let stumbled = wait_until(engine, ids[2], is_in_state("done")).await;
        assert_eq!((stumbled.attempt, last_error(&stumbled)), (2, json!("EXCEPTION")));
        assert_eq!(last_error(&*wait_until(engine, ids[3], is_in_state("failed")).await), "BAD_RESULT");
        let effect = engine.effect(&user("ann"), ids[0]).await.unwrap().expect("an effect");
        assert_eq!(effect.result, json!({ "said": "here" }));
    });
}

/// An error text that is too large is truncated. No report is retried forever, so that `close` ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unstorable_result_fails_its_job() {
    let reject = |batch: &Batch| {
        let rude = |write: &DecidedOperation| matches!(&write.operation.call, Call::Commit { result, .. } if result["said"] == "rude");
        batch.operations.iter().any(rude).then(|| Err(StoreError::Rejected("no".to_owned())))
    };
    let store = FaultyStore::new(MemoryStore::new(Clock::manual(start_time())), reject);
    let engine = open_engine(
        store,
        EngineConfig { max_result_bytes: 1_000, max_input_bytes: 2_000, ..config_without_polling() },
    )
    .await;
    let (large, rude, wordy) = (
        create_errand(&engine, "large").await,
        create_errand(&engine, "rude").await,
        create_errand(&engine, "wordy").await,
    );
    engine.work(WorkerConfig::for_lifecycle(ERRAND_LIFECYCLE), |job: WorkerJob| async move {
        match job.field("what").as_str() {
            Some("large") => Ok(json!({ "said": "x".repeat(2_000) })),
            Some("rude") => Ok(json!({ "said": "rude" })),
            _ => Err(FailureReport { retryable: Some(false), ..FailureReport::new("wordy", &"x".repeat(5_000)) }),
        }
    });
    assert_eq!(last_error(&*wait_until(&engine, large, is_in_state("failed")).await), "SIZE_EXCEEDED");
    assert_eq!(last_error(&*wait_until(&engine, rude, is_in_state("failed")).await), "store_rejected");
    assert_eq!(last_error(&*wait_until(&engine, wordy, is_in_state("failed")).await), "wordy");
    tokio::time::timeout(TEST_TIMEOUT, engine.close()).await.expect("no timeout");
}

/// The handler panics before it returns its future.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn handler_panic_fails_attempt_without_leaking_message() {
    let engine = open_engine(MemoryStore::new(Clock::manual(start_time())), config_without_polling()).await;
    let id = create_errand(&engine, "stumble").await;
    engine.work(WorkerConfig::for_lifecycle(ERRAND_LIFECYCLE), |job: WorkerJob| {
        assert_ne!(job.token, FencingToken(1), "secret detail");
        async { Ok(json!({ "said": "ouch" })) }
    });
    let stumbled = wait_until(&engine, id, is_in_state("done")).await;
    assert_eq!((stumbled.attempt, last_error(&stumbled)), (2, json!("EXCEPTION")));
    // The panic message may quote a payload.
    let log = engine.store().log(0, 100).await.expect("the log");
    assert!(!log.iter().any(|entry| format!("{:?}", entry.body()).contains("secret detail")));
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn failed_heartbeat_is_retried_within_the_lease() {
    let beats = Arc::new(Mutex::new(Vec::new()));
    let heartbeat_times = Arc::clone(&beats);
    let busy = move |batch: &Batch| {
        let beat = |write: &DecidedOperation| matches!(write.operation.call, Call::Heartbeat { .. });
        if !batch.operations.iter().any(beat) {
            return None;
        }
        let mut times = heartbeat_times.lock().unwrap();
        times.push(tokio::time::Instant::now());
        (times.len() < 3).then_some(Err(StoreError::Busy))
    };
    let store = FaultyStore::new(MemoryStore::new(Clock::manual(start_time())), busy);
    let engine = open_engine(store, EngineConfig { shutdown_grace: Duration::ZERO, ..config_without_polling() }).await;
    create_errand(&engine, "wait").await;
    // Heartbeats every second: two failures, each retried only a second later, would lose the lease.
    let lease = Some(Span::from_millis(3_000));
    engine.work(
        WorkerConfig { lease_duration: lease, ..WorkerConfig::for_lifecycle(ERRAND_LIFECYCLE) },
        |_: WorkerJob| std::future::pending(),
    );
    let three = async {
        loop {
            if let [first, _, third, ..] = beats.lock().unwrap()[..] {
                return third - first;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let took = tokio::time::timeout(TEST_TIMEOUT, three).await.expect("no timeout");
    assert!(took < Duration::from_secs(1), "{took:?}");
    engine.close().await;
}

/// The store stays busy; the lease must expire.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn close_gives_up_unreportable_commit() {
    let busy = |batch: &Batch| {
        let commit = |write: &DecidedOperation| matches!(write.operation.call, Call::Commit { .. });
        batch.operations.iter().any(commit).then_some(Err(StoreError::Busy))
    };
    let store = FaultyStore::new(MemoryStore::new(Clock::manual(start_time())), busy);
    let engine = open_engine(
        store.clone(),
        EngineConfig { shutdown_grace: Duration::from_millis(1), ..config_without_polling() },
    )
    .await;
    let id = create_errand(&engine, "fetch").await;
    engine.work(WorkerConfig::for_lifecycle(ERRAND_LIFECYCLE), |_: WorkerJob| async { Ok(json!({ "said": "here" })) });
    wait_until(&engine, id, |record| record.live_execution().is_some()).await;
    tokio::time::timeout(TEST_TIMEOUT, engine.close()).await.expect("no timeout");
    assert!(store.inner.record(id).await.unwrap().unwrap().live_execution().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn heartbeats_extend_lease_of_long_job() {
    let engine = open_engine(MemoryStore::new(Clock::machine()), EngineConfig::default()).await;
    let id = create_errand(&engine, "wait").await;
    let (began, mut starts) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let waits = Arc::clone(&gate);
    let lease = Some(Span::from_millis(3_000));
    engine.work(
        WorkerConfig { lease_duration: lease, ..WorkerConfig::for_lifecycle(ERRAND_LIFECYCLE) },
        move |job: WorkerJob| {
            let (began, waits) = (began.clone(), Arc::clone(&waits));
            async move {
                let _ = began.send(job.record.execution.as_ref().expect("leased").expires_at);
                let _ = waits.acquire().await;
                Ok(json!({ "said": "done" }))
            }
        },
    );
    let first_end = starts.recv().await.expect("the job started");
    wait_until(&engine, id, |record| record.execution.as_ref().is_some_and(|own| own.expires_at > first_end)).await;
    gate.add_permits(1);
    assert_eq!(wait_until(&engine, id, is_in_state("done")).await.attempt, 1);
    engine.close().await;
}

/// A handler that ignores the request is dropped.
#[test]
fn canceled_job_is_stopped_by_heartbeat() {
    for hears in [true, false] {
        block_on(async {
            let engine = open_engine(MemoryStore::new(Clock::machine()), EngineConfig::default()).await;
            let id = create_errand(&engine, "wait").await;
            let lease = Some(Span::from_millis(1_500));
            engine.work(
                WorkerConfig { lease_duration: lease, ..WorkerConfig::for_lifecycle(ERRAND_LIFECYCLE) },
                move |job: WorkerJob| async move {
                    if hears {
                        job.wait_stop_requested().await;
                        assert!(job.should_stop());
                        return Err(FailureReport::new("heard", "as you wish"));
                    }
                    std::future::pending().await
                },
            );
            wait_until(&engine, id, |record| record.live_execution().is_some()).await;
            engine.fire(&user("ann"), id, "call_off", json_object(json!({}))).await.unwrap();
            let record = wait_until(&engine, id, is_in_state("off")).await;
            assert_eq!(last_error(&record), if hears { "heard" } else { "yielded" });
            engine.close().await;
        });
    }
}

#[test]
fn close_finishes_or_yields_running_jobs() {
    on_each_store(
        EngineConfig { shutdown_grace: Duration::from_millis(500), ..config_without_polling() },
        async |engine, _| {
            let (ends, hangs) = (create_errand(engine, "ends").await, create_errand(engine, "hangs").await);
            let running = Arc::new(Semaphore::new(0));
            let runs = Arc::clone(&running);
            engine.work(
                WorkerConfig { concurrency: 2, ..WorkerConfig::for_lifecycle(ERRAND_LIFECYCLE) },
                move |job: WorkerJob| {
                    runs.add_permits(1);
                    async move {
                        job.wait_stop_requested().await;
                        if job.field("what") == "hangs" {
                            std::future::pending::<()>().await;
                        }
                        Ok(json!({ "said": "just so" }))
                    }
                },
            );
            let _ = running.acquire_many(2).await.expect("both run");
            engine.close().await;
            let record_of = async |id| engine.store().record(id).await.unwrap().unwrap();
            assert_eq!(&**record_of(ends).await.state_name(), "done");
            let given_back = record_of(hangs).await;
            assert_eq!((&**given_back.state_name(), last_error(&given_back)), ("waiting", json!("yielded")));
            assert!(given_back.live_execution().is_none());
        },
    );
}

/// Notifies on drop.
struct DropNotifier(mpsc::UnboundedSender<()>);

impl Drop for DropNotifier {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lost_lease_drops_the_handler() {
    let clock = Clock::manual(start_time());
    let engine = open_engine(MemoryStore::new(clock.clone()), config_without_polling()).await;
    let id = create_errand(&engine, "wait").await;
    let (dropped, mut drops) = mpsc::unbounded_channel();
    let lease = Some(Span::from_millis(300));
    engine.work(
        WorkerConfig { lease_duration: lease, ..WorkerConfig::for_lifecycle(ERRAND_LIFECYCLE) },
        move |job: WorkerJob| {
            let drop_notifier = DropNotifier(dropped.clone());
            async move {
                let _drop_notifier = drop_notifier;
                if job.token == FencingToken(1) {
                    std::future::pending::<()>().await;
                }
                Ok(json!({ "said": "again" }))
            }
        },
    );
    wait_until(&engine, id, |record| record.live_execution().is_some()).await;
    // The process was suspended for an hour.
    clock.set(start_time().checked_add(Span::from_secs(3_600)).unwrap());
    tokio::time::timeout(TEST_TIMEOUT, drops.recv()).await.expect("no timeout").expect("dropped");
    assert_eq!(wait_until(&engine, id, is_in_state("done")).await.attempt, 2);
    engine.close().await;
}

/// The clock does not move. Leases of other workers continue.
#[test]
fn reopening_releases_leases_of_dead_process() {
    let (folder, clock) = (TempDir::new(), Clock::manual(start_time()));
    let (own, others) = block_on(async {
        let engine = open_engine(open_sqlite(&folder, &clock), config_without_polling()).await;
        let others = create_errand(&engine, "others").await;
        assert_eq!(
            engine.lease(&worker("bob"), &LeaseRequest::single_job(ERRAND_LIFECYCLE, "remote")).await.unwrap().len(),
            1
        );
        let own = create_errand(&engine, "own").await;
        engine.work(WorkerConfig::for_lifecycle(ERRAND_LIFECYCLE), |_: WorkerJob| std::future::pending());
        wait_until(&engine, own, |record| record.live_execution().is_some()).await;
        // Dropped without `close`.
        (own, others)
    });
    block_on(async {
        let engine: Engine<AnyStore> = Engine::open(open_sqlite(&folder, &clock), config_without_polling());
        let record = wait_until(&engine, own, |record| record.live_execution().is_none()).await;
        assert_eq!((record.attempt, last_error(&record)), (1, json!("lost")));
        assert_eq!(get_record(&engine, others).await.live_execution().map(|own| own.token), Some(FencingToken(1)));
        engine.work(WorkerConfig::for_lifecycle(ERRAND_LIFECYCLE), |_: WorkerJob| async {
            Ok(json!({ "said": "done" }))
        });
        assert_eq!(wait_until(&engine, own, is_in_state("done")).await.attempt, 2);
        // Leases of the current instance are not orphaned.
        assert!(engine.store().orphaned_leases(10).await.unwrap().is_empty());
        engine.close().await;
    });
}
