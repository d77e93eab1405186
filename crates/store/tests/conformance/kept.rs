//! What is saved is found again.

use onceward_core::decide::{Call, Create, Decision, Key};
use onceward_core::record::{Actor, ExecutionStatus, Payload};
use onceward_core::time::Duration;
use onceward_core::value::Value;
use onceward_store::{Base, Content, ListQuery, StateCount, Store};
use onceward_testkit::{random, user, worker};
use serde_json::json;

use crate::stage::driver::{Driver, create, fire};
use crate::stage::{on_each, start, suite};

/// A value of every type, null too.
#[test]
fn every_kind_of_value_comes_back() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let other = driver.create(&ann, "suite.box", json!({}), start()).await;
        let fields = json!({
            "name": "a \"name\" \u{1f600}\n", "flag": true, "number": i64::MIN, "ratio": 0.1, "kind": "small",
            "moment": "1969-12-31T23:59:59.999999Z", "length": "1h30m", "words": ["b", "", "a"],
            "any": { "deep": [1, 2.5, null] }, "beside": other.to_string(), "others": [other.to_string()],
        });
        let changes = driver.ok(&ann, create("suite.box", fields), start()).await;
        let made = &changes.records[0].after;
        assert!(made.fields.iter().any(|value| matches!(value, Value::Double(_))), "{:?}", made.fields);
        for id in [changes.subject, other] {
            let kept = store.record(id).await.unwrap().expect("it was saved");
            let mut base = Base::default();
            store.load(&mut base, &[Key::Record(id)]).await.unwrap();
            let loaded = base.snapshot().record(id).expect("it was saved");
            assert_eq!(random::record(&kept), random::record(loaded));
            if id == changes.subject {
                assert_eq!(random::record(&kept), random::record(made));
            }
        }
    });
}

/// A record with a lease, an effect and a payload; its older attempts too.
#[test]
fn executions_effects_and_contents_come_back() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let bytes: &[u8] = b"\x00 any bytes \xff";
        let payload = Payload { sha256: [9; 32], bytes: bytes.len() as u64 };
        let call = Call::Create(Create {
            lifecycle: "suite.task".into(),
            id: None,
            owner: None,
            fields: serde_json::Map::new(),
            payload: Some(payload),
        });
        let mut open = driver.open(start());
        let operation = driver.operation(&ann, call);
        driver.decide(&mut open, operation, start()).await;
        open.batch.writes[0].contents.push(Content { payload, bytes: bytes.into() });
        driver.save(&open).await;
        assert_eq!(store.content(&[9; 32]).await.unwrap().as_deref(), Some(bytes));
        assert_eq!(store.content(&[8; 32]).await.unwrap(), None);

        let task = store.list(&ListQuery { limit: 1, ..ListQuery::default() }).await.unwrap().records[0].id;
        let token = driver.lease(&bob, task, start()).await;
        driver.ok(&bob, Call::Yield { record: task, token }, start()).await;
        let token = driver.lease(&bob, task, start()).await;
        let result = json!({ "any": [1, "two"] });
        let changes =
            driver.ok(&bob, Call::Commit { record: task, token, result: result.clone(), finish: true }, start()).await;
        let kept = store.record(task).await.unwrap().unwrap();
        assert_eq!(random::record(&kept), random::record(&changes.records[0].after));
        assert_eq!(kept.payload, Some(payload));
        assert_eq!(store.effect(task).await.unwrap(), Some(changes.effects[0].clone()));
        assert_eq!(store.effect(task).await.unwrap().unwrap().result, result);
        let attempts = store.executions(task).await.unwrap();
        let statuses: Vec<_> = attempts.iter().map(|execution| (execution.token.0, execution.status)).collect();
        assert_eq!(statuses, [(1, ExecutionStatus::Aborted), (2, ExecutionStatus::Done)]);
        assert_eq!(attempts[0].aborted.as_ref().map(|abort| &*abort.code), Some("yielded"));
    });
}

/// A heartbeat moves the expiry and nothing else: no version, no entry.
#[test]
fn a_heartbeat_leaves_no_trace_but_the_expiry() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let task = driver.create(&ann, "suite.task", json!({}), start()).await;
        let token = driver.lease(&bob, task, start()).await;
        let entries = store.log(0, 100).await.unwrap();
        let later = start().checked_add(Duration::from_secs(10)).unwrap();
        driver.ok(&bob, Call::Heartbeat { record: task, token, lease: None }, later).await;
        let kept = store.record(task).await.unwrap().unwrap();
        let expires = later.checked_add(Duration::from_secs(30)).unwrap();
        assert_eq!(kept.execution.as_ref().unwrap().expires_at, expires);
        assert_eq!(kept.version, 2);
        assert_eq!(store.executions(task).await.unwrap()[0].expires_at, expires);
        assert_eq!(store.log(0, 100).await.unwrap(), entries);
        assert_eq!(store.due(expires, 10).await.unwrap(), [(expires, task)], "the old expiry is no longer waited for");
    });
}

/// Pages of a list follow one another; the counts agree with it.
#[test]
fn lists_and_counts() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let (ann, bob) = (user("ann"), user("bob"));
        let mut own = Vec::new();
        for number in 0..5 {
            own.push(driver.create(&ann, "suite.box", json!({ "number": number }), start()).await);
            driver.create(&bob, "suite.box", json!({}), start()).await;
            driver.create(&ann, "suite.task", json!({}), start()).await;
        }
        driver.ok(&ann, fire(own[1], "empty", json!({})), start()).await;
        let query = ListQuery {
            lifecycle: Some("suite.box".into()),
            state: Some("open".into()),
            owner: Some("ann".into()),
            limit: 3,
            ..ListQuery::default()
        };
        let first = store.list(&query).await.unwrap();
        assert_eq!(first.records.iter().map(|record| record.id).collect::<Vec<_>>(), [own[0], own[2], own[3]]);
        let second = store.list(&ListQuery { after: first.next, ..query.clone() }).await.unwrap();
        assert_eq!(second.records.iter().map(|record| record.id).collect::<Vec<_>>(), [own[4]]);
        assert_eq!(second.next, None);
        assert_eq!(store.list(&ListQuery { limit: 100, ..ListQuery::default() }).await.unwrap().records.len(), 15);
        let count = |lifecycle: &str, state: &str, count| StateCount {
            lifecycle: lifecycle.into(),
            state: state.into(),
            count,
        };
        let of_ann =
            [count("suite.box", "closed", 1), count("suite.box", "open", 4), count("suite.task", "waiting", 5)];
        assert_eq!(store.counts_by_state(Some("ann")).await.unwrap(), of_ann);
        let of_all =
            [count("suite.box", "closed", 1), count("suite.box", "open", 9), count("suite.task", "waiting", 5)];
        assert_eq!(store.counts_by_state(None).await.unwrap(), of_all);
        assert_eq!(store.counts_by_state(Some("nobody")).await.unwrap(), []);
    });
}

/// One page is one short look, however few records fit; whoever wants more goes on from there.
#[test]
fn a_page_looks_at_so_many_and_no_more() {
    const RECORDS: usize = 2_500;
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let mut open = driver.open(start());
        let mut all = Vec::new();
        for number in 0..RECORDS {
            let operation = driver.operation(&ann, create("suite.step", json!({})));
            // The driver's numbers make a thousand ids a moment.
            let now = start().checked_add(Duration::from_secs(i64::try_from(number / 500).unwrap())).unwrap();
            let Decision::Changes(changes) = driver.decide(&mut open, operation, now).await else { panic!("made") };
            all.push(changes.subject);
        }
        driver.save(&open).await;
        for late in [2_100, 2_400] {
            let later = start().checked_add(Duration::from_secs(60)).unwrap();
            driver.ok(&ann, fire(all[late], "skip", json!({})), later).await;
        }
        let query = ListQuery { state: Some("done".into()), limit: 1, ..ListQuery::default() };
        let first = store.list(&query).await.unwrap();
        assert!(first.records.is_empty() && first.next.is_some(), "it did not look further");
        let second = store.list(&ListQuery { after: first.next, ..query.clone() }).await.unwrap();
        assert_eq!(second.records.iter().map(|record| record.id).collect::<Vec<_>>(), [all[2_100]]);
        let third = store.list(&ListQuery { after: second.next, ..query.clone() }).await.unwrap();
        assert_eq!(third.records.iter().map(|record| record.id).collect::<Vec<_>>(), [all[2_400]]);
        assert_eq!(third.next, None);
        let other = ListQuery { owner: Some("bob".into()), ..query };
        assert!(store.list(&other).await.unwrap().next.is_some());
        let everything = ListQuery { limit: 10_000, ..ListQuery::default() };
        assert_eq!(store.list(&everything).await.unwrap().records.len(), RECORDS);
    });
}

/// The records that point to another, in the order in which they were made, whenever they came to point there.
#[test]
fn links_come_in_the_order_of_creation() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let target = driver.create(&ann, "suite.box", json!({}), start()).await;
        let mut tasks = Vec::new();
        for number in 0..4 {
            let fields = if number == 1 { json!({}) } else { json!({ "box": target.to_string() }) };
            tasks.push(driver.create(&ann, "suite.task", fields, start()).await);
        }
        driver.ok(&ann, fire(tasks[1], "move", json!({ "box": target.to_string() })), start()).await;
        driver.ok(&ann, fire(tasks[2], "move", json!({ "box": null })), start()).await;
        let mut base = Base::default();
        let key = onceward_core::decide::LinkKey { target, lifecycle: "suite.task".into(), field: "box".into() };
        store.load(&mut base, &[Key::Links(key.clone())]).await.unwrap();
        assert_eq!(base.snapshot().links[&key], [tasks[0], tasks[1], tasks[3]]);
    });
}

/// What does not exist is answered as such, whoever asks.
#[test]
fn nothing_is_found_where_nothing_is() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let id = onceward_core::value::RecordId(uuid::Uuid::from_u128(7));
        assert!(store.record(id).await.unwrap().is_none());
        assert!(store.effect(id).await.unwrap().is_none());
        assert!(store.executions(id).await.unwrap().is_empty());
        assert!(store.history(id, 0, 10).await.unwrap().is_empty());
        assert!(store.log(0, 10).await.unwrap().is_empty());
        let mut driver = Driver::new(store).await;
        let refusal = driver.refused(&Actor::new("ann", &["producer"]), fire(id, "empty", json!({})), start()).await;
        assert_eq!(refusal.status, 404);
    });
}
