//! A minimal engine for tests: loads, decides and saves one batch at a time.

use std::sync::Arc;

use onceward_core::decide::{Call, Changes, CreateRecord, Decision, Operation, Refusal, decide};
use onceward_core::record::{Actor, FencingToken};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use onceward_store::{Batch, Catalog, DecidedOperation, OperationOutcome, ReadSet, SaveResult, Store, StoreError};
use serde_json::{Map, Value as Json};

/// More rounds mean that loading makes no progress.
const MAX_LOAD_ROUNDS: usize = 500;

pub(crate) struct StoreDriver<'a, S> {
    pub(crate) store: &'a S,
    pub(crate) catalog: Arc<Catalog>,
    seed: u128,
}

/// A batch that is being decided.
#[derive(Clone, Debug)]
pub(crate) struct DriverBatch {
    pub(crate) read_set: ReadSet,
    pub(crate) batch: Batch,
}

impl<'a, S: Store> StoreDriver<'a, S> {
    pub(crate) async fn new(store: &'a S) -> Self {
        let catalog = store.catalog().await.expect("definitions");
        Self { store, catalog, seed: 0 }
    }

    pub(crate) fn new_batch(&self, now: Time) -> DriverBatch {
        DriverBatch {
            read_set: ReadSet::default(),
            batch: Batch { operations: Vec::new(), decided_at: now, catalog_revision: self.catalog.revision() },
        }
    }

    pub(crate) fn operation(&mut self, actor: &Actor, call: Call) -> Operation {
        self.seed += 1 << 64;
        Operation { seed: self.seed, actor: actor.clone(), call, check_answers: Vec::new(), trace: None }
    }

    /// Decides one operation, loads what is missing, and adds it to the batch.
    pub(crate) async fn decide(&self, pending: &mut DriverBatch, operation: Operation, now: Time) -> Decision {
        for _ in 0..MAX_LOAD_ROUNDS {
            let decision = decide(&self.catalog.definitions, pending.read_set.snapshot(), &operation, now);
            let outcome = match &decision {
                Decision::Missing(keys) => {
                    self.store.load(&mut pending.read_set, keys).await.expect("loading");
                    continue;
                }
                Decision::Changes(changes) => {
                    pending.read_set.apply(changes);
                    OperationOutcome::Changes(changes.clone())
                }
                Decision::NoOp(no_op) => OperationOutcome::NoOp(no_op.clone()),
                Decision::Refusal(refusal) => OperationOutcome::Refusal(refusal.clone()),
                Decision::Due { .. } | Decision::NeedsChecks(_) => return decision,
            };
            pending.batch.operations.push(DecidedOperation::new(operation, outcome));
            return decision;
        }
        panic!("decide requests keys that are already loaded: {operation:?}")
    }

    pub(crate) async fn save(&self, pending: &DriverBatch) -> SaveResult {
        self.try_save(pending).await.expect("saving")
    }

    pub(crate) async fn try_save(&self, pending: &DriverBatch) -> Result<SaveResult, StoreError> {
        self.store.save(&Arc::new(pending.read_set.clone()), &Arc::new(pending.batch.clone())).await
    }

    /// Runs one operation as its own batch.
    pub(crate) async fn run_operation(&self, operation: Operation, now: Time) -> Decision {
        let mut pending = self.new_batch(now);
        let decision = self.decide(&mut pending, operation, now).await;
        if !pending.batch.operations.is_empty() {
            let save = self.save(&pending).await;
            assert!(matches!(save, SaveResult::Saved { .. }), "the save conflicts without another writer: {save:?}");
        }
        decision
    }

    /// Runs a call that must succeed.
    pub(crate) async fn expect_taken(&mut self, actor: &Actor, call: Call, now: Time) -> Box<Changes> {
        let operation = self.operation(actor, call);
        match self.run_operation(operation, now).await {
            Decision::Changes(changes) => changes,
            other => panic!("not taken: {other:?}"),
        }
    }

    /// Runs a call that must be refused.
    pub(crate) async fn expect_refused(&mut self, actor: &Actor, call: Call, now: Time) -> Box<Refusal> {
        let operation = self.operation(actor, call);
        match self.run_operation(operation, now).await {
            Decision::Refusal(refusal) => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    pub(crate) async fn create_record(&mut self, actor: &Actor, lifecycle: &str, fields: Json, now: Time) -> RecordId {
        self.expect_taken(actor, create_call(lifecycle, fields), now).await.subject
    }

    /// Leases a job and returns its token.
    pub(crate) async fn lease_job(&mut self, actor: &Actor, record: RecordId, now: Time) -> FencingToken {
        let call = Call::Lease { record, worker: "w".into(), lease: None, start: true };
        let changes = self.expect_taken(actor, call, now).await;
        FencingToken(changes.records[0].after.attempt)
    }
}

pub(crate) fn create_call(lifecycle: &str, fields: Json) -> Call {
    let create =
        CreateRecord { lifecycle: lifecycle.into(), id: None, owner: None, fields: json_object(fields), payload: None };
    Call::Create(create)
}

pub(crate) fn fire_call(record: RecordId, event: &str, input: Json) -> Call {
    Call::Fire { record, event: event.into(), input: json_object(input), token: None, if_version: None }
}

fn json_object(json: Json) -> Map<String, Json> {
    match json {
        Json::Object(map) => map,
        other => panic!("{other} is not an object"),
    }
}
