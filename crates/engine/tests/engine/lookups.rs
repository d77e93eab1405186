//! Queries besides records: relations, accounts, statements and workers.

use std::time::Duration as Length;

use onceward_core::decide::Account;
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::record::Actor;
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use onceward_engine::{
    Engine, EngineConfig, LeaseRequest, PruneOptions, RecordRelations, RelatedRecord, RelationsQuery, RetentionPolicy,
    StatementCursor, WorkerList,
};
use onceward_store::{AccountName, AccountsQuery, AnyStore};
use onceward_testkit::{user, worker};
use serde_json::{Value as Json, json};

use crate::support::{
    JOB_LIFECYCLE, config_without_polling, create_job, json_object, lease_one, on_each_store, operator_actor,
    start_time,
};

/// The lifecycles of the store test suite: one has a link, one an asset.
fn suite_files() -> InputFiles {
    let file = |name: &str, text: &str| InputFile { name: name.to_owned(), text: text.into() };
    let files = vec![
        file("box.toml", include_str!("../../../store/tests/support/box.toml")),
        file("stub.toml", include_str!("../../../store/tests/support/stub.toml")),
        file("task.toml", include_str!("../../../store/tests/support/task.toml")),
    ];
    InputFiles { files }
}

async fn create_record(engine: &Engine<AnyStore>, owner: &str, lifecycle: &str, fields: Json) -> RecordId {
    engine.create(&user(owner), lifecycle, json_object(fields)).await.expect("a record").subject
}

async fn find_relations(
    engine: &Engine<AnyStore>,
    actor: &Actor,
    id: RecordId,
    query: RelationsQuery,
) -> Option<RecordRelations> {
    engine.relations(actor, id, &query).await.expect("the query succeeds")
}

fn record_ids(records: &[RelatedRecord]) -> Vec<RecordId> {
    records.iter().map(|record| record.id).collect()
}

fn relations_query(limit: usize) -> RelationsQuery {
    RelationsQuery { limit, ..RelationsQuery::default() }
}

/// A public board, and private notes on it.
fn board_files() -> InputFiles {
    let file = |name: &str, text: &str| InputFile { name: name.to_owned(), text: text.into() };
    let board = r#"
language  = 1
lifecycle = "look.board"
about     = "Every caller may read it"

[states]
up   = { about = "to be read", rest = true }
down = { about = "taken down", final = true }

[fields]
first = { type = "ref", to = "look.note", optional = true }
beside = { type = "refs", to = "look.board", optional = true }

[links]
notes = { from = "look.note.board", max = 100 }

[access]
read = ["anyone"]

[[on.create]]
go   = "-> up"
take = ["first", "beside"]

[[on.take_down]]
go     = "up -> down"
refuse = [{ if = "links.notes.exists(note, note.state == up)", as = "409 not_empty" }]
"#;
    let note = r#"
language  = 1
lifecycle = "look.note"
about     = "On a board"

[states]
up = { about = "to be read", rest = true }

[fields]
board = { type = "ref", to = "look.board", optional = true }

[[on.create]]
go   = "-> up"
take = ["board"]
"#;
    InputFiles { files: vec![file("board.toml", board), file("note.toml", note)] }
}

/// INV-9: pages too.
#[test]
fn relations_hide_records_the_caller_may_not_see() {
    on_each_store(EngineConfig::default(), async |engine, _| {
        engine.put_lifecycles(&board_files()).await.expect("valid files");
        let other = create_record(engine, "eve", "look.board", json!({})).await;
        let hidden = create_record(engine, "eve", "look.note", json!({})).await;
        let fields = json!({ "first": hidden.to_string(), "beside": [other.to_string()] });
        let own = create_record(engine, "eve", "look.board", fields).await;
        let mut tasks = Vec::new();
        for owner in ["ann", "eve", "eve", "ann", "ann"] {
            tasks.push(create_record(engine, owner, "look.note", json!({ "board": own.to_string() })).await);
        }
        let whole = find_relations(engine, &operator_actor(), own, relations_query(10))
            .await
            .expect("an operator may read the record");
        let refs: Vec<_> = whole.refs.iter().map(|(field, records)| (&**field, record_ids(records))).collect();
        assert_eq!(refs, [("first", vec![hidden]), ("beside", vec![other])]);
        assert_eq!((whole.links.len(), &*whole.links[0].0, whole.links[0].1.next), (1, "notes", None));
        assert_eq!(record_ids(&whole.links[0].1.records), tasks);
        let anns = find_relations(engine, &user("ann"), own, relations_query(10))
            .await
            .expect("every caller may read the record");
        let refs: Vec<_> = anns.refs.iter().map(|(field, records)| (&**field, record_ids(records))).collect();
        assert_eq!(refs, [("beside", vec![other])], "the note belongs to eve");
        assert_eq!(record_ids(&anns.links[0].1.records), [tasks[0], tasks[3], tasks[4]]);
        assert!(
            find_relations(engine, &user("ann"), hidden, relations_query(10)).await.is_none(),
            "a hidden record looks like a missing one"
        );
        // Page by page, of one link.
        let (mut found, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let query = RelationsQuery { link: Some("notes".into()), after, limit: 2 };
            let page = find_relations(engine, &user("ann"), own, query).await.expect("ann may read the record");
            assert!(page.refs.is_empty());
            let (_, page) = page.links.into_iter().next().expect("the link");
            found.extend(record_ids(&page.records));
            (after, pages) = (page.next, pages + 1);
            if after.is_none() {
                break;
            }
        }
        assert_eq!(
            (found, pages),
            (vec![tasks[0], tasks[3], tasks[4]], 2),
            "hidden records do not count toward a page"
        );
        let none = RelationsQuery { link: Some("nothing".into()), ..relations_query(2) };
        assert!(find_relations(engine, &operator_actor(), own, none).await.expect("it exists").links.is_empty());
    });
}

fn coin_account(name: &str) -> AccountName {
    AccountName::new("coin", name)
}

#[test]
fn statement_balances_add_up_across_pages_and_pruning() {
    on_each_store(EngineConfig::default(), async |engine, clock| {
        engine.put_lifecycles(&suite_files()).await.expect("valid files");
        let ann = user("ann");
        let id = create_record(engine, "ann", "suite.box", json!({})).await;
        for (event, amount) in [("earn", 50), ("spend", 20), ("earn", 5), ("spend", 1), ("spend", 4)] {
            engine.fire(&ann, id, event, json_object(json!({ "amount": amount }))).await.expect("a transfer");
        }
        let whole = engine
            .statement(&operator_actor(), &coin_account("purse:ann"), None, 100)
            .await
            .unwrap()
            .expect("an account");
        let lines: Vec<_> = whole.lines.iter().map(|line| (&*line.event, line.amount, line.balance)).collect();
        let expected = [("spend", -4, 30), ("spend", -1, 34), ("earn", 5, 35), ("spend", -20, 30), ("earn", 50, 50)];
        assert_eq!(lines, expected);
        assert!(whole.lines.iter().all(|line| line.record == id && line.logged_at == start_time()));
        let shop = Account::Named { asset: "coin".into(), name: "shop".into() };
        assert_eq!(
            (&whole.lines[0].counterparty, whole.current.balance, whole.next, whole.opening_balance),
            (&shop, 30, None, Some(0))
        );
        let (mut paged, mut from) = (Vec::new(), None);
        loop {
            let page = engine
                .statement(&operator_actor(), &coin_account("purse:ann"), from, 2)
                .await
                .unwrap()
                .expect("an account");
            assert_eq!(page.opening_balance.is_none(), page.next.is_some());
            paged.extend(page.lines);
            // The cursor as a caller sends it back.
            from = page
                .next
                .map(|next| next.to_string().parse::<StatementCursor>().expect("the cursor parses its own text"));
            if from.is_none() {
                break;
            }
        }
        assert_eq!(paged, whole.lines);
        // Transfers of pruned records form the opening balance.
        let stub = create_record(engine, "ann", "suite.stub", json!({ "price": 7 })).await;
        engine.fire(&ann, stub, "tear", json_object(json!({}))).await.expect("torn");
        let other = create_record(engine, "ann", "suite.stub", json!({ "price": 2 })).await;
        clock.set(start_time().checked_add(Duration::from_secs(10)).unwrap());
        engine.fire(&ann, other, "tear", json_object(json!({}))).await.expect("torn");
        let retention = RetentionPolicy { records_ttl: Some(Length::from_secs(5)), ..RetentionPolicy::default() };
        engine.prune(&PruneOptions { retention, ..PruneOptions::default() }).await.expect("pruning");
        let till =
            engine.statement(&operator_actor(), &coin_account("till:ann"), None, 9).await.unwrap().expect("an account");
        let lines: Vec<_> = till.lines.iter().map(|line| (line.record, line.amount, line.balance)).collect();
        assert_eq!((lines, till.current.balance, till.opening_balance), (vec![(other, 2, 9)], 9, Some(7)));
        assert!(engine.statement(&operator_actor(), &coin_account("unknown"), None, 9).await.unwrap().is_none());
        // Operators only.
        let refused = engine.statement(&ann, &coin_account("purse:ann"), None, 9).await.unwrap_err();
        assert_eq!((refused.status(), refused.code()), (403, "forbidden"));
        assert_eq!(engine.accounts(&ann, &AccountsQuery::default()).await.unwrap_err().code(), "forbidden");
        assert_eq!(engine.account(&ann, &coin_account("purse:ann")).await.unwrap_err().code(), "forbidden");
        let one = engine
            .account(&Actor::engine(), &coin_account("purse:ann"))
            .await
            .unwrap()
            .expect("the engine may read accounts");
        let listed = engine.accounts(&operator_actor(), &AccountsQuery { after: None, limit: 100 }).await.unwrap();
        assert!(one.balance == 30 && listed.contains(&one));
        assert_eq!(listed.iter().map(|one| one.balance).sum::<i64>(), 0, "the balances sum to zero");
    });
}

fn worker_summaries(workers: &WorkerList) -> Vec<(&str, &str, usize, u64)> {
    let counts = |worker: &'_ onceward_engine::WorkerStatus| (worker.lifecycles.len(), worker.live_leases);
    let all = workers.workers.iter();
    all.map(|worker| (&*worker.name.holder, &*worker.name.worker, counts(worker).0, counts(worker).1)).collect()
}

/// An operator sees all workers, other actors their own.
#[test]
fn workers_are_listed_with_the_leases_they_hold() {
    on_each_store(config_without_polling(), async |engine, _| {
        assert!(engine.workers(&operator_actor(), 9).await.unwrap().workers.is_empty());
        create_job(engine).await;
        lease_one(engine).await.expect("the job");
        let idle = LeaseRequest {
            lifecycles: vec![JOB_LIFECYCLE.into(), "race.lane".into()],
            ..LeaseRequest::single_job(JOB_LIFECYCLE, "idle")
        };
        assert!(engine.lease(&worker("eve"), &idle).await.unwrap().is_empty());
        let all = engine.workers(&operator_actor(), 9).await.unwrap();
        let mut found = worker_summaries(&all);
        found.sort_unstable();
        assert_eq!((found, all.is_complete), (vec![("bob", "w", 1, 1), ("eve", "idle", 2, 0)], true));
        assert!(all.workers.iter().all(|worker| worker.last_seen_at.is_some_and(|seen| seen <= start_time())));
        assert_eq!(worker_summaries(&engine.workers(&worker("eve"), 9).await.unwrap()), [("eve", "idle", 2, 0)]);
        assert_eq!(engine.workers(&operator_actor(), 1).await.unwrap().workers.len(), 1);
        // A name that no database accepts is not recorded.
        let odd = LeaseRequest::single_job(JOB_LIFECYCLE, "w\0");
        let reply = engine.lease(&worker("eve"), &odd).await.map(|leased| leased.len());
        assert_eq!(reply.map_err(|error| error.code().to_owned()), Ok(0));
        assert_eq!(engine.workers(&operator_actor(), 9).await.unwrap().workers.len(), 2);
    });
}
