//! A server that does not answer while a proxy keeps the connection open.

mod support;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward_store::{Clock, PostgresStore, SaveResult, Store as _, StoreError};
use onceward_testkit::postgres::PostgresServer;
use onceward_testkit::{MessageFate, PostgresProxy, ProxiedMessage, user};
use serde_json::json;
use support::driver::{StoreDriver, fire_call};
use support::{start_time, suite_files};

/// Part of both the commit request and its answer.
const COMMIT_BYTES: &[u8] = b"COMMIT\0";

/// A longer wait is a failure.
const MAX_RECONNECT_WAIT: std::time::Duration = std::time::Duration::from_mins(1);

/// What the proxy drops.
#[derive(Debug, Default)]
struct SwallowedTraffic {
    /// Number of commit messages until one is dropped.
    commits_until_swallow: usize,
    /// Number of connections so far.
    connections: usize,
    /// Traffic on connections with a smaller number is dropped.
    silent_before: usize,
    /// Connections on which a message was dropped.
    swallowed_connections: BTreeSet<usize>,
}

impl SwallowedTraffic {
    fn decide_fate(&mut self, packet: ProxiedMessage) -> MessageFate {
        self.connections = self.connections.max(packet.connection + 1);
        let is_commit =
            self.commits_until_swallow > 0 && packet.bytes.windows(COMMIT_BYTES.len()).any(|part| part == COMMIT_BYTES);
        self.commits_until_swallow -= usize::from(is_commit);
        let is_swallowed = packet.connection < self.silent_before || is_commit && self.commits_until_swallow == 0;
        if is_swallowed {
            self.swallowed_connections.insert(packet.connection);
        }
        if is_swallowed { MessageFate::Swallow } else { MessageFate::Forward }
    }
}

fn lock_traffic(traffic: &Mutex<SwallowedTraffic>) -> MutexGuard<'_, SwallowedTraffic> {
    traffic.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a store behind a proxy, with a short answer timeout.
async fn open_behind_proxy() -> (PostgresStore, Arc<Mutex<SwallowedTraffic>>, PostgresProxy) {
    let (server, traffic) = (PostgresServer::shared(), Arc::new(Mutex::new(SwallowedTraffic::default())));
    let proxy_traffic = Arc::clone(&traffic);
    let proxy = PostgresProxy::with_fates(server, move |passing| lock_traffic(&proxy_traffic).decide_fate(passing));
    let url = format!("{}?answer_timeout=5", proxy.url(&server.create_database()));
    let store = PostgresStore::open_with_clock(&url, Clock::manual(start_time())).await.expect("a new database");
    store.put_lifecycles(&suite_files()).await.expect("valid files");
    (store, traffic, proxy)
}

fn is_answer_timeout<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Unavailable(why)) if why.ends_with("did not answer within 5 s"))
}

/// Covers a lost request and a lost answer. The outcome is unknown to the store, and it stays usable.
#[tokio::test]
async fn unanswered_commit_returns_unavailable_and_is_not_retried() {
    let (store, traffic, _proxy) = open_behind_proxy().await;
    let mut driver = StoreDriver::new(&store).await;
    let ann = user("ann");
    for (commits, is_committed) in [(1, false), (2, true)] {
        let id = driver.create_record(&ann, "suite.box", json!({}), start_time()).await;
        let mut open = driver.new_batch(start_time());
        let operation = driver.operation(&ann, fire_call(id, "write", json!({ "number": 1 })));
        driver.decide(&mut open, operation, start_time()).await;
        let last_seq = store.last_seq().await.expect("the log");
        lock_traffic(&traffic).commits_until_swallow = commits;
        let save_result = driver.try_save(&open).await;
        assert!(is_answer_timeout(&save_result), "{save_result:?}");
        assert_eq!(lock_traffic(&traffic).commits_until_swallow, 0, "the commit was sent once");
        let found = store.record(id).await.expect("another connection").expect("it exists");
        assert_eq!(found.version, 1 + u64::from(is_committed));
        // Saved again, the batch takes effect once.
        let again = driver.save(&open).await;
        assert_eq!(matches!(again, SaveResult::Conflict(_)), is_committed, "{again:?}");
        assert_eq!(store.history(id, 0, 10).await.expect("entries").len(), 2);
        assert_eq!(store.last_seq().await.expect("the log"), last_seq + 1);
    }
}

/// One caller gets an error, the next one a new connection, and the listener reconnects.
#[tokio::test]
async fn unresponsive_connections_are_replaced() {
    let (store, traffic, _proxy) = open_behind_proxy().await;
    let id = StoreDriver::new(&store).await.create_record(&user("ann"), "suite.box", json!({}), start_time()).await;
    let read = || store.record(id);
    // Leaves several idle connections.
    let (a, b, c, d) = tokio::join!(read(), read(), read(), read());
    assert!([a, b, c, d].iter().all(Result::is_ok));
    let mut changes = store.change_notifications().expect("the store listens for changes");
    while *changes.borrow_and_update() == 0 {
        changes.changed().await.expect("the store listens for changes");
    }
    {
        let mut locked_traffic = lock_traffic(&traffic);
        assert!(locked_traffic.connections >= 4, "{locked_traffic:?}");
        locked_traffic.silent_before = locked_traffic.connections;
    }
    let read_result = read().await;
    assert!(is_answer_timeout(&read_result), "{read_result:?}");
    assert!(read().await.expect("a new connection").is_some());
    tokio::time::timeout(MAX_RECONNECT_WAIT, changes.changed())
        .await
        .expect("the wait ends in time")
        .expect("the store listens for changes");
}

/// The connection returns to the pool only after it has answered.
#[tokio::test]
async fn cancelled_query_does_not_block_later_reads() {
    let (store, traffic, _proxy) = open_behind_proxy().await;
    let id = StoreDriver::new(&store).await.create_record(&user("ann"), "suite.box", json!({}), start_time()).await;
    assert!(store.record(id).await.expect("a connection").is_some());
    {
        let mut locked_traffic = lock_traffic(&traffic);
        locked_traffic.silent_before = locked_traffic.connections;
    }
    // Starts a query on each idle connection and cancels it.
    for _ in 0..8 {
        let swallowed_before = lock_traffic(&traffic).swallowed_connections.len();
        let next_swallowed = async {
            while lock_traffic(&traffic).swallowed_connections.len() == swallowed_before {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            found = store.record(id) => {
                assert!(found.expect("a new connection").is_some());
                assert!(swallowed_before > 0, "an idle connection was used first");
                return;
            }
            () = next_swallowed => {}
        }
    }
    panic!("no new connection was opened");
}
