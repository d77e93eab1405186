//! What a new key may be.

use std::collections::BTreeSet;
use std::sync::Arc;

use onceward_core::nearest;
use onceward_core::time::Time;

use crate::error::EngineError;

/// Characters of an owner, as of a record's.
const OWNER: usize = 1_000;

/// Characters of a role, of a lifecycle's name, and of a key's own.
const NAME: usize = 100;

/// Those that the engine knows itself.
const ROLES: [&str; 5] = ["operator", "producer", "worker", "viewer", "metrics"];

/// Roles, and lifecycles, of one key.
const MOST: usize = 100;

/// A key that is to be made.
#[derive(Clone, Debug, Default)]
pub struct NewKey {
    /// `actor.id` of every call with it.
    pub owner: Arc<str>,
    pub roles: Vec<Arc<str>>,
    /// The lifecycles that a worker may lease from with it; none named: all of them.
    pub lifecycles: Vec<Arc<str>>,
    /// What people call it.
    pub name: Arc<str>,
    pub expires_at: Option<Time>,
}

impl NewKey {
    /// As it is kept: each role and lifecycle once. `named` are the roles that lifecycles ask for.
    pub(super) fn checked(mut self, now: Time, named: &BTreeSet<Arc<str>>) -> Result<Self, EngineError> {
        let bad = |why: &str| Err(EngineError::BadApiKey(why.to_owned()));
        if !is_text(&self.owner, 1, OWNER) || *self.owner == *"engine" {
            return bad(
                "its owner has from 1 to 1000 characters, none of them a control character, and is not `engine`",
            );
        }
        if !is_text(&self.name, 0, NAME) {
            return bad("its name has at most 100 characters, and no control characters among them");
        }
        let is_word = |name: &Arc<str>| {
            name.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter))
                && is_text(name, 1, NAME)
        };
        if self.roles.is_empty() {
            return bad("it needs a role: operator, producer, worker, viewer, metrics, or one that a lifecycle names");
        }
        if !self.roles.iter().all(is_word) || self.roles.iter().any(|role| **role == *"engine") {
            return bad("a role has letters, digits, `.`, `_` and `-`, at most 100 of them, and is not `engine`");
        }
        // Any other word may be a role of a lifecycle to come; one that is almost ours is a slip, and would make a producer of a viewer.
        for role in unknown(&self.roles, named) {
            let role_in_small = role.to_ascii_lowercase();
            // With another first letter it is another word: `moderator` is not `operator`.
            let alike = ROLES.into_iter().filter(|ours| ours.get(..1) == role_in_small.get(..1));
            if let Some(meant) = nearest(&role_in_small, alike) {
                return bad(&format!("no lifecycle names the role `{role}`: is `{meant}` meant?"));
            }
        }
        if !self.lifecycles.iter().all(is_word) {
            return bad("a lifecycle's name has letters, digits, `.`, `_` and `-`, at most 100 of them");
        }
        if !self.lifecycles.is_empty() && !self.roles.iter().any(|role| **role == *"worker") {
            return bad("only the role `worker` can be narrowed to some lifecycles");
        }
        if self.expires_at.is_some_and(|end| end <= now) {
            return bad("it would have expired already");
        }
        for names in [&mut self.roles, &mut self.lifecycles] {
            names.sort_unstable();
            names.dedup();
            if names.len() > MOST {
                return bad("it has more than 100 roles or lifecycles");
            }
        }
        Ok(self)
    }
}

/// Roles that are neither ours nor named by a lifecycle.
pub(super) fn unknown<'a>(roles: &'a [Arc<str>], named: &'a BTreeSet<Arc<str>>) -> impl Iterator<Item = &'a Arc<str>> {
    roles.iter().filter(|role| !ROLES.contains(&&***role) && !named.contains(*role))
}

fn is_text(text: &str, least: usize, most: usize) -> bool {
    (least..=most).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(role: &str) -> Result<NewKey, EngineError> {
        let now = Time::from_micros(0);
        NewKey { owner: "ann".into(), roles: vec![role.into()], ..NewKey::default() }
            .checked(now, &["reviewer".into()].into())
    }

    /// Every role but a few may make records: a viewer's key with a slip in it would be a producer's.
    #[test]
    fn a_role_that_is_almost_ours_is_a_slip() {
        for role in ["Viewer", "veiwer", "viewers", "Operator", "worke", "METRICS"] {
            assert!(checked(role).is_err(), "{role}");
        }
        for role in ROLES.into_iter().chain(["pro", "moderator", "reviewer", "oracle"]) {
            assert!(checked(role).is_ok(), "{role}");
        }
    }
}
