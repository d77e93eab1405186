//! Validates new API keys.

use std::collections::BTreeSet;
use std::sync::Arc;

use onceward_core::closest_name;
use onceward_core::time::Time;

use crate::error::EngineError;

/// Begins the names of the engine's own lifecycles, and of the workers that hold their leases.
pub(super) const ENGINE_NAME_PREFIX: &str = "onceward.";

/// The limit of a record's owner.
const MAX_OWNER_CHARS: usize = 1_000;

/// Limit of a role, a lifecycle name and a key's name.
const MAX_NAME_CHARS: usize = 100;

/// Roles that the engine defines.
pub const BUILT_IN_ROLES: [&str; 5] = ["operator", "producer", "worker", "viewer", "metrics"];

/// Limit of the roles, and of the lifecycles, of one key.
const MAX_ROLES_OR_LIFECYCLES: usize = 100;

/// A request for a new API key.
#[derive(Clone, Debug, Default)]
pub struct NewApiKey {
    /// `actor.id` of every call with the key.
    pub owner: Arc<str>,
    pub roles: Vec<Arc<str>>,
    /// Lifecycles that a worker may lease from; empty for all.
    pub lifecycles: Vec<Arc<str>>,
    /// A label for people.
    pub name: Arc<str>,
    pub expires_at: Option<Time>,
}

impl NewApiKey {
    /// Validates the request and removes duplicates. `lifecycle_roles` are the roles that lifecycles name.
    pub(super) fn validated(mut self, now: Time, lifecycle_roles: &BTreeSet<Arc<str>>) -> Result<Self, EngineError> {
        let invalid = |why: &str| Err(EngineError::InvalidApiKey(why.to_owned()));
        if !is_valid_text(&self.owner, 1, MAX_OWNER_CHARS) {
            return invalid("the owner must have 1 to 1000 characters and no control characters");
        }
        if *self.owner == *"engine" || self.owner.starts_with(ENGINE_NAME_PREFIX) {
            return invalid("the owner must not be `engine` and must not begin with `onceward.`");
        }
        if !is_valid_text(&self.name, 0, MAX_NAME_CHARS) {
            return invalid("the name must have at most 100 characters and no control characters");
        }
        if self.roles.len().max(self.lifecycles.len()) > MAX_ROLES_OR_LIFECYCLES {
            return invalid("it has more than 100 roles or lifecycles");
        }
        let is_identifier = |name: &Arc<str>| {
            name.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter))
                && is_valid_text(name, 1, MAX_NAME_CHARS)
        };
        if self.roles.is_empty() {
            return invalid("it needs a role: operator, producer, worker, viewer, metrics, or a role of a lifecycle");
        }
        if !self.roles.iter().all(is_identifier) || self.roles.iter().any(|role| **role == *"engine") {
            return invalid("a role must have 1 to 100 letters, digits, `.`, `_` or `-`, and must not be `engine`");
        }
        // An unknown role may belong to a future lifecycle. A role that resembles a built-in one is a typo, and would
        // give a viewer a producer's rights.
        for role in unknown_roles(&self.roles, lifecycle_roles) {
            let lowercase_role = role.to_ascii_lowercase();
            // A different first letter means another word: `moderator` is not `operator`.
            let similar = BUILT_IN_ROLES.into_iter().filter(|ours| ours.get(..1) == lowercase_role.get(..1));
            if let Some(suggestion) = closest_name(&lowercase_role, similar) {
                return invalid(&format!("no lifecycle names the role `{role}`; did you mean `{suggestion}`?"));
            }
        }
        if !self.lifecycles.iter().all(is_identifier) {
            return invalid("the name of a lifecycle must have 1 to 100 letters, digits, `.`, `_` or `-`");
        }
        if !self.lifecycles.is_empty() && !self.roles.iter().any(|role| **role == *"worker") {
            return invalid("only an API key with the role `worker` can be restricted to lifecycles");
        }
        if self.expires_at.is_some_and(|end| end <= now) {
            return invalid("its expiry time is in the past");
        }
        for names in [&mut self.roles, &mut self.lifecycles] {
            names.sort_unstable();
            names.dedup();
        }
        Ok(self)
    }
}

/// Returns the roles that are neither built in nor named by a lifecycle.
pub(super) fn unknown_roles<'a>(
    roles: &'a [Arc<str>],
    lifecycle_roles: &'a BTreeSet<Arc<str>>,
) -> impl Iterator<Item = &'a Arc<str>> {
    roles.iter().filter(|role| !BUILT_IN_ROLES.contains(&&***role) && !lifecycle_roles.contains(*role))
}

fn is_valid_text(text: &str, min_chars: usize, max_chars: usize) -> bool {
    (min_chars..=max_chars).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validate_role(role: &str) -> Result<NewApiKey, EngineError> {
        let now = Time::from_micros(0);
        NewApiKey { owner: "ann".into(), roles: vec![role.into()], ..NewApiKey::default() }
            .validated(now, &["reviewer".into()].into())
    }

    /// Almost every role may create records: a mistyped `viewer` would have a producer's rights.
    #[test]
    fn role_similar_to_built_in_role_is_rejected() {
        for role in ["Viewer", "veiwer", "viewers", "Operator", "worke", "METRICS"] {
            assert!(validate_role(role).is_err(), "{role}");
        }
        for role in BUILT_IN_ROLES.into_iter().chain(["pro", "moderator", "reviewer", "oracle"]) {
            assert!(validate_role(role).is_ok(), "{role}");
        }
    }
}
