//! Differential test: the same random operations on every store, with conflicts and lost replies. All stores must
//! return the same decisions, state and log, and the log must replay to the state. A failing case is shrunk and printed
//! with its seed. `ONCEWARD_SEED=… cargo test -p onceward-store --test differential` repeats one case.

mod migration_and_conflicts;
mod shrink;
mod steps;
#[path = "../support/mod.rs"]
mod support;

use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use onceward_core::decide::{Call, Decision, Operation, Snapshot};
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::record::Record;
use onceward_core::time::{Duration, Time};
use onceward_store::{
    AccountBalance, AccountsQuery, AnyStore, Catalog, Clock, DecidedOperation, LeaseQuery, LinkQuery, ListQuery,
    LogEntry, LogReplay, MemoryStore, OperationOutcome, SaveResult, SqliteStore, StatementPage, StatementQuery, Store,
};
use onceward_testkit::random::{self, GeneratorOptions, Simulation, generate_lifecycles, theme_seeds};
use shrink::shrink_failing;
use steps::{CaseStep, InjectedFault, random_steps, run_steps};
use support::driver::{DriverBatch, StoreDriver};
use support::{TempDir, block_on, new_postgres_store, start_time, suite_files, system_files};

const OPERATIONS_PER_CASE: usize = 150;

/// All stores with the same definitions. The folder is dropped last.
struct ComparedStores {
    memory: AnyStore,
    /// Stores that must behave like the memory store.
    others: Vec<(&'static str, AnyStore)>,
    catalog: Arc<Catalog>,
    /// If set, SQLite reports batches with such an operation as saved without saving them.
    loses_write: Option<fn(&DecidedOperation) -> bool>,
    _folder: TempDir,
}

impl ComparedStores {
    /// Returns `None` if the files are invalid.
    async fn new(files: &InputFiles) -> Option<Self> {
        let mut stores = Self::without_server(files).await?;
        let postgres = new_postgres_store(&Clock::manual(start_time())).await;
        postgres.put_lifecycles(files).await.expect("files that the memory store accepts");
        stores.others.push(("PostgreSQL", postgres));
        Some(stores)
    }

    async fn without_server(files: &InputFiles) -> Option<Self> {
        let folder = TempDir::new();
        let memory = AnyStore::Memory(MemoryStore::new(Clock::manual(start_time())));
        let sqlite = SqliteStore::open(folder.database_path(), Clock::manual(start_time())).expect("a new file");
        let catalog = memory.put_lifecycles(files).await.ok()?;
        sqlite.put_lifecycles(files).await.expect("files that the memory store accepts");
        let others = vec![("SQLite", AnyStore::Sqlite(sqlite))];
        Some(Self { memory, others, catalog, loses_write: None, _folder: folder })
    }

    fn iter_stores(&self) -> impl Iterator<Item = &AnyStore> {
        self.indexes().map(|at| self.named_store(at).1)
    }

    /// Index 0 is the memory store.
    fn indexes(&self) -> std::ops::RangeInclusive<usize> {
        0..=self.others.len()
    }

    fn named_store(&self, index: usize) -> (&'static str, &AnyStore) {
        match index.checked_sub(1) {
            None => ("memory", &self.memory),
            Some(at) => (self.others[at].0, &self.others[at].1),
        }
    }

    async fn save(&self, index: usize, driver: &StoreDriver<'_, AnyStore>, pending: &DriverBatch) -> SaveResult {
        let is_lost = |forgets: fn(&DecidedOperation) -> bool| pending.batch.operations.iter().any(forgets);
        if self.named_store(index).0 == "SQLite" && self.loses_write.is_some_and(is_lost) {
            return SaveResult::Saved { first_seq: 1, last_seq: 0 };
        }
        driver.save(pending).await
    }
}

/// Prints the seed if a test panics during a case.
struct SeedReporter(u64);

impl Drop for SeedReporter {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("reproduce with ONCEWARD_SEED={}", self.0);
        }
    }
}

/// Generates random operations on these lifecycles, with their times, in execution order.
fn random_operations(catalog: &Catalog, seed: u64) -> Vec<(Operation, Time)> {
    let mut simulation = Simulation::new(catalog.definitions.clone(), true, seed);
    if let Err(broken) = simulation.run_operations(OPERATIONS_PER_CASE, &mut []) {
        panic!("{}: {}", broken.property, broken.detail);
    }
    simulation.log
}

/// Describes a decision without its read keys, whose order differs between a complete and a partial snapshot.
fn describe_decision(decision: &Decision) -> String {
    match decision {
        Decision::Changes(changes) => random::changes_text(changes),
        Decision::NoOp(no_op) => format!("no-op {} {:?}", no_op.subject, no_op.reason),
        other => format!("{other:?}"),
    }
}

/// Returns the results of all queries as text.
async fn dump_store(store: &AnyStore, now: Time) -> String {
    let catalog = store.catalog().await.unwrap();
    let page = store.list(&ListQuery { limit: 1_000, ..ListQuery::default() }).await.unwrap();
    let mut text = format!("{:?}\n", store.counts_by_state(None).await.unwrap());
    for record in &page.records {
        let _ = writeln!(
            text,
            "{}\n{:?} {:?}\n{:?}",
            random::record_text(record),
            store.executions(record.id).await.unwrap(),
            store.effect(record.id).await.unwrap(),
            store.history(record.id, 0, 1_000).await.unwrap()
        );
    }
    let lifecycles = catalog.definitions.lifecycles.keys().cloned().collect();
    for (seconds_later, limit) in [(0, 1_000), (0, 3), (100_000, 1_000)] {
        let now = now.checked_add(Duration::from_secs(seconds_later)).unwrap();
        let query = LeaseQuery { lifecycles: Vec::clone(&lifecycles), now, limit };
        let (leasable, due) =
            (store.lease_candidates(&query).await.unwrap(), store.due_records(now, limit).await.unwrap());
        let _ = writeln!(text, "{leasable:?}\n{due:?}");
    }
    let accounts = store.accounts(&AccountsQuery { after: None, limit: 1_000 }).await.unwrap();
    for AccountBalance { account, .. } in &accounts {
        let query = StatementQuery { account: account.clone(), before_seq: None, limit: 1_000 };
        let statement = store.statement(&query).await.unwrap().expect("a listed account has a statement");
        assert_eq!(
            net_transferred(&statement),
            statement.balance.balance,
            "{account:?}: the statement sums to the balance"
        );
        let seqs: Vec<u64> = statement.entries.iter().map(|entry| entry.seq).collect();
        let _ = writeln!(text, "{:?} {seqs:?}", statement.balance);
    }
    for record in &page.records {
        for link in &record.lifecycle.links {
            let query = LinkQuery { target: record.id, from: link.sources.clone(), after: None, limit: 1_000 };
            let _ =
                writeln!(text, "{} {} {:?}", record.id, link.name, store.linked_records(&query).await.unwrap().records);
        }
    }
    let _ = writeln!(text, "{:?}", store.lease_counts(1_000).await.unwrap());
    text + &format!("{:?}", store.log(0, 100_000).await.unwrap())
}

/// Returns the sum of a statement's transfers to and from its account.
fn net_transferred(statement: &StatementPage) -> i64 {
    let account = &statement.balance.account;
    let amount = |own: bool, amount| if own { amount } else { 0 };
    let sum = |entry: &LogEntry| -> i64 {
        let moves = entry.body().expect("the read succeeds").transfers;
        moves
            .iter()
            .map(|one| amount(account.matches(&one.to), one.amount) - amount(account.matches(&one.from), one.amount))
            .sum()
    };
    statement.entries.iter().map(sum).sum()
}

/// Removes lease expiries, because heartbeats change them without a log entry.
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

async fn replay_log(store: &AnyStore) -> Snapshot {
    let mut replay = LogReplay::new(store.catalog().await.unwrap().lifecycles());
    for entry in store.log(0, 100_000).await.unwrap() {
        replay.apply(&entry).unwrap_or_else(|error| panic!("{error}: {entry:?}"));
    }
    replay.snapshot
}

/// Runs one case and returns its number of operations.
fn run_case(files: &InputFiles, seed: u64) -> Option<usize> {
    let (steps, outcome) = block_on(async {
        let stores = ComparedStores::new(files).await?;
        let steps = random_steps(random_operations(&stores.catalog, seed), seed);
        let played = run_steps(&stores, &steps).await;
        Some((steps, played))
    })?;
    if let Err(why) = outcome {
        println!("{why}\nshrinking the steps");
        let (shortest_steps, why) =
            shrink_case(&steps, async || ComparedStores::new(files).await.expect("valid files"));
        panic!(
            "ONCEWARD_SEED={seed}: {} of {} steps are enough:{}\n{why}",
            shortest_steps.len(),
            steps.len(),
            list_steps(&shortest_steps)
        );
    }
    Some(steps.len())
}

fn list_steps(steps: &[CaseStep]) -> String {
    steps.iter().fold(String::new(), |mut text, step| {
        let _ = write!(text, "\n  {step:?}");
        text
    })
}

/// Returns the shortest part of a case that still fails on new stores, and its error.
fn shrink_case(steps: &[CaseStep], stores: impl AsyncFn() -> ComparedStores) -> (Vec<CaseStep>, String) {
    let mut last = String::new();
    let mut fails_with = |steps: &[CaseStep]| {
        // A panic counts as a failure too.
        let run = || block_on(async { run_steps(&stores().await, steps).await });
        match std::panic::catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(())) => false,
            Ok(Err(why)) => {
                last = why;
                true
            }
            Err(_) => {
                "the store panicked; see above".clone_into(&mut last);
                true
            }
        }
    };
    let mut short = shrink_failing(steps.to_vec(), &mut fails_with);
    // Remove the injected faults if the case fails without them.
    let mut without_faults = short.clone();
    for step in &mut without_faults {
        step.fault = InjectedFault::None;
    }
    if fails_with(&without_faults) {
        short = without_faults;
    }
    fails_with(&short);
    (short, last)
}

fn run_cases(seed_name: &str, default_cases: u64, files: impl Fn(u64) -> InputFiles) {
    let (mut cases, mut operation_count) = (0, 0);
    for seed in theme_seeds(seed_name, default_cases) {
        let _seed_reporter = SeedReporter(seed);
        if let Some(operations) = run_case(&files(seed), seed) {
            cases += 1;
            operation_count += operations;
        }
    }
    println!("{seed_name}: {operation_count} operations in {cases} cases");
    assert!(cases > 0, "no generated case is valid");
}

/// The shortest case contains the steps of one job up to the lost finish.
#[test]
fn store_losing_writes_is_detected_and_case_shrunk() {
    let lossy_stores = async || {
        let loses_write = |write: &DecidedOperation| {
            matches!((&write.operation.call, &write.outcome), (Call::Finish { .. }, OperationOutcome::Changes(_)))
        };
        ComparedStores {
            loses_write: Some(loses_write),
            ..ComparedStores::without_server(&suite_files()).await.expect("valid files")
        }
    };
    let run = |steps: &[CaseStep]| block_on(async { run_steps(&lossy_stores().await, steps).await });
    let catalog = block_on(async { Arc::clone(&lossy_stores().await.catalog) });
    let mut cases =
        theme_seeds("forgetful", 20).into_iter().map(|seed| random_steps(random_operations(&catalog, seed), seed));
    let failing = cases.find(|steps| run(steps).is_err()).expect("a failing run of steps");
    let (shortest_steps, why) = shrink_case(&failing, lossy_stores);
    println!("{} of {} steps are enough: {why}", shortest_steps.len(), failing.len());
    let finished = shortest_steps.last().is_some_and(|step| matches!(step.operation.call, Call::Finish { .. }));
    assert!(finished && shortest_steps.len() <= 12, "{}", list_steps(&shortest_steps));
    assert!(shortest_steps.iter().all(|step| step.fault == InjectedFault::None), "{}", list_steps(&shortest_steps));
    for removed in 0..shortest_steps.len() {
        let mut fewer = shortest_steps.clone();
        fewer.remove(removed);
        run(&fewer).expect("without one step the run passes");
    }
}

#[test]
fn stores_agree_on_shipped_systems() {
    for name in ["execution", "document", "image", "relay", "mesh"] {
        run_cases(name, 6, |_| system_files(name));
    }
}

/// Covers priorities, lanes, ordered queues, links, limits and transfers together.
#[test]
fn stores_agree_on_suite_lifecycles() {
    run_cases("suite", 15, |_| suite_files());
}

#[test]
fn stores_agree_on_random_lifecycles() {
    let options = GeneratorOptions { careless_percent: 0, ..GeneratorOptions::default() };
    run_cases("stores", 25, |seed| {
        let files = generate_lifecycles(seed, options).into_iter();
        InputFiles { files: files.map(|(name, text)| InputFile { name, text: text.into() }).collect() }
    });
}
