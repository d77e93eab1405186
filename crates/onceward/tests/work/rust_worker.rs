//! Tests the worker crate against a real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward_worker::{
    BatchItemResult, BatchReturn, Client, Failure, Job, NewRecord, Report, ReportKind, RetryPolicy, StopReason,
    WorkerConfig,
};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::support::WorkerTestServer;

async fn create_job(client: &Client, payload: &Value) -> Uuid {
    client.create("desk.job", &NewRecord::with_json_payload(payload).expect("JSON")).await.expect("a job").id
}

#[test]
fn handler_input_output_and_failures_are_typed() {
    let server = WorkerTestServer::new("typed");
    let worker = server.runtime.block_on(async {
        server.client.work_with(
            WorkerConfig::for_lifecycle("desk.job").concurrency(3),
            |numbers: Vec<i64>, job: Job| async move {
                match (numbers.as_slice(), job.attempt()) {
                    ([], _) => Err(Failure::terminal("EMPTY", "nothing to add")),
                    ([0], 1) => Err(Failure::retryable("ZERO", "once more")),
                    ([1], 1) => panic!("one"),
                    ([2], 1) => Err("x".parse::<i32>().map(|_| ()).expect_err("no number").into()),
                    ([3], 1) => Err(Failure::yielded()),
                    _ => Ok(numbers.iter().sum::<i64>()),
                }
            },
        )
    });
    let new = |payload: Value| server.runtime.block_on(create_job(&server.client, &payload));
    let ids = [json!([1, 2, 3]), json!([0]), json!([1]), json!([2]), json!([3])].map(new);
    let (empty, wrong) = (new(json!([])), new(json!("text")));
    let codes = ids.map(|id| server.wait_for_state(id, "DONE").field("code"));
    assert_eq!(codes, [json!(null), json!("ZERO"), json!("EXCEPTION"), json!("EXCEPTION"), json!(null)]);
    assert_eq!(ids.map(|id| server.effect(id)["result"].clone()), [json!(6), json!(0), json!(1), json!(2), json!(3)]);
    assert_eq!(server.wait_for_state(empty, "FAILED").field("code"), "EMPTY");
    assert_eq!(server.wait_for_state(wrong, "FAILED").field("code"), "BAD_PAYLOAD");
    server.runtime.block_on(worker.close()).expect("closed");
}

/// The job fails until its retry budget is spent.
#[test]
fn damaged_payload_fails_job_without_running_handler() {
    let server = WorkerTestServer::new("harmed");
    let id = server.create_job(&"x".repeat(300_000));
    let objects = std::fs::read_dir(server.folder.join("onceward.db.objects")).expect("folder").flatten();
    let folders = objects.filter(|entry| entry.file_type().expect("a type").is_dir());
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.path()).expect("folder").flatten());
    let file = files.map(|file| file.path()).next().expect("JSON object");
    std::fs::write(&file, "y".repeat(300_002)).expect("other bytes");
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let worker = server.runtime.block_on(async {
        // Each response is cut off, so the client need not retry.
        let retry_policy = RetryPolicy { retry_timeout: Duration::ZERO, ..RetryPolicy::default() };
        let client = Client::new(&server.url, None).expect("address").with_retry_policy(retry_policy);
        client.work(WorkerConfig::for_lifecycle("desk.job"), move |_: Job| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, Failure>(()) }
        })
    });
    let record = server.wait_for_state(id, "FAILED");
    assert_eq!((record.field("code"), record.attempt), (json!("PAYLOAD_UNAVAILABLE"), 10));
    server.runtime.block_on(worker.close()).expect("closed");
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[test]
fn failure_after_commit_still_finishes_job() {
    let server = WorkerTestServer::new("two-phases");
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let worker = server.runtime.block_on(async {
        server.client.work(WorkerConfig::for_lifecycle("execution.job"), move |job: Job| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                job.commit(&json!({ "prepared": job.attempt() })).await?;
                Err::<(), _>(Failure::terminal("TIDYING", "failed after the commit"))
            }
        })
    });
    let id = server.runtime.block_on(server.client.create("execution.job", &NewRecord::default())).expect("a job").id;
    let record = server.wait_for_state(id, "SUCCEEDED");
    assert_eq!((record.attempt, record.field("lastError")), (1, json!(null)));
    assert_eq!(server.effect(id)["result"], json!({ "prepared": 1 }));
    server.runtime.block_on(worker.close()).expect("closed");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[test]
fn heartbeats_extend_lease_while_handler_runs() {
    let server = WorkerTestServer::new("heartbeats");
    let lease = Duration::from_secs(2);
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let waits = Arc::clone(&go);
    let worker = server.runtime.block_on(async {
        let config = WorkerConfig { lease: Some(lease), ..WorkerConfig::for_lifecycle("desk.job").concurrency(4) };
        server.client.work(config, move |job: Job| {
            let waits = Arc::clone(&waits);
            async move {
                waits.acquire().await?.forget();
                Ok::<_, Failure>(job.attempt())
            }
        })
    });
    let ids: Vec<Uuid> = (0..4).map(|_| server.runtime.block_on(create_job(&server.client, &json!(null)))).collect();
    for id in &ids {
        server.wait_for_state(*id, "RUNNING");
        // Wait until the lease ends later than it could without a heartbeat.
        server.runtime.block_on(async {
            loop {
                let executions = server.client.executions(*id).await.expect("one");
                if executions[0].expires_at.duration_since(executions[0].leased_at)
                    > (lease + lease / 2).try_into().expect("short")
                {
                    break;
                }
            }
        });
    }
    go.add_permits(ids.len());
    for id in ids {
        assert_eq!(server.wait_for_state(id, "DONE").attempt, 1);
    }
    server.runtime.block_on(worker.close()).expect("closed");
}

#[test]
fn handler_receives_stop_reason() {
    let server = WorkerTestServer::new("stopping");
    let (reason_sender, mut reasons) = mpsc::unbounded_channel();
    let worker = server.runtime.block_on(async {
        let config = WorkerConfig {
            lease: Some(Duration::from_secs(3)),
            ..WorkerConfig::for_lifecycle("desk.job").concurrency(2)
        };
        server.client.work(config, move |job: Job| {
            let responses = reason_sender.clone();
            async move {
                let _ = responses.send(None);
                let _ = responses.send(Some(job.wait_for_stop().await));
                Err::<(), _>(Failure::yielded())
            }
        })
    });
    let mut next = || server.runtime.block_on(reasons.recv()).expect("a word");
    let id = server.runtime.block_on(create_job(&server.client, &json!(null)));
    assert_eq!(next(), None);
    server.fire(id, "cancel");
    assert_eq!(next(), Some(StopReason::Requested));
    server.wait_for_state(id, "CANCELLED");
    let id = server.runtime.block_on(create_job(&server.client, &json!(null)));
    assert_eq!(next(), None);
    server.runtime.block_on(worker.close()).expect("closed");
    assert_eq!(next(), Some(StopReason::Closing));
    let yielded = server.get(id);
    assert_eq!((yielded.state.as_str(), yielded.field("yields")), ("WAITING", json!(1)));
}

#[test]
fn unresponsive_handler_is_dropped_and_job_yielded() {
    let server = WorkerTestServer::new("deaf");
    let (started_sender, mut started) = mpsc::unbounded_channel();
    let worker = server.runtime.block_on(async {
        let config =
            WorkerConfig { shutdown_grace: Duration::from_millis(100), ..WorkerConfig::for_lifecycle("desk.job") };
        server.client.work(config, move |_| {
            let responses = started_sender.clone();
            async move {
                let _ = responses.send(());
                std::future::pending::<Result<(), Failure>>().await
            }
        })
    });
    let id = server.runtime.block_on(create_job(&server.client, &json!(null)));
    server.runtime.block_on(started.recv()).expect("start process");
    server.runtime.block_on(worker.close()).expect("closed");
    assert_eq!((server.get(id).state.as_str(), server.get(id).field("yields")), ("WAITING", json!(1)));
}

/// The refusal of a stale token names the winner.
#[test]
fn repeated_report_succeeds_and_late_report_is_refused() {
    let server = WorkerTestServer::new("reports");
    server.runtime.block_on(async {
        let client = &server.client;
        let ids = [create_job(client, &json!(1)).await, create_job(client, &json!(2)).await];
        let body = onceward_worker::LeaseBody {
            lifecycles: vec!["desk.job".to_owned()],
            worker: "w".to_owned(),
            max: 10,
            start: Some(true),
            ..onceward_worker::LeaseBody::default()
        };
        let request = onceward_worker::LeaseRequest { body, idempotency_key: Some("a key".to_owned()) };
        let mut replay_request = request.clone();
        replay_request.body.again = Some(true);
        assert!(client.lease(&replay_request).await.expect("response").is_empty(), "the first call leased no jobs");
        let leased = client.lease(&request).await.expect("jobs");
        let replayed = client.lease(&request).await.expect("jobs");
        let names = |leased: &[onceward_worker::LeasedJob]| leased.iter().map(|job| job.id.clone()).collect::<Vec<_>>();
        assert_eq!(names(&leased), ids.map(|id| format!("{id}.1")));
        assert_eq!(names(&replayed), names(&leased), "the same executions");
        assert_eq!(names(&client.lease(&replay_request).await.expect("jobs")), names(&leased), "the first leases");
        let commit =
            |number: usize| Report::for_job(&leased[number], ReportKind::Commit { result: None, finish: true });
        client.report(&commit(0)).await.expect("taken");
        client.report(&commit(0)).await.expect("repeated report");
        let failed = Report::for_job(&leased[0], ReportKind::Fail(Failure::terminal("LATE", "late report")));
        let late = client.report(&failed).await.expect_err("already committed");
        assert_eq!(late.code(), Some("already_committed"), "{late}");
        for returns in [BatchReturn::Summary, BatchReturn::Record] {
            let reports = [commit(0), commit(1), failed.clone()];
            let results = client.report_batch(&reports, returns).await.expect("three results");
            let [BatchItemResult::Succeeded(_), BatchItemResult::Succeeded(second), BatchItemResult::Refused(_)] =
                &results[..]
            else {
                panic!("{results:?}");
            };
            let is_summary = returns == BatchReturn::Summary;
            assert_eq!((second.id.is_some(), second.record.is_none()), (is_summary, is_summary), "{second:?}");
        }
    });
}

#[test]
fn batch_created_jobs_are_each_run_once() {
    let server = WorkerTestServer::new("batches");
    let done = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&done);
    let worker = server.runtime.block_on(async {
        let records: Vec<NewRecord> = (0..500)
            .map(|number| {
                NewRecord::with_json_payload(&number).expect("JSON").with_idempotency_key(&format!("n{number}"))
            })
            .collect();
        for _ in 0..2 {
            let made = server.client.create_batch("desk.job", &records).await.expect("answers");
            assert!(made.iter().all(|made| matches!(made, BatchItemResult::Succeeded(_))), "{made:?}");
        }
        let config = WorkerConfig { until_idle: true, ..WorkerConfig::for_lifecycle("desk.job").concurrency(50) };
        server.client.work_with(config, move |number: u32, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move { Ok::<_, Failure>(number) }
        })
    });
    server.runtime.block_on(worker.wait()).expect("idle");
    assert_eq!(done.load(Ordering::SeqCst), 500);
    let waiting = server.stdout_of_success(&["list", "desk.job", "--state", "WAITING"]);
    assert_eq!(waiting, "no records\n");
}
