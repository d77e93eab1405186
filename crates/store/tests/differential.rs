//! The same random operations through every store: the same answers, the same state, the same log; and the log alone is
//! enough to build the state again. `ONCEWARD_SEED=… cargo test -p onceward-store --test differential` plays one case again.

mod stage;

use std::fmt::Write as _;
use std::sync::Arc;

use onceward_core::decide::{Call, Decision, Move, Operation, Snapshot, decide};
use onceward_core::diagnostic::{File, Files};
use onceward_core::record::{Actor, Record};
use onceward_core::time::{Duration, Time};
use onceward_store::{
    AccountsQuery, AnyStore, Balance, Catalog, Clock, Entry, LeaseQuery, LinkQuery, ListQuery, MemoryStore, Replay,
    Save, SqliteStore, Statement, StatementQuery, Store,
};
use onceward_testkit::random::{self, Chance, Play, Taste, lifecycles, seeds};
use stage::driver::{Driver, Open};
use stage::{Folder, later_suite, postgres, start, suite, system, wait};

const OPERATIONS: usize = 150;

/// All stores with the same definitions. The folder goes last.
struct Stores {
    memory: AnyStore,
    /// Those that must do as memory does.
    others: [(&'static str, AnyStore); 2],
    catalog: Arc<Catalog>,
    _folder: Folder,
}

impl Stores {
    /// `None` where the checker does not take the files.
    async fn new(files: &Files) -> Option<Self> {
        let folder = Folder::new();
        let memory = AnyStore::Memory(MemoryStore::new(Clock::manual(start())));
        let sqlite = SqliteStore::open(folder.file(), Clock::manual(start())).expect("a new file");
        let catalog = memory.put_definitions(files).await.ok()?;
        let postgres = postgres(&Clock::manual(start())).await;
        let others = [("SQLite", AnyStore::Sqlite(sqlite)), ("PostgreSQL", postgres)];
        for (_, store) in &others {
            store.put_definitions(files).await.expect("what memory takes");
        }
        Some(Self { memory, others, catalog, _folder: folder })
    }

    fn all(&self) -> impl Iterator<Item = &AnyStore> {
        std::iter::once(&self.memory).chain(self.others.iter().map(|(_, store)| store))
    }
}

/// Says which seed it was when a test dies in the middle of a case.
struct Running(u64);

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("play it again with ONCEWARD_SEED={}", self.0);
        }
    }
}

/// Random operations on these lifecycles, with their times, in the order in which they were carried out.
fn operations(catalog: &Catalog, seed: u64) -> Vec<(Operation, Time)> {
    let mut play = Play::new(catalog.definitions.clone(), true, seed);
    if let Err(broken) = play.play(OPERATIONS, &mut []) {
        panic!("{}: {}", broken.property, broken.detail);
    }
    play.log
}

/// Decide some operations as one batch on a store and save it; what was decided, as text.
async fn batch(store: &AnyStore, operations: &[(Operation, Time)]) -> Vec<String> {
    let driver = Driver::new(store).await;
    let mut open = driver.open(operations[0].1);
    let mut said = Vec::new();
    for (operation, now) in operations {
        said.push(outline(&driver.decide(&mut open, operation.clone(), *now).await));
    }
    let save = driver.save(&open).await;
    assert!(matches!(save, Save::Saved { .. }), "nobody else is here, yet: {save:?}");
    said
}

/// A decision without the keys that it rests on: a whole world is asked in another order than a part of it.
fn outline(decision: &Decision) -> String {
    match decision {
        Decision::Changes(changes) => random::changes(changes),
        Decision::NoOp(no_op) => format!("no-op {} {:?}", no_op.subject, no_op.reason),
        other => format!("{other:?}"),
    }
}

/// All that can be asked of a store, as text.
async fn everything(store: &AnyStore, now: Time) -> String {
    let catalog = store.definitions().await.unwrap();
    let page = store.list(&ListQuery { limit: 1_000, ..ListQuery::default() }).await.unwrap();
    let mut text = format!("{:?}\n", store.counts_by_state(None).await.unwrap());
    for record in &page.records {
        let _ = writeln!(
            text,
            "{}\n{:?} {:?}\n{:?}",
            random::record(record),
            store.executions(record.id).await.unwrap(),
            store.effect(record.id).await.unwrap(),
            store.history(record.id, 0, 1_000).await.unwrap()
        );
    }
    let lifecycles = catalog.definitions.lifecycles.keys().cloned().collect();
    for (later, limit) in [(0, 1_000), (0, 3), (100_000, 1_000)] {
        let now = now.checked_add(Duration::from_secs(later)).unwrap();
        let query = LeaseQuery { lifecycles: Vec::clone(&lifecycles), now, limit };
        let (leasable, due) = (store.leasable(&query).await.unwrap(), store.due(now, limit).await.unwrap());
        let _ = writeln!(text, "{leasable:?}\n{due:?}");
    }
    let accounts = store.accounts(&AccountsQuery { after: None, limit: 1_000 }).await.unwrap();
    for Balance { account, .. } in &accounts {
        let query = StatementQuery { account: account.clone(), before: None, limit: 1_000 };
        let statement = store.statement(&query).await.unwrap().expect("it is listed");
        assert_eq!(turned_over(&statement), statement.now.balance, "{account:?}: a statement adds up");
        let places: Vec<u64> = statement.entries.iter().map(|entry| entry.seq).collect();
        let _ = writeln!(text, "{:?} {places:?}", statement.now);
    }
    for record in &page.records {
        for link in &record.lifecycle.links {
            let query = LinkQuery { target: record.id, from: link.from.clone(), after: None, limit: 1_000 };
            let _ = writeln!(text, "{} {} {:?}", record.id, link.name, store.linked(&query).await.unwrap().records);
        }
    }
    let _ = writeln!(text, "{:?}", store.holding(1_000).await.unwrap());
    text + &format!("{:?}", store.log(0, 100_000).await.unwrap())
}

/// What the entries of a statement moved to and from its account, all together.
fn turned_over(statement: &Statement) -> i64 {
    let account = &statement.now.account;
    let amount = |own: bool, amount| if own { amount } else { 0 };
    let sum = |entry: &Entry| -> i64 {
        let moves = entry.body().expect("it can be read").moves;
        moves
            .iter()
            .map(|one| amount(account.is(&one.to), one.amount) - amount(account.is(&one.from), one.amount))
            .sum()
    };
    statement.entries.iter().map(sum).sum()
}

/// The world without what the log does not tell: heartbeats move expiries and leave no entry.
fn without_expiries(world: &Snapshot) -> Snapshot {
    let mut world = world.clone();
    for record in world.records.values_mut().flatten() {
        let record: &mut Record = Arc::make_mut(record);
        if let Some(execution) = &mut record.execution {
            execution.expires_at = Time::default();
        }
    }
    for execution in world.executions.values_mut().flatten() {
        execution.expires_at = Time::default();
    }
    world
}

async fn replayed(store: &AnyStore) -> Snapshot {
    let mut replay = Replay::new(store.definitions().await.unwrap().lifecycles());
    for entry in store.log(0, 100_000).await.unwrap() {
        replay.apply(&entry).unwrap_or_else(|error| panic!("{error}: {entry:?}"));
    }
    replay.world
}

/// Play one case in batches of random sizes, beside a whole world that is decided on one by one.
async fn case(files: &Files, seed: u64) -> Option<usize> {
    let stores = Stores::new(files).await?;
    let operations = operations(&stores.catalog, seed);
    let mut chance = Chance::new(!seed);
    let mut world = Snapshot::world();
    let mut left = &operations[..];
    let mut latest = Time::MIN;
    while !left.is_empty() {
        let (now, rest) = left.split_at((1 + chance.below(9)).min(left.len()));
        left = rest;
        let mut expected = Vec::new();
        for (operation, time) in now {
            let decision = decide(&stores.catalog.definitions, &world, operation, *time);
            latest = latest.max(*time);
            if let Decision::Changes(changes) = &decision {
                latest = latest.max(changes.now);
                world.apply(changes);
            }
            expected.push(outline(&decision));
        }
        for store in stores.all() {
            let said = batch(store, now).await;
            for ((said, expected), (operation, _)) in said.iter().zip(&expected).zip(now) {
                assert_eq!(said, expected, "{operation:?}");
            }
        }
        if chance.yes(20) || left.is_empty() {
            // Who stands in front of a work key is exact from the latest time on that was seen.
            let memory = everything(&stores.memory, latest).await;
            for (name, store) in &stores.others {
                let other = everything(store, latest).await;
                for (memory, other) in memory.lines().zip(other.lines()) {
                    assert_eq!(memory, other, "memory, then {name}");
                }
                assert_eq!(memory, other);
            }
        }
    }
    for store in stores.all() {
        let built = random::world(&without_expiries(&replayed(store).await));
        assert_eq!(built, random::world(&without_expiries(&world)), "built from the log, then as decided");
    }
    Some(operations.len())
}

fn play(theme: &str, usual: u64, files: impl Fn(u64) -> Files) {
    let (mut cases, mut played) = (0, 0);
    for seed in seeds(theme, usual) {
        let _running = Running(seed);
        if let Some(operations) = wait(case(&files(seed), seed)) {
            cases += 1;
            played += operations;
        }
    }
    println!("{theme}: {played} operations in {cases} cases");
    assert!(cases > 0, "no case was sound");
}

#[test]
fn shipped_systems() {
    for name in ["execution", "document", "image", "relay", "mesh"] {
        play(name, 6, |_| system(name));
    }
}

/// Priorities, lanes, ordered lines, links, limits and money together.
#[test]
fn the_suite() {
    play("suite", 15, |_| suite());
}

#[test]
fn random_lifecycles() {
    let taste = Taste { wild: 0, ..Taste::default() };
    play("stores", 25, |seed| {
        let files = lifecycles(seed, taste).into_iter();
        Files { files: files.map(|(name, text)| File { name, text: text.into() }).collect() }
    });
}

/// A world of one version, of which everybody is moved to another one, in batches of random sizes: some are refused, all stores agree
/// on whom, and work goes on.
async fn moved(seed: u64) -> (usize, usize) {
    let stores = Stores::new(&suite()).await.expect("sound files");
    let operations = operations(&stores.catalog, seed);
    let mut chance = Chance::new(seed ^ 0xaaaa);
    let mut world = Snapshot::world();
    let latest = operations.iter().map(|(_, time)| *time).max().expect("some operations");
    for chunk in operations.chunks(20) {
        for (operation, time) in chunk {
            if let Decision::Changes(changes) = decide(&stores.catalog.definitions, &world, operation, *time) {
                world.apply(&changes);
            }
        }
        for store in stores.all() {
            batch(store, chunk).await;
        }
    }
    let mut catalog = Arc::clone(&stores.catalog);
    for store in stores.all() {
        catalog = store.put_definitions(&later_suite()).await.expect("sound files");
    }
    let mut records: Vec<Arc<Record>> = world.records.values().flatten().cloned().collect();
    records.sort_unstable_by_key(|record| record.id);
    let ops = Actor::new("ops", &["operator"]);
    let mut moves = Vec::new();
    for (record, number) in records.iter().zip(1_u128..) {
        let to = Arc::clone(&catalog.definitions.get(&record.lifecycle.name).expect("it is known").hash);
        let states = [("waiting".into(), "queued".into())].into();
        let call = Call::Move(Move { record: record.id, to, states, ended: chance.yes(50) });
        moves.push((
            Operation { seed: number << 80, actor: ops.clone(), call, answers: Vec::new(), trace: None },
            latest,
        ));
    }
    let (mut taken, mut refused) = (0, 0);
    let mut left = &moves[..];
    while !left.is_empty() {
        let (now, rest) = left.split_at((1 + chance.below(9)).min(left.len()));
        left = rest;
        let mut expected = Vec::new();
        for (operation, time) in now {
            let decision = decide(&catalog.definitions, &world, operation, *time);
            match &decision {
                Decision::Changes(changes) => {
                    taken += 1;
                    world.apply(changes);
                }
                _ => refused += 1,
            }
            expected.push(outline(&decision));
        }
        for store in stores.all() {
            assert_eq!(batch(store, now).await, expected);
        }
    }
    let memory = everything(&stores.memory, latest).await;
    for (name, store) in &stores.others {
        let other = everything(store, latest).await;
        for (memory, other) in memory.lines().zip(other.lines()) {
            assert_eq!(memory, other, "memory, then {name}");
        }
        assert_eq!(stores.memory.counts_by_version().await.unwrap(), store.counts_by_version().await.unwrap());
    }
    for store in stores.all() {
        let built = random::world(&without_expiries(&replayed(store).await));
        assert_eq!(built, random::world(&without_expiries(&world)), "built from the log, then as decided");
    }
    (taken, refused)
}

#[test]
fn moves() {
    let (mut taken, mut refused) = (0, 0);
    for seed in seeds("moves", 10) {
        let _running = Running(seed);
        let found = wait(moved(seed));
        taken += found.0;
        refused += found.1;
    }
    println!("moves: {taken} taken, {refused} not");
    assert!(taken > 0 && refused > 0);
}

/// Batches that are decided side by side and saved one after the other: all stores find the same conflicts in them.
async fn raced(files: &Files, seed: u64) -> (usize, usize) {
    let stores = Stores::new(files).await.expect("sound files");
    let operations = operations(&stores.catalog, seed);
    let mut chance = Chance::new(seed ^ 0xffff);
    let (mut conflicts, mut saved) = (0, 0);
    let mut left = &operations[..];
    while !left.is_empty() {
        let size = 1 + chance.below(3);
        let mut outcomes = Vec::new();
        for store in stores.all() {
            let driver = Driver::new(store).await;
            let mut open: Vec<Open> = Vec::new();
            for chunk in left.chunks(size).take(3) {
                let mut one = driver.open(chunk[0].1);
                for (operation, now) in chunk {
                    driver.decide(&mut one, operation.clone(), *now).await;
                }
                open.push(one);
            }
            let mut said = Vec::new();
            for one in &open {
                said.push(driver.save(one).await);
            }
            outcomes.push(said);
        }
        for (outcome, (name, _)) in outcomes[1..].iter().zip(&stores.others) {
            assert_eq!(&outcomes[0], outcome, "memory, then {name}");
        }
        conflicts += outcomes[0].iter().filter(|save| matches!(save, Save::Conflict(_))).count();
        saved += outcomes[0].iter().filter(|save| matches!(save, Save::Saved { .. })).count();
        left = &left[(3 * size).min(left.len())..];
    }
    let time = operations.iter().map(|(_, time)| *time).max().expect("some operations");
    let memory = everything(&stores.memory, time).await;
    for (name, store) in &stores.others {
        assert_eq!(memory, everything(store, time).await, "memory, then {name}");
        replayed(store).await;
    }
    (conflicts, saved)
}

#[test]
fn races() {
    let (mut conflicts, mut saved) = (0, 0);
    for seed in seeds("races", 12) {
        let _running = Running(seed);
        for files in [suite(), system("image")] {
            let found = wait(raced(&files, seed));
            conflicts += found.0;
            saved += found.1;
        }
    }
    println!("races: {conflicts} conflicts, {saved} batches saved");
    assert!(conflicts > 0 && saved > 0);
}
