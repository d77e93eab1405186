//! Workers in Rust, by the crate, against a real server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onceward_worker::{Client, Failure, Job, NewRecord, Outcome, Patience, Report, Stopping, Verdict, Working};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::stage::Stage;

async fn job(client: &Client, payload: &Value) -> Uuid {
    client.create("desk.job", &NewRecord::of(payload).expect("JSON")).await.expect("a job").id
}

/// Typed in, typed out; each failure as the handler says it.
#[test]
fn handlers_have_types() {
    let stage = Stage::new("typed");
    let worker = stage.runtime.block_on(async {
        stage.client.work_with(Working::on("desk.job").at_once(3), |numbers: Vec<i64>, job: Job| async move {
            match (numbers.as_slice(), job.attempt()) {
                ([], _) => Err(Failure::terminal("EMPTY", "nothing to add")),
                ([0], 1) => Err(Failure::retryable("ZERO", "once more")),
                ([1], 1) => panic!("one"),
                ([2], 1) => Err("x".parse::<i32>().map(|_| ()).expect_err("no number").into()),
                ([3], 1) => Err(Failure::yielded()),
                _ => Ok(numbers.iter().sum::<i64>()),
            }
        })
    });
    let new = |payload: Value| stage.runtime.block_on(job(&stage.client, &payload));
    let ids = [json!([1, 2, 3]), json!([0]), json!([1]), json!([2]), json!([3])].map(new);
    let (empty, wrong) = (new(json!([])), new(json!("text")));
    let codes = ids.map(|id| stage.until(id, "DONE").field("code"));
    assert_eq!(codes, [json!(null), json!("ZERO"), json!("EXCEPTION"), json!("EXCEPTION"), json!(null)]);
    assert_eq!(ids.map(|id| stage.effect(id)["result"].clone()), [json!(6), json!(0), json!(1), json!(2), json!(3)]);
    assert_eq!(stage.until(empty, "FAILED").field("code"), "EMPTY");
    assert_eq!(stage.until(wrong, "FAILED").field("code"), "BAD_PAYLOAD");
    stage.runtime.block_on(worker.close()).expect("closed");
}

/// A large payload that changed where it lies comes to no handler: the job fails, as often as its lifecycle tries it again.
#[test]
fn no_handler_gets_other_bytes() {
    let stage = Stage::new("harmed");
    let id = stage.job(&"x".repeat(300_000));
    let objects = std::fs::read_dir(stage.folder.join("onceward.db.objects")).expect("a folder").flatten();
    let files = objects.flat_map(|folder| std::fs::read_dir(folder.path()).expect("a folder").flatten());
    let file = files.map(|file| file.path()).next().expect("an object");
    std::fs::write(&file, "y".repeat(300_002)).expect("other bytes");
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let worker = stage.runtime.block_on(async {
        // The answer breaks off each time: there is no use in asking again.
        let patience = Patience { retries: Duration::ZERO, ..Patience::default() };
        let client = Client::new(&stage.url, None).expect("an address").with(patience);
        client.work(Working::on("desk.job"), move |_: Job| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, Failure>(()) }
        })
    });
    let record = stage.until(id, "FAILED");
    assert_eq!((record.field("code"), record.attempt), (json!("PAYLOAD_UNAVAILABLE"), 10));
    stage.runtime.block_on(worker.close()).expect("closed");
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

/// What is committed in the middle of a handler stays, whatever the handler does afterwards.
#[test]
fn a_handler_may_commit_and_go_on() {
    let stage = Stage::new("two-phases");
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let worker = stage.runtime.block_on(async {
        stage.client.work(Working::on("execution.job"), move |job: Job| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                job.commit(&json!({ "prepared": job.attempt() })).await?;
                Err::<(), _>(Failure::terminal("TIDYING", "went wrong, and does not matter"))
            }
        })
    });
    let id = stage.runtime.block_on(stage.client.create("execution.job", &NewRecord::default())).expect("a job").id;
    let record = stage.until(id, "SUCCEEDED");
    assert_eq!((record.attempt, record.field("lastError")), (1, json!(null)));
    assert_eq!(stage.effect(id)["result"], json!({ "prepared": 1 }));
    stage.runtime.block_on(worker.close()).expect("closed");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// A lease is kept as long as the handler runs, beyond its own length.
#[test]
fn hearts_beat() {
    let stage = Stage::new("heartbeats");
    let lease = Duration::from_secs(2);
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let waits = Arc::clone(&go);
    let worker = stage.runtime.block_on(async {
        let working = Working { lease: Some(lease), ..Working::on("desk.job").at_once(4) };
        stage.client.work(working, move |job: Job| {
            let waits = Arc::clone(&waits);
            async move {
                waits.acquire().await?.forget();
                Ok::<_, Failure>(job.attempt())
            }
        })
    });
    let ids: Vec<Uuid> = (0..4).map(|_| stage.runtime.block_on(job(&stage.client, &json!(null)))).collect();
    for id in &ids {
        stage.until(*id, "RUNNING");
        // Until it lasts longer than it ever was.
        stage.runtime.block_on(async {
            loop {
                let executions = stage.client.executions(*id).await.expect("one");
                let time = |name: &str| executions[0].more[name].as_str().expect("a time").parse::<jiff::Timestamp>();
                let expires = executions[0].expires_at.expect("a time");
                if expires.duration_since(time("leased_at").expect("a time"))
                    > (lease + lease / 2).try_into().expect("short")
                {
                    break;
                }
            }
        });
    }
    go.add_permits(ids.len());
    for id in ids {
        assert_eq!(stage.until(id, "DONE").attempt, 1);
    }
    stage.runtime.block_on(worker.close()).expect("closed");
}

#[test]
fn handlers_hear_why_they_are_to_stop() {
    let stage = Stage::new("stopping");
    let (told, mut heard) = mpsc::unbounded_channel();
    let worker = stage.runtime.block_on(async {
        let working = Working { lease: Some(Duration::from_secs(3)), ..Working::on("desk.job").at_once(2) };
        stage.client.work(working, move |job: Job| {
            let told = told.clone();
            async move {
                let _ = told.send(None);
                let _ = told.send(Some(job.stopped().await));
                Err::<(), _>(Failure::yielded())
            }
        })
    });
    let mut next = || stage.runtime.block_on(heard.recv()).expect("a word");
    let id = stage.runtime.block_on(job(&stage.client, &json!(null)));
    assert_eq!(next(), None);
    stage.fire(id, "cancel");
    assert_eq!(next(), Some(Stopping::Asked));
    stage.until(id, "CANCELLED");
    let id = stage.runtime.block_on(job(&stage.client, &json!(null)));
    assert_eq!(next(), None);
    stage.runtime.block_on(worker.close()).expect("closed");
    assert_eq!(next(), Some(Stopping::Closing));
    let given_back = stage.get(id);
    // Twice, where a call for work that was still out brought the same job once more.
    assert!([json!(1), json!(2)].contains(&given_back.field("yields")), "{given_back:?}");
    assert_eq!(given_back.state, "WAITING");
}

#[test]
fn a_handler_that_does_not_listen_is_dropped_and_its_job_given_back() {
    let stage = Stage::new("deaf");
    let (told, mut heard) = mpsc::unbounded_channel();
    let worker = stage.runtime.block_on(async {
        let working = Working { grace: Duration::from_millis(100), ..Working::on("desk.job") };
        stage.client.work(working, move |_| {
            let told = told.clone();
            async move {
                let _ = told.send(());
                std::future::pending::<Result<(), Failure>>().await
            }
        })
    });
    let id = stage.runtime.block_on(job(&stage.client, &json!(null)));
    stage.runtime.block_on(heard.recv()).expect("it runs");
    stage.runtime.block_on(worker.close()).expect("closed");
    assert_eq!((stage.get(id).state.as_str(), stage.get(id).field("yields")), ("WAITING", json!(1)));
}

/// A report that is repeated is answered as the first time; one of an old lease is refused, and says who won.
#[test]
fn reports_can_be_sent_again_and_old_ones_are_refused() {
    let stage = Stage::new("reports");
    stage.runtime.block_on(async {
        let client = &stage.client;
        let ids = [job(client, &json!(1)).await, job(client, &json!(2)).await];
        let call = onceward_worker::LeaseCall {
            lifecycles: vec!["desk.job".to_owned()],
            worker: "w".to_owned(),
            max: 10,
            lease_ms: None,
            wait_ms: 0,
            start: true,
            again: false,
            key: Some("a key".to_owned()),
        };
        let before = onceward_worker::LeaseCall { again: true, ..call.clone() };
        assert!(client.lease(&before).await.expect("an answer").is_empty(), "nothing was given, and nothing is");
        let leased = client.lease(&call).await.expect("jobs");
        let again = client.lease(&call).await.expect("jobs");
        let names = |leased: &[onceward_worker::Leased]| leased.iter().map(|job| job.id.clone()).collect::<Vec<_>>();
        assert_eq!(names(&leased), ids.map(|id| format!("{id}.1")));
        assert_eq!(names(&again), names(&leased), "the same ones");
        assert_eq!(names(&client.lease(&before).await.expect("jobs")), names(&leased), "what was given before");
        let commit = |number: usize| Report::on(&leased[number], Verdict::Commit { result: None, finish: true });
        client.report(&commit(0)).await.expect("taken");
        client.report(&commit(0)).await.expect("the same again");
        let failed = Report::on(&leased[0], Verdict::Fail(Failure::terminal("LATE", "too late")));
        let late = client.report(&failed).await.expect_err("it is committed");
        assert_eq!(late.code(), Some("already_committed"), "{late}");
        let answers = client.report_all(&[commit(0), commit(1), failed]).await.expect("three answers");
        assert!(matches!(&answers[..], [Outcome::Done(_), Outcome::Done(_), Outcome::Refused(_)]), "{answers:?}");
    });
}

#[test]
fn many_are_made_and_done_together() {
    let stage = Stage::new("batches");
    let done = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&done);
    let worker = stage.runtime.block_on(async {
        let records: Vec<NewRecord> =
            (0..500).map(|number| NewRecord::of(&number).expect("JSON").once(&format!("n{number}"))).collect();
        for _ in 0..2 {
            let made = stage.client.create_all("desk.job", &records).await.expect("answers");
            assert!(made.iter().all(|made| matches!(made, Outcome::Done(_))), "{made:?}");
        }
        let working = Working { until_idle: true, ..Working::on("desk.job").at_once(50) };
        stage.client.work_with(working, move |number: u32, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move { Ok::<_, Failure>(number) }
        })
    });
    stage.runtime.block_on(worker.ended()).expect("idle");
    assert_eq!(done.load(Ordering::SeqCst), 500);
    let waiting = stage.says(&["list", "desk.job", "--state", "WAITING"]);
    assert_eq!(waiting, "no records\n");
}
