//! Lifecycles are kept with every version that a record may live by.

use onceward_core::diagnostic::Files;
use onceward_store::{Store, StoreError};
use onceward_testkit::user;
use serde_json::json;

use crate::stage::driver::Driver;
use crate::stage::{on_each, start, suite};

fn changed(from: &str, to: &str) -> Files {
    let mut files = suite();
    for file in &mut files.files {
        file.text = file.text.replace(from, to).into();
    }
    files
}

/// A version never seen becomes current; a known one, however old, displaces nothing.
#[test]
fn a_known_version_displaces_nothing() {
    on_each(async |store, _| {
        let first = store.put_definitions(&suite()).await.unwrap();
        // The four of the suite, and deliveries.
        assert_eq!(first.number(), 5);
        let mut driver = Driver::new(store).await;
        let old = driver.create(&user("ann"), "suite.task", json!({}), start()).await;
        let newer = changed("lease    = \"30s\"", "lease    = \"40s\"");
        let second = store.put_definitions(&newer).await.unwrap();
        assert_eq!(second.number(), 6, "one of them is new");
        let (before, after) =
            (first.definitions.get("suite.task").unwrap(), second.definitions.get("suite.task").unwrap());
        assert_ne!(before.hash, after.hash);
        let third = store.put_definitions(&suite()).await.unwrap();
        assert_eq!(third.number(), 6);
        assert_eq!(third.definitions.get("suite.task").unwrap().hash, after.hash);
        assert!(third.by_hash(&before.hash).is_some());
        assert_eq!(third.as_of(5).get("suite.task").unwrap().hash, before.hash);
        // Records keep theirs; new ones live by the new one.
        let mut driver = Driver::new(store).await;
        for _ in 0..10 {
            let _ = driver.operation(&user("ann"), crate::stage::driver::create("suite.task", json!({})));
        }
        let new = driver.create(&user("ann"), "suite.task", json!({}), start()).await;
        assert_eq!(store.record(old).await.unwrap().unwrap().lifecycle.hash, before.hash);
        assert_eq!(store.record(new).await.unwrap().unwrap().lifecycle.hash, after.hash);
    });
}

/// Comments are no part of what a file means.
#[test]
fn a_comment_makes_no_version() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let again = store.put_definitions(&changed("[states]", "# a remark\n[states]")).await.unwrap();
        assert_eq!(again.number(), 5);
    });
}

#[test]
fn files_that_are_not_sound_are_not_taken() {
    on_each(async |store, _| {
        let bad = changed("go = \"waiting -> running\"", "go = \"waiting -> nowhere\"");
        let Err(StoreError::Unsound(found)) = store.put_definitions(&bad).await else { panic!("taken") };
        assert!(found.iter().any(|diagnostic| diagnostic.code == "unknown-state"), "{found:?}");
        assert_eq!(store.definitions().await.unwrap().number(), 0);
    });
}
