//! Who sees what: one owner never another's, in every way of looking.

use onceward_core::record::{Actor, Token};
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use onceward_engine::{Config, Engine, Wanted};
use onceward_store::{AnyStore, ListQuery, Store};
use onceward_testkit::{user, user_with, worker};
use serde_json::json;

use crate::stage::{JOB, LONG, code, decency, job, leased, object, on_each, ops, start, unpolled};

async fn seen(engine: &Engine<AnyStore>, actor: &Actor) -> Vec<RecordId> {
    let page = engine.list(actor, &ListQuery { limit: 100, ..ListQuery::default() }).await.unwrap();
    page.records.iter().map(|record| record.id).collect()
}

async fn sees(engine: &Engine<AnyStore>, actor: &Actor, id: RecordId) -> [bool; 4] {
    let any = |found: bool| found;
    [
        any(engine.get(actor, id).await.unwrap().is_some()),
        any(engine.history(actor, id, 0, 10).await.unwrap().is_some()),
        any(engine.executions(actor, id, Token(0), 10).await.unwrap().is_some()),
        any(seen(engine, actor).await.contains(&id)),
    ]
}

/// INV-9: a record is there for its owner, for operators, and for who holds its lease while it lasts. For anybody else it is
/// as if there were none.
#[test]
fn a_record_is_its_owners() {
    on_each(Config::default(), async |engine, _| {
        let (id, ann, eve, bob) = (job(engine).await, user("ann"), user("eve"), worker("bob"));
        assert_eq!(sees(engine, &ann, id).await, [true; 4]);
        assert_eq!(sees(engine, &ops(), id).await, [true; 4]);
        assert_eq!(sees(engine, &eve, id).await, [false; 4]);
        assert_eq!(sees(engine, &bob, id).await, [false; 4], "a worker without the lease");
        let held = leased(engine).await.expect("the job");
        assert_eq!(sees(engine, &bob, id).await[..3], [true; 3]);
        assert_eq!(sees(engine, &worker("mallory"), id).await, [false; 4], "another worker");
        assert_eq!(sees(engine, &user("bob"), id).await, [false; 4], "the same name without a worker's key");
        engine.commit(&bob, id, held.token, json!(1), true).await.unwrap();
        assert_eq!(sees(engine, &bob, id).await, [false; 4], "the lease is over");
        assert!(engine.effect(&ann, id).await.unwrap().is_some());
        assert!(engine.effect(&eve, id).await.unwrap().is_none());
    });
}

/// INV-9: the log stream tells each of the records that it may see, and operators everything.
#[test]
fn a_stream_is_its_readers() {
    on_each(unpolled(), async |engine, _| {
        let anns = job(engine).await;
        let eves = engine.create(&user("eve"), JOB, object(json!({}))).await.unwrap().subject;
        assert_eq!(code(&engine.fire(&user("eve"), anns, "nothing", object(json!({}))).await), "not_found");
        let (ann, eve, all) =
            (engine.stream(&user("ann"), 0), engine.stream(&user("eve"), 0), engine.stream(&ops(), 0));
        let mut told = Vec::new();
        for (mut stream, expected) in [(ann, 1), (eve, 1), (all, 3)] {
            let mut records = Vec::new();
            for _ in 0..expected {
                let entry = tokio::time::timeout(LONG, stream.next()).await.expect("in time").unwrap().unwrap();
                records.push(entry.record);
            }
            told.push(records);
        }
        assert_eq!(told, [vec![Some(anns)], vec![Some(eves)], vec![Some(anns), Some(eves), None]]);
    });
}

/// A lifecycle's own word widens what is seen: to anyone, or to whom it names, by what another record says.
#[test]
fn a_lifecycle_may_show_more() {
    on_each(Config::default(), async |engine, _| {
        let ann = user("ann");
        let board = engine.create(&ann, "race.board", object(json!({ "reader": "eve" }))).await.unwrap().subject;
        let made = engine.create(&ann, "race.pinned", object(json!({ "board": board.to_string() }))).await;
        let pinned = made.unwrap().subject;
        assert_eq!(sees(engine, &user("zoe"), board).await, [true; 4], "open to anyone");
        assert_eq!(sees(engine, &user("zoe"), pinned).await, [false; 4]);
        assert_eq!(sees(engine, &user("eve"), pinned).await, [true; 4], "the board names her");
        assert_eq!(seen(engine, &user("zoe")).await, [board]);
    });
}

/// INV-9: how a list is cut into pages tells nothing of what is not on them, whatever is asked for.
#[test]
fn pages_tell_nothing_of_what_is_hidden() {
    on_each(Config::default(), async |engine, _| {
        let zoe = user("zoe");
        let asked = |owner: Option<&str>, lifecycle: Option<&str>, state: Option<&str>| ListQuery {
            owner: owner.map(Into::into),
            lifecycle: lifecycle.map(Into::into),
            state: state.map(Into::into),
            limit: 1,
            ..ListQuery::default()
        };
        let all = [
            asked(Some("ann"), None, None),
            asked(Some("ann"), Some(JOB), None),
            asked(None, None, Some("PENDING")),
            asked(None, None, None),
            asked(Some("ann"), Some("race.pinned"), None),
        ];
        let pages = async || {
            let mut pages = Vec::new();
            for query in &all {
                let page = engine.list(&zoe, query).await.unwrap();
                pages.push((page.records.len(), page.next));
            }
            pages
        };
        let before = pages().await;
        let board = engine.create(&user("ann"), "race.board", object(json!({ "reader": "eve" }))).await.unwrap();
        engine.fire(&user("ann"), board.subject, "nothing", object(json!({}))).await.unwrap_err();
        for _ in 0..3 {
            job(engine).await;
            let fields = object(json!({ "board": board.subject.to_string() }));
            engine.create(&user("ann"), "race.pinned", fields).await.unwrap();
        }
        let after = pages().await;
        assert_eq!((&before[1..3], &before[4]), (&after[1..3], &after[4]));
        assert_eq!((after[0].0, after[3].0), (1, 1), "the board is open to anyone");
    });
}

/// Counts are of what is one's own, of what is open to anyone, or, for operators, of all.
#[test]
fn counts_are_of_what_may_be_seen() {
    on_each(Config::default(), async |engine, _| {
        let (ann, eve) = (user("ann"), user("eve"));
        job(engine).await;
        job(engine).await;
        engine.create(&eve, JOB, object(json!({}))).await.unwrap();
        engine.create(&ann, "race.board", object(json!({ "reader": "eve" }))).await.unwrap();
        let counted = async |actor: &Actor| -> Vec<(String, u64)> {
            let counts = engine.counts(actor).await.unwrap();
            counts.iter().map(|count| (count.lifecycle.to_string(), count.count)).collect()
        };
        let of = |jobs| vec![(JOB.to_owned(), jobs), ("race.board".to_owned(), 1)];
        assert_eq!(counted(&ann).await, of(2));
        assert_eq!(counted(&eve).await, of(1));
        assert_eq!(counted(&ops()).await, of(3));
        assert_eq!(counted(&user("zoe")).await, [("race.board".to_owned(), 1)]);
    });
}

/// A list and a count show nothing whose time is over, though nobody told the engine that time went by.
#[test]
fn lists_and_counts_are_up_to_date() {
    on_each(Config { checks: decency(), ..unpolled() }, async |engine, clock| {
        let ann = user("ann");
        for _ in 0..3 {
            engine.create(&ann, "race.note", object(json!({ "text": "hello" }))).await.unwrap();
        }
        clock.set(start().checked_add(Duration::from_secs(60)).unwrap());
        let of = |state: &str| ListQuery {
            lifecycle: Some("race.note".into()),
            state: Some(state.into()),
            limit: 2,
            ..ListQuery::default()
        };
        assert!(engine.list(&ann, &of("kept")).await.unwrap().records.is_empty());
        let page = engine.list(&ann, &of("gone")).await.unwrap();
        assert_eq!(page.records.len(), 2);
        let rest = engine.list(&ann, &ListQuery { after: page.next, ..of("gone") }).await.unwrap();
        assert_eq!((rest.records.len(), rest.next), (1, None));
        let counts = engine.counts(&ann).await.unwrap();
        assert_eq!((counts.len(), &*counts[0].state, counts[0].count), (1, "gone", 3));
    });
}

/// Pages are bounded however much is asked for, and a page of which little may be seen tells where to go on.
#[test]
fn pages_are_bounded() {
    on_each(Config { page: 2, ..Config::default() }, async |engine, _| {
        for _ in 0..5 {
            job(engine).await;
        }
        let all = ListQuery { limit: usize::MAX, ..ListQuery::default() };
        let page = engine.list(&ops(), &all).await.unwrap();
        assert_eq!(page.records.len(), 2);
        assert!(page.next.is_some());
        let held = engine.lease(&worker("bob"), &Wanted::one(JOB, "w")).await.unwrap().pop().unwrap();
        engine.commit(&worker("bob"), held.record.id, held.token, json!(1), true).await.unwrap();
        let history = engine.history(&ops(), held.record.id, 0, usize::MAX).await.unwrap().unwrap();
        assert_eq!((history.entries.len(), history.next), (2, Some(2)), "of three entries");
        let rest = engine.history(&ops(), held.record.id, 2, usize::MAX).await.unwrap().unwrap();
        assert_eq!((rest.entries.len(), rest.next), (1, None));
        assert_eq!(engine.store().log(0, 100).await.unwrap().len(), 7);
    });
}

/// Nor do they grow with what is in them. What is on none of them is on no page at all, so all are there; and one that is too large
/// by itself is shown by itself.
#[test]
fn pages_are_bounded_in_bytes() {
    for (page_bytes, fit) in [(2_500, 2..=4), (1, 1..=1)] {
        on_each(Config { page_bytes, ..Config::default() }, async |engine, _| {
            let mut all = Vec::new();
            for _ in 0..9 {
                // Of somebody else, between them.
                engine.create(&user("eve"), JOB, object(json!({}))).await.unwrap();
                all.push(job(engine).await);
            }
            for actor in [user("ann"), ops()] {
                let mut query = ListQuery { limit: 100, ..ListQuery::default() };
                let mut listed = Vec::new();
                loop {
                    let page = engine.list(&actor, &query).await.unwrap();
                    if page.next.is_some() {
                        assert!(fit.contains(&page.records.len()), "{} of {page_bytes} bytes", page.records.len());
                    }
                    listed.extend(page.records.iter().filter(|record| &*record.owner == "ann").map(|record| record.id));
                    query.after = page.next;
                    if query.after.is_none() {
                        break;
                    }
                }
                assert_eq!(listed, all);
            }
            let held = leased(engine).await.expect("a job");
            engine.commit(&worker("bob"), held.record.id, held.token, json!(1), true).await.unwrap();
            let story = engine.history(&ops(), held.record.id, 0, 100).await.unwrap().unwrap();
            assert_eq!((story.entries.len(), story.next), if page_bytes == 1 { (1, Some(1)) } else { (3, None) });
        });
    }
}

/// The bytes of a payload are for its owner and for who works on it; others who may see the record see its hash.
#[test]
fn a_payload_is_not_for_all_who_see_its_record() {
    on_each(Config::default(), async |engine, _| {
        let create = onceward_core::decide::Create {
            lifecycle: JOB.into(),
            id: None,
            owner: None,
            fields: object(json!({})),
            payload: None,
        };
        let id = engine.create_with(&user("ann"), create, *b"secret").await.unwrap().subject;
        let bytes = async |actor: &Actor| engine.payload(actor, id).await.unwrap().map(|bytes| bytes.to_vec());
        assert_eq!(bytes(&user("ann")).await.as_deref(), Some(&b"secret"[..]));
        assert_eq!(bytes(&ops()).await, None);
        assert_eq!(bytes(&user_with("eve", &["producer"])).await, None);
        leased(engine).await.expect("the job");
        assert_eq!(bytes(&worker("bob")).await.as_deref(), Some(&b"secret"[..]));
    });
}
