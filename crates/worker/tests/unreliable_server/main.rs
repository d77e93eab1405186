//! Workers and streams with unreliable servers and networks. The tests use real time, because timeouts are their
//! subject.

mod fake_server;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use onceward_worker::{Client, CommandWorker, Failure, Job, RetryPolicy, SelfLauncher, StreamOptions, WorkerConfig};
use serde_json::json;
use tokio::sync::mpsc;

use fake_server::{FakeResponse, RECORD_ID, ReceivedRequest, lease_response, no_jobs, overloaded, start};

/// Far longer than a passing test takes, and far shorter than the waits of a faulty client.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

fn accepted() -> FakeResponse {
    FakeResponse::Json(200, json!({}))
}

/// The first lease call gets these jobs; later ones hang.
fn first_lease_then_hang(calls: &AtomicUsize, jobs: serde_json::Value) -> FakeResponse {
    if calls.fetch_add(1, Ordering::SeqCst) == 0 { FakeResponse::Json(200, jobs) } else { FakeResponse::Hang }
}

/// Receives all reports in order.
struct ReportReceiver(mpsc::UnboundedReceiver<ReceivedRequest>);

impl ReportReceiver {
    async fn next(&mut self) -> String {
        let request =
            tokio::time::timeout(TEST_TIMEOUT * 2, self.0.recv()).await.expect("a report").expect("fake server");
        request.last_path_segment().to_owned()
    }
}

fn report_channel() -> (mpsc::UnboundedSender<ReceivedRequest>, ReportReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, ReportReceiver(receiver))
}

/// Existing connections hang, as if a host on the path had disappeared; new ones work.
#[tokio::test]
async fn heartbeat_retries_on_new_connection_when_old_one_hangs() {
    let (report_sender, mut reports) = report_channel();
    let (leases, last_hanging) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let newest = AtomicUsize::new(0);
    let url = start(move |request| {
        newest.fetch_max(request.connection, Ordering::SeqCst);
        if request.last_path_segment() == "leases" {
            return first_lease_then_hang(&leases, lease_response(6, 6_000));
        }
        let _ = report_sender.send(request.clone());
        let _ = last_hanging.compare_exchange(0, newest.load(Ordering::SeqCst), Ordering::SeqCst, Ordering::SeqCst);
        if request.connection <= last_hanging.load(Ordering::SeqCst) { FakeResponse::Hang } else { accepted() }
    })
    .await;
    let (go, gone) = mpsc::unbounded_channel::<()>();
    let gone = Arc::new(tokio::sync::Mutex::new(gone));
    let worker = Client::new(&url, None).expect("address").work(WorkerConfig::for_lifecycle("a.job"), move |_: Job| {
        let gone = Arc::clone(&gone);
        async move {
            gone.lock().await.recv().await;
            Ok::<_, Failure>(1)
        }
    });
    assert_eq!(reports.next().await, "heartbeat");
    assert_eq!(reports.next().await, "heartbeat", "retried on another connection");
    assert_eq!(reports.next().await, "heartbeat", "accepted report is followed by the next");
    go.send(()).expect("start process");
    assert_eq!(reports.next().await, "commit");
    worker.start_close();
}

/// The lease was recalled by its idempotency key and is about to expire.
#[tokio::test]
async fn overdue_lease_is_extended_before_handler_starts() {
    for is_extended in [true, false] {
        let (report_sender, mut reports) = report_channel();
        let leases = AtomicUsize::new(0);
        let runs = Arc::new(AtomicUsize::new(0));
        let (seen, counted) = (Arc::clone(&runs), Arc::clone(&runs));
        let runs_before_heartbeat = Arc::new(AtomicUsize::new(9));
        let begun = Arc::clone(&runs_before_heartbeat);
        let url = start(move |request| {
            if request.last_path_segment() == "leases" {
                return first_lease_then_hang(&leases, lease_response(60, 10_000));
            }
            if request.last_path_segment() == "heartbeat" {
                begun.store(seen.load(Ordering::SeqCst), Ordering::SeqCst);
            }
            let _ = report_sender.send(request.clone());
            let lost = json!({ "status": 409, "code": "lease_lost", "title": "Lost", "detail": "lease held by another worker" });
            if is_extended { accepted() } else { FakeResponse::Json(409, lost) }
        })
        .await;
        let worker =
            Client::new(&url, None).expect("address").work(WorkerConfig::for_lifecycle("a.job"), move |_: Job| {
                counted.fetch_add(1, Ordering::SeqCst);
                async { Ok::<_, Failure>(1) }
            });
        assert_eq!(reports.next().await, "heartbeat");
        assert_eq!(runs_before_heartbeat.load(Ordering::SeqCst), 0, "not before the heartbeat");
        if is_extended {
            assert_eq!(reports.next().await, "commit");
        }
        worker.close().await.expect("closed");
        assert_eq!(runs.load(Ordering::SeqCst), usize::from(is_extended));
    }
}

/// The server refuses the commit for longer than the rest of the lease.
#[tokio::test]
async fn heartbeats_continue_while_commit_is_retried() {
    let (report_sender, mut reports) = report_channel();
    let (leases, beats) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let url = start(move |request| {
        match request.last_path_segment() {
            "leases" => return first_lease_then_hang(&leases, lease_response(1, 1_000)),
            "heartbeat" => {
                beats.fetch_add(1, Ordering::SeqCst);
            }
            // Longer than a lease and `MAX_CLOCK_SKEW`.
            _ if beats.load(Ordering::SeqCst) < 12 => return overloaded(),
            _ => {}
        }
        let _ = report_sender.send(request.clone());
        accepted()
    })
    .await;
    let client = Client::new(&url, None).expect("address");
    let worker = client.work(WorkerConfig::for_lifecycle("a.job"), |_: Job| async { Ok::<_, Failure>(1) });
    while reports.next().await != "commit" {}
    worker.start_close();
}

/// The handler blocks all threads of its runtime for longer than its lease.
#[test]
fn blocking_handler_keeps_its_lease() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().expect("tokio runtime")
    };
    let (servers, workers) = (runtime(), runtime());
    let (heartbeat_sender, heartbeats) = std::sync::mpsc::channel();
    let (report_sender, mut reports) = report_channel();
    let leases = AtomicUsize::new(0);
    let url = servers.block_on(start(move |request| {
        if request.last_path_segment() == "leases" {
            return first_lease_then_hang(&leases, lease_response(1, 1_000));
        }
        if request.last_path_segment() == "heartbeat" {
            let _ = heartbeat_sender.send(());
        } else {
            let _ = report_sender.send(request.clone());
        }
        accepted()
    }));
    let beats = Arc::new(std::sync::Mutex::new(heartbeats));
    let client = Client::new(&url, None).expect("address");
    let worker = workers.block_on(async {
        client.work(WorkerConfig::for_lifecycle("a.job"), move |_: Job| {
            let beats = Arc::clone(&beats);
            async move {
                // Blocks without yielding. Three heartbeats span a lease, so six take two leases.
                let beats = beats.lock().expect("no other worker has the job");
                for _ in 0..6 {
                    beats.recv_timeout(TEST_TIMEOUT).expect("a heartbeat");
                }
                Ok::<_, Failure>(1)
            }
        })
    });
    assert_eq!(servers.block_on(reports.next()), "commit");
    worker.start_close();
}

#[tokio::test]
async fn worker_closes_while_server_hangs() {
    let (request_sender, mut requests) = mpsc::unbounded_channel();
    let url = start(move |_| {
        let _ = request_sender.send(());
        FakeResponse::Hang
    })
    .await;
    let client = Client::new(&url, None).expect("address");
    let worker = client.work(WorkerConfig::for_lifecycle("a.job"), |_: Job| async { Ok::<_, Failure>(1) });
    requests.recv().await.expect("a question");
    let closed_at = Instant::now();
    worker.close().await.expect("closed");
    assert!(closed_at.elapsed() < TEST_TIMEOUT, "{:?}", closed_at.elapsed());
}

#[tokio::test]
async fn job_without_fetched_payload_is_yielded_on_close() {
    let (report_sender, mut reports) = report_channel();
    let leases = AtomicUsize::new(0);
    let url = start(move |request| {
        if request.last_path_segment() == "leases" {
            let mut jobs = lease_response(60, 60_000);
            jobs["executions"][0]["record"]["payload"] = json!({ "sha256": "00", "bytes": 1_000_000 });
            return if leases.fetch_add(1, Ordering::SeqCst) == 0 { FakeResponse::Json(200, jobs) } else { no_jobs() };
        }
        let _ = report_sender.send(request.clone());
        if request.last_path_segment() == "payload" { FakeResponse::Hang } else { accepted() }
    })
    .await;
    let client = Client::new(&url, None).expect("address");
    let config = WorkerConfig { shutdown_grace: Duration::from_millis(100), ..WorkerConfig::for_lifecycle("a.job") };
    let worker = client.work(config, |_: Job| async { panic!("the handler must not start") as Result<(), Failure> });
    assert_eq!(reports.next().await, "payload");
    let closed_at = Instant::now();
    worker.close().await.expect("closed");
    assert_eq!(reports.next().await, "yield");
    assert!(closed_at.elapsed() < TEST_TIMEOUT, "{:?}", closed_at.elapsed());
}

/// The job fails with a retryable error after the second download.
#[tokio::test]
async fn payload_with_wrong_hash_fails_job_after_refetch() {
    let (report_sender, mut reports) = report_channel();
    let leases = AtomicUsize::new(0);
    let url = start(move |request| {
        if request.last_path_segment() == "leases" {
            let mut jobs = lease_response(60, 60_000);
            let payload_ref =
                json!({ "sha256": "5095715e1e2ef282854aa2bfd56c181d132c59e87100828841a198c410d75510", "bytes": 5 });
            jobs["executions"][0]["record"]["payload"] = payload_ref;
            return if leases.fetch_add(1, Ordering::SeqCst) == 0 { FakeResponse::Json(200, jobs) } else { no_jobs() };
        }
        let _ = report_sender.send(request.clone());
        // The right length with the wrong content.
        if request.last_path_segment() == "payload" { FakeResponse::Json(200, json!("abc")) } else { accepted() }
    })
    .await;
    let client = Client::new(&url, None).expect("address");
    let config = WorkerConfig { shutdown_grace: Duration::from_millis(100), ..WorkerConfig::for_lifecycle("a.job") };
    let worker = client.work(config, |_: Job| async { panic!("the handler must not start") as Result<(), Failure> });
    for expected in ["payload", "payload", "fail"] {
        assert_eq!(reports.next().await, expected);
    }
    worker.close().await.expect("closed");
}

#[tokio::test]
async fn failed_spawn_is_retried_while_job_is_held() {
    let program = std::env::temp_dir().join(format!("onceward-not-there-yet-{}", std::process::id()));
    let _ = std::fs::remove_file(&program);
    let (report_sender, mut reports) = report_channel();
    let leases = AtomicUsize::new(0);
    let program_link = program.clone();
    let url = start(move |request| {
        if request.last_path_segment() == "leases" {
            return first_lease_then_hang(&leases, lease_response(2, 2_000));
        }
        if request.last_path_segment() == "heartbeat" && !program_link.exists() {
            // Stands in for the supervisor: exits successfully without reading its input.
            std::os::unix::fs::symlink("/bin/true", &program_link).expect("a link");
        }
        let _ = report_sender.send(request.clone());
        accepted()
    })
    .await;
    let client = Client::new(&url, None).expect("address");
    let launcher = SelfLauncher { program: program.clone(), name: None, arguments: Vec::new() };
    let command_worker = CommandWorker::new(vec!["true".into()], launcher);
    let running = tokio::spawn(async move {
        command_worker.run(&client, WorkerConfig::for_lifecycle("a.job"), std::future::pending()).await
    });
    assert_eq!(reports.next().await, "heartbeat", "job is not yielded at once");
    let end = loop {
        match reports.next().await.as_str() {
            "heartbeat" => {}
            other => break other.to_owned(),
        }
    };
    assert_eq!(end, "commit");
    running.abort();
    let _ = std::fs::remove_file(&program);
}

/// Even after a long idle time, and before the first entry, from the `id` that the server sent.
#[tokio::test]
async fn broken_stream_resumes_after_last_event_id() {
    let (request_sender, mut requests) = mpsc::unbounded_channel();
    let url = start(move |request| {
        let _ = request_sender.send(request.head.to_lowercase());
        if request.connection == 1 {
            // Idle for longer than the client's `retry_timeout`, then disconnected.
            std::thread::sleep(Duration::from_millis(400));
            return FakeResponse::Stream("id: 41\n\n: keep-alive\n\n".to_owned());
        }
        let entry = json!({ "seq": 42, "record": RECORD_ID, "version": 1, "at": "2026-01-01T00:00:00Z", "event": "create", "state": "WAITING" });
        FakeResponse::Stream(format!("id: 42\nevent: entry\ndata: {entry}\n\n"))
    })
    .await;
    let retry_policy = RetryPolicy { retry_timeout: Duration::from_millis(300), ..RetryPolicy::default() };
    let client = Client::new(&url, None).expect("address").with_retry_policy(retry_policy);
    let entry = client.follow(&StreamOptions::default()).next().await.expect("log entry");
    assert_eq!((entry.seq, entry.state.as_deref()), (42, Some("WAITING")));
    let first = requests.recv().await.expect("a question");
    assert!(!first.contains("last-event-id"), "{first}");
    let second = requests.recv().await.expect("second connection");
    assert!(second.contains("last-event-id: 41\r\n"), "{second}");
}
