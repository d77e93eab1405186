//! A server that is spoken to and does not answer, while somebody in between keeps the connection open.

mod stage;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onceward_store::{Clock, PostgresStore, Save, Store as _, StoreError};
use onceward_testkit::postgres::Server;
use onceward_testkit::{Fate, Passing, Proxy, user};
use serde_json::json;
use stage::driver::{Driver, fire};
use stage::{start, suite, wait};

/// In the question whether to commit, and in its answer.
const COMMIT: &[u8] = b"COMMIT\0";

/// Who waits so long has failed.
const LONG: std::time::Duration = std::time::Duration::from_mins(1);

/// What the proxy no longer passes on.
#[derive(Debug, Default)]
struct Silence {
    /// So many messages of commits until one that is swallowed.
    commits: usize,
    /// Connections so far.
    connections: usize,
    /// What is said on those before this one is swallowed.
    silent: usize,
    /// Those on which something was said in vain.
    in_vain: BTreeSet<usize>,
}

impl Silence {
    fn fate(&mut self, passing: Passing) -> Fate {
        self.connections = self.connections.max(passing.connection + 1);
        let is_commit = self.commits > 0 && passing.bytes.windows(COMMIT.len()).any(|part| part == COMMIT);
        self.commits -= usize::from(is_commit);
        let is_swallowed = passing.connection < self.silent || is_commit && self.commits == 0;
        if is_swallowed {
            self.in_vain.insert(passing.connection);
        }
        if is_swallowed { Fate::IsSwallowed } else { Fate::Passes }
    }
}

fn locked(silence: &Mutex<Silence>) -> MutexGuard<'_, Silence> {
    silence.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A store behind a proxy, which waits for an answer for a few seconds.
async fn open() -> (PostgresStore, Arc<Mutex<Silence>>, Proxy) {
    let (server, silence) = (Server::shared(), Arc::new(Mutex::new(Silence::default())));
    let judge = Arc::clone(&silence);
    let proxy = Proxy::judging(server, move |passing| locked(&judge).fate(passing));
    let url = format!("{}?answer_timeout=5", proxy.url(&server.database()));
    let store = PostgresStore::open_with_clock(&url, Clock::manual(start())).await.expect("a new database");
    store.put_definitions(&suite()).await.expect("sound files");
    (store, silence, proxy)
}

fn is_silent<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Unavailable(why)) if why.ends_with("did not answer within 5 s"))
}

/// The commit is asked for and not heard, or done and not told: nobody knows, the store least of all. It says so, does not try again by
/// itself, and goes on.
#[test]
fn a_commit_without_an_answer_is_in_doubt() {
    wait(async {
        let (store, silence, _proxy) = open().await;
        let mut driver = Driver::new(&store).await;
        let ann = user("ann");
        for (commits, landed) in [(1, false), (2, true)] {
            let id = driver.create(&ann, "suite.box", json!({}), start()).await;
            let mut open = driver.open(start());
            let operation = driver.operation(&ann, fire(id, "write", json!({ "number": 1 })));
            driver.decide(&mut open, operation, start()).await;
            let last = store.last().await.expect("the log");
            locked(&silence).commits = commits;
            let told = driver.try_save(&open).await;
            assert!(is_silent(&told), "{told:?}");
            assert_eq!(locked(&silence).commits, 0, "it was tried once");
            let found = store.record(id).await.expect("another connection").expect("it is there");
            assert_eq!(found.version, 1 + u64::from(landed));
            // Asked again it happens once.
            let again = driver.save(&open).await;
            assert_eq!(matches!(again, Save::Conflict(_)), landed, "{again:?}");
            assert_eq!(store.history(id, 0, 10).await.expect("entries").len(), 2);
            assert_eq!(store.last().await.expect("the log"), last + 1);
        }
    });
}

/// Every connection that there is leads nowhere from one moment on. One caller is told so; the next has a new connection, and whoever
/// listens listens again.
#[test]
fn connections_that_lead_nowhere_are_left() {
    wait(async {
        let (store, silence, _proxy) = open().await;
        let id = Driver::new(&store).await.create(&user("ann"), "suite.box", json!({}), start()).await;
        let read = || store.record(id);
        // Some lie idle.
        let (a, b, c, d) = tokio::join!(read(), read(), read(), read());
        assert!([a, b, c, d].iter().all(Result::is_ok));
        let mut heard = store.news().expect("it listens");
        while *heard.borrow_and_update() == 0 {
            heard.changed().await.expect("it listens");
        }
        {
            let mut silence = locked(&silence);
            assert!(silence.connections >= 4, "{silence:?}");
            silence.silent = silence.connections;
        }
        let told = read().await;
        assert!(is_silent(&told), "{told:?}");
        assert!(read().await.expect("a new connection").is_some());
        tokio::time::timeout(LONG, heard.changed()).await.expect("it does not wait for ever").expect("it listens");
    });
}

/// Whoever asked goes away long before it would have been told: the connection is not lent to the next until it has answered.
#[test]
fn a_question_that_was_left_holds_up_nobody() {
    wait(async {
        let (store, silence, _proxy) = open().await;
        let id = Driver::new(&store).await.create(&user("ann"), "suite.box", json!({}), start()).await;
        assert!(store.record(id).await.expect("a connection").is_some());
        {
            let mut silence = locked(&silence);
            silence.silent = silence.connections;
        }
        // Each of those that lie idle is asked something, and then left.
        for _ in 0..8 {
            let asked = locked(&silence).in_vain.len();
            let in_vain = async {
                while locked(&silence).in_vain.len() == asked {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                found = store.record(id) => {
                    assert!(found.expect("a new connection").is_some());
                    assert!(asked > 0, "one lay idle");
                    return;
                }
                () = in_vain => {}
            }
        }
        panic!("there were not so many");
    });
}
