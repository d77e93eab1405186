//! Jobs that go straight to who waits for them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use onceward_core::decide::{Call, Create, ErrorReport};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_engine::{Config, Engine, EngineError, GoesOn, Leased, Submission, Wanted};
use onceward_store::{Batch, Conflict, Save, Store, StoreError};
use onceward_testkit::{user, worker};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::stage::troubled::Troubled;
use crate::stage::{JOB, LONG, job, leased, memory, new_job, object, on_each, open, state, submitting, unpolled, wait};

const CHAIN: &str = "race.chain";
const LANE: &str = "race.lane";
const RANKED: &str = "race.ranked";

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

fn create(lifecycle: &str, fields: serde_json::Value) -> Submission {
    let create = Create { lifecycle: lifecycle.into(), id: None, owner: None, fields: object(fields), payload: None };
    Submission::new(&user("ann"), Call::Create(create))
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

/// Whoever is given the job goes on before whoever made it: they are woken one after the other. Woken together, the last would go first
/// on a thread of tokio's.
#[test]
fn the_worker_goes_first() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let engine = open(memory(), unpolled()).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let (leasing, making) = (Arc::clone(&order), Arc::clone(&order));
        let waiting = idle(&engine, Wanted::one(JOB, "w")).await;
        let waiting = tokio::spawn(async move {
            let held = given(waiting).await;
            leasing.lock().unwrap().push("leased");
            held
        });
        let maker = engine.clone();
        let made = tokio::spawn(async move {
            let made = maker.submit(new_job()).await.unwrap();
            making.lock().unwrap().push("made");
            made.subject
        });
        assert_eq!(waiting.await.unwrap(), [made.await.unwrap()]);
        assert_eq!(*order.lock().unwrap(), ["leased", "made"]);
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
    on_each(unpolled(), async |engine, _| {
        let waiting = idle(engine, Wanted::one(RANKED, "w")).await;
        let made =
            engine.submit_all([1, 3, 2].map(|rank| create(RANKED, json!({ "rank": rank }))).into()).await.unwrap();
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
        let batches = engine.tally().batches;
        engine.submit_all(vec![new_job(), new_job()]).await.unwrap();
        let had = given(waiting).await;
        assert_eq!((had.len(), engine.tally().batches), (2, batches + 1));
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
        until_idle(engine, 1).await;
        let other = create("b").await;
        assert_eq!(given(waiting).await, [other]);
        assert_eq!(engine.tally().batches - before.batches, 3, "two were made, and one was leased");
    });
}

/// A wish for several lifecycles is left alone by a batch that touches one whose jobs share keys: which goes first is not known.
#[test]
fn one_who_would_take_jobs_with_a_key_looks() {
    on_each(unpolled(), async |engine, _| {
        let wanted = Wanted { lifecycles: vec![LANE.into(), JOB.into()], ..Wanted::one(JOB, "w") };
        let (waiting, batches) = (idle(engine, wanted).await, engine.tally().batches);
        let lane = create(LANE, json!({ "lane": "a" }));
        let made = engine.submit_all(vec![lane, new_job()]).await.unwrap();
        assert_eq!(given(waiting).await, [made[0].as_ref().unwrap().subject]);
        assert_eq!(engine.tally().batches, batches + 2);
    });
}

/// A wish that cannot be granted does not stand in the way of the next.
#[test]
fn whoever_is_refused_holds_up_nobody() {
    on_each(unpolled(), async |engine, _| {
        let refused = tokio::spawn({
            let (engine, wanted) = (engine.clone(), Wanted { wait: LONG, ..Wanted::one(JOB, "w") });
            async move { engine.lease(&user("eve"), &wanted).await }
        });
        until_idle(engine, 1).await;
        let (waiting, batches) = (idle(engine, Wanted::one(JOB, "w")).await, engine.tally().batches);
        let id = job(engine).await;
        assert_eq!(given(waiting).await, [id]);
        assert_eq!(engine.tally().batches, batches + 1);
        refused.abort();
    });
}

/// A job whose lease ran out is ready again, and goes to who waits: with the age that it has, before one that is made beside it.
#[test]
fn what_comes_back_keeps_its_age() {
    on_each(unpolled(), async |engine, clock| {
        let (ann, bob) = (user("ann"), worker("bob"));
        let old = engine.create(&ann, RANKED, object(json!({ "rank": 0 }))).await.unwrap().subject;
        let held = engine.lease(&bob, &Wanted::one(RANKED, "w")).await.unwrap().pop().expect("the job");
        let waiting = idle(engine, Wanted::one(RANKED, "w")).await;
        clock.set(held.expires_at);
        engine.wake();
        let held = waiting.await.unwrap().unwrap().pop().expect("it is back");
        assert_eq!(held.record.id, old);

        let waiting = idle(engine, Wanted::one(RANKED, "w")).await;
        clock.set(Time::from_micros(held.expires_at.micros() - 20_000_000));
        let error = ErrorReport { code: "no".into(), message: "no".into(), retryable: Some(true), retry_after: None };
        let fail = Call::Fail { record: old, token: held.token, error };
        let calls = vec![create(RANKED, json!({ "rank": 0 })), Submission::new(&bob, fail)];
        let batches = engine.tally().batches;
        assert!(engine.submit_all(calls).await.unwrap().iter().all(Result::is_ok));
        assert_eq!(given(waiting).await, [old]);
        assert_eq!(engine.tally().batches, batches + 1);
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

/// What is wrong with a lease alone costs nobody the job that it came with: that is saved without, and leased by who looks.
#[test]
fn a_lease_that_goes_wrong_costs_no_job() {
    let troubles: [fn() -> Result<Save, StoreError>; 3] = [
        || Err(StoreError::Rejected("a row of the lease".to_owned())),
        || Err(StoreError::Busy),
        || Ok(Save::Conflict(Conflict::default())),
    ];
    for trouble in troubles {
        wait(async {
            let store = Troubled::new(memory(), move |batch: &Batch| {
                let has = |is: fn(&Call) -> bool| batch.writes.iter().any(|write| is(&write.operation.call));
                let both =
                    has(|call| matches!(call, Call::Create(_))) && has(|call| matches!(call, Call::Lease { .. }));
                both.then(trouble)
            });
            let engine = open(store, unpolled()).await;
            for _ in 0..2 {
                let (waiting, batches) = (idle(&engine, Wanted::one(JOB, "w")).await, engine.tally().batches);
                let id = job(&engine).await;
                assert_eq!(given(waiting).await, [id]);
                assert_eq!(engine.tally().batches, batches + 2);
            }
            engine.close().await;
        });
    }
}

/// Two jobs, the second behind the first. The lease of a third behind them depends on the first.
async fn chain<S: Store + 'static>(engine: &Engine<S>) -> [RecordId; 2] {
    let create = async |fields| engine.submit(create(CHAIN, fields)).await.expect("a job").subject;
    let first = create(json!({})).await;
    [first, create(json!({ "before": first.to_string() })).await]
}

/// A look that fails for the sake of a lease costs nobody the job: what was decided is decided again, without the lease.
#[test]
fn a_look_that_fails_costs_no_job() {
    wait(async {
        let engine = open(Troubled::new(memory(), |_: &Batch| None), unpolled()).await;
        let [first, second] = chain(&engine).await;
        let bob = worker("bob");
        assert_eq!(engine.lease(&bob, &Wanted { most: 5, ..Wanted::one(CHAIN, "w") }).await.unwrap().len(), 2);
        let _waiting = idle(&engine, Wanted::one(CHAIN, "w")).await;
        engine.store().damaged.lock().unwrap().insert(first);
        let third = engine.submit(create(CHAIN, json!({ "before": second.to_string() }))).await.expect("it is made");
        assert_eq!(state(&engine, third.subject).await, "waiting");
        engine.wake();
        engine.close().await;
    });
}

/// Jobs whose leases ask too much of the store are made at once all the same, and leased by who looks.
#[test]
fn a_batch_looks_only_so_often_for_its_leases() {
    wait(async {
        let engine = open(Troubled::new(memory(), |_: &Batch| None), unpolled()).await;
        let mut behind = Vec::new();
        for _ in 0..6 {
            behind.push(chain(&engine).await[1]);
        }
        let bob = worker("bob");
        assert_eq!(engine.lease(&bob, &Wanted { most: 20, ..Wanted::one(CHAIN, "w") }).await.unwrap().len(), 12);
        let waiting = idle(&engine, Wanted { most: 10, ..Wanted::one(CHAIN, "w") }).await;
        let loads = engine.store().loads.load(Ordering::SeqCst);
        let calls = behind.iter().map(|before| create(CHAIN, json!({ "before": before.to_string() })));
        let made = engine.submit_all(calls.collect()).await.unwrap();
        let had = given(waiting).await;
        assert!((1..=4).contains(&had.len()), "{had:?}");
        assert!(engine.store().loads.load(Ordering::SeqCst) <= loads + 2 + 4);
        let rest = engine.lease(&bob, &Wanted { most: 10, ..Wanted::one(CHAIN, "w") }).await.unwrap();
        assert_eq!(had.len() + rest.len(), made.len());
        engine.close().await;
    });
}

/// A call with a key whose job was leased, and whose answer was lost with its save, is given it all the same.
#[test]
fn a_lost_answer_is_found_by_its_key() {
    wait(async {
        let store = Troubled::new(memory(), |_: &Batch| None).losing(|batch| batch.writes.len() == 2);
        let engine = open(store, unpolled()).await;
        let waiting = idle(&engine, Wanted { key: Some("take".into()), ..Wanted::one(JOB, "w") }).await;
        assert!(engine.submit(new_job()).await.is_err(), "nobody knows");
        let had = given(waiting).await;
        assert_eq!((had.len(), state(&engine, had[0]).await.as_str()), (1, "RUNNING"));
        engine.close().await;
    });
}

/// A worker goes away while its job is being saved, and asks again with its key: first too early, then it has that job and no other.
#[test]
fn a_key_that_is_asked_for_again_meanwhile() {
    wait(async {
        let store = Troubled::gated(memory());
        let engine = open(store.clone(), unpolled()).await;
        let wanted = Wanted { key: Some("take".into()), ..Wanted::one(JOB, "w") };
        let first = idle(&engine, wanted.clone()).await;
        let making = submitting(&engine, new_job());
        store.have_come(1).await;
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        let second = idle(&engine, wanted).await;
        store.gate.add_permits(1);
        let made = making.await.unwrap().unwrap().subject;
        assert_eq!(state(&engine, made).await, "RUNNING");
        // The next job meets the key, is not held up by it, and is nobody's.
        store.gate.add_permits(100);
        let next = job(&engine).await;
        assert_eq!(given(second).await, [made]);
        assert_eq!(state(&engine, next).await, "PENDING");
        engine.close().await;
    });
}

/// An engine that closes while a lease is being saved answers it, and leases nothing more.
#[test]
fn closing_meanwhile() {
    wait(async {
        let store = Troubled::gated(memory());
        let engine = open(store.clone(), unpolled()).await;
        let waiting = idle(&engine, Wanted { most: 2, ..Wanted::one(JOB, "w") }).await;
        let making = submitting(&engine, new_job());
        store.have_come(1).await;
        let closing = tokio::spawn({
            let engine = engine.clone();
            async move { engine.close().await }
        });
        while !matches!(engine.lease(&worker("eve"), &Wanted::one(JOB, "w")).await, Err(EngineError::Closed)) {
            tokio::task::yield_now().await;
        }
        store.gate.add_permits(100);
        let made = making.await.unwrap().unwrap().subject;
        assert_eq!(given(waiting).await, [made]);
        closing.await.unwrap();
    });
}
