//! What a new key may be.

use std::collections::BTreeSet;
use std::sync::Arc;

use onceward_core::closest_name;
use onceward_core::time::Time;

use crate::error::EngineError;

/// Characters of an owner, as of a record's.
const MAX_OWNER_CHARS: usize = 1_000;

/// Characters of a role, of a lifecycle's name, and of a key's own.
const MAX_NAME_CHARS: usize = 100;

/// Those that the engine knows itself.
const BUILT_IN_ROLES: [&str; 5] = ["operator", "producer", "worker", "viewer", "metrics"];

/// Roles, and lifecycles, of one key.
const MAX_ROLES_OR_LIFECYCLES: usize = 100;

/// A key that is to be made.
#[derive(Clone, Debug, Default)]
pub struct NewApiKey {
    /// `actor.id` of every call with it.
    pub owner: Arc<str>,
    pub roles: Vec<Arc<str>>,
    /// The lifecycles that a worker may lease from with it; none named: all of them.
    pub lifecycles: Vec<Arc<str>>,
    /// What people call it.
    pub name: Arc<str>,
    pub expires_at: Option<Time>,
}

impl NewApiKey {
    /// As it is kept: each role and lifecycle once. `named` are the roles that lifecycles ask for.
    pub(super) fn validated(mut self, now: Time, lifecycle_roles: &BTreeSet<Arc<str>>) -> Result<Self, EngineError> {
        let invalid = |why: &str| Err(EngineError::InvalidApiKey(why.to_owned()));
        if !is_valid_text(&self.owner, 1, MAX_OWNER_CHARS) || *self.owner == *"engine" {
            return invalid(
                "its owner has from 1 to 1000 characters, none of them a control character, and is not `engine`",
            );
        }
        if !is_valid_text(&self.name, 0, MAX_NAME_CHARS) {
            return invalid("its name has at most 100 characters, and no control characters among them");
        }
        let is_identifier = |name: &Arc<str>| {
            name.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter))
                && is_valid_text(name, 1, MAX_NAME_CHARS)
        };
        if self.roles.is_empty() {
            return invalid(
                "it needs a role: operator, producer, worker, viewer, metrics, or one that a lifecycle names",
            );
        }
        if !self.roles.iter().all(is_identifier) || self.roles.iter().any(|role| **role == *"engine") {
            return invalid("a role has letters, digits, `.`, `_` and `-`, at most 100 of them, and is not `engine`");
        }
        // Any other word may be a role of a lifecycle to come; one that is almost ours is a slip, and would make a producer of a viewer.
        for role in unknown_roles(&self.roles, lifecycle_roles) {
            let lowercase_role = role.to_ascii_lowercase();
            // With another first letter it is another word: `moderator` is not `operator`.
            let similar = BUILT_IN_ROLES.into_iter().filter(|ours| ours.get(..1) == lowercase_role.get(..1));
            if let Some(suggestion) = closest_name(&lowercase_role, similar) {
                return invalid(&format!("no lifecycle names the role `{role}`: is `{suggestion}` meant?"));
            }
        }
        if !self.lifecycles.iter().all(is_identifier) {
            return invalid("a lifecycle's name has letters, digits, `.`, `_` and `-`, at most 100 of them");
        }
        if !self.lifecycles.is_empty() && !self.roles.iter().any(|role| **role == *"worker") {
            return invalid("only the role `worker` can be narrowed to some lifecycles");
        }
        if self.expires_at.is_some_and(|end| end <= now) {
            return invalid("it would have expired already");
        }
        for names in [&mut self.roles, &mut self.lifecycles] {
            names.sort_unstable();
            names.dedup();
            if names.len() > MAX_ROLES_OR_LIFECYCLES {
                return invalid("it has more than 100 roles or lifecycles");
            }
        }
        Ok(self)
    }
}

/// Roles that are neither ours nor named by a lifecycle.
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

    /// Every role but a few may make records: a viewer's key with a slip in it would be a producer's.
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
