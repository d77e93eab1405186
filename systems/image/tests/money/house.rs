//! A house with users, a moderator, an operator and workers, all of whom do what chance says.

use std::collections::BTreeSet;
use std::sync::Arc;

use onceward_core::decide::{Call, Create, ErrorReport};
use onceward_core::record::{Actor, Record};
use onceward_core::time::Duration;
use onceward_core::value::{RecordId, Value};
use onceward_engine::{Checks, Config, Engine, EngineError, Leased, Submission, Wanted};
use onceward_store::{Clock, ListQuery, Store, StoreError};
use onceward_system_image::{Guard, checks};
use onceward_testkit::random::Chance;
use onceward_testkit::{operator, systems, user_with, worker};
use serde_json::{Map, Value as Json, json};

pub(crate) const USERS: [&str; 3] = ["ann", "bea", "cyd"];

/// Some pass, one does not.
const PROMPTS: [&str; 4] = ["a cat", "a dog", "a lighthouse", "porn"];

/// Turns of the runtime after which whatever can end has ended.
const PATIENCE: usize = 1_000_000;

pub(crate) struct House<S> {
    engine: Option<Engine<S>>,
    open: Box<dyn Fn() -> Result<S, StoreError>>,
    clock: Clock,
    chance: Chance,
    /// In workers' hands, or so they think.
    held: Vec<Leased>,
    grants: u32,
    orders: u32,
    crashes: u32,
    /// Calls whose answer did not come, and which were made again until one did.
    repeated: u32,
}

impl<S: Store + 'static> House<S> {
    pub(crate) async fn open(clock: Clock, seed: u64, open: impl Fn() -> Result<S, StoreError> + 'static) -> Self {
        let chance = Chance::new(seed);
        let (engine, open, held) = (None, Box::new(open), Vec::new());
        let mut house = Self { engine, open, clock, chance, held, grants: 0, orders: 0, crashes: 0, repeated: 0 };
        house.begin().await;
        let files = onceward_core::diagnostic::Files { files: systems::sources("image") };
        house.engine().define(&files).await.expect("sound files");
        for name in USERS {
            let first = house.grant(name, 30);
            house.submit(first, granted(house.grants)).await;
        }
        house
    }

    async fn begin(&mut self) {
        let config = Config { checks: checks(Checks::default(), Guard::default()), ..Config::default() };
        for _ in 0..PATIENCE {
            match (self.open)() {
                Ok(store) => {
                    self.engine = Some(Engine::open(store, config));
                    return;
                }
                // What is left of the one that was dropped has not yet let go of it.
                Err(StoreError::Locked { .. }) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
        panic!("the file is never let go of");
    }

    pub(crate) fn engine(&self) -> &Engine<S> {
        self.engine.as_ref().expect("it is open")
    }

    pub(crate) async fn close(&self) {
        self.engine().close().await;
    }

    pub(crate) async fn records(&self, lifecycle: &str) -> Vec<Arc<Record>> {
        let query = ListQuery { lifecycle: Some(lifecycle.into()), limit: 10_000, ..ListQuery::default() };
        self.engine().store().list(&query).await.expect("a list").records
    }

    /// What has come of jobs here, and whether anybody died.
    pub(crate) async fn reached(&self) -> BTreeSet<String> {
        let jobs = self.records("image.job").await;
        let replays =
            jobs.iter().filter(|job| !job.field("replayOf").is_none_or(Value::is_null)).map(|_| "a replay".to_owned());
        let withdrawn = jobs.iter().filter(|job| job.text("lastError") == Some("withdrawn"));
        let withdrawn = withdrawn.map(|job| if job.attempt == 0 { "withdrawn" } else { "withdrawn after a failure" });
        let states = jobs.iter().map(|job| job.state_name().to_string());
        let crashes = (self.crashes > 0).then(|| "a crash".to_owned());
        let repeated = (self.repeated > 0).then(|| "a call made again".to_owned());
        states.chain(replays).chain(withdrawn.map(str::to_owned)).chain(crashes).chain(repeated).collect()
    }

    fn grant(&mut self, to: &str, amount: i64) -> Submission {
        self.grants += 1;
        let fields = json!({ "user": to, "amount": amount, "order": format!("order-{}", self.grants) });
        create("image.grant", &operator("olga"), fields, None)
    }

    /// Something happens.
    pub(crate) async fn step(&mut self) {
        match self.chance.below(22) {
            0 => {
                let (name, amount) = (self.chance.word(&USERS), self.chance.between(1, 12));
                // Told twice sometimes.
                self.grants -= u32::from(self.chance.yes(20));
                let grant = self.grant(name, amount);
                self.submit(grant, granted(self.grants)).await;
            }
            1..=6 => {
                let order = self.order();
                let payload = order.contents[0].payload;
                self.submit(order, move |record| record.payload == Some(payload)).await;
            }
            7..=9 => {
                let wanted = Wanted { most: 2, ..Wanted::one("image.job", "w") };
                if let Ok(leased) = self.engine().lease(&worker("bob"), &wanted).await {
                    self.held.extend(leased);
                }
            }
            10..=14 => {
                if let Some(report) = self.report() {
                    self.submit(report, |_| false).await;
                }
            }
            15 => self.block().await,
            16 => self.replay().await,
            20 | 21 => self.withdraw().await,
            17 | 18 => {
                let seconds = self.chance.between(1, 70);
                self.clock.set(self.clock.now().checked_add(Duration::from_secs(seconds)).expect("a time"));
                self.engine().wake();
            }
            _ => self.crash().await,
        }
    }

    fn order(&mut self) -> Submission {
        let (name, prompt) = (self.chance.word(&USERS), self.chance.word(&PROMPTS));
        self.orders += 1;
        let key = format!("order-{}", self.orders);
        // No two prompts are the same, so that each order can be told from the others.
        let prompt = format!("{prompt} {}", self.orders);
        create("image.job", &user_with(name, &["user"]), json!({}), Some(&prompt)).once(&key)
    }

    /// What a worker says of a job, which need not be its own any more.
    fn report(&mut self) -> Option<Submission> {
        let at = self.chance.below(self.held.len());
        let held = self.held.get(at)?;
        let (record, token) = (held.record.id, held.token);
        let call = match self.chance.below(8) {
            0..=3 => {
                let url = format!("originals/{record}-{}.png", token.0);
                let result = json!({ "url": url, "sha256": "ab".repeat(32), "bytes": 9 });
                Call::Commit { record, token, result, finish: true }
            }
            4 => Call::Yield { record, token },
            _ => {
                let code = self.chance.word(&["500", "500", "429", "timeout", "400", "policy"]);
                // Longer than anybody waits, sometimes.
                let retry_after = self.chance.yes(20).then(|| Duration::from_secs(self.chance.between(1, 7_200)));
                Call::Fail { record, token, error: ErrorReport { retry_after, ..ErrorReport::new(code, "so it was") } }
            }
        };
        if self.chance.yes(70) {
            self.held.swap_remove(at);
        }
        Some(Submission::new(&worker("bob"), call))
    }

    /// Most often what waits; it may be anything.
    async fn block(&mut self) {
        let Some(job) = self.one_of("queued").await else { return };
        self.submit(fire(job.id, "block", &user_with("mo", &["moderator"])), |_| false).await;
    }

    /// What waits for a worker or for its time, most often; by its owner, an operator, or somebody whom it does not concern.
    async fn withdraw(&mut self) {
        let state = self.chance.word(&["queued", "failed"]);
        let Some(job) = self.one_of(state).await else { return };
        let by = match self.chance.below(4) {
            0 => operator("olga"),
            1 => user_with(self.chance.word(&USERS), &["user"]),
            _ => user_with(&job.owner, &["user"]),
        };
        self.submit(fire(job.id, "withdraw", &by), |_| false).await;
    }

    /// By its owner, or by somebody whom it does not concern.
    async fn replay(&mut self) {
        let Some(job) = self.one_of("dead_letter").await else { return };
        let owner = if self.chance.yes(80) { job.owner.to_string() } else { self.chance.word(&USERS).to_owned() };
        self.orders += 1;
        let replay = fire(job.id, "replay", &user_with(&owner, &["user"])).once(&format!("replay-{}", self.orders));
        let from = Value::Ref(job.id);
        self.submit(replay, move |record| record.field("replayOf") == Some(&from)).await;
    }

    /// A job in this state, where there is one.
    async fn one_of(&mut self, state: &str) -> Option<Arc<Record>> {
        let jobs = self.records("image.job").await;
        let fit: Vec<_> = jobs.iter().filter(|job| **job.state_name() == *state).cloned().collect();
        let from = if fit.is_empty() || self.chance.yes(10) { jobs } else { fit };
        self.chance.pick(&from).cloned()
    }

    /// It may be refused, and the store may fail; but the engine goes on. Whoever is told of a store that failed does not know whether
    /// it was done, and asks again as a client would: by the key of the call, by its token, or by the order that it names. Of the records
    /// that it makes there is then one.
    async fn submit(&mut self, submission: Submission, makes: impl Fn(&Record) -> bool) {
        let before = self.count(&makes).await;
        let mut doubts = 0;
        let answer = loop {
            match self.engine().submit(submission.clone()).await {
                Err(EngineError::Store(_)) => doubts += 1,
                answer => break answer,
            }
            assert!(doubts < 100, "the store never does it");
        };
        self.repeated += u32::from(doubts > 0);
        let is_done = match answer {
            // It may have been so already.
            Ok(answer) => answer.already.is_none(),
            Err(EngineError::Refused(_)) => false,
            Err(error) => panic!("{error}"),
        };
        let made = self.count(&makes).await - before;
        assert!(made <= 1, "{made} of one call, made {} times", doubts + 1);
        if submission.once.is_some() {
            assert_eq!(made, usize::from(is_done), "{:?}, made {} times", submission.call, doubts + 1);
        }
    }

    /// How many jobs and grants are such.
    async fn count(&self, such: impl Fn(&Record) -> bool) -> usize {
        let (jobs, grants) = (self.records("image.job").await, self.records("image.grant").await);
        jobs.iter().chain(&grants).filter(|record| such(record)).count()
    }

    /// The engine is dropped while something is on its way, which then is done or is not.
    async fn crash(&mut self) {
        let (order, report) = (self.order(), self.report());
        let engine = self.engine.take().expect("it is open");
        let under_way: Vec<Submission> = [order].into_iter().chain(report).collect();
        let ahead = engine.clone();
        let task = tokio::spawn(async move {
            let _ = ahead.submit_all(under_way).await;
        });
        for _ in 0..self.chance.below(40) {
            tokio::task::yield_now().await;
        }
        task.abort();
        let _ = task.await;
        drop(engine);
        self.crashes += 1;
        self.begin().await;
    }
}

/// The grant of this order.
fn granted(number: u32) -> impl Fn(&Record) -> bool {
    let order = format!("order-{number}");
    move |record| &*record.lifecycle.name == "image.grant" && record.text("order") == Some(&*order)
}

fn fire(record: RecordId, event: &str, by: &Actor) -> Submission {
    Submission::new(by, Call::Fire { record, event: event.into(), input: Map::new(), token: None, if_version: None })
}

fn create(lifecycle: &str, by: &Actor, fields: Json, prompt: Option<&str>) -> Submission {
    let Json::Object(fields) = fields else { panic!("fields have names") };
    let content = prompt.map(|prompt| {
        let bytes: Arc<[u8]> = prompt.as_bytes().into();
        let sha256 = <sha2::Sha256 as sha2::Digest>::digest(&bytes).into();
        onceward_store::Content { payload: onceward_core::record::Payload { sha256, bytes: bytes.len() as u64 }, bytes }
    });
    let payload = content.as_ref().map(|content| content.payload);
    let call = Call::Create(Create { lifecycle: lifecycle.into(), id: None, owner: None, fields, payload });
    Submission { contents: content.into_iter().collect(), ..Submission::new(by, call) }
}
