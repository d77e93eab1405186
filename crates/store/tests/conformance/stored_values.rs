//! Saved values can be read back.

use onceward_core::decide::{Call, CreateRecord, Decision, ReadKey};
use onceward_core::record::{Actor, ExecutionStatus, PayloadRef};
use onceward_core::time::Duration;
use onceward_core::value::Value;
use onceward_store::{ListQuery, PayloadBytes, ReadSet, StateCount, Store};
use onceward_testkit::{random, user, worker};
use serde_json::json;

use crate::support::driver::{StoreDriver, create_call, fire_call};
use crate::support::{on_each_store, start_time, suite_files};

/// Includes null.
#[test]
fn every_value_type_round_trips() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let other = driver.create_record(&ann, "suite.box", json!({}), start_time()).await;
        let fields = json!({
            "name": "a \"name\" \u{1f600}\n", "flag": true, "number": i64::MIN, "ratio": 0.1, "kind": "small",
            "moment": "1969-12-31T23:59:59.999999Z", "length": "1h30m", "words": ["b", "", "a"],
            "any": { "deep": [1, 2.5, null] }, "beside": other.to_string(), "others": [other.to_string()],
        });
        let changes = driver.expect_taken(&ann, create_call("suite.box", fields), start_time()).await;
        let made = &changes.records[0].after;
        assert!(made.fields.iter().any(|value| matches!(value, Value::Double(_))), "{:?}", made.fields);
        for id in [changes.subject, other] {
            let stored = store.record(id).await.unwrap().expect("the record was saved");
            let mut base = ReadSet::default();
            store.load(&mut base, &[ReadKey::Record(id)]).await.unwrap();
            let loaded = base.snapshot().record(id).expect("the record was saved");
            assert_eq!(random::record_text(&stored), random::record_text(loaded));
            if id == changes.subject {
                assert_eq!(random::record_text(&stored), random::record_text(made));
            }
        }
    });
}

/// Includes earlier executions.
#[test]
fn executions_effects_and_payloads_round_trip() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let bytes: &[u8] = b"\x00 any bytes \xff";
        let payload = PayloadRef { sha256: [9; 32], bytes: bytes.len() as u64 };
        let call = Call::Create(CreateRecord {
            lifecycle: "suite.task".into(),
            id: None,
            owner: None,
            fields: serde_json::Map::new(),
            payload: Some(payload),
        });
        let mut open = driver.new_batch(start_time());
        let operation = driver.operation(&ann, call);
        driver.decide(&mut open, operation, start_time()).await;
        open.batch.operations[0].payloads.push(PayloadBytes { payload, bytes: bytes.into() });
        driver.save(&open).await;
        assert_eq!(store.payload(&[9; 32]).await.unwrap().as_deref(), Some(bytes));
        assert_eq!(store.payload(&[8; 32]).await.unwrap(), None);

        let task = store.list(&ListQuery { limit: 1, ..ListQuery::default() }).await.unwrap().records[0].id;
        let token = driver.lease_job(&bob, task, start_time()).await;
        driver.expect_taken(&bob, Call::Yield { record: task, token }, start_time()).await;
        let token = driver.lease_job(&bob, task, start_time()).await;
        let result = json!({ "any": [1, "two"] });
        let changes = driver
            .expect_taken(
                &bob,
                Call::Commit { record: task, token, result: result.clone(), finish: true },
                start_time(),
            )
            .await;
        let stored = store.record(task).await.unwrap().unwrap();
        assert_eq!(random::record_text(&stored), random::record_text(&changes.records[0].after));
        assert_eq!(stored.payload, Some(payload));
        assert_eq!(store.effect(task).await.unwrap(), Some(changes.effects[0].clone()));
        assert_eq!(store.effect(task).await.unwrap().unwrap().result, result);
        let attempts = store.executions(task).await.unwrap();
        let statuses: Vec<_> = attempts.iter().map(|execution| (execution.token.0, execution.status)).collect();
        assert_eq!(statuses, [(1, ExecutionStatus::Aborted), (2, ExecutionStatus::Done)]);
        assert_eq!(attempts[0].aborted.as_ref().map(|abort| &*abort.code), Some("yielded"));
    });
}

/// It raises no version and writes no log entry.
#[test]
fn heartbeat_changes_only_lease_expiry() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let task = driver.create_record(&ann, "suite.task", json!({}), start_time()).await;
        let token = driver.lease_job(&bob, task, start_time()).await;
        let entries = store.log(0, 100).await.unwrap();
        let later = start_time().checked_add(Duration::from_secs(10)).unwrap();
        driver.expect_taken(&bob, Call::Heartbeat { record: task, token, lease: None }, later).await;
        let stored = store.record(task).await.unwrap().unwrap();
        let expires = later.checked_add(Duration::from_secs(30)).unwrap();
        assert_eq!(stored.execution.as_ref().unwrap().expires_at, expires);
        assert_eq!(stored.version, 2);
        assert_eq!(store.executions(task).await.unwrap()[0].expires_at, expires);
        assert_eq!(store.log(0, 100).await.unwrap(), entries);
        assert_eq!(store.due_records(expires, 10).await.unwrap(), [(expires, task)], "the old expiry is no longer due");
    });
}

#[test]
fn list_pages_and_counts_filter_by_state_and_owner() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let (ann, bob) = (user("ann"), user("bob"));
        let mut own = Vec::new();
        for number in 0..5 {
            own.push(driver.create_record(&ann, "suite.box", json!({ "number": number }), start_time()).await);
            driver.create_record(&bob, "suite.box", json!({}), start_time()).await;
            driver.create_record(&ann, "suite.task", json!({}), start_time()).await;
        }
        driver.expect_taken(&ann, fire_call(own[1], "empty", json!({})), start_time()).await;
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
        assert_eq!(store.counts_by_state(Some("unknown")).await.unwrap(), []);
    });
}

#[test]
fn list_page_scans_bounded_number_of_records() {
    const RECORD_COUNT: usize = 2_500;
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let mut open = driver.new_batch(start_time());
        let mut all = Vec::new();
        for number in 0..RECORD_COUNT {
            let operation = driver.operation(&ann, create_call("suite.step", json!({})));
            // The driver's seeds allow a thousand ids per time.
            let now = start_time().checked_add(Duration::from_secs(i64::try_from(number / 500).unwrap())).unwrap();
            let Decision::Changes(changes) = driver.decide(&mut open, operation, now).await else { panic!("made") };
            all.push(changes.subject);
        }
        driver.save(&open).await;
        for late in [2_100, 2_400] {
            let later = start_time().checked_add(Duration::from_secs(60)).unwrap();
            driver.expect_taken(&ann, fire_call(all[late], "skip", json!({})), later).await;
        }
        let query = ListQuery { state: Some("done".into()), limit: 1, ..ListQuery::default() };
        let first = store.list(&query).await.unwrap();
        assert!(first.records.is_empty() && first.next.is_some(), "the page stops at its scan limit");
        let second = store.list(&ListQuery { after: first.next, ..query.clone() }).await.unwrap();
        assert_eq!(second.records.iter().map(|record| record.id).collect::<Vec<_>>(), [all[2_100]]);
        let third = store.list(&ListQuery { after: second.next, ..query.clone() }).await.unwrap();
        assert_eq!(third.records.iter().map(|record| record.id).collect::<Vec<_>>(), [all[2_400]]);
        assert_eq!(third.next, None);
        let other = ListQuery { owner: Some("bob".into()), ..query };
        assert!(store.list(&other).await.unwrap().next.is_some());
        let everything = ListQuery { limit: 10_000, ..ListQuery::default() };
        assert_eq!(store.list(&everything).await.unwrap().records.len(), RECORD_COUNT);
    });
}

/// The order does not depend on when the links were added.
#[test]
fn links_are_ordered_by_creation() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let target = driver.create_record(&ann, "suite.box", json!({}), start_time()).await;
        let mut tasks = Vec::new();
        for number in 0..4 {
            let fields = if number == 1 { json!({}) } else { json!({ "box": target.to_string() }) };
            tasks.push(driver.create_record(&ann, "suite.task", fields, start_time()).await);
        }
        driver
            .expect_taken(&ann, fire_call(tasks[1], "move", json!({ "box": target.to_string() })), start_time())
            .await;
        driver.expect_taken(&ann, fire_call(tasks[2], "move", json!({ "box": null })), start_time()).await;
        let mut base = ReadSet::default();
        let key = onceward_core::decide::LinkKey { target, lifecycle: "suite.task".into(), field: "box".into() };
        store.load(&mut base, &[ReadKey::Links(key.clone())]).await.unwrap();
        assert_eq!(base.snapshot().links[&key], [tasks[0], tasks[1], tasks[3]]);
    });
}

#[test]
fn missing_record_reads_return_none_or_empty() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let id = onceward_core::value::RecordId(uuid::Uuid::from_u128(7));
        assert!(store.record(id).await.unwrap().is_none());
        assert!(store.effect(id).await.unwrap().is_none());
        assert!(store.executions(id).await.unwrap().is_empty());
        assert!(store.history(id, 0, 10).await.unwrap().is_empty());
        assert!(store.log(0, 10).await.unwrap().is_empty());
        let mut driver = StoreDriver::new(store).await;
        let refusal = driver
            .expect_refused(&Actor::new("ann", &["producer"]), fire_call(id, "empty", json!({})), start_time())
            .await;
        assert_eq!(refusal.status, 404);
    });
}
