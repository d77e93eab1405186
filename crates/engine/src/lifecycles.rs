//! The lifecycles themselves: which versions there are, who lives by them, and which one is current.

use std::sync::Arc;

use onceward_core::decide::Refusal;
use onceward_core::model::Lifecycle;
use onceward_core::record::Actor;
use onceward_store::{Catalog, Store, VersionCount};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::keys::must_be_operator;

/// Of a hash, so much at least must be said.
const PREFIX: usize = 8;

impl<S: Store + 'static> Engine<S> {
    /// The lifecycles as they are now, whichever process brought them.
    pub async fn lifecycles(&self) -> Result<Arc<Catalog>, EngineError> {
        Ok(self.shared.store.newest_definitions().await?)
    }

    /// How many records live by each version, by state; of all owners, so for operators only.
    pub async fn counts_by_version(&self, actor: &Actor) -> Result<Vec<VersionCount>, EngineError> {
        must_be_operator(actor)?;
        Ok(self.shared.store.counts_by_version().await?)
    }

    /// Make a version that is known the current one of its lifecycle: back to an older one, or forward again. `hash` may be cut short,
    /// to 8 characters at least. New records are made by it from now on, in every process; those that are there keep theirs. For
    /// operators.
    pub async fn use_version(&self, actor: &Actor, name: &str, hash: &str) -> Result<Arc<Lifecycle>, EngineError> {
        must_be_operator(actor)?;
        let store = &self.shared.store;
        let version = version_of(&*store.newest_definitions().await?, name, hash)?;
        store.use_definition(&version.hash, &actor.id, store.now().await?).await?;
        self.shared.signals.wake_all();
        Ok(version)
    }
}

/// The version of a lifecycle whose hash begins so.
pub fn version_of(catalog: &Catalog, name: &str, hash: &str) -> Result<Arc<Lifecycle>, EngineError> {
    let versions = catalog.versions(name);
    if versions.is_empty() {
        return Err(refused("use", 404, "no_such_lifecycle", catalog.definitions.no_lifecycle(name)));
    }
    if hash.len() < PREFIX {
        let reason = format!("at least {PREFIX} characters of the version's hash are wanted");
        return Err(refused("use", 422, "bad_input", reason));
    }
    let mut fitting = versions.iter().filter(|version| version.lifecycle.hash.starts_with(hash));
    match (fitting.next(), fitting.next()) {
        (Some(version), None) => Ok(Arc::clone(&version.lifecycle)),
        (Some(_), Some(_)) => {
            let reason = format!("more than one version of {name} begins with {hash}: give more of the hash");
            Err(refused("use", 422, "bad_input", reason))
        }
        (None, _) => Err(refused("use", 404, "no_such_version", format!("no version of {name} begins with {hash}"))),
    }
}

pub(crate) fn refused(event: &str, status: u16, code: &str, reason: String) -> EngineError {
    EngineError::Refused(Box::new(Refusal {
        status,
        code: code.into(),
        record: None,
        lifecycle: None,
        state: None,
        event: event.into(),
        reason,
        audit: None,
        committed: None,
        retry_after: None,
        denial: status == 403,
    }))
}
