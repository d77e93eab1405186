//! What all handlers share.

use std::sync::Arc;

use onceward_engine::Engine;
use onceward_store::AnyStore;

use crate::admission::Everybody;
use crate::gate::Gate;
use crate::limits::Limits;
use crate::observe::Observe;
use crate::settings::Settings;

/// The state of a server. Clones are the same one.
#[derive(Clone, Debug)]
pub struct App {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    engine: Engine<AnyStore>,
    settings: Settings,
    gate: Gate,
    limits: Limits,
    everybody: Everybody,
    /// As it is served.
    contract: String,
    /// Paths that bound their own time.
    unhurried: Vec<&'static str>,
    /// Paths that take bytes in place of JSON.
    bytes: Vec<&'static str>,
}

impl App {
    pub(crate) fn new(
        engine: Engine<AnyStore>,
        settings: Settings,
        contract: String,
        unhurried: Vec<&'static str>,
        bytes: Vec<&'static str>,
    ) -> Self {
        let (gate, limits) = (Gate::new(&settings), Limits::new(settings.requests_per_second));
        let everybody = Everybody::default();
        Self { inner: Arc::new(Inner { engine, settings, gate, limits, everybody, contract, unhurried, bytes }) }
    }

    pub fn engine(&self) -> &Engine<AnyStore> {
        &self.inner.engine
    }

    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    pub(crate) fn contract(&self) -> &str {
        &self.inner.contract
    }

    /// They wait on purpose, and bound themselves.
    pub(crate) fn is_unhurried(&self, path: &str) -> bool {
        matches!(path, "/v1/leases" | "/v1/stream" | "/v1/prune") || self.inner.unhurried.contains(&path)
    }

    pub(crate) fn takes_bytes(&self, path: &str) -> bool {
        self.inner.bytes.contains(&path)
    }

    pub(crate) fn observe(&self) -> &Arc<Observe> {
        &self.inner.settings.observe
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.inner.gate
    }

    pub(crate) fn everybody(&self) -> &Everybody {
        &self.inner.everybody
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.inner.limits
    }
}
