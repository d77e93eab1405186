//! Lifecycle versions: list, count and activate.

use std::sync::Arc;

use onceward_core::decide::Refusal;
use onceward_core::model::Lifecycle;
use onceward_core::record::Actor;
use onceward_store::{Catalog, Store, VersionCount};

use crate::api_keys::require_operator;
use crate::engine::Engine;
use crate::error::EngineError;

/// Shorter prefixes are likely to be ambiguous or mistyped.
const MIN_HASH_PREFIX_CHARS: usize = 8;

impl<S: Store + 'static> Engine<S> {
    /// Returns the newest catalog, including uploads by other processes.
    pub async fn lifecycles(&self) -> Result<Arc<Catalog>, EngineError> {
        Ok(self.shared.store.refresh_catalog().await?)
    }

    /// Counts records by version and state, for all owners. Requires an operator.
    pub async fn counts_by_version(&self, actor: &Actor) -> Result<Vec<VersionCount>, EngineError> {
        require_operator(actor)?;
        Ok(self.shared.store.counts_by_version().await?)
    }

    /// Activates a known version of a lifecycle. `hash_prefix` needs at least 8 characters. From now on every process
    /// creates new records with it; existing records keep their version. Requires an operator.
    pub async fn activate_version(
        &self,
        actor: &Actor,
        name: &str,
        hash_prefix: &str,
    ) -> Result<Arc<Lifecycle>, EngineError> {
        require_operator(actor)?;
        let store = &self.shared.store;
        let version = find_version(&*store.refresh_catalog().await?, name, hash_prefix)?;
        store.activate_version(&version.hash, &actor.id, store.now().await?).await?;
        self.shared.notifier.wake_all();
        Ok(version)
    }
}

/// Returns the version of a lifecycle by a prefix of its hash.
pub fn find_version(catalog: &Catalog, name: &str, hash_prefix: &str) -> Result<Arc<Lifecycle>, EngineError> {
    let versions = catalog.versions(name);
    if versions.is_empty() {
        return Err(refusal_error(
            "use",
            404,
            "unknown_lifecycle",
            catalog.definitions.unknown_lifecycle_message(name),
        ));
    }
    if hash_prefix.len() < MIN_HASH_PREFIX_CHARS {
        let reason = format!("give at least {MIN_HASH_PREFIX_CHARS} characters of the version's hash");
        return Err(refusal_error("use", 422, "invalid_input", reason));
    }
    let mut matching = versions.iter().filter(|version| version.lifecycle.hash.starts_with(hash_prefix));
    match (matching.next(), matching.next()) {
        (Some(version), None) => Ok(Arc::clone(&version.lifecycle)),
        (Some(_), Some(_)) => {
            let reason =
                format!("several versions of {name} start with {hash_prefix}; give more characters of the hash");
            Err(refusal_error("use", 422, "invalid_input", reason))
        }
        (None, _) => {
            Err(refusal_error("use", 404, "unknown_version", format!("no version of {name} starts with {hash_prefix}")))
        }
    }
}

pub(crate) fn refusal_error(event: &str, status: u16, code: &str, reason: String) -> EngineError {
    EngineError::Refused(Box::new(Refusal {
        status,
        code: code.into(),
        record: None,
        lifecycle: None,
        state: None,
        event: event.into(),
        reason,
        audit: None,
        committed_token: None,
        retry_after: None,
        is_denial: status == 403,
    }))
}
