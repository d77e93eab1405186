//! Timers, expired leases and wakeups.

use onceward_core::time::{Duration, Time};
use onceward_engine::{Engine, EngineConfig, LeaseRequest};
use onceward_store::{AnyStore, Clock, MemoryStore, Store};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::support::{
    JOB_LIFECYCLE, TEST_TIMEOUT, TempDir, block_on, config_without_polling, create_job, decency_checks, json_object,
    lease_one, on_each_store, open_engine, open_sqlite, operator_actor, start_time, state_of,
};

fn seconds_after_start(seconds: i64) -> Time {
    start_time().checked_add(Duration::from_secs(seconds)).expect("a time")
}

/// REL-4
#[test]
fn read_fires_due_timer_first() {
    on_each_store(EngineConfig { checks: decency_checks(), ..config_without_polling() }, async |engine, clock| {
        let note =
            engine.create(&user("ann"), "race.note", json_object(json!({ "text": "hello" }))).await.unwrap().subject;
        clock.set(seconds_after_start(59));
        assert_eq!(state_of(engine, note).await, "kept");
        clock.set(seconds_after_start(60));
        assert_eq!(engine.store().record(note).await.unwrap().unwrap().state_name().as_ref(), "kept");
        assert_eq!(state_of(engine, note).await, "gone");
    });
}

/// Both are decided in the same batch.
#[test]
fn report_on_expired_lease_returns_lease_lost() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let id = create_job(engine).await;
        let held = lease_one(engine).await.expect("the job");
        clock.set(seconds_after_start(30));
        let reply = engine.commit(&worker("bob"), id, held.token, json!(null), true).await;
        assert_eq!(reply.unwrap_err().refusal().unwrap().code.as_ref(), "lease_lost");
        assert_eq!(state_of(engine, id).await, "PENDING");
    });
}

#[test]
fn scheduler_fires_due_timer_without_reader() {
    on_each_store(EngineConfig { checks: decency_checks(), ..config_without_polling() }, async |engine, clock| {
        let ann = user("ann");
        let note = engine.create(&ann, "race.note", json_object(json!({ "text": "hello" }))).await.unwrap().subject;
        let mut stream = engine.stream(&operator_actor(), 1);
        clock.set(seconds_after_start(60));
        engine.wake_all();
        let entry = tokio::time::timeout(TEST_TIMEOUT, stream.next()).await.expect("no timeout").unwrap().unwrap();
        assert_eq!((entry.seq, entry.record), (2, Some(note)));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn short_lease_expires_by_machine_clock() {
    let engine = open_engine(MemoryStore::new(Clock::machine()), config_without_polling()).await;
    create_job(&engine).await;
    let lease = Some(Duration::from_millis(5));
    let wanted = LeaseRequest { lease_duration: lease, ..LeaseRequest::single_job(JOB_LIFECYCLE, "w") };
    assert_eq!(engine.lease(&worker("bob"), &wanted).await.unwrap().len(), 1);
    let mut stream = engine.stream(&operator_actor(), 2);
    let entry = tokio::time::timeout(TEST_TIMEOUT, stream.next()).await.expect("no timeout").unwrap().unwrap();
    assert!(entry.text.contains("Due"), "{}", entry.text);
    engine.close().await;
}

/// A lost lease, and a commit that was never finished.
#[test]
fn due_work_is_fired_after_restart() {
    let (folder, clock) = (TempDir::new(), Clock::manual(start_time()));
    let (lost, committed) = block_on(async {
        let engine = open_engine(open_sqlite(&folder, &clock), config_without_polling()).await;
        let (_, _) = (create_job(&engine).await, create_job(&engine).await);
        let (lost, committed) = (lease_one(&engine).await.unwrap(), lease_one(&engine).await.unwrap());
        engine.commit(&worker("bob"), committed.record.id, committed.token, json!(7), false).await.unwrap();
        engine.close().await;
        (lost.record.id, committed.record.id)
    });
    clock.set(seconds_after_start(3_600));
    block_on(async {
        let engine = Engine::open(open_sqlite(&folder, &clock), config_without_polling());
        let mut stream = engine.stream(&operator_actor(), 5);
        let mut seen = Vec::new();
        for _ in 0..2 {
            let entry = tokio::time::timeout(TEST_TIMEOUT, stream.next()).await.expect("no timeout").unwrap().unwrap();
            seen.extend(entry.record);
        }
        seen.sort_unstable();
        let mut both = [lost, committed];
        both.sort_unstable();
        assert_eq!(seen, both);
        assert_eq!(state_of(&engine, committed).await, "SUCCEEDED");
        assert_ne!(state_of(&engine, lost).await, "RUNNING");
        engine.close().await;
    });
}

/// The notification wakes it, not the next poll.
#[test]
fn new_job_wakes_waiting_worker() {
    on_each_store(config_without_polling(), async |engine, _| {
        let waiting = spawn_waiting_worker(engine);
        let id = create_job(engine).await;
        let held =
            tokio::time::timeout(TEST_TIMEOUT / 2, waiting).await.expect("it ends before the next poll").unwrap();
        assert_eq!(held, Some(id));
    });
}

fn spawn_waiting_worker(engine: &Engine<AnyStore>) -> tokio::task::JoinHandle<Option<onceward_core::value::RecordId>> {
    let engine = engine.clone();
    tokio::spawn(async move {
        let wanted = LeaseRequest { max_wait: TEST_TIMEOUT, ..LeaseRequest::single_job(JOB_LIFECYCLE, "w") };
        engine.lease(&worker("bob"), &wanted).await.expect("leasing").pop().map(|held| held.record.id)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn delayed_job_wakes_worker_when_ready() {
    let clock = Clock::machine();
    let engine = open_engine(AnyStore::Memory(MemoryStore::new(clock.clone())), config_without_polling()).await;
    let waiting = spawn_waiting_worker(&engine);
    let ready = clock.now().checked_add(Duration::from_millis(30)).unwrap();
    let fields = json_object(json!({ "readyAt": ready.to_string() }));
    let id = engine.create(&user("ann"), JOB_LIFECYCLE, fields).await.unwrap().subject;
    let held = tokio::time::timeout(TEST_TIMEOUT / 2, waiting).await.expect("it ends before the next poll").unwrap();
    assert_eq!(held, Some(id));
    assert!(clock.now() >= ready);
    engine.close().await;
}

/// From any seq.
#[test]
fn stream_has_no_gap_under_concurrent_writes() {
    on_each_store(config_without_polling(), async |engine, _| {
        let follow = |after: u64| {
            let mut stream = engine.stream(&operator_actor(), after);
            tokio::spawn(async move {
                let mut seen = Vec::new();
                while seen.last() != Some(&200) {
                    seen.push(stream.next().await.expect("reading").expect("open").seq);
                }
                seen
            })
        };
        let early = follow(0);
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let engine = engine.clone();
                tokio::spawn(async move { create_job(&engine).await })
            })
            .collect();
        let middle = follow(100);
        for task in tasks {
            task.await.unwrap();
        }
        let early = tokio::time::timeout(TEST_TIMEOUT / 2, early).await.expect("it ends before the next poll").unwrap();
        assert_eq!(early, (1..=200).collect::<Vec<u64>>());
        let middle =
            tokio::time::timeout(TEST_TIMEOUT / 2, middle).await.expect("it ends before the next poll").unwrap();
        assert_eq!(middle, (101..=200).collect::<Vec<u64>>());
    });
}

async fn assert_record_times_are_monotonic(engine: &Engine<AnyStore>) {
    let mut last = std::collections::HashMap::new();
    for entry in engine.store().log(0, 1_000).await.unwrap() {
        let before = last.insert(entry.record, entry.at);
        assert!(entry.record.is_none() || before.is_none_or(|before| before <= entry.at), "{entry:?}");
    }
}

/// The clock goes back an hour, forward a day, and back again.
#[test]
fn clock_steps_keep_record_times_monotonic() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let bob = worker("bob");
        let (first, _) = (create_job(engine).await, create_job(engine).await);
        let held = lease_one(engine).await.expect("the first job");
        clock.set(seconds_after_start(-3_600));
        assert!(!engine.heartbeat(&bob, first, held.token).await.unwrap().stop_requested);
        engine.commit(&bob, first, held.token, json!(1), true).await.unwrap();
        let early = engine.create(&user("ann"), JOB_LIFECYCLE, json_object(json!({}))).await.unwrap().subject;
        // By its clock it was created first, so it is leased first.
        let held = lease_one(engine).await.expect("a job");
        assert_eq!(held.record.id, early);
        clock.set(seconds_after_start(24 * 3_600));
        assert_eq!(state_of(engine, early).await, "PENDING", "its lease expired long ago");
        let late = engine.commit(&bob, early, held.token, json!(1), true).await;
        assert_eq!(late.unwrap_err().code(), "lease_lost");
        let held = lease_one(engine).await.expect("the second job, ready for a day");
        clock.set(seconds_after_start(-3_600));
        engine.commit(&bob, held.record.id, held.token, json!(1), true).await.unwrap();
        assert_eq!(state_of(engine, held.record.id).await, "SUCCEEDED");
        assert_record_times_are_monotonic(engine).await;
    });
}

#[test]
fn restart_with_earlier_clock_keeps_jobs_usable() {
    let folder = TempDir::new();
    let id = block_on(async {
        let engine = open_engine(
            open_sqlite(&folder, &Clock::manual(seconds_after_start(24 * 3_600))),
            config_without_polling(),
        )
        .await;
        let id = create_job(&engine).await;
        engine.close().await;
        id
    });
    block_on(async {
        let clock = Clock::manual(start_time());
        let engine = open_engine(open_sqlite(&folder, &clock), config_without_polling()).await;
        assert!(lease_one(&engine).await.is_none(), "a delayed job is not leased early");
        let call = onceward_core::decide::Call::Lease { record: id, worker: "w".into(), lease: None, start: true };
        let held = engine
            .submit(onceward_engine::Submission::new(&worker("bob"), call))
            .await
            .expect("a job that is ready can be leased by id");
        engine.commit(&worker("bob"), id, held.token.unwrap(), json!(1), true).await.unwrap();
        assert_eq!(state_of(&engine, id).await, "SUCCEEDED");
        assert_record_times_are_monotonic(&engine).await;
        engine.close().await;
    });
}
