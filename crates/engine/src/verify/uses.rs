//! Versions that became current on somebody's word: what the store keeps of it, held against the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceward_store::log::Used;
use onceward_store::scan::{Difference, Scan, What};
use onceward_store::{Catalog, Entry, StoreError};

use super::Verify;
use super::log::HISTORY;

const TURNS: &str = "turns";

/// What was kept when the log was first looked at: what comes later is in the log later, too.
pub(super) struct Uses {
    number: u32,
    /// By number, those of which the log has not told yet.
    untold: BTreeMap<u32, Kept>,
}

struct Kept {
    definition: Arc<str>,
    at: i64,
    by: Arc<str>,
}

impl Uses {
    pub(super) fn of(catalog: &Catalog) -> Self {
        let mut untold = BTreeMap::new();
        for (number, turn) in catalog.uses() {
            let definition = catalog.hash_of(turn.definition).unwrap_or_else(|| "?".into());
            let by = turn.by.clone().unwrap_or_default();
            untold.insert(number, Kept { definition, at: turn.at.micros(), by });
        }
        Self { number: catalog.number(), untold }
    }
}

impl<S: Scan> Verify<'_, S> {
    /// An entry says that a version became current.
    pub(super) async fn used(&mut self, entry: &Entry, used: &Used) -> Result<(), StoreError> {
        self.scratch.pass(entry.seq);
        if used.number > self.scratch.catalog().number() {
            let learned = self.store.learn().await?;
            self.scratch.learn(&learned.catalog)?;
        }
        let known = self.scratch.catalog().by_hash(&used.definition).map(|version| Arc::clone(&version.name));
        if known.as_ref() != Some(&used.lifecycle) {
            let why = format!("no version {} of {} is known", used.definition, used.lifecycle);
            self.found(Difference::broken(HISTORY, entry.seq, why).against("INV-3"));
        }
        let Some(kept) = self.uses.untold.remove(&used.number) else {
            if used.number <= self.uses.number {
                self.found(Difference::new(TURNS, used.number, What::Missing));
            }
            return Ok(());
        };
        let told = (&used.definition, entry.at.micros(), &used.by);
        for (column, kept, told) in [
            ("definition", kept.definition.to_string(), told.0.to_string()),
            ("at", kept.at.to_string(), told.1.to_string()),
            ("actor", kept.by.to_string(), told.2.to_string()),
        ] {
            if kept != told {
                self.found(Difference::differs(TURNS, used.number, column, kept, told));
            }
        }
        Ok(())
    }

    /// Of what is left the log says nothing.
    pub(super) fn uses_untold(&mut self) {
        for number in std::mem::take(&mut self.uses.untold).into_keys() {
            self.found(Difference::new(TURNS, number, What::Extra));
        }
    }
}
