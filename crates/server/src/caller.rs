//! Who asks.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use onceward_core::record::Actor;
use onceward_engine::{EngineError, Identity};

use crate::app::AppState;
use crate::problem::Problem;
use crate::telemetry;

/// Whoever sent a request, as `auth.rs` has found out.
#[derive(Clone, Debug)]
pub struct Caller {
    pub actor: Actor,
    pub(crate) identity: Identity,
}

impl Caller {
    /// Some calls are about the server itself, and for those who look after it.
    pub fn require_operator(&self) -> Result<(), Problem> {
        Ok(self.identity.require_operator()?)
    }

    /// Whether it may lease from all of these.
    pub(crate) fn require_lease(&self, lifecycles: &[Arc<str>]) -> Result<(), Problem> {
        Ok(self.identity.require_lease(lifecycles)?)
    }
}

impl FromRequestParts<AppState> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Problem> {
        // Nobody gets here who was not let in, but to what is open to all.
        let identity = parts.extensions.get::<Identity>().cloned().ok_or(EngineError::Unauthorized)?;
        telemetry::set_owner(&identity.actor.id);
        Ok(Self { actor: identity.actor.clone(), identity })
    }
}
