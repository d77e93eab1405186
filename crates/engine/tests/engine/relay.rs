//! The relay system on every store, with concurrent calls.

use std::slice::from_ref;
use std::sync::Arc;

use onceward_core::decide::{Call, CreateRecord};
use onceward_core::diagnostic::InputFiles;
use onceward_core::record::{Actor, Record};
use onceward_core::value::{RecordId, Value};
use onceward_engine::{CheckRegistry, Engine, EngineConfig, LeaseRequest, LeasedJob, Submission};
use onceward_store::{AnyStore, ListQuery};
use onceward_testkit::{systems, user, worker};
use serde_json::{Map, Value as Json, json};

use crate::support::race::race;
use crate::support::{json_object, on_each_store, operator_actor, reply_code, state_of};

const JOB_PRICE: i64 = 10_000_000;
const DEPOSITOR_ADDRESS: &str = "0xd0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0";
const WALLET_ADDRESS: &str = "0xAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Callers that request one refund at once.
const CONCURRENT_REFUNDS: usize = 8;
const RACE_ROUNDS: usize = 10;

/// A fake chain on which every transaction paid the price.
fn fake_chain_checks() -> CheckRegistry {
    CheckRegistry::default().register("relay.job", "deposit", |request| async move {
        let tx_hash = request.query.arguments["tx_hash"].clone();
        Ok(json_object(json!({ "ok": true, "on_chain": true, "amount": JOB_PRICE, "sender": DEPOSITOR_ADDRESS, "tx_hash": tx_hash })))
    })
}

/// The market of one test.
struct RelayMarket<'a> {
    engine: &'a Engine<AnyStore>,
}

/// Runs the test on each store.
#[allow(clippy::needless_pass_by_value, reason = "callers pass closures")]
fn with_market(test: impl AsyncFn(&RelayMarket)) {
    on_each_store(EngineConfig { checks: fake_chain_checks(), ..EngineConfig::default() }, async |engine, _| {
        engine.put_lifecycles(&InputFiles { files: systems::source_files("relay") }).await.expect("valid files");
        let market = RelayMarket { engine };
        for name in ["alice", "bob", "carol"] {
            market.create(name, "relay.agent", json!({ "agent_id": name, "wallet": WALLET_ADDRESS })).await;
        }
        test(&market).await;
    });
}

impl RelayMarket<'_> {
    async fn create(&self, user_name: &str, lifecycle: &str, fields: Json) -> RecordId {
        self.engine
            .create(&user(user_name), lifecycle, json_object(fields))
            .await
            .expect("the record is created")
            .subject
    }

    async fn fire(&self, user_name: &str, record: RecordId, event: &str, input: Json) {
        self.engine.fire(&user(user_name), record, event, json_object(input)).await.expect("the event is taken");
    }

    /// Creates Alice's job, paid for by its own transaction.
    async fn create_funded_job(&self) -> RecordId {
        let fields = json!({ "title": "A haiku", "description": "About relays", "price": JOB_PRICE });
        let job = self.create("alice", "relay.job", fields).await;
        let number = self.list_all("relay.job").await.len();
        self.fire("alice", job, "fund", json!({ "tx_hash": format!("0x{number:064x}") })).await;
        job
    }

    async fn submit_work(&self, job: RecordId, user_name: &str) -> RecordId {
        self.fire(user_name, job, "claim", json!({})).await;
        let fields = json_object(json!({ "job": job.to_string() }));
        let (lifecycle, id, owner, payload) = ("relay.submission".into(), None, None, None);
        let create = CreateRecord { lifecycle, id, owner, fields, payload };
        let made = self.engine.create_with_payload(&user(user_name), create, *b"five, seven, five").await;
        made.expect("the submission is created").subject
    }

    async fn record(&self, id: RecordId) -> Arc<Record> {
        self.engine.get(&operator_actor(), id).await.expect("reading").expect("it exists")
    }

    async fn field(&self, id: RecordId, name: &str) -> Json {
        self.record(id).await.field(name).map_or(Json::Null, Value::to_json)
    }

    async fn list_all(&self, lifecycle: &str) -> Vec<Arc<Record>> {
        let query = ListQuery { lifecycle: Some(lifecycle.into()), limit: 1_000, ..ListQuery::default() };
        self.engine.list(&operator_actor(), &query).await.expect("a list").records
    }

    async fn settlements(&self, job: RecordId) -> Vec<Arc<Record>> {
        let all = self.list_all("relay.settlement").await.into_iter();
        all.filter(|one| one.field("job").is_some_and(|of| of.to_json() == json!(job.to_string()))).collect()
    }
}

fn oracle() -> Actor {
    worker("oracle")
}

fn passing_commit(held: &LeasedJob) -> Submission {
    let (record, token, result) = (held.record.id, held.token, json!({ "score": 100, "steps": [] }));
    Submission::new(&oracle(), Call::Commit { record, token, result, finish: true })
}

/// REL-3, REL-12: in either order, the first wins, the second has lost its lease.
#[test]
fn two_passes_in_one_batch_pay_only_the_first() {
    with_market(async |market| {
        for swapped in [false, true] {
            let job = market.create_funded_job().await;
            for who in ["bob", "carol"] {
                market.submit_work(job, who).await;
            }
            let wanted = LeaseRequest { max_jobs: 2, ..LeaseRequest::single_job("relay.submission", "w1") };
            let mut held = market.engine.lease(&oracle(), &wanted).await.expect("leasing");
            assert_eq!(held.len(), 2);
            if swapped {
                held.reverse();
            }
            let before = market.engine.counters();
            let replies = market
                .engine
                .submit_all(held.iter().map(passing_commit).collect())
                .await
                .expect("the queue accepts two calls");
            let after = market.engine.counters();
            assert_eq!(after.batches - before.batches, 1, "one transaction");
            assert_eq!(replies.iter().map(reply_code).collect::<Vec<_>>(), ["ok", "lease_lost"]);
            let [first, second] = [&held[0], &held[1]].map(|held| held.record.id);
            assert_eq!(market.field(job, "result_data").await, json!(first.to_string()));
            assert_eq!(state_of(market.engine, first).await, "passed");
            assert_eq!(state_of(market.engine, second).await, "failed");
            assert_eq!(market.field(second, "reason").await, "another_won");
            assert_eq!(market.settlements(job).await.len(), 1, "paid once");
        }
    });
}

/// REL-6
#[test]
fn concurrent_refunds_pay_once() {
    with_market(async |market| {
        for _ in 0..RACE_ROUNDS {
            let job = market.create_funded_job().await;
            market.fire("alice", job, "cancel", json!({})).await;
            let (won, codes) = race(from_ref(market.engine), CONCURRENT_REFUNDS, |engine, _| async move {
                engine.fire(&user("alice"), job, "refund", Map::new()).await
            })
            .await;
            assert_eq!(won, 1, "{codes:?}");
            assert!(codes.iter().all(|code| code == "already_refunded"), "{codes:?}");
            let made = market.settlements(job).await;
            assert_eq!(
                made.iter().map(|one| one.hold).collect::<Vec<_>>(),
                [JOB_PRICE],
                "one refund of the whole deposit"
            );
        }
    });
}

/// REL-3, REL-5
#[test]
fn pass_wins_against_concurrent_cancel() {
    with_market(async |market| {
        for _ in 0..RACE_ROUNDS {
            let job = market.create_funded_job().await;
            market.submit_work(job, "bob").await;
            let held = market
                .engine
                .lease(&oracle(), &LeaseRequest::single_job("relay.submission", "w1"))
                .await
                .expect("leasing");
            let buyer = user("alice");
            let cancel = market.engine.fire(&buyer, job, "cancel", Map::new());
            let (passed, cancelled) = tokio::join!(market.engine.submit(passing_commit(&held[0])), cancel);
            // A job cannot be canceled while it is judged, nor after: the pass always wins.
            assert_eq!(reply_code(&passed), "ok");
            assert!(["judging", "wrong_state"].contains(&reply_code(&cancelled).as_str()), "{cancelled:?}");
            assert_eq!(state_of(market.engine, job).await, "resolved");
            assert_eq!(market.settlements(job).await.len(), 1);
        }
    });
}
