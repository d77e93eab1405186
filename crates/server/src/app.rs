//! The state that all handlers share.

use std::sync::Arc;

use onceward_engine::Engine;
use onceward_store::AnyStore;

use crate::auth::LocalIdentityCache;
use crate::capacity::Capacity;
use crate::config::ServerConfig;
use crate::rate_limiter::RateLimiter;
use crate::telemetry::Telemetry;

/// The state of a server. Clones share it.
#[derive(Clone, Debug)]
pub struct AppState {
    inner: Arc<AppStateInner>,
}

#[derive(Debug)]
struct AppStateInner {
    engine: Engine<AnyStore>,
    config: ServerConfig,
    capacity: Capacity,
    rate_limiter: RateLimiter,
    local_identity_cache: LocalIdentityCache,
    /// The OpenAPI document as served at `/openapi.json`.
    openapi_json: String,
    /// Paths whose handlers limit their own time.
    self_timed_paths: Vec<&'static str>,
    /// Paths that accept bytes instead of JSON.
    binary_paths: Vec<&'static str>,
}

impl AppState {
    pub(crate) fn new(
        engine: Engine<AnyStore>,
        config: ServerConfig,
        openapi_json: String,
        self_timed_paths: Vec<&'static str>,
        binary_paths: Vec<&'static str>,
    ) -> Self {
        let (capacity, rate_limiter) = (Capacity::new(&config), RateLimiter::new(config.requests_per_second));
        let local_identity_cache = LocalIdentityCache::default();
        Self {
            inner: Arc::new(AppStateInner {
                engine,
                config,
                capacity,
                rate_limiter,
                local_identity_cache,
                openapi_json,
                self_timed_paths,
                binary_paths,
            }),
        }
    }

    pub fn engine(&self) -> &Engine<AnyStore> {
        &self.inner.engine
    }

    pub fn config(&self) -> &ServerConfig {
        &self.inner.config
    }

    pub(crate) fn openapi_json(&self) -> &str {
        &self.inner.openapi_json
    }

    /// Returns whether handlers of this path may wait and limit their own time.
    pub(crate) fn is_self_timed(&self, path: &str) -> bool {
        matches!(path, "/v1/leases" | "/v1/stream" | "/v1/prune") || self.inner.self_timed_paths.contains(&path)
    }

    pub(crate) fn is_binary_path(&self, path: &str) -> bool {
        self.inner.binary_paths.contains(&path)
    }

    pub(crate) fn telemetry(&self) -> &Arc<Telemetry> {
        &self.inner.config.telemetry
    }

    pub(crate) fn capacity(&self) -> &Capacity {
        &self.inner.capacity
    }

    pub(crate) fn local_identity_cache(&self) -> &LocalIdentityCache {
        &self.inner.local_identity_cache
    }

    pub(crate) fn rate_limiter(&self) -> &RateLimiter {
        &self.inner.rate_limiter
    }
}
