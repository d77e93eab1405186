//! Streams and pollers leave store capacity for others.

use std::sync::atomic::Ordering;

use onceward_engine::{Engine, LeaseRequest};
use onceward_testkit::{user, worker};
use tokio::sync::Semaphore;

use crate::support::faulty_store::FaultyStore;
use crate::support::{
    JOB_LIFECYCLE, TEST_TIMEOUT, config_without_polling, create_job, lifecycle_files, memory_store, new_job_submission,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn stream_loads_records_of_a_page_together() {
    let store = FaultyStore::new(memory_store(), |_| None);
    let engine = crate::support::open_engine(store.clone(), config_without_polling()).await;
    engine.submit_all((0..300).map(|_| new_job_submission()).collect()).await.expect("room");
    let (loads, singly) = (store.loads.load(Ordering::SeqCst), store.single_reads.load(Ordering::SeqCst));
    let mut ann = engine.stream(&user("ann"), 0);
    for seq in 1..=300 {
        assert_eq!(ann.next().await.expect("reading").expect("open").seq, seq);
    }
    let loads = store.loads.load(Ordering::SeqCst) - loads;
    let singly = store.single_reads.load(Ordering::SeqCst) - singly;
    assert!(loads <= 10 && singly == 0, "{loads} loads, and {singly} records one by one");
    let mut eve = engine.stream(&user("eve"), 0);
    let nothing = eve.next_until(Some(tokio::time::Instant::now())).await.expect("reading");
    assert!(nothing.is_none(), "the stream returns no entry of another owner");
    engine.close().await;
}

/// Two at once, one per actor; a save is not delayed.
#[test]
fn concurrent_stream_reads_are_limited() {
    // One thread, so that all tasks have run as far as possible when the test continues.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut store = FaultyStore::new(memory_store(), |_| None);
        store.log_gate = Semaphore::new(0).into();
        let engine = Engine::open(store.clone(), config_without_polling());
        engine.put_lifecycles(&lifecycle_files()).await.expect("valid files");
        create_job(&engine).await;
        let follow = |name: &str| {
            let mut stream = engine.stream(&user(name), 0);
            tokio::spawn(async move { stream.next_until(Some(tokio::time::Instant::now())).await })
        };
        let mut streams: Vec<_> = (0..5).map(|_| follow("eve")).collect();
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(store.log_reads.load(Ordering::SeqCst), 1, "streams of one actor share a read");
        streams.extend((0..20).map(|number| follow(&format!("user {number}"))));
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(store.log_reads.load(Ordering::SeqCst), 2, "streams of all actors share a read");
        create_job(&engine).await;
        store.log_gate.add_permits(1_000);
        for stream in streams {
            let read = tokio::time::timeout(TEST_TIMEOUT, stream).await.expect("no timeout").expect("no panic");
            assert!(read.expect("reading").is_none());
        }
        engine.close().await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn empty_lease_scan_is_cached_per_lifecycle_list() {
    let store = FaultyStore::new(memory_store(), |_| None);
    let engine = crate::support::open_engine(store.clone(), config_without_polling()).await;
    let lease = async |lifecycle: &str| {
        engine.lease(&worker("bob"), &LeaseRequest::single_job(lifecycle, "w")).await.expect("leasing").len()
    };
    for _ in 0..10 {
        assert_eq!((lease(JOB_LIFECYCLE).await, lease("race.errand").await, lease("race.lane").await), (0, 0, 0));
    }
    assert_eq!(store.lease_scans.load(Ordering::SeqCst), 3);
    create_job(&engine).await;
    assert_eq!(lease(JOB_LIFECYCLE).await, 1, "a new job causes a scan");
    engine.close().await;
}
