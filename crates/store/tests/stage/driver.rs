//! Load, decide, save: the engine in miniature, one batch at a time.

use std::sync::Arc;

use onceward_core::decide::{Call, Changes, Create, Decision, Operation, Refusal, decide};
use onceward_core::record::{Actor, Token};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{Base, Batch, Catalog, Outcome, Save, Store, StoreError, Write};
use serde_json::{Map, Value as Json};

/// Rounds of loading after which something must be wrong.
const ROUNDS: usize = 500;

pub(crate) struct Driver<'a, S> {
    pub(crate) store: &'a S,
    pub(crate) catalog: Arc<Catalog>,
    seed: u128,
}

/// A batch that is being decided.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) base: Base,
    pub(crate) batch: Batch,
}

impl<'a, S: Store> Driver<'a, S> {
    pub(crate) async fn new(store: &'a S) -> Self {
        let catalog = store.definitions().await.expect("definitions");
        Self { store, catalog, seed: 0 }
    }

    pub(crate) fn open(&self, now: Time) -> Open {
        Open { base: Base::default(), batch: Batch { writes: Vec::new(), now, catalog: self.catalog.number() } }
    }

    pub(crate) fn operation(&mut self, actor: &Actor, call: Call) -> Operation {
        self.seed += 1 << 64;
        Operation { seed: self.seed, actor: actor.clone(), call, answers: Vec::new(), trace: None }
    }

    /// Decide one operation on an open batch, loading what is missing, and add it.
    pub(crate) async fn decide(&self, open: &mut Open, operation: Operation, now: Time) -> Decision {
        for _ in 0..ROUNDS {
            let decision = decide(&self.catalog.definitions, open.base.snapshot(), &operation, now);
            let outcome = match &decision {
                Decision::Missing(keys) => {
                    self.store.load(&mut open.base, keys).await.expect("loading");
                    continue;
                }
                Decision::Changes(changes) => {
                    open.base.apply(changes);
                    Outcome::Changes(changes.clone())
                }
                Decision::NoOp(no_op) => Outcome::NoOp(no_op.clone()),
                Decision::Refusal(refusal) => Outcome::Refusal(refusal.clone()),
                Decision::Due { .. } | Decision::Ask(_) => return decision,
            };
            open.batch.writes.push(Write::new(operation, outcome));
            return decision;
        }
        panic!("decide keeps asking for what it was given: {operation:?}")
    }

    pub(crate) async fn save(&self, open: &Open) -> Save {
        self.try_save(open).await.expect("saving")
    }

    pub(crate) async fn try_save(&self, open: &Open) -> Result<Save, StoreError> {
        self.store.save(&Arc::new(open.base.clone()), &Arc::new(open.batch.clone())).await
    }

    /// One operation, as a batch of its own.
    pub(crate) async fn play(&self, operation: Operation, now: Time) -> Decision {
        let mut open = self.open(now);
        let decision = self.decide(&mut open, operation, now).await;
        if !open.batch.writes.is_empty() {
            let save = self.save(&open).await;
            assert!(matches!(save, Save::Saved { .. }), "nobody else is here, yet: {save:?}");
        }
        decision
    }

    /// One call that must be taken.
    pub(crate) async fn ok(&mut self, actor: &Actor, call: Call, now: Time) -> Box<Changes> {
        let operation = self.operation(actor, call);
        match self.play(operation, now).await {
            Decision::Changes(changes) => changes,
            other => panic!("not taken: {other:?}"),
        }
    }

    /// One call that must be refused.
    pub(crate) async fn refused(&mut self, actor: &Actor, call: Call, now: Time) -> Box<Refusal> {
        let operation = self.operation(actor, call);
        match self.play(operation, now).await {
            Decision::Refusal(refusal) => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    pub(crate) async fn create(&mut self, actor: &Actor, lifecycle: &str, fields: Json, now: Time) -> RecordId {
        self.ok(actor, create(lifecycle, fields), now).await.subject
    }

    /// Hand a job to a worker; its token.
    pub(crate) async fn lease(&mut self, actor: &Actor, record: RecordId, now: Time) -> Token {
        let call = Call::Lease { record, worker: "w".into(), lease: None, start: true };
        let changes = self.ok(actor, call, now).await;
        Token(changes.records[0].after.attempt)
    }
}

pub(crate) fn create(lifecycle: &str, fields: Json) -> Call {
    let create = Create { lifecycle: lifecycle.into(), id: None, owner: None, fields: object(fields), payload: None };
    Call::Create(create)
}

pub(crate) fn fire(record: RecordId, event: &str, input: Json) -> Call {
    Call::Fire { record, event: event.into(), input: object(input), token: None, if_version: None }
}

fn object(json: Json) -> Map<String, Json> {
    match json {
        Json::Object(map) => map,
        other => panic!("{other} is not an object"),
    }
}
