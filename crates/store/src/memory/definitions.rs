//! Lifecycles in the reference model.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceward_core::diagnostic::InputFiles;
use onceward_core::time::Time;

use super::state::MemoryState;
use crate::catalog::{Catalog, CatalogChange};
use crate::error::StoreError;
use crate::query::VersionCount;

impl MemoryState {
    pub(super) fn put_lifecycles(&mut self, files: &InputFiles, at: Time) -> Result<Arc<Catalog>, StoreError> {
        if let Some(CatalogChange { catalog, .. }) =
            self.catalog.with_files(files, at, || Ok(self.counts_by_version()))?
        {
            self.catalog = Arc::new(catalog);
        }
        Ok(Arc::clone(&self.catalog))
    }

    pub(super) fn activate_version(&mut self, hash: &str, by: &str, now: Time) -> Result<Arc<Catalog>, StoreError> {
        let counts = self.counts_by_version();
        if let Some((catalog, entry)) = self.catalog.with_activated_version(hash, by, now, &counts)? {
            let seq = self.last_seq() + 1;
            self.log.push(entry.with_seq(seq));
            self.catalog = Arc::new(catalog);
            self.generation += 1;
        }
        Ok(Arc::clone(&self.catalog))
    }

    pub(super) fn counts_by_version(&self) -> Vec<VersionCount> {
        let mut counts = BTreeMap::<_, u64>::new();
        for (_, record) in self.records() {
            if let Ok(number) = self.catalog.version_number(&record.lifecycle) {
                *counts.entry((number, Arc::clone(record.state_name()))).or_default() += 1;
            }
        }
        let of = |((number, state), count)| VersionCount::resolve(&self.catalog, number, &state, count);
        let mut counts: Vec<VersionCount> = counts.into_iter().filter_map(of).collect();
        counts.sort_unstable();
        counts
    }
}
