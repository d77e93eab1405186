//! Queries for links, accounts, statements and workers.

use onceward_core::decide::Call;
use onceward_core::model::LinkSource;
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_store::{
    AccountBalance, AccountName, AccountsQuery, AnyStore, LeaseCounts, LinkPage, LinkQuery, StatementPage,
    StatementQuery, Store, WorkerName, WorkerSighting,
};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::support::driver::{StoreDriver, fire_call};
use crate::support::{on_each_store, start_time, suite_files};

fn after_seconds(seconds: i64) -> Time {
    start_time().checked_add(Duration::from_secs(seconds)).unwrap()
}

fn link_source(lifecycle: &str, field: &str) -> LinkSource {
    LinkSource { lifecycle: lifecycle.into(), field: field.into() }
}

/// A record that links through two fields is returned once.
#[test]
fn link_pages_follow_creation_order_without_duplicates() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let (ann, now) = (user("ann"), start_time());
        let target = driver.create_record(&ann, "suite.box", json!({}), now).await;
        let other = driver.create_record(&ann, "suite.box", json!({}), now).await;
        let mut sources = Vec::new();
        for number in 0..7 {
            let fields = json!({ "box": target.to_string() });
            sources.push(match number {
                3 => {
                    let both =
                        json!({ "beside": target.to_string(), "others": [target.to_string(), target.to_string()] });
                    driver.create_record(&ann, "suite.box", both, now).await
                }
                5 => driver.create_record(&ann, "suite.stub", fields, now).await,
                _ => driver.create_record(&ann, "suite.task", fields, now).await,
            });
        }
        driver.create_record(&ann, "suite.task", json!({ "box": other.to_string() }), now).await;
        let all = vec![
            link_source("suite.task", "box"),
            link_source("suite.box", "beside"),
            link_source("suite.box", "others"),
            link_source("suite.stub", "box"),
        ];
        let page = async |from: &[LinkSource], after, limit| {
            store.linked_records(&LinkQuery { target, from: from.to_vec(), after, limit }).await.unwrap()
        };
        for limit in 1..9 {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let LinkPage { records, next } = page(&all, after, limit).await;
                assert!(records.len() == limit || next.is_none(), "only the last page is short");
                found.extend(records);
                after = next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(found, sources, "in pages of {limit}");
        }
        assert_eq!(page(&all[3..], None, 9).await.records, [sources[5]]);
        assert_eq!(
            page(&[link_source("suite.task", "nothing"), link_source("no.such", "box")], None, 9).await,
            LinkPage::default()
        );
        assert_eq!(page(&[], None, 9).await, LinkPage::default());
        let unknown_id = RecordId(uuid::Uuid::from_u128(7));
        let query = LinkQuery { target: unknown_id, from: all, after: None, limit: 9 };
        assert_eq!(store.linked_records(&query).await.unwrap(), LinkPage::default());
    });
}

fn coin_account(name: &str) -> AccountName {
    AccountName::new("coin", name)
}

async fn load_statement(store: &AnyStore, name: &str, before: Option<u64>, limit: usize) -> Option<StatementPage> {
    store.statement(&StatementQuery { account: coin_account(name), before_seq: before, limit }).await.unwrap()
}

async fn statement_seqs(store: &AnyStore, name: &str) -> Vec<u64> {
    let entries = load_statement(store, name, None, 100).await.expect("an account").entries;
    entries.iter().map(|entry| entry.seq).collect()
}

/// Also compares with queries for single accounts.
#[test]
fn accounts_are_listed_in_order_and_pages() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        for (owner, amount) in [("zoe", 7), ("ann", 50), ("Ünal", 3)] {
            let id = driver.create_record(&user(owner), "suite.box", json!({}), start_time()).await;
            driver.expect_taken(&user(owner), fire_call(id, "earn", json!({ "amount": amount })), start_time()).await;
        }
        let expected =
            [("mint", true, -60), ("purse:ann", false, 50), ("purse:zoe", false, 7), ("purse:Ünal", false, 3)];
        let balance =
            |(name, outside, balance)| AccountBalance { account: coin_account(name), is_outside: outside, balance };
        let expected: Vec<AccountBalance> = expected.into_iter().map(balance).collect();
        for limit in 1..6 {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let page = store.accounts(&AccountsQuery { after, limit }).await.unwrap();
                after = page.last().map(|balance| balance.account.clone());
                found.extend(page);
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(found, expected, "in pages of {limit}");
        }
        for one in expected {
            assert_eq!(store.account(&one.account).await.unwrap(), Some(one));
        }
        assert_eq!(store.account(&coin_account("unknown")).await.unwrap(), None);
        assert_eq!(load_statement(store, "unknown", None, 9).await, None);
    });
}

#[test]
fn statement_lists_entries_newest_first_with_balance() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        assert_eq!(
            load_statement(store, "mint", None, 9)
                .await
                .map(|statement| (statement.balance.balance, statement.entries)),
            Some((0, vec![]))
        );
        let mut driver = StoreDriver::new(store).await;
        let (ann, bob) = (user("ann"), user("bob"));
        let id = driver.create_record(&ann, "suite.box", json!({}), start_time()).await;
        let his = driver.create_record(&bob, "suite.box", json!({}), start_time()).await;
        // Several transfers in one batch, with an operation without a transfer in between.
        let mut open = driver.new_batch(after_seconds(1));
        for (actor, record, event, input) in [
            (&ann, id, "earn", json!({ "amount": 50 })),
            (&bob, his, "earn", json!({ "amount": 5 })),
            (&ann, id, "write", json!({ "number": 7 })),
            (&ann, id, "spend", json!({ "amount": 20 })),
        ] {
            let operation = driver.operation(actor, fire_call(record, event, input));
            driver.decide(&mut open, operation, after_seconds(1)).await;
        }
        driver.save(&open).await;
        driver.expect_taken(&ann, fire_call(id, "spend", json!({ "amount": 1 })), after_seconds(2)).await;
        assert_eq!(statement_seqs(store, "purse:ann").await, [7, 6, 3]);
        assert_eq!(statement_seqs(store, "purse:bob").await, [4]);
        assert_eq!(statement_seqs(store, "mint").await, [4, 3]);
        assert_eq!(statement_seqs(store, "shop").await, [7, 6]);
        let log = store.log(0, 100).await.unwrap();
        let statement = load_statement(store, "purse:ann", None, 2).await.unwrap();
        assert_eq!((statement.balance.balance, &statement.entries[..]), (29, &[log[6].clone(), log[5].clone()][..]));
        let statement = load_statement(store, "purse:ann", Some(6), 2).await.unwrap();
        assert_eq!((statement.balance.balance, &statement.entries[..]), (29, &[log[2].clone()][..]));
        assert!(load_statement(store, "purse:ann", Some(3), 2).await.unwrap().entries.is_empty());
    });
}

fn worker_name(holder: &str, worker: &str) -> WorkerName {
    WorkerName { holder: holder.into(), worker: worker.into() }
}

fn worker_seen(holder: &str, worker: &str, lifecycles: &[&str], at: i64) -> WorkerSighting {
    let lifecycles = lifecycles.iter().map(|&name| name.into()).collect();
    WorkerSighting { name: worker_name(holder, worker), lifecycles, last_seen_at: after_seconds(at) }
}

/// A worker is identified by holder and name. An older sighting does not replace a newer one.
#[test]
fn workers_are_upserted_by_latest_sighting_and_deleted() {
    on_each_store(async |store, _| {
        assert_eq!(store.workers(9).await.unwrap(), []);
        let long = "w".repeat(1_000);
        let first = [
            worker_seen("ann", "w", &["a.b"], 1),
            worker_seen("bob", "w", &["a.b", "c.d"], 2),
            worker_seen("ann", &long, &[], 3),
        ];
        store.upsert_workers(&first).await.unwrap();
        let mut all = first.to_vec();
        all.reverse();
        assert_eq!(store.workers(9).await.unwrap(), all);
        assert_eq!(store.workers(2).await.unwrap(), all[..2]);
        store
            .upsert_workers(&[worker_seen("ann", "w", &["x.y"], 5), worker_seen("bob", "w", &["old.one"], 1)])
            .await
            .unwrap();
        store.upsert_workers(&[]).await.unwrap();
        let worker_summaries = async || {
            let all = store.workers(9).await.unwrap().into_iter();
            all.map(|one| (one.name, one.lifecycles.len(), one.last_seen_at)).collect::<Vec<_>>()
        };
        let (ann, long_named, bob) = (
            (worker_name("ann", "w"), 1, after_seconds(5)),
            (worker_name("ann", &long), 0, after_seconds(3)),
            (worker_name("bob", "w"), 2, after_seconds(2)),
        );
        assert_eq!(worker_summaries().await, [ann.clone(), long_named.clone(), bob]);
        assert_eq!(
            store.delete_stale_workers(after_seconds(2), 9).await.unwrap(),
            1,
            "workers last seen at the cutoff or earlier are deleted"
        );
        assert_eq!(worker_summaries().await, [ann.clone(), long_named]);
        assert_eq!(
            store.delete_stale_workers(after_seconds(0), 1).await.unwrap(),
            1,
            "all but the most recent workers are deleted"
        );
        assert_eq!(worker_summaries().await, [ann]);
        assert_eq!(store.delete_stale_workers(after_seconds(9), 9).await.unwrap(), 1);
        assert_eq!(worker_summaries().await, []);
    });
}

/// The scan stops at the given number of timers.
#[test]
fn lease_counts_include_live_leases_only() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let (ann, bob, eve, now) = (user("ann"), worker("bob"), worker("eve"), start_time());
        assert_eq!(store.lease_counts(9).await.unwrap(), LeaseCounts { workers: vec![], is_complete: true });
        let mut tasks = Vec::new();
        for _ in 0..5 {
            tasks.push(driver.create_record(&ann, "suite.task", json!({}), now).await);
        }
        driver.create_record(&ann, "suite.box", json!({ "closing": "2030-01-01T00:00:00Z" }), now).await;
        let lease = |record, worker: &str| Call::Lease { record, worker: worker.into(), lease: None, start: true };
        for (task, actor, worker) in [(0, &bob, "w1"), (1, &bob, "w1"), (2, &bob, "w2"), (3, &eve, "w1")] {
            driver.expect_taken(actor, lease(tasks[task], worker), now).await;
        }
        let commit = |record, finish| Call::Commit {
            record,
            token: onceward_core::record::FencingToken(1),
            result: json!(1),
            finish,
        };
        driver.expect_taken(&bob, commit(tasks[1], true), now).await;
        driver.expect_taken(&bob, commit(tasks[2], false), now).await;
        let workers = vec![(worker_name("bob", "w1"), 1), (worker_name("bob", "w2"), 1), (worker_name("eve", "w1"), 1)];
        assert_eq!(store.lease_counts(9).await.unwrap(), LeaseCounts { workers: workers.clone(), is_complete: true });
        assert_eq!(store.lease_counts(4).await.unwrap(), LeaseCounts { workers: workers.clone(), is_complete: true });
        assert_eq!(
            store.lease_counts(3).await.unwrap(),
            LeaseCounts { workers, is_complete: false },
            "the box is due last"
        );
        assert_eq!(store.lease_counts(1).await.unwrap().workers.len(), 1);
    });
}
