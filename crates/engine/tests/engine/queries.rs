//! Visibility: no query shows an owner the records of another.

use onceward_core::decide::{Call, CreateRecord};
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::record::{Actor, FencingToken};
use onceward_core::time::{Duration, Time};
use onceward_core::value::RecordId;
use onceward_engine::{Engine, EngineConfig, LeaseRequest, Submission};
use onceward_store::{AnyStore, ListQuery, Store};
use onceward_testkit::{user, user_with_roles, worker};
use serde_json::json;

use crate::support::{
    JOB_LIFECYCLE, TEST_TIMEOUT, config_without_polling, create_job, decency_checks, json_object, lease_one,
    on_each_store, operator_actor, reply_code, start_time,
};

async fn visible_records(engine: &Engine<AnyStore>, actor: &Actor) -> Vec<RecordId> {
    let page = engine.list(actor, &ListQuery { limit: 100, ..ListQuery::default() }).await.unwrap();
    page.records.iter().map(|record| record.id).collect()
}

async fn visibility_of(engine: &Engine<AnyStore>, actor: &Actor, id: RecordId) -> [bool; 4] {
    let any = |found: bool| found;
    [
        any(engine.get(actor, id).await.unwrap().is_some()),
        any(engine.history(actor, id, 0, 10).await.unwrap().is_some()),
        any(engine.executions(actor, id, FencingToken(0), 10).await.unwrap().is_some()),
        any(visible_records(engine, actor).await.contains(&id)),
    ]
}

/// INV-9: other actors get the reply of an unknown record.
#[test]
fn record_is_visible_only_to_owner_operator_and_lease_holder() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let (id, ann, eve, bob) = (create_job(engine).await, user("ann"), user("eve"), worker("bob"));
        assert_eq!(visibility_of(engine, &ann, id).await, [true; 4]);
        assert_eq!(visibility_of(engine, &operator_actor(), id).await, [true; 4]);
        assert_eq!(visibility_of(engine, &eve, id).await, [false; 4]);
        assert_eq!(visibility_of(engine, &bob, id).await, [false; 4], "a worker without the lease");
        let held = lease_one(engine).await.expect("the job");
        assert_eq!(visibility_of(engine, &bob, id).await[..3], [true; 3]);
        assert_eq!(visibility_of(engine, &worker("mallory"), id).await, [false; 4], "another worker");
        assert_eq!(visibility_of(engine, &user("bob"), id).await, [false; 4], "the same name without a worker's key");
        engine.commit(&bob, id, held.token, json!(1), true).await.unwrap();
        assert_eq!(visibility_of(engine, &bob, id).await, [false; 4], "the lease has ended");
        assert!(engine.effect(&ann, id).await.unwrap().is_some());
        assert!(engine.effect(&eve, id).await.unwrap().is_none());
    });
}

/// INV-9: operators see all entries.
#[test]
fn stream_shows_only_visible_records() {
    on_each_store(config_without_polling(), async |engine, _| {
        let anns = create_job(engine).await;
        let eves = engine.create(&user("eve"), JOB_LIFECYCLE, json_object(json!({}))).await.unwrap().subject;
        assert_eq!(reply_code(&engine.fire(&user("eve"), anns, "nothing", json_object(json!({}))).await), "not_found");
        let (ann, eve, all) =
            (engine.stream(&user("ann"), 0), engine.stream(&user("eve"), 0), engine.stream(&operator_actor(), 0));
        let mut seen_records = Vec::new();
        for (mut stream, expected) in [(ann, 1), (eve, 1), (all, 3)] {
            let mut records = Vec::new();
            for _ in 0..expected {
                let entry =
                    tokio::time::timeout(TEST_TIMEOUT, stream.next()).await.expect("no timeout").unwrap().unwrap();
                records.push(entry.record);
            }
            seen_records.push(records);
        }
        assert_eq!(seen_records, [vec![Some(anns)], vec![Some(eves)], vec![Some(anns), Some(eves), None]]);
    });
}

/// A gate names another guest when its time comes, and a room may be read by its gate's guest.
const GATE_LIFECYCLES: [&str; 2] = [
    r#"
language  = 1
lifecycle = "race.gate"
about     = "Names another guest when its time comes"

[states]
shut = { about = "for its first guest" }
open = { about = "for its second guest", rest = true }

[fields]
guest    = { type = "string", max = 100 }
later    = { type = "string", max = 100 }
opens_at = { type = "time" }

[[on.create]]
go   = "-> shut"
take = ["guest", "later", "opens_at"]

[[on.time]]
go  = "shut -> open"
at  = "opens_at"
set = { guest = "record.later" }
"#,
    r#"
language  = 1
lifecycle = "race.room"
about     = "For the guest of its gate"

[states]
up = { about = "to be read", rest = true }

[fields]
gate = { type = "ref", to = "race.gate" }

[who]
guest = "actor.id == record.gate.guest"

[access]
read = ["owner", "guest"]

[[on.create]]
go   = "-> up"
take = ["gate"]
"#,
];

/// The engine fires the timer that visibility depends on before it judges: in a stream, which would otherwise skip the
/// entry for good, and in a replayed create, which would otherwise hide the record.
#[test]
fn due_timer_is_fired_before_stream_and_replay_judge_visibility() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let file = |name: &str, text: &str| InputFile { name: name.to_owned(), text: text.into() };
        let [gate, room] = GATE_LIFECYCLES;
        let mut files = crate::support::lifecycle_files();
        files.files.extend([file("gate.toml", gate), file("room.toml", room)]);
        engine.put_lifecycles(&InputFiles { files: files.files }).await.unwrap();
        let opens_at = Time::from_micros(start_time().micros() + 3_600_000_000);
        let create_room = async |guest: &str| {
            let fields = json!({ "guest": "eve", "later": guest, "opens_at": opens_at.to_string() });
            let gate = engine.create(&operator_actor(), "race.gate", json_object(fields)).await.unwrap().subject;
            let fields = json_object(json!({ "gate": gate.to_string() }));
            let create = CreateRecord {
                lifecycle: "race.room".into(),
                id: None,
                owner: Some("bob".into()),
                fields,
                payload: None,
            };
            let submission = |actor: &Actor| {
                Submission::new(actor, Call::Create(create.clone())).with_idempotency_key(&format!("room for {guest}"))
            };
            let created = engine.submit(submission(&operator_actor())).await.unwrap().subject;
            // The same owner, whose API key is no longer an operator's.
            (created, submission(&user("ops")))
        };
        let (room, _) = create_room("zoe").await;
        let (_, repeated_create) = create_room("ops").await;
        let mut early = engine.stream(&user("zoe"), 0);
        let now = || Some(tokio::time::Instant::now());
        assert!(early.next_until(now()).await.unwrap().is_none(), "the gate still names another guest");
        // No timer runs by itself: the scheduler was not woken.
        clock.set(opens_at);
        let entry = engine.stream(&user("zoe"), 0).next_until(now()).await.unwrap();
        assert_eq!(entry.expect("the gate now names this guest").record, Some(room));
        let again = engine.submit(repeated_create).await.unwrap();
        assert!(again.replayed && again.record.is_some(), "the gate now names the caller");
    });
}

/// A lifecycle can widen it to anyone, or to actors that another record names.
#[test]
fn access_rules_widen_visibility() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let ann = user("ann");
        let board = engine.create(&ann, "race.board", json_object(json!({ "reader": "eve" }))).await.unwrap().subject;
        let made = engine.create(&ann, "race.pinned", json_object(json!({ "board": board.to_string() }))).await;
        let pinned = made.unwrap().subject;
        assert_eq!(visibility_of(engine, &user("zoe"), board).await, [true; 4], "every caller may read the board");
        assert_eq!(visibility_of(engine, &user("zoe"), pinned).await, [false; 4]);
        assert_eq!(visibility_of(engine, &user("eve"), pinned).await, [true; 4], "the board refers to the note");
        assert_eq!(visible_records(engine, &user("zoe")).await, [board]);
    });
}

/// INV-9
#[test]
fn pagination_reveals_nothing_of_hidden_records() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let zoe = user("zoe");
        let list_query = |owner: Option<&str>, lifecycle: Option<&str>, state: Option<&str>| ListQuery {
            owner: owner.map(Into::into),
            lifecycle: lifecycle.map(Into::into),
            state: state.map(Into::into),
            limit: 1,
            ..ListQuery::default()
        };
        let all = [
            list_query(Some("ann"), None, None),
            list_query(Some("ann"), Some(JOB_LIFECYCLE), None),
            list_query(None, None, Some("PENDING")),
            list_query(None, None, None),
            list_query(Some("ann"), Some("race.pinned"), None),
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
        let board = engine.create(&user("ann"), "race.board", json_object(json!({ "reader": "eve" }))).await.unwrap();
        engine.fire(&user("ann"), board.subject, "nothing", json_object(json!({}))).await.unwrap_err();
        for _ in 0..3 {
            create_job(engine).await;
            let fields = json_object(json!({ "board": board.subject.to_string() }));
            engine.create(&user("ann"), "race.pinned", fields).await.unwrap();
        }
        let after = pages().await;
        assert_eq!((&before[1..3], &before[4]), (&after[1..3], &after[4]));
        assert_eq!((after[0].0, after[3].0), (1, 1), "every caller may read the board");
    });
}

#[test]
fn counts_include_only_visible_records() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let (ann, eve) = (user("ann"), user("eve"));
        create_job(engine).await;
        create_job(engine).await;
        engine.create(&eve, JOB_LIFECYCLE, json_object(json!({}))).await.unwrap();
        engine.create(&ann, "race.board", json_object(json!({ "reader": "eve" }))).await.unwrap();
        let counted = async |actor: &Actor| -> Vec<(String, u64)> {
            let counts = engine.counts(actor).await.unwrap();
            counts.iter().map(|count| (count.lifecycle.to_string(), count.count)).collect()
        };
        let of = |jobs| vec![(JOB_LIFECYCLE.to_owned(), jobs), ("race.board".to_owned(), 1)];
        assert_eq!(counted(&ann).await, of(2));
        assert_eq!(counted(&eve).await, of(1));
        assert_eq!(counted(&operator_actor()).await, of(3));
        assert_eq!(counted(&user("zoe")).await, [("race.board".to_owned(), 1)]);
    });
}

#[test]
fn lists_and_counts_fire_due_timers_first() {
    on_each_store(EngineConfig { checks: decency_checks(), ..config_without_polling() }, async |engine, clock| {
        let ann = user("ann");
        for _ in 0..3 {
            engine.create(&ann, "race.note", json_object(json!({ "text": "hello" }))).await.unwrap();
        }
        clock.set(start_time().checked_add(Duration::from_secs(60)).unwrap());
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

/// A page with few visible records still has a next page.
#[test]
fn pages_respect_max_page_items() {
    on_each_store(EngineConfig { max_page_items: 2, ..EngineConfig::default() }, async |engine, _| {
        for _ in 0..5 {
            create_job(engine).await;
        }
        let all = ListQuery { limit: usize::MAX, ..ListQuery::default() };
        let page = engine.list(&operator_actor(), &all).await.unwrap();
        assert_eq!(page.records.len(), 2);
        assert!(page.next.is_some());
        let held =
            engine.lease(&worker("bob"), &LeaseRequest::single_job(JOB_LIFECYCLE, "w")).await.unwrap().pop().unwrap();
        engine.commit(&worker("bob"), held.record.id, held.token, json!(1), true).await.unwrap();
        let history = engine.history(&operator_actor(), held.record.id, 0, usize::MAX).await.unwrap().unwrap();
        assert_eq!((history.entries.len(), history.next), (2, Some(2)), "of three entries");
        let rest = engine.history(&operator_actor(), held.record.id, 2, usize::MAX).await.unwrap().unwrap();
        assert_eq!((rest.entries.len(), rest.next), (1, None));
        assert_eq!(engine.store().log(0, 100).await.unwrap().len(), 7);
    });
}

/// Every record is on some page; a record that is too large is alone on its page.
#[test]
fn pages_respect_max_page_bytes() {
    for (page_bytes, fit) in [(2_500, 2..=4), (1, 1..=1)] {
        on_each_store(EngineConfig { max_page_bytes: page_bytes, ..EngineConfig::default() }, async |engine, _| {
            let mut all = Vec::new();
            for _ in 0..9 {
                // A record of another owner in between.
                engine.create(&user("eve"), JOB_LIFECYCLE, json_object(json!({}))).await.unwrap();
                all.push(create_job(engine).await);
            }
            for actor in [user("ann"), operator_actor()] {
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
            let held = lease_one(engine).await.expect("a job");
            engine.commit(&worker("bob"), held.record.id, held.token, json!(1), true).await.unwrap();
            let story = engine.history(&operator_actor(), held.record.id, 0, 100).await.unwrap().unwrap();
            assert_eq!((story.entries.len(), story.next), if page_bytes == 1 { (1, Some(1)) } else { (3, None) });
        });
    }
}

/// Other actors that may see the record see only the hash.
#[test]
fn payload_is_readable_only_by_owner_and_lease_holder() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        let create = onceward_core::decide::CreateRecord {
            lifecycle: JOB_LIFECYCLE.into(),
            id: None,
            owner: None,
            fields: json_object(json!({})),
            payload: None,
        };
        let id = engine.create_with_payload(&user("ann"), create, *b"secret").await.unwrap().subject;
        let bytes = async |actor: &Actor| engine.payload(actor, id).await.unwrap().map(|bytes| bytes.to_vec());
        assert_eq!(bytes(&user("ann")).await.as_deref(), Some(&b"secret"[..]));
        assert_eq!(bytes(&operator_actor()).await, None);
        assert_eq!(bytes(&user_with_roles("eve", &["producer"])).await, None);
        lease_one(engine).await.expect("the job");
        assert_eq!(bytes(&worker("bob")).await.as_deref(), Some(&b"secret"[..]));
    });
}
