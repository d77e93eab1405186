//! What engines have acknowledged, and whether it is there.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use onceward_core::decide::{Account, Call, Key};
use onceward_core::record::Token;
use onceward_core::value::{RecordId, Value};
use onceward_store::{AnyStore, Base, Replay, Store as _};
use serde_json::json;

use crate::questions::TASK;

#[cfg(test)]
mod tests;

/// What is known of one task.
#[derive(Debug, Default)]
struct Known {
    /// Leases that were given, and to whom.
    leases: Vec<(Token, String)>,
    /// Whose commit was acknowledged. A worker's name is its result.
    committed: BTreeSet<String>,
    /// Whose commit was refused.
    uncommitted: BTreeSet<String>,
    finished: bool,
    failed: Vec<Token>,
    cancelled: Option<String>,
    uncancelled: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Books {
    tasks: BTreeMap<RecordId, Known>,
    /// Names of tasks that were made, and of those that were not.
    made: BTreeMap<String, RecordId>,
    unmade: BTreeSet<String>,
    /// Workers that were told that they have no lease.
    unleased: BTreeSet<String>,
    /// Tasks of which something was told since they were last looked at.
    fresh: BTreeSet<RecordId>,
    pub(crate) acknowledged: u64,
    pub(crate) refused: u64,
}

impl Books {
    fn known(&mut self, id: RecordId) -> &mut Known {
        self.fresh.insert(id);
        self.tasks.entry(id).or_default()
    }

    pub(crate) fn made(&mut self, name: &str, id: RecordId) -> Result<()> {
        let before = self.made.insert(name.to_owned(), id);
        ensure!(before.is_none_or(|before| before == id), "{name} is {id}, and was {before:?}");
        self.known(id);
        Ok(())
    }

    /// Refused, though nobody has the name yet: it must not appear, unless it is asked for again.
    pub(crate) fn unmade(&mut self, name: &str) {
        self.unmade.insert(name.to_owned());
    }

    pub(crate) fn leased(&mut self, id: RecordId, token: Token, worker: &str) -> Result<()> {
        let leases = &mut self.known(id).leases;
        ensure!(leases.iter().all(|(other, _)| *other != token), "{id} was leased twice as {token:?}");
        leases.push((token, worker.to_owned()));
        Ok(())
    }

    pub(crate) fn unleased(&mut self, worker: &str) {
        self.unleased.insert(worker.to_owned());
    }

    pub(crate) fn committed(&mut self, id: RecordId, worker: &str, finish: bool) -> Result<()> {
        let known = self.known(id);
        known.committed.insert(worker.to_owned());
        known.finished |= finish;
        ensure!(known.committed.len() == 1, "{id} was committed by {:?}", known.committed);
        ensure!(known.cancelled.is_none(), "{id} was committed, and was cancelled before");
        Ok(())
    }

    pub(crate) fn uncommitted(&mut self, id: RecordId, worker: &str) {
        self.known(id).uncommitted.insert(worker.to_owned());
    }

    pub(crate) fn finished(&mut self, id: RecordId) {
        self.known(id).finished = true;
    }

    pub(crate) fn failed(&mut self, id: RecordId, token: Token) {
        self.known(id).failed.push(token);
    }

    pub(crate) fn cancelled(&mut self, id: RecordId, why: &str) -> Result<()> {
        let known = self.known(id);
        ensure!(known.committed.is_empty(), "{id} was cancelled, and was committed before");
        let before = known.cancelled.replace(why.to_owned());
        ensure!(before.is_none(), "{id} was cancelled as {why}, and as {before:?} before");
        Ok(())
    }

    pub(crate) fn uncancelled(&mut self, id: RecordId, why: &str) {
        self.known(id).uncancelled.insert(why.to_owned());
    }

    /// Tasks that are there.
    pub(crate) fn tasks(&self) -> usize {
        self.tasks.len()
    }

    pub(crate) fn commits(&self) -> usize {
        self.tasks.values().filter(|known| !known.committed.is_empty()).count()
    }

    /// Those of which something was told since the last time.
    pub(crate) async fn look(&mut self, store: &AnyStore) -> Result<()> {
        for id in std::mem::take(&mut self.fresh) {
            self.look_at(store, id).await?;
        }
        Ok(())
    }

    async fn look_at(&self, store: &AnyStore, id: RecordId) -> Result<()> {
        let known = self.tasks.get(&id).context("it is known")?;
        let record = store.record(id).await?.with_context(|| format!("{id} was acknowledged, and is lost"))?;
        let state = record.state_name();
        let executions = store.executions(id).await?;
        for (token, worker) in &known.leases {
            let kept = executions.iter().find(|execution| execution.token == *token);
            let kept = kept.with_context(|| format!("{id}: the lease {token:?} of {worker} is lost"))?;
            ensure!(*kept.worker == **worker, "{id}: {token:?} was {worker}'s and is {}'s", kept.worker);
        }
        for execution in &executions {
            ensure!(!self.unleased.contains(&*execution.worker), "{id}: {} was told `no`", execution.worker);
        }
        for token in &known.failed {
            let kept = executions.iter().find(|execution| execution.token == *token);
            ensure!(kept.is_some_and(|kept| kept.aborted.is_some()), "{id}: the failure of {token:?} is lost");
        }
        let effect = store.effect(id).await?;
        if let Some(worker) = known.committed.first() {
            let effect = effect.as_ref().with_context(|| format!("{id}: the commit of {worker} is lost"))?;
            ensure!(effect.result == json!(worker), "{id}: {worker} committed, and {} is kept", effect.result);
            ensure!(["running", "done"].contains(&&**state), "{id} is {state} after its commit");
        }
        ensure!(!known.finished || &**state == "done", "{id} is {state}, and was finished");
        if let Some(effect) = &effect {
            let by = effect.result.as_str().unwrap_or_default();
            ensure!(!known.uncommitted.contains(by), "{id}: the commit of {by} was refused, and is there");
        }
        let why = if let Some(Value::Text(why)) = record.field("why") { Some(why.to_string()) } else { None };
        if let Some(said) = &known.cancelled {
            ensure!(
                &**state == "dropped" && why.as_ref() == Some(said),
                "{id} was cancelled as {said}: {state} {why:?}"
            );
            ensure!(effect.is_none(), "{id} was cancelled, and has an effect");
        }
        ensure!(why.is_none_or(|why| !known.uncancelled.contains(&why)), "{id}: a cancel was refused, and is there");
        Ok(())
    }

    /// All of it, and the log: no gap, its chain holds, one effect a task, and with each a coin and a note.
    pub(crate) async fn look_at_all(&mut self, store: &AnyStore) -> Result<u64> {
        self.fresh.clear();
        for id in self.tasks.keys() {
            self.look_at(store, *id).await?;
        }
        let log = store.log(0, usize::MAX >> 1).await?;
        let mut replay = Replay::new(store.definitions().await?.lifecycles());
        let (mut effects, mut notes, mut coins) = (BTreeSet::new(), 0_usize, 0);
        let mut names = BTreeMap::<String, RecordId>::new();
        for (place, entry) in (1..).zip(&log) {
            ensure!(entry.seq == place, "the log has a gap before {}", entry.seq);
            replay.apply(entry)?;
            let (body, record) = (entry.body()?, entry.record);
            coins += body.moves.iter().map(|one| one.amount).sum::<i64>();
            if body.effect.is_some() {
                let record = record.context("an effect is a record's")?;
                ensure!(effects.insert(record), "{record} has two effects");
            }
            let made = entry.version == 1 && record.is_some();
            match body.operation.as_deref().map(|operation| &operation.call) {
                Some(Call::Create(create)) if made && &*create.lifecycle == TASK => {
                    let name = create.fields["name"].as_str().unwrap_or_default().to_owned();
                    let id = record.context("a record was made")?;
                    ensure!(!self.unmade.contains(&name), "{name} was refused, and is there");
                    ensure!(names.insert(name.clone(), id).is_none(), "{name} was made twice");
                }
                // Nothing but a commit makes a record beside its own.
                None if made => notes += 1,
                _ => {}
            }
        }
        for (name, id) in &self.made {
            ensure!(names.get(name) == Some(id), "{name} is {id} in the books and {:?} in the log", names.get(name));
        }
        ensure!(notes == effects.len(), "{} effects and {notes} notes", effects.len());
        ensure!(coins == i64::try_from(effects.len())?, "{} effects and {coins} coins", effects.len());
        // Others may go on meanwhile: what is kept is at least what the log told.
        ensure!(shop(store).await? >= coins, "coins are gone");
        Ok(log.len() as u64)
    }
}

async fn shop(store: &AnyStore) -> Result<i64> {
    let shop = Account::Named { asset: "coin".into(), name: "shop".into() };
    let mut base = Base::default();
    store.load(&mut base, &[Key::Account(shop.clone())]).await?;
    Ok(base.snapshot().accounts.get(&shop).copied().unwrap_or(0))
}
