//! What a store tells of itself, looked at without trusting the engine.

use std::sync::Arc;

use onceward_core::decide::{Account, ReadKey};
use onceward_core::record::Record;
use onceward_core::value::RecordId;
use onceward_store::{ListQuery, LogReplay, ReadSet, Store};

const NO_LIMIT: usize = usize::MAX >> 1;

/// How many effects the log tells of for this job.
pub(crate) async fn count_effects<S: Store>(store: &S, id: RecordId) -> usize {
    let history = store.history(id, 0, NO_LIMIT).await.expect("the history");
    history.iter().filter(|entry| entry.body().expect("a body").effect.is_some()).count()
}

fn shop_account() -> Account {
    Account::Named { asset: "coin".into(), name: "shop".into() }
}

/// Coins that came to the shop.
pub(crate) async fn shop_balance<S: Store>(store: &S) -> i64 {
    let shop = shop_account();
    let mut base = ReadSet::default();
    store.load(&mut base, &[ReadKey::Account(shop.clone())]).await.expect("the account");
    base.snapshot().accounts.get(&shop).copied().unwrap_or(0)
}

/// Whether a store is whole: its log has no gap, the chain holds, and records, executions, effects and money are those that
/// the log comes to. How many entries there are, or what is torn.
pub(crate) async fn verify_against_log<S: Store>(store: &S) -> Result<usize, String> {
    loop {
        let before = store.last_seq().await.map_err(|error| error.to_string())?;
        let found = compare_with_log(store).await;
        // A server may be at the last message of somebody who is dead: what came meanwhile was seen in part.
        if found.is_ok() || store.last_seq().await.is_ok_and(|last| last == before) {
            return found;
        }
    }
}

async fn compare_with_log<S: Store>(store: &S) -> Result<usize, String> {
    let error_text = |error: &dyn std::fmt::Display| error.to_string();
    let log = store.log(0, NO_LIMIT).await.map_err(|error| error_text(&error))?;
    let catalog = store.catalog().await.map_err(|error| error_text(&error))?;
    let mut replay = LogReplay::new(catalog.lifecycles());
    let mut logged_coins = 0;
    for entry in &log {
        replay.apply(entry).map_err(|error| error_text(&error))?;
        let transfers = entry.body().map_err(|error| error_text(&error))?.transfers;
        logged_coins += transfers.iter().filter(|one| one.to == shop_account()).map(|one| one.amount).sum::<i64>();
    }
    let page =
        store.list(&ListQuery { limit: NO_LIMIT, ..ListQuery::default() }).await.map_err(|error| error_text(&error))?;
    for id in replay.snapshot.records.keys() {
        let stored = page.records.iter().find(|record| record.id == *id);
        let kept = stored.ok_or_else(|| format!("the log tells of {id}, which is not there"))?;
        let built = replay.snapshot.record(*id).ok_or_else(|| format!("{id} is not in the log"))?;
        if record_outline(kept) != record_outline(built) {
            return Err(format!("{id} is {:?} and its log says {:?}", record_outline(kept), record_outline(built)));
        }
        let landed = store.effect(*id).await.map_err(|error| error_text(&error))?.map(|effect| effect.token);
        if landed != replay.effects.get(id).map(|effect| effect.token) {
            return Err(format!("the effect of {id} is not the one in its log"));
        }
        let newest = store.executions(*id).await.map_err(|error| error_text(&error))?.pop();
        if newest.map(|execution| (execution.token, execution.status)) != record_outline(built).3 {
            return Err(format!("the newest execution of {id} is not the one in its log"));
        }
    }
    if page.records.len() != replay.snapshot.records.len() {
        return Err("a record is there of which the log does not tell".to_owned());
    }
    let coins = shop_balance(store).await;
    if coins != logged_coins {
        return Err(format!("{coins} coins were charged, and the log tells of {logged_coins}"));
    }
    Ok(log.len())
}

type RecordOutline =
    (u64, Arc<str>, String, Option<(onceward_core::record::FencingToken, onceward_core::record::ExecutionStatus)>);

fn record_outline(record: &Record) -> RecordOutline {
    let execution = record.execution.as_ref().map(|execution| (execution.token, execution.status));
    (record.version, Arc::clone(record.state_name()), format!("{:?}", record.fields), execution)
}
