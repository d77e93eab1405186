//! The authenticated caller of a request.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use onceward_core::record::Actor;
use onceward_engine::{EngineError, Identity};

use crate::app::AppState;
use crate::problem::Problem;
use crate::telemetry;

/// The caller of a request, as `auth.rs` identified it.
#[derive(Clone, Debug)]
pub struct Caller {
    pub actor: Actor,
    pub(crate) identity: Identity,
}

impl Caller {
    /// Returns an error unless the caller is an operator.
    pub fn require_operator(&self) -> Result<(), Problem> {
        Ok(self.identity.require_operator()?)
    }

    /// Returns an error unless the caller may lease jobs of all these lifecycles.
    pub(crate) fn require_lease(&self, lifecycles: &[Arc<str>]) -> Result<(), Problem> {
        Ok(self.identity.require_lease(lifecycles)?)
    }
}

impl FromRequestParts<AppState> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Problem> {
        // Only public paths get here without an identity.
        let identity = parts.extensions.get::<Identity>().cloned().ok_or(EngineError::Unauthorized)?;
        telemetry::set_owner(&identity.actor.id);
        Ok(Self { actor: identity.actor.clone(), identity })
    }
}
