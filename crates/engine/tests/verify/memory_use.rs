//! Measures memory and time for many jobs, by hand: `ONCEWARD_JOBS=200000 cargo test --release -p onceward-engine
//! --test verify -- --ignored --nocapture bounded_memory`

use std::time::Instant;

use onceward_core::decide::{Call, CreateRecord};
use onceward_engine::{Engine, EngineConfig, LeaseRequest, Submission, prune, verify};
use onceward_store::{Clock, SqliteScanner, SqliteStore};
use onceward_testkit::{user, worker};
use serde_json::{Map, json};

use crate::pruned_databases::prune_everything;
use crate::support::{TempDir, block_on, system_files};

/// Returns the current and the peak memory of this process in KB.
fn memory_kb() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
    };
    (of("VmRSS:"), of("VmHWM:"))
}

/// Returns the CPU time of this process in hundredths of a second.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    stat.split_whitespace().skip(13).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

fn fill_with_jobs(folder: &TempDir, jobs: usize) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let store = SqliteStore::open(folder.database_path(), Clock::machine()).expect("a new file");
        let engine = Engine::open(store, EngineConfig::default());
        engine.put_lifecycles(&system_files("execution")).await.expect("valid files");
        let (ann, bob) = (user("ann"), worker("bob"));
        let mut made = 0;
        while made < jobs {
            let batch = 500.min(jobs - made);
            let new = || {
                let fields = Map::new();
                let create =
                    CreateRecord { lifecycle: "execution.job".into(), id: None, owner: None, fields, payload: None };
                Submission::new(&ann, Call::Create(create))
            };
            engine.submit_all((0..batch).map(|_| new()).collect()).await.expect("room");
            made += batch;
            let wanted = LeaseRequest { max_jobs: batch, ..LeaseRequest::single_job("execution.job", "w") };
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
#[ignore = "takes minutes; run by hand for measurements"]
fn verify_and_prune_use_bounded_memory() {
    let jobs = std::env::var("ONCEWARD_JOBS").ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(10_000);
    let folder = TempDir::new();
    let before = Instant::now();
    fill_with_jobs(&folder, jobs);
    let size = std::fs::metadata(folder.database_path()).map_or(0, |file| file.len() >> 20);
    println!("{jobs} jobs created in {:?}, {size} MB; {:?} KB now and at most", before.elapsed(), memory_kb());
    // From here on the peak is that of `verify`.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    println!("{:?} KB now and at most before", memory_kb());
    let (before, work) = (Instant::now(), cpu_ticks());
    let report = block_on(async {
        let view = SqliteScanner::open(folder.database_path()).expect("it opens");
        verify(&view, Clock::machine().now(), &mut ()).await.expect("the read succeeds")
    });
    let (passed, work) = (before.elapsed(), (cpu_ticks() - work) * 10);
    println!("{} entries in {passed:?}, {work} ms of work; {:?} KB now and at most", report.entries, memory_kb());
    assert!(report.is_clean(), "{report:#?}");
    let (before, work) = (Instant::now(), cpu_ticks());
    let pruned = block_on(async {
        let store =
            SqliteStore::open(folder.database_path(), Clock::machine()).expect("no other process has the file open");
        prune(&store, &prune_everything()).await.expect("pruning")
    });
    let (passed, work) = (before.elapsed(), (cpu_ticks() - work) * 10);
    println!(
        "{} jobs pruned in {passed:?}, half of it at rest, {work} ms of work; {:?} KB",
        pruned.records,
        memory_kb()
    );
    let before = Instant::now();
    let view = SqliteScanner::open(folder.database_path()).expect("it opens");
    let report = block_on(verify(&view, Clock::machine().now(), &mut ())).expect("the read succeeds");
    println!("{} entries in {:?} after that: {:?}", report.entries, before.elapsed(), report.pruned);
    assert!(report.is_clean(), "{report:#?}");
}
