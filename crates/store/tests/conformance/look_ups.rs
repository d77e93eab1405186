//! What is asked besides records: who points where, what moved on which account, who comes for jobs.

use onceward_core::decide::Call;
use onceward_core::model::LinkSource;
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_store::{
    AccountName, AccountsQuery, AnyStore, Balance, Holding, LinkPage, LinkQuery, Statement, StatementQuery, Store,
    WorkerName, WorkerSeen,
};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::stage::driver::{Driver, fire};
use crate::stage::{on_each, start, suite};

fn later(seconds: i64) -> Time {
    start().checked_add(Duration::from_secs(seconds)).unwrap()
}

fn from(lifecycle: &str, field: &str) -> LinkSource {
    LinkSource { lifecycle: lifecycle.into(), field: field.into() }
}

/// Pages of a link follow one another in the order of creation, by however many fields, and a record that points by two of
/// them is named once.
#[test]
fn links_come_in_pages() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let (ann, now) = (user("ann"), start());
        let target = driver.create(&ann, "suite.box", json!({}), now).await;
        let other = driver.create(&ann, "suite.box", json!({}), now).await;
        let mut sources = Vec::new();
        for number in 0..7 {
            let fields = json!({ "box": target.to_string() });
            sources.push(match number {
                3 => {
                    let both =
                        json!({ "beside": target.to_string(), "others": [target.to_string(), target.to_string()] });
                    driver.create(&ann, "suite.box", both, now).await
                }
                5 => driver.create(&ann, "suite.stub", fields, now).await,
                _ => driver.create(&ann, "suite.task", fields, now).await,
            });
        }
        driver.create(&ann, "suite.task", json!({ "box": other.to_string() }), now).await;
        let all = vec![
            from("suite.task", "box"),
            from("suite.box", "beside"),
            from("suite.box", "others"),
            from("suite.stub", "box"),
        ];
        let page = async |from: &[LinkSource], after, limit| {
            store.linked(&LinkQuery { target, from: from.to_vec(), after, limit }).await.unwrap()
        };
        for limit in 1..9 {
            let (mut met, mut after) = (Vec::new(), None);
            loop {
                let LinkPage { records, next } = page(&all, after, limit).await;
                assert!(records.len() == limit || next.is_none(), "only the last page is short");
                met.extend(records);
                after = next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(met, sources, "in pages of {limit}");
        }
        assert_eq!(page(&all[3..], None, 9).await.records, [sources[5]]);
        assert_eq!(page(&[from("suite.task", "nothing"), from("no.such", "box")], None, 9).await, LinkPage::default());
        assert_eq!(page(&[], None, 9).await, LinkPage::default());
        let nobody = RecordId(uuid::Uuid::from_u128(7));
        let query = LinkQuery { target: nobody, from: all, after: None, limit: 9 };
        assert_eq!(store.linked(&query).await.unwrap(), LinkPage::default());
    });
}

fn coin(name: &str) -> AccountName {
    AccountName::new("coin", name)
}

async fn statement(store: &AnyStore, name: &str, before: Option<u64>, limit: usize) -> Option<Statement> {
    store.statement(&StatementQuery { account: coin(name), before, limit }).await.unwrap()
}

async fn places(store: &AnyStore, name: &str) -> Vec<u64> {
    let entries = statement(store, name, None, 100).await.expect("an account").entries;
    entries.iter().map(|entry| entry.seq).collect()
}

/// Every account is listed, in order and in pages; one by itself is told the same.
#[test]
fn accounts_are_listed() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        for (owner, amount) in [("zoe", 7), ("ann", 50), ("Ünal", 3)] {
            let id = driver.create(&user(owner), "suite.box", json!({}), start()).await;
            driver.ok(&user(owner), fire(id, "earn", json!({ "amount": amount })), start()).await;
        }
        let expected =
            [("mint", true, -60), ("purse:ann", false, 50), ("purse:zoe", false, 7), ("purse:Ünal", false, 3)];
        let balance = |(name, outside, balance)| Balance { account: coin(name), outside, balance };
        let expected: Vec<Balance> = expected.into_iter().map(balance).collect();
        for limit in 1..6 {
            let (mut met, mut after) = (Vec::new(), None);
            loop {
                let page = store.accounts(&AccountsQuery { after, limit }).await.unwrap();
                after = page.last().map(|balance| balance.account.clone());
                met.extend(page);
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(met, expected, "in pages of {limit}");
        }
        for one in expected {
            assert_eq!(store.account(&one.account).await.unwrap(), Some(one));
        }
        assert_eq!(store.account(&coin("nobody")).await.unwrap(), None);
        assert_eq!(statement(store, "nobody", None, 9).await, None);
    });
}

/// A statement names the entries of the log that moved something there, the newest first, and what the account holds.
#[test]
fn a_statement_names_its_entries() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        assert_eq!(
            statement(store, "mint", None, 9).await.map(|told| (told.now.balance, told.entries)),
            Some((0, vec![]))
        );
        let mut driver = Driver::new(store).await;
        let (ann, bob) = (user("ann"), user("bob"));
        let id = driver.create(&ann, "suite.box", json!({}), start()).await;
        let his = driver.create(&bob, "suite.box", json!({}), start()).await;
        // Several in one batch, and one that moves nothing between them.
        let mut open = driver.open(later(1));
        for (actor, record, event, input) in [
            (&ann, id, "earn", json!({ "amount": 50 })),
            (&bob, his, "earn", json!({ "amount": 5 })),
            (&ann, id, "write", json!({ "number": 7 })),
            (&ann, id, "spend", json!({ "amount": 20 })),
        ] {
            let operation = driver.operation(actor, fire(record, event, input));
            driver.decide(&mut open, operation, later(1)).await;
        }
        driver.save(&open).await;
        driver.ok(&ann, fire(id, "spend", json!({ "amount": 1 })), later(2)).await;
        assert_eq!(places(store, "purse:ann").await, [7, 6, 3]);
        assert_eq!(places(store, "purse:bob").await, [4]);
        assert_eq!(places(store, "mint").await, [4, 3]);
        assert_eq!(places(store, "shop").await, [7, 6]);
        let log = store.log(0, 100).await.unwrap();
        let told = statement(store, "purse:ann", None, 2).await.unwrap();
        assert_eq!((told.now.balance, &told.entries[..]), (29, &[log[6].clone(), log[5].clone()][..]));
        let told = statement(store, "purse:ann", Some(6), 2).await.unwrap();
        assert_eq!((told.now.balance, &told.entries[..]), (29, &[log[2].clone()][..]));
        assert!(statement(store, "purse:ann", Some(3), 2).await.unwrap().entries.is_empty());
    });
}

fn name(holder: &str, worker: &str) -> WorkerName {
    WorkerName { holder: holder.into(), worker: worker.into() }
}

fn seen(holder: &str, worker: &str, lifecycles: &[&str], at: i64) -> WorkerSeen {
    let lifecycles = lifecycles.iter().map(|&name| name.into()).collect();
    WorkerSeen { name: name(holder, worker), lifecycles, seen: later(at) }
}

/// Workers are known by whose they are and what they call themselves; an older word does not replace a newer one; and they are
/// forgotten.
#[test]
fn workers_are_noted_and_forgotten() {
    on_each(async |store, _| {
        assert_eq!(store.workers(9).await.unwrap(), []);
        let long = "w".repeat(1_000);
        let first = [seen("ann", "w", &["a.b"], 1), seen("bob", "w", &["a.b", "c.d"], 2), seen("ann", &long, &[], 3)];
        store.note_workers(&first).await.unwrap();
        let mut all = first.to_vec();
        all.reverse();
        assert_eq!(store.workers(9).await.unwrap(), all);
        assert_eq!(store.workers(2).await.unwrap(), all[..2]);
        store.note_workers(&[seen("ann", "w", &["x.y"], 5), seen("bob", "w", &["old.one"], 1)]).await.unwrap();
        store.note_workers(&[]).await.unwrap();
        let names = async || {
            let all = store.workers(9).await.unwrap().into_iter();
            all.map(|one| (one.name, one.lifecycles.len(), one.seen)).collect::<Vec<_>>()
        };
        let (ann, longest, bob) =
            ((name("ann", "w"), 1, later(5)), (name("ann", &long), 0, later(3)), (name("bob", "w"), 2, later(2)));
        assert_eq!(names().await, [ann.clone(), longest.clone(), bob]);
        assert_eq!(store.forget_workers(later(2), 9).await.unwrap(), 1, "those seen at that time or before");
        assert_eq!(names().await, [ann.clone(), longest]);
        assert_eq!(store.forget_workers(later(0), 1).await.unwrap(), 1, "all but the last so many");
        assert_eq!(names().await, [ann]);
        assert_eq!(store.forget_workers(later(9), 9).await.unwrap(), 1);
        assert_eq!(names().await, []);
    });
}

/// Live leases are counted by worker, the ended ones not; and no more is looked at than was asked for.
#[test]
fn live_leases_are_counted() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let (ann, bob, eve, now) = (user("ann"), worker("bob"), worker("eve"), start());
        assert_eq!(store.holding(9).await.unwrap(), Holding { workers: vec![], is_whole: true });
        let mut tasks = Vec::new();
        for _ in 0..5 {
            tasks.push(driver.create(&ann, "suite.task", json!({}), now).await);
        }
        driver.create(&ann, "suite.box", json!({ "closing": "2030-01-01T00:00:00Z" }), now).await;
        let lease = |record, worker: &str| Call::Lease { record, worker: worker.into(), lease: None, start: true };
        for (task, actor, worker) in [(0, &bob, "w1"), (1, &bob, "w1"), (2, &bob, "w2"), (3, &eve, "w1")] {
            driver.ok(actor, lease(tasks[task], worker), now).await;
        }
        let commit =
            |record, finish| Call::Commit { record, token: onceward_core::record::Token(1), result: json!(1), finish };
        driver.ok(&bob, commit(tasks[1], true), now).await;
        driver.ok(&bob, commit(tasks[2], false), now).await;
        let workers = vec![(name("bob", "w1"), 1), (name("bob", "w2"), 1), (name("eve", "w1"), 1)];
        assert_eq!(store.holding(9).await.unwrap(), Holding { workers: workers.clone(), is_whole: true });
        assert_eq!(store.holding(4).await.unwrap(), Holding { workers: workers.clone(), is_whole: true });
        assert_eq!(store.holding(3).await.unwrap(), Holding { workers, is_whole: false }, "the box's time comes last");
        assert_eq!(store.holding(1).await.unwrap().workers.len(), 1);
    });
}
