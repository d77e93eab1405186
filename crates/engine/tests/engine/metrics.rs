//! Metrics and traces.

use std::sync::{Arc, Mutex};

use onceward_core::decide::{Call, CreateRecord, FailureReport};
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::time::Duration;
use onceward_core::trace::TraceContext;
use onceward_engine::{
    Engine, EngineConfig, EngineError, ExecutionSpan, LeaseRequest, LeasedJob, LifecycleCounters, OperationSpan,
    SpanSink, Submission, execution_trace,
};
use onceward_store::{AnyStore, Clock, Store};
use onceward_testkit::{user, worker};
use serde_json::{Map, json};

use crate::support::faulty_store::FaultyStore;
use crate::support::{
    JOB_LIFECYCLE, TempDir, block_on, config_without_polling, create_job, lease_one, new_job_submission, on_each_store,
    open_engine, open_sqlite, reply_code, spawn_submit, start_time, state_of, wait_until_queued,
};

fn lifecycle_counters<S: Store + 'static>(engine: &Engine<S>) -> LifecycleCounters {
    engine.metrics().lifecycles.get(JOB_LIFECYCLE).copied().unwrap_or_default()
}

fn advance_clock(clock: &Clock, seconds: i64) {
    clock.set(clock.now().checked_add(Duration::from_secs(seconds)).expect("a time"));
}

async fn lease_job<S: Store + 'static>(engine: &Engine<S>) -> LeasedJob {
    lease_one(engine).await.expect("a job is ready")
}

/// INV-5: failures, lost leases, yields, refusals and ended records are counted. EXE-4: a redelivery is counted, and a
/// repeated report is not an error.
#[test]
fn every_execution_outcome_is_counted() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let bob = worker("bob");
        let first = create_job(engine).await;
        let own = lease_job(engine).await;
        // Its worker is gone.
        advance_clock(clock, 40);
        assert_eq!(state_of(engine, first).await, "PENDING");
        advance_clock(clock, 10);
        let again = lease_job(engine).await;
        engine.commit(&bob, first, again.token, json!({ "made": 1 }), true).await.unwrap();
        let repeated = engine.commit(&bob, first, again.token, json!({ "made": 1 }), true).await.unwrap();
        assert!(repeated.no_op.is_some());
        assert_eq!(reply_code(&engine.commit(&bob, first, own.token, json!(2), true).await), "already_committed");

        let second = create_job(engine).await;
        let own = lease_job(engine).await;
        engine.yield_job(&bob, second, own.token).await.unwrap();
        advance_clock(clock, 10);
        let own = lease_job(engine).await;
        let for_good = FailureReport { retryable: Some(false), ..FailureReport::new("BROKEN", "no") };
        engine.fail(&bob, second, own.token, for_good).await.unwrap();

        let keyed = new_job_submission().with_idempotency_key("a key");
        let once = engine.submit(keyed.clone()).await.unwrap();
        assert!(!once.replayed && engine.submit(keyed).await.unwrap().replayed);

        let expected = LifecycleCounters {
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
            ..LifecycleCounters::default()
        };
        assert_eq!(lifecycle_counters(engine), expected);
        let measures = engine.metrics();
        let ended: Vec<_> = measures.ended_records.iter().map(|((_, state), count)| (&**state, *count)).collect();
        assert_eq!(ended, [("FAILED", 1), ("SUCCEEDED", 1)]);
        let refused: Vec<_> = measures.refusals.iter().map(|((of, code), count)| (&**of, &**code, *count)).collect();
        assert_eq!(refused, [(JOB_LIFECYCLE, "already_committed", 1)]);
        let sizes = measures.batch_sizes.expect("batches");
        assert_eq!((sizes.total_count(), sizes.sum), (measures.counters.batches, measures.counters.operations));
        assert_eq!(measures.save_times.expect("saves").total_count(), measures.counters.batches);
        let creates = measures.latency.iter().find(|(kind, _)| *kind == "create").map(|(_, times)| times.total_count());
        assert_eq!(creates, Some(4), "every call is timed, also a repeated one");
    });
}

/// INV-5: `document.job` waits in RETRYING before its timer makes it ready. A failure without a retry, and a cancel in
/// RETRYING, count nothing.
#[test]
fn retry_after_timer_is_counted() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let files = InputFiles { files: onceward_testkit::systems::source_files("document") };
        engine.put_lifecycles(&files).await.unwrap();
        let (ann, bob) = (user("ann"), worker("bob"));
        let retried = || engine.metrics().lifecycles.get("document.job").map_or(0, |counters| counters.retried);
        let create =
            CreateRecord { lifecycle: "document.job".into(), id: None, owner: None, fields: Map::new(), payload: None };
        for (code, ends_by_cancel, expected) in
            [("TIMEOUT", true, 0), ("CORRUPT_DATA", false, 0), ("TIMEOUT", false, 1)]
        {
            let id = engine.create_with_payload(&ann, create.clone(), *b"x").await.unwrap().subject;
            engine.fire(&ann, id, "submit", Map::new()).await.unwrap();
            let request = LeaseRequest::single_job("document.job", "w");
            let held = engine.lease(&bob, &request).await.unwrap().pop().expect("the job");
            engine.fail(&bob, id, held.token, FailureReport::new(code, "")).await.unwrap();
            if ends_by_cancel {
                engine.fire(&ann, id, "cancel", Map::new()).await.unwrap();
            }
            assert_eq!(retried(), 0, "{code}");
            advance_clock(clock, 2);
            state_of(engine, id).await;
            assert_eq!(retried(), expected, "{code}");
        }
    });
}

/// INV-5
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn store_failures_and_overload_are_counted() {
    let inner = onceward_store::MemoryStore::new(Clock::manual(start_time()));
    let store = FaultyStore::new(inner, |_| Some(Err(onceward_store::StoreError::DiskFull)));
    let engine = open_engine(store, EngineConfig { max_queued_operations: 2, ..config_without_polling() }).await;
    assert_eq!(reply_code(&engine.submit(new_job_submission()).await), "store_full");
    engine.store().save_gate.forget_permits(tokio::sync::Semaphore::MAX_PERMITS);
    let waits = [(); 2].map(|()| spawn_submit(&engine, new_job_submission()));
    wait_until_queued(&engine, 2).await;
    assert!(matches!(engine.submit(new_job_submission()).await, Err(EngineError::Overloaded { .. })));
    let measures = engine.metrics();
    assert_eq!((measures.queued_operations, measures.queue_capacity, measures.counters.overloaded), (2, 2, 1));
    engine.store().save_gate.add_permits(10);
    for wait in waits {
        assert_eq!(reply_code(&wait.await.unwrap()), "store_full");
    }
    let failed: Vec<_> = engine.metrics().failures.into_iter().map(|(code, count)| (code.to_string(), count)).collect();
    assert_eq!(failed, [("store_full".to_owned(), 3)]);
}

#[derive(Debug, Default)]
struct SpanRecorder(Mutex<(Vec<OperationSpan>, Vec<ExecutionSpan>)>);

impl SpanSink for SpanRecorder {
    fn record_operation(&self, operation: OperationSpan) {
        self.0.lock().unwrap().0.push(operation);
    }

    fn record_execution(&self, execution: ExecutionSpan) {
        self.0.lock().unwrap().1.push(execution);
    }
}

fn parse_trace(text: &str) -> TraceContext {
    TraceContext::parse(text).expect("a traceparent")
}

const SAMPLED_TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const UNSAMPLED_TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-00";

/// Each execution has a span id that its worker knows beforehand. An unsampled trace is stored and passed on too.
#[test]
fn execution_spans_continue_the_trace_of_creation() {
    let recorder = Arc::new(SpanRecorder::default());
    let spans: Arc<dyn SpanSink> = Arc::<SpanRecorder>::clone(&recorder);
    on_each_store(EngineConfig { span_sink: Some(spans), ..config_without_polling() }, async |engine, clock| {
        let bob = worker("bob");
        let again = FailureReport { retryable: Some(true), ..FailureReport::new("BUSY", "a secret") };
        for text in [SAMPLED_TRACEPARENT, UNSAMPLED_TRACEPARENT] {
            let made = Submission { trace: Some(parse_trace(text)), ..new_job_submission() };
            let id = engine.submit(made).await.unwrap().subject;
            let first = lease_job(engine).await;
            assert_eq!(first.record.trace, Some(parse_trace(text)));
            let own = execution_trace(&first.record, first.token).expect("the execution belongs to a trace");
            engine.fail(&bob, id, first.token, again.clone()).await.unwrap();
            advance_clock(clock, 100);
            let second = lease_job(engine).await;
            assert_eq!((own.trace_id, own.flags), (parse_trace(text).trace_id, parse_trace(text).flags));
            assert_ne!(execution_trace(&second.record, second.token).unwrap().span_id, own.span_id);
            engine.commit(&bob, id, second.token, json!("a secret"), true).await.unwrap();
            let (operations, executions) = std::mem::take(&mut *recorder.0.lock().unwrap());
            if text == UNSAMPLED_TRACEPARENT {
                assert!(operations.is_empty() && executions.is_empty());
                continue;
            }
            assert_eq!(
                operations.iter().map(|span| (span.kind, span.parent)).collect::<Vec<_>>(),
                [("create", parse_trace(text))]
            );
            let ends: Vec<_> = executions.iter().map(|span| (span.attempt, span.outcome, span.parent)).collect();
            assert_eq!(ends, [(1, "failed", parse_trace(text)), (2, "done", parse_trace(text))]);
            assert_eq!(executions[0].context, own);
            assert!(!format!("{operations:?}{executions:?}").contains("secret"));
        }
    });
}

#[test]
fn spawned_delivery_inherits_the_trace() {
    on_each_store(config_without_polling(), async |engine, _| {
        let fields = Map::from_iter([("to".to_owned(), json!("http://127.0.0.1:1/"))]);
        let create = onceward_core::decide::CreateRecord {
            lifecycle: "race.letter".into(),
            id: None,
            owner: None,
            fields,
            payload: None,
        };
        let call = onceward_core::decide::Call::Create(create);
        let made = Submission { trace: Some(parse_trace(SAMPLED_TRACEPARENT)), ..Submission::new(&user("ann"), call) };
        let id = engine.submit(made).await.unwrap().subject;
        let input = Map::from_iter([("text".to_owned(), json!("hello"))]);
        engine.fire(&user("ann"), id, "write", input).await.unwrap();
        let wanted = LeaseRequest::single_job(onceward_engine::DELIVERY_LIFECYCLE, "w");
        let message = engine.lease(&worker("bob"), &wanted).await.unwrap().pop().expect("a message");
        assert_eq!(message.record.trace, Some(parse_trace(SAMPLED_TRACEPARENT)));
    });
}

#[test]
fn trace_survives_restart() {
    let (folder, clock) = (TempDir::new(), Clock::manual(start_time()));
    block_on(async {
        let engine = open_engine(open_sqlite(&folder, &clock), config_without_polling()).await;
        engine
            .submit(Submission { trace: Some(parse_trace(SAMPLED_TRACEPARENT)), ..new_job_submission() })
            .await
            .unwrap();
        engine.close().await;
    });
    block_on(async {
        let engine: Engine<AnyStore> = open_engine(open_sqlite(&folder, &clock), config_without_polling()).await;
        assert_eq!(lease_job(&engine).await.record.trace, Some(parse_trace(SAMPLED_TRACEPARENT)));
        assert!(engine.metrics().commit_times.expect("the store measures commits").total_count() > 0);
        engine.close().await;
    });
}

/// Jobs with a priority field.
const PRIORITY_JOB_LIFECYCLE: &str = r#"
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

#[test]
fn oldest_ready_age_includes_lowest_priority_job() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let file = InputFile { name: "line.toml".to_owned(), text: PRIORITY_JOB_LIFECYCLE.into() };
        engine.put_lifecycles(&InputFiles { files: vec![file] }).await.expect("a valid file");
        let job = |weight: i64| {
            let fields = Map::from_iter([("weight".to_owned(), json!(weight))]);
            let create = CreateRecord { lifecycle: "line.job".into(), id: None, owner: None, fields, payload: None };
            Submission::new(&user("ann"), Call::Create(create))
        };
        engine.submit(job(-100)).await.expect("a job");
        advance_clock(clock, 60);
        let others = engine.submit_all((0..1_000).map(|_| job(100)).collect()).await.expect("room");
        assert!(others.iter().all(Result::is_ok));
        let glance = engine.store().stats(clock.now()).await.expect("the query succeeds");
        let since: Vec<_> = glance.oldest_ready.iter().map(|oldest| (&*oldest.lifecycle, oldest.ready_since)).collect();
        assert_eq!(since, [("line.job", start_time())]);
        let ready: Vec<_> = glance.ready_counts.iter().map(|ready| (&*ready.lifecycle, ready.jobs)).collect();
        assert_eq!(ready, [("line.job", 1_001)]);
    });
}

#[test]
fn durable_stores_measure_commit_latency() {
    on_each_store(config_without_polling(), async |engine, _| {
        let before = engine.metrics().commit_times.map(|commits| commits.total_count());
        create_job(engine).await;
        let after = engine.metrics().commit_times.map(|commits| commits.total_count());
        let is_kept = !matches!(engine.store(), AnyStore::Memory(_));
        assert_eq!(after, before.map(|before| before + 1));
        assert_eq!(after.is_some(), is_kept);
    });
}
