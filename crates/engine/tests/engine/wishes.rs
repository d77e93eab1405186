//! Jobs that go straight to who waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onceward_core::value::RecordId;
use onceward_engine::{Config, Engine, EngineError, GoesOn, Leased, Wanted};
use onceward_store::{Batch, Store, StoreError};
use onceward_testkit::{user, worker};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::stage::troubled::Troubled;
use crate::stage::{JOB, LONG, job, leased, memory, new_job, object, on_each, open, state, unpolled, wait};

type Leasing = JoinHandle<Result<Vec<Leased>, EngineError>>;

/// Somebody who has found nothing, and waits.
async fn idle<S: Store + 'static>(engine: &Engine<S>, wanted: Wanted) -> Leasing {
    let before = engine.measures().idle;
    let waiting = tokio::spawn({
        let engine = engine.clone();
        async move { engine.lease(&worker("bob"), &Wanted { wait: LONG, ..wanted }).await }
    });
    until_idle(engine, before + 1).await;
    waiting
}

async fn until_idle<S: Store + 'static>(engine: &Engine<S>, calls: usize) {
    while engine.measures().idle != calls {
        tokio::task::yield_now().await;
    }
}

async fn given(leasing: Leasing) -> Vec<RecordId> {
    leasing.await.expect("a task").expect("jobs").iter().map(|leased| leased.record.id).collect()
}

/// EXE-5: one transaction makes it and leases it. Its worker holds it as it would any other.
#[test]
fn a_job_is_leased_where_it_is_made() {
    on_each(unpolled(), async |engine, _| {
        let waiting = idle(engine, Wanted::one(JOB, "w")).await;
        let before = engine.tally();
        let made = engine.submit(new_job()).await.unwrap();
        let held = waiting.await.unwrap().unwrap().pop().expect("the job");
        let after = engine.tally();
        assert_eq!((after.batches - before.batches, after.operations - before.operations), (1, 2));
        // Whoever made it is told of what was made; what came then is told to whom it came.
        assert_eq!((made.version, made.record.unwrap().state_name().as_ref()), (Some(1), "PENDING"));
        assert_eq!((held.record.id, held.record.state_name().as_ref()), (made.subject, "RUNNING"));
        assert!(leased(engine).await.is_none(), "it is leased once");
        engine.commit(&worker("bob"), made.subject, held.token, json!(1), true).await.unwrap();
        assert_eq!(state(engine, made.subject).await, "SUCCEEDED");
        assert_eq!(engine.measures().lives[JOB].leased, 1);
    });
}

/// Those who came first are served first, with as many as they want; what is left waits for the next.
#[test]
fn the_first_has_as_many_as_it_wants() {
    on_each(unpolled(), async |engine, _| {
        let first = idle(engine, Wanted { most: 2, ..Wanted::one(JOB, "first") }).await;
        let second = idle(engine, Wanted::one(JOB, "second")).await;
        let batches = engine.tally().batches;
        let made = engine.submit_all((0..4).map(|_| new_job()).collect()).await.unwrap();
        let made: Vec<RecordId> = made.into_iter().map(|made| made.unwrap().subject).collect();
        assert_eq!(given(first).await, made[..2]);
        assert_eq!(given(second).await, made[2..3]);
        assert_eq!(engine.tally().batches, batches + 1);
        assert_eq!(leased(engine).await.expect("the last").record.id, made[3]);
    });
}

/// Of those that one batch makes, the most important goes first.
#[test]
fn the_most_important_goes_first() {
    const ERRAND: &str = "race.ranked";
    on_each(unpolled(), async |engine, _| {
        let waiting = idle(engine, Wanted::one(ERRAND, "w")).await;
        let ann = user("ann");
        let create = |rank: i64| {
            let fields = object(json!({ "rank": rank }));
            let create = onceward_core::decide::Create {
                lifecycle: ERRAND.into(),
                id: None,
                owner: None,
                fields,
                payload: None,
            };
            onceward_engine::Submission::new(&ann, onceward_core::decide::Call::Create(create))
        };
        let made = engine.submit_all([1, 3, 2].map(create).into()).await.unwrap();
        assert_eq!(given(waiting).await, [made[1].as_ref().unwrap().subject]);
    });
}

/// A batch that is full has no room for leases: whoever waits is woken and leases for itself.
#[test]
fn a_full_batch_leases_nothing() {
    on_each(Config { batch: 2, ..unpolled() }, async |engine, _| {
        let waiting = idle(engine, Wanted { most: 2, ..Wanted::one(JOB, "w") }).await;
        let batches = engine.tally().batches;
        let made = engine.submit_all(vec![new_job(), new_job()]).await.unwrap();
        let made: Vec<RecordId> = made.into_iter().map(|made| made.unwrap().subject).collect();
        assert_eq!(given(waiting).await, made);
        assert_eq!(engine.tally().batches, batches + 2);
    });
}

/// A call with a key is given the same when it is asked again, and no more.
#[test]
fn a_key_is_given_the_same_again() {
    on_each(unpolled(), async |engine, _| {
        let wanted = Wanted { most: 3, wait: LONG, key: Some("take".into()), ..Wanted::one(JOB, "w") };
        let waiting = idle(engine, wanted.clone()).await;
        engine.submit_all(vec![new_job(), new_job()]).await.unwrap();
        let had = given(waiting).await;
        assert_eq!(had.len(), 2);
        job(engine).await;
        let again = engine.lease(&worker("bob"), &wanted).await.unwrap();
        assert_eq!(again.iter().map(|leased| leased.record.id).collect::<Vec<_>>(), had);
    });
}

/// Whoever has gone away is given nothing: the job is there for the next.
#[test]
fn whoever_has_gone_away_is_given_nothing() {
    on_each(unpolled(), async |engine, _| {
        let gone = idle(engine, Wanted::one(JOB, "gone")).await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        let id = job(engine).await;
        assert_eq!(state(engine, id).await, "PENDING");
        assert_eq!(leased(engine).await.expect("the job").record.id, id);
    });
}

/// Whoever wants nothing any more, because its key was revoked or the server leaves, is given nothing either.
#[test]
fn whoever_wants_nothing_any_more_is_given_nothing() {
    on_each(unpolled(), async |engine, _| {
        let wants = Arc::new(AtomicBool::new(true));
        let goes_on: GoesOn = Arc::new({
            let wants = Arc::clone(&wants);
            move || wants.load(Ordering::SeqCst)
        });
        let waiting = tokio::spawn({
            let engine = engine.clone();
            let wanted = Wanted { wait: LONG, ..Wanted::one(JOB, "w") };
            async move { engine.lease_while(&worker("bob"), &wanted, &goes_on).await }
        });
        until_idle(engine, 1).await;
        wants.store(false, Ordering::SeqCst);
        let id = job(engine).await;
        assert!(waiting.await.unwrap().unwrap().is_empty());
        assert_eq!(state(engine, id).await, "PENDING");
    });
}

/// Who may not lease is told so, as if it had looked.
#[test]
fn who_is_no_worker_is_told_so() {
    on_each(unpolled(), async |engine, _| {
        let waiting = tokio::spawn({
            let engine = engine.clone();
            let wanted = Wanted { wait: LONG, ..Wanted::one(JOB, "w") };
            async move { engine.lease(&user("eve"), &wanted).await }
        });
        until_idle(engine, 1).await;
        let id = job(engine).await;
        assert!(matches!(waiting.await.unwrap(), Err(EngineError::Refused(_))));
        assert_eq!(state(engine, id).await, "PENDING");
    });
}

/// Jobs that share a key go in the order of all that wait, which a batch does not know: they are looked for.
#[test]
fn jobs_with_a_key_are_looked_for() {
    const LANE: &str = "race.lane";
    on_each(unpolled(), async |engine, _| {
        let (ann, bob) = (user("ann"), worker("bob"));
        let create =
            async |lane: &str| engine.create(&ann, LANE, object(json!({ "lane": lane }))).await.unwrap().subject;
        let (first, _older) = (create("a").await, create("a").await);
        let held = engine.lease(&bob, &Wanted::one(LANE, "w")).await.unwrap().pop().expect("the first");
        assert_eq!(held.record.id, first);
        let waiting = idle(engine, Wanted::one(LANE, "w")).await;
        let before = engine.tally();
        // Its lane is full; another's is not.
        create("a").await;
        let other = create("b").await;
        assert_eq!(given(waiting).await, [other]);
        assert_eq!(engine.tally().batches - before.batches, 3, "two were made, and one was leased");
    });
}

/// A batch that was not saved has leased nothing: whoever waited waits on, and has the next job.
#[test]
fn what_is_not_saved_is_not_leased() {
    wait(async {
        let fails = Arc::new(AtomicBool::new(false));
        let store = Troubled::new(memory(), {
            let fails = Arc::clone(&fails);
            move |_: &Batch| fails.swap(false, Ordering::SeqCst).then_some(Err(StoreError::Full))
        });
        let engine = open(store, unpolled()).await;
        let waiting = idle(&engine, Wanted::one(JOB, "w")).await;
        fails.store(true, Ordering::SeqCst);
        assert!(engine.submit(new_job()).await.is_err());
        until_idle(&engine, 1).await;
        let id = job(&engine).await;
        assert_eq!(given(waiting).await, [id]);
        assert_eq!(engine.measures().lives[JOB].leased, 1);
        engine.close().await;
    });
}
