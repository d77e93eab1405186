//! Who calls, and what only some may do. What a record lets whom do is for core to say; these are the calls that are about no
//! record, or not yet about one.

use std::sync::Arc;

use onceward_core::decide::reads_everything;
use onceward_core::record::Actor;
use onceward_store::ApiKey;

use crate::error::EngineError;

/// Whoever calls: the actor of all its operations, and what its key says beyond that.
#[derive(Clone, Debug)]
pub struct Identity {
    pub actor: Actor,
    /// The id of its key; `None` where no keys are asked for.
    pub api_key_id: Option<Arc<str>>,
    /// The lifecycles that it may lease from; `None` for all of them.
    leasable_lifecycles: Option<Arc<[Arc<str>]>>,
}

impl Identity {
    /// Whoever reaches a server that asks for no keys: `local`, with these roles.
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

    /// INV-9: leasing is for workers, and with a key for some lifecycles from those only.
    pub fn require_lease(&self, lifecycles: &[Arc<str>]) -> Result<(), EngineError> {
        if !self.actor.has_role("worker") && !self.actor.has_role("operator") {
            return Err(EngineError::Forbidden("leasing work is for keys with the role `worker`".to_owned()));
        }
        let Some(allowed) = &self.leasable_lifecycles else { return Ok(()) };
        match lifecycles.iter().find(|asked| !allowed.contains(asked)) {
            Some(asked) => Err(EngineError::Forbidden(format!("this key does not lease from `{asked}`"))),
            None => Ok(()),
        }
    }

    /// INV-9: keys, pruning, accounts, and whatever else is about the whole and not about one's own records.
    pub fn require_operator(&self) -> Result<(), EngineError> {
        require_operator(&self.actor)
    }

    /// Counters are of all owners together, and tell nothing of any record.
    pub fn require_metrics(&self) -> Result<(), EngineError> {
        if self.actor.has_role("operator") || self.actor.has_role("metrics") {
            return Ok(());
        }
        Err(EngineError::Forbidden("metrics are for keys with the role `metrics` or `operator`".to_owned()))
    }
}

/// What is nobody's in particular, accounts, versions and keys, is for those who look after all of it.
pub(crate) fn require_operator(actor: &Actor) -> Result<(), EngineError> {
    if reads_everything(actor) {
        return Ok(());
    }
    Err(EngineError::Forbidden("this is for keys with the role `operator`".to_owned()))
}
