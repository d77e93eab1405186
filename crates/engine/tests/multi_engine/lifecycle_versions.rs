//! Processes with different versions of a lifecycle on one database: a rolling deploy, and an operator's activation.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::value::RecordId;
use onceward_engine::{Engine, EngineConfig, VersionMigration};
use onceward_store::{AnyStore, Clock, PostgresStore, Store};
use onceward_testkit::postgres::PostgresServer;
use onceward_testkit::user;
use serde_json::json;

use crate::assert_verified;
use crate::support::{json_object, operator_actor, start_time};

const NOTE_LIFECYCLE: &str = "language = 1\nlifecycle = \"desk.note\"\nabout = \"Something to remember\"\n[states]\n\
    open = { about = \"to do\", rest = true }\nover = { about = \"done\", final = true }\n[fields]\n\
    text = { type = \"string\", max = 100, default = \"\" }\n[[on.create]]\ngo = \"-> open\"\ntake = [\"text\"]\n\
    [[on.close]]\ngo = \"open -> over\"\n";

fn note_files(max_text_length: usize) -> InputFiles {
    let text = NOTE_LIFECYCLE.replace("max = 100", &format!("max = {max_text_length}"));
    InputFiles { files: vec![InputFile { name: "note.toml".to_owned(), text: text.into() }] }
}

/// Starts a process with these files.
async fn start_engine(url: &str, clock: &Clock, files: &InputFiles) -> Engine<AnyStore> {
    let store = PostgresStore::open_with_clock(url, clock.clone()).await.expect("the database opens");
    let engine = Engine::open(AnyStore::Postgres(store), EngineConfig::default());
    engine.put_lifecycles(files).await.expect("valid files");
    engine
}

async fn create_note(engine: &Engine<AnyStore>) -> RecordId {
    engine.create(&user("ann"), "desk.note", json_object(json!({}))).await.expect("a note").subject
}

async fn version_of_record(engine: &Engine<AnyStore>, id: RecordId) -> Arc<str> {
    let record = engine.store().record(id).await.unwrap().unwrap();
    Arc::clone(&record.lifecycle.hash)
}

async fn version_of_new_record(engine: &Engine<AnyStore>) -> Arc<str> {
    version_of_record(engine, create_note(engine).await).await
}

/// Processes restart in every order. Existing records keep their version.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn known_older_version_never_becomes_current_on_deploy() {
    // `true` uploads the new version.
    let orders: [&[bool]; 5] = [
        &[false, true, false, true],
        &[false, false, true, false],
        &[true, false, true, false],
        &[false, true, true, false],
        &[true, false, false, true],
    ];
    for order in orders {
        let url = PostgresServer::shared().create_database();
        let clock = Clock::manual(start_time());
        let (old, new) = (note_files(100), note_files(200));
        let mut engines: Vec<Engine<AnyStore>> = Vec::new();
        let mut seen: BTreeMap<bool, Arc<str>> = BTreeMap::new();
        let (mut current, mut first) = (order[0], None);
        for (number, is_new) in order.iter().enumerate() {
            engines.push(start_engine(&url, &clock, if *is_new { &new } else { &old }).await);
            let made = version_of_new_record(&engines[number]).await;
            // Only a version that was never uploaded becomes current.
            if !seen.contains_key(is_new) {
                seen.insert(*is_new, made);
                current = *is_new;
            }
            for engine in &engines {
                assert_eq!(version_of_new_record(engine).await, seen[&current], "{order:?} after {number}");
            }
            if first.is_none() {
                let id = create_note(&engines[0]).await;
                first = Some((id, version_of_record(&engines[0], id).await));
            }
        }
        let (id, hash) = first.unwrap();
        for engine in &engines {
            assert_eq!(version_of_record(engine, id).await, hash, "records keep their version");
            engine.close().await;
        }
        assert_verified(&url, clock.now()).await;
    }
}

/// Restarting with the new files changes nothing. Then all records are migrated.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn activated_version_is_used_by_all_processes() {
    let url = PostgresServer::shared().create_database();
    let clock = Clock::manual(start_time());
    let one = start_engine(&url, &clock, &note_files(100)).await;
    let old = version_of_new_record(&one).await;
    let two = start_engine(&url, &clock, &note_files(200)).await;
    let new = version_of_new_record(&two).await;
    assert_ne!(old, new);
    assert!(
        one.activate_version(&user("ann"), "desk.note", &old).await.is_err(),
        "only an operator may activate a version"
    );
    for wrong in ["0123456", "0123456789"] {
        assert!(one.activate_version(&operator_actor(), "desk.note", wrong).await.is_err());
    }
    let used = one.activate_version(&operator_actor(), "desk.note", &old[..8]).await.expect("the lifecycle exists");
    assert_eq!(used.hash, old);
    assert_eq!(version_of_new_record(&two).await, old, "the next record of another process uses it");
    two.close().await;
    let three = start_engine(&url, &clock, &note_files(200)).await;
    for engine in [&one, &three] {
        assert_eq!(version_of_new_record(engine).await, old);
    }
    // Migrates all to the new version, which is not current; in small steps, by either process.
    let migration =
        VersionMigration { lifecycle: "desk.note".into(), to: Some(Arc::clone(&new)), ..VersionMigration::default() };
    let plan = three.plan_migration(&operator_actor(), &migration).await.unwrap();
    let records = plan.records();
    assert!(records >= 4, "{records}");
    let (mut after, mut migrated) = (None, 0);
    for engine in [&one, &three].into_iter().cycle() {
        let step = engine.migrate_records(&operator_actor(), &migration, after, 2).await.unwrap();
        assert!(step.skipped.is_empty(), "{:?}", step.skipped);
        migrated += step.migrated;
        after = step.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(migrated, records);
    assert_eq!(one.plan_migration(&operator_actor(), &migration).await.unwrap().records(), 0);
    let counts = three.counts_by_version(&operator_actor()).await.unwrap();
    assert!(counts.iter().all(|count| count.definition == new), "{counts:?}");
    assert_eq!(version_of_new_record(&one).await, old, "new records use the current version");
    let versions = three.lifecycles().await.unwrap().versions("desk.note");
    let activations: Vec<_> =
        versions.iter().map(|version| (version.is_current, version.activated_by.as_deref())).collect();
    assert_eq!(activations, [(true, Some("ops")), (false, None)]);
    for engine in [one, three] {
        engine.close().await;
    }
    assert_verified(&url, clock.now()).await;
}

/// A process that loaded nothing since would refuse it, and no save validates a refusal.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn lifecycle_of_other_process_is_known_immediately() {
    let url = PostgresServer::shared().create_database();
    let clock = Clock::manual(start_time());
    let one = start_engine(&url, &clock, &note_files(100)).await;
    let mut more = note_files(100);
    more.files.push(InputFile {
        name: "memo.toml".to_owned(),
        text: NOTE_LIFECYCLE.replace("desk.note", "desk.memo").into(),
    });
    let two = start_engine(&url, &clock, &more).await;
    one.create(&user("ann"), "desk.memo", json_object(json!({})))
        .await
        .expect("a lifecycle that the process has not loaded");
    two.put_lifecycles(&note_files(300)).await.expect("valid files");
    let long = json!({ "text": "x".repeat(250) });
    one.create(&user("ann"), "desk.note", json_object(long)).await.expect("the new version accepts the text");
    assert_verified(&url, start_time()).await;
}
