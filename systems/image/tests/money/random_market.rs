//! Random actions of users, a moderator, an operator and workers.

use std::collections::BTreeSet;
use std::sync::Arc;

use onceward_core::decide::{Call, CreateRecord, FailureReport};
use onceward_core::record::{Actor, Record};
use onceward_core::time::Duration;
use onceward_core::value::{RecordId, Value};
use onceward_engine::{CheckRegistry, Engine, EngineConfig, EngineError, LeaseRequest, LeasedJob, Submission};
use onceward_store::{Clock, ListQuery, Store, StoreError};
use onceward_system_image::{PromptFilter, register_prompt_check};
use onceward_testkit::random::Rng;
use onceward_testkit::{operator, systems, user_with_roles, worker};
use serde_json::{Map, Value as Json, json};

pub(crate) const USERS: [&str; 3] = ["ann", "bea", "cyd"];

/// The prompt check flags the last one.
const TEST_PROMPTS: [&str; 4] = ["a cat", "a dog", "a lighthouse", "porn"];

/// Enough attempts for the dropped engine's tasks to release the store.
const MAX_OPEN_ATTEMPTS: usize = 1_000_000;

pub(crate) struct RandomMarket<S> {
    engine: Option<Engine<S>>,
    open_store: Box<dyn Fn() -> Result<S, StoreError>>,
    clock: Clock,
    rng: Rng,
    /// Leases that workers hold or have lost without noticing.
    held_leases: Vec<LeasedJob>,
    grant_count: u32,
    order_count: u32,
    crash_count: u32,
    /// Number of calls that were retried because their reply was lost.
    repeated_calls: u32,
}

impl<S: Store + 'static> RandomMarket<S> {
    pub(crate) async fn open(
        clock: Clock,
        seed: u64,
        open_store: impl Fn() -> Result<S, StoreError> + 'static,
    ) -> Self {
        let rng = Rng::new(seed);
        let (engine, open, held) = (None, Box::new(open_store), Vec::new());
        let mut market = Self {
            engine,
            open_store: open,
            clock,
            rng,
            held_leases: held,
            grant_count: 0,
            order_count: 0,
            crash_count: 0,
            repeated_calls: 0,
        };
        market.open_engine().await;
        let files = onceward_core::diagnostic::InputFiles { files: systems::source_files("image") };
        market.engine().put_lifecycles(&files).await.expect("valid lifecycle files");
        for name in USERS {
            let first = market.new_grant(name, 30);
            market.submit_with_retries(first, is_grant_of_order(market.grant_count)).await;
        }
        market
    }

    async fn open_engine(&mut self) {
        let config = EngineConfig {
            checks: register_prompt_check(CheckRegistry::default(), PromptFilter::default()),
            ..EngineConfig::default()
        };
        for _ in 0..MAX_OPEN_ATTEMPTS {
            match (self.open_store)() {
                Ok(store) => {
                    self.engine = Some(Engine::open(store, config));
                    return;
                }
                // A task of the dropped engine still holds the lock.
                Err(StoreError::Locked { .. }) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
        panic!("the database file stays locked");
    }

    pub(crate) fn engine(&self) -> &Engine<S> {
        self.engine.as_ref().expect("the engine is open")
    }

    pub(crate) async fn close(&self) {
        self.engine().close().await;
    }

    pub(crate) async fn records(&self, lifecycle: &str) -> Vec<Arc<Record>> {
        let query = ListQuery { lifecycle: Some(lifecycle.into()), limit: 10_000, ..ListQuery::default() };
        self.engine().store().list(&query).await.expect("a list").records
    }

    /// Returns the outcomes that jobs have reached, and whether the engine crashed.
    pub(crate) async fn reached_outcomes(&self) -> BTreeSet<String> {
        let jobs = self.records("image.job").await;
        let replays =
            jobs.iter().filter(|job| !job.field("replayOf").is_none_or(Value::is_null)).map(|_| "a replay".to_owned());
        let withdrawn = jobs.iter().filter(|job| job.text_field("lastError") == Some("withdrawn"));
        let withdrawn = withdrawn.map(|job| if job.attempt == 0 { "withdrawn" } else { "withdrawn after a failure" });
        let states = jobs.iter().map(|job| job.state_name().to_string());
        let crashes = (self.crash_count > 0).then(|| "a crash".to_owned());
        let repeated = (self.repeated_calls > 0).then(|| "a repeated call".to_owned());
        states.chain(replays).chain(withdrawn.map(str::to_owned)).chain(crashes).chain(repeated).collect()
    }

    fn new_grant(&mut self, to: &str, amount: i64) -> Submission {
        self.grant_count += 1;
        let fields = json!({ "user": to, "amount": amount, "order": format!("order-{}", self.grant_count) });
        create_submission("image.grant", &operator("olga"), fields, None)
    }

    /// Performs a random action.
    pub(crate) async fn step(&mut self) {
        match self.rng.below(22) {
            0 => {
                let (name, amount) = (self.rng.pick_word(&USERS), self.rng.between(1, 12));
                // Repeat the previous purchase order sometimes.
                self.grant_count -= u32::from(self.rng.percent(20));
                let grant = self.new_grant(name, amount);
                self.submit_with_retries(grant, is_grant_of_order(self.grant_count)).await;
            }
            1..=6 => {
                let order = self.new_order();
                let payload = order.payloads[0].payload;
                self.submit_with_retries(order, move |record| record.payload == Some(payload)).await;
            }
            7..=9 => {
                let wanted = LeaseRequest { max_jobs: 2, ..LeaseRequest::single_job("image.job", "w") };
                if let Ok(leased) = self.engine().lease(&worker("bob"), &wanted).await {
                    self.held_leases.extend(leased);
                }
            }
            10..=14 => {
                if let Some(report) = self.random_report() {
                    self.submit_with_retries(report, |_| false).await;
                }
            }
            15 => self.block_random_job().await,
            16 => self.replay_random_job().await,
            20 | 21 => self.withdraw_random_job().await,
            17 | 18 => {
                let seconds = self.rng.between(1, 70);
                self.clock.set(self.clock.now().checked_add(Duration::from_secs(seconds)).expect("a time"));
                self.engine().wake_all();
            }
            _ => self.crash_engine().await,
        }
    }

    fn new_order(&mut self) -> Submission {
        let (name, prompt) = (self.rng.pick_word(&USERS), self.rng.pick_word(&TEST_PROMPTS));
        self.order_count += 1;
        let key = format!("order-{}", self.order_count);
        // Unique prompts, so that each order can be identified.
        let prompt = format!("{prompt} {}", self.order_count);
        create_submission("image.job", &user_with_roles(name, &["user"]), json!({}), Some(&prompt))
            .with_idempotency_key(&key)
    }

    /// Creates a random report on a lease that may already be lost.
    fn random_report(&mut self) -> Option<Submission> {
        let at = self.rng.below(self.held_leases.len());
        let held = self.held_leases.get(at)?;
        let (record, token) = (held.record.id, held.token);
        let call = match self.rng.below(8) {
            0..=3 => {
                let url = format!("originals/{record}-{}.png", token.0);
                let result = json!({ "url": url, "sha256": "ab".repeat(32), "bytes": 9 });
                Call::Commit { record, token, result, finish: true }
            }
            4 => Call::Yield { record, token },
            _ => {
                let code = self.rng.pick_word(&["500", "500", "429", "timeout", "400", "policy"]);
                // Sometimes longer than the maximum wait.
                let retry_after = self.rng.percent(20).then(|| Duration::from_secs(self.rng.between(1, 7_200)));
                Call::Fail {
                    record,
                    token,
                    error: FailureReport { retry_after, ..FailureReport::new(code, "by accident") },
                }
            }
        };
        if self.rng.percent(70) {
            self.held_leases.swap_remove(at);
        }
        Some(Submission::new(&worker("bob"), call))
    }

    /// Blocks a job that is queued most of the time.
    async fn block_random_job(&mut self) {
        let Some(job) = self.pick_job_in_state("queued").await else { return };
        self.submit_with_retries(fire_submission(job.id, "block", &user_with_roles("mo", &["moderator"])), |_| false)
            .await;
    }

    /// Withdraws a job that waits most of the time; the caller is its owner, an operator or a stranger.
    async fn withdraw_random_job(&mut self) {
        let state = self.rng.pick_word(&["queued", "failed"]);
        let Some(job) = self.pick_job_in_state(state).await else { return };
        let actor = match self.rng.below(4) {
            0 => operator("olga"),
            1 => user_with_roles(self.rng.pick_word(&USERS), &["user"]),
            _ => user_with_roles(&job.owner, &["user"]),
        };
        self.submit_with_retries(fire_submission(job.id, "withdraw", &actor), |_| false).await;
    }

    /// Replays a dead letter; the caller is its owner or a stranger.
    async fn replay_random_job(&mut self) {
        let Some(job) = self.pick_job_in_state("dead_letter").await else { return };
        let owner = if self.rng.percent(80) { job.owner.to_string() } else { self.rng.pick_word(&USERS).to_owned() };
        self.order_count += 1;
        let replay = fire_submission(job.id, "replay", &user_with_roles(&owner, &["user"]))
            .with_idempotency_key(&format!("replay-{}", self.order_count));
        let from = Value::Ref(job.id);
        self.submit_with_retries(replay, move |record| record.field("replayOf") == Some(&from)).await;
    }

    /// Returns a job in this state, if there is one.
    async fn pick_job_in_state(&mut self, state: &str) -> Option<Arc<Record>> {
        let jobs = self.records("image.job").await;
        let fit: Vec<_> = jobs.iter().filter(|job| **job.state_name() == *state).cloned().collect();
        let from = if fit.is_empty() || self.rng.percent(10) { jobs } else { fit };
        self.rng.pick(&from).cloned()
    }

    /// Submits a call that may be refused or hit a store error. After a store error the caller does not know whether
    /// the call was committed, so it retries like a client: with the idempotency key, the token or the purchase order.
    /// Asserts that the call creates at most one record.
    async fn submit_with_retries(&mut self, submission: Submission, is_created: impl Fn(&Record) -> bool) {
        let before = self.count_matching(&is_created).await;
        let mut store_errors = 0;
        let result = loop {
            match self.engine().submit(submission.clone()).await {
                Err(EngineError::Store(_)) => store_errors += 1,
                answer => break answer,
            }
            assert!(store_errors < 100, "the store fails every time");
        };
        self.repeated_calls += u32::from(store_errors > 0);
        let is_done = match result {
            // A no-op created nothing, because the record already was in that state.
            Ok(answer) => answer.no_op.is_none(),
            Err(EngineError::Refused(_)) => false,
            Err(error) => panic!("{error}"),
        };
        let created = self.count_matching(&is_created).await - before;
        assert!(created <= 1, "{created} records of one call, repeated {} times", store_errors + 1);
        if submission.idempotency_key.is_some() {
            assert_eq!(created, usize::from(is_done), "{:?}, repeated {} times", submission.call, store_errors + 1);
        }
    }

    /// Counts the jobs and grants that satisfy the predicate.
    async fn count_matching(&self, predicate: impl Fn(&Record) -> bool) -> usize {
        let (jobs, grants) = (self.records("image.job").await, self.records("image.grant").await);
        jobs.iter().chain(&grants).filter(|record| predicate(record)).count()
    }

    /// Drops the engine while calls are in flight, which may or may not be committed.
    async fn crash_engine(&mut self) {
        let (order, report) = (self.new_order(), self.random_report());
        let engine = self.engine.take().expect("the engine is open");
        let submissions: Vec<Submission> = [order].into_iter().chain(report).collect();
        let engine_clone = engine.clone();
        let task = tokio::spawn(async move {
            let _ = engine_clone.submit_all(submissions).await;
        });
        for _ in 0..self.rng.below(40) {
            tokio::task::yield_now().await;
        }
        task.abort();
        let _ = task.await;
        drop(engine);
        self.crash_count += 1;
        self.open_engine().await;
    }
}

fn is_grant_of_order(number: u32) -> impl Fn(&Record) -> bool {
    let order = format!("order-{number}");
    move |record| &*record.lifecycle.name == "image.grant" && record.text_field("order") == Some(&*order)
}

fn fire_submission(record: RecordId, event: &str, actor: &Actor) -> Submission {
    Submission::new(actor, Call::Fire { record, event: event.into(), input: Map::new(), token: None, if_version: None })
}

fn create_submission(lifecycle: &str, actor: &Actor, fields: Json, prompt: Option<&str>) -> Submission {
    let Json::Object(fields) = fields else { panic!("fields have names") };
    let content = prompt.map(|prompt| {
        let bytes: Arc<[u8]> = prompt.as_bytes().into();
        let sha256 = <sha2::Sha256 as sha2::Digest>::digest(&bytes).into();
        onceward_store::PayloadBytes {
            payload: onceward_core::record::PayloadRef { sha256, bytes: bytes.len() as u64 },
            bytes,
        }
    });
    let payload = content.as_ref().map(|content| content.payload);
    let call = Call::Create(CreateRecord { lifecycle: lifecycle.into(), id: None, owner: None, fields, payload });
    Submission { payloads: content.into_iter().collect(), ..Submission::new(actor, call) }
}
