//! On PostgreSQL: the n-th message between an engine and its server is lost, half of it sent, or the server itself is stopped there at
//! once; n from one until the operation gets through. The engine lives on. Whoever was told that the database cannot be reached asks
//! it again.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use onceward_engine::verify;
use onceward_store::{PostgresView, Store as _};
use onceward_testkit::postgres::{Server, psql};
use onceward_testkit::{Passing, Proxy};

use super::kinds::{self, Act, Sight};
use crate::stage::play::{Play, on_server, time};
use crate::stage::process::{self, Process, alone};

/// More than any operation sends and hears.
const MOST: usize = 300;

/// How often a database that has come back is asked before that is called gone.
const PATIENCE: usize = 1_000;

/// Set, every message is tried where the short form tries two: `cargo xtask torture` does.
const ALL: &str = "ONCEWARD_ALL_POINTS";

/// Asks for what is not there.
const NOTHING: &str = "look nobody";

/// By this a transaction that writes is known.
const BEGIN: &[u8] = b"SET LOCAL synchronous_commit = on";

/// In the question whether to commit, and in its answer.
const COMMIT: &[u8] = b"COMMIT\0";

/// Which messages are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// All that go by before the operation's transaction begins.
    Before,
    /// Those of the transaction: from its first on, on its connection.
    Within,
    /// Of those, the one that asks for the commit, and the one that says that it was done.
    Commit,
}

/// Messages until the one that is lost, and how many there were.
#[derive(Debug, Default)]
struct Count {
    armed: Option<(Part, usize)>,
    began: Option<usize>,
    seen: usize,
}

impl Count {
    fn is_lost(&mut self, passing: Passing) -> bool {
        let Some((part, nth)) = self.armed else { return false };
        let has = |words: &[u8]| passing.bytes.windows(words.len()).any(|part| part == words);
        if self.began.is_none() && has(BEGIN) {
            self.began = Some(passing.connection);
        }
        let counts = match part {
            Part::Before => self.began.is_none(),
            Part::Within => self.began == Some(passing.connection),
            Part::Commit => self.began == Some(passing.connection) && has(COMMIT),
        };
        self.seen += usize::from(counts);
        let is_lost = counts && self.seen == nth;
        if is_lost {
            self.armed = None;
        }
        is_lost
    }
}

fn locked(count: &Mutex<Count>) -> MutexGuard<'_, Count> {
    count.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What came of the points of an operation.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    lost: usize,
    /// Carried out all the same: the engine itself asked again.
    answered: usize,
    /// In doubt, and it had happened.
    landed: usize,
}

impl Tally {
    fn and(&self, other: &Self) -> Self {
        Self {
            lost: self.lost + other.lost,
            answered: self.answered + other.answered,
            landed: self.landed + other.landed,
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, to: &mut std::fmt::Formatter) -> std::fmt::Result {
        let Self { lost, answered, landed } = self;
        let doubt = lost - answered;
        write!(to, "{lost} messages lost: {answered} times the engine went on by itself, {doubt} times nobody knew, ")?;
        write!(to, "and {landed} of those had landed; asked again, all happened once")
    }
}

/// An engine's process behind a proxy, and a play on the same database that has its own way there.
struct Line<'a> {
    play: &'a Play,
    url: &'a str,
    engine: Process,
    count: Arc<Mutex<Count>>,
    /// Stopped when the message comes, where it is not only lost.
    stopped: Option<&'a Server>,
    number: usize,
}

impl Line<'_> {
    /// The engine's answer, and whether the `nth` message was lost.
    fn ask(&mut self, act: &Act, part: Part, nth: usize) -> (String, bool) {
        self.at(act.at);
        *locked(&self.count) = Count { armed: Some((part, nth)), ..Count::default() };
        let answer = self.said(&act.words);
        let count = std::mem::take(&mut *locked(&self.count));
        self.at(0);
        (answer, count.armed.is_none())
    }

    fn at(&mut self, seconds: i64) {
        self.engine.say(&format!("at {}", time(seconds).micros()));
        self.engine.must_say("ok at");
    }

    fn said(&mut self, words: &str) -> String {
        self.engine.say(words);
        self.engine.hear().expect("an answer")
    }

    /// Until it can be reached again; what it says then.
    fn again(&mut self, words: &str) -> String {
        for _ in 0..PATIENCE {
            let answer = self.said(words);
            if !is_away(&answer) {
                return answer;
            }
        }
        panic!("the engine never comes back to its database");
    }

    /// What there is once the server is done with whoever was cut off.
    async fn settled(&self) -> Sight {
        let busy = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                    AND pid <> pg_backend_pid() AND backend_type = 'client backend' AND state <> 'idle'";
        for _ in 0..PATIENCE {
            if alone(|| psql(self.url, busy)) == "0" && self.play.store().last().await.is_ok() {
                return Sight::of(self.play.store()).await;
            }
        }
        panic!("somebody is never done");
    }

    async fn prepared(&mut self, kind: &str) -> (Act, Sight) {
        self.number += 1;
        let act = kinds::prepare(kind, self.play, self.number).await;
        // It has found its way back, and has heard what the play did.
        self.again(NOTHING);
        (act, self.settled().await)
    }

    /// What the operation moves where nothing is lost.
    async fn step(&mut self, kind: &str) -> Sight {
        let (act, before) = self.prepared(kind).await;
        let (answer, _) = self.ask(&act, Part::Commit, MOST);
        assert!(answer.starts_with("ok"), "{kind}: {answer}");
        let step = self.settled().await.since(before);
        assert_ne!(step, Sight::SAME, "{kind}: nobody could see it");
        step
    }

    /// One point; whether a message was lost.
    async fn point(&mut self, kind: &str, (part, nth): (Part, usize), step: Sight, tally: &mut Tally) -> bool {
        let (act, before) = self.prepared(kind).await;
        let (answer, was_lost) = self.ask(&act, part, nth);
        if let (Some(server), true) = (self.stopped, was_lost) {
            server.start_again();
        }
        let point = format!("{kind}, {part:?} {nth}, answered {answer}");
        let moved = self.settled().await.since(before);
        assert!([Sight::SAME, step].contains(&moved), "{point}: {moved:?}");
        let (landed, answered) = (moved == step, answer.starts_with("ok"));
        if answered {
            assert!(landed, "{point}: what was answered is there");
        } else {
            assert!(was_lost && is_away(&answer), "{point}");
        }
        if act.is_safe || !landed {
            self.at(act.at);
            let answer = self.again(&act.words);
            self.at(0);
            assert!(answer.starts_with("ok"), "{point}, then {answer}");
            assert_eq!(self.settled().await.since(before), step, "{point}, asked again");
        }
        tally.lost += usize::from(was_lost);
        tally.answered += usize::from(was_lost && answered);
        tally.landed += usize::from(landed && !answered);
        was_lost
    }
}

fn is_away(answer: &str) -> bool {
    answer.contains("cannot be reached")
}

/// Every message of an operation in turn. Where the server is stopped each takes a second or more: in the short form only those of the
/// commit.
fn each_message(kind: &str, server: &'static Server, stops: bool) -> Tally {
    on_server(server, async |play, url| {
        kinds::begin(kind, play).await;
        let count = Arc::new(Mutex::new(Count::default()));
        let judge = Arc::clone(&count);
        let proxy = Proxy::before(server, move |passing| {
            // Held until the server is gone: nobody starts it again before.
            let mut count = locked(&judge);
            let is_lost = count.is_lost(passing);
            if is_lost && stops {
                server.stop();
            }
            is_lost
        });
        let engine = process::engine(proxy.url(url).as_ref(), 0);
        engine.must_say("open");
        let mut line = Line { play, url, engine, count, stopped: stops.then_some(server), number: 0 };
        let step = line.step(kind).await;
        let mut tally = Tally::default();
        // Asked for and not heard, it has not happened; done and not told, it has.
        for nth in [1, 2] {
            assert!(line.point(kind, (Part::Commit, nth), step, &mut tally).await, "{kind}: no commit {nth}");
        }
        assert_eq!(tally, Tally { lost: 2, answered: 0, landed: 1 }, "{kind}");
        for part in [Part::Before, Part::Within].into_iter().filter(|_| !stops || std::env::var_os(ALL).is_some()) {
            let mut nth = 1;
            while line.point(kind, (part, nth), step, &mut tally).await {
                nth += 1;
                assert!(nth < MOST, "{kind}: it never gets through");
            }
        }
        let view = PostgresView::open(url).await.expect("it opens");
        let report = verify(&view, time(0), &mut ()).await.expect("it can be read");
        assert!(report.is_clean() && report.stopped.is_none(), "{kind}: {report:#?}");
        println!("{kind}: {tally}");
        tally
    })
}

/// Of all these kinds, one after the other.
fn each_kind(kinds: &[&str], server: &'static Server, stops: bool) {
    let all =
        kinds.iter().map(|kind| each_message(kind, server, stops)).fold(Tally::default(), |sum, one| sum.and(&one));
    let what = if stops { "the server stopped" } else { "the connection cut" };
    println!("lab: PostgreSQL: {what} in {} kinds of operation, {all}", kinds.len());
}

/// FM-2, INV-2: what workers and the engine's own clock do.
#[test]
fn recovered_when_a_workers_message_is_lost() {
    each_kind(
        &["lease", "start", "heartbeat", "commit", "finish", "fail", "yield", "due"],
        alone(Server::shared),
        false,
    );
}

/// FM-2, INV-2: what callers do.
#[test]
fn recovered_when_a_callers_message_is_lost() {
    each_kind(&["create", "once", "event", "resolve"], alone(Server::shared), false);
}

/// FM-2, INV-2: what operators do.
#[test]
fn recovered_when_an_operators_message_is_lost() {
    each_kind(&["define", "key", "revoke", "prune"], alone(Server::shared), false);
}

/// FM-2, INV-2: the server dies with the message, without a last word, and comes back.
#[test]
fn recovered_when_the_server_stops() {
    // Never dropped: it ends with this process.
    static SERVER: OnceLock<Server> = OnceLock::new();
    let server = SERVER.get_or_init(|| alone(Server::start));
    each_kind(&["commit", "resolve", "key"], server, true);
}
