//! Workers and streams against servers and networks that behave badly. Time is part of what is tried here, so it is real.

mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use onceward_worker::{Client, Commands, Failure, Following, Job, Launcher, Patience, Working};
use serde_json::json;
use tokio::sync::mpsc;

use server::{Came, RECORD, Reaction, busy, leased, no_jobs, start};

/// Much shorter than what is waited where something is wrong, and much longer than it takes where all is well.
const SOON: Duration = Duration::from_secs(20);

fn taken() -> Reaction {
    Reaction::Answer(200, json!({}))
}

/// The first lease call gets this, all others nothing for as long as they wait.
fn once(count: &AtomicUsize, jobs: serde_json::Value) -> Reaction {
    if count.fetch_add(1, Ordering::SeqCst) == 0 { Reaction::Answer(200, jobs) } else { Reaction::Silence }
}

/// All that is reported, in order.
struct Told(mpsc::UnboundedReceiver<Came>);

impl Told {
    async fn next(&mut self) -> String {
        let came = tokio::time::timeout(SOON * 2, self.0.recv()).await.expect("a report").expect("the server lives");
        came.what().to_owned()
    }
}

fn told() -> (mpsc::UnboundedSender<Came>, Told) {
    let (tell, told) = mpsc::unbounded_channel();
    (tell, Told(told))
}

/// Connections that were open go silent, as when a host on the way is gone; new ones work. The lease is kept, and the job is done.
#[tokio::test]
async fn a_dead_connection_does_not_cost_the_lease() {
    let (tell, mut told) = told();
    let (leases, silent_to) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let newest = AtomicUsize::new(0);
    let url = start(move |came| {
        newest.fetch_max(came.connection, Ordering::SeqCst);
        if came.what() == "leases" {
            return once(&leases, leased(6, 6_000));
        }
        let _ = tell.send(came.clone());
        let _ = silent_to.compare_exchange(0, newest.load(Ordering::SeqCst), Ordering::SeqCst, Ordering::SeqCst);
        if came.connection <= silent_to.load(Ordering::SeqCst) { Reaction::Silence } else { taken() }
    })
    .await;
    let (go, gone) = mpsc::unbounded_channel::<()>();
    let gone = Arc::new(tokio::sync::Mutex::new(gone));
    let worker = Client::new(&url, None).expect("an address").work(Working::on("a.job"), move |_: Job| {
        let gone = Arc::clone(&gone);
        async move {
            gone.lock().await.recv().await;
            Ok::<_, Failure>(1)
        }
    });
    assert_eq!(told.next().await, "heartbeat");
    assert_eq!(told.next().await, "heartbeat", "again, elsewhere");
    assert_eq!(told.next().await, "heartbeat", "it was taken: this is the next");
    go.send(()).expect("it runs");
    assert_eq!(told.next().await, "commit");
    worker.begin_to_close();
}

/// A lease that was found again by its key, with little left of it: nothing is started before it is known to last.
#[tokio::test]
async fn a_lease_that_is_nearly_over_is_prolonged_first() {
    for lasts in [true, false] {
        let (tell, mut told) = told();
        let leases = AtomicUsize::new(0);
        let runs = Arc::new(AtomicUsize::new(0));
        let (seen, counted) = (Arc::clone(&runs), Arc::clone(&runs));
        let begun_before = Arc::new(AtomicUsize::new(9));
        let begun = Arc::clone(&begun_before);
        let url = start(move |came| {
            if came.what() == "leases" {
                return once(&leases, leased(60, 10_000));
            }
            if came.what() == "heartbeat" {
                begun.store(seen.load(Ordering::SeqCst), Ordering::SeqCst);
            }
            let _ = tell.send(came.clone());
            let lost = json!({ "status": 409, "code": "lease_lost", "title": "Lost", "detail": "another has it" });
            if lasts { taken() } else { Reaction::Answer(409, lost) }
        })
        .await;
        let worker = Client::new(&url, None).expect("an address").work(Working::on("a.job"), move |_: Job| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, Failure>(1) }
        });
        assert_eq!(told.next().await, "heartbeat");
        assert_eq!(begun_before.load(Ordering::SeqCst), 0, "not before it");
        if lasts {
            assert_eq!(told.next().await, "commit");
        }
        worker.close().await.expect("closed");
        assert_eq!(runs.load(Ordering::SeqCst), usize::from(lasts));
    }
}

/// A report that is turned away for longer than what is left of the lease: the heart goes on beating, and the result is not lost.
#[tokio::test]
async fn hearts_beat_while_the_result_is_reported() {
    let (tell, mut told) = told();
    let (leases, beats) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let url = start(move |came| {
        match came.what() {
            "leases" => return once(&leases, leased(1, 1_000)),
            "heartbeat" => {
                beats.fetch_add(1, Ordering::SeqCst);
            }
            // Longer than a lease and all slack after it.
            _ if beats.load(Ordering::SeqCst) < 12 => return busy(),
            _ => {}
        }
        let _ = tell.send(came.clone());
        taken()
    })
    .await;
    let client = Client::new(&url, None).expect("an address");
    let worker = client.work(Working::on("a.job"), |_: Job| async { Ok::<_, Failure>(1) });
    while told.next().await != "commit" {}
    worker.begin_to_close();
}

/// A handler that blocks all threads of its runtime, for longer than its lease, stops no heart.
#[test]
fn a_handler_that_blocks_keeps_its_lease() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().expect("a runtime")
    };
    let (servers, workers) = (runtime(), runtime());
    let (beaten, beats) = std::sync::mpsc::channel();
    let (tell, mut told) = told();
    let leases = AtomicUsize::new(0);
    let url = servers.block_on(start(move |came| {
        if came.what() == "leases" {
            return once(&leases, leased(1, 1_000));
        }
        if came.what() == "heartbeat" {
            let _ = beaten.send(());
        } else {
            let _ = tell.send(came.clone());
        }
        taken()
    }));
    let beats = Arc::new(std::sync::Mutex::new(beats));
    let client = Client::new(&url, None).expect("an address");
    let worker = workers.block_on(async {
        client.work(Working::on("a.job"), move |_: Job| {
            let beats = Arc::clone(&beats);
            async move {
                // Without a word to the runtime. Three heartbeats keep a lease: these take two of them.
                let beats = beats.lock().expect("nobody else has it");
                for _ in 0..6 {
                    beats.recv_timeout(SOON).expect("a heartbeat");
                }
                Ok::<_, Failure>(1)
            }
        })
    });
    assert_eq!(servers.block_on(told.next()), "commit");
    worker.begin_to_close();
}

/// Whoever ends a worker does not wait for a server that does not answer.
#[tokio::test]
async fn a_worker_closes_though_the_server_hangs() {
    let (came, mut asked) = mpsc::unbounded_channel();
    let url = start(move |_| {
        let _ = came.send(());
        Reaction::Silence
    })
    .await;
    let client = Client::new(&url, None).expect("an address");
    let worker = client.work(Working::on("a.job"), |_: Job| async { Ok::<_, Failure>(1) });
    asked.recv().await.expect("a question");
    let before = Instant::now();
    worker.close().await.expect("closed");
    assert!(before.elapsed() < SOON, "{:?}", before.elapsed());
}

/// Nor for a payload that does not come: what has not begun is given back.
#[tokio::test]
async fn a_job_that_has_not_begun_is_given_back() {
    let (tell, mut told) = told();
    let leases = AtomicUsize::new(0);
    let url = start(move |came| {
        if came.what() == "leases" {
            let mut jobs = leased(60, 60_000);
            jobs["executions"][0]["record"]["payload"] = json!({ "sha256": "00", "bytes": 1_000_000 });
            return if leases.fetch_add(1, Ordering::SeqCst) == 0 { Reaction::Answer(200, jobs) } else { no_jobs() };
        }
        let _ = tell.send(came.clone());
        if came.what() == "payload" { Reaction::Silence } else { taken() }
    })
    .await;
    let client = Client::new(&url, None).expect("an address");
    let working = Working { grace: Duration::from_millis(100), ..Working::on("a.job") };
    let worker = client.work(working, |_: Job| async { panic!("it must not begin") as Result<(), Failure> });
    assert_eq!(told.next().await, "payload");
    let before = Instant::now();
    worker.close().await.expect("closed");
    assert_eq!(told.next().await, "yield");
    assert!(before.elapsed() < SOON, "{:?}", before.elapsed());
}

/// Nor does it begin with other bytes than those of its hash: they are fetched twice, and then it fails, to be tried again.
#[tokio::test]
async fn a_payload_that_is_another_is_none() {
    let (tell, mut told) = told();
    let leases = AtomicUsize::new(0);
    let url = start(move |came| {
        if came.what() == "leases" {
            let mut jobs = leased(60, 60_000);
            let mark =
                json!({ "sha256": "5095715e1e2ef282854aa2bfd56c181d132c59e87100828841a198c410d75510", "bytes": 5 });
            jobs["executions"][0]["record"]["payload"] = mark;
            return if leases.fetch_add(1, Ordering::SeqCst) == 0 { Reaction::Answer(200, jobs) } else { no_jobs() };
        }
        let _ = tell.send(came.clone());
        // As many bytes as it should have.
        if came.what() == "payload" { Reaction::Answer(200, json!("abc")) } else { taken() }
    })
    .await;
    let client = Client::new(&url, None).expect("an address");
    let working = Working { grace: Duration::from_millis(100), ..Working::on("a.job") };
    let worker = client.work(working, |_: Job| async { panic!("it must not begin") as Result<(), Failure> });
    for expected in ["payload", "payload", "fail"] {
        assert_eq!(told.next().await, expected);
    }
    worker.close().await.expect("closed");
}

/// A machine that cannot start a process may be able to in a moment: the job is held, and not handed round.
#[tokio::test]
async fn a_process_that_cannot_be_started_yet_is_started_later() {
    let program = std::env::temp_dir().join(format!("onceward-not-there-yet-{}", std::process::id()));
    let _ = std::fs::remove_file(&program);
    let (tell, mut told) = told();
    let leases = AtomicUsize::new(0);
    let there = program.clone();
    let url = start(move |came| {
        if came.what() == "leases" {
            return once(&leases, leased(2, 2_000));
        }
        if came.what() == "heartbeat" && !there.exists() {
            // In place of a supervisor: ends well, without having read its line.
            std::os::unix::fs::symlink("/bin/true", &there).expect("a link");
        }
        let _ = tell.send(came.clone());
        taken()
    })
    .await;
    let client = Client::new(&url, None).expect("an address");
    let launcher = Launcher { program: program.clone(), name: None, arguments: Vec::new() };
    let commands = Commands::new(vec!["true".into()], launcher);
    let running =
        tokio::spawn(async move { commands.run(&client, Working::on("a.job"), std::future::pending()).await });
    assert_eq!(told.next().await, "heartbeat", "not given back at once");
    let end = loop {
        match told.next().await.as_str() {
            "heartbeat" => {}
            other => break other.to_owned(),
        }
    };
    assert_eq!(end, "commit");
    running.abort();
    let _ = std::fs::remove_file(&program);
}

/// A stream that breaks is opened again however long it was quiet, and from the place that the server told, also before any entry came.
#[tokio::test]
async fn a_stream_goes_on_where_it_was() {
    let (tell, mut asked) = mpsc::unbounded_channel();
    let url = start(move |came| {
        let _ = tell.send(came.head.to_lowercase());
        if came.connection == 1 {
            // Longer than the client would try: quiet, and then gone.
            std::thread::sleep(Duration::from_millis(400));
            return Reaction::Stream("id: 41\n\n: still here\n\n".to_owned());
        }
        let entry = json!({ "seq": 42, "record": RECORD, "version": 1, "at": "2026-01-01T00:00:00Z", "event": "create", "state": "WAITING" });
        Reaction::Stream(format!("id: 42\nevent: entry\ndata: {entry}\n\n"))
    })
    .await;
    let patience = Patience { retries: Duration::from_millis(300), ..Patience::default() };
    let client = Client::new(&url, None).expect("an address").with(patience);
    let entry = client.follow(&Following::default()).next().await.expect("an entry");
    assert_eq!((entry.seq, entry.state.as_deref()), (42, Some("WAITING")));
    let first = asked.recv().await.expect("a question");
    assert!(!first.contains("last-event-id"), "{first}");
    let second = asked.recv().await.expect("a second one");
    assert!(second.contains("last-event-id: 41\r\n"), "{second}");
}
