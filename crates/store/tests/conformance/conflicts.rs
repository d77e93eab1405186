//! What has changed since it was loaded is found, and then nothing is written.

use onceward_core::decide::{Account, Call, Key};
use onceward_core::record::Actor;
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_store::{AnyStore, Base, Request, RequestName, Save, Store};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::stage::driver::{Driver, create, fire};
use crate::stage::{on_each, start, suite};

/// Decide one call, let another be saved in between, and see what the first one's save says.
async fn overtaken(store: &AnyStore, actor: &Actor, call: Call, by: (&Actor, Call), now: Time) -> Vec<Key> {
    let mut driver = Driver::new(store).await;
    // Ids of new records derive from seeds: those of an earlier driver must not come again.
    let seen = store.log(0, 1_000).await.unwrap().len();
    for _ in 0..=3 * seen {
        let _ = driver.operation(actor, call.clone());
    }
    let mut open = driver.open(now);
    let operation = driver.operation(actor, call.clone());
    let decision = driver.decide(&mut open, operation, now).await;
    assert_eq!(open.batch.writes.len(), 1, "{decision:?}");
    driver.ok(by.0, by.1, now).await;
    let before = (store.log(0, 1_000).await.unwrap(), store.counts_by_state(None).await.unwrap());
    let save = driver.save(&open).await;
    let Save::Conflict(conflict) = save else { panic!("{call:?} was saved over a change: {save:?}") };
    let after = (store.log(0, 1_000).await.unwrap(), store.counts_by_state(None).await.unwrap());
    assert_eq!(before, after, "a conflict writes nothing");
    // Loaded again and decided again, it goes through.
    let mut again = driver.open(now);
    let mut base = Base::default();
    store.load(&mut base, &open.base.keys()).await.unwrap();
    again.base = base;
    driver.decide(&mut again, open.batch.writes[0].operation.clone(), now).await;
    assert!(matches!(driver.save(&again).await, Save::Saved { .. }));
    conflict.keys
}

async fn made(store: &AnyStore, lifecycle: &str, fields: serde_json::Value) -> RecordId {
    let mut driver = Driver::new(store).await;
    for _ in 0..100 * (1 + store.log(0, 1_000).await.unwrap().len()) {
        let _ = driver.operation(&user("ann"), create(lifecycle, json!({})));
    }
    driver.create(&user("ann"), lifecycle, fields, start()).await
}

#[test]
fn of_a_record() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let (ann, id) = (user("ann"), made(store, "suite.box", json!({})).await);
        let write = |number: i64| fire(id, "write", json!({ "number": number }));
        assert_eq!(overtaken(store, &ann, write(1), (&ann, write(2)), start()).await, [Key::Record(id)]);
        assert_eq!(store.record(id).await.unwrap().unwrap().version, 3);
    });
}

/// A heartbeat raises no version; a decision on the old expiry must not stand all the same.
#[test]
fn of_a_lease_that_was_extended() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let (bob, id) = (worker("bob"), made(store, "suite.task", json!({})).await);
        let token = Driver::new(store).await.lease(&bob, id, start()).await;
        let ended = start().checked_add(Duration::from_secs(30)).unwrap();
        let driver = Driver::new(store).await;
        let mut open = driver.open(ended);
        let operation = onceward_core::decide::Operation {
            seed: 1,
            actor: Actor::engine(),
            call: Call::Due { record: id },
            answers: Vec::new(),
            trace: None,
        };
        driver.decide(&mut open, operation, ended).await;
        let beat = Call::Heartbeat { record: id, token, lease: None };
        let just_before = ended.checked_sub(Duration::from_micros(1)).unwrap();
        Driver::new(store).await.ok(&bob, beat, just_before).await;
        let Save::Conflict(conflict) = driver.save(&open).await else { panic!("the lease was lost though extended") };
        assert_eq!(conflict.keys, [Key::Record(id)]);
    });
}

#[test]
fn of_a_unique_key() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let ann = user("ann");
        let (one, two) = (made(store, "suite.box", json!({})).await, made(store, "suite.box", json!({})).await);
        let call = |id| fire(id, "write", json!({ "name": "mine" }));
        let keys = overtaken(store, &ann, call(one), (&ann, call(two)), start()).await;
        assert!(matches!(&keys[..], [Key::Unique(key)] if &*key.parts[0] == "smine"), "{keys:?}");
        assert_eq!(store.record(one).await.unwrap().unwrap().version, 1, "it was refused the second time");
    });
}

#[test]
fn of_a_count() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let ann = user("ann");
        let call = || create("suite.box", json!({}));
        let keys = overtaken(store, &ann, call(), (&ann, call()), start()).await;
        assert!(matches!(&keys[..], [Key::Count(key)] if &*key.limit == "open"), "{keys:?}");
    });
}

#[test]
fn of_an_account() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let ann = user("ann");
        let (one, two) = (made(store, "suite.box", json!({})).await, made(store, "suite.box", json!({})).await);
        let pay = |id, event: &str, amount: i64| fire(id, event, json!({ "amount": amount }));
        Driver::new(store).await.ok(&ann, pay(one, "earn", 10), start()).await;
        let keys = overtaken(store, &ann, pay(one, "spend", 6), (&ann, pay(two, "spend", 6)), start()).await;
        let purse = Account::Named { asset: "coin".into(), name: "purse:ann".into() };
        assert_eq!(keys, [Key::Account(purse)]);
        assert_eq!(store.record(one).await.unwrap().unwrap().version, 2, "it ran short the second time");
    });
}

#[test]
fn of_links() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let (ann, id) = (user("ann"), made(store, "suite.box", json!({})).await);
        let join = create("suite.task", json!({ "box": id.to_string() }));
        let keys = overtaken(store, &ann, fire(id, "empty", json!({})), (&ann, join), start()).await;
        assert!(matches!(&keys[..], [Key::Links(key)] if key.target == id), "{keys:?}");
        assert_eq!(&**store.record(id).await.unwrap().unwrap().state_name(), "open", "a task came in between");
    });
}

#[test]
fn of_a_queue() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let (ann, bob) = (user("ann"), worker("bob"));
        let first = made(store, "suite.step", json!({ "line": "a" })).await;
        let second = made(store, "suite.step", json!({ "line": "a" })).await;
        Driver::new(store).await.ok(&ann, fire(first, "skip", json!({})), start()).await;
        // An older one comes back into the line: here by a clock that was behind when it was made.
        let earlier = start().checked_sub(Duration::from_secs(60)).unwrap();
        let mut driver = Driver::new(store).await;
        let mut open = driver.open(start());
        let lease = Call::Lease { record: second, worker: "w".into(), lease: None, start: true };
        let operation = driver.operation(&bob, lease);
        driver.decide(&mut open, operation, start()).await;
        for _ in 0..10_000 {
            let _ = driver.operation(&ann, create("suite.step", json!({})));
        }
        driver.create(&ann, "suite.step", json!({ "line": "a" }), earlier).await;
        let Save::Conflict(conflict) = driver.save(&open).await else { panic!("leased out of turn") };
        assert!(matches!(&conflict.keys[..], [Key::Queue(key)] if &*key.parts[0] == "sa"), "{conflict:?}");
    });
}

/// The same request twice, in one batch or in two, is answered once.
#[test]
fn of_a_request() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let request = Request {
            name: RequestName { owner: "ann".into(), key: "k".into() },
            digest: [3; 32],
            answer: "{\"id\": 1}".into(),
        };
        let mut opens = Vec::new();
        for _ in 0..3 {
            let mut open = driver.open(start());
            let operation = driver.operation(&user("ann"), create("suite.step", json!({})));
            driver.decide(&mut open, operation, start()).await;
            open.batch.writes[0].request = Some(request.clone());
            opens.push(open);
        }
        let mut twice = opens[0].clone();
        let again = opens[1].batch.writes[0].clone();
        twice.batch.writes.push(again);
        assert!(matches!(driver.save(&twice).await, Save::Conflict(found) if found.requests == [request.name.clone()]));
        assert_eq!(store.request(&request.name).await.unwrap(), None);
        assert!(matches!(driver.save(&opens[0]).await, Save::Saved { .. }));
        assert_eq!(store.request(&request.name).await.unwrap(), Some(request.clone()));
        // Many at once are answered in their order, also where one is asked for twice.
        let other = RequestName { key: "another".into(), ..request.name.clone() };
        let asked = [other.clone(), request.name.clone(), other, request.name.clone()];
        let found = [None, Some(request.clone()), None, Some(request.clone())];
        assert_eq!(store.requests(&asked).await.unwrap(), found);
        assert_eq!(store.requests(&[]).await.unwrap(), []);
        let second = driver.save(&opens[2]).await;
        assert!(matches!(second, Save::Conflict(found) if found.keys.is_empty() && found.requests == [request.name]));
        assert_eq!(store.log(0, 10).await.unwrap().len(), 1);
    });
}

/// What was not loaded cannot be compared, so a batch that rests on it is not saved.
#[test]
fn of_a_base_that_does_not_hold_what_was_read() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let id = made(store, "suite.box", json!({})).await;
        let mut driver = Driver::new(store).await;
        let mut open = driver.open(start());
        let operation = driver.operation(&user("ann"), fire(id, "write", json!({ "number": 1 })));
        driver.decide(&mut open, operation, start()).await;
        open.base = Base::default();
        assert!(matches!(driver.save(&open).await, Save::Conflict(_)));
    });
}
