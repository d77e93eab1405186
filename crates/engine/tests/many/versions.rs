//! Processes that bring different versions of a lifecycle to one database: a rolling deploy, and an operator's word.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceward_core::diagnostic::{File, Files};
use onceward_core::value::RecordId;
use onceward_engine::{Config, Engine, Moving};
use onceward_store::{AnyStore, Clock, PostgresStore, Store};
use onceward_testkit::postgres::Server;
use onceward_testkit::user;
use serde_json::json;

use crate::proven;
use crate::stage::{object, ops, start, wait};

const NOTE: &str = "language = 1\nlifecycle = \"desk.note\"\nabout = \"Something to remember\"\n[states]\n\
    open = { about = \"to do\", rest = true }\nover = { about = \"done\", final = true }\n[fields]\n\
    text = { type = \"string\", max = 100, default = \"\" }\n[[on.create]]\ngo = \"-> open\"\ntake = [\"text\"]\n\
    [[on.close]]\ngo = \"open -> over\"\n";

fn files(longest: usize) -> Files {
    let text = NOTE.replace("max = 100", &format!("max = {longest}"));
    Files { files: vec![File { name: "note.toml".to_owned(), text: text.into() }] }
}

/// A process that starts with these files.
async fn started(url: &str, clock: &Clock, files: &Files) -> Engine<AnyStore> {
    let store = PostgresStore::open_with_clock(url, clock.clone()).await.expect("the database opens");
    let engine = Engine::open(AnyStore::Postgres(store), Config::default());
    engine.define(files).await.expect("sound files");
    engine
}

async fn note(engine: &Engine<AnyStore>) -> RecordId {
    engine.create(&user("ann"), "desk.note", object(json!({}))).await.expect("a note").subject
}

async fn version(engine: &Engine<AnyStore>, id: RecordId) -> Arc<str> {
    let record = engine.store().record(id).await.unwrap().unwrap();
    Arc::clone(&record.lifecycle.hash)
}

async fn made_by(engine: &Engine<AnyStore>) -> Arc<str> {
    version(engine, note(engine).await).await
}

/// Old and new processes start and start again in every order: once the new version came, nobody makes records by the old one, and
/// those that are there keep theirs.
#[test]
fn a_rolling_deploy_does_not_flap() {
    wait(async {
        // `true` brings the new version.
        let orders: [&[bool]; 5] = [
            &[false, true, false, true],
            &[false, false, true, false],
            &[true, false, true, false],
            &[false, true, true, false],
            &[true, false, false, true],
        ];
        for order in orders {
            let url = Server::shared().database();
            let clock = Clock::manual(start());
            let (old, new) = (files(100), files(200));
            let mut engines: Vec<Engine<AnyStore>> = Vec::new();
            let mut seen: BTreeMap<bool, Arc<str>> = BTreeMap::new();
            let (mut current, mut first) = (order[0], None);
            for (number, is_new) in order.iter().enumerate() {
                engines.push(started(&url, &clock, if *is_new { &new } else { &old }).await);
                let made = made_by(&engines[number]).await;
                // Only one that was never seen becomes current.
                if !seen.contains_key(is_new) {
                    seen.insert(*is_new, made);
                    current = *is_new;
                }
                for engine in &engines {
                    assert_eq!(made_by(engine).await, seen[&current], "{order:?} after {number}");
                }
                if first.is_none() {
                    let id = note(&engines[0]).await;
                    first = Some((id, version(&engines[0], id).await));
                }
            }
            let (id, hash) = first.unwrap();
            for engine in &engines {
                assert_eq!(version(engine, id).await, hash, "records keep theirs");
                engine.close().await;
            }
            proven(&url, clock.now()).await;
        }
    });
}

/// An operator goes back to the old version at one process: the others make records by it at once, and whoever starts again with the
/// new files changes nothing. Then all are moved.
#[test]
fn an_operators_word_counts_everywhere() {
    wait(async {
        let url = Server::shared().database();
        let clock = Clock::manual(start());
        let one = started(&url, &clock, &files(100)).await;
        let old = made_by(&one).await;
        let two = started(&url, &clock, &files(200)).await;
        let new = made_by(&two).await;
        assert_ne!(old, new);
        assert!(one.use_version(&user("ann"), "desk.note", &old).await.is_err(), "not everybody's word");
        for wrong in ["0123456", "0123456789"] {
            assert!(one.use_version(&ops(), "desk.note", wrong).await.is_err());
        }
        let used = one.use_version(&ops(), "desk.note", &old[..8]).await.expect("it is known");
        assert_eq!(used.hash, old);
        assert_eq!(made_by(&two).await, old, "the very next record of another process");
        two.close().await;
        let three = started(&url, &clock, &files(200)).await;
        for engine in [&one, &three] {
            assert_eq!(made_by(engine).await, old);
        }
        // All to the new one, which is not even current; a few at a time, by either process.
        let moving = Moving { lifecycle: "desk.note".into(), to: Some(Arc::clone(&new)), ..Moving::default() };
        let plan = three.plan_move(&ops(), &moving).await.unwrap();
        let records = plan.records();
        assert!(records >= 4, "{records}");
        let (mut after, mut moved) = (None, 0);
        for engine in [&one, &three].into_iter().cycle() {
            let step = engine.move_some(&ops(), &moving, after, 2).await.unwrap();
            assert!(step.left.is_empty(), "{:?}", step.left);
            moved += step.moved;
            after = step.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(moved, records);
        assert_eq!(one.plan_move(&ops(), &moving).await.unwrap().records(), 0);
        let counts = three.counts_by_version(&ops()).await.unwrap();
        assert!(counts.iter().all(|count| count.definition == new), "{counts:?}");
        assert_eq!(made_by(&one).await, old, "new ones are made by what is current");
        let versions = three.lifecycles().await.unwrap().versions("desk.note");
        let said: Vec<_> = versions.iter().map(|version| (version.is_current, version.by.as_deref())).collect();
        assert_eq!(said, [(true, Some("ops")), (false, None)]);
        for engine in [one, three] {
            engine.close().await;
        }
        proven(&url, clock.now()).await;
    });
}

/// A lifecycle that another process has brought is known to one that has loaded nothing since: it would refuse what nobody compares.
#[test]
fn what_another_process_brings_is_known_at_once() {
    wait(async {
        let url = Server::shared().database();
        let clock = Clock::manual(start());
        let one = started(&url, &clock, &files(100)).await;
        let mut more = files(100);
        more.files.push(File { name: "memo.toml".to_owned(), text: NOTE.replace("desk.note", "desk.memo").into() });
        let two = started(&url, &clock, &more).await;
        one.create(&user("ann"), "desk.memo", object(json!({}))).await.expect("a lifecycle that is new here");
        two.define(&files(300)).await.expect("sound files");
        let long = json!({ "text": "x".repeat(250) });
        one.create(&user("ann"), "desk.note", object(long)).await.expect("the new version takes it");
        proven(&url, start()).await;
    });
}
