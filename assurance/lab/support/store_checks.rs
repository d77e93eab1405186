//! Verifies a store independently of the engine.

use std::sync::Arc;

use onceward_core::decide::{Account, ReadKey};
use onceward_core::record::Record;
use onceward_core::value::RecordId;
use onceward_store::{ListQuery, LogReplay, ReadSet, Store};

const NO_LIMIT: usize = usize::MAX >> 1;

/// Counts the effects of a job in the log.
pub(crate) async fn count_effects<S: Store>(store: &S, id: RecordId) -> usize {
    let history = store.history(id, 0, NO_LIMIT).await.expect("the history is readable");
    history.iter().filter(|entry| entry.body().expect("a body").effect.is_some()).count()
}

fn shop_account() -> Account {
    Account::Named { asset: "coin".into(), name: "shop".into() }
}

/// Returns the balance of the shop's account.
pub(crate) async fn shop_balance<S: Store>(store: &S) -> i64 {
    let shop = shop_account();
    let mut base = ReadSet::default();
    store.load(&mut base, &[ReadKey::Account(shop.clone())]).await.expect("the account is readable");
    base.snapshot().accounts.get(&shop).copied().unwrap_or(0)
}

/// Verifies that the log has no gap, that its hash chain holds, and that records, executions, effects and balances
/// match it. Returns the number of entries, or a description of the damage.
pub(crate) async fn verify_against_log<S: Store>(store: &S) -> Result<usize, String> {
    loop {
        let before = store.last_seq().await.map_err(|error| error.to_string())?;
        let found = compare_with_log(store).await;
        // PostgreSQL may still run the last message of a killed engine, so a change during the verification requires
        // another pass.
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
        let kept = stored.ok_or_else(|| format!("the log has {id}, but the store does not"))?;
        let built = replay.snapshot.record(*id).ok_or_else(|| format!("{id} is not in the log"))?;
        if record_outline(kept) != record_outline(built) {
            return Err(format!("{id} is {:?}, but {:?} in its log", record_outline(kept), record_outline(built)));
        }
        let landed = store.effect(*id).await.map_err(|error| error_text(&error))?.map(|effect| effect.token);
        if landed != replay.effects.get(id).map(|effect| effect.token) {
            return Err(format!("the effect of {id} differs from its log"));
        }
        let newest = store.executions(*id).await.map_err(|error| error_text(&error))?.pop();
        if newest.map(|execution| (execution.token, execution.status)) != record_outline(built).3 {
            return Err(format!("the last execution of {id} differs from its log"));
        }
    }
    if page.records.len() != replay.snapshot.records.len() {
        return Err("a record is not in the log".to_owned());
    }
    let coins = shop_balance(store).await;
    if coins != logged_coins {
        return Err(format!("{coins} coins were charged, but {logged_coins} are in the log"));
    }
    Ok(log.len())
}

type RecordOutline =
    (u64, Arc<str>, String, Option<(onceward_core::record::FencingToken, onceward_core::record::ExecutionStatus)>);

fn record_outline(record: &Record) -> RecordOutline {
    let execution = record.execution.as_ref().map(|execution| (execution.token, execution.status));
    (record.version, Arc::clone(record.state_name()), format!("{:?}", record.fields), execution)
}
