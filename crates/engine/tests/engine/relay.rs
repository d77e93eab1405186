//! Relay on every store, with everything that happens at once happening at once.

use std::slice::from_ref;
use std::sync::Arc;

use onceward_core::decide::{Call, Create};
use onceward_core::diagnostic::Files;
use onceward_core::record::{Actor, Record};
use onceward_core::value::{RecordId, Value};
use onceward_engine::{Checks, Config, Engine, Leased, Submission, Wanted};
use onceward_store::{AnyStore, ListQuery};
use onceward_testkit::{systems, user, worker};
use serde_json::{Map, Value as Json, json};

use crate::stage::race::race;
use crate::stage::{code, object, on_each, ops, state};

const PRICE: i64 = 10_000_000;
const DEPOSITOR: &str = "0xd0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0";
const WALLET: &str = "0xAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Who asks for one refund at once.
const DEVICES: usize = 8;
const ROUNDS: usize = 10;

/// A chain on which every transaction brought the price.
fn chain() -> Checks {
    Checks::default().on("relay.job", "deposit", |asked| async move {
        let tx_hash = asked.question.arguments["tx_hash"].clone();
        Ok(object(json!({ "ok": true, "on_chain": true, "amount": PRICE, "sender": DEPOSITOR, "tx_hash": tx_hash })))
    })
}

/// The market of one test.
struct Market<'a> {
    engine: &'a Engine<AnyStore>,
}

/// The same on each store.
#[allow(clippy::needless_pass_by_value, reason = "tests are given as closures, written where they are called")]
fn in_a_market(test: impl AsyncFn(&Market)) {
    on_each(Config { checks: chain(), ..Config::default() }, async |engine, _| {
        engine.define(&Files { files: systems::sources("relay") }).await.expect("sound files");
        let market = Market { engine };
        for name in ["alice", "bob", "carol"] {
            market.create(name, "relay.agent", json!({ "agent_id": name, "wallet": WALLET })).await;
        }
        test(&market).await;
    });
}

impl Market<'_> {
    async fn create(&self, who: &str, lifecycle: &str, fields: Json) -> RecordId {
        self.engine.create(&user(who), lifecycle, object(fields)).await.expect("it is made").subject
    }

    async fn fire(&self, who: &str, record: RecordId, event: &str, input: Json) {
        self.engine.fire(&user(who), record, event, object(input)).await.expect("it is taken");
    }

    /// Alice's, paid for by a transaction of its own.
    async fn funded(&self) -> RecordId {
        let fields = json!({ "title": "A haiku", "description": "About relays", "price": PRICE });
        let job = self.create("alice", "relay.job", fields).await;
        let number = self.all("relay.job").await.len();
        self.fire("alice", job, "fund", json!({ "tx_hash": format!("0x{number:064x}") })).await;
        job
    }

    async fn submitted(&self, job: RecordId, who: &str) -> RecordId {
        self.fire(who, job, "claim", json!({})).await;
        let fields = object(json!({ "job": job.to_string() }));
        let (lifecycle, id, owner, payload) = ("relay.submission".into(), None, None, None);
        let create = Create { lifecycle, id, owner, fields, payload };
        let made = self.engine.create_with(&user(who), create, *b"five, seven, five").await;
        made.expect("it is handed in").subject
    }

    async fn record(&self, id: RecordId) -> Arc<Record> {
        self.engine.get(&ops(), id).await.expect("reading").expect("it is there")
    }

    async fn field(&self, id: RecordId, name: &str) -> Json {
        self.record(id).await.field(name).map_or(Json::Null, Value::to_json)
    }

    async fn all(&self, lifecycle: &str) -> Vec<Arc<Record>> {
        let query = ListQuery { lifecycle: Some(lifecycle.into()), limit: 1_000, ..ListQuery::default() };
        self.engine.list(&ops(), &query).await.expect("a list").records
    }

    /// The settlements of a job.
    async fn settlements(&self, job: RecordId) -> Vec<Arc<Record>> {
        let all = self.all("relay.settlement").await.into_iter();
        all.filter(|one| one.field("job").is_some_and(|of| of.to_json() == json!(job.to_string()))).collect()
    }
}

fn oracle() -> Actor {
    worker("oracle")
}

fn pass(held: &Leased) -> Submission {
    let (record, token, result) = (held.record.id, held.token, json!({ "score": 100, "steps": [] }));
    Submission::new(&oracle(), Call::Commit { record, token, result, finish: true })
}

/// REL-3, REL-12: two pass in one batch, that is in one transaction, in either order: the first wins, the second has lost its
/// lease, and one payout is made.
#[test]
fn two_pass_in_one_batch() {
    in_a_market(async |market| {
        for swapped in [false, true] {
            let job = market.funded().await;
            for who in ["bob", "carol"] {
                market.submitted(job, who).await;
            }
            let wanted = Wanted { most: 2, ..Wanted::one("relay.submission", "w1") };
            let mut held = market.engine.lease(&oracle(), &wanted).await.expect("leasing");
            assert_eq!(held.len(), 2);
            if swapped {
                held.reverse();
            }
            let before = market.engine.tally();
            let replies = market.engine.submit_all(held.iter().map(pass).collect()).await.expect("room for two");
            let after = market.engine.tally();
            assert_eq!(after.batches - before.batches, 1, "one transaction");
            assert_eq!(replies.iter().map(code).collect::<Vec<_>>(), ["ok", "lease_lost"]);
            let [first, second] = [&held[0], &held[1]].map(|held| held.record.id);
            assert_eq!(market.field(job, "result_data").await, json!(first.to_string()));
            assert_eq!(state(market.engine, first).await, "passed");
            assert_eq!(state(market.engine, second).await, "failed");
            assert_eq!(market.field(second, "reason").await, "another_won");
            assert_eq!(market.settlements(job).await.len(), 1, "paid once");
        }
    });
}

/// REL-6: a refund asked for by many at once is made once, whichever of them it was.
#[test]
fn a_refund_asked_many_times_at_once() {
    in_a_market(async |market| {
        for _ in 0..ROUNDS {
            let job = market.funded().await;
            market.fire("alice", job, "cancel", json!({})).await;
            let (won, told) = race(from_ref(market.engine), DEVICES, |engine, _| async move {
                engine.fire(&user("alice"), job, "refund", Map::new()).await
            })
            .await;
            assert_eq!(won, 1, "{told:?}");
            assert!(told.iter().all(|code| code == "already_refunded"), "{told:?}");
            let made = market.settlements(job).await;
            assert_eq!(made.iter().map(|one| one.hold).collect::<Vec<_>>(), [PRICE], "one, of the whole deposit");
        }
    });
}

/// REL-3, REL-5: the buyer cancels while an oracle's pass is on its way: one of the two is taken, and the money goes there.
#[test]
fn a_pass_and_a_cancel_at_once() {
    in_a_market(async |market| {
        for _ in 0..ROUNDS {
            let job = market.funded().await;
            market.submitted(job, "bob").await;
            let held = market.engine.lease(&oracle(), &Wanted::one("relay.submission", "w1")).await.expect("leasing");
            let buyer = user("alice");
            let cancel = market.engine.fire(&buyer, job, "cancel", Map::new());
            let (passed, cancelled) = tokio::join!(market.engine.submit(pass(&held[0])), cancel);
            // While it is judged nobody cancels, and afterwards there is nothing to cancel: the pass is never lost.
            assert_eq!(code(&passed), "ok");
            assert!(["judging", "wrong_state"].contains(&code(&cancelled).as_str()), "{cancelled:?}");
            assert_eq!(state(market.engine, job).await, "resolved");
            assert_eq!(market.settlements(job).await.len(), 1);
        }
    });
}
