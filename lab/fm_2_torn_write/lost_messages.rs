//! On PostgreSQL: the n-th message between an engine and its server is lost, half of it sent, or the server itself is stopped there at
//! once; n from one until the operation gets through. The engine lives on. Whoever was told that the database cannot be reached asks
//! it again.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use onceward_engine::verify;
use onceward_store::{PostgresScanner, Store as _};
use onceward_testkit::postgres::{PostgresServer, psql};
use onceward_testkit::{PostgresProxy, ProxiedMessage};

use super::operation_kinds::{self, PendingOperation, StoreSummary};
use crate::support::lab_engine::{LabEngine, on_server, time_at};
use crate::support::process::{self, LabProcess, with_spawn_lock};

/// More than any operation sends and hears.
const MAX_MESSAGES: usize = 300;

/// How often a database that has come back is asked before that is called gone.
const MAX_RECONNECT_ATTEMPTS: usize = 1_000;

/// Set, every message is tried where the short form tries two: `cargo xtask torture` does.
const ALL_POINTS_ENV_VAR: &str = "ONCEWARD_ALL_POINTS";

/// Asks for what is not there.
const NOOP_COMMAND: &str = "look nobody";

/// By this a transaction that writes is known.
const BEGIN_MARKER: &[u8] = b"SET LOCAL synchronous_commit = on";

/// In the question whether to commit, and in its answer.
const COMMIT_MARKER: &[u8] = b"COMMIT\0";

/// Which messages are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessagePhase {
    /// All that go by before the operation's transaction begins.
    BeforeTransaction,
    /// Those of the transaction: from its first on, on its connection.
    InTransaction,
    /// Of those, the one that asks for the commit, and the one that says that it was done.
    Commit,
}

/// Messages until the one that is lost, and how many there were.
#[derive(Debug, Default)]
struct MessageCounter {
    armed: Option<(MessagePhase, usize)>,
    transaction_connection: Option<usize>,
    matched: usize,
}

impl MessageCounter {
    fn should_drop(&mut self, message: ProxiedMessage) -> bool {
        let Some((phase, nth)) = self.armed else { return false };
        let has = |words: &[u8]| message.bytes.windows(words.len()).any(|part| part == words);
        if self.transaction_connection.is_none() && has(BEGIN_MARKER) {
            self.transaction_connection = Some(message.connection);
        }
        let counts = match phase {
            MessagePhase::BeforeTransaction => self.transaction_connection.is_none(),
            MessagePhase::InTransaction => self.transaction_connection == Some(message.connection),
            MessagePhase::Commit => self.transaction_connection == Some(message.connection) && has(COMMIT_MARKER),
        };
        self.matched += usize::from(counts);
        let should_drop = counts && self.matched == nth;
        if should_drop {
            self.armed = None;
        }
        should_drop
    }
}

fn lock_counter(counter: &Mutex<MessageCounter>) -> MutexGuard<'_, MessageCounter> {
    counter.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What came of the points of an operation.
#[derive(Debug, Default, PartialEq, Eq)]
struct LossCounts {
    dropped: usize,
    /// Carried out all the same: the engine itself asked again.
    answered_anyway: usize,
    /// In doubt, and it had happened.
    landed_unanswered: usize,
}

impl LossCounts {
    fn plus(&self, other: &Self) -> Self {
        Self {
            dropped: self.dropped + other.dropped,
            answered_anyway: self.answered_anyway + other.answered_anyway,
            landed_unanswered: self.landed_unanswered + other.landed_unanswered,
        }
    }
}

impl std::fmt::Display for LossCounts {
    fn fmt(&self, to: &mut std::fmt::Formatter) -> std::fmt::Result {
        let Self { dropped: lost, answered_anyway: answered, landed_unanswered: landed } = self;
        let doubt = lost - answered;
        write!(to, "{lost} messages lost: {answered} times the engine went on by itself, {doubt} times nobody knew, ")?;
        write!(to, "and {landed} of those had landed; asked again, all happened once")
    }
}

/// An engine's process behind a proxy, and a play on the same database that has its own way there.
struct ProxiedEngine<'a> {
    lab: &'a LabEngine,
    url: &'a str,
    engine: LabProcess,
    counter: Arc<Mutex<MessageCounter>>,
    /// Stopped when the message comes, where it is not only lost.
    stopped_server: Option<&'a PostgresServer>,
    next_number: usize,
}

impl ProxiedEngine<'_> {
    /// The engine's answer, and whether the `nth` message was lost.
    fn run_armed(&mut self, operation: &PendingOperation, phase: MessagePhase, nth: usize) -> (String, bool) {
        self.set_clock(operation.at_secs);
        *lock_counter(&self.counter) = MessageCounter { armed: Some((phase, nth)), ..MessageCounter::default() };
        let answer = self.request(&operation.command);
        let count = std::mem::take(&mut *lock_counter(&self.counter));
        self.set_clock(0);
        (answer, count.armed.is_none())
    }

    fn set_clock(&mut self, seconds: i64) {
        self.engine.send_line(&format!("at {}", time_at(seconds).micros()));
        self.engine.expect_line("ok at");
    }

    fn request(&mut self, command: &str) -> String {
        self.engine.send_line(command);
        self.engine.next_line().expect("an answer")
    }

    /// Until it can be reached again; what it says then.
    fn request_until_reachable(&mut self, command: &str) -> String {
        for _ in 0..MAX_RECONNECT_ATTEMPTS {
            let answer = self.request(command);
            if !is_unreachable(&answer) {
                return answer;
            }
        }
        panic!("the engine never comes back to its database");
    }

    /// What there is once the server is done with whoever was cut off.
    async fn settled_summary(&self) -> StoreSummary {
        let busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                    AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND state <> 'idle'";
        for _ in 0..MAX_RECONNECT_ATTEMPTS {
            if with_spawn_lock(|| psql(self.url, busy)) == "0" && self.lab.store().last_seq().await.is_ok() {
                return StoreSummary::read(self.lab.store()).await;
            }
        }
        panic!("somebody is never done");
    }

    async fn prepare(&mut self, kind: &str) -> (PendingOperation, StoreSummary) {
        self.next_number += 1;
        let operation = operation_kinds::prepare_operation(kind, self.lab, self.next_number).await;
        // It has found its way back, and has heard what the play did.
        self.request_until_reachable(NOOP_COMMAND);
        (operation, self.settled_summary().await)
    }

    /// What the operation moves where nothing is lost.
    async fn expected_change(&mut self, kind: &str) -> StoreSummary {
        let (act, before) = self.prepare(kind).await;
        let (answer, _) = self.run_armed(&act, MessagePhase::Commit, MAX_MESSAGES);
        assert!(answer.starts_with("ok"), "{kind}: {answer}");
        let step = self.settled_summary().await.since(before);
        assert_ne!(step, StoreSummary::UNCHANGED, "{kind}: nobody could see it");
        step
    }

    /// One point; whether a message was lost.
    async fn test_point(
        &mut self,
        kind: &str,
        (part, nth): (MessagePhase, usize),
        step: StoreSummary,
        tally: &mut LossCounts,
    ) -> bool {
        let (act, before) = self.prepare(kind).await;
        let (answer, was_lost) = self.run_armed(&act, part, nth);
        if let (Some(server), true) = (self.stopped_server, was_lost) {
            server.restart();
        }
        let point = format!("{kind}, {part:?} {nth}, answered {answer}");
        let moved = self.settled_summary().await.since(before);
        assert!([StoreSummary::UNCHANGED, step].contains(&moved), "{point}: {moved:?}");
        let (landed, answered) = (moved == step, answer.starts_with("ok"));
        if answered {
            assert!(landed, "{point}: what was answered is there");
        } else {
            assert!(was_lost && is_unreachable(&answer), "{point}");
        }
        if act.is_idempotent || !landed {
            self.set_clock(act.at_secs);
            let answer = self.request_until_reachable(&act.command);
            self.set_clock(0);
            assert!(answer.starts_with("ok"), "{point}, then {answer}");
            assert_eq!(self.settled_summary().await.since(before), step, "{point}, asked again");
        }
        tally.dropped += usize::from(was_lost);
        tally.answered_anyway += usize::from(was_lost && answered);
        tally.landed_unanswered += usize::from(landed && !answered);
        was_lost
    }
}

fn is_unreachable(answer: &str) -> bool {
    answer.contains("cannot be reached")
}

/// Every message of an operation in turn. Where the server is stopped each takes a second or more: in the short form only those of the
/// commit.
fn drop_each_message(kind: &str, server: &'static PostgresServer, stops_server: bool) -> LossCounts {
    on_server(server, async |lab, url| {
        operation_kinds::prepare_database(kind, lab).await;
        let counter = Arc::new(Mutex::new(MessageCounter::default()));
        let decider = Arc::clone(&counter);
        let proxy = PostgresProxy::cutting(server, move |passing| {
            // Held until the server is gone: nobody starts it again before.
            let mut count = lock_counter(&decider);
            let is_lost = count.should_drop(passing);
            if is_lost && stops_server {
                server.stop_immediately();
            }
            is_lost
        });
        let engine = process::engine(proxy.url(url).as_ref(), 0);
        engine.expect_line("open");
        let mut engine_line =
            ProxiedEngine { lab, url, engine, counter, stopped_server: stops_server.then_some(server), next_number: 0 };
        let step = engine_line.expected_change(kind).await;
        let mut tally = LossCounts::default();
        // Asked for and not heard, it has not happened; done and not told, it has.
        for nth in [1, 2] {
            assert!(
                engine_line.test_point(kind, (MessagePhase::Commit, nth), step, &mut tally).await,
                "{kind}: no commit {nth}"
            );
        }
        assert_eq!(tally, LossCounts { dropped: 2, answered_anyway: 0, landed_unanswered: 1 }, "{kind}");
        for part in [MessagePhase::BeforeTransaction, MessagePhase::InTransaction]
            .into_iter()
            .filter(|_| !stops_server || std::env::var_os(ALL_POINTS_ENV_VAR).is_some())
        {
            let mut nth = 1;
            while engine_line.test_point(kind, (part, nth), step, &mut tally).await {
                nth += 1;
                assert!(nth < MAX_MESSAGES, "{kind}: it never gets through");
            }
        }
        let view = PostgresScanner::open(url).await.expect("it opens");
        let report = verify(&view, time_at(0), &mut ()).await.expect("it can be read");
        assert!(report.is_clean() && report.stopped.is_none(), "{kind}: {report:#?}");
        println!("{kind}: {tally}");
        tally
    })
}

/// Of all these kinds, one after the other.
fn drop_messages_of_kinds(kinds: &[&str], server: &'static PostgresServer, stops_server: bool) {
    let all = kinds
        .iter()
        .map(|kind| drop_each_message(kind, server, stops_server))
        .fold(LossCounts::default(), |sum, one| sum.plus(&one));
    let what = if stops_server { "the server stopped" } else { "the connection cut" };
    println!("lab: PostgreSQL: {what} in {} kinds of operation, {all}", kinds.len());
}

/// FM-2, INV-2: what workers and the engine's own clock do.
#[test]
fn recovered_worker_call_retried_after_lost_message_happens_once() {
    drop_messages_of_kinds(
        &["lease", "start", "heartbeat", "commit", "finish", "fail", "yield", "due"],
        with_spawn_lock(PostgresServer::shared),
        false,
    );
}

/// FM-2, INV-2: what callers do.
#[test]
fn recovered_caller_call_retried_after_lost_message_happens_once() {
    drop_messages_of_kinds(&["create", "once", "event", "resolve"], with_spawn_lock(PostgresServer::shared), false);
}

/// FM-2, INV-2: what operators do.
#[test]
fn recovered_operator_call_retried_after_lost_message_happens_once() {
    drop_messages_of_kinds(&["define", "key", "revoke", "prune"], with_spawn_lock(PostgresServer::shared), false);
}

/// FM-2, INV-2: the server dies with the message, without a last word, and comes back.
#[test]
fn recovered_call_retried_after_postgres_stop_happens_once() {
    // Never dropped: it ends with this process.
    static SERVER: OnceLock<PostgresServer> = OnceLock::new();
    let server = SERVER.get_or_init(|| with_spawn_lock(PostgresServer::start));
    drop_messages_of_kinds(&["commit", "resolve", "key"], server, true);
}
