//! A store that will not: who is told, and that the others get on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use onceward_core::decide::Call;
use onceward_core::diagnostic::{File, Files};
use onceward_core::value::RecordId;
use onceward_engine::{Config, Engine, EngineError, Submission, Wanted};
use onceward_store::{Batch, Clock, Conflict, ListQuery, MemoryStore, Save, Store, StoreError};
use onceward_testkit::worker;

use crate::stage::troubled::Troubled;
use crate::stage::{JOB, LONG, code, memory, new_job, open, ops, start, submitting, unpolled, until_waiting, wait};

fn has_eve(batch: &Batch) -> bool {
    batch
        .writes
        .iter()
        .any(|write| matches!(&write.operation.call, Call::Create(_)) && &*write.operation.actor.id == "eve")
}

/// One that the database will not have is found by halving and fails alone; the others of its batch are saved.
#[test]
fn the_rejected_one_fails_alone() {
    wait(async {
        let reject = |batch: &Batch| has_eve(batch).then(|| Err(StoreError::Rejected("no".to_owned())));
        let engine = open(Troubled::new(memory(), reject), Config::default()).await;
        let mut jobs: Vec<_> = (0..100).map(|_| new_job()).collect();
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
    });
}

/// One that cannot be read fails alone as well: what goes in the same batch, whoever asks for it, is saved.
#[test]
fn the_damaged_one_fails_alone() {
    wait(async {
        let engine = open(Troubled::new(memory(), |_: &Batch| None), Config::default()).await;
        let mut ids = Vec::new();
        for reply in engine.submit_all((0..100).map(|_| new_job()).collect()).await.unwrap() {
            ids.push(reply.unwrap().subject);
        }
        engine.store().damaged.lock().unwrap().insert(ids[37]);
        let lease = |id: &RecordId| {
            let call = Call::Lease { record: *id, worker: "w".into(), lease: None, start: true };
            Submission::new(&worker("bob"), call)
        };
        let replies = engine.submit_all(ids.iter().map(lease).collect()).await.unwrap();
        let failed: Vec<_> = replies.iter().enumerate().filter(|(_, reply)| reply.is_err()).collect();
        assert!(matches!(failed[..], [(37, Err(EngineError::Store(_)))]), "{failed:?}");
        engine.close().await;
    });
}

/// Damaged records that are due, more than are done at once, keep nobody waiting: the lease after them ends in its time, and
/// lists and counts are answered.
#[test]
fn the_damaged_are_passed_by() {
    wait(async {
        let clock = Clock::manual(start());
        let store = Troubled::new(MemoryStore::new(clock.clone()), |_: &Batch| None);
        let engine = open(store, Config { batch: 10, ..unpolled() }).await;
        let after = |seconds| start().checked_add(onceward_core::time::Duration::from_secs(seconds)).unwrap();
        let mut held = Vec::new();
        for number in 0..25 {
            clock.set(after(number));
            engine.submit(new_job()).await.unwrap();
            held.push(engine.lease(&worker("bob"), &Wanted::one(JOB, "w")).await.unwrap().remove(0).record.id);
        }
        let last = held.pop().expect("one that is sound");
        engine.store().damaged.lock().unwrap().extend(&held);
        clock.set(after(3_600));
        engine.wake();
        let ended = async {
            while engine.store().record(last).await.unwrap().unwrap().live_execution().is_some() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, ended).await.expect("in time");
        let jobs = engine.list(&ops(), &ListQuery { limit: 100, ..ListQuery::default() }).await.unwrap();
        assert_eq!(jobs.records.iter().map(|job| job.id).collect::<Vec<_>>(), [last]);
        assert_eq!(engine.counts(&ops()).await.unwrap().iter().map(|count| count.count).sum::<u64>(), 25);
        assert!(engine.get(&ops(), held[0]).await.is_err());
        engine.close().await;
    });
}

/// A batch that loses again and again is halved; in the end all of it is saved, once.
#[test]
fn a_losing_batch_is_halved() {
    wait(async {
        let lose = |batch: &Batch| (batch.writes.len() > 10).then(|| Ok(Save::Conflict(Conflict::default())));
        let engine = open(Troubled::new(memory(), lose), Config::default()).await;
        let replies = engine.submit_all((0..100).map(|_| new_job()).collect()).await.unwrap();
        assert!(replies.iter().all(Result::is_ok));
        assert_eq!(engine.store().log(0, 1_000).await.unwrap().len(), 100);
        // 100, 50, 25 and 13 lose four times each, once for every part of that size; those of 12 do too.
        let tally = engine.tally();
        assert_eq!((tally.batches, tally.operations), (16, 100));
        assert_eq!(tally.conflicts, 4 * (1 + 2 + 4 + 8));
        engine.close().await;
    });
}

/// Between deciding and saving another engine leases the job: what was decided no longer holds, and is decided again.
#[test]
fn a_late_save_is_decided_again() {
    wait(async {
        let store = Troubled::gated(memory());
        let quick = open(store.inner.clone(), Config::default()).await;
        let late = open(store.clone(), Config::default()).await;
        let id = quick.submit(new_job()).await.unwrap().subject;
        let lease = |name| {
            let call = Call::Lease { record: id, worker: "w".into(), lease: None, start: true };
            Submission::new(&worker(name), call)
        };
        let losing = submitting(&late, lease("late"));
        store.have_come(1).await;
        quick.submit(lease("quick")).await.unwrap();
        store.gate.add_permits(10);
        let reply = losing.await.unwrap();
        assert_eq!(reply.unwrap_err().refusal().map(|refusal| refusal.status), Some(409));
        assert_eq!(late.tally().conflicts, 1);
        let attempts = store.executions(id).await.unwrap();
        assert_eq!((attempts.len(), &*attempts[0].holder), (1, "quick"));
        quick.close().await;
        late.close().await;
    });
}

/// One that loses for ever is told so.
#[test]
fn patience_ends() {
    wait(async {
        let lose = |_: &Batch| Some(Ok(Save::Conflict(Conflict::default())));
        let engine = open(Troubled::new(memory(), lose), Config::default()).await;
        assert!(matches!(engine.submit(new_job()).await, Err(EngineError::Contended)));
        engine.close().await;
    });
}

/// While the disk is full everybody is told; when there is room again work goes on.
#[test]
fn a_full_disk_is_told() {
    wait(async {
        let failures = Arc::new(AtomicUsize::new(2));
        let full = move |_: &Batch| {
            let left = failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            left.is_ok().then_some(Err(StoreError::Full))
        };
        let engine = open(Troubled::new(memory(), full), Config::default()).await;
        for _ in 0..2 {
            let replies = engine.submit_all(vec![new_job(), new_job()]).await.unwrap();
            let told = |reply: &Result<_, EngineError>| matches!(reply, Err(EngineError::Store(error)) if matches!(**error, StoreError::Full));
            assert!(replies.iter().all(told));
        }
        assert!(engine.store().log(0, 10).await.unwrap().is_empty());
        engine.submit(new_job()).await.unwrap();
        engine.close().await;
    });
}

/// What is due and cannot be saved is tried again at leisure, not in a tight loop, and done when it can be.
#[test]
fn due_in_trouble_waits() {
    wait(async {
        let (tries, full, clock) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)), Clock::manual(start()));
        let (counted, is_full) = (Arc::clone(&tries), Arc::clone(&full));
        let trouble = move |batch: &Batch| {
            let due = batch.writes.iter().any(|write| matches!(write.operation.call, Call::Due { .. }));
            counted.fetch_add(usize::from(due), Ordering::SeqCst);
            (due && is_full.load(Ordering::SeqCst)).then_some(Err(StoreError::Full))
        };
        let engine = open(Troubled::new(MemoryStore::new(clock.clone()), trouble), unpolled()).await;
        engine.submit(new_job()).await.unwrap();
        engine.lease(&worker("bob"), &Wanted::one(JOB, "w")).await.unwrap();
        clock.set(start().checked_add(onceward_core::time::Duration::from_secs(30)).unwrap());
        engine.wake();
        while tries.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        // Time enough for many a turn of a loop that does not wait: each of these goes the same way as its turns do.
        for _ in 0..100 {
            // One that shares a transaction with what is due fails with it, and is said again.
            while engine.submit(new_job()).await.is_err() {}
        }
        // Once for the lease that it was told of, once for the clock.
        assert!(tries.load(Ordering::SeqCst) <= 2);
        full.store(false, Ordering::SeqCst);
        let mut stream = engine.stream(&ops(), 102);
        engine.wake();
        assert!(tokio::time::timeout(LONG, stream.next()).await.expect("in time").unwrap().is_some());
        engine.close().await;
    });
}

/// Should the loop that saves break, callers are told just that, and not that the engine was closed. Closing still ends.
#[test]
fn a_broken_engine_says_so() {
    wait(async {
        let breaks = |batch: &Batch| has_eve(batch).then(|| panic!("a bug of ours"));
        let engine = open(Troubled::new(memory(), breaks), Config::default()).await;
        let mut fatal = new_job();
        fatal.actor.id = "eve".into();
        assert_eq!(code(&engine.submit(fatal).await), "engine_broken");
        assert_eq!(code(&engine.submit(new_job()).await), "engine_broken");
        tokio::time::timeout(LONG, engine.close()).await.expect("in time");
        assert_eq!(code(&engine.submit(new_job()).await), "closed");
    });
}

/// Files that are not sound are not taken, and the error says what is wrong first.
#[test]
fn unsound_files_are_told() {
    wait(async {
        let engine = open(memory(), Config::default()).await;
        let file = File { name: "bad.toml".to_owned(), text: "language = 1\nlifecycle = \"bad.one\"\n".into() };
        let error = engine.define(&Files { files: vec![file] }).await.expect_err("unsound");
        assert_eq!((error.status(), error.code()), (422, "unsound_lifecycle"));
        let EngineError::Store(store) = &error else { panic!("{error}") };
        let StoreError::Unsound(found) = &**store else { panic!("{error}") };
        assert!(error.to_string().contains(&found.diagnostics[0].message), "{error}");
        engine.close().await;
    });
}

/// What comes while a batch is being saved is the next one: a hundred callers cost a few transactions.
#[test]
fn callers_share_a_transaction() {
    wait(async {
        let store = Troubled::gated(memory());
        let engine = open(store.clone(), Config::default()).await;
        let callers: Vec<_> = (0..100).map(|_| create(&engine)).collect();
        until_waiting(&engine, 100).await;
        store.gate.add_permits(100);
        for caller in callers {
            caller.await.unwrap();
        }
        let tally = engine.tally();
        assert_eq!(tally.operations, 100);
        // One that was alone when it came, one beside it, then the others; and one more for each of the callers that were about to
        // enter the queue, one a thread.
        assert!(tally.batches <= 8, "{tally:?}");
        engine.close().await;
    });
}

/// A batch that is stuck in the store holds up nobody who comes after it, be there ever so few.
#[test]
fn few_do_not_wait_for_one_that_is_stuck() {
    wait(async {
        let store = Troubled::gated(memory());
        let engine = open(store.clone(), Config::default()).await;
        let stuck = create(&engine);
        tokio::time::timeout(LONG, store.have_come(1)).await.expect("in time");
        let late = create(&engine);
        tokio::time::timeout(LONG, store.have_come(2)).await.expect("in time");
        store.gate.add_permits(2);
        stuck.await.unwrap();
        late.await.unwrap();
        engine.close().await;
    });
}

/// No transaction has more operations than are said, however the calls fall; those of one call stay together.
#[test]
fn a_batch_is_as_large_as_is_said() {
    wait(async {
        let largest = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&largest);
        let store = Troubled::new(memory(), move |batch: &Batch| {
            seen.fetch_max(batch.writes.len(), Ordering::SeqCst);
            None
        });
        let store = store.with_gate();
        let engine = open(store.clone(), Config { batch: 10, ..Config::default() }).await;
        let calls: Vec<_> = (0..20)
            .map(|_| {
                let engine = engine.clone();
                tokio::spawn(async move { engine.submit_all((0..7).map(|_| new_job()).collect()).await })
            })
            .collect();
        until_waiting(&engine, 140).await;
        store.gate.add_permits(100);
        for call in calls {
            assert!(call.await.unwrap().unwrap().iter().all(Result::is_ok));
        }
        assert_eq!(largest.load(Ordering::SeqCst), 7);
        engine.close().await;
    });
}

/// Two batches decided abreast, both after the same job: one of them finds out when it is saved, and decides again.
#[test]
fn two_abreast_and_one_lease() {
    wait(async {
        let store = Troubled::gated(memory());
        store.gate.add_permits(1);
        let engine = open(store.clone(), Config::default()).await;
        let id = engine.submit(new_job()).await.unwrap().subject;
        let lease = |number: usize| {
            let call = Call::Lease { record: id, worker: "w".into(), lease: None, start: true };
            submitting(&engine, Submission::new(&worker(&format!("w{number}")), call))
        };
        // One that is held up at the gate, and then enough of them that they set out beside it.
        let mut tasks = vec![lease(0)];
        store.have_come(2).await;
        tasks.extend((1..64).map(lease));
        store.have_come(3).await;
        store.gate.add_permits(100);
        let mut won = 0;
        for task in tasks {
            won += usize::from(task.await.unwrap().is_ok());
        }
        assert_eq!((won, store.executions(id).await.unwrap().len()), (1, 1));
        assert_eq!(engine.tally().conflicts, 1);
        engine.close().await;
    });
}

/// However many ask for jobs, and for however many: no more are looked for than have room, and in the end all are had.
#[test]
fn a_look_for_jobs_is_bounded() {
    wait(async {
        let engine = open(Troubled::new(memory(), |_: &Batch| None), Config { queue: 50, ..Config::default() }).await;
        // Those of one call leave their places a moment after they are answered.
        for _ in 0..25 {
            engine.submit_all((0..20).map(|_| new_job()).collect()).await.unwrap();
        }
        let tasks = (0..40).map(|_| {
            let engine = engine.clone();
            tokio::spawn(async move {
                let wanted = Wanted { most: 20, ..Wanted::one(JOB, "w") };
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
        assert!(engine.store().asked.load(Ordering::SeqCst) <= 50);
        engine.close().await;
    });
}

fn create(engine: &Engine<Troubled>) -> tokio::task::JoinHandle<()> {
    let engine = engine.clone();
    tokio::spawn(async move {
        engine.submit(new_job()).await.expect("a job");
    })
}
