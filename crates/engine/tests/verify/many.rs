//! By hand: how much memory and time many jobs take. `ONCEWARD_JOBS=200000 cargo test --release -p onceward-engine --test verify
//! -- --ignored --nocapture many`

use std::time::Instant;

use onceward_core::decide::{Call, Create};
use onceward_engine::{Config, Engine, Submission, Wanted, prune, verify};
use onceward_store::{Clock, SqliteStore, SqliteView};
use onceward_testkit::{user, worker};
use serde_json::{Map, json};

use crate::pruned::at_once;
use crate::stage::{Folder, system, wait};

/// Kilobytes of this process that are in memory, now and at most.
fn memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
    };
    (of("VmRSS:"), of("VmHWM:"))
}

/// Hundredths of a second that this process has worked.
fn worked() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    stat.split_whitespace().skip(13).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

fn fill(folder: &Folder, jobs: usize) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let store = SqliteStore::open(folder.file(), Clock::machine()).expect("a new file");
        let engine = Engine::open(store, Config::default());
        engine.define(&system("execution")).await.expect("sound files");
        let (ann, bob) = (user("ann"), worker("bob"));
        let mut made = 0;
        while made < jobs {
            let batch = 500.min(jobs - made);
            let new = || {
                let fields = Map::new();
                let create = Create { lifecycle: "execution.job".into(), id: None, owner: None, fields, payload: None };
                Submission::new(&ann, Call::Create(create))
            };
            engine.submit_all((0..batch).map(|_| new()).collect()).await.expect("room");
            made += batch;
            let wanted = Wanted { most: batch, ..Wanted::one("execution.job", "w") };
            let leased = engine.lease(&bob, &wanted).await.expect("leasing");
            let commits = leased.iter().map(|leased| {
                let (record, token) = (leased.record.id, leased.token);
                Submission::new(&bob, Call::Commit { record, token, result: json!({ "ok": true }), finish: true })
            });
            engine.submit_all(commits.collect()).await.expect("room");
        }
        engine.close().await;
    });
}

#[test]
#[ignore = "minutes: for figures, by hand"]
fn many_jobs_in_little_memory() {
    let jobs = std::env::var("ONCEWARD_JOBS").ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(10_000);
    let folder = Folder::new();
    let before = Instant::now();
    fill(&folder, jobs);
    let size = std::fs::metadata(folder.file()).map_or(0, |file| file.len() >> 20);
    println!("{jobs} jobs made in {:?}, {size} MB; {:?} KB now and at most", before.elapsed(), memory());
    // What is at most from here on is `verify`'s own.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    println!("{:?} KB now and at most before", memory());
    let (before, work) = (Instant::now(), worked());
    let report = wait(async {
        let view = SqliteView::open(folder.file()).expect("it opens");
        verify(&view, Clock::machine().now(), &mut ()).await.expect("it can be read")
    });
    let (passed, work) = (before.elapsed(), (worked() - work) * 10);
    println!("{} entries in {passed:?}, {work} ms of work; {:?} KB now and at most", report.entries, memory());
    assert!(report.is_clean(), "{report:#?}");
    let (before, work) = (Instant::now(), worked());
    let pruned = wait(async {
        let store = SqliteStore::open(folder.file(), Clock::machine()).expect("nobody else has it");
        prune(&store, &at_once()).await.expect("pruning")
    });
    let (passed, work) = (before.elapsed(), (worked() - work) * 10);
    println!("{} jobs pruned in {passed:?}, half of it at rest, {work} ms of work; {:?} KB", pruned.records, memory());
    let before = Instant::now();
    let view = SqliteView::open(folder.file()).expect("it opens");
    let report = wait(verify(&view, Clock::machine().now(), &mut ())).expect("it can be read");
    println!("{} entries in {:?} after that: {:?}", report.entries, before.elapsed(), report.pruned);
    assert!(report.is_clean(), "{report:#?}");
}
