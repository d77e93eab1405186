//! Those who follow the log, and those who wait for jobs, leave the store to others.

use std::sync::atomic::Ordering;

use onceward_engine::{Engine, Wanted};
use onceward_testkit::{user, worker};
use tokio::sync::Semaphore;

use crate::stage::troubled::Troubled;
use crate::stage::{JOB, LONG, files, job, memory, new_job, unpolled, wait};

/// Who may see the entries of a page is asked of its records together, not of one after another.
#[test]
fn a_page_of_the_log_is_looked_at_together() {
    wait(async {
        let store = Troubled::new(memory(), |_| None);
        let engine = crate::stage::open(store.clone(), unpolled()).await;
        engine.submit_all((0..300).map(|_| new_job()).collect()).await.expect("room");
        let (loads, singly) = (store.loads.load(Ordering::SeqCst), store.singly.load(Ordering::SeqCst));
        let mut ann = engine.stream(&user("ann"), 0);
        for seq in 1..=300 {
            assert_eq!(ann.next().await.expect("reading").expect("open").seq, seq);
        }
        let loads = store.loads.load(Ordering::SeqCst) - loads;
        let singly = store.singly.load(Ordering::SeqCst) - singly;
        assert!(loads <= 10 && singly == 0, "{loads} loads, and {singly} records one by one");
        let mut eve = engine.stream(&user("eve"), 0);
        let nothing = eve.next_by(Some(tokio::time::Instant::now())).await.expect("reading");
        assert!(nothing.is_none(), "nothing of it is hers");
        engine.close().await;
    });
}

/// However many follow the log, two of them read at once, one for each actor; and whoever saves is not held up.
#[test]
fn few_streams_read_at_once() {
    // One thread, so that all of them have come as far as they can when the test goes on.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut store = Troubled::new(memory(), |_| None);
        store.log_gate = Semaphore::new(0).into();
        let engine = Engine::open(store.clone(), unpolled());
        engine.define(&files()).await.expect("sound files");
        job(&engine).await;
        let follow = |name: &str| {
            let mut stream = engine.stream(&user(name), 0);
            tokio::spawn(async move { stream.next_by(Some(tokio::time::Instant::now())).await })
        };
        let mut streams: Vec<_> = (0..5).map(|_| follow("eve")).collect();
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(store.logs.load(Ordering::SeqCst), 1, "of one actor");
        streams.extend((0..20).map(|number| follow(&format!("user {number}"))));
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(store.logs.load(Ordering::SeqCst), 2, "of all");
        job(&engine).await;
        store.log_gate.add_permits(1_000);
        for stream in streams {
            let read = tokio::time::timeout(LONG, stream).await.expect("in time").expect("no panic");
            assert!(read.expect("reading").is_none());
        }
        engine.close().await;
    });
}

/// Workers who ask for different lists of lifecycles, in turn: each list is looked for once, until there is news.
#[test]
fn each_list_of_lifecycles_is_looked_for_once() {
    wait(async {
        let store = Troubled::new(memory(), |_| None);
        let engine = crate::stage::open(store.clone(), unpolled()).await;
        let lease = async |lifecycle: &str| {
            engine.lease(&worker("bob"), &Wanted::one(lifecycle, "w")).await.expect("leasing").len()
        };
        for _ in 0..10 {
            assert_eq!((lease(JOB).await, lease("race.errand").await, lease("race.lane").await), (0, 0, 0));
        }
        assert_eq!(store.looks.load(Ordering::SeqCst), 3);
        job(&engine).await;
        assert_eq!(lease(JOB).await, 1, "news is looked at");
        engine.close().await;
    });
}
