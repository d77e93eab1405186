//! Sync match: jobs leased to parked pollers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use onceward_core::decide::{Call, CreateRecord, FailureReport};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_engine::{Engine, EngineConfig, EngineError, KeepWaiting, LeaseRequest, LeasedJob, Submission};
use onceward_store::{Batch, SaveConflict, SaveResult, Store, StoreError};
use onceward_testkit::{user, worker};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::faulty_store::FaultyStore;
use crate::support::{
    JOB_LIFECYCLE, TEST_TIMEOUT, block_on, config_without_polling, create_job, json_object, lease_one, memory_store,
    new_job_submission, on_each_store, open_engine, spawn_submit, state_of,
};

const CHAIN_LIFECYCLE: &str = "race.chain";
const LANE_LIFECYCLE: &str = "race.lane";
const RANKED_LIFECYCLE: &str = "race.ranked";

type LeaseTask = JoinHandle<Result<Vec<LeasedJob>, EngineError>>;

/// Starts a poller that finds no job and waits.
async fn start_idle_poller<S: Store + 'static>(engine: &Engine<S>, wanted: LeaseRequest) -> LeaseTask {
    let before = engine.metrics().parked_pollers;
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { engine.lease(&worker("bob"), &LeaseRequest { max_wait: TEST_TIMEOUT, ..wanted }).await }
    });
    wait_until_idle(engine, before + 1).await;
    waiting
}

fn create_submission(lifecycle: &str, fields: serde_json::Value) -> Submission {
    let create =
        CreateRecord { lifecycle: lifecycle.into(), id: None, owner: None, fields: json_object(fields), payload: None };
    Submission::new(&user("ann"), Call::Create(create))
}

async fn wait_until_idle<S: Store + 'static>(engine: &Engine<S>, calls: usize) {
    while engine.metrics().parked_pollers != calls {
        tokio::task::yield_now().await;
    }
}

async fn leased_ids(leasing: LeaseTask) -> Vec<RecordId> {
    leasing.await.expect("a task").expect("jobs").iter().map(|leased| leased.record.id).collect()
}

/// EXE-5
#[test]
fn sync_match_leases_job_in_creating_transaction() {
    on_each_store(config_without_polling(), async |engine, _| {
        let waiting = start_idle_poller(engine, LeaseRequest::single_job(JOB_LIFECYCLE, "w")).await;
        let before = engine.counters();
        let made = engine.submit(new_job_submission()).await.unwrap();
        let held = waiting.await.unwrap().unwrap().pop().expect("the job");
        let after = engine.counters();
        assert_eq!((after.batches - before.batches, after.operations - before.operations), (1, 2));
        // The creator sees the record as created; the worker sees it leased.
        assert_eq!((made.version, made.record.unwrap().state_name().as_ref()), (Some(1), "PENDING"));
        assert_eq!((held.record.id, held.record.state_name().as_ref()), (made.subject, "RUNNING"));
        assert!(lease_one(engine).await.is_none(), "the job is leased once");
        engine.commit(&worker("bob"), made.subject, held.token, json!(1), true).await.unwrap();
        assert_eq!(state_of(engine, made.subject).await, "SUCCEEDED");
        assert_eq!(engine.metrics().lifecycles[JOB_LIFECYCLE].leased, 1);
    });
}

/// If both were woken together, tokio's thread would run the last one first.
#[test]
fn worker_is_woken_before_creator() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let engine = open_engine(memory_store(), config_without_polling()).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let (leasing, making) = (Arc::clone(&order), Arc::clone(&order));
        let waiting = start_idle_poller(&engine, LeaseRequest::single_job(JOB_LIFECYCLE, "w")).await;
        let waiting = tokio::spawn(async move {
            let held = leased_ids(waiting).await;
            leasing.lock().unwrap().push("leased");
            held
        });
        let maker = engine.clone();
        let made = tokio::spawn(async move {
            let made = maker.submit(new_job_submission()).await.unwrap();
            making.lock().unwrap().push("made");
            made.subject
        });
        assert_eq!(waiting.await.unwrap(), [made.await.unwrap()]);
        assert_eq!(*order.lock().unwrap(), ["leased", "made"]);
    });
}

#[test]
fn first_poller_gets_up_to_its_max_jobs() {
    on_each_store(config_without_polling(), async |engine, _| {
        let first =
            start_idle_poller(engine, LeaseRequest { max_jobs: 2, ..LeaseRequest::single_job(JOB_LIFECYCLE, "first") })
                .await;
        let second = start_idle_poller(engine, LeaseRequest::single_job(JOB_LIFECYCLE, "second")).await;
        let batches = engine.counters().batches;
        let made = engine.submit_all((0..4).map(|_| new_job_submission()).collect()).await.unwrap();
        let made: Vec<RecordId> = made.into_iter().map(|made| made.unwrap().subject).collect();
        assert_eq!(leased_ids(first).await, made[..2]);
        assert_eq!(leased_ids(second).await, made[2..3]);
        assert_eq!(engine.counters().batches, batches + 1);
        assert_eq!(lease_one(engine).await.expect("the last").record.id, made[3]);
    });
}

#[test]
fn highest_priority_job_is_matched_first() {
    on_each_store(config_without_polling(), async |engine, _| {
        let waiting = start_idle_poller(engine, LeaseRequest::single_job(RANKED_LIFECYCLE, "w")).await;
        let made = engine
            .submit_all([1, 3, 2].map(|rank| create_submission(RANKED_LIFECYCLE, json!({ "rank": rank }))).into())
            .await
            .unwrap();
        assert_eq!(leased_ids(waiting).await, [made[1].as_ref().unwrap().subject]);
    });
}

/// The poller is woken and leases by itself.
#[test]
fn full_batch_skips_sync_match() {
    on_each_store(EngineConfig { max_batch_operations: 2, ..config_without_polling() }, async |engine, _| {
        let waiting =
            start_idle_poller(engine, LeaseRequest { max_jobs: 2, ..LeaseRequest::single_job(JOB_LIFECYCLE, "w") })
                .await;
        let batches = engine.counters().batches;
        let made = engine.submit_all(vec![new_job_submission(), new_job_submission()]).await.unwrap();
        let made: Vec<RecordId> = made.into_iter().map(|made| made.unwrap().subject).collect();
        assert_eq!(leased_ids(waiting).await, made);
        assert_eq!(engine.counters().batches, batches + 2);
    });
}

#[test]
fn idempotency_key_replays_matched_jobs() {
    on_each_store(config_without_polling(), async |engine, _| {
        let wanted = LeaseRequest {
            max_jobs: 3,
            max_wait: TEST_TIMEOUT,
            idempotency_key: Some("take".into()),
            ..LeaseRequest::single_job(JOB_LIFECYCLE, "w")
        };
        let waiting = start_idle_poller(engine, wanted.clone()).await;
        let batches = engine.counters().batches;
        engine.submit_all(vec![new_job_submission(), new_job_submission()]).await.unwrap();
        let had = leased_ids(waiting).await;
        assert_eq!((had.len(), engine.counters().batches), (2, batches + 1));
        create_job(engine).await;
        let again = engine.lease(&worker("bob"), &wanted).await.unwrap();
        assert_eq!(again.iter().map(|leased| leased.record.id).collect::<Vec<_>>(), had);
    });
}

#[test]
fn canceled_poller_gets_no_job() {
    on_each_store(config_without_polling(), async |engine, _| {
        let gone = start_idle_poller(engine, LeaseRequest::single_job(JOB_LIFECYCLE, "gone")).await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        let id = create_job(engine).await;
        assert_eq!(state_of(engine, id).await, "PENDING");
        assert_eq!(lease_one(engine).await.expect("the job").record.id, id);
    });
}

/// For example because its key was revoked or the server shuts down.
#[test]
fn poller_told_to_stop_waiting_gets_no_job() {
    on_each_store(config_without_polling(), async |engine, _| {
        let wants = Arc::new(AtomicBool::new(true));
        let goes_on: KeepWaiting = Arc::new({
            let wants = Arc::clone(&wants);
            move || wants.load(Ordering::SeqCst)
        });
        let waiting = tokio::spawn({
            let engine = engine.clone();
            let wanted = LeaseRequest { max_wait: TEST_TIMEOUT, ..LeaseRequest::single_job(JOB_LIFECYCLE, "w") };
            async move { engine.lease_while(&worker("bob"), &wanted, &goes_on).await }
        });
        wait_until_idle(engine, 1).await;
        wants.store(false, Ordering::SeqCst);
        let id = create_job(engine).await;
        assert!(waiting.await.unwrap().unwrap().is_empty());
        assert_eq!(state_of(engine, id).await, "PENDING");
    });
}

#[test]
fn poller_without_worker_role_is_refused() {
    on_each_store(config_without_polling(), async |engine, _| {
        let waiting = tokio::spawn({
            let engine = engine.clone();
            let wanted = LeaseRequest { max_wait: TEST_TIMEOUT, ..LeaseRequest::single_job(JOB_LIFECYCLE, "w") };
            async move { engine.lease(&user("eve"), &wanted).await }
        });
        wait_until_idle(engine, 1).await;
        let id = create_job(engine).await;
        assert!(matches!(waiting.await.unwrap(), Err(EngineError::Refused(_))));
        assert_eq!(state_of(engine, id).await, "PENDING");
    });
}

/// A batch does not know the older jobs of a key.
#[test]
fn jobs_with_concurrency_key_are_not_matched() {
    on_each_store(config_without_polling(), async |engine, _| {
        let (ann, bob) = (user("ann"), worker("bob"));
        let create = async |lane: &str| {
            engine.create(&ann, LANE_LIFECYCLE, json_object(json!({ "lane": lane }))).await.unwrap().subject
        };
        let (first, _older) = (create("a").await, create("a").await);
        let held =
            engine.lease(&bob, &LeaseRequest::single_job(LANE_LIFECYCLE, "w")).await.unwrap().pop().expect("the first");
        assert_eq!(held.record.id, first);
        let waiting = start_idle_poller(engine, LeaseRequest::single_job(LANE_LIFECYCLE, "w")).await;
        let before = engine.counters();
        // This lane is full; the other is not.
        create("a").await;
        wait_until_idle(engine, 1).await;
        let other = create("b").await;
        assert_eq!(leased_ids(waiting).await, [other]);
        assert_eq!(engine.counters().batches - before.batches, 3, "two batches create and one leases");
    });
}

/// The batch does not know which job comes first.
#[test]
fn poller_for_keyed_lifecycle_is_not_matched() {
    on_each_store(config_without_polling(), async |engine, _| {
        let wanted = LeaseRequest {
            lifecycles: vec![LANE_LIFECYCLE.into(), JOB_LIFECYCLE.into()],
            ..LeaseRequest::single_job(JOB_LIFECYCLE, "w")
        };
        let (waiting, batches) = (start_idle_poller(engine, wanted).await, engine.counters().batches);
        let lane = create_submission(LANE_LIFECYCLE, json!({ "lane": "a" }));
        let made = engine.submit_all(vec![lane, new_job_submission()]).await.unwrap();
        assert_eq!(leased_ids(waiting).await, [made[0].as_ref().unwrap().subject]);
        assert_eq!(engine.counters().batches, batches + 2);
    });
}

#[test]
fn refused_poller_does_not_block_next_poller() {
    on_each_store(config_without_polling(), async |engine, _| {
        let refused = tokio::spawn({
            let (engine, wanted) = (
                engine.clone(),
                LeaseRequest { max_wait: TEST_TIMEOUT, ..LeaseRequest::single_job(JOB_LIFECYCLE, "w") },
            );
            async move { engine.lease(&user("eve"), &wanted).await }
        });
        wait_until_idle(engine, 1).await;
        let (waiting, batches) =
            (start_idle_poller(engine, LeaseRequest::single_job(JOB_LIFECYCLE, "w")).await, engine.counters().batches);
        let id = create_job(engine).await;
        assert_eq!(leased_ids(waiting).await, [id]);
        assert_eq!(engine.counters().batches, batches + 1);
        refused.abort();
    });
}

/// It comes before a job that is created in the same batch.
#[test]
fn retried_job_keeps_its_age_in_matching() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let (ann, bob) = (user("ann"), worker("bob"));
        let old = engine.create(&ann, RANKED_LIFECYCLE, json_object(json!({ "rank": 0 }))).await.unwrap().subject;
        let held =
            engine.lease(&bob, &LeaseRequest::single_job(RANKED_LIFECYCLE, "w")).await.unwrap().pop().expect("the job");
        let waiting = start_idle_poller(engine, LeaseRequest::single_job(RANKED_LIFECYCLE, "w")).await;
        clock.set(held.expires_at);
        engine.wake_all();
        let held = waiting.await.unwrap().unwrap().pop().expect("the job is ready again");
        assert_eq!(held.record.id, old);

        let waiting = start_idle_poller(engine, LeaseRequest::single_job(RANKED_LIFECYCLE, "w")).await;
        clock.set(Time::from_micros(held.expires_at.micros() - 20_000_000));
        let error = FailureReport { code: "no".into(), message: "no".into(), retryable: Some(true), retry_after: None };
        let fail = Call::Fail { record: old, token: held.token, error };
        let calls = vec![create_submission(RANKED_LIFECYCLE, json!({ "rank": 0 })), Submission::new(&bob, fail)];
        let batches = engine.counters().batches;
        assert!(engine.submit_all(calls).await.unwrap().iter().all(Result::is_ok));
        assert_eq!(leased_ids(waiting).await, [old]);
        assert_eq!(engine.counters().batches, batches + 1);
    });
}

/// The poller keeps waiting, and gets the next job.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn failed_save_leases_nothing() {
    let fails = Arc::new(AtomicBool::new(false));
    let store = FaultyStore::new(memory_store(), {
        let fails = Arc::clone(&fails);
        move |_: &Batch| fails.swap(false, Ordering::SeqCst).then_some(Err(StoreError::DiskFull))
    });
    let engine = open_engine(store, config_without_polling()).await;
    let waiting = start_idle_poller(&engine, LeaseRequest::single_job(JOB_LIFECYCLE, "w")).await;
    fails.store(true, Ordering::SeqCst);
    assert!(engine.submit(new_job_submission()).await.is_err());
    wait_until_idle(&engine, 1).await;
    let id = create_job(&engine).await;
    assert_eq!(leased_ids(waiting).await, [id]);
    assert_eq!(engine.metrics().lifecycles[JOB_LIFECYCLE].leased, 1);
    engine.close().await;
}

#[test]
fn failed_matched_lease_still_saves_the_job() {
    let errors: [fn() -> Result<SaveResult, StoreError>; 3] = [
        || Err(StoreError::Rejected("a row of the lease".to_owned())),
        || Err(StoreError::Busy),
        || Ok(SaveResult::Conflict(SaveConflict::default())),
    ];
    for error in errors {
        block_on(async {
            let store = FaultyStore::new(memory_store(), move |batch: &Batch| {
                let has = |is: fn(&Call) -> bool| batch.operations.iter().any(|write| is(&write.operation.call));
                let both =
                    has(|call| matches!(call, Call::Create(_))) && has(|call| matches!(call, Call::Lease { .. }));
                both.then(error)
            });
            let engine = open_engine(store, config_without_polling()).await;
            for _ in 0..2 {
                let (waiting, batches) = (
                    start_idle_poller(&engine, LeaseRequest::single_job(JOB_LIFECYCLE, "w")).await,
                    engine.counters().batches,
                );
                let id = create_job(&engine).await;
                assert_eq!(leased_ids(waiting).await, [id]);
                assert_eq!(engine.counters().batches, batches + 2);
            }
            engine.close().await;
        });
    }
}

/// Creates two jobs, the second behind the first. The lease of a third depends on the first.
async fn create_chain<S: Store + 'static>(engine: &Engine<S>) -> [RecordId; 2] {
    let create = async |fields| engine.submit(create_submission(CHAIN_LIFECYCLE, fields)).await.expect("a job").subject;
    let first = create(json!({})).await;
    [first, create(json!({ "before": first.to_string() })).await]
}

/// The batch is decided again without the match.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn failed_load_for_match_still_saves_the_job() {
    let engine = open_engine(FaultyStore::new(memory_store(), |_: &Batch| None), config_without_polling()).await;
    let [first, second] = create_chain(&engine).await;
    let bob = worker("bob");
    assert_eq!(
        engine
            .lease(&bob, &LeaseRequest { max_jobs: 5, ..LeaseRequest::single_job(CHAIN_LIFECYCLE, "w") })
            .await
            .unwrap()
            .len(),
        2
    );
    let _waiting = start_idle_poller(&engine, LeaseRequest::single_job(CHAIN_LIFECYCLE, "w")).await;
    engine.store().damaged_records.lock().unwrap().insert(first);
    let third = engine
        .submit(create_submission(CHAIN_LIFECYCLE, json!({ "before": second.to_string() })))
        .await
        .expect("the record is created");
    assert_eq!(state_of(&engine, third.subject).await, "waiting");
    engine.wake_all();
    engine.close().await;
}

/// Jobs whose leases need too many loads are left to a scan.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn loads_for_matching_are_bounded() {
    let engine = open_engine(FaultyStore::new(memory_store(), |_: &Batch| None), config_without_polling()).await;
    let mut behind = Vec::new();
    for _ in 0..6 {
        behind.push(create_chain(&engine).await[1]);
    }
    let bob = worker("bob");
    assert_eq!(
        engine
            .lease(&bob, &LeaseRequest { max_jobs: 20, ..LeaseRequest::single_job(CHAIN_LIFECYCLE, "w") })
            .await
            .unwrap()
            .len(),
        12
    );
    let waiting =
        start_idle_poller(&engine, LeaseRequest { max_jobs: 10, ..LeaseRequest::single_job(CHAIN_LIFECYCLE, "w") })
            .await;
    let loads = engine.store().loads.load(Ordering::SeqCst);
    let calls = behind.iter().map(|before| create_submission(CHAIN_LIFECYCLE, json!({ "before": before.to_string() })));
    let made = engine.submit_all(calls.collect()).await.unwrap();
    let had = leased_ids(waiting).await;
    assert!((1..=4).contains(&had.len()), "{had:?}");
    assert!(engine.store().loads.load(Ordering::SeqCst) <= loads + 2 + 4);
    let rest = engine
        .lease(&bob, &LeaseRequest { max_jobs: 10, ..LeaseRequest::single_job(CHAIN_LIFECYCLE, "w") })
        .await
        .unwrap();
    assert_eq!(had.len() + rest.len(), made.len());
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lost_reply_of_match_is_replayed_by_key() {
    let store =
        FaultyStore::new(memory_store(), |_: &Batch| None).with_lost_replies(|batch| batch.operations.len() == 2);
    let engine = open_engine(store, config_without_polling()).await;
    let waiting = start_idle_poller(
        &engine,
        LeaseRequest { idempotency_key: Some("take".into()), ..LeaseRequest::single_job(JOB_LIFECYCLE, "w") },
    )
    .await;
    assert!(engine.submit(new_job_submission()).await.is_err(), "the outcome of the save is unknown");
    let had = leased_ids(waiting).await;
    assert_eq!((had.len(), state_of(&engine, had[0]).await.as_str()), (1, "RUNNING"));
    engine.close().await;
}

/// The worker disconnects during the save. Its first retry is too early, the second gets that job.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn key_retried_during_match_gets_the_same_job() {
    let store = FaultyStore::gated(memory_store());
    let engine = open_engine(store.clone(), config_without_polling()).await;
    let wanted = LeaseRequest { idempotency_key: Some("take".into()), ..LeaseRequest::single_job(JOB_LIFECYCLE, "w") };
    let first = start_idle_poller(&engine, wanted.clone()).await;
    let making = spawn_submit(&engine, new_job_submission());
    store.wait_for_saves(1).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let second = start_idle_poller(&engine, wanted).await;
    store.save_gate.add_permits(1);
    let made = making.await.unwrap().unwrap().subject;
    assert_eq!(state_of(&engine, made).await, "RUNNING");
    // The next job meets the reserved key, is not blocked by it, and stays unleased.
    store.save_gate.add_permits(100);
    let next = create_job(&engine).await;
    assert_eq!(leased_ids(second).await, [made]);
    assert_eq!(state_of(&engine, next).await, "PENDING");
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn close_during_match_answers_the_poller() {
    let store = FaultyStore::gated(memory_store());
    let engine = open_engine(store.clone(), config_without_polling()).await;
    let waiting =
        start_idle_poller(&engine, LeaseRequest { max_jobs: 2, ..LeaseRequest::single_job(JOB_LIFECYCLE, "w") }).await;
    let making = spawn_submit(&engine, new_job_submission());
    store.wait_for_saves(1).await;
    let closing = tokio::spawn({
        let engine = engine.clone();
        async move { engine.close().await }
    });
    while !matches!(
        engine.lease(&worker("eve"), &LeaseRequest::single_job(JOB_LIFECYCLE, "w")).await,
        Err(EngineError::Closed)
    ) {
        tokio::task::yield_now().await;
    }
    store.save_gate.add_permits(100);
    let made = making.await.unwrap().unwrap().subject;
    assert_eq!(leased_ids(waiting).await, [made]);
    closing.await.unwrap();
}
