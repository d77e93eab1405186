//! Records are taken out whole, and what the rest needs of them is carried forward.

use std::sync::Arc;

use onceward_core::decide::{Account, Call, CountKey, Create, Decision, Key, UniqueKey};
use onceward_core::diagnostic::{File, Files};
use onceward_core::record::Payload;
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_store::log::{Checkpoint, NO_HASH};
use onceward_store::{
    AccountName, AnyStore, Base, Carry, Content, Forgotten, LeaseQuery, OldCounts, OldQuery, OldRequests, Prune,
    PruneSave, Request, RequestName, Save, Standing, StateCount, StatementQuery, Store, StoreError, Taken, Unsound,
};
use onceward_testkit::{user, worker};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::stage::driver::{Driver, create, fire};
use crate::stage::{on_each, start, suite};

fn later(seconds: i64) -> Time {
    start().checked_add(Duration::from_secs(seconds)).unwrap()
}

/// These records with their entries, as a pruner loads them.
async fn loaded(store: &AnyStore, ids: &[RecordId]) -> Vec<Taken> {
    let mut taken = Vec::new();
    for kin in store.kin(ids).await.unwrap() {
        let entries = store.history(kin.record.id, 0, 1_000).await.unwrap();
        let (stored, record, links, sources) = (kin.stored, kin.record, kin.links, kin.sources);
        taken.push(Taken { stored, record, links, sources, entries });
    }
    taken
}

async fn prune(store: &AnyStore, taken: Vec<Taken>) -> PruneSave {
    let catalog = store.definitions().await.unwrap();
    let carry = Carry::of(taken, start(), &catalog).expect("they are sound");
    store.prune(&Arc::new(Prune { carry, now: later(1) })).await.expect("pruning")
}

async fn checkpoint(store: &AnyStore, place: u64) -> Checkpoint {
    let entries = store.log(place - 1, 1).await.unwrap();
    entries[0].body().unwrap().pruned.expect("a checkpoint").into_owned()
}

/// A record goes with its executions, its effect and all of its entries; numbers by state follow; the log goes on.
#[test]
fn a_record_goes_whole() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let done = driver.create(&ann, "suite.task", json!({}), start()).await;
        let token = driver.lease(&bob, done, start()).await;
        let stays = driver.create(&ann, "suite.task", json!({}), start()).await;
        let commit = Call::Commit { record: done, token, result: json!("made"), finish: true };
        driver.ok(&bob, commit, start()).await;
        let kept = store.history(stays, 0, 10).await.unwrap();
        assert_eq!(prune(store, loaded(store, &[done]).await).await, PruneSave::Saved(5));
        assert!(store.record(done).await.unwrap().is_none() && store.effect(done).await.unwrap().is_none());
        assert!(
            store.executions(done).await.unwrap().is_empty() && store.history(done, 0, 9).await.unwrap().is_empty()
        );
        assert_eq!(store.history(stays, 0, 10).await.unwrap(), kept);
        let waiting = StateCount { lifecycle: "suite.task".into(), state: "waiting".into(), count: 1 };
        assert_eq!(store.counts_by_state(None).await.unwrap(), [waiting]);
        let told = checkpoint(store, 5).await;
        assert_eq!((told.records(), told.places.ranges(), told.before), (1, &[(1, 2), (4, 4)][..], None));
        assert_eq!(&*told.taken[0].state, "done");
        // The rest of the log can be had; what is pruned is said to be.
        for after in 0..4 {
            let gone = store.log(after, 10).await.unwrap_err();
            assert!(matches!(gone, StoreError::Pruned { oldest: 4 }), "{gone}");
        }
        let first = store.log(4, 10).await.unwrap();
        assert_eq!(first.iter().map(|entry| (entry.seq, entry.record)).collect::<Vec<_>>(), [(5, None)]);
        assert_eq!(first[0].hash, first[0].expected_hash(&NO_HASH));
        let again = driver.create(&ann, "suite.task", json!({}), later(2)).await;
        assert_eq!(store.history(again, 0, 10).await.unwrap()[0].seq, 6);
        driver.lease(&bob, stays, later(2)).await;
        // The next checkpoint is chained to this one.
        driver.refused(&user("eve"), fire(done, "move", json!({})), later(2)).await;
        let stub = driver.create(&ann, "suite.stub", json!({}), later(2)).await;
        driver.ok(&ann, fire(stub, "tear", json!({})), later(2)).await;
        let PruneSave::Saved(second) = prune(store, loaded(store, &[stub]).await).await else { panic!("nobody else") };
        let log = store.log(second - 1, 1).await.unwrap();
        assert_eq!(log[0].hash, log[0].expected_hash(&first[0].hash));
        assert_eq!(checkpoint(store, second).await.before, Some(5));
        let standing = store.standing().await.unwrap();
        assert_eq!(standing, Standing { checkpoint: second, head: log[0].hash, floor: second - 1 });
    });
}

/// Whoever changed, or was pointed to, since it was loaded stays, and so do all that were to go with it.
#[test]
fn what_has_changed_stays() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let mut stubs = Vec::new();
        for _ in 0..3 {
            stubs.push(driver.create(&ann, "suite.stub", json!({}), start()).await);
        }
        driver.ok(&ann, fire(stubs[0], "tear", json!({})), start()).await;
        let before = loaded(store, &stubs[..2]).await;
        driver.ok(&ann, fire(stubs[1], "tear", json!({})), start()).await;
        assert_eq!(prune(store, before).await, PruneSave::Conflict);
        let before = loaded(store, &stubs[..2]).await;
        driver.ok(&ann, fire(stubs[2], "renumber", json!({ "twin": stubs[0].to_string() })), start()).await;
        assert_eq!(prune(store, before).await, PruneSave::Conflict);
        assert_eq!(store.standing().await.unwrap(), Standing::default());
        for stub in &stubs[..2] {
            assert_eq!(store.history(*stub, 0, 10).await.unwrap().len(), 2);
        }
        // Now that it is known who points there, nobody would even try.
        let why = Carry::of(loaded(store, &stubs[..2]).await, start(), &driver.catalog).unwrap_err();
        assert_eq!(why, Unsound { record: stubs[0], why: format!("{} points to it, and stays", stubs[2]) });
        // With whoever points there, it goes.
        driver.ok(&ann, fire(stubs[2], "tear", json!({})), start()).await;
        assert!(matches!(prune(store, loaded(store, &stubs).await).await, PruneSave::Saved(_)));
        assert!(store.kin(&stubs).await.unwrap().is_empty());
        assert_eq!(store.counts_by_state(None).await.unwrap(), []);
    });
}

/// Operations that were decided on a record that is gone meanwhile are decided again.
#[test]
fn nobody_builds_on_what_is_gone() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let stub = driver.create(&ann, "suite.stub", json!({}), start()).await;
        driver.ok(&ann, fire(stub, "tear", json!({})), start()).await;
        let mut open = driver.open(start());
        let pointing = create("suite.stub", json!({ "twin": stub.to_string() }));
        let operation = driver.operation(&ann, pointing.clone());
        driver.decide(&mut open, operation, start()).await;
        assert!(matches!(prune(store, loaded(store, &[stub]).await).await, PruneSave::Saved(_)));
        let save = driver.save(&open).await;
        let gone = Key::Record(stub);
        assert!(matches!(&save, Save::Conflict(conflict) if conflict.keys.contains(&gone)), "{save:?}");
        driver.refused(&ann, pointing, start()).await;
    });
}

/// A key for ever stays and still refuses; keys and counts by state end with the record; a count for ever stays; money stays
/// where it was moved to; and all that the entries had added up to stands in the checkpoint.
#[test]
fn what_must_still_be_known_is_carried_forward() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let target = driver.create(&ann, "suite.box", json!({}), start()).await;
        let fields = json!({ "serial": "one", "seat": "1a", "price": 5, "box": target.to_string() });
        let stub = driver.create(&ann, "suite.stub", fields, start()).await;
        driver.ok(&ann, fire(stub, "renumber", json!({ "serial": "two" })), start()).await;
        driver.ok(&ann, fire(stub, "tear", json!({})), start()).await;
        let PruneSave::Saved(place) = prune(store, loaded(store, &[stub]).await).await else { panic!("nobody else") };
        let unique = |name: &str, value: &str| UniqueKey {
            lifecycle: "suite.stub".into(),
            unique: name.into(),
            parts: vec![format!("s{value}").into()],
        };
        let count = |name: &str| CountKey {
            lifecycle: "suite.stub".into(),
            limit: name.into(),
            parts: vec!["sann".into()],
            window: None,
        };
        let account = |name: &str| Account::Named { asset: "coin".into(), name: name.into() };
        let mut base = Base::default();
        let keys = [
            Key::Unique(unique("serial", "one")),
            Key::Unique(unique("serial", "two")),
            Key::Unique(unique("seat", "1a")),
            Key::Count(count("kept")),
            Key::Count(count("ever")),
            Key::Account(account("mint")),
            Key::Account(account("till:ann")),
        ];
        store.load(&mut base, &keys).await.unwrap();
        let snapshot = base.snapshot();
        assert_eq!(snapshot.uniques[&unique("serial", "one")], Some(stub));
        assert_eq!(snapshot.uniques[&unique("serial", "two")], Some(stub));
        assert_eq!(snapshot.uniques[&unique("seat", "1a")], None);
        assert_eq!((snapshot.counts[&count("kept")], snapshot.counts[&count("ever")]), (0, 1));
        assert_eq!((snapshot.accounts[&account("mint")], snapshot.accounts[&account("till:ann")]), (-5, 5));
        for serial in ["one", "two"] {
            let refusal = driver.refused(&ann, create("suite.stub", json!({ "serial": serial })), later(2)).await;
            assert_eq!(&*refusal.code, "used");
        }
        driver.create(&ann, "suite.stub", json!({ "seat": "1a" }), later(2)).await;
        let told = checkpoint(store, place).await;
        assert_eq!(told.accounts, [("coin".into(), "mint".into(), -5), ("coin".into(), "till:ann".into(), 5)]);
        // What they moved stays in the balances, and is on no statement any more.
        for (name, balance) in [("mint", -5), ("till:ann", 5)] {
            let account = AccountName::new("coin", name);
            let told = store.statement(&StatementQuery { account, before: None, limit: 9 }).await.unwrap().unwrap();
            assert_eq!((told.now.balance, told.entries), (balance, Vec::new()));
        }
        assert_eq!(told.counts, [(count("ever"), 1), (count("kept"), 1)]);
        let kept = [(2, unique("serial", "one"), Some(stub)), (3, unique("serial", "two"), Some(stub))];
        assert_eq!(told.uniques, kept, "the seat came and went with the record");
        assert_eq!(told.freed.uniques, [unique("seat", "1a")]);
        assert_eq!(told.freed.counts, [(count("kept"), -1)]);
        assert_eq!(told.links, [(target, 2)], "it came, and now it goes");
        // Nobody points to the box any more, and whoever had looked is told so.
        assert_eq!(store.kin(&[target]).await.unwrap()[0].sources, []);
        assert_eq!(store.kin(&[target]).await.unwrap()[0].links, 2);
    });
}

/// The walk for what is old looks at so many at a time, and ends where all are young.
#[test]
fn what_is_old_is_found_step_by_step() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let mut stubs = Vec::new();
        for number in 0..10 {
            let stub = driver.create(&ann, "suite.stub", json!({}), later(number)).await;
            if number % 3 != 0 {
                driver.ok(&ann, fire(stub, "tear", json!({})), later(number)).await;
                stubs.push(stub);
            }
        }
        let (mut after, mut found, mut steps) = (0, Vec::new(), 0);
        loop {
            let page = store.old(&OldQuery { after, before: later(5), limit: 2 }).await.unwrap();
            found.extend(page.records);
            steps += 1;
            let Some(next) = page.next else { break };
            after = next;
        }
        // Those of seconds 1, 2, 4 and 5; the steps of 6 and 7 finds nobody who may be old.
        assert_eq!((found, steps), (stubs[..4].to_vec(), 4));
    });
}

/// Answers to callers' keys are forgotten after their own time.
#[test]
fn old_requests_are_forgotten() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let name = |number: i64| RequestName { owner: "ann".into(), key: format!("key {number}").into() };
        for number in 0..5 {
            let mut open = driver.open(later(number));
            let operation = driver.operation(&user("ann"), create("suite.step", json!({})));
            driver.decide(&mut open, operation, later(number)).await;
            let request = Request { name: name(number), digest: [1; 32], answer: "{}".into() };
            open.batch.writes[0].request = Some(request);
            driver.save(&open).await;
        }
        let mut old = OldRequests { after: None, before: later(2), limit: 2 };
        assert_eq!(store.forget(&old).await.unwrap(), Forgotten { requests: 2, next: Some(name(1)) });
        old.after = Some(name(1));
        assert_eq!(store.forget(&old).await.unwrap(), Forgotten { requests: 1, next: Some(name(3)) });
        old.after = Some(name(3));
        assert_eq!(store.forget(&old).await.unwrap(), Forgotten { requests: 0, next: None });
        for number in 0..5 {
            assert_eq!(store.request(&name(number)).await.unwrap().is_some(), number > 2);
        }
    });
}

/// What is damaged is evidence: nobody takes it out.
#[test]
fn a_record_that_is_not_as_its_log_says_stays() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let stub = driver.create(&ann, "suite.stub", json!({ "price": 1 }), start()).await;
        driver.ok(&ann, fire(stub, "tear", json!({})), start()).await;
        let sound = loaded(store, &[stub]).await;
        let mut missing = sound.clone();
        missing[0].entries.remove(0);
        let mut other = sound.clone();
        other[0].entries[0].text = other[0].entries[0].text.replace("\"price\":1", "\"price\":2").into();
        let mut record = sound.clone();
        Arc::make_mut(&mut record[0].record).hold = 7;
        for taken in [missing, other, record] {
            assert_eq!(Carry::of(taken, start(), &driver.catalog).unwrap_err().record, stub);
        }
        assert!(Carry::of(sound, start(), &driver.catalog).is_ok());
    });
}

/// Bytes stay as long as a record has them as payload, whoever brought them, and go with the last one.
#[test]
fn bytes_go_with_the_last_record_that_has_them() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let bytes: &[u8] = b"the same";
        let payload = Payload { sha256: Sha256::digest(bytes).into(), bytes: 8 };
        let mut steps = Vec::new();
        // Named before it came, brought twice in one batch, and named again.
        for brought in [&[false][..], &[true, true], &[false]] {
            let mut open = driver.open(start());
            for brought in brought {
                let Call::Create(create) = create("suite.step", json!({})) else { panic!("it creates") };
                let operation = driver.operation(&ann, Call::Create(Create { payload: Some(payload), ..create }));
                let Decision::Changes(changes) = driver.decide(&mut open, operation, start()).await else {
                    panic!("made")
                };
                steps.push(changes.subject);
                if *brought {
                    let write = open.batch.writes.last_mut().expect("it was decided");
                    write.contents.push(Content { payload, bytes: bytes.into() });
                }
            }
            driver.save(&open).await;
            assert_eq!(store.content(&payload.sha256).await.unwrap().is_some(), steps.len() > 1);
        }
        for step in &steps {
            driver.ok(&ann, fire(*step, "skip", json!({})), start()).await;
        }
        for gone in [&steps[1..3], &steps[..1]] {
            assert!(matches!(prune(store, loaded(store, gone).await).await, PruneSave::Saved(_)));
            assert_eq!(store.content(&payload.sha256).await.unwrap().as_deref(), Some(bytes));
        }
        assert!(matches!(prune(store, loaded(store, &steps[3..]).await).await, PruneSave::Saved(_)));
        assert_eq!(store.content(&payload.sha256).await.unwrap(), None);
    });
}

/// All counts that tell nothing, a few at a time; how many went.
async fn forget_counts(store: &AnyStore, windows: Option<Time>) -> u64 {
    let (mut old, mut gone) = (OldCounts { after: None, windows, limit: 2 }, 0);
    loop {
        let forgotten = store.forget_counts(&old).await.expect("forgetting");
        gone += forgotten.counts;
        let Some(next) = forgotten.next else { return gone };
        old.after = Some(next);
    }
}

/// The count of a work key of which nothing runs goes, and what still runs is counted; who comes later is counted anew. A job that waits
/// for its time is found when it comes, though its key's count went meanwhile.
#[test]
fn counts_of_nobody_go() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let in_lane = |lane: &str| json!({ "lane": lane });
        for lane in ["a", "b", "c", "d", "e"] {
            let done = driver.create(&ann, "suite.task", in_lane(lane), start()).await;
            let token = driver.lease(&bob, done, start()).await;
            driver.ok(&bob, Call::Commit { record: done, token, result: json!(1), finish: true }, start()).await;
        }
        let runs = driver.create(&ann, "suite.task", in_lane("e"), start()).await;
        let token = driver.lease(&bob, runs, start()).await;
        let fields = json!({ "lane": "late", "readyAt": later(60).to_string() });
        let late = driver.create(&ann, "suite.task", fields, start()).await;
        let gone = forget_counts(store, None).await;
        // A world in memory may do without them from the beginning.
        assert!(gone >= 4 || matches!(store, AnyStore::Memory(_)), "{gone}");
        assert_eq!(forget_counts(store, None).await, 0, "that was all");
        let free = |lane: &str| CountKey {
            lifecycle: "suite.task".into(),
            limit: "work.key".into(),
            parts: vec![format!("s{lane}").into()],
            window: None,
        };
        let mut base = Base::wary();
        store.load(&mut base, &["a", "e"].map(|lane| Key::Count(free(lane)))).await.unwrap();
        assert_eq!(["a", "e"].map(|lane| base.snapshot().counts[&free(lane)]), [0, 1]);
        // The lane has as much room as before, and no more.
        for lane in ["a", "a", "a"] {
            driver.create(&ann, "suite.task", in_lane(lane), later(1)).await;
        }
        let query = |now| LeaseQuery { lifecycles: vec!["suite.task".into()], now, limit: 10 };
        let found = store.leasable(&query(later(1))).await.unwrap();
        assert_eq!(found.len(), 2);
        for candidate in &found {
            driver.lease(&bob, candidate.record, later(1)).await;
        }
        driver.ok(&bob, Call::Commit { record: runs, token, result: json!(1), finish: true }, later(1)).await;
        let found = store.leasable(&query(later(60))).await.unwrap();
        let found: Vec<RecordId> = found.into_iter().map(|candidate| candidate.record).collect();
        assert!(found.contains(&late), "{found:?}");
        driver.lease(&bob, late, later(60)).await;
    });
}

/// Windows of a limit `per` a time go when they are over; the one that counts now stays.
#[test]
fn windows_that_are_over_go() {
    let text = r#"
language  = 1
lifecycle = "suite.visit"
about     = "So many a minute"
[states]
over = { about = "that was all", final = true }
[limit]
rate = { on = ["owner"], per = "1m", max = 2, clash = "429 slow_down" }
[[on.create]]
go = "-> over"
"#;
    on_each(async |store, _| {
        let file = File { name: "visit.toml".to_owned(), text: text.into() };
        store.put_definitions(&Files { files: vec![file] }).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        for now in [start(), start(), later(60), later(61)] {
            driver.create(&ann, "suite.visit", json!({}), now).await;
        }
        assert_eq!(forget_counts(store, None).await, 0, "nobody said how long");
        assert_eq!(forget_counts(store, Some(later(60))).await, 1);
        assert_eq!(forget_counts(store, Some(later(60))).await, 0);
        let refused = driver.refused(&ann, create("suite.visit", json!({})), later(62)).await;
        assert_eq!(&*refused.code, "slow_down");
    });
}
