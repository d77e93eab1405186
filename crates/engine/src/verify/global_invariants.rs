//! Verifies global invariants of the replayed state: balances, unique keys and limits.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use onceward_core::decide::{CounterKey, UniqueKey, canonical_key_parts};
use onceward_core::model::{KeyPart, StateSet};
use onceward_core::record::Record;
use onceward_store::scan::{KEY_SEPARATOR, ReplayedRecord, Scan};
use onceward_store::{ReplayTable, StoreError, TableDifference};

use super::{SCAN_PAGE_ROWS, Verifier};

impl<S: Scan> Verifier<'_, S> {
    pub(super) fn verify_global_invariants(&mut self) -> Result<(), StoreError> {
        let mut sums_by_asset: BTreeMap<Arc<str>, i128> = BTreeMap::new();
        let (mut last_row, total) = (0, self.replay.created_records);
        loop {
            let records = self.replay.records_after(last_row, SCAN_PAGE_ROWS)?;
            let Some(replayed) = records.last() else { break };
            last_row = replayed.row_id;
            for replayed in records.iter().filter(|replayed| !replayed.is_log_damaged) {
                self.verify_unique_keys(&replayed.record)?;
                self.recount_record(&replayed.record)?;
                self.verify_hold(replayed);
                if let Some(asset) = &replayed.record.lifecycle.asset {
                    *sums_by_asset.entry(Arc::clone(asset)).or_default() += i128::from(replayed.ledger_balance);
                }
            }
            self.report_progress("invariants", last_row, total);
        }
        self.verify_counters()?;
        self.verify_balances(sums_by_asset)
    }

    /// Verifies that each unique key has one holder.
    fn verify_unique_keys(&mut self, record: &Record) -> Result<(), StoreError> {
        for unique in &record.lifecycle.unique_constraints {
            let Some(parts) = held_key_parts(record, &unique.on, unique.in_states) else { continue };
            let (lifecycle, name) = (Arc::clone(&record.lifecycle.name), Arc::clone(&unique.name));
            let key = UniqueKey { lifecycle, unique: name, parts };
            let holder = self.replay.unique_holder(&key)?;
            let own_id = record.id.to_string();
            if holder.as_ref() != Some(&own_id) {
                let holder_text = holder.unwrap_or_else(|| "no record".to_owned());
                let at = format!("{} {} {:?}", key.lifecycle, key.unique, key.parts);
                self.add_difference(TableDifference::differs("uniques", at, "holder", holder_text, own_id));
            }
        }
        Ok(())
    }

    fn verify_hold(&mut self, replayed: &ReplayedRecord) {
        if replayed.record.hold != replayed.ledger_balance {
            let (id, hold, ledger) = (replayed.record.id, replayed.record.hold, replayed.ledger_balance);
            self.add_difference(TableDifference::differs("records", id, "hold", hold, ledger).with_rule("INV-7"));
        }
    }

    /// Counts a record under each limit on current states, and under its concurrency key while it runs.
    fn recount_record(&mut self, record: &Record) -> Result<(), StoreError> {
        let lifecycle = &record.lifecycle.name;
        let mut keys = Vec::new();
        for limit in record.lifecycle.limits.iter().filter(|limit| limit.in_states.is_some() && limit.window.is_none())
        {
            if let Some(parts) = held_key_parts(record, &limit.on, limit.in_states) {
                keys.push((Arc::clone(&limit.name), parts));
            }
        }
        if let Some(parts) = record.live_execution().and_then(|execution| execution.concurrency_key.clone()) {
            keys.push(("work.key".into(), parts));
        }
        for (limit, parts) in keys {
            let key = CounterKey { lifecycle: Arc::clone(lifecycle), limit, parts, window_start: None };
            self.replay.add_recounted(&key)?;
        }
        Ok(())
    }

    // INV-7: each counter equals the recount.
    fn verify_counters(&mut self) -> Result<(), StoreError> {
        let mut is_verifiable: HashMap<(String, String), bool> = HashMap::new();
        for lifecycle in self.replay.catalog().lifecycles().values() {
            let name = lifecycle.name.to_string();
            is_verifiable.insert((name.clone(), "work.key".to_owned()), true);
            for limit in &lifecycle.limits {
                let counts_current = limit.in_states.is_some() && limit.window.is_none();
                // If versions count differently, the expected value is unknown.
                *is_verifiable.entry((name.clone(), limit.name.to_string())).or_insert(counts_current) &=
                    counts_current;
            }
        }
        for kind in [ReplayTable::Count, ReplayTable::RecountedCounter] {
            let mut last_row = 0;
            loop {
                let rows = self.replay.rows_after(kind, last_row, SCAN_PAGE_ROWS)?;
                let Some(row) = rows.last() else { break };
                last_row = row.row_id;
                for row in rows {
                    let onceward_store::scan::RowSubject::Key(key) = &row.subject else { continue };
                    let mut parts = key.split(KEY_SEPARATOR).map(str::to_owned);
                    let limit_key = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                    if !is_verifiable.get(&limit_key).copied().unwrap_or(false) {
                        continue;
                    }
                    let other_table =
                        if kind == ReplayTable::Count { ReplayTable::RecountedCounter } else { ReplayTable::Count };
                    let (own_count, other_count) =
                        (row.value, self.replay.find_row(other_table, key)?.and_then(|row| row.value));
                    let zero = || "0".to_owned();
                    let (own, other) = (own_count.unwrap_or_else(zero), other_count.unwrap_or_else(zero));
                    // Reports a key that is in both tables once.
                    if own != other && (kind == ReplayTable::Count || other == "0") {
                        let (stored, expected) = if kind == ReplayTable::Count { (own, other) } else { (other, own) };
                        self.add_difference(
                            TableDifference::differs("counts", &row.subject, "count", stored, expected)
                                .with_rule("INV-7"),
                        );
                    }
                }
            }
        }
        Ok(())
    }

    /// Verifies double entry: the balances of an asset sum to zero, and only outside accounts may be negative.
    fn verify_balances(&mut self, mut sums_by_asset: BTreeMap<Arc<str>, i128>) -> Result<(), StoreError> {
        let mut last_row = 0;
        loop {
            let rows = self.replay.rows_after(ReplayTable::Account, last_row, SCAN_PAGE_ROWS)?;
            let Some(row) = rows.last() else { break };
            last_row = row.row_id;
            for row in rows {
                let onceward_store::scan::RowSubject::Key(key) = &row.subject else { continue };
                let (asset, name) = key.split_once(KEY_SEPARATOR).unwrap_or((key, ""));
                let balance: i128 = row.value.as_deref().and_then(|value| value.parse().ok()).unwrap_or(0);
                *sums_by_asset.entry(asset.into()).or_default() += balance;
                if balance < 0 && !self.replay.catalog().is_outside_account(asset, name) {
                    self.add_difference(
                        TableDifference::differs("accounts", &row.subject, "balance", balance, "0 or more")
                            .with_rule("INV-7"),
                    );
                }
            }
        }
        for (asset, sum) in sums_by_asset.into_iter().filter(|(_, sum)| *sum != 0) {
            let why = format!("the accounts and holds of `{asset}` sum to {sum}, not to 0");
            self.add_difference(TableDifference::invalid("accounts", &asset, why).with_rule("INV-7"));
        }
        Ok(())
    }
}

fn held_key_parts(record: &Record, on: &[KeyPart], within: Option<StateSet>) -> Option<Vec<Arc<str>>> {
    within.is_none_or(|states| states.contains(record.state)).then(|| canonical_key_parts(record, on)).flatten()
}
