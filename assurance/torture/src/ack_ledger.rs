//! Records what engines have acknowledged, and verifies that the database contains it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use onceward_core::decide::{Account, Call, ReadKey};
use onceward_core::record::FencingToken;
use onceward_core::value::{RecordId, Value};
use onceward_store::{AnyStore, LogReplay, ReadSet, Store as _};
use serde_json::json;

use crate::requests::TASK_LIFECYCLE;

#[cfg(test)]
mod tests;

/// The acknowledged operations of one task.
#[derive(Debug, Default)]
struct TaskAcks {
    /// Granted leases and their workers.
    leases: Vec<(FencingToken, String)>,
    /// Workers whose commit was acknowledged. A worker's name is its result.
    committers: BTreeSet<String>,
    /// Workers whose commit was refused.
    refused_commits: BTreeSet<String>,
    is_finished: bool,
    failed_tokens: Vec<FencingToken>,
    cancel_reason: Option<String>,
    refused_cancel_reasons: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub(crate) struct AckLedger {
    tasks: BTreeMap<RecordId, TaskAcks>,
    /// Names of created tasks, and of tasks whose create was refused.
    created: BTreeMap<String, RecordId>,
    refused_names: BTreeSet<String>,
    /// Workers that got no lease.
    workers_without_lease: BTreeSet<String>,
    /// Tasks with replies since their last verification.
    unverified: BTreeSet<RecordId>,
    pub(crate) acknowledged: u64,
    pub(crate) refused: u64,
}

impl AckLedger {
    fn task_mut(&mut self, id: RecordId) -> &mut TaskAcks {
        self.unverified.insert(id);
        self.tasks.entry(id).or_default()
    }

    pub(crate) fn record_created(&mut self, name: &str, id: RecordId) -> Result<()> {
        let before = self.created.insert(name.to_owned(), id);
        ensure!(before.is_none_or(|before| before == id), "{name} is {id}, but was {before:?}");
        self.task_mut(id);
        Ok(())
    }

    /// Records a refused create of an unused name. The task must not exist, unless the name is used again.
    pub(crate) fn record_create_refused(&mut self, name: &str) {
        self.refused_names.insert(name.to_owned());
    }

    pub(crate) fn record_lease(&mut self, id: RecordId, token: FencingToken, worker: &str) -> Result<()> {
        let leases = &mut self.task_mut(id).leases;
        ensure!(leases.iter().all(|(other, _)| *other != token), "{id} was leased twice as {token:?}");
        leases.push((token, worker.to_owned()));
        Ok(())
    }

    pub(crate) fn record_no_lease(&mut self, worker: &str) {
        self.workers_without_lease.insert(worker.to_owned());
    }

    pub(crate) fn record_commit(&mut self, id: RecordId, worker: &str, finish: bool) -> Result<()> {
        let known = self.task_mut(id);
        known.committers.insert(worker.to_owned());
        known.is_finished |= finish;
        ensure!(known.committers.len() == 1, "{id} was committed by {:?}", known.committers);
        ensure!(known.cancel_reason.is_none(), "{id} was committed after it was cancelled");
        Ok(())
    }

    pub(crate) fn record_commit_refused(&mut self, id: RecordId, worker: &str) {
        self.task_mut(id).refused_commits.insert(worker.to_owned());
    }

    pub(crate) fn record_finish(&mut self, id: RecordId) {
        self.task_mut(id).is_finished = true;
    }

    pub(crate) fn record_failure(&mut self, id: RecordId, token: FencingToken) {
        self.task_mut(id).failed_tokens.push(token);
    }

    pub(crate) fn record_cancel(&mut self, id: RecordId, why: &str) -> Result<()> {
        let known = self.task_mut(id);
        ensure!(known.committers.is_empty(), "{id} was cancelled after it was committed");
        let before = known.cancel_reason.replace(why.to_owned());
        ensure!(before.is_none(), "{id} was cancelled as {why}, but as {before:?} before");
        Ok(())
    }

    pub(crate) fn record_cancel_refused(&mut self, id: RecordId, why: &str) {
        self.task_mut(id).refused_cancel_reasons.insert(why.to_owned());
    }

    /// Returns the number of created tasks.
    pub(crate) fn task_count(&self) -> usize {
        self.tasks.len()
    }

    pub(crate) fn commit_count(&self) -> usize {
        self.tasks.values().filter(|known| !known.committers.is_empty()).count()
    }

    /// Verifies the tasks with new replies.
    pub(crate) async fn verify_recent(&mut self, store: &AnyStore) -> Result<()> {
        for id in std::mem::take(&mut self.unverified) {
            self.verify_task(store, id).await?;
        }
        Ok(())
    }

    async fn verify_task(&self, store: &AnyStore, id: RecordId) -> Result<()> {
        let known = self.tasks.get(&id).context("the task is known")?;
        let record = store.record(id).await?.with_context(|| format!("{id} was acknowledged, but is lost"))?;
        let state = record.state_name();
        let executions = store.executions(id).await?;
        for (token, worker) in &known.leases {
            let kept = executions.iter().find(|execution| execution.token == *token);
            let kept = kept.with_context(|| format!("{id}: the lease {token:?} of {worker} is lost"))?;
            ensure!(*kept.worker == **worker, "{id}: {token:?} was {worker}'s and is {}'s", kept.worker);
        }
        for execution in &executions {
            ensure!(!self.workers_without_lease.contains(&*execution.worker), "{id}: {} was refused", execution.worker);
        }
        for token in &known.failed_tokens {
            let kept = executions.iter().find(|execution| execution.token == *token);
            ensure!(kept.is_some_and(|kept| kept.aborted.is_some()), "{id}: the failure of {token:?} is lost");
        }
        let effect = store.effect(id).await?;
        if let Some(worker) = known.committers.first() {
            let effect = effect.as_ref().with_context(|| format!("{id}: the commit of {worker} is lost"))?;
            ensure!(effect.result == json!(worker), "{id}: {worker} committed, but {} is stored", effect.result);
            ensure!(["running", "done"].contains(&&**state), "{id} is {state} after its commit");
        }
        ensure!(!known.is_finished || &**state == "done", "{id} is {state}, but was finished");
        if let Some(effect) = &effect {
            let by = effect.result.as_str().unwrap_or_default();
            ensure!(!known.refused_commits.contains(by), "{id}: the commit of {by} was refused, but is stored");
        }
        let why = if let Some(Value::Text(why)) = record.field("why") { Some(why.to_string()) } else { None };
        if let Some(said) = &known.cancel_reason {
            ensure!(
                &**state == "dropped" && why.as_ref() == Some(said),
                "{id} was cancelled as {said}: {state} {why:?}"
            );
            ensure!(effect.is_none(), "{id} was cancelled, but has an effect");
        }
        ensure!(
            why.is_none_or(|why| !known.refused_cancel_reasons.contains(&why)),
            "{id}: a cancel was refused, but is stored"
        );
        Ok(())
    }

    /// Verifies all tasks and the log: no gap, a valid hash chain, one effect per task, and a coin and a note for each
    /// effect.
    pub(crate) async fn verify_all(&mut self, store: &AnyStore) -> Result<u64> {
        self.unverified.clear();
        for id in self.tasks.keys() {
            self.verify_task(store, *id).await?;
        }
        let log = store.log(0, usize::MAX >> 1).await?;
        let mut replay = LogReplay::new(store.catalog().await?.lifecycles());
        let (mut effects, mut notes, mut coins) = (BTreeSet::new(), 0_usize, 0);
        let mut names = BTreeMap::<String, RecordId>::new();
        for (seq, entry) in (1..).zip(&log) {
            ensure!(entry.seq == seq, "the log has a gap before {}", entry.seq);
            replay.apply(entry)?;
            let (body, record) = (entry.body()?, entry.record);
            coins += body.transfers.iter().map(|one| one.amount).sum::<i64>();
            if body.effect.is_some() {
                let record = record.context("an effect has a record")?;
                ensure!(effects.insert(record), "{record} has two effects");
            }
            let made = entry.version == 1 && record.is_some();
            match body.operation.as_deref().map(|operation| &operation.call) {
                Some(Call::Create(create)) if made && &*create.lifecycle == TASK_LIFECYCLE => {
                    let name = create.fields["name"].as_str().unwrap_or_default().to_owned();
                    let id = record.context("the record was created")?;
                    ensure!(!self.refused_names.contains(&name), "{name} was refused, but is stored");
                    ensure!(names.insert(name.clone(), id).is_none(), "{name} was created twice");
                }
                // Only a commit spawns a record.
                None if made => notes += 1,
                _ => {}
            }
        }
        for (name, id) in &self.created {
            ensure!(names.get(name) == Some(id), "{name} is {id} in the ledger, but {:?} in the log", names.get(name));
        }
        ensure!(notes == effects.len(), "{} effects and {notes} notes", effects.len());
        ensure!(coins == i64::try_from(effects.len())?, "{} effects and {coins} coins", effects.len());
        // Other processes may commit meanwhile, so the balance may exceed the log that was read.
        ensure!(shop_balance(store).await? >= coins, "coins are missing");
        Ok(log.len() as u64)
    }
}

async fn shop_balance(store: &AnyStore) -> Result<i64> {
    let shop = Account::Named { asset: "coin".into(), name: "shop".into() };
    let mut base = ReadSet::default();
    store.load(&mut base, &[ReadKey::Account(shop.clone())]).await?;
    Ok(base.snapshot().accounts.get(&shop).copied().unwrap_or(0))
}
