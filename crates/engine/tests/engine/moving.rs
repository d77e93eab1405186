//! Records are moved to another version, a few at a time.

use std::sync::Arc;

use onceward_core::diagnostic::{File, Files};
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use onceward_engine::{Config, Engine, EngineError, Moved, Moving, Wanted};
use onceward_store::{AnyStore, Store};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::stage::{object, on_each, ops, start};

const PARCEL: &str = r#"
language  = 1
lifecycle = "post.parcel"
about     = "Something to carry"

[states]
ready   = { about = "to be carried", ready = true }
carried = { about = "on its way" }
there   = { about = "it is there", final = true }

[fields]
to    = { type = "string", max = 20 }
grams = { type = "int", default = 0, max = 1000 }

[work]
lease = "30s"

[[on.create]]
go   = "-> ready"
take = ["to", "grams"]

[[on.lease]]
go = "ready -> carried"

[[on.commit]]
go = "carried -> there"

[[on.fail]]
go      = "carried -> ready"
forever = true
"#;

fn files(text: &str) -> Files {
    Files { files: vec![File { name: "parcel.toml".to_owned(), text: text.into() }] }
}

fn newer() -> String {
    PARCEL
        .replace("ready   = {", "waiting = {")
        .replace("-> ready", "-> waiting")
        .replace("\"ready ->", "\"waiting ->")
        .replace("max = 1000", "max = 500")
}

fn moving(states: &[(&str, &str)]) -> Moving {
    let states = states.iter().map(|(from, to)| (Arc::from(*from), Arc::from(*to))).collect();
    Moving { lifecycle: "post.parcel".into(), states, ..Moving::default() }
}

async fn parcel(engine: &Engine<AnyStore>, grams: u32) -> RecordId {
    let fields = object(json!({ "to": "ann", "grams": grams }));
    engine.create(&user("ann"), "post.parcel", fields).await.expect("a parcel").subject
}

async fn all(engine: &Engine<AnyStore>, moving: &Moving, limit: usize) -> Moved {
    let (mut all, mut after) = (Moved::default(), None);
    loop {
        let step = engine.move_some(&ops(), moving, after, limit).await.expect("a step");
        assert!(usize::try_from(step.moved).unwrap() + step.left.len() <= limit);
        all.moved += step.moved;
        all.left.extend(step.left);
        after = step.next;
        if after.is_none() {
            return all;
        }
    }
}

fn refusal(error: EngineError) -> String {
    let EngineError::Refused(refusal) = error else { panic!("{error}") };
    format!("{} {}: {}", refusal.status, refusal.code, refusal.reason)
}

#[test]
fn all_that_can_be_are_moved_and_the_others_are_named() {
    on_each(Config::default(), async |engine, clock| {
        engine.define(&files(PARCEL)).await.unwrap();
        for grams in [1, 2, 3, 700] {
            parcel(engine, grams).await;
        }
        let held = engine.lease(&worker("bob"), &Wanted::one("post.parcel", "w")).await.unwrap().pop().unwrap();
        engine.commit(&worker("bob"), held.record.id, held.token, json!(1), true).await.unwrap();
        let held = engine.lease(&worker("bob"), &Wanted::one("post.parcel", "w")).await.unwrap().pop().unwrap();
        engine.define(&files(&newer())).await.unwrap();
        let fresh = parcel(engine, 4).await;

        // What keeps all of them is said before anybody is moved.
        let why = refusal(engine.move_some(&ops(), &moving(&[]), None, 10).await.unwrap_err());
        assert!(why.starts_with("409 cannot_move") && why.contains("say with ready=…"), "{why}");
        let why = refusal(engine.plan_move(&ops(), &moving(&[("reddy", "waiting")])).await.unwrap_err());
        assert!(why.contains("has a state `reddy`"), "{why}");
        let why = refusal(engine.plan_move(&ops(), &moving(&[("ready", "gone")])).await.unwrap_err());
        assert!(why.contains("no state `gone` there"), "{why}");
        let why = engine.plan_move(&user("ann"), &moving(&[])).await.unwrap_err();
        assert_eq!((why.status(), why.code()), (403, "forbidden"));

        let asked = moving(&[("ready", "waiting")]);
        let plan = engine.plan_move(&ops(), &asked).await.unwrap();
        assert_eq!((plan.records(), plan.from.len()), (3, 1), "neither the one that has ended nor the new one");
        let before = engine.store().log(0, 1_000).await.unwrap().len();
        let tried = all(engine, &Moving { dry_run: true, ..asked.clone() }, 2).await;
        assert_eq!((tried.moved, tried.left.len()), (1, 2));
        assert_eq!(engine.store().log(0, 1_000).await.unwrap().len(), before, "nobody was moved");

        let moved = all(engine, &asked, 2).await;
        assert_eq!((moved.moved, moved.left.len()), (1, 2));
        assert_eq!(moved.left, tried.left);
        let codes: Vec<_> = moved.left.iter().map(|left| (&*left.code, &*left.reason)).collect();
        assert_eq!(codes[0].0, "already_leased");
        assert_eq!(codes[1], ("cannot_move", "`grams` must be from -9223372036854775808 to 500"));
        // Once the worker is gone, it goes, too; what is there is passed over.
        engine.yield_back(&worker("bob"), held.record.id, held.token).await.unwrap();
        let moved = all(engine, &asked, 10).await;
        assert_eq!((moved.moved, moved.left.len()), (1, 1));
        assert_eq!(&**engine.get(&ops(), held.record.id).await.unwrap().unwrap().state_name(), "waiting");
        assert_eq!(engine.get(&ops(), fresh).await.unwrap().unwrap().version, 1);
        // Those that have ended, where that is asked for.
        let moved = all(engine, &Moving { ended: true, ..asked }, 10).await;
        assert_eq!((moved.moved, moved.left.len()), (1, 1));
        clock.set(start().checked_add(Duration::from_secs(1)).unwrap());
        let leased =
            engine.lease(&worker("bob"), &Wanted { most: 10, ..Wanted::one("post.parcel", "w") }).await.unwrap();
        assert_eq!(leased.len(), 4, "by both versions");
    });
}
