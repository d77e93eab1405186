//! What a store tells of itself, looked at without trusting the engine.

use std::sync::Arc;

use onceward_core::decide::{Account, Key};
use onceward_core::record::Record;
use onceward_core::value::RecordId;
use onceward_store::{Base, ListQuery, Replay, Store};

const ALL: usize = usize::MAX >> 1;

/// How many effects the log tells of for this job.
pub(crate) async fn effects<S: Store>(store: &S, id: RecordId) -> usize {
    let history = store.history(id, 0, ALL).await.expect("the history");
    history.iter().filter(|entry| entry.body().expect("a body").effect.is_some()).count()
}

fn shop() -> Account {
    Account::Named { asset: "coin".into(), name: "shop".into() }
}

/// Coins that came to the shop.
pub(crate) async fn charged<S: Store>(store: &S) -> i64 {
    let shop = shop();
    let mut base = Base::default();
    store.load(&mut base, &[Key::Account(shop.clone())]).await.expect("the account");
    base.snapshot().accounts.get(&shop).copied().unwrap_or(0)
}

/// Whether a store is whole: its log has no gap, the chain holds, and records, executions, effects and money are those that
/// the log comes to. How many entries there are, or what is torn.
pub(crate) async fn whole<S: Store>(store: &S) -> Result<usize, String> {
    loop {
        let before = store.last().await.map_err(|error| error.to_string())?;
        let found = compared(store).await;
        // A server may be at the last message of somebody who is dead: what came meanwhile was seen in part.
        if found.is_ok() || store.last().await.is_ok_and(|last| last == before) {
            return found;
        }
    }
}

async fn compared<S: Store>(store: &S) -> Result<usize, String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let log = store.log(0, ALL).await.map_err(|error| said(&error))?;
    let catalog = store.definitions().await.map_err(|error| said(&error))?;
    let mut replay = Replay::new(catalog.lifecycles());
    let mut moved = 0;
    for entry in &log {
        replay.apply(entry).map_err(|error| said(&error))?;
        let in_it = entry.body().map_err(|error| said(&error))?.moves;
        moved += in_it.iter().filter(|one| one.to == shop()).map(|one| one.amount).sum::<i64>();
    }
    let page = store.list(&ListQuery { limit: ALL, ..ListQuery::default() }).await.map_err(|error| said(&error))?;
    for id in replay.world.records.keys() {
        let kept = page.records.iter().find(|record| record.id == *id);
        let kept = kept.ok_or_else(|| format!("the log tells of {id}, which is not there"))?;
        let built = replay.world.record(*id).ok_or_else(|| format!("{id} is not in the log"))?;
        if shape(kept) != shape(built) {
            return Err(format!("{id} is {:?} and its log says {:?}", shape(kept), shape(built)));
        }
        let landed = store.effect(*id).await.map_err(|error| said(&error))?.map(|effect| effect.token);
        if landed != replay.effects.get(id).map(|effect| effect.token) {
            return Err(format!("the effect of {id} is not the one in its log"));
        }
        let newest = store.executions(*id).await.map_err(|error| said(&error))?.pop();
        if newest.map(|execution| (execution.token, execution.status)) != shape(built).3 {
            return Err(format!("the newest execution of {id} is not the one in its log"));
        }
    }
    if page.records.len() != replay.world.records.len() {
        return Err("a record is there of which the log does not tell".to_owned());
    }
    let coins = charged(store).await;
    if coins != moved {
        return Err(format!("{coins} coins were charged, and the log tells of {moved}"));
    }
    Ok(log.len())
}

type Shape = (u64, Arc<str>, String, Option<(onceward_core::record::Token, onceward_core::record::ExecutionStatus)>);

fn shape(record: &Record) -> Shape {
    let execution = record.execution.as_ref().map(|execution| (execution.token, execution.status));
    (record.version, Arc::clone(record.state_name()), format!("{:?}", record.fields), execution)
}
