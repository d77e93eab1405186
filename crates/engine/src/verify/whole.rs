//! What must hold of the whole world that the log tells of, counted from its records.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use onceward_core::decide::{CountKey, UniqueKey, key_parts};
use onceward_core::model::{KeyPart, StateSet};
use onceward_core::record::Record;
use onceward_store::scan::{Known, SEPARATOR, Scan};
use onceward_store::{Difference, Kind, StoreError};

use super::{PAGE, Verify};

impl<S: Scan> Verify<'_, S> {
    /// Books, keys and limits.
    pub(super) fn whole(&mut self) -> Result<(), StoreError> {
        let mut sums: BTreeMap<Arc<str>, i128> = BTreeMap::new();
        let (mut last, all) = (0, self.scratch.records);
        loop {
            let records = self.scratch.records_after(last, PAGE)?;
            let Some(known) = records.last() else { break };
            last = known.row;
            for known in records.iter().filter(|known| !known.lost) {
                self.keys_of(&known.record)?;
                self.count(&known.record)?;
                self.hold_of(known);
                if let Some(asset) = &known.record.lifecycle.asset {
                    *sums.entry(Arc::clone(asset)).or_default() += i128::from(known.ledger);
                }
            }
            self.at("whole", last, all);
        }
        self.counts_agree()?;
        self.books_balance(sums)
    }

    /// Whoever has a key has it alone.
    fn keys_of(&mut self, record: &Record) -> Result<(), StoreError> {
        for unique in &record.lifecycle.uniques {
            let Some(parts) = held(record, &unique.on, unique.within) else { continue };
            let (lifecycle, name) = (Arc::clone(&record.lifecycle.name), Arc::clone(&unique.name));
            let key = UniqueKey { lifecycle, unique: name, parts };
            let holder = self.scratch.holder(&key)?;
            let own = record.id.to_string();
            if holder.as_ref() != Some(&own) {
                let kept = holder.unwrap_or_else(|| "nobody".to_owned());
                let at = format!("{} {} {:?}", key.lifecycle, key.unique, key.parts);
                self.found(Difference::differs("uniques", at, "holder", kept, own));
            }
        }
        Ok(())
    }

    fn hold_of(&mut self, known: &Known) {
        if known.record.hold != known.ledger {
            let (id, hold, ledger) = (known.record.id, known.record.hold, known.ledger);
            self.found(Difference::differs("records", id, "hold", hold, ledger).against("INV-7"));
        }
    }

    /// Count a record under each limit that counts records by what they are now, and under its work key while it runs.
    fn count(&mut self, record: &Record) -> Result<(), StoreError> {
        let lifecycle = &record.lifecycle.name;
        let mut keys = Vec::new();
        for limit in record.lifecycle.limits.iter().filter(|limit| limit.within.is_some() && limit.per.is_none()) {
            if let Some(parts) = held(record, &limit.on, limit.within) {
                keys.push((Arc::clone(&limit.name), parts));
            }
        }
        if let Some(parts) = record.live_execution().and_then(|execution| execution.key.clone()) {
            keys.push(("work.key".into(), parts));
        }
        for (limit, parts) in keys {
            let key = CountKey { lifecycle: Arc::clone(lifecycle), limit, parts, window: None };
            self.scratch.recount(&key)?;
        }
        Ok(())
    }

    // INV-7: what is counted is what there is.
    fn counts_agree(&mut self) -> Result<(), StoreError> {
        let mut counted: HashMap<(String, String), bool> = HashMap::new();
        for lifecycle in self.scratch.catalog().lifecycles().values() {
            let name = lifecycle.name.to_string();
            counted.insert((name.clone(), "work.key".to_owned()), true);
            for limit in &lifecycle.limits {
                let now = limit.within.is_some() && limit.per.is_none();
                // Where versions count differently, nobody can say what it should come to.
                *counted.entry((name.clone(), limit.name.to_string())).or_insert(now) &= now;
            }
        }
        for kind in [Kind::Count, Kind::Recount] {
            let mut last = 0;
            loop {
                let rows = self.scratch.keyed_after(kind, last, PAGE)?;
                let Some(row) = rows.last() else { break };
                last = row.row;
                for row in rows {
                    let onceward_store::scan::At::Key(key) = &row.at else { continue };
                    let mut parts = key.split(SEPARATOR).map(str::to_owned);
                    let which = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                    if !counted.get(&which).copied().unwrap_or(false) {
                        continue;
                    }
                    let other = if kind == Kind::Count { Kind::Recount } else { Kind::Count };
                    let (own, other) = (row.value, self.scratch.keyed(other, key)?.and_then(|row| row.value));
                    let zero = || "0".to_owned();
                    let (own, other) = (own.unwrap_or_else(zero), other.unwrap_or_else(zero));
                    // Keys that both have are told of once.
                    if own != other && (kind == Kind::Count || other == "0") {
                        let (kept, told) = if kind == Kind::Count { (own, other) } else { (other, own) };
                        self.found(Difference::differs("counts", &row.at, "count", kept, told).against("INV-7"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Double entry: what one has came from another, and only the world's own accounts owe.
    fn books_balance(&mut self, mut sums: BTreeMap<Arc<str>, i128>) -> Result<(), StoreError> {
        let mut last = 0;
        loop {
            let rows = self.scratch.keyed_after(Kind::Account, last, PAGE)?;
            let Some(row) = rows.last() else { break };
            last = row.row;
            for row in rows {
                let onceward_store::scan::At::Key(key) = &row.at else { continue };
                let (asset, name) = key.split_once(SEPARATOR).unwrap_or((key, ""));
                let balance: i128 = row.value.as_deref().and_then(|value| value.parse().ok()).unwrap_or(0);
                *sums.entry(asset.into()).or_default() += balance;
                if balance < 0 && !self.scratch.catalog().ever_outside(asset, name) {
                    self.found(
                        Difference::differs("accounts", &row.at, "balance", balance, "0 or more").against("INV-7"),
                    );
                }
            }
        }
        for (asset, sum) in sums.into_iter().filter(|(_, sum)| *sum != 0) {
            let why = format!("all accounts and holds of `{asset}` together come to {sum}, not to nothing");
            self.found(Difference::broken("accounts", &asset, why).against("INV-7"));
        }
        Ok(())
    }
}

fn held(record: &Record, on: &[KeyPart], within: Option<StateSet>) -> Option<Vec<Arc<str>>> {
    within.is_none_or(|states| states.contains(record.state)).then(|| key_parts(record, on)).flatten()
}
