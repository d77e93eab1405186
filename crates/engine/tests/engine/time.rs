//! Timers, ended leases, and who is woken.

use onceward_core::time::{Duration, Time};
use onceward_engine::{Config, Engine, Wanted};
use onceward_store::{AnyStore, Clock, MemoryStore, Store};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::stage::{
    Folder, JOB, LONG, decency, job, leased, object, on_each, open, ops, sqlite, start, state, unpolled, wait,
};

fn after(seconds: i64) -> Time {
    start().checked_add(Duration::from_secs(seconds)).expect("a time")
}

/// REL-4: no reader sees a state whose time is over, though nobody has told the engine that time went by.
#[test]
fn due_on_read() {
    on_each(Config { checks: decency(), ..unpolled() }, async |engine, clock| {
        let note = engine.create(&user("ann"), "race.note", object(json!({ "text": "hello" }))).await.unwrap().subject;
        clock.set(after(59));
        assert_eq!(state(engine, note).await, "kept");
        clock.set(after(60));
        assert_eq!(engine.store().record(note).await.unwrap().unwrap().state_name().as_ref(), "kept");
        assert_eq!(state(engine, note).await, "gone");
    });
}

/// A report on a lease that has run out is decided after the loss, in the same batch.
#[test]
fn due_before_an_operation() {
    on_each(unpolled(), async |engine, clock| {
        let id = job(engine).await;
        let held = leased(engine).await.expect("the job");
        clock.set(after(30));
        let reply = engine.commit(&worker("bob"), id, held.token, json!(null), true).await;
        assert_eq!(reply.unwrap_err().refusal().unwrap().code.as_ref(), "lease_lost");
        assert_eq!(state(engine, id).await, "PENDING");
    });
}

/// Without a reader: the engine does what is due when it looks at the clock.
#[test]
fn due_by_itself() {
    on_each(Config { checks: decency(), ..unpolled() }, async |engine, clock| {
        let ann = user("ann");
        let note = engine.create(&ann, "race.note", object(json!({ "text": "hello" }))).await.unwrap().subject;
        let mut stream = engine.stream(&ops(), 1);
        clock.set(after(60));
        engine.wake();
        let entry = tokio::time::timeout(LONG, stream.next()).await.expect("in time").unwrap().unwrap();
        assert_eq!((entry.seq, entry.record), (2, Some(note)));
    });
}

/// The machine's own clock: a lease of a moment is lost without anybody asking.
#[test]
fn a_short_lease_is_lost() {
    wait(async {
        let engine = open(MemoryStore::new(Clock::machine()), unpolled()).await;
        job(&engine).await;
        let lease = Some(Duration::from_millis(5));
        let wanted = Wanted { lease, ..Wanted::one(JOB, "w") };
        assert_eq!(engine.lease(&worker("bob"), &wanted).await.unwrap().len(), 1);
        let mut stream = engine.stream(&ops(), 2);
        let entry = tokio::time::timeout(LONG, stream.next()).await.expect("in time").unwrap().unwrap();
        assert!(entry.text.contains("Due"), "{}", entry.text);
        engine.close().await;
    });
}

/// What fell due while no engine was there is done when one starts: a lost lease, and a commit that was never finished.
#[test]
fn due_while_away() {
    let (folder, clock) = (Folder::new(), Clock::manual(start()));
    let (lost, committed) = wait(async {
        let engine = open(sqlite(&folder, &clock), unpolled()).await;
        let (_, _) = (job(&engine).await, job(&engine).await);
        let (lost, committed) = (leased(&engine).await.unwrap(), leased(&engine).await.unwrap());
        engine.commit(&worker("bob"), committed.record.id, committed.token, json!(7), false).await.unwrap();
        engine.close().await;
        (lost.record.id, committed.record.id)
    });
    clock.set(after(3_600));
    wait(async {
        let engine = Engine::open(sqlite(&folder, &clock), unpolled());
        let mut stream = engine.stream(&ops(), 5);
        let mut seen = Vec::new();
        for _ in 0..2 {
            let entry = tokio::time::timeout(LONG, stream.next()).await.expect("in time").unwrap().unwrap();
            seen.extend(entry.record);
        }
        seen.sort_unstable();
        let mut both = [lost, committed];
        both.sort_unstable();
        assert_eq!(seen, both);
        assert_eq!(state(&engine, committed).await, "SUCCEEDED");
        assert_ne!(state(&engine, lost).await, "RUNNING");
        engine.close().await;
    });
}

/// A worker that waits is woken by the job, not by the next poll.
#[test]
fn a_new_job_wakes_a_worker() {
    on_each(unpolled(), async |engine, _| {
        let waiting = waiting_worker(engine);
        let id = job(engine).await;
        let held = tokio::time::timeout(LONG / 2, waiting).await.expect("before the poll").unwrap();
        assert_eq!(held, Some(id));
    });
}

fn waiting_worker(engine: &Engine<AnyStore>) -> tokio::task::JoinHandle<Option<onceward_core::value::RecordId>> {
    let engine = engine.clone();
    tokio::spawn(async move {
        let wanted = Wanted { wait: LONG, ..Wanted::one(JOB, "w") };
        engine.lease(&worker("bob"), &wanted).await.expect("leasing").pop().map(|held| held.record.id)
    })
}

/// A job that waits for its time is handed out when the time comes, by the machine's clock.
#[test]
fn a_later_job_wakes_a_worker() {
    wait(async {
        let clock = Clock::machine();
        let engine = open(AnyStore::Memory(MemoryStore::new(clock.clone())), unpolled()).await;
        let waiting = waiting_worker(&engine);
        let ready = clock.now().checked_add(Duration::from_millis(30)).unwrap();
        let fields = object(json!({ "readyAt": ready.to_string() }));
        let id = engine.create(&user("ann"), JOB, fields).await.unwrap().subject;
        let held = tokio::time::timeout(LONG / 2, waiting).await.expect("before the poll").unwrap();
        assert_eq!(held, Some(id));
        assert!(clock.now() >= ready);
        engine.close().await;
    });
}

/// The stream has every entry once, in order, from any place, also while others write.
#[test]
fn the_stream_has_no_gap() {
    on_each(unpolled(), async |engine, _| {
        let follow = |after: u64| {
            let mut stream = engine.stream(&ops(), after);
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
                tokio::spawn(async move { job(&engine).await })
            })
            .collect();
        let middle = follow(100);
        for task in tasks {
            task.await.unwrap();
        }
        let early = tokio::time::timeout(LONG / 2, early).await.expect("before the poll").unwrap();
        assert_eq!(early, (1..=200).collect::<Vec<u64>>());
        let middle = tokio::time::timeout(LONG / 2, middle).await.expect("before the poll").unwrap();
        assert_eq!(middle, (101..=200).collect::<Vec<u64>>());
    });
}

/// The times of each record's own entries, which never run backwards.
async fn times_go_forward(engine: &Engine<AnyStore>) {
    let mut last = std::collections::HashMap::new();
    for entry in engine.store().log(0, 1_000).await.unwrap() {
        let before = last.insert(entry.record, entry.at);
        assert!(entry.record.is_none() || before.is_none_or(|before| before <= entry.at), "{entry:?}");
    }
}

/// A clock that is set back an hour, forward a day, and back again: work goes on, leases end by the clock that is there, and no
/// record's log runs backwards.
#[test]
fn a_clock_that_steps() {
    on_each(unpolled(), async |engine, clock| {
        let bob = worker("bob");
        let (first, _) = (job(engine).await, job(engine).await);
        let held = leased(engine).await.expect("the first job");
        clock.set(after(-3_600));
        assert!(!engine.heartbeat(&bob, first, held.token).await.unwrap().stop);
        engine.commit(&bob, first, held.token, json!(1), true).await.unwrap();
        let early = engine.create(&user("ann"), JOB, object(json!({}))).await.unwrap().subject;
        // Made before all others, by the clock: it goes first.
        let held = leased(engine).await.expect("a job");
        assert_eq!(held.record.id, early);
        clock.set(after(24 * 3_600));
        assert_eq!(state(engine, early).await, "PENDING", "its lease is long over");
        let late = engine.commit(&bob, early, held.token, json!(1), true).await;
        assert_eq!(late.unwrap_err().code(), "lease_lost");
        let held = leased(engine).await.expect("the second job, which waited for a day");
        clock.set(after(-3_600));
        engine.commit(&bob, held.record.id, held.token, json!(1), true).await.unwrap();
        assert_eq!(state(engine, held.record.id).await, "SUCCEEDED");
        times_go_forward(engine).await;
    });
}

/// A machine that wakes up a day earlier: what it had is there and is worked on.
#[test]
fn a_restart_in_the_past() {
    let folder = Folder::new();
    let id = wait(async {
        let engine = open(sqlite(&folder, &Clock::manual(after(24 * 3_600))), unpolled()).await;
        let id = job(&engine).await;
        engine.close().await;
        id
    });
    wait(async {
        let clock = Clock::manual(start());
        let engine = open(sqlite(&folder, &clock), unpolled()).await;
        assert!(leased(&engine).await.is_none(), "a job of tomorrow waits until then");
        let call = onceward_core::decide::Call::Lease { record: id, worker: "w".into(), lease: None, start: true };
        let held =
            engine.submit(onceward_engine::Submission::new(&worker("bob"), call)).await.expect("named, it is leased");
        engine.commit(&worker("bob"), id, held.token.unwrap(), json!(1), true).await.unwrap();
        assert_eq!(state(&engine, id).await, "SUCCEEDED");
        times_go_forward(&engine).await;
        engine.close().await;
    });
}
