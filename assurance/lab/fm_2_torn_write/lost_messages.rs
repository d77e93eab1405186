//! Loses the n-th message between an engine and PostgreSQL, cuts it in half, or stops the server at it, for each n
//! until the operation succeeds. The engine stays alive, and a caller whose call failed because the database was
//! unreachable retries.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use onceward_engine::verify;
use onceward_store::{PostgresScanner, Store as _};
use onceward_testkit::postgres::{PostgresServer, psql};
use onceward_testkit::{PostgresProxy, ProxiedMessage};

use super::operation_kinds::{self, PendingOperation, StoreSummary};
use crate::support::lab_engine::{LabEngine, on_server, time_at};
use crate::support::process::{self, LabProcess, with_spawn_lock};

/// More than any operation sends and receives.
const MAX_MESSAGES: usize = 300;

/// Attempts to reach a restarted database before the test fails.
const MAX_RECONNECT_ATTEMPTS: usize = 1_000;

/// If set, tests every message instead of two. `cargo xtask torture` sets it.
const ALL_POINTS_ENV_VAR: &str = "ONCEWARD_ALL_POINTS";

/// Reads a record that does not exist.
const NOOP_COMMAND: &str = "look none";

/// Marks a writing transaction.
const BEGIN_MARKER: &[u8] = b"SET LOCAL synchronous_commit = on";

/// Occurs in the COMMIT request and in its reply.
const COMMIT_MARKER: &[u8] = b"COMMIT\0";

/// Which messages are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessagePhase {
    /// All messages before the operation's transaction begins.
    BeforeTransaction,
    /// Messages of the transaction, on its connection.
    InTransaction,
    /// The COMMIT request and its reply.
    Commit,
}

/// Counts messages up to the lost one.
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

/// Results of an operation's loss points.
#[derive(Debug, Default, PartialEq, Eq)]
struct LossCounts {
    dropped: usize,
    /// The engine retried by itself and succeeded.
    answered_anyway: usize,
    /// The operation was stored, but the reply was an error.
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
        write!(to, "{lost} messages lost: {answered} calls continued by themselves, {doubt} had an unknown outcome, ")?;
        write!(to, "and {landed} of those were stored; repeated, all happened once")
    }
}

/// An engine process behind a proxy, and a lab engine with a direct connection to the same database.
struct ProxiedEngine<'a> {
    lab: &'a LabEngine,
    url: &'a str,
    engine: LabProcess,
    counter: Arc<Mutex<MessageCounter>>,
    /// If set, stops this server at the message instead of losing only the message.
    stopped_server: Option<&'a PostgresServer>,
    next_number: usize,
}

impl ProxiedEngine<'_> {
    /// Runs the operation. Returns the reply, and whether the `nth` message was lost.
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
        self.engine.next_line().expect("a reply")
    }

    /// Repeats the call until the database is reachable, and returns the reply.
    fn request_until_reachable(&mut self, command: &str) -> String {
        for _ in 0..MAX_RECONNECT_ATTEMPTS {
            let answer = self.request(command);
            if !is_unreachable(&answer) {
                return answer;
            }
        }
        panic!("the engine does not reconnect to its database");
    }

    /// Waits until the server has ended the cut-off connections, and returns the summary.
    async fn settled_summary(&self) -> StoreSummary {
        let busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                    AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND state <> 'idle'";
        for _ in 0..MAX_RECONNECT_ATTEMPTS {
            if with_spawn_lock(|| psql(self.url, busy)) == "0" && self.lab.store().last_seq().await.is_ok() {
                return StoreSummary::read(self.lab.store()).await;
            }
        }
        panic!("a transaction never ended");
    }

    async fn prepare(&mut self, kind: &str) -> (PendingOperation, StoreSummary) {
        self.next_number += 1;
        let operation = operation_kinds::prepare_operation(kind, self.lab, self.next_number).await;
        // The engine has reconnected and has seen the lab engine's changes.
        self.request_until_reachable(NOOP_COMMAND);
        (operation, self.settled_summary().await)
    }

    /// Returns the change that the operation makes without a loss.
    async fn expected_change(&mut self, kind: &str) -> StoreSummary {
        let (act, before) = self.prepare(kind).await;
        let (answer, _) = self.run_armed(&act, MessagePhase::Commit, MAX_MESSAGES);
        assert!(answer.starts_with("ok"), "{kind}: {answer}");
        let step = self.settled_summary().await.since(before);
        assert_ne!(step, StoreSummary::UNCHANGED, "{kind}: the operation changed nothing");
        step
    }

    /// Tests one point. Returns whether a message was lost.
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
            assert!(landed, "{point}: acknowledged data is stored");
        } else {
            assert!(was_lost && is_unreachable(&answer), "{point}");
        }
        if act.is_idempotent || !landed {
            self.set_clock(act.at_secs);
            let answer = self.request_until_reachable(&act.command);
            self.set_clock(0);
            assert!(answer.starts_with("ok"), "{point}, then {answer}");
            assert_eq!(self.settled_summary().await.since(before), step, "{point}, repeated");
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

/// Rounds for a due operation. After the reconnect the scheduler may fire the record again before the clock is set back;
/// such a round does not show what became of the lost COMMIT.
const MAX_DUE_ROUNDS: usize = 5;

/// Tests every message of an operation. Stopping the server takes a second or more each time, so the short form stops
/// it only at the messages of the commit.
fn drop_each_message(kind: &str, server: &'static PostgresServer, stops_server: bool) -> LossCounts {
    on_server(server, async |lab, url| {
        operation_kinds::prepare_database(kind, lab).await;
        let counter = Arc::new(Mutex::new(MessageCounter::default()));
        let decider = Arc::clone(&counter);
        let proxy = PostgresProxy::cutting(server, move |passing| {
            // Hold the lock until the server is gone, so that the test does not restart it before.
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
        // If the COMMIT request is lost, the operation is not stored. If the reply is lost, it is.
        for nth in [1, 2] {
            let mut round = LossCounts::default();
            for _ in 0..MAX_DUE_ROUNDS {
                round = LossCounts::default();
                assert!(
                    engine_line.test_point(kind, (MessagePhase::Commit, nth), step, &mut round).await,
                    "{kind}: no commit message {nth}"
                );
                if kind != "due" || round.landed_unanswered == nth - 1 {
                    break;
                }
            }
            tally = tally.plus(&round);
        }
        assert_eq!(tally, LossCounts { dropped: 2, answered_anyway: 0, landed_unanswered: 1 }, "{kind}");
        for part in [MessagePhase::BeforeTransaction, MessagePhase::InTransaction]
            .into_iter()
            .filter(|_| !stops_server || std::env::var_os(ALL_POINTS_ENV_VAR).is_some())
        {
            let mut nth = 1;
            while engine_line.test_point(kind, (part, nth), step, &mut tally).await {
                nth += 1;
                assert!(nth < MAX_MESSAGES, "{kind}: the call never succeeds");
            }
        }
        let view = PostgresScanner::open(url).await.expect("database opens after the crash");
        let report = verify(&view, time_at(0), &mut ()).await.expect("database can be verified");
        assert!(report.is_clean() && report.stopped.is_none(), "{kind}: {report:#?}");
        println!("{kind}: {tally}");
        tally
    })
}

/// Tests all these kinds in turn.
fn drop_messages_of_kinds(kinds: &[&str], server: &'static PostgresServer, stops_server: bool) {
    let all = kinds
        .iter()
        .map(|kind| drop_each_message(kind, server, stops_server))
        .fold(LossCounts::default(), |sum, one| sum.plus(&one));
    let what = if stops_server { "the server stopped" } else { "the connection cut" };
    println!("lab: PostgreSQL: {what} in {} kinds of operation, {all}", kinds.len());
}

/// FM-2, INV-2: calls of workers and of the scheduler.
#[test]
fn recovered_worker_call_retried_after_lost_message_happens_once() {
    drop_messages_of_kinds(
        &["lease", "start", "heartbeat", "commit", "finish", "fail", "yield", "due"],
        with_spawn_lock(PostgresServer::shared),
        false,
    );
}

/// FM-2, INV-2: calls of producers.
#[test]
fn recovered_caller_call_retried_after_lost_message_happens_once() {
    drop_messages_of_kinds(&["create", "once", "event", "resolve"], with_spawn_lock(PostgresServer::shared), false);
}

/// FM-2, INV-2: calls of operators.
#[test]
fn recovered_operator_call_retried_after_lost_message_happens_once() {
    drop_messages_of_kinds(&["define", "key", "revoke", "prune"], with_spawn_lock(PostgresServer::shared), false);
}

/// FM-2, INV-2: the server stops at the message without a reply, and restarts.
#[test]
fn recovered_call_retried_after_postgres_stop_happens_once() {
    // Never dropped: it ends with this process.
    static SERVER: OnceLock<PostgresServer> = OnceLock::new();
    let server = SERVER.get_or_init(|| with_spawn_lock(PostgresServer::start));
    drop_messages_of_kinds(&["commit", "resolve", "key"], server, true);
}
