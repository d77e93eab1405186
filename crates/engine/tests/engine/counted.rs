//! What is counted, and what is told of traces.

use std::sync::{Arc, Mutex};

use onceward_core::decide::{Call, Create, ErrorReport};
use onceward_core::diagnostic::{File, Files};
use onceward_core::time::Duration;
use onceward_core::trace::Trace;
use onceward_engine::{
    Config, Engine, EngineError, ExecutionSpan, Leased, Lived, OperationSpan, Spans, Submission, Wanted, trace_of,
};
use onceward_store::{AnyStore, Clock, Store};
use onceward_testkit::{user, worker};
use serde_json::{Map, json};

use crate::stage::troubled::Troubled;
use crate::stage::{
    Folder, JOB, code, job, leased, new_job, on_each, open, sqlite, start, state, submitting, unpolled, until_waiting,
    wait,
};

fn lived<S: Store + 'static>(engine: &Engine<S>) -> Lived {
    engine.measures().lives.get(JOB).copied().unwrap_or_default()
}

/// So long later.
fn pass(clock: &Clock, seconds: i64) {
    clock.set(clock.now().checked_add(Duration::from_secs(seconds)).expect("a time"));
}

async fn held<S: Store + 'static>(engine: &Engine<S>) -> Leased {
    leased(engine).await.expect("a job waits")
}

/// INV-5: whatever goes wrong raises a number: a failure, a lost lease, a job given back, a refusal, a record that is over.
/// EXE-4: a job that is delivered again is counted, and a report that is made again is no error.
#[test]
fn every_end_has_its_number() {
    on_each(unpolled(), async |engine, clock| {
        let bob = worker("bob");
        let first = job(engine).await;
        let own = held(engine).await;
        // Its worker is gone.
        pass(clock, 40);
        assert_eq!(state(engine, first).await, "PENDING");
        pass(clock, 10);
        let again = held(engine).await;
        engine.commit(&bob, first, again.token, json!({ "made": 1 }), true).await.unwrap();
        let repeated = engine.commit(&bob, first, again.token, json!({ "made": 1 }), true).await.unwrap();
        assert!(repeated.already.is_some());
        assert_eq!(code(&engine.commit(&bob, first, own.token, json!(2), true).await), "already_committed");

        let second = job(engine).await;
        let own = held(engine).await;
        engine.yield_back(&bob, second, own.token).await.unwrap();
        pass(clock, 10);
        let own = held(engine).await;
        let for_good = ErrorReport { retryable: Some(false), ..ErrorReport::new("BROKEN", "no") };
        engine.fail(&bob, second, own.token, for_good).await.unwrap();

        let keyed = new_job().once("a key");
        let once = engine.submit(keyed.clone()).await.unwrap();
        assert!(!once.replayed && engine.submit(keyed).await.unwrap().replayed);

        let expected = Lived {
            created: 3,
            leased: 4,
            redelivered: 2,
            started: 4,
            committed: 1,
            done: 1,
            failed: 1,
            lost: 1,
            yielded: 1,
            retried: 2,
            repeated: 1,
            replayed: 1,
            ..Lived::default()
        };
        assert_eq!(lived(engine), expected);
        let measures = engine.measures();
        let ended: Vec<_> = measures.ended.iter().map(|((_, state), count)| (&**state, *count)).collect();
        assert_eq!(ended, [("FAILED", 1), ("SUCCEEDED", 1)]);
        let refused: Vec<_> = measures.refused.iter().map(|((of, code), count)| (&**of, &**code, *count)).collect();
        assert_eq!(refused, [(JOB, "already_committed", 1)]);
        let sizes = measures.sizes.expect("batches");
        assert_eq!((sizes.count(), sizes.sum), (measures.tally.batches, measures.tally.operations));
        assert_eq!(measures.saves.expect("saves").count(), measures.tally.batches);
        let creates = measures.latency.iter().find(|(kind, _)| *kind == "create").map(|(_, times)| times.count());
        assert_eq!(creates, Some(4), "each call is timed, the repeated one too");
    });
}

/// INV-5: what the store fails is counted by its code, and what finds no room as well.
#[test]
fn what_the_engine_cannot_do_is_counted() {
    wait(async {
        let inner = onceward_store::MemoryStore::new(Clock::manual(start()));
        let store = Troubled::new(inner, |_| Some(Err(onceward_store::StoreError::Full)));
        let engine = open(store, Config { queue: 2, ..unpolled() }).await;
        assert_eq!(code(&engine.submit(new_job()).await), "store_full");
        engine.store().gate.forget_permits(tokio::sync::Semaphore::MAX_PERMITS);
        let waits = [(); 2].map(|()| submitting(&engine, new_job()));
        until_waiting(&engine, 2).await;
        assert!(matches!(engine.submit(new_job()).await, Err(EngineError::Overloaded { .. })));
        let measures = engine.measures();
        assert_eq!((measures.waiting, measures.room, measures.tally.overloaded), (2, 2, 1));
        engine.store().gate.add_permits(10);
        for wait in waits {
            assert_eq!(code(&wait.await.unwrap()), "store_full");
        }
        let failed: Vec<_> =
            engine.measures().failed.into_iter().map(|(code, count)| (code.to_string(), count)).collect();
        assert_eq!(failed, [("store_full".to_owned(), 3)]);
    });
}

#[derive(Debug, Default)]
struct Told(Mutex<(Vec<OperationSpan>, Vec<ExecutionSpan>)>);

impl Spans for Told {
    fn operation(&self, operation: OperationSpan) {
        self.0.lock().unwrap().0.push(operation);
    }

    fn execution(&self, execution: ExecutionSpan) {
        self.0.lock().unwrap().1.push(execution);
    }
}

fn trace(text: &str) -> Trace {
    Trace::parse(text).expect("a traceparent")
}

const TRACED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-00";

/// A job remembers the request that made it; every attempt at it is told of in that trace, under an id that its worker knew
/// beforehand. One that nobody keeps is remembered and handed on all the same.
#[test]
fn a_trace_goes_from_creation_to_execution() {
    let told = Arc::new(Told::default());
    let spans: Arc<dyn Spans> = Arc::<Told>::clone(&told);
    on_each(Config { spans: Some(spans), ..unpolled() }, async |engine, clock| {
        let bob = worker("bob");
        let again = ErrorReport { retryable: Some(true), ..ErrorReport::new("BUSY", "a secret") };
        for text in [TRACED, UNSAMPLED] {
            let made = Submission { trace: Some(trace(text)), ..new_job() };
            let id = engine.submit(made).await.unwrap().subject;
            let first = held(engine).await;
            assert_eq!(first.record.trace, Some(trace(text)));
            let own = trace_of(&first.record, first.token).expect("it stands in a trace");
            engine.fail(&bob, id, first.token, again.clone()).await.unwrap();
            pass(clock, 100);
            let second = held(engine).await;
            assert_eq!((own.id, own.flags), (trace(text).id, trace(text).flags));
            assert_ne!(trace_of(&second.record, second.token).unwrap().span, own.span);
            engine.commit(&bob, id, second.token, json!("a secret"), true).await.unwrap();
            let (operations, executions) = std::mem::take(&mut *told.0.lock().unwrap());
            if text == UNSAMPLED {
                assert!(operations.is_empty() && executions.is_empty());
                continue;
            }
            assert_eq!(
                operations.iter().map(|span| (span.kind, span.parent)).collect::<Vec<_>>(),
                [("create", trace(text))]
            );
            let ends: Vec<_> = executions.iter().map(|span| (span.attempt, span.end, span.parent)).collect();
            assert_eq!(ends, [(1, "failed", trace(text)), (2, "done", trace(text))]);
            assert_eq!(executions[0].own, own);
            assert!(!format!("{operations:?}{executions:?}").contains("secret"));
        }
    });
}

/// What a traced record brings about by itself stands in its trace.
#[test]
fn what_follows_stands_in_the_same_trace() {
    on_each(unpolled(), async |engine, _| {
        let fields = Map::from_iter([("to".to_owned(), json!("http://127.0.0.1:1/"))]);
        let create = onceward_core::decide::Create {
            lifecycle: "race.letter".into(),
            id: None,
            owner: None,
            fields,
            payload: None,
        };
        let call = onceward_core::decide::Call::Create(create);
        let made = Submission { trace: Some(trace(TRACED)), ..Submission::new(&user("ann"), call) };
        let id = engine.submit(made).await.unwrap().subject;
        let input = Map::from_iter([("text".to_owned(), json!("hello"))]);
        engine.fire(&user("ann"), id, "write", input).await.unwrap();
        let wanted = Wanted::one(onceward_engine::DELIVERY, "w");
        let message = engine.lease(&worker("bob"), &wanted).await.unwrap().pop().expect("a message");
        assert_eq!(message.record.trace, Some(trace(TRACED)));
    });
}

/// The trace is kept with the record, not in memory.
#[test]
fn a_trace_outlives_the_process() {
    let (folder, clock) = (Folder::new(), Clock::manual(start()));
    wait(async {
        let engine = open(sqlite(&folder, &clock), unpolled()).await;
        engine.submit(Submission { trace: Some(trace(TRACED)), ..new_job() }).await.unwrap();
        engine.close().await;
    });
    wait(async {
        let engine: Engine<AnyStore> = open(sqlite(&folder, &clock), unpolled()).await;
        assert_eq!(held(&engine).await.record.trace, Some(trace(TRACED)));
        assert!(engine.measures().commits.expect("it tells them").count() > 0);
        engine.close().await;
    });
}

/// Jobs of one's own priority.
const LINE: &str = r#"
language  = 1
lifecycle = "line.job"
about     = "A job with a priority"
[states]
waiting = { about = "for a worker", ready = true }
running = { about = "a worker has it" }
done    = { about = "and over", final = true }
[fields]
weight = { type = "int", default = 0 }
[work]
lease    = "1m"
priority = "record.weight"
[[on.create]]
go   = "-> waiting"
take = ["weight"]
[[on.lease]]
go = "waiting -> running"
[[on.commit]]
go = "running -> done"
[[on.fail]]
go = "running -> waiting"
"#;

/// A job that many others pass by is the one that waits longest, and is told of: it stands at the back of the line.
#[test]
fn a_job_that_all_others_pass_by_is_seen() {
    on_each(unpolled(), async |engine, clock| {
        let file = File { name: "line.toml".to_owned(), text: LINE.into() };
        engine.define(&Files { files: vec![file] }).await.expect("a sound file");
        let job = |weight: i64| {
            let fields = Map::from_iter([("weight".to_owned(), json!(weight))]);
            let create = Create { lifecycle: "line.job".into(), id: None, owner: None, fields, payload: None };
            Submission::new(&user("ann"), Call::Create(create))
        };
        engine.submit(job(-100)).await.expect("a job");
        pass(clock, 60);
        let others = engine.submit_all((0..1_000).map(|_| job(100)).collect()).await.expect("room");
        assert!(others.iter().all(Result::is_ok));
        let glance = engine.store().glance(clock.now()).await.expect("a look");
        let since: Vec<_> = glance.oldest.iter().map(|oldest| (&*oldest.lifecycle, oldest.since)).collect();
        assert_eq!(since, [("line.job", start())]);
        let ready: Vec<_> = glance.ready.iter().map(|ready| (&*ready.lifecycle, ready.jobs)).collect();
        assert_eq!(ready, [("line.job", 1_001)]);
    });
}

/// How long a commit takes is told by both databases.
#[test]
fn commits_have_their_time() {
    on_each(unpolled(), async |engine, _| {
        let before = engine.measures().commits.map(|commits| commits.count());
        job(engine).await;
        let after = engine.measures().commits.map(|commits| commits.count());
        let is_kept = !matches!(engine.store(), AnyStore::Memory(_));
        assert_eq!(after, before.map(|before| before + 1));
        assert_eq!(after.is_some(), is_kept);
    });
}
