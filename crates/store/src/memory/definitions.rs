//! Lifecycles in the reference model.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceward_core::diagnostic::Files;
use onceward_core::time::Time;

use super::kept::Kept;
use crate::catalog::{Catalog, Change};
use crate::error::StoreError;
use crate::query::VersionCount;

impl Kept {
    pub(super) fn define(&mut self, files: &Files, at: Time) -> Result<Arc<Catalog>, StoreError> {
        if let Some(Change { catalog, .. }) = self.catalog.with(files, at, || Ok(self.counts_by_version()))? {
            self.catalog = Arc::new(catalog);
        }
        Ok(Arc::clone(&self.catalog))
    }

    pub(super) fn use_definition(&mut self, hash: &str, by: &str, now: Time) -> Result<Arc<Catalog>, StoreError> {
        let counts = self.counts_by_version();
        if let Some((catalog, entry)) = self.catalog.using(hash, by, now, &counts)? {
            let place = self.last() + 1;
            self.log.push(entry.at(place));
            self.catalog = Arc::new(catalog);
            self.generation += 1;
        }
        Ok(Arc::clone(&self.catalog))
    }

    pub(super) fn counts_by_version(&self) -> Vec<VersionCount> {
        let mut counts = BTreeMap::<_, u64>::new();
        for (_, record) in self.records() {
            if let Ok(number) = self.catalog.number_of(&record.lifecycle) {
                *counts.entry((number, Arc::clone(record.state_name()))).or_default() += 1;
            }
        }
        let of = |((number, state), count)| VersionCount::of(&self.catalog, number, &state, count);
        let mut counts: Vec<VersionCount> = counts.into_iter().filter_map(of).collect();
        counts.sort_unstable();
        counts
    }
}
