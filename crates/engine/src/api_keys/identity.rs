//! The authenticated caller, and permissions that concern no single record. Core decides permissions on records.

use std::sync::Arc;

use onceward_core::decide::reads_everything;
use onceward_core::record::Actor;
use onceward_store::ApiKey;

use super::new_key::ENGINE_NAME_PREFIX;
use crate::error::EngineError;

/// An authenticated caller: the actor of its operations, and the restrictions of its key.
#[derive(Clone, Debug)]
pub struct Identity {
    pub actor: Actor,
    /// Id of its key; `None` if authentication is not required.
    pub api_key_id: Option<Arc<str>>,
    /// Lifecycles that it may lease from; `None` for all.
    leasable_lifecycles: Option<Arc<[Arc<str>]>>,
}

impl Identity {
    /// The caller of a server without authentication: `local`, with these roles.
    pub fn unauthenticated(roles: &[&str]) -> Self {
        Self { actor: Actor::new("local", roles), api_key_id: None, leasable_lifecycles: None }
    }

    pub(super) fn from_api_key(key: &ApiKey) -> Self {
        let roles: Vec<&str> = key.roles.iter().map(|role| &**role).collect();
        Self {
            actor: Actor::new(&key.owner, &roles),
            api_key_id: Some(Arc::clone(&key.id)),
            leasable_lifecycles: key.lifecycles.as_deref().map(Into::into),
        }
    }

    /// INV-9: only workers may lease, and only from the lifecycles of their key. Jobs of the engine's own lifecycles are
    /// for its in-process workers: any other worker could read all owners' deliveries and acknowledge them unsent.
    pub fn require_lease(&self, lifecycles: &[Arc<str>]) -> Result<(), EngineError> {
        if !self.actor.has_role("worker") && !self.actor.has_role("operator") {
            return Err(EngineError::Forbidden("leasing jobs requires the role `worker`".to_owned()));
        }
        if let Some(internal) = lifecycles.iter().find(|lifecycle| lifecycle.starts_with(ENGINE_NAME_PREFIX)) {
            return Err(EngineError::Forbidden(format!("only the engine itself works on jobs of `{internal}`")));
        }
        let Some(allowed) = &self.leasable_lifecycles else { return Ok(()) };
        match lifecycles.iter().find(|lifecycle| !allowed.contains(lifecycle)) {
            Some(denied) => Err(EngineError::Forbidden(format!("the API key may not lease from `{denied}`"))),
            None => Ok(()),
        }
    }

    /// INV-9: API keys, pruning, accounts and other global calls require an operator.
    pub fn require_operator(&self) -> Result<(), EngineError> {
        require_operator(&self.actor)
    }

    /// Metrics cover all owners and reveal no record.
    pub fn require_metrics(&self) -> Result<(), EngineError> {
        if self.actor.has_role("operator") || self.actor.has_role("metrics") {
            return Ok(());
        }
        Err(EngineError::Forbidden("reading metrics requires the role `metrics` or `operator`".to_owned()))
    }
}

/// Accounts, versions and API keys belong to no owner, so they require an operator.
pub(crate) fn require_operator(actor: &Actor) -> Result<(), EngineError> {
    if reads_everything(actor) {
        return Ok(());
    }
    Err(EngineError::Forbidden("the call requires the role `operator`".to_owned()))
}
