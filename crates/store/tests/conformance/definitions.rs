//! Lifecycle versions: storage, activation and compatibility.

use std::sync::Arc;

use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::time::Duration;
use onceward_store::{Catalog, SaveConflict, SaveResult, Store, StoreError};
use onceward_testkit::user;
use serde_json::json;

use crate::support::driver::{StoreDriver, fire_call};
use crate::support::{on_each_store, start_time, suite_files};

fn suite_with(from: &str, to: &str) -> InputFiles {
    let mut files = suite_files();
    for file in &mut files.files {
        file.text = file.text.replace(from, to).into();
    }
    files
}

/// A new version becomes current when it is added.
#[test]
fn known_version_does_not_become_current_again() {
    on_each_store(async |store, _| {
        let first = store.put_lifecycles(&suite_files()).await.unwrap();
        // Four lifecycles of the suite, and the built-in one for deliveries.
        assert_eq!(first.revision(), 5);
        let mut driver = StoreDriver::new(store).await;
        let old = driver.create_record(&user("ann"), "suite.task", json!({}), start_time()).await;
        let newer = suite_with("lease    = \"30s\"", "lease    = \"40s\"");
        let second = store.put_lifecycles(&newer).await.unwrap();
        assert_eq!(second.revision(), 6, "only the changed lifecycle gets a new version");
        let (before, after) =
            (first.definitions.get("suite.task").unwrap(), second.definitions.get("suite.task").unwrap());
        assert_ne!(before.hash, after.hash);
        let third = store.put_lifecycles(&suite_files()).await.unwrap();
        assert_eq!(third.revision(), 6);
        assert_eq!(third.definitions.get("suite.task").unwrap().hash, after.hash);
        assert!(third.by_hash(&before.hash).is_some());
        assert_eq!(third.definitions_at_revision(5).get("suite.task").unwrap().hash, before.hash);
        // Existing records keep their version; new ones use the current one.
        let mut driver = StoreDriver::new(store).await;
        for _ in 0..10 {
            let _ = driver.operation(&user("ann"), crate::support::driver::create_call("suite.task", json!({})));
        }
        let new = driver.create_record(&user("ann"), "suite.task", json!({}), start_time()).await;
        assert_eq!(store.record(old).await.unwrap().unwrap().lifecycle.hash, before.hash);
        assert_eq!(store.record(new).await.unwrap().unwrap().lifecycle.hash, after.hash);
    });
}

#[test]
fn comment_change_adds_no_version() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let again = store.put_lifecycles(&suite_with("[states]", "# a remark\n[states]")).await.unwrap();
        assert_eq!(again.revision(), 5);
    });
}

#[test]
fn unsound_files_are_rejected() {
    on_each_store(async |store, _| {
        let bad = suite_with("go = \"waiting -> running\"", "go = \"waiting -> nowhere\"");
        let Err(StoreError::InvalidLifecycles(found)) = store.put_lifecycles(&bad).await else { panic!("taken") };
        assert!(found.diagnostics.iter().any(|diagnostic| diagnostic.code == "unknown-state"), "{found:?}");
        assert_eq!(store.catalog().await.unwrap().revision(), 0);
    });
}

/// Adding either version's files again changes nothing.
#[test]
fn older_version_can_be_activated_and_is_logged() {
    on_each_store(async |store, clock| {
        let first = store.put_lifecycles(&suite_files()).await.unwrap();
        let newer = suite_with("lease    = \"30s\"", "lease    = \"40s\"");
        let second = store.put_lifecycles(&newer).await.unwrap();
        let hash = |catalog: &Catalog| Arc::clone(&catalog.definitions.get("suite.task").unwrap().hash);
        let (old, new) = (hash(&first), hash(&second));
        assert_ne!(old, new);
        clock.set(start_time().checked_add(Duration::from_secs(60)).unwrap());
        let third = store.activate_version(&old, "ops", clock.now()).await.unwrap();
        assert_eq!((hash(&third), third.revision()), (old.clone(), 7));
        for files in [suite_files(), newer] {
            let again = store.put_lifecycles(&files).await.unwrap();
            assert_eq!((hash(&again), again.revision()), (old.clone(), 7));
        }
        assert_eq!(
            store.activate_version(&old, "ops", clock.now()).await.unwrap().revision(),
            7,
            "the version is already current"
        );
        // The current versions before and after the activation.
        assert_eq!(*third.definitions_at_revision(5).get("suite.task").unwrap().hash, *old);
        assert_eq!(*third.definitions_at_revision(6).get("suite.task").unwrap().hash, *new);
        assert_eq!(*third.definitions_at_revision(7).get("suite.task").unwrap().hash, *old);
        let versions = third.versions("suite.task");
        let versions_summary: Vec<_> =
            versions.iter().map(|version| (version.is_current, version.activated_by.as_deref())).collect();
        assert_eq!(versions_summary, [(true, Some("ops")), (false, None)]);
        assert_eq!((versions[0].added_at, versions[0].current_since), (start_time(), clock.now()));
        // The log contains the actor and the time.
        let entries = store.log(0, 10).await.unwrap();
        let activation = entries[0].body().unwrap().activated.unwrap();
        assert_eq!((entries.len(), entries[0].at, entries[0].record), (1, clock.now(), None));
        assert_eq!((&*activation.by, activation.revision, &activation.definition), ("ops", 7, &old));
        let mut driver = StoreDriver::new(store).await;
        let id = driver.create_record(&user("ann"), "suite.task", json!({}), clock.now()).await;
        assert_eq!(store.record(id).await.unwrap().unwrap().lifecycle.hash, old);
        assert!(store.activate_version("none", "ops", clock.now()).await.is_err());
    });
}

#[test]
fn files_may_reference_stored_lifecycles() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let text = "language = 1\nlifecycle = \"own.label\"\nabout = \"On a box\"\n[states]\nstuck = { about = \"on it\", rest = true }\n\
                    [fields]\nbox = { type = \"ref\", to = \"suite.box\" }\n[[on.create]]\ngo = \"-> stuck\"\ntake = [\"box\"]\n";
        let label_files =
            |text: &str| InputFiles { files: vec![InputFile { name: "label.toml".to_owned(), text: text.into() }] };
        let catalog = store.put_lifecycles(&label_files(text)).await.unwrap();
        assert_eq!(catalog.revision(), 6);
        let again = store.put_lifecycles(&label_files(text)).await.unwrap();
        assert_eq!(again.revision(), 6);
        let Err(StoreError::InvalidLifecycles(found)) =
            store.put_lifecycles(&label_files(&text.replace("suite.box", "suite.bag"))).await
        else {
            panic!("taken")
        };
        assert!(found.diagnostics.iter().any(|diagnostic| diagnostic.code == "unknown-lifecycle"), "{found:?}");
        assert!(found.incompatible_with.is_none());
    });
}

/// A live record of another lifecycle sends an event that the new version no longer accepts.
#[test]
fn version_incompatible_with_live_records_is_rejected() {
    const PARENT_LIFECYCLE: &str = "language = 1\nlifecycle = \"own.parent\"\nabout = \"Has a child\"\n[states]\n\
        on = { about = \"so\", rest = true }\noff = { about = \"no more\", final = true }\n\
        [fields]\nchild = { type = \"ref\", to = \"own.child\" }\n[[on.create]]\ngo = \"-> on\"\ntake = [\"child\"]\n\
        [[on.close]]\ngo = \"on -> off\"\ncascade = [{ to = \"record.child\", event = \"left\" }]\n";
    const CHILD_LIFECYCLE: &str = "language = 1\nlifecycle = \"own.child\"\nabout = \"Is told\"\n[states]\n\
        home = { about = \"with its parent\", rest = true }\nalone = { about = \"without a parent\", rest = true }\n\
        [[on.create]]\ngo = \"-> home\"\n[[on.left]]\ngo = \"home -> alone\"\nby = \"record\"\n";
    on_each_store(async |store, _| {
        let files = |parent: &str, child: &str| {
            let file = |name: &str, text: &str| InputFile { name: name.to_owned(), text: text.into() };
            InputFiles { files: vec![file("parent.toml", parent), file("child.toml", child)] }
        };
        let first = store.put_lifecycles(&files(PARENT_LIFECYCLE, CHILD_LIFECYCLE)).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let ann = user("ann");
        let child = driver.create_record(&ann, "own.child", json!({}), start_time()).await;
        let parent =
            driver.create_record(&ann, "own.parent", json!({ "child": child.to_string() }), start_time()).await;
        // Both files rename the event. They are valid together, but a parent of the old version is live.
        let renamed =
            files(&PARENT_LIFECYCLE.replace("\"left\"", "\"gone\""), &CHILD_LIFECYCLE.replace("on.left", "on.gone"));
        let Err(StoreError::InvalidLifecycles(found)) = store.put_lifecycles(&renamed).await else { panic!("taken") };
        let message = StoreError::InvalidLifecycles(found.clone()).to_string();
        assert!(
            message.contains("own.parent, which has 1 live record") || message.contains("own.child, which has"),
            "{message}"
        );
        assert!(found.diagnostics.iter().any(|diagnostic| diagnostic.code == "unknown-event"), "{found:?}");
        assert!(found.files.files.iter().any(|file| file.name.contains("(version ")), "{found:?}");
        assert_eq!(store.catalog().await.unwrap().revision(), first.revision());
        // A version that accepts both names is compatible.
        let both = format!("{CHILD_LIFECYCLE}[[on.gone]]\ngo = \"home -> alone\"\nby = \"record\"\n");
        let widened = store.put_lifecycles(&files(PARENT_LIFECYCLE, &both)).await.unwrap();
        assert_eq!(widened.revision(), first.revision() + 1);
        // Once the old parent has ended, no record sends the old event. But the live old child accepts only that one.
        driver.catalog = widened;
        driver.expect_taken(&ann, fire_call(parent, "close", json!({})), start_time()).await;
        let Err(StoreError::InvalidLifecycles(found)) = store.put_lifecycles(&renamed).await else { panic!("taken") };
        assert!(found.incompatible_with.is_some_and(|beside| beside.contains("own.child")));
    });
}

/// The call must be decided again with the new version.
#[test]
fn create_decided_on_displaced_version_conflicts() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let (ann, fields) = (user("ann"), json!({}));
        let old = driver.create_record(&ann, "suite.box", fields.clone(), start_time()).await;
        let (mut create_batch, mut fire_batch) = (driver.new_batch(start_time()), driver.new_batch(start_time()));
        let make = driver.operation(&ann, crate::support::driver::create_call("suite.task", fields));
        driver.decide(&mut create_batch, make.clone(), start_time()).await;
        let earn = driver.operation(&ann, fire_call(old, "earn", json!({ "amount": 1 })));
        driver.decide(&mut fire_batch, earn, start_time()).await;
        store.put_lifecycles(&suite_with("lease    = \"30s\"", "lease    = \"40s\"")).await.unwrap();
        let save_result = driver.save(&create_batch).await;
        assert_eq!(save_result, SaveResult::Conflict(SaveConflict::default()));
        assert!(
            matches!(driver.save(&fire_batch).await, SaveResult::Saved { .. }),
            "existing records keep their version"
        );
        driver = StoreDriver::new(store).await;
        let mut making = driver.new_batch(start_time());
        driver.decide(&mut making, make, start_time()).await;
        assert!(matches!(driver.save(&making).await, SaveResult::Saved { .. }));
    });
}
