//! Compares the stored activations of lifecycle versions with the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceward_store::log::VersionActivated;
use onceward_store::scan::{DifferenceKind, Scan, TableDifference};
use onceward_store::{Catalog, LogEntry, StoreError};

use super::Verifier;
use super::log::HISTORY_TABLE;

const ACTIVATIONS_TABLE: &str = "activations";

/// The activations that were stored at the start. Later ones appear later in the log.
pub(super) struct Activations {
    revision: u32,
    /// Activations by revision that the log has not shown yet.
    unlogged: BTreeMap<u32, StoredActivation>,
}

struct StoredActivation {
    definition: Arc<str>,
    activated_at: i64,
    actor: Arc<str>,
}

impl Activations {
    pub(super) fn from_catalog(catalog: &Catalog) -> Self {
        let mut unlogged = BTreeMap::new();
        for (revision, activation) in catalog.activations() {
            let definition = catalog.version_hash(activation.version_number).unwrap_or_else(|| "?".into());
            let actor = activation.activated_by.clone().unwrap_or_default();
            unlogged.insert(
                revision,
                StoredActivation { definition, activated_at: activation.activated_at.micros(), actor },
            );
        }
        Self { revision: catalog.revision(), unlogged }
    }
}

impl<S: Scan> Verifier<'_, S> {
    /// Verifies a log entry of an activation.
    pub(super) async fn verify_activation(
        &mut self,
        entry: &LogEntry,
        activated: &VersionActivated,
    ) -> Result<(), StoreError> {
        self.replay.advance_to(entry.seq);
        if activated.revision > self.replay.catalog().revision() {
            let catalog_scan = self.store.scan_catalog().await?;
            self.replay.set_catalog(&catalog_scan.catalog)?;
        }
        let known_name = self.replay.catalog().by_hash(&activated.definition).map(|version| Arc::clone(&version.name));
        if known_name.as_ref() != Some(&activated.lifecycle) {
            let why = format!("the database has no version {} of {}", activated.definition, activated.lifecycle);
            self.add_difference(TableDifference::invalid(HISTORY_TABLE, entry.seq, why).with_rule("INV-3"));
        }
        let Some(stored) = self.activations.unlogged.remove(&activated.revision) else {
            if activated.revision <= self.activations.revision {
                self.add_difference(TableDifference::new(
                    ACTIVATIONS_TABLE,
                    activated.revision,
                    DifferenceKind::Missing,
                ));
            }
            return Ok(());
        };
        for (column, stored_cell, expected_cell) in [
            ("definition", stored.definition.to_string(), activated.definition.to_string()),
            ("at", stored.activated_at.to_string(), entry.at.micros().to_string()),
            ("actor", stored.actor.to_string(), activated.by.to_string()),
        ] {
            if stored_cell != expected_cell {
                self.add_difference(TableDifference::differs(
                    ACTIVATIONS_TABLE,
                    activated.revision,
                    column,
                    stored_cell,
                    expected_cell,
                ));
            }
        }
        Ok(())
    }

    /// Reports stored activations that the log does not contain.
    pub(super) fn report_unlogged_activations(&mut self) {
        for revision in std::mem::take(&mut self.activations.unlogged).into_keys() {
            self.add_difference(TableDifference::new(ACTIVATIONS_TABLE, revision, DifferenceKind::Extra));
        }
    }
}
