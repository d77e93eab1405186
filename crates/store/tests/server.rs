//! What belongs to PostgreSQL alone: a server that many processes share.

mod stage;

use std::sync::Arc;

use onceward_core::decide::{Account, Call, Key};
use onceward_core::diagnostic::File;
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use onceward_store::scan::Scan as _;
use onceward_store::{
    Base, Clock, LeaseQuery, LetterAnswer, OldCounts, PostgresStore, PostgresView, Refused, Save, Store, StoreError,
};
use onceward_testkit::postgres::{Server, psql};
use onceward_testkit::{user, worker};
use serde_json::json;
use stage::driver::{Driver, create, fire};
use stage::{start, suite, wait};

async fn open(url: &str) -> Result<PostgresStore, StoreError> {
    PostgresStore::open_with_clock(url, Clock::manual(start())).await
}

/// Many processes that start at once on an empty database: one makes the schema, all of them work.
#[test]
fn all_start_at_once() {
    wait(async {
        let url = Server::shared().database();
        let opening: Vec<_> = (0..8)
            .map(|_| {
                let url = url.clone();
                tokio::spawn(async move { open(&url).await.map(|_| ()) })
            })
            .collect();
        for one in opening {
            one.await.expect("no panic").expect("it opens");
        }
        assert_eq!(psql(&url, "SELECT count(*) FROM onceward.migrations WHERE number > 0"), "1");
    });
}

/// Nobody else's schema is taken for ours, and none is harmed.
#[test]
fn other_databases_are_refused() {
    wait(async {
        let url = Server::shared().database();
        psql(&url, "CREATE SCHEMA onceward CREATE TABLE theirs (x int)");
        let found = open(&url).await;
        assert!(
            matches!(&found, Err(StoreError::NoDatabase(why)) if why.contains("not one of Onceward's")),
            "{found:?}"
        );
        let url = Server::shared().database();
        drop(open(&url).await.unwrap());
        psql(&url, "INSERT INTO onceward.migrations VALUES (99, now())");
        let found = open(&url).await;
        assert!(matches!(found, Err(StoreError::TooNew { found: 99, known: 1 })), "{found:?}");
        for url in ["postgres://nobody@%2Fnowhere%2Fat-all/x", "nonsense://", &format!("{url}_not")] {
            let found = open(url).await;
            assert!(matches!(found, Err(StoreError::Unavailable(_))), "{found:?}");
        }
    });
}

/// The database itself will not have a second effect nor a balance below nothing, whoever writes.
#[test]
fn the_database_holds_its_constraints_alone() {
    wait(async {
        let url = Server::shared().database();
        let store = open(&url).await.unwrap();
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(&store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let task = driver.create(&ann, "suite.task", json!({}), start()).await;
        let token = driver.lease(&bob, task, start()).await;
        driver.ok(&bob, Call::Commit { record: task, token, result: json!(1), finish: true }, start()).await;
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        for (sql, constraint) in [
            ("INSERT INTO onceward.effects SELECT * FROM onceward.effects", "effects_pkey"),
            ("INSERT INTO onceward.accounts VALUES ('coin', 'x', false, -1)", "accounts_check"),
            ("UPDATE onceward.records SET hold = -1", "records_hold_check"),
            ("UPDATE onceward.tallies SET count = -1", "tallies_count_check"),
            ("INSERT INTO onceward.counts VALUES (1, 1, 'x', 1, -1)", "counts_count_check"),
            ("INSERT INTO onceward.batches SELECT last, first, batch + 1 FROM onceward.batches", "batches_pkey"),
        ] {
            let error = client.batch_execute(sql).await.expect_err(sql);
            let found = error.as_db_error().and_then(|error| error.constraint()).unwrap_or_default().to_owned();
            assert_eq!(found, constraint, "{sql}");
        }
    });
}

/// Every table has a primary key, and nothing of ours stands outside of our schema.
#[test]
fn every_table_has_a_primary_key() {
    wait(async {
        let url = Server::shared().database();
        drop(open(&url).await.unwrap());
        let bare = "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'onceward'::regnamespace AND c.relkind = 'r' \
                    AND NOT EXISTS (SELECT FROM pg_constraint p WHERE p.conrelid = c.oid AND p.contype = 'p')";
        assert_eq!(psql(&url, bare), "");
        assert_eq!(psql(&url, "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"), "0");
    });
}

/// What one process brings, another learns when it meets it: definitions, names and records.
#[test]
fn definitions_of_another_process_are_learnt() {
    wait(async {
        let url = Server::shared().database();
        let (one, two) = (open(&url).await.unwrap(), open(&url).await.unwrap());
        one.put_definitions(&suite()).await.unwrap();
        assert_eq!(two.definitions().await.unwrap().number(), 0);
        let ann = user("ann");
        let id = Driver::new(&one).await.create(&ann, "suite.box", json!({ "name": "mine" }), start()).await;
        let found = two.record(id).await.unwrap().unwrap();
        assert_eq!(&*found.lifecycle.name, "suite.box");
        assert_eq!(two.definitions().await.unwrap().number(), one.definitions().await.unwrap().number());
        // A new version, and a record by it, loaded as part of a batch.
        let mut files = suite();
        let File { text, .. } = &mut files.files[0];
        *text = text.replace("max = 10, clash", "max = 11, clash").into();
        one.put_definitions(&files).await.unwrap();
        let newer = one.definitions().await.unwrap().number();
        let mut driver = Driver::new(&one).await;
        for _ in 0..50 {
            let _ = driver.operation(&ann, create("suite.box", json!({})));
        }
        let id = driver.create(&ann, "suite.box", json!({}), start()).await;
        let mut base = Base::default();
        two.load(&mut base, &[Key::Record(id)]).await.unwrap();
        assert!(base.snapshot().record(id).is_some());
        assert_eq!(two.definitions().await.unwrap().number(), newer);
        // Both bring the same at once: one version.
        let both = [one, two].map(|store| tokio::spawn(async move { store.put_definitions(&suite()).await }));
        for put in both {
            assert_eq!(put.await.unwrap().unwrap().number(), newer);
        }
    });
}

/// Two processes after the same key, decided side by side: one has it, the other is told of exactly that key.
#[test]
fn two_processes_claim_one_key() {
    wait(async {
        let url = Server::shared().database();
        let (one, two) = (open(&url).await.unwrap(), open(&url).await.unwrap());
        one.put_definitions(&suite()).await.unwrap();
        let ann = user("ann");
        let mut driver = Driver::new(&one).await;
        let boxes = [
            driver.create(&ann, "suite.box", json!({}), start()).await,
            driver.create(&ann, "suite.box", json!({}), start()).await,
        ];
        for round in 0..20 {
            let mut saves = Vec::new();
            for (store, id) in [&one, &two].into_iter().zip(boxes) {
                let mut driver = Driver::new(store).await;
                let mut open = driver.open(start());
                let operation = driver.operation(&ann, fire(id, "write", json!({ "name": format!("{round}") })));
                driver.decide(&mut open, operation, start()).await;
                saves.push((store.clone(), open));
            }
            let saves: Vec<_> = saves
                .into_iter()
                .map(|(store, open)| {
                    tokio::spawn(async move { store.save(&Arc::new(open.base), &Arc::new(open.batch)).await })
                })
                .collect();
            let (mut won, mut lost) = (0, 0);
            for save in saves {
                match save.await.expect("no panic").unwrap() {
                    Save::Saved { .. } => won += 1,
                    Save::Conflict(conflict) => {
                        assert!(matches!(&conflict.keys[..], [Key::Unique(_)]), "{conflict:?}");
                        lost += 1;
                    }
                }
            }
            assert_eq!((won, lost), (1, 1));
        }
        let log = one.log(0, 1_000).await.unwrap();
        assert_eq!(log.iter().map(|entry| entry.seq).collect::<Vec<_>>(), (1..=22).collect::<Vec<_>>());
    });
}

/// What is loaded together is of one moment, also where others commit between its statements: a refusal rests on it, and no save
/// compares that.
#[test]
fn what_is_loaded_together_is_of_one_moment() {
    wait(async {
        let url = Server::shared().database();
        let (one, two) = (open(&url).await.unwrap(), open(&url).await.unwrap());
        one.put_definitions(&suite()).await.unwrap();
        let ann = user("ann");
        let mut driver = Driver::new(&one).await;
        let id = driver.create(&ann, "suite.box", json!({}), start()).await;
        driver.ok(&ann, fire(id, "earn", json!({ "amount": 10 })), start()).await;
        let purse = Account::Named { asset: "coin".into(), name: "purse:ann".into() };
        let keys = [Key::Record(id), Key::Account(purse.clone())];
        two.load(&mut Base::default(), &keys).await.expect("its statements are prepared by now");
        // Somebody spends, and has not committed yet.
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let spend = "BEGIN; LOCK TABLE onceward.accounts IN ACCESS EXCLUSIVE MODE; \
                     UPDATE onceward.records SET version = version + 1; \
                     UPDATE onceward.accounts SET balance = balance - 10 WHERE name = 'purse:ann'";
        client.batch_execute(spend).await.unwrap();
        let loading = tokio::spawn(async move {
            let mut base = Base::default();
            two.load(&mut base, &keys).await.map(|()| base)
        });
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'onceward.accounts'::regclass";
        let waited = std::time::Instant::now();
        while client.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            assert!(!loading.is_finished() && waited.elapsed().as_secs() < 20, "it never came to the lock");
        }
        client.batch_execute("COMMIT").await.unwrap();
        let base = loading.await.expect("no panic").unwrap();
        let version = base.snapshot().record(id).expect("it is there").version;
        assert_eq!((version, base.snapshot().accounts[&purse]), (2, 10), "both from before");
    });
}

/// A job of higher priority that another process makes is found, at the latest at the next look from the bottom.
#[test]
fn a_lower_rank_of_another_process_is_found() {
    wait(async {
        let url = Server::shared().database();
        let (one, two) = (open(&url).await.unwrap(), open(&url).await.unwrap());
        one.put_definitions(&suite()).await.unwrap();
        let ann = user("ann");
        let mut driver = Driver::new(&one).await;
        let first = driver.create(&ann, "suite.task", json!({}), start()).await;
        let query = LeaseQuery { lifecycles: vec!["suite.task".into()], now: start(), limit: 10 };
        assert_eq!(two.leasable(&query).await.unwrap()[0].record, first);
        let urgent = driver.create(&ann, "suite.task", json!({ "weight": 50 }), start()).await;
        assert_eq!(one.leasable(&query).await.unwrap()[0].record, urgent, "its own are seen at once");
        let waited = std::time::Instant::now();
        while two.leasable(&query).await.unwrap()[0].record != urgent {
            assert!(waited.elapsed().as_secs() < 20, "never found");
        }
    });
}

/// Texts longer than an index takes are kept apart by their hashes.
#[test]
fn long_keys() {
    wait(async {
        let url = Server::shared().database();
        let store = open(&url).await.unwrap();
        let text = include_str!("stage/box.toml");
        let name = text.lines().find(|line| line.starts_with("name")).expect("a field");
        let longer = "name = { type = \"string\", optional = true, max = 20000 }";
        let mut files = suite();
        files.files[0].text = text.replace(name, longer).into();
        store.put_definitions(&files).await.unwrap();
        let ann = user("ann");
        let mut driver = Driver::new(&store).await;
        let one = driver.create(&ann, "suite.box", json!({}), start()).await;
        let two = driver.create(&ann, "suite.box", json!({}), start()).await;
        let long = |last: char| fire(one, "write", json!({ "name": format!("{}{last}", "x".repeat(10_000)) }));
        driver.ok(&ann, long('a'), start()).await;
        let other = fire(two, "write", json!({ "name": format!("{}b", "x".repeat(10_000)) }));
        driver.ok(&ann, other, start()).await;
        let same = fire(two, "write", json!({ "name": format!("{}a", "x".repeat(10_000)) }));
        assert_eq!(&*driver.refused(&ann, same, start()).await.code, "taken");
    });
}

/// The database's clock is near ours, and goes on.
#[test]
fn the_database_has_the_time() {
    wait(async {
        let store = PostgresStore::open(&Server::shared().database()).await.unwrap();
        let (ours, theirs) = (Clock::machine().now(), store.now().await.unwrap());
        assert!(theirs.micros().abs_diff(ours.micros()) < 5_000_000, "{theirs} is far from {ours}");
        let (one, two) = (store.now().await.unwrap(), store.now().await.unwrap());
        assert!(one >= theirs && two >= one);
    });
}

/// The server goes down and comes back: a clear error meanwhile, and all that was answered is there.
#[test]
fn down_and_back_again() {
    wait(async {
        let server = Server::start();
        let store = open(&server.database()).await.unwrap();
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(&store).await;
        let ann = user("ann");
        let id = driver.create(&ann, "suite.box", json!({}), start()).await;
        let mut open = driver.open(start());
        let operation = driver.operation(&ann, fire(id, "write", json!({ "number": 1 })));
        driver.decide(&mut open, operation, start()).await;
        server.stop();
        let down = driver.try_save(&open).await;
        assert!(matches!(down, Err(StoreError::Unavailable(_))), "{down:?}");
        assert!(matches!(store.record(id).await, Err(StoreError::Unavailable(_))));
        server.start_again();
        assert_eq!(store.record(id).await.unwrap().unwrap().version, 1);
        assert!(matches!(driver.save(&open).await, Save::Saved { first: 2, last: 2 }));
        let later = start().checked_add(Duration::from_secs(1)).unwrap();
        driver.ok(&ann, fire(id, "write", json!({ "number": 2 })), later).await;
        assert_eq!(store.history(id, 0, 10).await.unwrap().len(), 3);
    });
}

/// Where pruning left holes, a page goes on behind them: an empty one is the end.
#[test]
fn the_log_goes_on_behind_a_hole() {
    wait(async {
        let url = Server::shared().database();
        let store = open(&url).await.unwrap();
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(&store).await;
        for _ in 0..20 {
            driver.create(&user("ann"), "suite.task", json!({}), start()).await;
        }
        let holes =
            "DELETE FROM onceward.history h USING onceward.batches b WHERE h.place >> 20 = b.batch AND b.last BETWEEN";
        psql(&url, &format!("{holes} 3 AND 9"));
        psql(&url, &format!("{holes} 12 AND 17"));
        psql(&url, "DELETE FROM onceward.batches WHERE last BETWEEN 13 AND 16");
        let view = PostgresView::open(&url).await.unwrap();
        for limit in [1, 2, 3, 5, 100] {
            let (mut read, mut scanned) = (vec![0], vec![0]);
            loop {
                let page = store.log(read[read.len() - 1], limit).await.unwrap();
                assert!(page.len() <= limit);
                if page.is_empty() {
                    break;
                }
                read.extend(page.iter().map(|entry| entry.seq));
            }
            assert_eq!(read, [0, 1, 2, 10, 11, 18, 19, 20], "{limit}");
            loop {
                let page = view.scan_log(scanned[scanned.len() - 1], limit).await.unwrap().rows;
                if page.is_empty() {
                    break;
                }
                scanned.extend(page.iter().map(|row| row.seq));
            }
            assert_eq!(scanned, [0, 1, 2, 10, 11, 18, 19, 20], "{limit}");
        }
    });
}

/// Letters are taken up to so many bytes at once, and none is larger than the table takes. That one was carried out counts more
/// than that another engine refused it.
#[test]
fn letters_are_bounded_and_what_was_done_is_told() {
    wait(async {
        let url = Server::shared().database();
        let store = open(&url).await.unwrap();
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let send = "INSERT INTO onceward.inbox (owner, key, lifecycle, input) \
                    SELECT 'shop', 'large ' || n, 'suite.box', jsonb_build_object('x', repeat('x', $1)) FROM generate_series(1, $2) n";
        let refused = client.execute(send, &[&(1 << 20), &1]).await.unwrap_err();
        assert_eq!(refused.as_db_error().and_then(|error| error.constraint()), Some("inbox_input_size"));
        client.execute(send, &[&1_000_000, &40]).await.unwrap();
        let mut taken = Vec::new();
        for expected in [17, 17, 6, 0] {
            let letters = store.letters(100).await.unwrap();
            assert_eq!(letters.len(), expected);
            taken.extend(letters.iter().map(|letter| letter.number));
        }
        assert!(taken.is_sorted() && taken.len() == 40, "{taken:?}");
        let (number, record) = (taken[0], RecordId(uuid::Uuid::from_u128(7)));
        let refusal = Refused { status: 404, code: "no_lifecycle".to_owned(), reason: "none".to_owned() };
        let (done, refused) = (Ok(record), Err(refusal));
        for outcome in [&refused, &done, &refused] {
            let answer = LetterAnswer { number, outcome: outcome.clone() };
            store.answer_letters(&[answer]).await.unwrap();
        }
        let told = format!("SELECT subject, status, code, reason FROM onceward.inbox WHERE number = {number}");
        assert_eq!(psql(&url, &told), format!("{record}|||"));
    });
}

async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A count of nobody that is pruned just after a save has claimed it, and before it is locked: the save begins again.
#[test]
fn a_count_that_is_pruned_under_a_save() {
    wait(async {
        let url = Server::shared().database();
        let store = open(&url).await.unwrap();
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(&store).await;
        let (ann, bob) = (user("ann"), user("bob"));
        let first = driver.create(&ann, "suite.box", json!({}), start()).await;
        driver.ok(&ann, fire(first, "empty", json!({})), start()).await;
        let purse = driver.create(&bob, "suite.box", json!({}), start()).await;
        let counted = "SELECT count FROM onceward.counts ORDER BY count";
        assert_eq!(psql(&url, counted), "0\n1", "of ann none is open");
        // Ann's count is claimed first; then the save waits for bob's account.
        let mut open = driver.open(start());
        for (actor, call) in
            [(&ann, create("suite.box", json!({}))), (&bob, fire(purse, "earn", json!({ "amount": 1 })))]
        {
            let operation = driver.operation(actor, call);
            driver.decide(&mut open, operation, start()).await;
        }
        let (client, watcher) = (connect(&url).await, connect(&url).await);
        client
            .batch_execute("BEGIN; INSERT INTO onceward.accounts (asset, name, outside, balance) VALUES ('coin', 'purse:bob', false, 0)")
            .await
            .unwrap();
        let saving = tokio::spawn({
            let store = store.clone();
            async move { store.save(&Arc::new(open.base), &Arc::new(open.batch)).await }
        });
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while watcher.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            assert!(!saving.is_finished(), "nothing was in its way");
        }
        let gone = store.forget_counts(&OldCounts { limit: 100, ..OldCounts::default() }).await.unwrap();
        assert_eq!(gone.counts, 1);
        client.batch_execute("ROLLBACK").await.unwrap();
        let saved = saving.await.expect("no panic").expect("no fault");
        assert!(matches!(saved, Save::Saved { .. }), "{saved:?}");
        assert_eq!(psql(&url, counted), "1\n1");
    });
}

/// The second page of a history begins where it is: nothing that comes long after it is looked at again.
#[test]
fn a_page_of_a_history_needs_none_of_what_comes_after_it() {
    wait(async {
        let url = Server::shared().database();
        let store = open(&url).await.unwrap();
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(&store).await;
        let ann = user("ann");
        let id = driver.create(&ann, "suite.box", json!({}), start()).await;
        let mut open = driver.open(start());
        for number in 0..999 {
            let operation = driver.operation(&ann, fire(id, "write", json!({ "number": number })));
            driver.decide(&mut open, operation, start()).await;
        }
        driver.save(&open).await;
        let page = async |after: u64| {
            let entries = store.history(id, after, 100).await?;
            Ok::<_, StoreError>(entries.iter().map(|entry| entry.version).collect::<Vec<_>>())
        };
        assert_eq!(page(0).await.unwrap(), (1..=100).collect::<Vec<_>>());
        psql(&url, "UPDATE onceward.history SET previous = NULL WHERE version = 900");
        assert_eq!(page(100).await.unwrap(), (101..=200).collect::<Vec<_>>());
        assert_eq!(page(600).await.unwrap(), (601..=700).collect::<Vec<_>>());
        assert!(page(800).await.is_err(), "here it is met");
        // What was remembered is not gone by where it is something else.
        psql(&url, "UPDATE onceward.history SET record = 99 WHERE version = 256");
        assert!(page(50).await.is_err(), "the way from the end is broken");
    });
}
