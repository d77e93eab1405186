//! The same random operations through every store, with saves that are beaten and answers that are lost: the same answers, the same state, the
//! same log; and the log alone is enough to build the state again. A case that fails is made as short as it can be and printed with its
//! seed. `ONCEWARD_SEED=… cargo test -p onceward-store --test differential` plays one case again.

#[path = "differential/shrink.rs"]
mod shrink;
#[path = "differential/side_by_side.rs"]
mod side_by_side;
mod stage;
#[path = "differential/turns.rs"]
mod turns;

use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use onceward_core::decide::{Call, Decision, Operation, Snapshot};
use onceward_core::diagnostic::{File, Files};
use onceward_core::record::Record;
use onceward_core::time::{Duration, Time};
use onceward_store::{
    AccountsQuery, AnyStore, Balance, Catalog, Clock, Entry, LeaseQuery, LinkQuery, ListQuery, MemoryStore, Outcome,
    Replay, Save, SqliteStore, Statement, StatementQuery, Store, Write,
};
use onceward_testkit::random::{self, Play, Taste, lifecycles, seeds};
use shrink::shortest;
use stage::driver::{Driver, Open};
use stage::{Folder, postgres, start, suite, system, wait};
use turns::{Step, Trouble, attempt, steps};

const OPERATIONS: usize = 150;

/// All stores with the same definitions. The folder goes last.
struct Stores {
    memory: AnyStore,
    /// Those that must do as memory does.
    others: Vec<(&'static str, AnyStore)>,
    catalog: Arc<Catalog>,
    /// Batches with such a write are lost on SQLite, and yet it says that they are saved.
    forgets: Option<fn(&Write) -> bool>,
    _folder: Folder,
}

impl Stores {
    /// `None` where the checker does not take the files.
    async fn new(files: &Files) -> Option<Self> {
        let mut stores = Self::without_server(files).await?;
        let postgres = postgres(&Clock::manual(start())).await;
        postgres.put_definitions(files).await.expect("what memory takes");
        stores.others.push(("PostgreSQL", postgres));
        Some(stores)
    }

    async fn without_server(files: &Files) -> Option<Self> {
        let folder = Folder::new();
        let memory = AnyStore::Memory(MemoryStore::new(Clock::manual(start())));
        let sqlite = SqliteStore::open(folder.file(), Clock::manual(start())).expect("a new file");
        let catalog = memory.put_definitions(files).await.ok()?;
        sqlite.put_definitions(files).await.expect("what memory takes");
        let others = vec![("SQLite", AnyStore::Sqlite(sqlite))];
        Some(Self { memory, others, catalog, forgets: None, _folder: folder })
    }

    fn all(&self) -> impl Iterator<Item = &AnyStore> {
        self.places().map(|at| self.get(at).1)
    }

    /// Memory is the first.
    fn places(&self) -> std::ops::RangeInclusive<usize> {
        0..=self.others.len()
    }

    fn get(&self, at: usize) -> (&'static str, &AnyStore) {
        match at.checked_sub(1) {
            None => ("memory", &self.memory),
            Some(at) => (self.others[at].0, &self.others[at].1),
        }
    }

    async fn save(&self, at: usize, driver: &Driver<'_, AnyStore>, open: &Open) -> Save {
        let is_forgotten = |forgets: fn(&Write) -> bool| open.batch.writes.iter().any(forgets);
        if self.get(at).0 == "SQLite" && self.forgets.is_some_and(is_forgotten) {
            return Save::Saved { first: 1, last: 0 };
        }
        driver.save(open).await
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

/// Play one case; how many operations it had.
fn case(files: &Files, seed: u64) -> Option<usize> {
    let (steps, played) = wait(async {
        let stores = Stores::new(files).await?;
        let steps = steps(operations(&stores.catalog, seed), seed);
        let played = attempt(&stores, &steps).await;
        Some((steps, played))
    })?;
    if let Err(why) = played {
        println!("{why}\nmaking it shorter");
        let (short, why) = shortened(&steps, async || Stores::new(files).await.expect("sound files"));
        panic!("ONCEWARD_SEED={seed}: {} of {} steps are enough:{}\n{why}", short.len(), steps.len(), listed(&short));
    }
    Some(steps.len())
}

fn listed(steps: &[Step]) -> String {
    steps.iter().fold(String::new(), |mut text, step| {
        let _ = write!(text, "\n  {step:?}");
        text
    })
}

/// The shortest part of a case that still fails on new stores, and how.
fn shortened(steps: &[Step], stores: impl AsyncFn() -> Stores) -> (Vec<Step>, String) {
    let mut last = String::new();
    let mut fails = |steps: &[Step]| {
        // Whatever breaks on the way is a failure, too.
        let played = || wait(async { attempt(&stores().await, steps).await });
        match std::panic::catch_unwind(AssertUnwindSafe(played)) {
            Ok(Ok(())) => false,
            Ok(Err(why)) => {
                last = why;
                true
            }
            Err(_) => {
                "it panicked, as said above".clone_into(&mut last);
                true
            }
        }
    };
    let mut short = shortest(steps.to_vec(), &mut fails);
    // Without trouble, where it is no trouble that matters.
    let mut plain = short.clone();
    for step in &mut plain {
        step.trouble = Trouble::None;
    }
    if fails(&plain) {
        short = plain;
    }
    fails(&short);
    (short, last)
}

fn play(theme: &str, usual: u64, files: impl Fn(u64) -> Files) {
    let (mut cases, mut played) = (0, 0);
    for seed in seeds(theme, usual) {
        let _running = Running(seed);
        if let Some(operations) = case(&files(seed), seed) {
            cases += 1;
            played += operations;
        }
    }
    println!("{theme}: {played} operations in {cases} cases");
    assert!(cases > 0, "no case was sound");
}

/// A store that says it has saved what it forgets is found, and the case is made as short as it can be: the life of one job up to
/// the finish that is forgotten, each step of which is needed.
#[test]
fn what_a_store_forgets_is_found() {
    let forgetful = async || {
        let forgets = |write: &Write| {
            matches!((&write.operation.call, &write.outcome), (Call::Finish { .. }, Outcome::Changes(_)))
        };
        Stores { forgets: Some(forgets), ..Stores::without_server(&suite()).await.expect("sound files") }
    };
    let played = |steps: &[Step]| wait(async { attempt(&forgetful().await, steps).await });
    let catalog = wait(async { Arc::clone(&forgetful().await.catalog) });
    let mut cases = seeds("forgetful", 20).into_iter().map(|seed| steps(operations(&catalog, seed), seed));
    let failing = cases.find(|steps| played(steps).is_err()).expect("one that finishes something");
    let (short, why) = shortened(&failing, forgetful);
    println!("{} of {} steps are enough: {why}", short.len(), failing.len());
    let finished = short.last().is_some_and(|step| matches!(step.operation.call, Call::Finish { .. }));
    assert!(finished && short.len() <= 12, "{}", listed(&short));
    assert!(short.iter().all(|step| step.trouble == Trouble::None), "{}", listed(&short));
    for spared in 0..short.len() {
        let mut fewer = short.clone();
        fewer.remove(spared);
        played(&fewer).expect("each of them is needed");
    }
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
