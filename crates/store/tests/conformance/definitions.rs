//! Lifecycles are kept with every version that a record may live by.

use std::sync::Arc;

use onceward_core::diagnostic::{File, Files};
use onceward_core::time::Duration;
use onceward_store::{Catalog, Conflict, Save, Store, StoreError};
use onceward_testkit::user;
use serde_json::json;

use crate::stage::driver::{Driver, fire};
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
        assert!(found.diagnostics.iter().any(|diagnostic| diagnostic.code == "unknown-state"), "{found:?}");
        assert_eq!(store.definitions().await.unwrap().number(), 0);
    });
}

/// Back to an older version and forward again, by somebody's word; a process that brings either again changes nothing.
#[test]
fn an_older_version_is_used_again() {
    on_each(async |store, clock| {
        let first = store.put_definitions(&suite()).await.unwrap();
        let newer = changed("lease    = \"30s\"", "lease    = \"40s\"");
        let second = store.put_definitions(&newer).await.unwrap();
        let hash = |catalog: &Catalog| Arc::clone(&catalog.definitions.get("suite.task").unwrap().hash);
        let (old, new) = (hash(&first), hash(&second));
        assert_ne!(old, new);
        clock.set(start().checked_add(Duration::from_secs(60)).unwrap());
        let third = store.use_definition(&old, "ops", clock.now()).await.unwrap();
        assert_eq!((hash(&third), third.number()), (old.clone(), 7));
        for files in [suite(), newer] {
            let again = store.put_definitions(&files).await.unwrap();
            assert_eq!((hash(&again), again.number()), (old.clone(), 7));
        }
        assert_eq!(store.use_definition(&old, "ops", clock.now()).await.unwrap().number(), 7, "it is so already");
        // As it was before and after.
        assert_eq!(*third.as_of(5).get("suite.task").unwrap().hash, *old);
        assert_eq!(*third.as_of(6).get("suite.task").unwrap().hash, *new);
        assert_eq!(*third.as_of(7).get("suite.task").unwrap().hash, *old);
        let versions = third.versions("suite.task");
        let said: Vec<_> = versions.iter().map(|version| (version.is_current, version.by.as_deref())).collect();
        assert_eq!(said, [(true, Some("ops")), (false, None)]);
        assert_eq!((versions[0].came_at, versions[0].current_since), (start(), clock.now()));
        // The log tells who and when.
        let entries = store.log(0, 10).await.unwrap();
        let used = entries[0].body().unwrap().used.unwrap();
        assert_eq!((entries.len(), entries[0].at, entries[0].record), (1, clock.now(), None));
        assert_eq!((&*used.by, used.number, &used.definition), ("ops", 7, &old));
        let mut driver = Driver::new(store).await;
        let id = driver.create(&user("ann"), "suite.task", json!({}), clock.now()).await;
        assert_eq!(store.record(id).await.unwrap().unwrap().lifecycle.hash, old);
        assert!(store.use_definition("none", "ops", clock.now()).await.is_err());
    });
}

/// Files may name lifecycles that are not among them, if the store has them.
#[test]
fn what_is_known_need_not_be_given_again() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let text = "language = 1\nlifecycle = \"own.label\"\nabout = \"On a box\"\n[states]\nstuck = { about = \"on it\", rest = true }\n\
                    [fields]\nbox = { type = \"ref\", to = \"suite.box\" }\n[[on.create]]\ngo = \"-> stuck\"\ntake = [\"box\"]\n";
        let own = |text: &str| Files { files: vec![File { name: "label.toml".to_owned(), text: text.into() }] };
        let catalog = store.put_definitions(&own(text)).await.unwrap();
        assert_eq!(catalog.number(), 6);
        let again = store.put_definitions(&own(text)).await.unwrap();
        assert_eq!(again.number(), 6);
        let Err(StoreError::Unsound(found)) =
            store.put_definitions(&own(&text.replace("suite.box", "suite.bag"))).await
        else {
            panic!("taken")
        };
        assert!(found.diagnostics.iter().any(|diagnostic| diagnostic.code == "unknown-lifecycle"), "{found:?}");
        assert!(found.beside.is_none());
    });
}

/// A new version is refused where records still live by another lifecycle's version that sends it what it no longer takes.
#[test]
fn versions_that_meet_must_fit() {
    const PARENT: &str = "language = 1\nlifecycle = \"own.parent\"\nabout = \"Has a child\"\n[states]\n\
        on = { about = \"so\", rest = true }\noff = { about = \"no more\", final = true }\n\
        [fields]\nchild = { type = \"ref\", to = \"own.child\" }\n[[on.create]]\ngo = \"-> on\"\ntake = [\"child\"]\n\
        [[on.close]]\ngo = \"on -> off\"\ncascade = [{ to = \"record.child\", event = \"left\" }]\n";
    const CHILD: &str = "language = 1\nlifecycle = \"own.child\"\nabout = \"Is told\"\n[states]\n\
        home = { about = \"with somebody\", rest = true }\nalone = { about = \"with nobody\", rest = true }\n\
        [[on.create]]\ngo = \"-> home\"\n[[on.left]]\ngo = \"home -> alone\"\nby = \"record\"\n";
    on_each(async |store, _| {
        let files = |parent: &str, child: &str| {
            let file = |name: &str, text: &str| File { name: name.to_owned(), text: text.into() };
            Files { files: vec![file("parent.toml", parent), file("child.toml", child)] }
        };
        let first = store.put_definitions(&files(PARENT, CHILD)).await.unwrap();
        let mut driver = Driver::new(store).await;
        let ann = user("ann");
        let child = driver.create(&ann, "own.child", json!({}), start()).await;
        let parent = driver.create(&ann, "own.parent", json!({ "child": child.to_string() }), start()).await;
        // Both call it otherwise: sound by themselves, but a parent of the old version lives.
        let renamed = files(&PARENT.replace("\"left\"", "\"gone\""), &CHILD.replace("on.left", "on.gone"));
        let Err(StoreError::Unsound(found)) = store.put_definitions(&renamed).await else { panic!("taken") };
        let said = StoreError::Unsound(found.clone()).to_string();
        assert!(said.contains("own.parent, by which 1 record lives") || said.contains("own.child, by which"), "{said}");
        assert!(found.diagnostics.iter().any(|diagnostic| diagnostic.code == "unknown-event"), "{found:?}");
        assert!(found.files.files.iter().any(|file| file.name.contains("(version ")), "{found:?}");
        assert_eq!(store.definitions().await.unwrap().number(), first.number());
        // Both names for a while, and it fits.
        let both = format!("{CHILD}[[on.gone]]\ngo = \"home -> alone\"\nby = \"record\"\n");
        let widened = store.put_definitions(&files(PARENT, &both)).await.unwrap();
        assert_eq!(widened.number(), first.number() + 1);
        // When the old parent has ended, nobody sends it any more; but the old child that lives takes only the old one.
        driver.catalog = widened;
        driver.ok(&ann, fire(parent, "close", json!({})), start()).await;
        let Err(StoreError::Unsound(found)) = store.put_definitions(&renamed).await else { panic!("taken") };
        assert!(found.beside.is_some_and(|beside| beside.contains("own.child")));
    });
}

/// What was decided before a version came makes no record by the one that it displaced: it is decided again.
#[test]
fn nobody_is_made_by_a_version_that_was_displaced() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let (ann, fields) = (user("ann"), json!({}));
        let old = driver.create(&ann, "suite.box", fields.clone(), start()).await;
        let (mut making, mut moving) = (driver.open(start()), driver.open(start()));
        let make = driver.operation(&ann, crate::stage::driver::create("suite.task", fields));
        driver.decide(&mut making, make.clone(), start()).await;
        let earn = driver.operation(&ann, fire(old, "earn", json!({ "amount": 1 })));
        driver.decide(&mut moving, earn, start()).await;
        store.put_definitions(&changed("lease    = \"30s\"", "lease    = \"40s\"")).await.unwrap();
        let said = driver.save(&making).await;
        assert_eq!(said, Save::Conflict(Conflict::default()));
        assert!(matches!(driver.save(&moving).await, Save::Saved { .. }), "those that are there go on");
        driver = Driver::new(store).await;
        let mut making = driver.open(start());
        driver.decide(&mut making, make, start()).await;
        assert!(matches!(driver.save(&making).await, Save::Saved { .. }));
    });
}
